#!/usr/bin/env python3
"""Suites and lit tests that a change can reach: by the build's own dependencies for what is
compiled, by imports and names for what is a script.

usage: affected.py BUILD (--since REV | --changed FILE…) [--suites FILE] [--lit FILE]

--suites writes a regular expression of ctest names, --lit a line per lit test; an empty file
stands for none. Without them the names are printed. Where the build itself has changed, all
suites are named. A test that runs `partita` is reached by all that `partita` loads.
"""
import argparse
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: A change of these can reach anything.
EVERYTHING = re.compile(r"(^|/)CMakeLists\.txt$|\.cmake$|^CMakePresets\.json$|^lit\.cfg\.py$|"
                        r"^utils/(setup|requirements.*\.txt|check)$|^\.ci/")
#: Loaded while running by what the key builds.
LOADED = {"partita": ["partita-run", "partita_runtime", "partita_mpi"]}


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"affected.py: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Build:
    """Which files of the tree a built target depends on."""

    def __init__(self, folder):
        self.folder = folder
        self.headers = self.read_headers()
        self.known = {}
        #: {output: inputs} of every edge, without those that only come before it.
        self.edges = {}
        #: {name: path below the build folder} of programs and libraries.
        self.targets = {}
        self.read_edges()

    def read_edges(self):
        text = (self.folder / "build.ninja").read_text().replace("$\n", "")
        for line in re.findall(r"^build (.*)$", text, re.MULTILINE):
            outputs, rest = re.split(r"(?<!\$): ", line, maxsplit=1)
            rule, *inputs = rest.split(" || ")[0].replace("| ", "").split()
            for output in outputs.replace("| ", "").split():
                path = output.removeprefix("${cmake_ninja_workdir}")
                self.edges.setdefault(path, []).extend(inputs)
                if re.match(r"(bin|lib)/[^/]+$", path) and "_LINKER__" in rule:
                    name = path.split("/")[1]
                    self.targets[re.sub(r"^lib|\.so$", "", name)] = path
                    self.targets[name] = path

    def read_headers(self):
        """{object file: files it includes}, below the root."""
        found, current = {}, None
        for line in output_of("ninja", "-C", self.folder, "-t", "deps").splitlines():
            if line and not line.startswith(" "):
                current = found.setdefault(line.split(":")[0], set())
            elif line.strip():
                current.update(self.inside(line.strip()))
        return found

    @functools.cache
    def inside(self, path):
        """The path relative to the root as a list, empty where it is no file of the tree."""
        whole = os.path.normpath(os.path.join(self.folder, path))
        is_source = whole.startswith(f"{ROOT}/") and not whole.startswith(f"{self.folder}/")
        return [os.path.relpath(whole, ROOT)] if is_source else []

    def files_of(self, target):
        if target not in self.known:
            files, seen, open_paths = set(), set(), [target]
            while open_paths:
                path = open_paths.pop()
                if path in seen:
                    continue
                seen.add(path)
                files.update(self.headers.get(path, ()))
                files.update(self.inside(path))
                open_paths.extend(self.edges.get(path, ()))
            self.known[target] = files
        return self.known[target]

    def files_of_program(self, name):
        return set().union(*(self.files_of(self.targets[part])
                             for part in [name, *LOADED.get(name, [])]
                             if part in self.targets))


class Tree:
    """What the texts of the tree name."""

    def __init__(self, changed):
        self.changed = changed

    def named_in(self, path, seen=None):
        """The changed files that a script, or a script that it imports, is or names."""
        seen = set() if seen is None else seen
        if path in seen or not path.is_file() or ROOT / ".venv" in path.parents:
            return set()
        seen.add(path)
        text = path.read_text(errors="replace")
        found = {file for file in self.changed
                 if file == str(path.relative_to(ROOT)) or pathlib.Path(file).name in text}
        for module in re.findall(r"^\s*(?:import|from) \.?([\w, ]+?)(?: import .*)?(?:\s*#.*)?$", text,
                                 re.MULTILINE):
            for name in re.split(r",\s*", module):
                for folder in (path.parent, ROOT / "python"):
                    found |= self.named_in(folder / f"{name.strip()}.py", seen)
                    found |= self.named_in(folder / name.strip() / "__init__.py", seen)
        return found


def reached_suites(build, tree, changed):
    tests = json.loads(output_of("ctest", "--test-dir", build.folder,
                                 "--show-only=json-v1"))["tests"]
    makers, reached = {}, {}
    for test in tests:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        hits = set()
        words = list(test.get("command", [])) + list(properties.get("ENVIRONMENT", []))
        for word in words:
            path = pathlib.Path(word.split("=")[-1])
            if not path.is_absolute() or not path.is_relative_to(ROOT):
                continue
            if path.is_relative_to(build.folder):
                hits |= build.files_of_program(path.name) & changed
            elif path == ROOT:  # a test of the whole tree
                hits |= changed
            elif path.is_dir():
                hits |= {file for file in changed if (ROOT / file).is_relative_to(path)}
            else:
                hits |= tree.named_in(path)
        for fixture in properties.get("FIXTURES_SETUP", []):
            makers[fixture] = bool(hits)
        reached[test["name"]] = (bool(hits), properties.get("FIXTURES_REQUIRED", []))
    return [name for name, (isHit, fixtures) in reached.items()
            if isHit or any(makers.get(fixture) for fixture in fixtures)]


def reached_lit(build, tree, changed):
    found = []
    for path in sorted((ROOT / "test").rglob("*")):
        if path.suffix not in (".mlir", ".test") or "Inputs" in path.parts:
            continue
        text = path.read_text()
        runs = " ".join(re.findall(r"RUN: (.*)", text))
        programs = {word.split("/")[-1] for word in re.findall(r"[%\w./-]+", runs)} & set(
            build.targets)
        if re.search(r"%root(?!/)", runs) or tree.named_in(path) or any(
                build.files_of_program(name) & changed for name in programs):
            found.append(str(path.relative_to(ROOT)))
    return found


def changed_files(arguments):
    if arguments.changed:
        return set(arguments.changed)
    listed = output_of("git", "-C", ROOT, "diff", "--name-only", arguments.since)
    new = output_of("git", "-C", ROOT, "ls-files", "--others", "--exclude-standard")
    return set((listed + new).splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--since", help="a commit")
    what.add_argument("--changed", nargs="+", help="files, relative to the root")
    parser.add_argument("--suites", type=pathlib.Path)
    parser.add_argument("--lit", type=pathlib.Path)
    arguments = parser.parse_args()
    build = Build(arguments.build.resolve())
    changed = changed_files(arguments)
    tree = Tree(changed)
    if any(EVERYTHING.search(file) for file in changed):
        suites, lit = ["."], ["test"]
    else:
        suites = reached_suites(build, tree, changed)
        lit = reached_lit(build, tree, changed)
    if arguments.suites:
        names = ["." if name == "." else f"^{re.escape(name)}$" for name in suites]
        arguments.suites.write_text("|".join(names))
        arguments.lit.write_text("".join(path + "\n" for path in lit))
        print(f"[check] {len(changed)} changed files reach {len(suites)} suites and "
              f"{len(lit)} lit tests")
    else:
        print("\n".join(suites + lit))


if __name__ == "__main__":
    main()
