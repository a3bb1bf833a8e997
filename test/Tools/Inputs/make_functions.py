#!/usr/bin/env python3
"""Writes functions.onnx, functions of real numbers of x[16, 40], and half.onnx, the same of
f16, into a folder."""
import os
import sys

import onnx
from onnx import TensorProto, helper

FUNCTIONS = ["Exp", "Erf", "Tanh", "Sin", "Atan", "Floor", "Round", "Softplus", "Softmax"]


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for name, dtype in (("functions", TensorProto.FLOAT), ("half", TensorProto.FLOAT16)):
        value = lambda name: helper.make_tensor_value_info(name, dtype, [16, 40])  # noqa
        graph = helper.make_graph([helper.make_node(f, ["x"], [f]) for f in FUNCTIONS], name,
                                  [value("x")], [value(f) for f in FUNCTIONS])
        onnx.save(helper.make_model(graph, ir_version=10,
                                    opset_imports=[helper.make_opsetid("", 18)]),
                  os.path.join(folder, name + ".onnx"))


if __name__ == "__main__":
    main(*sys.argv[1:])
