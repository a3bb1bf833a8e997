"""GPT-2 written node by node, in two forms that compute the same.

fused: one weight [hidden, 3·hidden] for queries, keys and values and a Split behind it;
apart: three weights; tied: fused, and the head multiplies by the token table itself. All
flatten batch and sequence into rows around each Gemm, as the exporters do, and compute the
same numbers: the weights are cut from the same draws.
"""
import numpy as np

from builder import Builder


class Gpt2(Builder):
    def __init__(self, fused, batch, length, hidden=64, heads=4, layers=2, vocabulary=503,
                 seed=11, tied=False, widening=4):
        super().__init__(seed)
        self.tied, self.widening = tied, widening
        self.fused, self.batch, self.length = fused, batch, length
        self.hidden, self.heads, self.layers = hidden, heads, layers
        self.vocabulary = vocabulary

    def layer_norm(self, x, name):
        scale = self.weight(f"{name}.weight", self.draw(self.hidden, gain=0.1, mean=1))
        shift = self.weight(f"{name}.bias", self.draw(self.hidden, gain=0.1))
        return self.node("LayerNormalization", [x, scale, shift], name, axis=-1,
                         epsilon=1e-5)

    def gemm(self, x, weight, bias, name):
        """x [batch, length, k] times weight [k, n], as Reshape, Gemm, Reshape."""
        rows = self.ints(f"{name}.rows", [-1, weight.shape[0]])
        back = self.ints(f"{name}.back", [self.batch, self.length, weight.shape[1]])
        flat = self.node("Reshape", [x, rows], f"{name}/flatten")
        product = self.node("Gemm", [flat, self.weight(f"{name}.weight", weight),
                                     self.weight(f"{name}.bias", bias)], name)
        return self.node("Reshape", [product, back], f"{name}/unflatten")

    def linear(self, x, inputs, outputs, name):
        weight = self.draw(inputs, outputs, gain=inputs**-0.5)
        return self.gemm(x, weight, self.draw(outputs, gain=0.1), name)

    def qkv(self, x, name):
        # Queries and keys have twice the gain of a linear layer: attention has winners.
        gain = self.hidden**-0.5
        weights = [self.draw(self.hidden, self.hidden, gain=g * gain) for g in (2, 2, 1)]
        biases = [self.draw(self.hidden, gain=0.1) for _ in range(3)]
        if self.fused:
            both = self.gemm(x, self.join(weights, 1), self.join(biases, 0),
                             f"{name}.c_attn")
            sizes = self.ints(f"{name}.split", [self.hidden] * 3)
            outputs = [f"{name}.{part}" for part in "qkv"]
            return self.node("Split", [both, sizes], f"{name}.split_qkv", outputs, axis=2)
        return [self.gemm(x, weight, bias, f"{name}.{part}_proj")
                for part, weight, bias in zip("qkv", weights, biases)]

    def attention(self, x, name):
        width = self.hidden // self.heads
        shape = self.ints(f"{name}.heads", [self.batch, self.length, self.heads, width])
        query, key, value = [
            self.node("Transpose",
                      [self.node("Reshape", [part, shape], f"{name}.{letter}/heads")],
                      f"{name}.{letter}/transpose",
                      perm=[0, 2, 3, 1] if letter == "k" else [0, 2, 1, 3])
            for letter, part in zip("qkv", self.qkv(x, name))]
        scores = self.node("MatMul", [query, key], f"{name}.scores")
        scaled = self.node("Div", [scores, self.scalar(f"{name}.scale", width**0.5)],
                           f"{name}.scaled")
        lowest = self.scalar(f"{name}.lowest", np.finfo(np.float32).min)
        masked = self.node("Where", ["causal", scaled, lowest], f"{name}.masked")
        weights = self.node("Softmax", [masked], f"{name}.softmax", axis=-1)
        mixed = self.node("MatMul", [weights, value], f"{name}.mixed")
        turned = self.node("Transpose", [mixed], f"{name}.merge/transpose",
                           perm=[0, 2, 1, 3])
        merged = self.node("Reshape", [turned, self.ints(
            f"{name}.merged", [self.batch, self.length, self.hidden])], f"{name}.merge")
        return self.linear(merged, self.hidden, self.hidden, f"{name}.c_proj")

    def gelu(self, x, name):
        """The tanh form, spelt out."""
        def scalar(label, value):
            return self.scalar(f"{name}.{label}", value)
        cube = self.node("Pow", [x, scalar("three", 3)], f"{name}/pow")
        small = self.node("Mul", [cube, scalar("c", 0.044715)], f"{name}/mul")
        inner = self.node("Add", [x, small], f"{name}/add")
        scaled = self.node("Mul", [inner, scalar("root", (2 / np.pi)**0.5)],
                           f"{name}/mul_1")
        gate = self.node("Add", [self.node("Tanh", [scaled], f"{name}/tanh"),
                                 scalar("one", 1)], f"{name}/add_1")
        half = self.node("Mul", [x, scalar("half", 0.5)], f"{name}/mul_2")
        return self.node("Mul", [half, gate], f"{name}/mul_3")

    def feed_forward(self, x, layer):
        wide = self.linear(x, self.hidden, self.widening * self.hidden,
                           f"h.{layer}.mlp.c_fc")
        return self.linear(self.gelu(wide, f"h.{layer}.mlp.act"),
                           self.widening * self.hidden, self.hidden,
                           f"h.{layer}.mlp.c_proj")

    def build(self):
        ids = self.input("input_ids", [self.batch, self.length], below=self.vocabulary)
        # Tied to the head: a gain that gives logits of size one.
        gain = self.hidden**-0.5
        table = self.draw(self.vocabulary, self.hidden, gain=gain)
        tokens = self.node("Gather", [self.weight("wte.weight", table), ids],
                           "wte")
        positions = self.weight("wpe.weight", self.draw(self.length, self.hidden,
                                                        gain=gain))
        x = self.node("Add", [tokens, positions], "embed")
        self.weight("causal", np.tril(np.ones((self.length, self.length), bool)))
        for layer in range(self.layers):
            name = f"h.{layer}"
            attended = self.attention(self.layer_norm(x, f"{name}.ln_1"), f"{name}.attn")
            x = self.node("Add", [x, attended], f"{name}.residual_1")
            narrow = self.feed_forward(self.layer_norm(x, f"{name}.ln_2"), layer)
            x = self.node("Add", [x, narrow], f"{name}.residual_2")
        head = (self.node("Transpose", ["wte.weight"], "lm_head/transpose", perm=[1, 0])
                if self.tied else
                self.weight("lm_head.weight", np.ascontiguousarray(table.T)))
        self.node("MatMul", [self.layer_norm(x, "ln_f"), head], "lm_head", ["logits"])
        self.output("logits", [self.batch, self.length, self.vocabulary])
        return self.model("gpt2")


def fused():
    return Gpt2(True, batch=2, length=16).build()


def apart():
    return Gpt2(False, batch=2, length=16).build()


def tied():
    return Gpt2(True, batch=2, length=16, tied=True).build()
