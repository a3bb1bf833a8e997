#!/usr/bin/env python3
"""Writes one small function per op, element type and form.
`make_ops.py FAMILY…` writes some families only.

Shapes are odd on purpose: vectors have remainders, rows are not aligned.
"""
import sys

FLOATS = ["f32", "f16", "bf16", "f64"]
INTS = ["i64", "i32", "i8", "ui8"]


def tensor(shape, element):
    return "tensor<" + "".join(f"{d}x" for d in shape) + element + ">"


class Program:
    count = 0

    def __init__(self):
        self.arguments, self.lines, self.results = [], [], []

    def argument(self, shape, element):
        name = f"%a{len(self.arguments)}"
        self.arguments.append((name, tensor(shape, element)))
        return name, tensor(shape, element)

    def weight(self, shape, element):
        name = f"%v{len(self.lines)}"
        self.lines.append(f'{name} = graph.weight "w{len(self.lines)}" : '
                          f"{tensor(shape, element)}")
        return name, tensor(shape, element)

    def constant(self, value, shape, element):
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = graph.constant dense<{value}> : "
                          f"{tensor(shape, element)}")
        return name, tensor(shape, element)

    def op(self, op, operands, shape, element, attributes=""):
        name = f"%v{len(self.lines)}"
        types = ", ".join(t for _, t in operands)
        self.lines.append(f"{name} = graph.{op} {', '.join(n for n, _ in operands)} "
                          f"{attributes} : ({types}) -> {tensor(shape, element)}")
        return name, tensor(shape, element)

    def finish(self, *results):
        arguments = ", ".join(f"{n}: {t}" for n, t in self.arguments)
        types = ", ".join(t for _, t in results)
        body = "".join(f"  {line}\n" for line in self.lines)
        name = f"{sys._getframe(1).f_code.co_name}_{Program.count}"
        Program.count += 1
        print(f"func.func @{name}({arguments}) -> ({types}) {{\n{body}"
              f"  return {', '.join(n for n, _ in results)} : {types}\n}}")


def unary():
    smooth = ["relu", "sigmoid", "tanh", "erf", "exp", "sin", "cos", "softplus", "neg",
              "abs", "sign", "hard_swish", "mish", "gelu", "gelu_tanh", "floor", "ceil",
              "round", "leaky_relu", "elu", "hard_sigmoid"]
    attributes = {"leaky_relu": "{alpha = 0.3 : f64}", "elu": "{alpha = 1.5 : f64}",
                  "hard_sigmoid": "{alpha = 0.25 : f64, beta = 0.4 : f64}"}
    for element in FLOATS:
        p = Program()
        x = p.argument([5, 13], element)
        # log, sqrt and reciprocal of positive numbers
        two = p.constant("2.0", [], element)
        positive = p.op("add", [x, two], [5, 13], element)
        results = [p.op(op, [x], [5, 13], element, attributes.get(op, ""))
                   for op in smooth]
        results += [p.op(op, [positive], [5, 13], element)
                    for op in ["log", "sqrt", "reciprocal"]]
        results.append(p.op("isnan", [p.op("sqrt", [x], [5, 13], element)], [5, 13], "i1"))
        p.finish(*results)
    for element in INTS:
        p = Program()
        x = p.argument([5, 13], element)
        p.finish(*[p.op(op, [x], [5, 13], element)
                   for op in ["neg", "abs", "sign", "relu"]])
    p = Program()
    x = p.argument([5, 13], "i1")
    p.finish(p.op("not", [x], [5, 13], "i1"))


def binary():
    arithmetic = ["add", "sub", "mul", "div", "max", "min"]
    compare = ["equal", "less", "less_equal", "greater", "greater_equal"]
    forms = [([3, 1, 17], [4, 1]), ([1], [4, 17]), ([3, 4, 17], [3, 4, 17])]
    for element in FLOATS + INTS:
        for left, right in forms:
            shape = [max(a, b) for a, b in
                     zip([1] * (3 - len(left)) + left, [1] * (3 - len(right)) + right)]
            shape = shape[3 - max(len(left), len(right)):]
            p = Program()
            x, y = p.argument(left, element), p.argument(right, element)
            results = [p.op(op, [x, y], shape, element) for op in arithmetic]
            results += [p.op(op, [x, y], shape, "i1") for op in compare]
            if element in INTS:
                results.append(p.op("mod", [x, y], shape, element))
                results.append(p.op("pow", [x, y], shape, element))
            else:
                results.append(p.op("prelu", [x, y], shape, element))
                for exponent in ["2.0", "0.5", "3.0", "-1.0", "1.0"]:
                    c = p.constant(exponent, [], element)
                    size = p.op("abs", [x], left, element)
                    results.append(p.op("pow", [size, c], left, element))
                results.append(p.op("pow", [p.op("abs", [x], left, element), y], shape,
                                    element))
                c = p.constant("2.0", [], element)
                far = p.op("add", [y, c], right, element)
                results.append(p.op("mod", [x, far], shape, element))
            p.finish(*results)
    p = Program()
    x, y = p.argument([3, 17], "i1"), p.argument([17], "i1")
    p.finish(*[p.op(op, [x, y], [3, 17], "i1") for op in ["and", "or", "xor"]])


def select():
    for element in FLOATS + INTS + ["i1"]:
        p = Program()
        c = p.argument([3, 1], "i1")
        x, y = p.argument([3, 17], element), p.argument([17], element)
        results = [p.op("where", [c, x, y], [3, 17], element)]
        if element != "i1":
            low, high = p.argument([], element), p.argument([1], element)
            results.append(p.op("clip", [x, low, high], [3, 17], element))
        p.finish(*results)


def cast():
    every = FLOATS + INTS + ["i1", "i16", "ui16", "ui32", "ui64"]
    for element in every:
        p = Program()
        x = p.argument([3, 17], element)
        scaled = x
        if element in FLOATS:
            scaled = p.op("mul", [x, p.constant("100.0", [], element)], [3, 17], element)
        p.finish(*[p.op("cast", [scaled], [3, 17], to, f"{{to = {to}}}") for to in every])


def reduce():
    forms = [([4, 5, 6], [2], [4, 5]), ([4, 5, 6], [0, 2], [5]), ([4, 5, 6], [1], [4, 6]),
             ([4, 5, 6], [0, 1, 2], []), ([3, 70], [1], [3])]
    for element in FLOATS + INTS:
        for shape, axes, kept in forms:
            full = [1 if d in axes else n for d, n in enumerate(shape)]
            p = Program()
            x = p.argument(shape, element)
            results = []
            for kind in ["sum", "max", "min", "prod"]:
                attributes = f'{{kind = #graph.reduce<{kind}>, axes = array<i64: {str(axes)[1:-1]}>'
                results.append(p.op("reduce", [x], kept, element, attributes + "}"))
                results.append(p.op("reduce", [x], full, element,
                                    attributes + ", keep_dims = true}"))
            p.finish(*results)
    p = Program()
    x = p.argument([3, 7], "i1")
    p.finish(*[p.op("reduce", [x], [3], "i1", f'{{kind = #graph.reduce<{kind}>, axes = array<i64: 1>}}')
               for kind in ["sum", "max", "min", "prod"]])


def rows():
    for element in FLOATS:
        for axis in range(3):
            p = Program()
            x = p.argument([3, 5, 37], element)
            p.finish(*[p.op(op, [x], [3, 5, 37], element, f"{{axis = {axis} : i64}}")
                       for op in ["softmax", "log_softmax"]])
        for axis, shape in [(2, [37]), (1, [5, 37]), (2, [1])]:
            p = Program()
            x = p.argument([3, 5, 37], element)
            scale, bias = p.weight(shape, element), p.weight(shape, element)
            attributes = f"{{axis = {axis} : i64, epsilon = 1.0e-5 : f64}}"
            p.finish(p.op("layer_norm", [x, scale, bias], [3, 5, 37], element, attributes),
                     p.op("rms_norm", [x, scale], [3, 5, 37], element, attributes))
    for element in FLOATS + ["i64", "i32"]:
        p = Program()
        x = p.argument([3, 5, 7], element)
        p.finish(*[p.op("cumsum", [x], [3, 5, 7], element,
                        f"{{axis = {axis} : i64, exclusive = {exclusive}, "
                        f"reverse = {reverse}}}")
                   for axis in range(3) for exclusive in ["false", "true"]
                   for reverse in ["false", "true"]])


def move():
    for element in FLOATS + INTS + ["i1"]:
        p = Program()
        x = p.argument([4, 6, 10], element)
        y = p.argument([4, 1, 10], element)
        results = [
            p.op("transpose", [x], [10, 4, 6], element,
                 "{permutation = array<i64: 2, 0, 1>}"),
            p.op("reshape", [x], [8, 30], element),
            p.op("broadcast", [y], [2, 4, 3, 10], element),
            p.op("slice", [x], [2, 2, 10], element,
                 "{starts = array<i64: 1, 5, 0>, steps = array<i64: 2, -3, 1>}"),
            p.op("concat", [x, y, x], [4, 13, 10], element, "{axis = 1 : i64}"),
        ]
        t = p.op("transpose", [x], [6, 4, 10], element,
                 "{permutation = array<i64: 1, 0, 2>}")
        results.append(p.op("reshape", [t], [3, 80], element))
        fill = p.argument([], element)
        results.append(p.op("pad", [x, fill], [5, 6, 9], element,
                            "{low = array<i64: 2, 0, -1>, high = array<i64: -1, 0, 0>}"))
        for mode in ["edge", "reflect"]:
            results.append(p.op("pad", [x, fill], [4, 9, 13], element,
                                "{low = array<i64: 0, 2, 1>, high = array<i64: 0, 1, 2>, "
                                f'mode = #graph.pad<{mode}>}}'))
        p.finish(*results)


def gather():
    for element in FLOATS + INTS + ["i1"]:
        for index in ["i64", "i32"]:
            p = Program()
            data = p.argument([5, 6, 7], element)
            indices = p.argument([3, 2], index)
            two = p.constant("2", [], index)
            signed = p.op("sub", [indices, two], [3, 2], index)
            results = [
                p.op("gather", [data, signed], [3, 2, 6, 7], element, "{axis = 0 : i64}"),
                p.op("gather", [data, signed], [5, 3, 2, 7], element, "{axis = 1 : i64}"),
                p.op("gather_nd", [data, signed], [3, 7], element),
            ]
            batched = p.argument([5, 2, 1], index)
            results.append(p.op("gather_nd", [data, batched], [5, 2, 7], element,
                                "{batch_dims = 1 : i64}"))
            p.finish(*results)


def contract():
    forms = [
        ("m k, k n -> m n", [5, 7], [7, 9], [5, 9]),
        ("k m, n k -> m n", [7, 5], [9, 7], [5, 9]),
        ("m k, k n -> n m", [5, 7], [7, 9], [9, 5]),
        ("b m k, k n -> b m n", [2, 5, 7], [7, 9], [2, 5, 9]),
        ("b m k, b k n -> b m n", [2, 5, 7], [2, 7, 9], [2, 5, 9]),
        ("b h q d, b h k d -> b h q k", [2, 3, 5, 8], [2, 3, 6, 8], [2, 3, 5, 6]),
        ("b q h d, b k h d -> b h q k", [2, 5, 3, 8], [2, 6, 3, 8], [2, 3, 5, 6]),
        ("b h q k, b h k d -> b q h d", [2, 3, 5, 6], [2, 3, 6, 8], [2, 5, 3, 8]),
        ("m (k l), l n k -> m n", [5, 6], [3, 4, 2], [5, 4]),
        ("k, k n -> n", [7], [7, 9], [9]),
        ("m k, k -> m", [5, 7], [7], [5]),
        ("m, n -> m n", [5], [9], [5, 9]),
        ("k, k -> 1", [7], [7], [1]),
        ("m k, l n -> m n", [5, 7], [3, 9], [5, 9]),
        ("m b, n b -> m n b", [5, 4], [6, 4], [5, 6, 4]),
        ("a k b, b l c k -> c a l", [4, 5, 6], [6, 3, 2, 5], [2, 4, 3]),
    ]
    for element in FLOATS + ["i64", "i32"]:
        for equation, left, right, result in forms:
            for weight in [False, True]:
                if weight and element not in ("f32", "bf16"):
                    continue
                p = Program()
                x = p.argument(left, element)
                y = (p.weight if weight else p.argument)(right, element)
                p.finish(p.op("contract", [x, y], result, element,
                              f'{{equation = #graph.equation<"{equation}">}}'))


def window():
    conv = ("{{strides = array<i64: {0}>, dilations = array<i64: {1}>, "
            "pads = array<i64: {2}>, group = {3} : i64}}")
    forms = [  # input, filter, strides, dilations, pads, group, result
        ([2, 3, 9, 11], [8, 3, 3, 3], "2, 1", "1, 1", "1, 1, 1, 1", 1, [2, 8, 5, 11]),
        ([1, 8, 9, 11], [8, 1, 3, 3], "1, 1", "1, 2", "0, 2, 1, 2", 8, [1, 8, 8, 11]),
        ([2, 6, 9], [4, 3, 3], "2", "1", "1, 0", 2, [2, 4, 4]),
        ([1, 4, 6, 6], [5, 4, 3, 3], "1, 1", "1, 1", "-1, 0, 1, 2", 1, [1, 5, 4, 6]),
        ([1, 5, 4, 5, 6], [6, 5, 2, 2, 2], "1, 1, 1", "1, 1, 1", "0, 0, 0, 0, 0, 0", 1,
         [1, 6, 3, 4, 5]),
    ]
    for element in FLOATS:
        for image, kernel, strides, dilations, pads, group, result in forms:
            for bias in [False, True]:
                p = Program()
                operands = [p.argument(image, element), p.weight(kernel, element)]
                if bias:
                    operands.append(p.weight([kernel[0]], element))
                y = p.op("conv", operands, result, element,
                         conv.format(strides, dilations, pads, group))
                p.finish(y, p.op("relu", [y], result, element))
        for group, kernel in [(1, [4, 3, 3, 2]), (2, [4, 3, 3, 2])]:
            p = Program()
            operands = [p.argument([2, 4, 5, 6], element), p.weight(kernel, element)]
            p.finish(p.op("conv_transpose", operands, [2, 3 * group, 10, 12], element,
                          "{strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, "
                          "pads = array<i64: 1, 0, 0, 1>, "
                          f"output_padding = array<i64: 0, 1>, group = {group} : i64}}"))
        for image, cotangent, filter, strides, dilations, pads, group in [
                ([2, 6, 9, 8], [2, 4, 5, 8], [4, 3, 3, 3], "2, 1", "1, 1", "1, 1, 1, 1", 2),
                ([2, 3, 9], [2, 8, 3], [8, 3, 3], "3", "2", "1, 1", 1),
                ([1, 4, 6, 6], [1, 5, 4, 6], [5, 4, 3, 3], "1, 1", "1, 1", "-1, 0, 1, 2", 1),
                ([2, 8, 5, 5], [2, 8, 5, 5], [8, 1, 3, 3], "1, 1", "1, 1", "1, 1, 1, 1", 8)]:
            p = Program()
            operands = [p.argument(image, element), p.argument(cotangent, element)]
            p.finish(p.op("conv_backward_filter", operands, filter, element,
                          conv.format(strides, dilations, pads, group)))
        for kind, count in [("max", "false"), ("average", "false"), ("average", "true")]:
            p = Program()
            x = p.argument([2, 5, 9, 11], element)
            p.finish(p.op("pool", [x], [2, 5, 5, 10], element,
                          f'{{kind = #graph.pool<{kind}>, count_padding = {count}, '
                          "window = array<i64: 3, 2>, strides = array<i64: 2, 1>, "
                          "dilations = array<i64: 1, 1>, pads = array<i64: 1, 0, 1, 0>}"))


def resize():
    for element in FLOATS + ["i64", "ui8"]:
        for coordinates in ["asymmetric", "half_pixel", "pytorch_half_pixel",
                            "align_corners"]:
            p = Program()
            x = p.argument([2, 3, 4, 5], element)
            attributes = ('{{scales = array<f64: 1.0, 1.0, 2.0, 2.0>, mode = #graph.resize<{0}>, '
                          f'coordinates = #graph.coordinates<{coordinates}>, rounding = #graph.rounding<{{1}}>}}')
            results = []
            # ceil and floor of whole numbers that rounding may have moved are not the
            # evaluator's: align_corners divides by 9.
            roundings = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
            for rounding in roundings[:1 if coordinates == "align_corners" else None]:
                text = attributes.replace("{{", "{").replace("}}", "}")
                text = text.replace("{0}", "nearest").replace("{1}", rounding)
                results.append(p.op("resize", [x], [2, 3, 8, 10], element, text))
            if element in FLOATS:
                text = attributes.replace("{{", "{").replace("}}", "}")
                text = text.replace("{0}", "linear").replace("{1}", "floor")
                results.append(p.op("resize", [x], [2, 3, 8, 10], element, text))
            p.finish(*results)


def bits():
    for source, target in [("f32", "i32"), ("i32", "f32"), ("f64", "ui64"), ("i64", "f64"),
                           ("f16", "i16"), ("ui16", "bf16"), ("i8", "f8E4M3FN"),
                           ("f8E5M2", "ui8"), ("ui8", "i8"), ("f4E2M1FN", "i4")]:
        p = Program()
        x = p.argument([5, 13], source)
        y = p.op("bitcast", [x], [5, 13], target, f"{{to = {target}}}")
        z = p.op("bitcast", [y], [5, 13], source, f"{{to = {source}}}")
        p.finish(y, p.op("where", [p.op("equal", [z, x], [5, 13], "i1"), z, x], [5, 13],
                         source))


def storage():
    """Types of a byte and less: cast to and back in one kernel and through memory, moved."""
    small = ["f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f8E8M0FNU", "f4E2M1FN",
             "i4", "ui4", "i2", "ui2"]
    for element in small:
        for wide in ["f32", "f16", "i32"]:
            p = Program()
            x = p.argument([5, 13], wide)
            stored = p.op("cast", [x], [5, 13], element, f"{{to = {element}}}")
            back = p.op("cast", [stored], [5, 13], wide, f"{{to = {wide}}}")
            twice = p.op("add", [back, back], [5, 13], wide)
            turned = p.op("transpose", [stored], [13, 5], element,
                          "{permutation = array<i64: 1, 0>}")
            again = p.op("cast", [turned], [13, 5], "f32", "{to = f32}")
            p.finish(twice, turned, again)
            p = Program()
            x = p.argument([5, 13], wide)
            stored = p.op("cast", [x], [5, 13], element, f"{{to = {element}}}")
            p.finish(p.op("cast", [stored], [5, 13], wide, f"{{to = {wide}}}"))
        p = Program()
        y = p.argument([5, 13], element)
        index = p.argument([4], "i64")
        row = p.op("gather", [y, index], [4, 13], element, "{axis = 0 : i64}")
        p.finish(row, p.op("cast", [row], [4, 13], "f32", "{to = f32}"))


FAMILIES = [unary, binary, select, cast, reduce, rows, move, gather, contract, window,
            resize, bits, storage]

if __name__ == "__main__":
    for family in FAMILIES:
        if len(sys.argv) == 1 or family.__name__ in sys.argv[1:]:
            family()
