#!/usr/bin/env python3
"""Splits a network of two layers over four ranks by strategies of its layers, calls it, and
prints what ranks exchange.

usage: shard.py [--torch]

The network is MindSpore's example of operator-level parallelism: y = relu(x·w1)·w2, the
batch over dp, columns of w1 and rows of w2 over tp. With --torch it is a torch module, which
partita.shard exports; without, it is written as ONNX here.
"""
import sys

import numpy

import partita

WIDTH, HIDDEN, BATCH = 28 * 28, 512, 32


def onnx_network(weights):
    """The network as ONNX writes it, its nodes called by their layers."""
    from onnx import TensorProto, helper, numpy_helper
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"], name="layer1"),
             helper.make_node("Relu", ["h"], ["a"], name="relu"),
             helper.make_node("MatMul", ["a", "w2"], ["y"], name="layer2")]
    tensor = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT,
                                                               [BATCH, width])
    graph = helper.make_graph(nodes, "network", [tensor("x", WIDTH)], [tensor("y", 10)],
                              [numpy_helper.from_array(w, n) for n, w in weights.items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


def torch_network(weights):
    """The same as a module. A Linear of torch keeps its weight as (out, in)."""
    import torch
    layers = torch.nn.Sequential()
    for name, weight in (("layer1", weights["w1"]), ("relu", None), ("layer2", weights["w2"])):
        if weight is None:
            layers.add_module(name, torch.nn.ReLU())
            continue
        layers.add_module(name, torch.nn.Linear(*weight.shape, bias=False))
        getattr(layers, name).weight.data = torch.from_numpy(weight.T.copy())
    return layers


def main():
    random = numpy.random.default_rng(1)
    weights = {"w1": random.standard_normal((WIDTH, HIDDEN)).astype(numpy.float32) / 28,
               "w2": random.standard_normal((HIDDEN, 10)).astype(numpy.float32) / 22}
    x = random.standard_normal((BATCH, WIDTH)).astype(numpy.float32)
    expected = numpy.maximum(x @ weights["w1"], 0) @ weights["w2"]
    if "--torch" in sys.argv[1:]:
        # A Linear is a product, whose weight torch.onnx may keep as (out, in).
        model, inputs = torch_network(weights), x
        strategies = {"layer1": {"out": [["dp", "tp"]]}, "layer2": {"in": [["dp", "tp"]]}}
    else:
        model, inputs = onnx_network(weights), None
        strategies = {"layer1": [["dp", None], [None, "tp"]],
                      "layer2": [["dp", "tp"], ["tp", None]]}
    with partita.shard(model, strategies, mesh="dp=2,tp=2", inputs=inputs) as network:
        y = network(x)
        error = float(abs(y - expected).max())
        for stage in network.report()["stages"]:
            for call in stage["collectives"]:
                print(f"{call['op']} over {call['axes']}: {call['bytes']} bytes")
    print(f"largest error {error:.1e}")
    if error > 1e-4:
        sys.exit("the network computes something else")


main()
