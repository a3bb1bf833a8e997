"""Writes an MLP of equal layers: make_layers.py COUNT FILE. Layer i is the nodes
layers.i.up, layers.i.relu and layers.i.down, with weights of these names + .weight."""
import sys

import numpy
import onnx
from onnx import helper, numpy_helper

count = int(sys.argv[1])
rng = numpy.random.default_rng(0)
nodes, weights, value = [], [], "x"
for i in range(count):
    layer = f"layers.{i}"
    for name, shape in (("up", (4, 8)), ("down", (8, 4))):
        weight = rng.standard_normal(shape).astype(numpy.float32)
        weights.append(numpy_helper.from_array(weight, f"{layer}.{name}.weight"))
    nodes += [
        helper.make_node("MatMul", [value, f"{layer}.up.weight"], [f"{layer}.u"],
                         f"{layer}.up"),
        helper.make_node("Relu", [f"{layer}.u"], [f"{layer}.r"], f"{layer}.relu"),
        helper.make_node("MatMul", [f"{layer}.r", f"{layer}.down.weight"],
                         [f"{layer}.d"], f"{layer}.down")]
    value = f"{layer}.d"
tensor = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3, 4])
graph = helper.make_graph(nodes, "layers", [tensor("x")], [tensor(value)], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]),
          sys.argv[2])
