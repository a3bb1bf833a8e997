"""More operators of random models (random_model.py): quantized numbers, integers, signals,
windows, grids, losses and statistics. Each method adds one with operands of random shapes.
What rounds or looks up reads inputs, so that no rounding of an operand chooses otherwise.
"""
import numpy as np
from onnx import TensorProto

#: What `formula` adds, besides those of random_ops.py.
FORMULAS = {"CumProd", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear",
            "MatMulInteger", "ConvInteger", "OneHot", "DFT", "STFT", "MaxPool", "MaxUnpool",
            "LpPool", "GlobalLpPool", "AveragePool", "Col2Im", "DeformConv", "AffineGrid",
            "RoiAlign", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss",
            "BatchNormalization", "MeanVarianceNormalization", "Det", "TensorScatter",
            "ReduceLogSumExp", "ReduceLogSum", "ReduceL1", "ReduceProd", "Unique",
            "RMSNormalization", "LayerNormalization", "Attention", "RotaryEmbedding",
            "GridSample", "Resize", "Mod"}


class MoreForms:

    def wide(self, x, shape, scale=0.1):
        """Integers as floats near 1."""
        cast = self.emit("Cast", [x], [shape], data=0, to=TensorProto.FLOAT)
        return self.emit("Mul", [cast, self.scalar(f"scale{self.count}", scale)], [shape])

    def quiet(self, op, inputs, **attributes):
        """A node of other numbers than floats, whose result no other operator reads."""
        self.count += 1
        name = f"q{self.count}"
        self.node(op, inputs, f"{op}_{self.count}", [name], **attributes)
        return name

    def bytes(self, values, dtype):
        self.count += 1
        return self.weight(f"b{self.count}", np.array(values, dtype))

    # Integers.

    def op_integer_mod(self):
        shape = [self.size() for _ in range(self.choose.randint(1, 3))]
        x, limit = self.raw_indices(shape, 20), self.choose.choice([2, 3, 7])
        y = self.quiet("Mod", [x, self.constant(self.choose.choice([-limit, limit]))],
                       fmod=self.choose.randint(0, 1))
        self.wide(y, shape)

    def op_bit_shift(self):
        shape = [self.size() for _ in range(self.choose.randint(1, 2))]
        x = self.quiet("Cast", [self.raw_indices(shape, 9)], to=TensorProto.UINT32)
        by = self.bytes(self.choose.randint(0, 3), np.uint32)
        way = self.choose.choice(["LEFT", "RIGHT"])
        self.wide(self.quiet("BitShift", [x, by], direction=way), shape)

    def op_integer_reduce(self):
        shape = [self.size() for _ in range(self.choose.randint(1, 3))]
        d, keep = self.axis_of(shape), self.choose.randint(0, 1)
        kind = self.choose.choice([TensorProto.INT8, TensorProto.INT32, TensorProto.INT64])
        op = self.choose.choice(["ReduceMax", "ReduceMin"] if kind == TensorProto.INT8 else
                                ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare"])
        x = self.quiet("Cast", [self.raw_indices(shape, 6)], to=kind)
        result = [*shape[:d], *([1] if keep else []), *shape[d + 1:]]
        self.wide(self.quiet(op, [x, self.constant([self.signed(d, shape)])],
                             keepdims=keep), result, 0.02)

    def op_one_hot(self):
        depth = self.choose.choice([2, 3, 5, 8])
        shape = [self.size() for _ in range(self.choose.randint(1, 2))]
        axis = self.choose.randint(-1, len(shape))
        at = len(shape) if axis == -1 else axis
        values = self.weight(f"h{self.count}", np.array([-0.25, 0.75], np.float32))
        ids = self.quiet("Sub", [self.raw_indices(shape, 2 * depth),
                                 self.constant(depth)])
        self.formula("OneHot", [ids, self.constant(depth), values],
                     [[*shape[:at], depth, *shape[at:]]], axis=axis)

    def op_cumprod(self):
        """Of numbers near 1, so that products stay near it."""
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        near = self.emit("Mul", [self.emit("Tanh", [x], [shape]),
                                 self.scalar(f"tenth{self.count}", 0.1)], [shape])
        one = self.emit("Add", [near, self.scalar(f"unit{self.count}", 1.0)], [shape])
        self.count += 1
        axis = self.weight(f"a{self.count}", np.array(self.axis_of(shape)))
        self.emit("CumProd", [one, axis], [shape], exclusive=self.choose.randint(0, 1),
                  reverse=self.choose.randint(0, 1))

    def op_unique(self):
        """How many there are is known by the data, and summed up again."""
        rows = self.size()
        x = self.raw_indices([rows], 4)
        self.count += 1
        values, places = f"u{self.count}", f"l{self.count}"
        self.node("Unique", [x], "", [values, "", places, ""][:3],
                  sorted=self.choose.randint(0, 1))
        self.wide(places, [rows])

    # Quantized numbers.

    def op_quantize(self):
        """There and back: for the whole tensor, per element of an axis, or in blocks."""
        shape = [self.choose.choice([4, 6, 8, 12]) for _ in range(self.choose.randint(1, 3))]
        x, d = self.raw(shape), self.axis_of(shape)
        dtype = self.choose.choice([np.int8, np.uint8, np.int16])
        form = self.choose.choice(["tensor", "axis", "block"])
        more = {} if form == "tensor" else {"axis": self.signed(d, shape)}
        scales = {"tensor": [], "axis": [shape[d]],
                  "block": [*shape[:d], shape[d] // 2, *shape[d + 1:]]}[form]
        if form == "block":
            more["block_size"] = 2
        self.count += 1
        # Powers of two: the quotient is exact.
        scale = self.weight(f"q{self.count}", np.ldexp(
            np.float32(1), self.random.integers(-6, -3, scales)).astype(np.float32))
        zero = self.bytes(self.random.integers(0, 9, scales), dtype)
        number = self.quiet("QuantizeLinear", [x, scale, zero], **more)
        self.formula("DequantizeLinear", [number, scale, zero], [shape], **more)

    def op_dynamic_product(self):
        rows, inner, columns = self.size(), self.size(), self.size()
        x = self.raw([rows, inner])
        self.count += 1
        names = [f"q{self.count}", f"qs{self.count}", f"qz{self.count}"]
        self.node("DynamicQuantizeLinear", [x], "", names)
        b = self.bytes(self.random.integers(-9, 9, (inner, columns)), np.int8)
        zero = self.bytes(self.random.integers(-3, 3, (columns,)), np.int8)
        product = self.quiet("MatMulInteger", [names[0], b, names[2], zero])
        self.wide(product, [rows, columns], 0.001)

    def op_integer_conv(self):
        batch, channels, outputs, extent = 2, self.choose.choice([2, 4]), 4, self.size() + 2
        x = self.quiet("Cast", [self.raw_indices([batch, channels, extent, 5], 9)],
                       to=TensorProto.UINT8)
        group = self.choose.choice([1, 2])
        w = self.bytes(self.random.integers(0, 9, (outputs, channels // group, 3, 3)),
                       np.uint8)
        y = self.quiet("ConvInteger", [x, w, self.bytes(4, np.uint8), self.bytes(3, np.uint8)],
                       group=group, pads=[1, 1, 1, 1])
        self.wide(y, [batch, outputs, extent, 5], 0.01)

    # Signals.

    def op_dft(self):
        batch, points = self.size(), self.choose.choice([4, 5, 8])
        parts = self.choose.choice([1, 2])
        x = self.raw([batch, points, 3, parts])
        axis = self.choose.choice([1, -3])
        isOneSided = int(parts == 1 and self.choose.random() < 0.5)
        columns = points // 2 + 1 if isOneSided else points
        self.formula("DFT", [x, "", self.constant(axis)], [[batch, columns, 3, 2]],
                     onesided=isOneSided,
                     inverse=0 if isOneSided else self.choose.randint(0, 1))

    def op_stft(self):
        batch, samples, length, step = self.size(), 17, self.choose.choice([4, 6]), 3
        x = self.raw([batch, samples, 1])
        self.count += 1
        window = self.weight(f"n{self.count}", np.hanning(length).astype(np.float32))
        frames = (samples - length) // step + 1
        self.formula("STFT", [x, self.constant(step), window],
                     [[batch, frames, length // 2 + 1, 2]], onesided=1)

    # Windows.

    def op_pool_more(self):
        """Windows of which the last may stick out, or that count all of the pads."""
        x = self.image(self.choose.choice([1, 2]))
        batch, channels, *extents = self.shape_of(x)
        window, _ = self.window(extents)
        op = self.choose.choice(["MaxPool", "AveragePool", "LpPool"])
        out = []
        for d, n in enumerate(extents):
            low, high = window["pads"][d], window["pads"][len(extents) + d]
            reach = (window["kernel_shape"][d] - 1) * window["dilations"][d] + 1
            step = window["strides"][d]
            count = -(-(n + low + high - reach) // step) + 1
            out.append(count - ((count - 1) * step >= n + low))
        more = {"count_include_pad": self.choose.randint(0, 1)} if op == "AveragePool" else {}
        self.formula(op, [x], [[batch, channels, *out]], ceil_mode=1, **window, **more)

    def op_unpool(self):
        batch, channels = self.choose.choice([1, 2]), self.choose.choice([1, 2, 3])
        rows, columns = (2 * self.choose.randint(1, 4) for _ in range(2))
        isOdd = self.choose.random() < 0.5
        rows, columns = rows + isOdd, columns + isOdd
        x = self.raw([batch, channels, rows, columns])
        self.count += 1
        values, places = f"v{self.count}", f"l{self.count}"
        window = {"kernel_shape": [2, 2], "strides": [2, 2]}
        self.node("MaxPool", [x], "", [values, places], **window)
        more = [self.constant([batch, channels, rows, columns])] if isOdd else []
        self.formula("MaxUnpool", [values, places, *more],
                     [[batch, channels, rows, columns]], **window)

    def op_global_lp(self):
        x = self.image(self.choose.choice([1, 2]))
        batch, channels, *extents = self.shape_of(x)
        self.formula("GlobalLpPool", [x], [[batch, channels] + [1] * len(extents)],
                     p=self.choose.choice([1, 2]))

    def op_blocks_to_image(self):
        batch, channels, rows, columns = 2, self.choose.choice([1, 2, 3]), 4, 5
        step = self.choose.choice([1, 2])
        places = ((rows - 2) // step + 1) * ((columns - 2) // step + 1)
        x = self.raw([batch, 4 * channels, places])
        self.formula("Col2Im", [x, self.constant([rows, columns]), self.constant([2, 2])],
                     [[batch, channels, rows, columns]], strides=[step, step])

    def op_deform(self):
        batch, channels, outputs = self.choose.choice([1, 2]), 2, self.choose.choice([2, 3])
        rows, columns = self.choose.randint(3, 6), self.choose.randint(3, 6)
        inputs = [self.raw([batch, channels, rows, columns]),
                  self.parameter([outputs, channels, 3, 3], gain=0.3),
                  self.raw([batch, 18, rows, columns])]
        if self.choose.random() < 0.5:
            inputs += ["", self.raw([batch, 9, rows, columns])]
        self.formula("DeformConv", inputs, [[batch, outputs, rows, columns]],
                     pads=[1, 1, 1, 1])

    # Grids.

    def op_affine_sample(self):
        batch, channels = self.choose.choice([1, 2, 3]), self.choose.choice([1, 2])
        x = self.raw([batch, channels, 4, 5])
        rows, columns = self.size(), self.size()
        self.count += 1
        turn = np.array([[0.9, -0.3, 0.1], [0.2, 0.8, -0.1]], np.float32)
        theta = self.weight(f"n{self.count}", np.stack([turn] * batch))
        aligned = self.choose.randint(0, 1)
        grid = self.quiet("AffineGrid", [theta, self.constant([batch, channels, rows,
                                                               columns])],
                          align_corners=aligned)
        self.formula("GridSample", [x, grid], [[batch, channels, rows, columns]],
                     mode=self.choose.choice(["linear", "cubic"]), align_corners=aligned,
                     padding_mode=self.choose.choice(["zeros", "border", "reflection"]))

    def op_resize_nearest(self):
        x = self.image(2)
        shape = self.shape_of(x)
        big = [*shape[:2], self.choose.randint(1, 14), self.choose.randint(1, 14)]
        if np.prod(big) > 4096:
            return self.emit("Relu", [x], [shape])
        return self.formula(
            "Resize", [x, "", "", self.constant(big)], [big], mode="nearest",
            nearest_mode=self.choose.choice(["floor", "ceil", "round_prefer_floor",
                                             "round_prefer_ceil"]),
            coordinate_transformation_mode=self.choose.choice(
                ["half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]))

    def op_regions(self):
        x = self.raw([2, self.choose.choice([1, 2, 3]), 7, 6])
        count = self.choose.choice([1, 3, 4])
        self.count += 1
        low = self.random.random((count, 2)) * 3
        boxes = self.weight(f"n{self.count}", np.concatenate(
            [low, low + 1 + 2 * self.random.random((count, 2))], 1).astype(np.float32))
        self.formula("RoiAlign", [x, boxes, self.raw_indices([count], 2)],
                     [[count, self.shape_of(x)[1], 2, 3]], output_height=2, output_width=3,
                     sampling_ratio=self.choose.choice([0, 2]),
                     mode=self.choose.choice(["avg", "max"]))

    # Losses and statistics.

    def op_loss(self):
        batch, classes = self.size(), self.choose.choice([2, 3, 5])
        more = [self.size()] if self.choose.random() < 0.5 else []
        x = self.raw([batch, classes, *more])
        inputs = [x, self.raw_indices([batch, *more], classes)]
        if self.choose.random() < 0.5:
            self.count += 1
            inputs.append(self.weight(f"n{self.count}",
                                      1 + np.abs(self.draw(classes, gain=0.2))))
        reduction = self.choose.choice(["none", "mean", "sum"])
        if reduction == "mean" and len(inputs) == 3:
            reduction = "none"  # of what is ignored alone there is no mean
        attributes = {"ignore_index": classes - 1} if self.choose.random() < 0.3 and \
            reduction != "mean" else {}
        self.formula(self.choose.choice(["NegativeLogLikelihoodLoss",
                                         "SoftmaxCrossEntropyLoss"]), inputs,
                     [[batch, *more] if reduction == "none" else []], reduction=reduction,
                     **attributes)

    def op_batch_statistics(self):
        x = self.image(self.choose.choice([1, 2]))
        shape = self.shape_of(x)
        channels = shape[1]
        inputs = [x, self.parameter([channels]), self.parameter([channels])]
        self.count += 1
        inputs += [self.weight(f"n{self.count}", self.draw(channels)),
                   self.weight(f"nv{self.count}", 1 + np.abs(self.draw(channels)))]
        self.formula("BatchNormalization", inputs, [shape, [channels], [channels]],
                     training_mode=1, momentum=0.7, epsilon=0.1)

    def op_mean_variance(self):
        shape = [self.choose.choice([2, 3, 4]) for _ in range(4)]
        self.formula("MeanVarianceNormalization", [self.raw(shape)], [shape],
                     axes=self.choose.choice([[0, 2, 3], [2, 3], [1, -1]]))

    def op_row_norm(self):
        """Scales that differ from row to row."""
        shape = [self.choose.choice([2, 3, 4, 6]) for _ in range(3)]
        op = self.choose.choice(["LayerNormalization", "RMSNormalization"])
        scale = self.choose.choice([shape, [1, *shape[1:]], [shape[1], 1], [shape[2]]])
        self.formula(op, [self.raw(shape), self.parameter(scale, gain=0.1, mean=1)], [shape],
                     axis=self.choose.choice([-1, 1]), epsilon=0.1)

    def op_log_sum(self):
        x = self.operand(self.choose.randint(1, 3))
        shape = self.shape_of(x)
        d, keep = self.axis_of(shape), self.choose.randint(0, 1)
        x = self.emit("Tanh", [x], [shape])
        op = self.choose.choice(["ReduceLogSumExp", "ReduceL1", "ReduceProd", "ReduceLogSum"])
        if op == "ReduceLogSum":
            x = self.emit("Add", [x, self.scalar(f"two{self.count}", 2)], [shape])
        total = self.formula(op, [x, self.constant([d])],
                             [[*shape[:d], *([1] if keep else []), *shape[d + 1:]]],
                             keepdims=keep)
        if op == "ReduceL1":
            self.emit("Mul", [total, self.scalar(f"mean{self.count}", 1 / shape[d])],
                      [self.shape_of(total)])

    def op_det(self):
        """Of matrices near a multiple of the identity: no pivot is in doubt."""
        batch, n = self.size(), self.choose.choice([1, 2, 3])
        near = self.emit("Mul", [self.raw([batch, n, n]),
                                 self.scalar(f"tenth{self.count}", 0.1)], [[batch, n, n]])
        one = self.weight(f"n{self.count}", np.eye(n, dtype=np.float32))
        self.formula("Det", [self.emit("Add", [near, one], [[batch, n, n]])], [[batch]])

    # Attention.

    def op_cache_write(self):
        batch, rows, width, more = self.choose.choice([1, 2, 3]), 6, self.size(), 2
        cache, update = self.raw([batch, rows, width]), self.raw([batch, more, width])
        mode = self.choose.choice(["linear", "circular"])
        at = self.raw_indices([batch], rows if mode == "circular" else rows - more + 1)
        self.formula("TensorScatter", [cache, update, at], [[batch, rows, width]], axis=1,
                     mode=mode)

    def op_attention_more(self):
        """With a past, a mask or a cap, heads apart or together."""
        heads, groups = self.choose.choice([(2, 2), (4, 2), (3, 1)])
        batch, queries, before, width = self.choose.choice([1, 2]), self.size(), 3, 4
        together = self.choose.random() < 0.5
        q, k, v = (self.raw([batch, queries, n * width] if together else
                            [batch, n, queries, width]) for n in (heads, groups, groups))
        keys = queries + before
        mask = self.raw(self.choose.choice([[queries, keys], [batch, 1, queries, keys],
                                            [1, heads, 1, keys]])) \
            if self.choose.random() < 0.5 else ""
        past = [self.raw([batch, groups, before, width]) for _ in range(2)]
        more = {"q_num_heads": heads, "kv_num_heads": groups} if together else {}
        cache = [batch, groups, keys, width]
        result = [batch, queries, heads * width] if together else \
            [batch, heads, queries, width]
        self.formula("Attention", [q, k, v, mask, *past], [result, cache, cache],
                     is_causal=self.choose.randint(0, 1),
                     softcap=self.choose.choice([0.0, 2.0]), **more)

    def op_rotary_part(self):
        batch, heads, rows, width = self.choose.choice([1, 2]), 2, self.size(), 6
        x = self.raw([batch, heads, rows, width])
        tables = []
        for _ in range(2):
            self.count += 1
            tables.append(self.weight(f"rot{self.count}", self.draw(batch, rows, 2)))
        self.formula("RotaryEmbedding", [x, *tables], [[batch, heads, rows, width]],
                     rotary_embedding_dim=4, interleaved=self.choose.randint(0, 1))
