"""A model of random ops, and random hints for it; all of it follows from one seed.

Values are of odd sizes and have several readers; weights are used twice, also transposed.
Sizes of numbers stay near 1, and nothing jumps (floor, comparisons) except on inputs, so
that a difference is a fault and no rounding.
"""
import random

import numpy as np
from onnx import TensorProto

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "models"))
import builder  # noqa: E402
import random_forms  # noqa: E402
import random_ops  # noqa: E402

SIZES = [1, 2, 3, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 10, 12, 14, 15, 16]
#: Up to 6 ranks; axes of one name never differ in what they may do.
MESHES = ["a=2", "a=3", "a=4", "a=5", "a=6", "a=2,b=2", "a=2,b=3", "a=3,b=2", "a=1,b=4",
          "a=2,b=1,c=3"]
#: Ops of which models mostly consist.
OFTEN = {"unary": 3, "binary": 5, "matmul": 3, "reshape": 3, "reduce": 2, "transpose": 2}
MODES = ["semi-auto"] * 6 + ["auto", "data-parallel"]


def axes_of(mesh):
    return {name: int(size) for name, size in
            (entry.split("=") for entry in mesh.split(","))}


class RandomModel(random_forms.MoreForms, random_ops.MoreOps, builder.Builder):
    opset, ir_version = 26, 13

    def __init__(self, seed):
        super().__init__(seed)
        self.choose = random.Random(seed)
        self.floats = {}   # name: shape, values that depend on inputs
        self.integers = {}  # name: (shape, limit), raw inputs
        self.shared = {}   # shape: weights that may be read again
        self.readers = {}  # name: number of readers
        self.hintable = []  # (node, shapes of its first inputs, shapes of its outputs)
        self.count = 0
        self.has_followers = False

    # What ops are made of.

    def emit(self, op, inputs, shapes, data=1, isNamed=False, **attributes):
        """A node; `data` inputs of it have dims that hints may name. Its results."""
        self.count += 1
        name = f"{op}_{self.count}"
        outputs = [f"v{self.count}"] if len(shapes) == 1 else \
            [f"v{self.count}_{i}" for i in range(len(shapes))]
        known = [self.shape_of(value) for value in inputs[:data]]
        # Every tenth node has no name and is called by its first output.
        called = outputs[0] if self.choose.random() < 0.1 and not isNamed else name
        self.node(op, inputs, "" if called != name else name, outputs, **attributes)
        self.hintable.append((called, known, [list(shape) for shape in shapes]))
        for value in inputs:
            self.readers[value] = self.readers.get(value, 0) + 1
        for output, shape in zip(outputs, shapes):
            self.floats[output] = list(shape)
        return outputs[0] if len(outputs) == 1 else outputs

    def shape_of(self, name):
        if name in self.floats:
            return self.floats[name]
        if name in self.integers:
            return self.integers[name][0]
        return next((list(t.dims) for t in self.initializers if t.name == name), None)

    def constant(self, values):
        """An operand that says how the program looks."""
        self.count += 1
        return self.ints(f"c{self.count}", values)

    def parameter(self, shape, gain=1.0, mean=0.0):
        """A weight; every third time one that is there already."""
        known = self.shared.setdefault(tuple(shape), [])
        if known and self.choose.random() < 0.35:
            return self.choose.choice(known)
        self.count += 1
        name = self.weight(f"w{self.count}", self.draw(*shape, gain=gain, mean=mean))
        known.append(name)
        return name

    def size(self):
        return self.choose.choice(SIZES)

    def pick(self, rank=None, wanted=lambda shape: True):
        """A value so far; late ones more often."""
        names = [name for name, shape in self.floats.items()
                 if (rank is None or len(shape) == rank) and wanted(shape)
                 and np.prod(shape) <= 4096]
        if not names:
            return None
        return self.choose.choice(names[-3:] if self.choose.random() < 0.6 else names)

    def fresh_input(self, rank):
        self.count += 1
        shape = [self.size() for _ in range(rank)]
        name = self.input(f"x{self.count}", shape)
        self.floats[name] = shape
        return name

    def operand(self, rank):
        return self.pick(rank) or self.fresh_input(rank)

    # Ops. Each adds at least one node.

    def op_unary(self):
        x = self.operand(self.choose.randint(1, 4))
        op = self.choose.choice(["Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Erf", "Softplus",
                                 "Gelu", "LeakyRelu", "HardSigmoid", "Identity", "Cos"])
        self.emit(op, [x], [self.shape_of(x)])

    def op_clip(self):
        x = self.operand(self.choose.randint(1, 4))
        low = self.scalar(f"low{self.count}", -0.75)
        high = self.scalar(f"high{self.count}", 0.5)
        self.emit("Clip", [x, low, high], [self.shape_of(x)])

    def op_binary(self):
        x = self.operand(self.choose.randint(1, 4))
        shape = self.shape_of(x)
        op = self.choose.choice(["Add", "Sub", "Mul", "Max", "Min"])
        same = [name for name, other in self.floats.items()
                if self.broadcasts(other, shape)]
        kind = self.choose.random()
        if kind < 0.5 and same:
            other = self.choose.choice(same)
        else:
            low = self.choose.randint(0, len(shape))
            other = self.parameter([extent if self.choose.random() < 0.7 else 1
                                    for extent in shape[low:]])
        pair = [x, other] if self.choose.random() < 0.5 else [other, x]
        self.emit(op, pair, [shape], data=2)

    @staticmethod
    def broadcasts(shape, onto):
        return len(shape) <= len(onto) and all(
            a in (1, b) for a, b in zip(reversed(shape), reversed(onto)))

    def op_divide(self):
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        below = self.emit("Add", [self.emit("Abs", [x], [shape]),
                                  self.scalar(f"one{self.count}", 1)], [shape])
        self.emit("Div", [x, below], [shape], data=2)

    def op_matmul(self):
        x = self.operand(self.choose.randint(2, 4))
        shape = self.shape_of(x)
        k, n = shape[-1], self.size()
        batch = [] if self.choose.random() < 0.7 else shape[:-2]
        weight = self.parameter([*batch, k, n], gain=k**-0.5)
        if weight not in self.floats and self.choose.random() < 0.2 and not batch and \
                self.shared.get((n, k)):
            tied = self.choose.choice(self.shared[(n, k)])
            self.count += 1
            weight = f"t{self.count}"
            self.node("Transpose", [tied], f"Transpose_{self.count}", [weight], perm=[1, 0])
            self.emit("MatMul", [x, weight], [[*shape[:-1], n]])
            return
        self.emit("MatMul", [x, weight], [[*shape[:-1], n]], data=2)

    def op_followed(self):
        """A layout change, then a product with two followers."""
        self.has_followers = True
        if self.choose.random() < 0.5:  # of channels
            x = self.image(2)
            batch, channels, *extents = self.shape_of(x)
            made = [batch, self.choose.choice([2, 3, 6]), *extents]
            kernel = self.parameter([made[1], channels, 1, 1], gain=channels**-0.5)
            x = self.emit("Conv", [x, kernel], [made], data=2)
        else:
            x = self.operand(self.choose.randint(3, 4))
            perm = list(range(len(self.shape_of(x))))
            self.choose.shuffle(perm)
            made = [self.shape_of(x)[p] for p in perm]
            x = self.emit("Transpose", [x], [made], perm=perm)
        k = self.choose.choice(made)  # rows may cross what were dims
        m = int(np.prod(made)) // k
        n = self.choose.choice([self.size(), 13, 16])
        x = self.emit("Reshape", [x, self.constant([m, k])], [[m, k]])
        x = self.emit("MatMul", [x, self.parameter([k, n], gain=k**-0.5)], [[m, n]], data=2)
        for _ in range(2):
            op = self.choose.choice(["Mul", "Add", "Relu"])
            others = [] if op == "Relu" else [self.parameter(
                self.choose.choice([[n], [n], [1], [m, 1], [m, n]]))]
            x = self.emit(op, [x, *others], [[m, n]], data=1 + len(others))

    def op_scores(self):
        """A product of two activations."""
        x = self.operand(self.choose.randint(2, 4))
        shape = self.shape_of(x)
        rank = len(shape)
        turned = [*shape[:-2], shape[-1], shape[-2]]
        y = self.emit("Transpose", [x], [turned],
                      perm=[*range(rank - 2), rank - 1, rank - 2])
        scores = self.emit("MatMul", [x, y], [[*shape[:-1], shape[-2]]], data=2)
        scaled = self.emit("Div", [scores, self.scalar(f"root{self.count}",
                                                       max(1, shape[-1]))],
                           [self.shape_of(scores)])
        weights = self.emit("Softmax", [scaled], [self.shape_of(scaled)], axis=-1)
        self.emit("MatMul", [weights, x], [shape], data=2)

    def op_gemm(self):
        x = self.operand(2)
        left, right = self.choose.random() < 0.3, self.choose.random() < 0.5
        m, k = self.shape_of(x)[::-1] if left else self.shape_of(x)
        n = self.size()
        weight = self.parameter([n, k] if right else [k, n], gain=k**-0.5)
        inputs = [x, weight]
        if self.choose.random() < 0.7:
            inputs.append(self.parameter(self.choose.choice([[n], [1, n], [m, n], [m, 1]])))
        self.emit("Gemm", inputs, [[m, n]], data=len(inputs), transA=int(left),
                  transB=int(right), alpha=self.choose.choice([1.0, 0.5]))

    def op_reshape(self):
        x = self.operand(self.choose.randint(1, 4))
        shape = list(self.shape_of(x))
        for _ in range(self.choose.randint(1, 2)):
            if self.choose.random() < 0.5 and len(shape) > 1:
                d = self.choose.randrange(len(shape) - 1)
                shape[d:d + 2] = [shape[d] * shape[d + 1]]
            elif len(shape) < 5:
                d = self.choose.randrange(len(shape))
                divisors = [i for i in range(1, shape[d] + 1) if shape[d] % i == 0]
                first = self.choose.choice(divisors)
                shape[d:d + 1] = [first, shape[d] // first]
        self.emit("Reshape", [x, self.constant(shape)], [shape])

    def op_squeeze(self):
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        d = self.choose.randint(0, len(shape))
        wide = self.emit("Unsqueeze", [x, self.constant([d])],
                         [[*shape[:d], 1, *shape[d:]]])
        if self.choose.random() < 0.5:
            extent = self.size()
            new = [*shape[:d], extent, *shape[d:]]
            if np.prod(new) <= 4096:
                self.emit("Expand", [wide, self.constant(new)], [new])

    def op_transpose(self):
        x = self.operand(self.choose.randint(2, 5))
        perm = list(range(len(self.shape_of(x))))
        self.choose.shuffle(perm)
        self.emit("Transpose", [x], [[self.shape_of(x)[p] for p in perm]], perm=perm)

    def op_split(self):
        x = self.pick(None, lambda shape: max(shape, default=1) > 1) or self.fresh_input(2)
        shape = self.shape_of(x)
        d = self.choose.randrange(len(shape))
        if shape[d] < 2:
            return self.op_unary()
        cut = self.choose.choice([shape[d] // 2, self.choose.randint(1, shape[d] - 1)])
        parts = [cut, shape[d] - cut]
        shapes = [[*shape[:d], part, *shape[d + 1:]] for part in parts]
        self.emit("Split", [x, self.constant(parts)], shapes, axis=d)

    def op_concat(self):
        x = self.operand(self.choose.randint(1, 4))
        shape = self.shape_of(x)
        d = self.choose.randrange(len(shape))
        others = [name for name, other in self.floats.items() if len(other) == len(shape) and
                  all(a == b for i, (a, b) in enumerate(zip(other, shape)) if i != d)]
        parts = [x, *self.choose.choices(others, k=self.choose.randint(1, 2))]
        if self.choose.random() < 0.3:
            parts.append(self.parameter([self.size() if i == d else extent
                                         for i, extent in enumerate(shape)]))
        total = sum(self.shape_of(part)[d] for part in parts)
        self.emit("Concat", parts, [[*shape[:d], total, *shape[d + 1:]]], data=len(parts),
                  axis=d)

    def op_slice(self):
        x = self.operand(self.choose.randint(1, 4))
        shape = list(self.shape_of(x))
        d = self.choose.randrange(len(shape))
        step = self.choose.choice([1, 1, 2, 3, -1, -2])
        start, end = sorted(self.choose.sample(range(shape[d] + 1), 2)) \
            if shape[d] > 1 else (0, 1)
        if step < 0:
            start, end = end - 1, start - 1 - shape[d]
            kept = range(start, end + shape[d], step)
        else:
            kept = range(start, end, step)
        inputs = [x] + [self.constant([value]) for value in (start, end, d, step)]
        shape[d] = len(kept)
        self.emit("Slice", inputs, [shape])

    def op_gather(self):
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        d = self.choose.randrange(len(shape))
        if self.choose.random() < 0.5:
            count = self.size()
            index = self.choose.choice([
                np.array(self.choose.randrange(shape[d])),
                np.array([self.choose.randrange(-shape[d], shape[d])
                          for _ in range(count)])])
            self.count += 1
            ids, where = self.weight(f"c{self.count}", index), list(index.shape)
            self.emit("Gather", [x, ids], [[*shape[:d], *where, *shape[d + 1:]]], axis=d)
            return
        ids, where = self.indices(shape[d])
        self.emit("Gather", [x, ids], [[*shape[:d], *where, *shape[d + 1:]]], data=2,
                  axis=d)

    def op_embedding(self):
        rows, width = self.choose.choice([5, 11, 12, 30]), self.size()
        table = self.parameter([rows, width])
        ids, where = self.indices(rows)
        self.emit("Gather", [table, ids], [[*where, width]], data=2, axis=0)

    def indices(self, limit):
        known = [name for name, (_, below) in self.integers.items() if below <= limit]
        if known and self.choose.random() < 0.4:
            name = self.choose.choice(known)
            return name, self.integers[name][0]
        self.count += 1
        shape = [self.size() for _ in range(self.choose.randint(1, 2))]
        name = self.input(f"i{self.count}", shape, below=limit)
        self.integers[name] = (shape, limit)
        return name, shape

    def op_softmax(self):
        x = self.operand(self.choose.randint(1, 4))
        shape = self.shape_of(x)
        op = self.choose.choice(["Softmax", "LogSoftmax"])
        self.emit(op, [x], [shape], axis=self.choose.randrange(-len(shape), len(shape)))

    def op_norm(self):
        x = self.operand(self.choose.randint(2, 4))
        shape = self.shape_of(x)
        op = self.choose.choice(["LayerNormalization", "RMSNormalization"])
        axis = self.choose.choice([-1, -1, -2])
        inputs = [x, self.parameter(shape[axis:], gain=0.1, mean=1)]
        if op == "LayerNormalization" and self.choose.random() < 0.7:
            inputs.append(self.parameter(shape[axis:]))
        # Values that are nearly equal would be magnified without bound.
        self.emit(op, inputs, [shape], data=len(inputs), axis=axis, epsilon=0.1)

    def op_reduce(self):
        x = self.operand(self.choose.randint(1, 4))
        shape = self.shape_of(x)
        axes = sorted(self.choose.sample(range(len(shape)),
                                         self.choose.randint(1, min(2, len(shape)))))
        keep = self.choose.random() < 0.5
        result = [1 if d in axes else extent for d, extent in enumerate(shape)
                  if keep or d not in axes]
        op = self.choose.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
                                 "ReduceL2", "ReduceSumSquare"])
        x = self.emit("Tanh", [x], [shape])
        total = self.emit(op, [x, self.constant(axes)], [result], keepdims=int(keep))
        if op in ("ReduceSum", "ReduceSumSquare"):
            count = float(np.prod([shape[d] for d in axes]))
            self.emit("Mul", [total, self.scalar(f"mean{self.count}", 1 / count)],
                      [result])

    def op_where(self):
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        mask = self.weight(f"m{self.count}", self.random.random(
            [extent if self.choose.random() < 0.7 else 1 for extent in shape]) < 0.6)
        if self.choose.random() < 0.5:
            ids, where = self.indices(self.choose.choice([3, 7]))
            self.count += 1
            mask = f"m{self.count}"
            self.node("Less", [ids, self.weight(f"b{self.count}", np.array(2))],
                      f"Less_{self.count}", [mask])
            if not self.broadcasts(where, shape):
                x = self.parameter(where)
                shape = where
        self.emit("Where", [mask, x, self.scalar(f"else{self.count}", -0.5)], [shape],
                  data=0)

    def op_cast(self):
        if self.integers and self.choose.random() < 0.5:
            name = self.choose.choice(list(self.integers))
            shape = self.integers[name][0]
            wide = self.emit("Cast", [name], [shape], to=TensorProto.FLOAT)
            self.emit("Mul", [wide, self.scalar(f"scale{self.count}", 0.1)], [shape])
            return
        x = self.operand(self.choose.randint(1, 3))
        self.count += 1
        wide = f"d{self.count}"
        self.node("Cast", [x], f"Cast_{self.count}", [wide], to=TensorProto.DOUBLE)
        self.emit("Cast", [wide], [self.shape_of(x)], data=0, to=TensorProto.FLOAT)

    def op_cumsum(self):
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        d = self.choose.randrange(len(shape))
        axis = self.weight(f"a{self.count}", np.array(d))
        total = self.emit("CumSum", [x, axis], [shape],
                          exclusive=self.choose.randint(0, 1),
                          reverse=self.choose.randint(0, 1))
        self.emit("Mul", [total, self.scalar(f"mean{self.count}", shape[d]**-0.5)], [shape])

    def op_pad(self):
        x = self.operand(self.choose.randint(1, 4))
        shape = self.shape_of(x)
        low = [self.choose.choice([0, 0, 1, 2]) for _ in shape]
        high = [self.choose.choice([0, 0, 1]) for _ in shape]
        self.emit("Pad", [x, self.constant(low + high)],
                  [[a + b + c for a, b, c in zip(low, shape, high)]])

    # Images.

    def image(self, spatial):
        x = self.pick(spatial + 2, lambda shape: min(shape[2:]) >= 3)
        if x:
            return x
        self.count += 1
        shape = [self.choose.choice([1, 2, 3, 4]), self.choose.choice([2, 3, 4, 6]),
                 *[self.choose.choice([5, 6, 7, 8, 9, 12]) for _ in range(spatial)]]
        name = self.input(f"x{self.count}", shape)
        self.floats[name] = shape
        return name

    def window(self, extents):
        """Kernel, strides, dilations and pads whose windows all fit."""
        kernel, strides, dilations, low, high, out = [], [], [], [], [], []
        for extent in extents:
            k = self.choose.choice([1, 2, 3, 3])
            dilation = self.choose.choice([1, 1, 2]) if k > 1 else 1
            reach = (k - 1) * dilation + 1
            if reach > extent:
                k, dilation, reach = 1, 1, 1
            kernel.append(k)
            dilations.append(dilation)
            strides.append(self.choose.choice([1, 1, 2, 3]))
            low.append(self.choose.randint(0, k - 1))
            high.append(self.choose.randint(0, k - 1))
            out.append((extent + low[-1] + high[-1] - reach) // strides[-1] + 1)
        return dict(kernel_shape=kernel, strides=strides, dilations=dilations,
                    pads=low + high), out

    def op_conv(self):
        x = self.image(self.choose.choice([1, 2, 2]))
        batch, channels, *extents = self.shape_of(x)
        window, out = self.window(extents)
        groups = self.choose.choice([g for g in range(1, channels + 1)
                                     if channels % g == 0])
        outputs = groups * self.choose.choice([1, 2, 3])
        inner = channels // groups * int(np.prod(window["kernel_shape"]))
        inputs = [x, self.parameter([outputs, channels // groups, *window["kernel_shape"]],
                                    gain=inner**-0.5)]
        if self.choose.random() < 0.5:
            inputs.append(self.parameter([outputs]))
        self.emit("Conv", inputs, [[batch, outputs, *out]], data=len(inputs), group=groups,
                  **window)

    def op_pool(self):
        x = self.image(self.choose.choice([1, 2, 2]))
        batch, channels, *extents = self.shape_of(x)
        if self.choose.random() < 0.2:
            self.emit(self.choose.choice(["GlobalAveragePool", "GlobalMaxPool"]), [x],
                      [[batch, channels] + [1] * len(extents)])
            return
        window, out = self.window(extents)
        extra = {}
        op = self.choose.choice(["MaxPool", "AveragePool"])
        if op == "AveragePool":
            extra["count_include_pad"] = self.choose.randint(0, 1)
        self.emit(op, [x], [[batch, channels, *out]], **window, **extra)

    def op_batch_norm(self):
        x = self.image(self.choose.choice([1, 2]))
        channels = self.shape_of(x)[1]
        inputs = [x, self.parameter([channels]), self.parameter([channels]),
                  self.parameter([channels])]
        self.count += 1
        inputs.append(self.weight(f"n{self.count}",
                                  1 + np.abs(self.draw(channels))))
        self.emit("BatchNormalization", inputs, [self.shape_of(x)])

    def op_resize(self):
        x = self.image(2)
        shape = self.shape_of(x)
        scales = self.weight(f"s{self.count}", np.array([1, 1, 2, 2], np.float32))
        big = [*shape[:2], 2 * shape[2], 2 * shape[3]]
        if np.prod(big) <= 4096:
            self.emit("Resize", [x, "", scales], [big], mode="nearest",
                      coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        else:
            self.emit("Relu", [x], [shape])

    def build(self):
        """3 to 14 ops; what nobody reads, and a few others, are outputs."""
        names = [name for name in sorted(dir(self)) if name.startswith("op_")]
        often = [OFTEN.get(name[3:], 1) for name in names]
        for _ in range(self.choose.randint(2, 4) if self.choose.random() < 0.2 else
                       self.choose.randint(4, 11)):
            getattr(self, self.choose.choices(names, often)[0])()
        computed = {output for node in self.nodes for output in node.output}
        for name, shape in self.floats.items():
            if name in computed and (not self.readers.get(name) or
                                     self.choose.random() < 0.15):
                self.output(name, shape)
        return self.model("random")

    # Hints.

    def dims_hint(self, shape, mesh):
        """One entry per dim: mostly open, else a count, axes or nothing."""
        axes = axes_of(mesh)
        free = list(axes)
        self.choose.shuffle(free)
        entry = [None] * len(shape)
        # Now and then one of size 1, which nobody can split.
        split = [d for d, extent in enumerate(shape)
                 if extent > 1 or self.choose.random() < 0.1]
        for d in self.choose.sample(split, min(len(split), self.choose.choice([1, 1, 2]))):
            kind = self.choose.random()
            if kind < 0.1:
                entry[d] = self.choose.choice([1, []])
            elif free and kind < 0.5:
                entry[d] = free.pop()
            elif len(free) > 1 and kind < 0.65:
                entry[d] = [free.pop(), free.pop()]
            elif free:
                ways = axes[free.pop()]
                divisors = [w for w in range(2, ways + 1) if ways % w == 0]
                entry[d] = self.choose.choice(
                    [w for w in divisors if w <= shape[d]] or divisors or [1])
        return entry

    def hints(self, mesh):
        """None, one or several entries, for nodes and for tensors by every name."""
        nodes, tensors, subgraphs = {}, {}, {}
        if not self.hintable:
            return {}
        weights = [(t.name, list(t.dims)) for t in self.initializers
                   if t.name.startswith("w")]
        for _ in range(self.choose.choice([0, 1, 1, 2, 2, 3])):
            kind = self.choose.random()
            name, known, results = self.choose.choice(self.hintable)
            if kind < 0.25 and known:
                operand = self.choose.randrange(len(known))
                nodes.setdefault(name, {})["in"] = [None] * operand + [
                    self.dims_hint(known[operand], mesh)]
            elif kind < 0.5:
                result = self.choose.randrange(len(results))
                nodes.setdefault(name, {})["out"] = [None] * result + [
                    self.dims_hint(results[result], mesh)]
            elif kind < 0.65:
                value, shape = self.choose.choice(list(self.floats.items()))
                tensors[value] = self.dims_hint(shape, mesh)
            elif kind < 0.75 and weights:
                value, shape = self.choose.choice(weights)
                tensors[value] = self.dims_hint(shape, mesh)
            elif kind < 0.85 and len(results) == 1:
                tensors[name] = self.dims_hint(results[0], mesh)
            elif kind < 0.95 and self.integers:
                value, (shape, _) = self.choose.choice(list(self.integers.items()))
                tensors[value] = self.dims_hint(shape, mesh)
            else:
                subgraphs[name] = "data-parallel"
        given = {"nodes": nodes, "tensors": tensors, "subgraphs": subgraphs}
        return {key: value for key, value in given.items() if value}
