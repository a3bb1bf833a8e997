#!/usr/bin/env python3
"""Writes TopK of long and short rows, few and many of them, with numbers by a seed: folders
for compare.py.

usage: selections.py OUT_DIR [NAME…]
       selections.py --list
"""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

import cases

#: name: (rows, elements of a row, how many are wanted)
MODELS = {
    "5_of_2000": (1000, 2000, 5),
    "50_of_32000": (16, 32_000, 50),
    "300_of_8400": (1, 8400, 300),
    "1000_of_4000": (100, 4000, 1000),
    "1000_of_200000": (1, 200_000, 1000),
    "5_of_1m": (1, 1_000_000, 5),
    "100_of_1m": (1, 1_000_000, 100),
    "1000_of_2m": (1, 2_000_000, 1000),
    "whole_256": (1000, 256, 256),
    "whole_200000": (1, 200_000, 200_000),
}


def write(name, folder):
    rows, extent, count = MODELS[name]
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "count"], ["values", "places"])], name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, extent])],
        [helper.make_tensor_value_info("values", TensorProto.FLOAT, [rows, count]),
         helper.make_tensor_value_info("places", TensorProto.INT64, [rows, count])],
        [numpy_helper.from_array(np.array([count]), "count")])
    x = np.random.default_rng(3).standard_normal((rows, extent)).astype(np.float32)
    cases.save(folder, graph, {"x": x})


if __name__ == "__main__":
    cases.main(MODELS, write)
