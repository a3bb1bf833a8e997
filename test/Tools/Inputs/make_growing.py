#!/usr/bin/env python3
"""Attention of four new rows to a cache that grows by them.

usage: make_growing.py FILE
"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

weight = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
nodes = [
    helper.make_node("MatMul", ["x", "w"], ["k"], name="fc"),
    helper.make_node("Concat", ["past", "k"], ["present"], axis=1, name="cat"),
    helper.make_node("Transpose", ["present"], ["t"], perm=[0, 2, 1], name="tr"),
    helper.make_node("MatMul", ["x", "t"], ["s"], name="scores"),
    helper.make_node("Softmax", ["s"], ["p"], axis=-1, name="softmax"),
    helper.make_node("MatMul", ["p", "present"], ["y"], name="out"),
]


def real(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


graph = helper.make_graph(nodes, "growing", [real("x", 2, 4, 8), real("past", 2, 12, 8)],
                          [real("y", 2, 4, 8), real("present", 2, 16, 8)],
                          [numpy_helper.from_array(weight, "w")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                            ir_version=8), sys.argv[1])
