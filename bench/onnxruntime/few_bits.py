#!/usr/bin/env python3
"""Writes models with weights of 4 bits at published sizes, random, each a folder as models.py
writes them, for compare.py and memory.py.

usage: few_bits.py OUT_DIR [NAME…]
       few_bits.py --list

gpt2-token: GPT-2 small, one token behind a cache of 255, whose keys and values come in and whose
new ones go out. gpt2-prompt: 128 tokens without a cache. products-token: one row through 16
products of 2,048 by 5,632, the widths of a Llama of 1.1 billion parameters; products-prompt: 128
rows. All products with weights are MatMulNBits: opset 21, blocks of 32, zero points of 8, scales of f32,
accuracy_level 1, which asks for f32 (gpt2-token-level4: 4, which permits 8-bit activations). A
name that ends in -f32 has the same model with its weights in f32.
"""
import argparse
import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32


class Model:
    def __init__(self, name):
        self.name = name
        self.is_real = name.endswith("-f32")
        self.level = 4 if "level4" in name else 1
        self.random = np.random.default_rng(5)
        self.nodes, self.weights, self.inputs, self.outputs = [], [], {}, []

    def constant(self, value, name):
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def input(self, name, value):
        self.inputs[name] = value
        return name

    def node(self, op, inputs, name, count=1, **attributes):
        outputs = [name] if count == 1 else [f"{name}.{i}" for i in range(count)]
        domain = "com.microsoft" if op == "MatMulNBits" else ""
        self.nodes.append(helper.make_node(op, inputs, outputs, name, domain=domain,
                                           **attributes))
        return name if count == 1 else outputs

    def linear(self, x, k, n, name, bias=False):
        numbers = self.random.integers(0, 256, (n, k // BLOCK, BLOCK // 2), np.uint8)
        scale = np.float32(k ** -0.5 / 4.6)
        if self.is_real:
            low, high = numbers & 15, numbers >> 4
            real = np.stack([low, high], -1).reshape(n, k).astype(np.float32) - 8
            y = self.node("MatMul", [x, self.constant(real.T * scale, f"{name}.w")], name)
        else:
            scales = self.random.uniform(0.8, 1.2, n * k // BLOCK).astype(np.float32) * scale
            y = self.node("MatMulNBits", [x, self.constant(numbers, f"{name}.w"),
                                          self.constant(scales, f"{name}.s")], name, K=k, N=n,
                          bits=4, block_size=BLOCK, accuracy_level=self.level)
        if not bias:
            return y
        values = 0.1 * self.random.standard_normal(n).astype(np.float32)
        return self.node("Add", [y, self.constant(values, f"{name}.b")], f"{name}/bias")

    def norm(self, x, width, name):
        return self.node("LayerNormalization", [
            x, self.constant(np.ones(width, np.float32), f"{name}.scale"),
            self.constant(np.zeros(width, np.float32), f"{name}.shift")], name, axis=-1)

    def save(self, folder):
        (folder / "inputs").mkdir(parents=True, exist_ok=True)

        def info(name, value):
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            return helper.make_tensor_value_info(name, kind, value.shape)
        graph = helper.make_graph(
            self.nodes, "main", [info(n, v) for n, v in self.inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.outputs],
            self.weights)
        model = helper.make_model(graph, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = 10
        onnx.save(model, folder / "model.onnx")
        for index, (name, value) in enumerate(self.inputs.items()):
            (folder / "inputs" / f"input_{index}.pb").write_bytes(
                numpy_helper.from_array(value, name).SerializeToString())
        case = {"name": self.name, "inputs": list(self.inputs),
                "shapes": {name: list(value.shape) for name, value in self.inputs.items()}}
        (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def gpt2(model, rows, past, layers=12, width=768, heads=12, vocabulary=50257):
    each = width // heads
    words = model.random.standard_normal((vocabulary, width)).astype(np.float32)
    places = 0.1 * model.random.standard_normal((1, rows, width)).astype(np.float32)
    ids = model.input("ids", model.random.integers(0, vocabulary, (1, rows)))
    x = model.node("Gather", [model.constant(words, "words"), ids], "embed")
    x = model.node("Add", [x, model.constant(places, "places")], "place")
    split = model.constant(np.array([1, rows, heads, each], np.int64), "heads")
    joined = model.constant(np.array([1, rows, width], np.int64), "joined")
    scale = model.constant(np.float32(each ** -0.5), "scale")
    mask = np.triu(np.full((rows, past + rows), -1e9, np.float32), past + 1)
    mask = model.constant(mask, "mask")
    for layer in range(layers):
        name = f"h{layer}"
        normed = model.norm(x, width, f"{name}/norm1")
        three = model.linear(normed, width, 3 * width, f"{name}/attention", bias=True)
        parts = model.node("Split", [three], f"{name}/split", 3, axis=2, num_outputs=3)
        q, k, v = [model.node("Transpose", [model.node("Reshape", [part, split],
                                                       f"{name}/{letter}/heads")],
                              f"{name}/{letter}", perm=[0, 2, 1, 3])
                   for letter, part in zip("qkv", parts)]
        if past:
            for letter, new in (("k", k), ("v", v)):
                model.outputs.append((new, [1, heads, rows, each]))
                model.input(f"{name}.past.{letter}", model.random.standard_normal(
                    (1, heads, past, each)).astype(np.float32))
            k, v = [model.node("Concat", [f"{name}.past.{letter}", new],
                               f"{name}/{letter}/all", axis=2)
                    for letter, new in (("k", k), ("v", v))]
        turned = model.node("Transpose", [k], f"{name}/turned", perm=[0, 1, 3, 2])
        scores = model.node("MatMul", [q, turned], f"{name}/scores")
        scores = model.node("Mul", [scores, scale], f"{name}/scaled")
        scores = model.node("Add", [scores, mask], f"{name}/masked")
        weights = model.node("Softmax", [scores], f"{name}/softmax", axis=-1)
        mixed = model.node("MatMul", [weights, v], f"{name}/mixed")
        mixed = model.node("Transpose", [mixed], f"{name}/back", perm=[0, 2, 1, 3])
        mixed = model.node("Reshape", [mixed, joined], f"{name}/merged")
        mixed = model.linear(mixed, width, width, f"{name}/projection", bias=True)
        x = model.node("Add", [x, mixed], f"{name}/residual1")
        normed = model.norm(x, width, f"{name}/norm2")
        inner = model.linear(normed, width, 4 * width, f"{name}/up", bias=True)
        inner = model.node("Gelu", [inner], f"{name}/gelu", approximate="tanh")
        inner = model.linear(inner, 4 * width, width, f"{name}/down", bias=True)
        x = model.node("Add", [x, inner], f"{name}/residual2")
    x = model.norm(x, width, "norm")
    model.outputs.insert(0, (model.linear(x, width, vocabulary, "logits"),
                             [1, rows, vocabulary]))


def products(model, rows, layers=8, width=2048, inner=5632):
    x = model.input("x", model.random.standard_normal((1, rows, width)).astype(np.float32))
    for layer in range(layers):
        up = model.linear(x, width, inner, f"up{layer}")
        up = model.node("Relu", [up], f"relu{layer}")
        x = model.linear(up, inner, width, f"down{layer}")
    model.outputs.append((x, [1, rows, width]))


MODELS = {"gpt2-token": lambda m: gpt2(m, 1, 255), "gpt2-prompt": lambda m: gpt2(m, 128, 0),
          "products-token": lambda m: products(m, 1),
          "products-prompt": lambda m: products(m, 128)}
NAMES = [name + end for name in MODELS for end in ("", "-level4", "-f32")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("names", nargs="*", choices=[[], *NAMES])
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list or not arguments.folder:
        print("\n".join(NAMES))
        return
    for name in arguments.names or NAMES:
        model = Model(name)
        MODELS[name.removesuffix("-f32").removesuffix("-level4")](model)
        model.save(arguments.folder / name)


if __name__ == "__main__":
    main()
