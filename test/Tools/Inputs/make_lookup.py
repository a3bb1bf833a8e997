"""Models that look up rows by indices from outside, and indices good and bad.

usage: make_lookup.py FOLDER
"""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def write(folder, name, nodes, ids_shape, table, output, more=()):
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info("ids", TensorProto.INT64, ids_shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(table, "table"), *more])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                              ir_version=9)
    onnx.save(model, os.path.join(folder, name + ".onnx"))


def main(folder):
    os.makedirs(folder, exist_ok=True)
    table = np.arange(503 * 8, dtype=np.float32).reshape(503, 8) / 4096
    write(folder, "rows", [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="embed"),
        helper.make_node("Tanh", ["rows"], ["y"], name="squash")], [7, 3], table, [7, 3, 8])
    write(folder, "points", [
        helper.make_node("GatherND", ["table", "ids"], ["points"], name="pick"),
        helper.make_node("Tanh", ["points"], ["y"], name="squash")], [5, 2], table, [5])
    # One row of data that is written by two components of a place.
    write(folder, "put", [
        helper.make_node("ScatterND", ["table", "ids", "ones"], ["put"], name="put"),
        helper.make_node("Tanh", ["put"], ["y"], name="squash")], [5, 2], table, [503, 8],
        [numpy_helper.from_array(np.ones(5, np.float32), "ones")])
    ids = np.arange(21).reshape(7, 3) * 25 - 250
    pairs = np.array([[502, 7], [0, -8], [-503, 0], [3, 4], [1, 1]])
    for name, good, places in [("rows", ids, {"last": (6, 2, 503), "first": (0, 0, -504),
                                              "far": (4, 1, 2**62)}),
                               ("points", pairs, {"last": (2, 1, 8), "first": (3, 0, -504)}),
                               ("put", pairs, {"last": (2, 1, 8), "first": (3, 0, -504)})]:
        np.save(os.path.join(folder, f"{name}-good.npy"), good)
        for what, (i, j, index) in places.items():
            bad = good.copy()
            bad[i, j] = index
            np.save(os.path.join(folder, f"{name}-{what}.npy"), bad)


if __name__ == "__main__":
    main(sys.argv[1])
