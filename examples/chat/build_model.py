#!/usr/bin/env python3
"""Writes a small Llama-style language model with a KV cache as an ONNX file.

usage: build_model.py OUT.onnx [--layers 4] [--seed 0]

Tokens are characters (ASCII). The weights are random, so that it answers nonsense. It shows
the form of a decoder whose caches Partita keeps in place: they are inputs and outputs of
one shape, and TensorScatter writes the rows of the new tokens into them.

    inputs   tokens [batch, sequence] i64, position [batch] i64: where the first one goes
             past.L.key, past.L.value [batch, kv heads, most tokens, head size]
    outputs  logits [batch, sequence, vocabulary], present.L.key, present.L.value
"""
import argparse

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Of one model of the family; see Model.
SIZES = dict(layers=4, hidden=64, heads=4, kv_heads=2, head=16, mlp=128, vocabulary=128,
             most=96)


class Model:
    """Nodes of a decoder, layer by layer."""

    def __init__(self, seed=0, **sizes):
        self.sizes = {**SIZES, **sizes}
        for name, value in self.sizes.items():
            setattr(self, name, value)
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []

    def constant(self, name, values):
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, name, *shape):
        scale = 1.5 / np.sqrt(shape[0])
        return self.constant(name, self.random.normal(0, scale, shape).astype(np.float32))

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def linear(self, x, rows, columns, name):
        return self.node("MatMul", [x, self.weight(f"{name}.weight", rows, columns)], name)

    def norm(self, x, name):
        scale = self.random.uniform(0.8, 1.2, self.hidden).astype(np.float32)
        return self.node("RMSNormalization",
                         [x, self.constant(f"{name}.weight", scale)], name, axis=-1)

    def heads_of(self, x, heads, name):
        """[batch, sequence, heads · head] to [batch, heads, sequence, head], rotated."""
        shape = self.constant(f"{name}.shape",
                              np.array([0, 0, heads, self.head], np.int64))
        x = self.node("Reshape", [x, shape], f"{name}.split")
        return self.node("Transpose", [x], f"{name}.heads", perm=[0, 2, 1, 3])

    def cache(self, x, kind, layer):
        past, present = f"past.{layer}.{kind}", f"present.{layer}.{kind}"
        shape = ["batch", self.kv_heads, self.most, self.head]
        self.inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, shape))
        self.outputs.append(helper.make_tensor_value_info(present, TensorProto.FLOAT,
                                                          shape))
        self.nodes.append(helper.make_node("TensorScatter", [past, x, "position"],
                                           [present], name=f"layers.{layer}.{kind}_cache",
                                           axis=-2))
        return present

    def attention(self, x, layer):
        name = f"layers.{layer}.attention"
        query = self.linear(x, self.hidden, self.heads * self.head, f"{name}.query")
        key = self.linear(x, self.hidden, self.kv_heads * self.head, f"{name}.key")
        value = self.linear(x, self.hidden, self.kv_heads * self.head, f"{name}.value")
        query = self.heads_of(query, self.heads, f"{name}.query")
        key = self.heads_of(key, self.kv_heads, f"{name}.key")
        value = self.heads_of(value, self.kv_heads, f"{name}.value")
        angles = ["cosines", "sines", "places"]
        query = self.node("RotaryEmbedding", [query, *angles], f"{name}.query_rotated")
        key = self.node("RotaryEmbedding", [key, *angles], f"{name}.key_rotated")
        key, value = self.cache(key, "key", layer), self.cache(value, "value", layer)
        mixed = self.node("Attention", [query, key, value, "mask"], f"{name}.mixed")
        mixed = self.node("Transpose", [mixed], f"{name}.merged", perm=[0, 2, 1, 3])
        shape = self.constant(f"{name}.merged_shape",
                              np.array([0, 0, self.heads * self.head], np.int64))
        mixed = self.node("Reshape", [mixed, shape], f"{name}.joined")
        return self.linear(mixed, self.heads * self.head, self.hidden, f"{name}.output")

    def feed_forward(self, x, layer):
        name = f"layers.{layer}.mlp"
        gate = self.linear(x, self.hidden, self.mlp, f"{name}.gate")
        up = self.linear(x, self.hidden, self.mlp, f"{name}.up")
        swish = self.node("Swish", [gate], f"{name}.swish")
        both = self.node("Mul", [swish, up], f"{name}.product")
        return self.linear(both, self.mlp, self.hidden, f"{name}.down")

    def places(self):
        """Where each token stands, what of the caches it may look at, and its angles."""
        self.constant("one", np.array(1, np.int64))
        self.constant("zero", np.array(0, np.int64))
        self.constant("last", np.array([1], np.int64))
        self.node("Shape", ["tokens"], "length", start=1, end=2)
        self.constant("scalar", np.array([], np.int64))
        self.node("Reshape", ["length", "scalar"], "length_scalar")
        self.node("Range", ["zero", "length_scalar", "one"], "steps")
        self.node("Unsqueeze", ["position", "last"], "begin")
        self.node("Add", ["begin", "steps"], "places")
        self.constant("cache_places", np.arange(self.most, dtype=np.int64))
        self.constant("mask_dims", np.array([1, 3], np.int64))
        self.node("Unsqueeze", ["places", "mask_dims"], "rows")
        self.node("LessOrEqual", ["cache_places", "rows"], "mask")
        angle = np.outer(np.arange(self.most),
                         10000.0 ** (-np.arange(self.head // 2) * 2 / self.head))
        self.constant("cosines", np.cos(angle).astype(np.float32))
        self.constant("sines", np.sin(angle).astype(np.float32))

    def build(self):
        value = helper.make_tensor_value_info
        self.inputs += [value("tokens", TensorProto.INT64, ["batch", "sequence"]),
                        value("position", TensorProto.INT64, ["batch"])]
        self.outputs.append(value("logits", TensorProto.FLOAT,
                                  ["batch", "sequence", self.vocabulary]))
        self.places()
        table = self.random.normal(0, 1, (self.vocabulary, self.hidden))
        x = self.node("Gather", [self.constant("tokens.weight", table.astype(np.float32)),
                                 "tokens"], "embedding", axis=0)
        for layer in range(self.layers):
            name = f"layers.{layer}"
            y = self.attention(self.norm(x, f"{name}.input_norm"), layer)
            x = self.node("Add", [x, y], f"{name}.attention_sum")
            y = self.feed_forward(self.norm(x, f"{name}.mlp_norm"), layer)
            x = self.node("Add", [x, y], f"{name}.mlp_sum")
        self.linear(self.norm(x, "norm"), self.hidden, self.vocabulary, "logits")
        graph = helper.make_graph(self.nodes, "chat", self.inputs, self.outputs,
                                  self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)],
                                  ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=SIZES["layers"])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    onnx.save(Model(arguments.seed, layers=arguments.layers).build(), arguments.out)


if __name__ == "__main__":
    main()
