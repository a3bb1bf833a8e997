"""BERT: an encoder with learned positions and LayerNorm behind each residual."""
import numpy as np

from layers import Layers


class Bert(Layers):
    TINY = dict(hidden=64, heads=4, layers=2, vocabulary=503, batch=2, length=16)
    SMALL = dict(hidden=256, heads=8, layers=4, vocabulary=2003, batch=4, length=64)

    def __init__(self, hidden, heads, layers, vocabulary=30522, batch=8, length=512,
                 seed=22):
        super().__init__(seed)
        self.hidden, self.heads, self.layers = hidden, heads, layers
        self.vocabulary, self.batch, self.length = vocabulary, batch, length

    def norm(self, x, name):
        return self.layer_norm(x, self.hidden, name, 1e-12)

    def embed(self):
        shape = [self.batch, self.length]
        words = self.embedding(self.input("input_ids", shape, below=self.vocabulary),
                               self.vocabulary, self.hidden, "embeddings.word")
        kinds = self.embedding(self.input("token_type_ids", shape, below=2), 2,
                               self.hidden, "embeddings.type")
        # The table has room for 512 positions whatever the length is.
        places = self.ints("embeddings.positions", range(self.length))
        where = self.embedding(places, max(512, self.length), self.hidden,
                               "embeddings.position")
        both = self.node("Add", [words, kinds], "embeddings/add")
        x = self.node("Add", [both, where], "embeddings/add_1")
        return self.norm(x, "embeddings.norm")

    def mask(self):
        """What is added to the scores of a key that is padding."""
        given = self.input("attention_mask", [self.batch, self.length], below=2)
        axes = self.ints("mask.axes", [1, 2])
        wide = self.node("Unsqueeze", [given, axes], "mask/wide")
        floats = self.node("Cast", [wide], "mask/cast", to=1)
        absent = self.node("Sub", [self.scalar("mask.one", 1), floats], "mask/absent")
        return self.node("Mul", [absent, self.scalar("mask.low", -10000)], "mask")

    def gelu(self, x, name):
        root = self.node("Div", [x, self.scalar(f"{name}.root", 2**0.5)], f"{name}/div")
        error = self.node("Erf", [root], f"{name}/erf")
        gate = self.node("Add", [error, self.scalar(f"{name}.one", 1)], f"{name}/add")
        product = self.node("Mul", [x, gate], f"{name}/mul")
        return self.node("Mul", [product, self.scalar(f"{name}.half", 0.5)], name)

    def layer(self, x, mask, name):
        width = self.hidden // self.heads
        query, key, value = [self.split_heads(
            self.linear(x, self.hidden, self.hidden, f"{name}.attention.{part}",
                        gain=gain),
            self.batch, self.heads, width, f"{name}.attention.{part}")
            for part, gain in (("query", 2), ("key", 2), ("value", 1))]
        mixed = self.attend(query, key, value, f"{name}.attention", scale=width**-0.5,
                            bias=mask)
        mixed = self.linear(mixed, self.hidden, self.hidden, f"{name}.attention.output")
        x = self.norm(self.node("Add", [x, mixed], f"{name}.residual_1"),
                      f"{name}.norm_1")
        wide = self.linear(x, self.hidden, 4 * self.hidden, f"{name}.intermediate")
        narrow = self.linear(self.gelu(wide, f"{name}.gelu"), 4 * self.hidden,
                             self.hidden, f"{name}.output")
        return self.norm(self.node("Add", [x, narrow], f"{name}.residual_2"),
                         f"{name}.norm_2")

    def build(self):
        x, mask = self.embed(), self.mask()
        for layer in range(self.layers):
            x = self.layer(x, mask, f"layer.{layer}")
        self.node("Identity", [x], "last", ["last_hidden_state"])
        first = self.node("Gather", [x, self.weight("pooler.place", np.array(0))],
                          "pooler/first", axis=1)
        dense = self.linear(first, self.hidden, self.hidden, "pooler")
        self.node("Tanh", [dense], "pooler/tanh", ["pooler_output"])
        self.output("last_hidden_state", [self.batch, self.length, self.hidden])
        self.output("pooler_output", [self.batch, self.hidden])
        return self.model("bert")
