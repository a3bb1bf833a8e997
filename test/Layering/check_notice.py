#!/usr/bin/env python3
"""NOTICE names all that is linked: each Debian package of utils/setup that has a library, and
the package of each shared library that an installed binary needs.

usage: check_notice.py ROOT BUILD
"""
import pathlib
import re
import subprocess
import sys

#: Of the system itself: glibc, and the C++ runtime of GCC.
SYSTEM = {"libc6", "libc6-dev", "libgcc-s1", "libstdc++6"}


def needed_by(binary):
    """Libraries that a binary names, as the loader finds them."""
    named = subprocess.run(["readelf", "-d", binary], capture_output=True, text=True).stdout
    names = set(re.findall(r"NEEDED.*\[(.*)\]", named))
    found = subprocess.run(["ldd", binary], capture_output=True, text=True).stdout
    return {name: path for name, path in re.findall(r"(\S+) => (/\S+)", found)
            if name in names}


def package_of(path):
    """The Debian package that a file is from; None: not from one."""
    for name in (path, pathlib.Path(path).resolve(), re.sub("^/lib/", "/usr/lib/", path)):
        done = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return None


def source_of(package):
    return subprocess.run(["dpkg-query", "-W", "-f", "${source:Package}", package],
                          capture_output=True, text=True).stdout


def main(root, build):
    root, build = pathlib.Path(root), pathlib.Path(build)
    named = set(re.findall(r"[\w.+-]+", " ".join(
        re.findall(r"\[(.*?)\]", (root / "NOTICE").read_text()))))
    listed = re.search(r"^packages=\((.*?)^\)", (root / "utils/setup").read_text(),
                       re.MULTILINE | re.DOTALL)[1].split()
    wrong = [f"utils/setup installs {package}, which NOTICE does not name"
             for package in listed if (package.endswith("-dev") or package == "catch2")
             and package not in named]
    sources = {source_of(package) for package in named}
    binaries = [*build.glob("bin/partita*"), *build.glob("lib/libpartita_*.so"),
                *build.glob("lib/libPartitaPlugin.so")]
    libraries = {}
    for binary in binaries:
        libraries |= needed_by(binary)
    for name, path in sorted(libraries.items()):
        if pathlib.Path(path).is_relative_to(build):
            continue
        package = package_of(path)
        if package not in SYSTEM and source_of(package or "") not in sources:
            wrong.append(f"{name} ({package}) is linked, and NOTICE does not name it")
    print("\n".join(wrong))
    print(f"{len(binaries)} binaries, {len(libraries)} libraries, {len(wrong)} missing")
    return 1 if wrong or not binaries or not libraries else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
