#!/usr/bin/env python3
"""slow_nodes.py FOLDER: writes models of which some nodes are slow, none, or small ones."""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(sys.argv[1])


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def write(name, nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, name, inputs, outputs,
                              [numpy_helper.from_array(v, k) for k, v in constants])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=9), FOLDER / f"{name}.onnx")


def slow(name, product, rows, trips, width):
    """A product of f64, a sort, and a loop."""
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "row"], ["sum"]), helper.make_node("Tanh", ["sum"], ["next"]),
         helper.make_node("Identity", ["next"], ["out"])], "body",
        [info("h", [width]), info("row", [width])], [info("next", [width]), info("out", [width])])
    write(name, [
        helper.make_node("MatMul", ["a", "b"], ["c"], name="product"),
        helper.make_node("TopK", ["s", "k"], ["d", "e"], name="sorted"),
        helper.make_node("Scan", ["h0", "rows"], ["h", "hs"], name="steps", body=body,
                         num_scan_inputs=1)],
        [info("a", [product, product], TensorProto.DOUBLE),
         info("b", [product, product], TensorProto.DOUBLE), info("s", [2, rows]),
         info("h0", [width]), info("rows", [trips, width])],
        [info("c", [product, product], TensorProto.DOUBLE), info("d", [2, rows]),
         info("e", [2, rows], TensorProto.INT64), info("hs", [trips, width])],
        [("k", np.array([rows]))])


slow("slow", 128, 40000, 300, 1000)
slow("small", 4, 8, 3, 4)
write("fast", [helper.make_node("MatMul", ["x", "w"], ["p"]),
               helper.make_node("Softmax", ["p"], ["y"])],
      [info("x", [256, 512])], [info("y", [256, 512])],
      [("w", np.zeros((512, 512), np.float32))])
# A suppression has few operations and bytes, and is slow by its time alone.
write("waits", [helper.make_node("MatMul", ["x", "w"], ["p"]),
                helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou"],
                                 ["kept"], name="kept")],
      [info("x", [1024, 512]), info("boxes", [1, 20000, 4]), info("scores", [1, 1, 20000])],
      [info("p", [1024, 512]), info("kept", None, TensorProto.INT64)],
      [("w", np.zeros((512, 512), np.float32)), ("most", np.array([1000])),
       ("iou", np.array([0.5], np.float32))])
random = np.random.default_rng(2)
(FOLDER / "in").mkdir()
shapes = [("a", (128, 128), np.float64), ("b", (128, 128), np.float64),
          ("s", (2, 40000), np.float32), ("h0", (1000,), np.float32),
          ("rows", (300, 1000), np.float32)]
for k, (name, shape, kind) in enumerate(shapes):
    (FOLDER / "in" / f"input_{k}.pb").write_bytes(numpy_helper.from_array(
        random.standard_normal(shape).astype(kind), name).SerializeToString())
