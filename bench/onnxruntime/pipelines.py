#!/usr/bin/env python3
"""Writes the pipelines of scikit-learn that test/E2E/run_sklearn.py checks, asked for rows
by a seed: folders for compare.py and bench/cost/predicted.py.

usage: pipelines.py OUT_DIR [--rows N] [NAME…]
       pipelines.py --list
"""
import argparse
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import numpy_helper
from skl2onnx import to_onnx

sys.path[:0] = [str(pathlib.Path(__file__).parents[2] / "test" / "E2E")]

import run_sklearn  # noqa: E402


def write(folder, estimator, x, y, rows):
    estimator.fit(x, y)
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    # Tensors of scores, as what ONNX Runtime takes for dictionaries is Python's.
    options = {id(estimator): {"zipmap": False}} \
        if hasattr(estimator, "predict_proba") else None
    onnx.save(to_onnx(estimator, x[:1], options=options), folder / "model.onnx")
    chosen = np.random.default_rng(5).integers(0, len(x), rows)
    (folder / "inputs/input_0.pb").write_bytes(
        numpy_helper.from_array(x[chosen], "X").SerializeToString())
    (folder / "case.json").write_text(json.dumps(
        {"inputs": ["X"], "shapes": {"X": [rows, x.shape[1]]}}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rows", type=int, default=run_sklearn.ROWS)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if not arguments.list and not arguments.out:
        parser.error("no folder is given")
    for name, estimator, x, y in run_sklearn.cases():
        if arguments.list:
            print(name)
        elif not arguments.names or name in arguments.names:
            rows = 1 if name.startswith(run_sklearn.ONE_ROW) else arguments.rows
            write(arguments.out / name, estimator, x, y, rows)


if __name__ == "__main__":
    main()
