#!/usr/bin/env python3
"""Time to load a bundle of 96 equal layers against one of 12, alternating.

usage: load.py PARTITA RUNTIME [--rounds 20]

RUNTIME is libpartita_runtime.so. The layers of the first model (those of a transformer,
attention and all) are equal in shape and read the same weights, so that both bundles have
as many bytes to read and pack: what differs is the load apart from weights. The second has
weights per layer, narrow ones. Prints the median and the fastest load of each, wall and
processor time of the process, and the ratios.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test/E2E/models"), str(ROOT / "python")]
import sparse_gpt2  # noqa: E402


def tied(path):
    """Every layer's weights become those of the first one."""
    model = onnx.load(path, load_external_data=False)
    first = {}
    for tensor in model.graph.initializer:
        first.setdefault(re.sub(r"(?<=\bh\.)\d+", "0", tensor.name), tensor.name)
    kept = set(first.values())
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            same = re.sub(r"(?<=\bh\.)\d+", "0", name)
            node.input[i] = first.get(same, name)
    for tensor in [t for t in model.graph.initializer if t.name not in kept]:
        model.graph.initializer.remove(tensor)
    onnx.save(model, path)


def bundle(partita, layers, folder, share):
    folder.mkdir()
    model = sparse_gpt2.SparseGpt2(length=32, hidden=32, heads=2, layers=layers,
                                   vocabulary=97).save(folder)
    if share:
        tied(model)
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
    for share in (True, False):
        measure(arguments, partita, share)


def measure(arguments, partita, share):
    with tempfile.TemporaryDirectory() as work:
        bundles = {layers: bundle(arguments.partita, layers, pathlib.Path(work, str(layers)),
                                  share) for layers in (12, 96)}
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
        print(f"{'one set of weights' if share else 'weights per layer'}, {what}: "
              f"12 layers {statistics.median(few):.2f} ms (fastest {min(few):.2f}), "
              f"96 layers {statistics.median(many):.2f} ms ({min(many):.2f}), ratio "
              f"{statistics.median(many) / statistics.median(few):.2f} "
              f"({min(many) / min(few):.2f})")


if __name__ == "__main__":
    main()
