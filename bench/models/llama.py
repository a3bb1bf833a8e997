"""Llama 3: grouped-query attention, rotary embedding, RMSNorm, SwiGLU, no biases."""
import numpy as np

from layers import Layers


class Llama(Layers):
    opset, ir_version = 23, 11
    TINY = dict(hidden=64, heads=4, key_heads=2, inner=160, layers=2, vocabulary=503,
                batch=2, length=16)
    SMALL = dict(hidden=256, heads=8, key_heads=2, inner=688, layers=4, vocabulary=2003,
                 batch=4, length=64)

    def __init__(self, hidden, heads, key_heads, inner, layers, vocabulary=128256,
                 batch=8, length=8192, seed=21):
        super().__init__(seed)
        self.hidden, self.heads, self.key_heads = hidden, heads, key_heads
        self.inner, self.layers, self.vocabulary = inner, layers, vocabulary
        self.batch, self.length, self.width = batch, length, hidden // heads

    def rotary_tables(self):
        """Cosine and sine by position and place, [length, width]; base 500,000."""
        places = np.arange(0, self.width, 2) / self.width
        angles = np.outer(np.arange(self.length), 500000.0**-places)
        angles = np.concatenate([angles, angles], 1)
        self.weight("rotary.cos", np.cos(angles).astype(np.float32))
        self.weight("rotary.sin", np.sin(angles).astype(np.float32))

    def rotate(self, x, name):
        halves = self.ints(f"{name}.halves", [self.width // 2] * 2)
        lower, upper = self.node("Split", [x, halves], f"{name}/split",
                                 [f"{name}.lower", f"{name}.upper"], axis=-1)
        turned = self.node("Concat", [self.node("Neg", [upper], f"{name}/neg"), lower],
                           f"{name}/concat", axis=-1)
        return self.node("Add", [
            self.node("Mul", [x, "rotary.cos"], f"{name}/cos"),
            self.node("Mul", [turned, "rotary.sin"], f"{name}/sin")], f"{name}/rotary")

    def repeat(self, x, name):
        """Each key head serves heads / key_heads query heads."""
        group = self.heads // self.key_heads
        if group == 1:
            return x
        wide = self.node("Unsqueeze", [x, self.ints(f"{name}.group", [2])],
                         f"{name}/unsqueeze")
        shape = self.ints(f"{name}.wide",
                          [self.batch, self.key_heads, group, self.length, self.width])
        shared = self.node("Expand", [wide, shape], f"{name}/expand")
        flat = self.ints(f"{name}.all", [self.batch, self.heads, self.length, self.width])
        return self.node("Reshape", [shared, flat], f"{name}/repeat")

    def attention(self, x, name):
        def project(letter, heads, gain):
            part = self.linear(x, self.hidden, heads * self.width,
                               f"{name}.{letter}_proj", bias=False, gain=gain)
            return self.split_heads(part, self.batch, heads, self.width,
                                    f"{name}.{letter}")
        query = self.rotate(project("q", self.heads, 2), f"{name}.q")
        key = self.rotate(project("k", self.key_heads, 2), f"{name}.k")
        value = project("v", self.key_heads, 1)
        mixed = self.attend(query, self.repeat(key, f"{name}.k"),
                            self.repeat(value, f"{name}.v"), name,
                            scale=self.width**-0.5, mask="causal")
        return self.linear(mixed, self.hidden, self.hidden, f"{name}.o_proj", bias=False)

    def feed_forward(self, x, name):
        gate = self.linear(x, self.hidden, self.inner, f"{name}.gate_proj", bias=False)
        up = self.linear(x, self.hidden, self.inner, f"{name}.up_proj", bias=False)
        silu = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{name}.sigmoid")],
                         f"{name}.silu")
        return self.linear(self.node("Mul", [silu, up], f"{name}.gated"), self.inner,
                           self.hidden, f"{name}.down_proj", bias=False)

    def build(self):
        ids = self.input("input_ids", [self.batch, self.length], below=self.vocabulary)
        x = self.embedding(ids, self.vocabulary, self.hidden, "embed_tokens")
        self.rotary_tables()
        self.causal_mask(self.length)
        for layer in range(self.layers):
            name = f"layers.{layer}"
            normal = self.rms_norm(x, self.hidden, f"{name}.input_norm", 1e-5)
            x = self.node("Add", [x, self.attention(normal, f"{name}.self_attn")],
                          f"{name}.residual_1")
            normal = self.rms_norm(x, self.hidden, f"{name}.post_norm", 1e-5)
            x = self.node("Add", [x, self.feed_forward(normal, f"{name}.mlp")],
                          f"{name}.residual_2")
        x = self.rms_norm(x, self.hidden, "norm", 1e-5)
        head = self.weight("lm_head.weight", self.draw(self.hidden, self.vocabulary,
                                                       gain=self.hidden**-0.5))
        self.node("MatMul", [x, head], "lm_head", ["logits"])
        self.output("logits", [self.batch, self.length, self.vocabulary])
        return self.model("llama")
