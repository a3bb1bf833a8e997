"""Products with a weight of 4 bits: MatMulNBits, and DequantizeLinear before MatMul.

usage: make_blocks.py FOLDER
"""
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

folder, random = sys.argv[1], np.random.default_rng(1)
k, n, block = 128, 40, 32
scales = (random.random((n, k // block)) + 0.1).astype(np.float32)
bits = {"w": random.integers(0, 256, (n, k // block, block // 2)).astype(np.uint8),
        "s": scales.reshape(-1)}
signed = {"w": random.integers(-8, 8, (k, n)).astype(ml_dtypes.int4), "s": scales.T.copy()}
product = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], "product", K=k, N=n,
                           bits=4, block_size=block, domain="com.microsoft")
numbers = helper.make_node("DequantizeLinear", ["w", "s"], ["real"], "numbers", axis=0,
                           block_size=block)
for name, given, nodes, rows in [
        ("bits", bits, [product], 6),
        ("row", bits, [product], 1),
        ("dequantized", signed,
         [numbers, helper.make_node("MatMul", ["x", "real"], ["y"], "product")], 6)]:
    graph = helper.make_graph(
        nodes, "main", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, n])],
        [numpy_helper.from_array(value, key) for key, value in given.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21),
                                                    helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 10
    onnx.save(model, f"{folder}/{name}.onnx")
