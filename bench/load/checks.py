#!/usr/bin/env python3
"""Time to start a large bundle with its weights checked against not, in turn.

usage: checks.py PARTITA RUNTIME [--gigabytes 7] [--mesh tp=2] [--target cpu] [--rounds 5]

RUNTIME is libpartita_runtime.so. The model is products with square weights and a look-up
in a table. The files are in the page cache. Prints the fastest and the median start of
both, their ratios, and processor time of the user's, which other programs disturb less:
first uses of memory, which the system clears, are most of a start.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
WIDTH = 4096


def model(folder, gigabytes):
    """WIDTH² weights one behind the other, the first eighth of them one table."""
    layer = WIDTH * WIDTH * 4
    layers = max(2, round(gigabytes * 1e9 * 7 / 8 / layer))
    rows = max(1, layers // 7) * WIDTH
    tile = np.random.default_rng(1).standard_normal(WIDTH * WIDTH, dtype=np.float32)
    tile *= WIDTH ** -0.5
    tensors, nodes, offset, value = [], [], 0, "e"
    nodes.append(helper.make_node("Gather", ["table", "i"], ["e"]))
    with open(folder / "big.onnx.data", "wb") as data:
        for name, count in [("table", rows)] + [(f"w{n}", WIDTH) for n in range(layers)]:
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[count, WIDTH],
                                 data_location=TensorProto.EXTERNAL)
            bytes_ = count * WIDTH * 4
            for key, text in [("location", "big.onnx.data"), ("offset", offset),
                              ("length", bytes_)]:
                tensor.external_data.add(key=key, value=str(text))
            for _ in range(count // WIDTH):
                data.write(np.roll(tile, len(tensors) + 1).tobytes())
            offset += bytes_
            tensors.append(tensor)
            if name != "table":
                nodes.append(helper.make_node("MatMul", [value, name], [name + "_out"]))
                value = name + "_out"
    graph = helper.make_graph(
        nodes, "big", [helper.make_tensor_value_info("i", TensorProto.INT64, [4])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [4, WIDTH])], tensors)
    made = helper.make_model(graph, ir_version=8,
                             opset_imports=[helper.make_opsetid("", 17)])
    (folder / "big.onnx").write_bytes(made.SerializeToString())
    return offset


def start(bundle, check):
    """Seconds, and of these the user's processor time."""
    import partita
    begin, before = time.monotonic(), os.times().user
    session = partita.Session(bundle, check=check)
    seconds = time.monotonic() - begin, os.times().user - before
    del session
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("runtime")
    parser.add_argument("--gigabytes", type=float, default=7)
    parser.add_argument("--mesh", default="tp=2")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", help="where the files are made (default: temporary)")
    options = parser.parse_args()
    os.environ["PARTITA_RUNTIME"] = os.path.abspath(options.runtime)
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        folder = pathlib.Path(work)
        size = model(folder, options.gigabytes)
        subprocess.run([options.partita, "compile", folder / "big.onnx", "-o",
                        folder / "bundle", "--mesh", options.mesh, "--mode", "semi-auto",
                        "--target", options.target, "--copy-weights"],
                       check=True, stdout=subprocess.DEVNULL)
        (folder / "big.onnx.data").unlink()
        subprocess.run(["cat", folder / "bundle/weights.safetensors"], check=True,
                       stdout=subprocess.DEVNULL)
        times = {True: [], False: []}
        for number in range(options.rounds):
            for check in (True, False) if number % 2 else (False, True):
                times[check].append(start(str(folder / "bundle"), check))
        print(f"{size * 1e-9:.2f} GB, mesh {options.mesh}, target {options.target}")
        for name, of in (("fastest", min), ("median", statistics.median)):
            for which, what in enumerate(("start", "user's processor time")):
                checked, plain = (of(pair[which] for pair in times[check])
                                  for check in (True, False))
                print(f"{name} {what}: {checked:.2f} s checked, {plain:.2f} s not: "
                      f"{checked / plain:.2f}")


if __name__ == "__main__":
    main()
