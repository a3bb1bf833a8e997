#!/usr/bin/env python3
"""Writes one-node models whose semantics are easily missed, each with its inputs and the
outputs that the ONNX specification gives: FOLDER/NAME.onnx, FOLDER/NAME/{in,out}put_K.pb."""
import os
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper


def write(folder, name, node, inputs, output, opset=18):
    info = lambda key, value: helper.make_tensor_value_info(
        key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
    graph = helper.make_graph([node], name, [info(k, v) for k, v in inputs.items()],
                              [info("y", output)])
    onnx.save(helper.make_model(graph, ir_version=10,
                                opset_imports=[helper.make_opsetid("", opset)]),
              os.path.join(folder, name + ".onnx"))
    data = os.path.join(folder, name)
    os.makedirs(data)
    for kind, values in [("input", inputs), ("output", {"y": output})]:
        for i, (key, value) in enumerate(values.items()):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                file.write(numpy_helper.from_array(value, key).SerializeToString())


def deconvolve(x, w, stride, begin, shape):
    """A transposed convolution of one channel by its definition, cropped at `begin`."""
    full = np.zeros((64, 64), np.float32)
    for i, j in np.ndindex(x.shape):
        a, b = i * stride, j * stride
        full[a:a + w.shape[0], b:b + w.shape[1]] += x[i, j] * w
    return full[begin[0]:begin[0] + shape[0], begin[1]:begin[1] + shape[1]]


def main(folder):
    os.makedirs(folder)
    random = np.random.default_rng(1)
    # A fractional exponent of an integer is not rounded first.
    base, exponent = np.array([2, 9, 4], np.int64), np.array([2.5, 0.5, -1], np.float32)
    power = np.power(base.astype(np.float64), exponent).astype(np.int64)
    write(folder, "pow", helper.make_node("Pow", ["x", "e"], ["y"]),
          {"x": base, "e": exponent}, power)
    # Of an odd padding the larger half is at the beginning; a shape larger than what the
    # windows reach is zero there.
    x = random.standard_normal((4, 4)).astype(np.float32)
    w = random.standard_normal((3, 3)).astype(np.float32)
    y = deconvolve(x, w, 2, (0, 1), (10, 8))
    write(folder, "deconv", helper.make_node("ConvTranspose", ["x", "w"], ["y"],
                                             strides=[2, 2], output_shape=[10, 8]),
          {"x": x[None, None], "w": w[None, None]}, y[None, None])
    # Numbers below the smallest normal one have a logarithm of their own.
    x = np.array([0, 1e-45, 1e-40, 1.1754942e-38, 1.1754944e-38, 1, 3e38], np.float32)
    with np.errstate(divide="ignore"):
        y = np.log(x.astype(np.float64)).astype(np.float32)
    write(folder, "log", helper.make_node("Log", ["x"], ["y"]), {"x": x}, y)
    # A product over no elements is zero.
    write(folder, "empty", helper.make_node("Gemm", ["a", "b", "c"], ["y"]),
          {"a": np.zeros((3, 0), np.float32), "b": np.zeros((0, 5), np.float32),
           "c": np.arange(5, dtype=np.float32)},
          np.tile(np.arange(5, dtype=np.float32), (3, 1)))


main(sys.argv[1])
