#!/usr/bin/env python3
"""Writes the small good and bad models of the command-line tests into a folder."""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def mlp(batch=4):
    """x[batch, 8] -> fc1 -> relu -> fc2 -> y[batch, 6]"""
    random = np.random.default_rng(1)
    weight = lambda *shape: (random.standard_normal(shape) / 3).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="fc1"),
        helper.make_node("Relu", ["h"], ["a"], name="act"),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["y"], name="fc2"),
    ]
    graph = helper.make_graph(
        nodes, "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 6])],
        [numpy_helper.from_array(weight(*shape), name)
         for name, shape in [("w1", (8, 12)), ("b1", (12,)), ("w2", (12, 6)), ("b2", (6,))]])
    return helper.make_model(graph, ir_version=10,
                             opset_imports=[helper.make_opsetid("", 18)])


def uniform():
    """x[4, 8] times a matrix and plus a row that the model fills itself."""
    fill = lambda output, size: helper.make_node(
        "ConstantOfShape", [size], [output], name=output,
        value=helper.make_tensor("value", TensorProto.FLOAT, [1], [0.5]))
    nodes = [fill("w", "w.shape"), fill("b", "b.shape"),
             helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
             helper.make_node("Add", ["h", "b"], ["y"], name="add")]
    value = lambda name, *shape: helper.make_tensor_value_info(
        name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes, "uniform", [value("x", 4, 8)], [value("y", 4, 96)],
        [numpy_helper.from_array(np.array(shape, np.int64), name)
         for name, shape in [("w.shape", [8, 96]), ("b.shape", [96])]])
    return helper.make_model(graph, ir_version=10,
                             opset_imports=[helper.make_opsetid("", 18)])


def weighty(layers=4, rows=512, width=256):
    """x[rows, width], then products with square weights that take most of the memory."""
    random = np.random.default_rng(3)
    nodes, weights, last = [], [], "x"
    for i in range(layers):
        weights.append(numpy_helper.from_array(
            (random.standard_normal((width, width)) / 16).astype(np.float32), f"w{i}"))
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"h{i}"], name=f"fc{i}"),
                  helper.make_node("Relu", [f"h{i}"], [f"a{i}"], name=f"act{i}")]
        last = f"a{i}"
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT,
                                                       [rows, width])
    graph = helper.make_graph(nodes, "weighty", [value("x")], [value(last)], weights)
    return helper.make_model(graph, ir_version=10,
                             opset_imports=[helper.make_opsetid("", 18)])


def external(model, folder, location, size):
    """The model with its weights in a file of the given name and size."""
    offset = 0
    for tensor in model.graph.initializer:
        length = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in [("location", location), ("offset", offset), ("length", length)]:
            tensor.external_data.add(key=key, value=str(value))
        offset += length
    if size is not None:
        with open(os.path.join(folder, location), "wb") as file:
            file.write(b"\0" * size)
    return model


def main(folder):
    os.makedirs(folder, exist_ok=True)
    save = lambda model, name: onnx.save(model, os.path.join(folder, name))
    good = mlp()
    save(good, "mlp.onnx")
    save(uniform(), "uniform.onnx")
    save(weighty(), "weighty.onnx")
    data = good.SerializeToString()
    with open(os.path.join(folder, "truncated.onnx"), "wb") as file:
        file.write(data[: len(data) // 2])
    with open(os.path.join(folder, "text.onnx"), "w") as file:
        file.write("this is not a model\n")
    model = mlp()
    model.ir_version = 99
    save(model, "future-ir.onnx")
    model = mlp()
    model.opset_import[0].version = 99
    save(model, "future-opset.onnx")
    model = mlp()
    model.graph.node[0].input[0] = "y"
    save(model, "cycle.onnx")
    save(mlp("batch"), "symbolic.onnx")
    save(external(mlp(), folder, "missing.bin", None), "missing.onnx")
    save(external(mlp(), folder, "../outside.bin", None), "outside.onnx")
    save(external(mlp(), folder, "short.bin", 16), "short.onnx")
    model = mlp()
    model.graph.node[1].op_type = "CumSum"
    model.graph.node[1].name = "strange"
    model.graph.node[1].input.append("axis")
    model.graph.node.insert(0, helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0))
    model.graph.node.insert(1, helper.make_node("Cast", ["sum"], ["axis"],
                                                to=TensorProto.INT64))
    model.graph.node[4].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 3))
    save(model, "unsupported.onnx")
    x = np.random.default_rng(2).standard_normal((4, 8)).astype(np.float32)
    np.save(os.path.join(folder, "x.npy"), x)
    np.save(os.path.join(folder, "x-shape.npy"), x[:, :7])
    np.save(os.path.join(folder, "x-double.npy"), x.astype(np.float64))
    np.save(os.path.join(folder, "x-big-endian.npy"), x.astype(">f4"))


if __name__ == "__main__":
    main(sys.argv[1])
