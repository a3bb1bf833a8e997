"""Tables, products and experts of few bits, good ones and some that do not fit.

usage: make_few_bits.py FOLDER
"""
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

folder, random = sys.argv[1], np.random.default_rng(1)


def save(name, op, inputs, given, shape, attributes):
    """`inputs` by their names, of which the model has all that are not `given`."""
    node = helper.make_node(op, list(inputs), ["y"], "the_node", domain="com.microsoft",
                            **attributes)
    graph = helper.make_graph(
        [node], "main",
        [helper.make_tensor_value_info(
            key, helper.np_dtype_to_tensor_dtype(inputs[key].dtype), inputs[key].shape)
         for key in given],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, key) for key, value in inputs.items()
         if key not in given])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21),
                                                    helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 10
    onnx.save(model, f"{folder}/{name}.onnx")


def number(*shape):
    return random.integers(0, 256, shape).astype(np.uint8)


def scale(*shape):
    return (random.random(shape) + 0.1).astype(np.float32)


rows = np.zeros((2, 3), np.int64)
bytes = {"data": number(400, 32), "ids": rows, "scales": scale(400, 2)}
signed = dict(bytes, data=random.integers(-8, 8, (400, 64)).astype(ml_dtypes.int4))
blocks = {"block_size": 32}
for name, inputs, attributes in [
        ("table", bytes, blocks), ("signed", signed, blocks),
        ("table-axis", bytes, {**blocks, "gather_axis": 1}),
        ("table-bits", bytes, {**blocks, "bits": 3}),
        ("table-block", bytes, {"block_size": 24}),
        ("table-scales", bytes, {"block_size": 64}),
        ("table-type", dict(bytes, data=bytes["data"].astype(np.int8)), blocks),
        ("table-zeros", dict(bytes, zeros=number(400, 2)), blocks)]:
    save(name, "GatherBlockQuantized", inputs, ["ids"], [2, 3, 64], attributes)

product = {"x": scale(3, 64), "w": number(40 * 32), "absmax": scale(40 * 2)}
sizes = {"K": 64, "N": 40, "block_size": 32, "quant_type": 1}
for name, changed in [("nf4", {}), ("nf4-type", {"quant_type": 2}),
                      ("nf4-sizes", {"N": 41}), ("nf4-block", {"block_size": 8}),
                      ("nf4-rows", {"K": 40, "N": 64})]:
    save(name, "MatMulBnb4", product, ["x"], [3, 40], {**sizes, **changed})

layer = {"x": scale(6, 64), "router": scale(6, 4), "w1": number(4, 96, 32),
         "s1": scale(4, 96, 2), "b1": scale(4, 96), "w2": number(4, 64, 48),
         "s2": scale(4, 64, 3), "b2": scale(4, 64)}
usual = {"k": 2, "activation_type": "silu", "block_size": 32}
for name, inputs, changed in [
        ("experts", layer, {}), ("experts-k", layer, {"k": 5}),
        ("experts-kind", layer, {"activation_type": "elu"}),
        ("experts-mixer", layer, {"use_sparse_mixer": 1}),
        ("experts-type", layer, {"quant_type": "fp4"}),
        ("experts-fusion", layer, {"swiglu_fusion": 1}),
        ("experts-swiglu", layer, {"activation_type": "swiglu"}),
        ("experts-block", layer, {"block_size": 40}),
        ("experts-bits", layer, {"expert_weight_bits": 5}),
        ("experts-scales", dict(layer, s1=scale(4, 96, 4)), {}),
        ("experts-bias", dict(layer, b2=scale(4, 96)), {}),
        ("experts-router", dict(layer, router=scale(5, 4)), {})]:
    save(name, "QMoE", inputs, ["x", "router"], [6, 64], {**usual, **changed})
