"""Layers that several models share, in the form in which exporters write them."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                "test", "E2E", "models"))
import builder  # noqa: E402


class Layers(builder.Builder):
    def linear(self, x, inputs, outputs, name, bias=True, gain=1.0):
        """x [..., inputs] times a weight [inputs, outputs]."""
        weight = self.weight(f"{name}.weight",
                             self.draw(inputs, outputs, gain=gain * inputs**-0.5))
        product = self.node("MatMul", [x, weight], f"{name}/matmul" if bias else name)
        if not bias:
            return product
        shift = self.weight(f"{name}.bias", self.draw(outputs, gain=0.1))
        return self.node("Add", [product, shift], name)

    def layer_norm(self, x, width, name, epsilon):
        scale = self.weight(f"{name}.weight", self.draw(width, gain=0.1, mean=1))
        shift = self.weight(f"{name}.bias", self.draw(width, gain=0.1))
        return self.node("LayerNormalization", [x, scale, shift], name, axis=-1,
                         epsilon=epsilon)

    def rms_norm(self, x, width, name, epsilon):
        scale = self.weight(f"{name}.weight", self.draw(width, gain=0.1, mean=1))
        return self.node("RMSNormalization", [x, scale], name, axis=-1, epsilon=epsilon)

    def embedding(self, ids, rows, width, name, gain=1.0):
        table = self.weight(f"{name}.weight", self.draw(rows, width, gain=gain))
        return self.node("Gather", [table, ids], name)

    def split_heads(self, x, batch, heads, width, name):
        """[batch, length, heads · width] as [batch, heads, length, width]."""
        shape = self.ints(f"{name}.heads", [batch, -1, heads, width])
        apart = self.node("Reshape", [x, shape], f"{name}/heads")
        return self.node("Transpose", [apart], f"{name}/transpose", perm=[0, 2, 1, 3])

    def attend(self, query, key, value, name, scale=None, bias=None, mask=None):
        """All [batch, heads, length, width]; `bias` is added to the scores, and they are
        the lowest number where `mask` is false. [batch, length, heads · width]."""
        turned = self.node("Transpose", [key], f"{name}.scores/transpose",
                           perm=[0, 1, 3, 2])
        scores = self.node("MatMul", [query, turned], f"{name}.scores")
        if scale is not None:
            factor = self.scalar(f"{name}.scale", scale)
            scores = self.node("Mul", [scores, factor], f"{name}.scaled")
        if bias is not None:
            scores = self.node("Add", [scores, bias], f"{name}.biased")
        if mask is not None:
            lowest = self.scalar(f"{name}.lowest", np.finfo(np.float32).min)
            scores = self.node("Where", [mask, scores, lowest], f"{name}.masked")
        weights = self.node("Softmax", [scores], f"{name}.softmax", axis=-1)
        mixed = self.node("MatMul", [weights, value], f"{name}.mixed")
        merged = self.node("Transpose", [mixed], f"{name}.merge/transpose",
                           perm=[0, 2, 1, 3])
        shape = self.ints(f"{name}.merged", [0, 0, -1])
        return self.node("Reshape", [merged, shape], f"{name}.merge")

    def causal_mask(self, length):
        return self.weight("causal", np.tril(np.ones((length, length), bool)))

    def multilayer(self, x, widths, name, last=True):
        """Linear layers with Relu between; behind the last one too if `last`."""
        for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
            # Relu halves the variance, a gain of √2 restores it.
            x = self.linear(x, inputs, outputs, f"{name}.{i}", gain=2**0.5)
            if last or i + 2 < len(widths):
                x = self.node("Relu", [x], f"{name}.{i}.relu")
        return x
