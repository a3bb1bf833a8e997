#!/usr/bin/env python3
"""Damages a bundle and its inputs in many ways; the runtime must say one sentence each.

usage: run_damage.py PARTITA PARTITA_RUN [ROUNDS]

Every value of bundle.json is replaced by others and left out; bytes of every file are
overwritten at places drawn from a fixed seed, files are cut, emptied, and replaced by
folders. partita-run must then succeed, or end with status 1 and one line "error: …" that
does not come from a signal, within seconds, and leave no process, shared memory or file
behind. What must be refused is counted: every change of a library, of weights and of their
list of blocks. A change that nobody can see (numbers that are only reported) may succeed.
"""
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import run_memory  # noqa: E402

VALUES = [None, True, -1, 0, 3, 2 ** 40, 2 ** 63, 1e300, "", "x", "../x", "/", "\u0000",
          "9" * 300, [], [[]], {}, {"a": 1}]


class Runs:
    def __init__(self, partita_run, transport="local"):
        self.command = [partita_run, "--transport", transport, "--timeout", "5"]
        self.done = self.refused = self.failed = 0

    def run(self, label, bundle, inputs, must_fail=False):
        start = time.monotonic()
        try:
            done = subprocess.run([*self.command, bundle, "--inputs-dir", inputs],
                                  capture_output=True, timeout=60)
            status, text = done.returncode, done.stderr.decode(errors="replace")
        except subprocess.TimeoutExpired:
            status, text = None, "it does not end"
        seconds = time.monotonic() - start
        self.done += 1
        self.refused += status == 1
        one = re.fullmatch(r"error: [^\n]{10,1000}\n", text) and "signal" not in text
        good = seconds < 20 and (status == 0 and not must_fail or status == 1 and one)
        if not good:
            self.failed += 1
            print(f"FAILED  {label}: status {status}, {seconds:.1f} s: {text[:300]}",
                  flush=True)


def places(value, path=()):
    """The path of every value of a JSON document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else \
        enumerate(value) if isinstance(value, list) else []
    for key, item in items:
        yield from places(item, (*path, key))


def documents(root):
    """Every document in which one value is another one, or gone."""
    for path in places(root):
        for replacement in [..., *VALUES]:
            other = copy.deepcopy(root)
            at = other
            for key in path[:-1]:
                at = at[key]
            if replacement is ...:
                del at[path[-1]]
            else:
                at[path[-1]] = replacement
            yield f"{'.'.join(map(str, path))} = {str(replacement)[:20]}", other


def damage_json(runs, bundle, inputs, rounds):
    name = os.path.join(bundle, "bundle.json")
    with open(name) as file:
        text = file.read()
    chosen = list(documents(json.loads(text)))
    random.shuffle(chosen)
    for label, document in chosen[:rounds]:
        with open(name, "w") as file:
            json.dump(document, file)
        runs.run("bundle.json: " + label, bundle, inputs)
    with open(name, "w") as file:
        file.write(text)


def damage_bytes(runs, file, places_in, rounds, bundle, inputs, must_fail):
    """Overwrites a few bytes in the first `places_in`, and cuts the file."""
    with open(file, "rb") as stream:
        whole = stream.read()

    def attempt(label, content, refuse):
        with open(file, "wb") as stream:
            stream.write(content)
        runs.run(f"{os.path.basename(file)}: {label}", bundle, inputs, refuse)

    for _ in range(rounds):
        content = bytearray(whole)
        at = [random.randrange(min(places_in, len(whole))) for _ in range(random.choice((1, 8)))]
        for place in at:
            content[place] ^= random.randrange(1, 256)
        attempt(f"bytes {at}", bytes(content), must_fail and bytes(content) != whole)
    for length in {0, 1, 8, len(whole) // 2, len(whole) - 1}:
        attempt(f"cut to {length}", whole[:length], True)
    attempt("longer", whole + b"\0", must_fail)
    os.remove(file)
    runs.run(f"no {os.path.basename(file)}", bundle, inputs, True)
    os.mkdir(file)
    runs.run(f"{os.path.basename(file)} is a folder", bundle, inputs, True)
    os.rmdir(file)
    with open(file, "wb") as stream:
        stream.write(whole)


def left_behind(bundle, files, shared):
    found = [f"process {p}" for p in run_memory.children()
             if bundle in open_text(f"/proc/{p}/cmdline") and p != os.getpid()]
    found += sorted(set(os.listdir(bundle)) ^ files)
    # Of another run on this machine, which is not over, if some process names it.
    for _ in range(100):
        ours = [name for name in memory_files() - shared
                if not any(name in open_text(f"/proc/{p}/environ")
                           for p in run_memory.children())]
        if not ours:
            break
        time.sleep(0.1)
    return found + ours


def open_text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def memory_files():
    return {name for folder in ("/dev/shm", "/tmp") for name in os.listdir(folder)
            if name.startswith("partita-run-")}


def main(partita, partita_run, rounds="40"):
    random.seed(3)
    rounds, failed, shared = int(rounds), 0, memory_files()
    with tempfile.TemporaryDirectory() as work:
        model, folder = run_memory.make_model(work, "small", run_memory.SMALL)
        bundle, inputs = os.path.join(work, "bundle"), os.path.join(folder, "inputs")
        hints = dict(run_memory.MESHES)["tp=2"]
        run_memory.compile_bundle(partita, model, bundle, "tp=2", hints)
        files = set(os.listdir(bundle))
        weights = os.path.join(bundle, "weights.safetensors")
        for transport, share in (("local", 1), ("mpi", 40)):
            runs, number = Runs(partita_run, transport), rounds // share
            damage_json(runs, bundle, inputs, 4 * number)
            damage_bytes(runs, os.path.join(bundle, "stage-0.so"), 1 << 40, number,
                         bundle, inputs, True)
            damage_bytes(runs, weights, 8, number // 4 + 1, bundle, inputs, True)
            damage_bytes(runs, weights, 1 << 40, number, bundle, inputs, True)
            damage_bytes(runs, os.path.join(bundle, "weights-0.blocks"), 1 << 40, number,
                         bundle, inputs, True)
            damage_bytes(runs, os.path.join(inputs, "input_0.pb"), 1 << 40, number, bundle,
                         inputs, False)
            runs.run("nothing", bundle, inputs)
            if left := left_behind(bundle, files, shared):
                runs.failed += 1
                print(f"FAILED  left behind: {left}")
            if runs.refused < runs.done // 2 or runs.refused == runs.done:
                runs.failed += 1
                print("FAILED  damage is not seen, or everything is refused")
            failed += runs.failed
            print(f"{'FAILED ' if runs.failed else 'ok     '} {transport}: {runs.done} "
                  f"damaged bundles and inputs, {runs.refused} refused", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
