"""Products of 8-bit integers with a weight: zero points of 0, and of a number known late.

usage: make_bytes.py FOLDER
"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

folder = sys.argv[1]
weight = np.random.default_rng(1).integers(-128, 128, (37, 29)).astype(np.int8)
for name, zero in [("symmetric", []), ("dynamic", ["zero"])]:
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b", *zero], ["y"], "product")], "main",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [7, 37]),
         *[helper.make_tensor_value_info(z, TensorProto.UINT8, []) for z in zero]],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [7, 29])],
        [numpy_helper.from_array(weight, "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, f"{folder}/{name}.onnx")
