#!/usr/bin/env python3
"""Writes ScatterElements along long and short dims, of few updates and many, with numbers by
a seed: folders for compare.py.

usage: scatters.py OUT_DIR [NAME…]
       scatters.py --list
"""
import numpy as np
from onnx import TensorProto, helper

import cases

#: name: (shape of the data, of the updates, axis, reduction)
MODELS = {
    "add_200000": ([200_000], [200_000], 0, "add"),
    "few_of_1m": ([1_000_000], [100], 0, "none"),
    "few_of_rows": ([1000, 1000], [1000, 10], 1, "none"),
    "rows": ([1000, 1000], [1000, 1000], 1, "none"),
    "columns": ([1000, 1000], [1000, 1000], 0, "none"),
    "add_rows": ([1000, 1000], [1000, 1000], 1, "add"),
    "add_columns": ([1000, 1000], [1000, 1000], 0, "add"),
    "max_columns": ([1000, 1000], [1000, 1000], 0, "max"),
    # Features of one level of a pyramid, to the places of its boxes.
    "features": ([1000, 256, 7, 7], [250, 256, 7, 7], 0, "none"),
    "middle": ([64, 300, 100], [64, 100, 100], 1, "none"),
}


def write(name, folder):
    data, updates, axis, reduction = MODELS[name]
    random = np.random.default_rng(3)
    inputs = {
        "data": random.standard_normal(data).astype(np.float32),
        "indices": random.permuted(
            np.broadcast_to(np.arange(data[axis]).reshape(
                [-1 if d == axis else 1 for d in range(len(data))]), data),
            axis=axis)[tuple(slice(n) for n in updates)].astype(np.int64),
        "updates": random.standard_normal(updates).astype(np.float32)}
    graph = helper.make_graph(
        [helper.make_node("ScatterElements", list(inputs), ["y"], axis=axis,
                          reduction=reduction)], name,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for n, x in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, data)])
    cases.save(folder, graph, inputs, opset=18)


if __name__ == "__main__":
    cases.main(MODELS, write)
