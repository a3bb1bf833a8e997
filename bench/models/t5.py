"""T5 v1.0: an encoder and a decoder with relative positions, RMSNorm, no biases; the head
is the token table."""
import numpy as np

from layers import Layers


def buckets(queries, keys, causal, count=32, furthest=128):
    """The bucket of each (query, key): one each for near keys, then by the logarithm of
    the distance. Half of them are for keys to the right unless `causal`. [queries, keys]
    """
    distance = np.arange(queries)[:, None] - np.arange(keys)[None, :]
    offset = 0
    if not causal:
        count //= 2
        offset = np.where(distance < 0, count, 0)
        distance = np.abs(distance)
    distance = np.maximum(distance, 0)
    near = count // 2
    far = near + (np.log(np.maximum(distance, 1) / near) / np.log(furthest / near) *
                  (count - near)).astype(np.int64)
    return offset + np.where(distance < near, distance, np.minimum(far, count - 1))


class T5(Layers):
    opset, ir_version = 23, 11
    TINY = dict(hidden=64, heads=4, width=16, inner=128, layers=2, vocabulary=503, batch=2,
                length=16)
    SMALL = dict(hidden=256, heads=8, width=32, inner=1024, layers=4, vocabulary=2003,
                 batch=4, length=64)

    def __init__(self, hidden, heads, width, inner, layers, vocabulary=32128, batch=8,
                 length=512, seed=23):
        super().__init__(seed)
        self.hidden, self.heads, self.width, self.inner = hidden, heads, width, inner
        self.layers, self.vocabulary = layers, vocabulary
        self.batch, self.length = batch, length

    def norm(self, x, name):
        return self.rms_norm(x, self.hidden, name, 1e-6)

    def position_bias(self, name, causal):
        """[heads, length, length], one table for all layers of the side."""
        places = self.ints(f"{name}.buckets", buckets(self.length, self.length, causal))
        bias = self.embedding(places, 32, self.heads, f"{name}.relative_bias", gain=0.5)
        return self.node("Transpose", [bias], f"{name}.bias/transpose", perm=[2, 0, 1])

    def attention(self, x, source, name, bias=None, mask=None):
        inner = self.heads * self.width
        # There is no scale: the weights of the queries are small instead.
        query, key, value = [self.split_heads(
            self.linear(of, self.hidden, inner, f"{name}.{part}", bias=False, gain=gain),
            self.batch, self.heads, self.width, f"{name}.{part}")
            for part, of, gain in (("q", x, 2 * self.width**-0.5), ("k", source, 2),
                                   ("v", source, 1))]
        mixed = self.attend(query, key, value, name, bias=bias, mask=mask)
        return self.linear(mixed, inner, self.hidden, f"{name}.o", bias=False)

    def feed_forward(self, x, name):
        wide = self.node("Relu", [self.linear(x, self.hidden, self.inner, f"{name}.wi",
                                              bias=False)], f"{name}.relu")
        return self.linear(wide, self.inner, self.hidden, f"{name}.wo", bias=False,
                           gain=2**0.5)

    def residual(self, x, name, branch):
        normal = self.norm(x, f"{name}.norm")
        return self.node("Add", [x, branch(normal, name)], f"{name}.residual")

    def encode(self):
        ids = self.input("input_ids", [self.batch, self.length], below=self.vocabulary)
        x = self.node("Gather", ["shared.weight", ids], "encoder.embed")
        bias = self.position_bias("encoder", causal=False)
        for layer in range(self.layers):
            name = f"encoder.{layer}"
            x = self.residual(x, f"{name}.self",
                              lambda y, n: self.attention(y, y, n, bias=bias))
            x = self.residual(x, f"{name}.ffn", self.feed_forward)
        return self.norm(x, "encoder.norm")

    def decode(self, source):
        ids = self.input("decoder_input_ids", [self.batch, self.length],
                         below=self.vocabulary)
        x = self.node("Gather", ["shared.weight", ids], "decoder.embed")
        bias = self.position_bias("decoder", causal=True)
        self.causal_mask(self.length)
        for layer in range(self.layers):
            name = f"decoder.{layer}"
            x = self.residual(x, f"{name}.self", lambda y, n: self.attention(
                y, y, n, bias=bias, mask="causal"))
            x = self.residual(x, f"{name}.cross",
                              lambda y, n: self.attention(y, source, n))
            x = self.residual(x, f"{name}.ffn", self.feed_forward)
        return self.norm(x, "decoder.norm")

    def build(self):
        self.weight("shared.weight", self.draw(self.vocabulary, self.hidden))
        x = self.decode(self.encode())
        scaled = self.node("Mul", [x, self.scalar("head.scale", self.hidden**-0.5)],
                           "head.scaled")
        head = self.node("Transpose", ["shared.weight"], "head/transpose", perm=[1, 0])
        self.node("MatMul", [scaled, head], "head", ["logits"])
        self.output("logits", [self.batch, self.length, self.vocabulary])
        return self.model("t5")
