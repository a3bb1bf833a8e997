"""Writes layers of Mixtral's mixture of experts, as exporters write them:
make_mixtral.py FORM FILE. Each of 2 layers has 4 experts, of which a token chooses 2:
down(silu(gate(x)) * up(x)). FORM is
  gathered  nodes for each expert, which takes the tokens that chose it
  masked    nodes for each expert, which takes all tokens; its share of others is 0
  looked-up one stacked weight per matrix, from which each token looks up its experts';
            gate and up are one matrix
"""
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

TOKENS, WIDTH, INNER, EXPERTS, CHOSEN, LAYERS = 12, 16, 32, 4, 2, 2


class Model:
    def __init__(self):
        self.random = np.random.default_rng(1)
        self.nodes, self.weights = [], {}

    def constant(self, name, value):
        self.weights[name] = np.asarray(value)
        return name

    def ints(self, *values):
        return self.constant("ints_" + "_".join(map(str, values)).replace("-", "m"),
                             np.array(values, np.int64))

    def weight(self, name, *shape):
        draw = self.random.standard_normal(shape) * shape[-2] ** -0.5
        return self.constant(name, draw.astype(np.float32))

    def node(self, op, inputs, name, outputs=(), **attributes):
        outputs = list(outputs) or [name + ".out"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name, **attributes))
        return outputs[0]

    def routed(self, x, name):
        """The chosen experts of each token and their shares: [tokens, chosen]."""
        router = self.weight(name + ".gate.weight", WIDTH, EXPERTS)
        logits = self.node("MatMul", [x, router], name + ".gate")
        chances = self.node("Softmax", [logits], name + ".softmax", axis=-1)
        values, places = name + ".values", name + ".places"
        self.node("TopK", [chances, self.ints(CHOSEN)], name + ".topk", [values, places],
                  axis=-1)
        total = self.node("ReduceSum", [values, self.ints(-1)], name + ".total")
        return places, self.node("Div", [values, total], name + ".share")

    def gated(self, one, three, name):
        chance = self.node("Sigmoid", [one], name + ".sigmoid")
        silu = self.node("Mul", [one, chance], name + ".silu")
        return self.node("Mul", [silu, three], name + ".gated")

    def expert(self, x, it):
        """An expert that is nodes of its own: w2 (silu(w1 x) * (w3 x))."""
        one, three = (
            self.node("MatMul", [x, self.weight(f"{it}.{w}.weight", WIDTH, INNER)],
                      f"{it}.{w}") for w in ("w1", "w3"))
        down = self.weight(it + ".w2.weight", INNER, WIDTH)
        return self.node("MatMul", [self.gated(one, three, it), down], it + ".w2")

    def apart(self, x, places, shares, name, is_gathered):
        total = self.constant("zeros", np.zeros((TOKENS, WIDTH), np.float32))
        for e in range(EXPERTS):
            it = f"{name}.experts.{e}"
            number = self.constant(f"number_{e}", np.int64(e))
            is_chosen = self.node("Equal", [places, number], it + ".is_chosen")
            add = self.add_gathered if is_gathered else self.add_masked
            total = add(x, total, is_chosen, shares, it)
        return total

    def add_gathered(self, x, total, is_chosen, shares, it):
        where = self.node("NonZero", [is_chosen], it + ".where")
        pairs = self.node("Transpose", [where], it + ".pairs", perm=[1, 0])
        rows = self.node("Gather", [pairs, self.constant("zero", np.int64(0))],
                         it + ".rows", axis=1)
        taken = self.node("Gather", [x, rows], it + ".taken", axis=0)
        made = self.expert(taken, it)
        share = self.node("GatherND", [shares, pairs], it + ".shares")
        share = self.node("Unsqueeze", [share, self.ints(-1)], it + ".share")
        made = self.node("Mul", [made, share], it + ".weighted")
        rows = self.node("Unsqueeze", [rows, self.ints(-1)], it + ".places")
        return self.node("ScatterND", [total, rows, made], it + ".added", reduction="add")

    def add_masked(self, x, total, is_chosen, shares, it):
        made = self.expert(x, it)
        mask = self.node("Cast", [is_chosen], it + ".mask", to=onnx.TensorProto.FLOAT)
        share = self.node("Mul", [shares, mask], it + ".shares")
        share = self.node("ReduceSum", [share, self.ints(-1)], it + ".share")
        made = self.node("Mul", [made, share], it + ".weighted")
        return self.node("Add", [total, made], it + ".added")

    def looked_up(self, x, places, shares, name):
        """Tokens · chosen rows, each with weights of its own, as batched products."""
        it = name + ".experts"
        flat = self.node("Reshape", [places, self.ints(-1)], it + ".flat")
        rows = np.repeat(np.arange(TOKENS), CHOSEN)
        taken = self.node("Gather", [x, self.constant("rows", rows)], it + ".taken")
        column = self.node("Unsqueeze", [taken, self.ints(-1)], it + ".column")
        chosen = {w: self.node(
            "Gather", [self.weight(f"{it}.{w}.weight", EXPERTS, *shape), flat],
            f"{it}.{w}.chosen") for w, shape in
            (("gate_up", (2 * INNER, WIDTH)), ("down", (WIDTH, INNER)))}
        both = self.node("MatMul", [chosen["gate_up"], column], it + ".gate_up")
        one, three = it + ".w1", it + ".w3"
        self.node("Split", [both], it + ".halves", [one, three], axis=1, num_outputs=2)
        made = self.node("MatMul", [chosen["down"], self.gated(one, three, it)],
                         it + ".down")
        made = self.node("Squeeze", [made, self.ints(-1)], it + ".squeezed")
        share = self.node("Reshape", [shares, self.ints(-1, 1)], it + ".share")
        made = self.node("Mul", [made, share], it + ".weighted")
        made = self.node("Reshape", [made, self.ints(TOKENS, CHOSEN, WIDTH)], it + ".by_token")
        return self.node("ReduceSum", [made, self.ints(1)], it + ".sum", keepdims=0)

    def save(self, form, path):
        x = "x"
        for i in range(LAYERS):
            name = f"layers.{i}"
            places, shares = self.routed(x, name)
            made = self.looked_up(x, places, shares, name) if form == "looked-up" else \
                self.apart(x, places, shares, name, form == "gathered")
            x = self.node("Add", [x, made], name + ".residual")
        real = lambda n: helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT,
                                                       [TOKENS, WIDTH])
        graph = helper.make_graph(
            self.nodes, "mixtral", [real("x")], [real(x)],
            [numpy_helper.from_array(v, n) for n, v in self.weights.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]),
                  path)


Model().save(sys.argv[1], sys.argv[2])
