"""DLRM and Wide&Deep: large tables, small dense layers."""
import numpy as np

from layers import Layers


class Dlrm(Layers):
    TINY = dict(rows=[40 + 7 * i for i in range(26)], width=16, bottom=[32, 16],
                top=[64, 32, 1], batch=8)
    SMALL = dict(rows=[1000 + 37 * i for i in range(26)], width=32, bottom=[128, 64, 32],
                 top=[256, 128, 1], batch=32)

    def __init__(self, rows, width=128, bottom=(512, 256, 128),
                 top=(1024, 1024, 512, 256, 1), batch=55296, seed=26):
        super().__init__(seed)
        self.rows, self.width, self.batch = rows, width, batch
        self.bottom, self.top = list(bottom), list(top)

    def interact(self, vectors):
        """The products of all pairs: [batch, count, width] → [batch, pairs]."""
        count = len(self.rows) + 1
        turned = self.node("Transpose", [vectors], "interact/transpose", perm=[0, 2, 1])
        products = self.node("MatMul", [vectors, turned], "interact")
        flat = self.node("Reshape", [products, self.ints("interact.shape", [
            self.batch, count * count])], "interact/flat")
        pairs = [i * count + j for i in range(count) for j in range(i)]
        return self.node("Gather", [flat, self.ints("interact.pairs", pairs)],
                         "interact/pairs", axis=1), len(pairs)

    def build(self):
        dense = self.input("dense", [self.batch, 13])
        dense = self.multilayer(dense, [13, *self.bottom], "bottom")
        vectors = []
        for i, rows in enumerate(self.rows):
            ids = self.input(f"categories_{i}", [self.batch, 1], below=rows)
            vectors.append(self.embedding(ids, rows, self.width, f"tables.{i}"))
        axis = self.ints("dense.axis", [1])
        vectors.append(self.node("Unsqueeze", [dense, axis], "dense/vector"))
        pairs, count = self.interact(self.node("Concat", vectors, "vectors", axis=1))
        x = self.node("Concat", [dense, pairs], "features", axis=1)
        x = self.multilayer(x, [self.width + count, *self.top], "top", last=False)
        self.node("Sigmoid", [x], "click/sigmoid", ["click"])
        self.output("click", [self.batch, 1])
        return self.model("dlrm")


class WideDeep(Layers):
    TINY = dict(vocabulary=503, fields=6, width=16, deep=[64, 32], batch=8)
    SMALL = dict(vocabulary=2003, fields=39, width=32, deep=[256, 128, 64], batch=32)

    def __init__(self, vocabulary=200000, fields=39, width=80,
                 deep=(1024, 512, 256, 128), batch=16000, seed=27):
        super().__init__(seed)
        self.vocabulary, self.fields, self.width = vocabulary, fields, width
        self.deep, self.batch = list(deep), batch

    def build(self):
        shape = [self.batch, self.fields]
        ids = self.input("ids", shape, below=self.vocabulary)
        values = self.node("Unsqueeze", [self.input("values", shape), self.ints(
            "values.axis", [2])], "values/wide")
        wide = self.embedding(ids, self.vocabulary, 1, "wide")
        wide = self.node("Mul", [wide, values], "wide/scaled")
        wide = self.node("ReduceSum", [wide, self.ints("wide.fields", [1])], "wide/sum",
                         keepdims=0)
        bias = self.weight("wide.bias", np.array(self.draw(1, gain=0.1)))
        wide = self.node("Add", [wide, bias], "wide/logit")
        deep = self.embedding(ids, self.vocabulary, self.width, "deep.table")
        deep = self.node("Mul", [deep, values], "deep/scaled")
        deep = self.node("Reshape", [deep, self.ints("deep.shape", [
            self.batch, self.fields * self.width])], "deep/flat")
        deep = self.multilayer(deep, [self.fields * self.width, *self.deep, 1], "deep",
                               last=False)
        total = self.node("Add", [wide, deep], "logit")
        self.node("Sigmoid", [total], "click/sigmoid", ["click"])
        self.output("click", [self.batch, 1])
        return self.model("wide-deep")
