#!/usr/bin/env python3
"""Time to load a bundle of 96 equal layers against one of 12, alternating.

usage: load.py PARTITA RUNTIME [--rounds 20]

RUNTIME is libpartita_runtime.so. Equal layers share prepared calls, so what grows with
their number is little beside reading weights; the layers are narrow, so that there is
little to read. Prints the median and the fastest load of each, wall and processor time
of the process, and the ratios.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test/E2E/models"), str(ROOT / "python")]
import sparse_gpt2  # noqa: E402


def bundle(partita, layers, folder):
    folder.mkdir()
    model = sparse_gpt2.SparseGpt2(length=32, hidden=32, heads=2, layers=layers,
                                   vocabulary=97).save(folder)
    subprocess.run([partita, "compile", model, "-o", folder / "bundle"], check=True,
                   capture_output=True)
    return str(folder / "bundle")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("runtime")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    os.environ["PARTITA_RUNTIME"] = arguments.runtime
    import partita
    with tempfile.TemporaryDirectory() as work:
        bundles = {layers: bundle(arguments.partita, layers, pathlib.Path(work, str(layers)))
                   for layers in (12, 96)}
        wall, cpu = {12: [], 96: []}, {12: [], 96: []}
        for _ in range(arguments.rounds + 1):  # the first brings libraries and files
            for layers, path in bundles.items():
                begin = time.perf_counter(), time.process_time()
                session = partita.Session(path, threads=1)
                wall[layers].append((time.perf_counter() - begin[0]) * 1e3)
                cpu[layers].append((time.process_time() - begin[1]) * 1e3)
                del session
    for what, times in (("wall", wall), ("processor", cpu)):
        few, many = times[12][1:], times[96][1:]
        print(f"{what}: 12 layers {statistics.median(few):.1f} ms (fastest {min(few):.1f}), "
              f"96 layers {statistics.median(many):.1f} ms ({min(many):.1f}), ratio "
              f"{statistics.median(many) / statistics.median(few):.2f} "
              f"({min(many) / min(few):.2f})")


if __name__ == "__main__":
    main()
