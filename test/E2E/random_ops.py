"""Operators of random models (random_model.py) that choose, scatter, repeat or sample: each
method adds one with operands of random shapes. What chooses reads inputs, so that no
rounding chooses otherwise.
"""
import numpy as np
from onnx import TensorProto, helper

#: What `formula` adds.
FORMULAS = {"Hardmax", "ReverseSequence", "ScatterND", "Trilu", "Tile", "Einsum",
            "InstanceNormalization", "GroupNormalization", "LRN", "LpNormalization",
            "Attention", "RotaryEmbedding", "DepthToSpace", "SpaceToDepth", "GridSample",
            "Resize", "RNN", "GRU", "LSTM", "Scan"}


class MoreOps:

    def raw(self, shape):
        """An input of floats that nothing else computes."""
        self.count += 1
        name = self.input(f"x{self.count}", shape)
        self.floats[name] = list(shape)
        return name

    def raw_indices(self, shape, below):
        self.count += 1
        name = self.input(f"i{self.count}", shape, below=below)
        self.integers[name] = (list(shape), below)
        return name

    def axis_of(self, shape):
        return self.choose.randrange(len(shape))

    def formula(self, op, inputs, shapes, **attributes):
        """A node that becomes a program of several ops: hints name what it gives, not its
        operands, which are those of the first of them. It has a name: by its output's an
        operand that only passes through a part of it would be meant as well."""
        results = self.emit(op, inputs, shapes, data=0, isNamed=True, **attributes)
        self.hintable.pop()
        return results

    def indexable(self, rank):
        """A value whose dims indices can be told by: of size 1 any integer would be one."""
        return self.pick(rank, lambda shape: min(shape) > 1) or \
            self.raw([self.choose.choice([2, 3, 5, 6, 8]) for _ in range(rank)])

    def signed(self, axis, shape):
        return self.choose.choice([axis, axis - len(shape)])

    # Choosing.

    def op_top(self):
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        d = self.axis_of(shape)
        k = self.choose.randint(1, shape[d])
        result = [*shape[:d], k, *shape[d + 1:]]
        self.count += 1
        values = f"v{self.count}"
        self.node("TopK", [x, self.constant([k])], "", [values, f"t{self.count}"],
                  axis=self.signed(d, shape), largest=self.choose.randint(0, 1))
        self.floats[values] = result
        self.readers[x] = self.readers.get(x, 0) + 1

    def op_arg(self):
        x = self.raw([self.size() for _ in range(self.choose.randint(1, 3))])
        shape = self.shape_of(x)
        d = self.axis_of(shape)
        self.count += 1
        place = f"p{self.count}"
        self.node(self.choose.choice(["ArgMax", "ArgMin"]), [x], f"Arg_{self.count}",
                  [place], axis=self.signed(d, shape), keepdims=1,
                  select_last_index=self.choose.randint(0, 1))
        wide = self.emit("Cast", [place], [[*shape[:d], 1, *shape[d + 1:]]], data=0,
                         to=TensorProto.FLOAT)
        self.emit("Mul", [wide, self.scalar(f"scale{self.count}", 0.1)],
                  [self.shape_of(wide)])

    def op_hardmax(self):
        x = self.raw([self.size() for _ in range(self.choose.randint(1, 3))])
        shape = self.shape_of(x)
        self.formula("Hardmax", [x], [shape], axis=self.axis_of(shape))

    def op_compress(self):
        """What is kept is as long as the data say, and reduced again."""
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        d = self.axis_of(shape)
        ids = self.raw_indices([shape[d]], 3)
        self.count += 1
        mask, kept, soft = (f"{what}{self.count}" for what in ("m", "k", "s"))
        self.node("Greater", [ids, self.ints(f"one{self.count}", 0)], "", [mask])
        self.node("Compress", [x, mask], "", [kept], axis=d)
        if self.choose.random() < 0.5:
            self.node("Concat", [kept, x, kept], "", [soft], axis=d)
        else:
            self.node("Relu", [kept], "", [soft])
        self.emit("ReduceSum", [soft, self.constant([d])],
                  [[*shape[:d], 1, *shape[d + 1:]]], data=0)

    # Places.

    def op_gather_elements(self):
        x = self.indexable(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        d = self.axis_of(shape)
        at = [*shape[:d], self.size(), *shape[d + 1:]]
        self.emit("GatherElements", [x, self.raw_indices(at, shape[d])], [at], data=2,
                  axis=d)

    def op_gather_nd(self):
        x = self.indexable(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        depth = self.choose.randint(1, len(shape))
        rows = self.size()
        ids = self.raw_indices([rows, depth], min(shape[:depth]))
        self.emit("GatherND", [x, ids], [[rows, *shape[depth:]]])

    def op_scatter_elements(self):
        x = self.indexable(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        d = self.axis_of(shape)
        at = [*shape[:d], self.size(), *shape[d + 1:]]
        kind = self.choose.choice(["none", "add", "max", "min"])
        self.emit("ScatterElements", [x, self.raw_indices(at, shape[d]), self.raw(at)],
                  [shape], axis=d, reduction=kind)

    def op_scatter_nd(self):
        x = self.indexable(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        depth = self.choose.randint(1, len(shape))
        rows = self.size()
        ids = self.raw_indices([rows, depth], min(shape[:depth]))
        self.formula("ScatterND", [x, ids, self.raw([rows, *shape[depth:]])], [shape],
                  reduction=self.choose.choice(["none", "add", "max"]))

    def op_reverse(self):
        x = self.operand(self.choose.randint(2, 3))
        shape = self.shape_of(x)
        batch = self.choose.randint(0, 1)
        lengths = self.constant([self.choose.randint(1, shape[1 - batch])
                                 for _ in range(shape[batch])])
        self.formula("ReverseSequence", [x, lengths], [shape], batch_axis=batch,
                  time_axis=1 - batch)

    def op_trilu(self):
        x = self.operand(self.choose.randint(2, 3))
        self.formula("Trilu", [x], [self.shape_of(x)], upper=self.choose.randint(0, 1))

    def op_tile(self):
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        times = [self.choose.choice([1, 1, 2, 3]) for _ in shape]
        self.formula("Tile", [x, self.constant(times)],
                  [[a * b for a, b in zip(shape, times)]])

    # Products and norms.

    def op_einsum(self):
        x = self.operand(3)
        b, m, k = self.shape_of(x)
        n = self.size()
        text, shape, result = self.choose.choice([
            ("bmk,bkn->bmn", [b, k, n], [b, m, n]), ("bmk,nk->nbm", [n, k], [n, b, m]),
            ("bmk,bm->bk", [b, m], [b, k]), ("bmk,bnk->mn", [b, n, k], [m, n])])
        self.formula("Einsum", [x, self.parameter(shape, gain=(b * k) ** -0.5)], [result], equation=text)

    def op_channel_norm(self):
        x = self.image(self.choose.choice([1, 2]))
        shape = self.shape_of(x)
        channels = shape[1]
        inputs = [x, self.parameter([channels]), self.parameter([channels])]
        if self.choose.random() < 0.5:
            self.formula("InstanceNormalization", inputs, [shape], epsilon=0.1)
            return
        groups = self.choose.choice([g for g in range(1, channels + 1)
                                     if channels % g == 0])
        self.formula("GroupNormalization", inputs, [shape], num_groups=groups, epsilon=0.1)

    def op_lrn(self):
        x = self.image(self.choose.choice([1, 2]))
        self.formula("LRN", [x], [self.shape_of(x)], size=self.choose.choice([1, 3, 5]),
                  alpha=0.5)

    def op_lp(self):
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        away = self.emit("Add", [self.emit("Abs", [x], [shape]),
                                 self.scalar(f"away{self.count}", 0.5)], [shape])
        self.formula("LpNormalization", [away], [shape], axis=self.axis_of(shape),
                  p=self.choose.choice([1, 2]))

    def op_attention(self):
        heads, groups = self.choose.choice([(2, 2), (4, 2), (3, 1), (4, 4)])
        batch, queries, width = self.choose.choice([1, 2, 3]), self.size(), 4
        keys = self.choose.choice([queries, self.size()])
        parts = [self.raw([batch, n, rows, width])
                 for n, rows in ((heads, queries), (groups, keys), (groups, keys))]
        self.formula("Attention", parts, [[batch, heads, queries, width]],
                  is_causal=int(keys == queries and self.choose.random() < 0.5))

    def op_rotary(self):
        batch, rows, heads, width = self.choose.choice([1, 2, 3]), self.size(), 3, 4
        x = self.raw([batch, rows, heads * width])
        where = self.raw_indices([batch, rows], 9)
        tables = []
        for _ in range(2):
            self.count += 1
            tables.append(self.weight(f"rot{self.count}", self.draw(9, width // 2)))
        self.formula("RotaryEmbedding", [x, *tables, where], [[batch, rows, heads * width]],
                  num_heads=heads, interleaved=self.choose.randint(0, 1))

    # Pictures.

    def op_conv_transpose(self):
        x = self.image(self.choose.choice([1, 2]))
        batch, channels, *extents = self.shape_of(x)
        outputs = self.choose.choice([1, 2, 4])
        kernel = [self.choose.choice([1, 2, 3]) for _ in extents]
        strides = [self.choose.choice([1, 2, 3]) for _ in extents]
        out = [(n - 1) * s + k for n, s, k in zip(extents, strides, kernel)]
        if np.prod([batch, outputs, *out]) > 4096:
            return self.emit("Relu", [x], [self.shape_of(x)])
        filter_ = self.parameter([channels, outputs, *kernel], gain=channels ** -0.5)
        return self.emit("ConvTranspose", [x, filter_], [[batch, outputs, *out]], data=2,
                         strides=strides, kernel_shape=kernel)

    def op_blocks(self):
        batch, rows, columns = self.choose.choice([1, 2]), *self.choose.choice(
            [(2, 3), (4, 5), (6, 4)])
        if self.choose.random() < 0.5:
            x = self.raw([batch, 8, rows, columns])
            self.formula("DepthToSpace", [x], [[batch, 2, 2 * rows, 2 * columns]], blocksize=2,
                      mode=self.choose.choice(["DCR", "CRD"]))
        else:
            x = self.raw([batch, 3, 2 * rows, 2 * columns])
            self.formula("SpaceToDepth", [x], [[batch, 12, rows, columns]], blocksize=2)

    def op_grid_sample(self):
        x = self.image(2)
        batch, channels = self.shape_of(x)[:2]
        rows, columns = self.size(), self.size()
        grid = self.raw([batch, rows, columns, 2])
        self.formula("GridSample", [x, grid], [[batch, channels, rows, columns]],
                  mode="linear", padding_mode=self.choose.choice(["zeros", "border"]),
                  align_corners=self.choose.randint(0, 1))

    def op_resize_more(self):
        x = self.image(2)
        shape = self.shape_of(x)
        big = [*shape[:2], self.choose.randint(3, 14), self.choose.randint(3, 14)]
        if np.prod(big) > 4096:
            return self.emit("Relu", [x], [shape])
        return self.formula("Resize", [x, "", "", self.constant(big)], [big],
                         mode=self.choose.choice(["linear", "cubic"]),
                         coordinate_transformation_mode=self.choose.choice(
                             ["half_pixel", "align_corners", "asymmetric"]))

    # Loops.

    def op_recurrent(self):
        steps, batch, width = self.choose.choice([2, 3, 5]), self.choose.choice([1, 2, 4]), 3
        hidden = self.choose.choice([2, 4, 6])
        op, gates = self.choose.choice([("RNN", 1), ("GRU", 3), ("LSTM", 4)])
        direction = self.choose.choice(["forward", "reverse", "bidirectional"])
        ways = 2 if direction == "bidirectional" else 1
        x = self.raw([steps, batch, width])
        weights = [self.parameter([ways, gates * hidden, n], gain=0.4)
                   for n in (width, hidden)]
        self.formula(op, [x, *weights], [[steps, ways, batch, hidden]],
                  hidden_size=hidden, direction=direction)

    def op_scan(self):
        steps, rows, width = self.choose.choice([2, 3, 6]), self.size(), self.size()
        x = self.raw([steps, rows, width])
        state = self.raw([rows, width])
        value = helper.make_tensor_value_info
        shape = [rows, width]
        body = helper.make_graph(
            [helper.make_node("Add", ["s", "r"], ["t"]),
             helper.make_node("Tanh", ["t"], ["n"]),
             helper.make_node("Mul", ["n", "r"], ["y"])], "body",
            [value(name, TensorProto.FLOAT, shape) for name in ("s", "r")],
            [value(name, TensorProto.FLOAT, shape) for name in ("n", "y")])
        self.formula("Scan", [state, x], [shape, [steps, *shape]], body=body,
                  num_scan_inputs=1)
