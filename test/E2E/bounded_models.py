"""Models in which what was selected flows on as exporters write it: detection heads by level
and class, masks that scatter, experts, padding to a fixed size. Of each: nodes, constants,
lists of inputs, outputs (run_bounded.py).
"""
import numpy as np
from onnx import TensorProto, helper

RANDOM = np.random.default_rng(5)
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def boxes_of(count):
    low = np.abs(real(count, 2)) * 6
    return np.concatenate([low, low + np.abs(real(count, 2)) * 4 + 0.5], 1)


def level(i, most):
    """The best of one level's anchors × classes: above a threshold, then the first `most`,
    or as many as there are."""
    return [
        node("Reshape", f"s{i} flat", f"f{i}"),
        node("Greater", f"f{i} low", f"m{i}"),
        node("NonZero", f"m{i}", f"nz{i}"), node("Transpose", f"nz{i}", f"tr{i}"),
        node("GatherND", f"f{i} tr{i}", f"score{i}"),
        # The same mask again, as a tracer writes it.
        node("NonZero", f"m{i}", f"nw{i}"), node("Squeeze", f"nw{i} zeros", f"at{i}"),
        node("Shape", f"at{i}", f"sh{i}"), node("Gather", f"sh{i} nought", f"n{i}"),
        node("Unsqueeze", f"n{i} zeros", f"nu{i}"),
        node("Concat", f"{most} nu{i}", f"both{i}", axis=0),
        node("ReduceMin", f"both{i}", f"k{i}", keepdims=0),
        node("Reshape", f"k{i} flat", f"kk{i}"),
        node("TopK", f"score{i} kk{i}", f"top{i} order{i}"),
        node("Gather", f"at{i} order{i}", f"place{i}"),
        node("Div", f"place{i} classes", f"anchor{i}"),
        node("Mod", f"place{i} classes", f"label{i}"),
        node("Gather", f"b{i} anchor{i}", f"box{i}")]


def levels():
    """RetinaNet's end: levels joined, one suppression for all classes by moving each class
    away, none where nothing is left; what is kept is cut to a number."""
    none = helper.make_graph(
        [helper.make_node("Constant", [], ["none"],
                          value=helper.make_tensor("v", I64, [0], []))], "none", [],
        [helper.make_tensor_value_info("none", I64, [0])])
    some = helper.make_graph(
        [node("ReduceMax", "boxes", "largest", keepdims=0),
         node("Add", "largest one", "step"), node("Cast", "labels", "class", to=F32),
         node("Mul", "class step", "away"), node("Unsqueeze", "away ones", "column"),
         node("Add", "boxes column", "moved"), node("Unsqueeze", "moved zeros", "nb"),
         node("Unsqueeze", "scores both", "ns"),
         node("NonMaxSuppression", "nb ns many iou", "selected"),
         node("Gather", "selected two", "picked", axis=1),
         node("Squeeze", "picked ones", "keep")], "some", [],
        [helper.make_tensor_value_info("keep", I64, [None])])
    nodes = [*level(0, "ten"), *level(1, "ten"),
             node("Concat", "box0 box1", "boxes", axis=0),
             node("Concat", "top0 top1", "scores", axis=0),
             node("Concat", "label0 label1", "labels", axis=0),
             node("Size", "boxes", "numel"), node("Equal", "numel nought", "isEmpty"),
             helper.make_node("If", ["isEmpty"], ["kept"], then_branch=none,
                              else_branch=some),
             node("Slice", "kept zeros eight", "first"),
             node("Gather", "boxes first", "y_boxes"),
             node("Gather", "scores first", "y_scores"),
             node("Gather", "labels first", "y_labels")]
    constants = {
        "flat": ints(-1), "zeros": ints(0), "ones": ints(1), "both": ints(0, 1),
        "nought": np.array(0), "two": ints(2), "ten": ints(10), "eight": ints(8),
        "classes": np.array(3), "one": np.float32(1), "many": ints(2 ** 62),
        "iou": np.float32([0.3])}
    first = {"s0": real(12, 3), "b0": boxes_of(12), "s1": real(4, 3), "b1": boxes_of(4)}
    inputs = [{**first, "low": np.array(t, np.float32)} for t in (0.5, -9, 9, 1.5)]
    return nodes, constants, inputs, ["boxes", "scores", "labels", "y_boxes", "y_scores",
                                      "y_labels"]


def pooled():
    """Faster R-CNN's: boxes by level, each pooled from its own map, put back in order."""
    nodes = [node("Greater", "score low", "mask"), node("NonZero", "mask", "nz"),
             node("Squeeze", "nz zeros", "where"), node("Gather", "b where", "rois"),
             node("Gather", "level where", "levels"),
             node("Shape", "rois", "sh"), node("Gather", "sh zeros", "n"),
             node("Concat", "n channels", "shape", axis=0),
             node("ConstantOfShape", "shape", "result0",
                  value=helper.make_tensor("v", F32, [1], [0.0]))]
    for i in (0, 1):
        nodes += [
            node("Equal", f"levels l{i}", f"e{i}"), node("NonZero", f"e{i}", f"nz{i}"),
            node("Squeeze", f"nz{i} zeros", f"at{i}"),
            node("Gather", f"rois at{i}", f"r{i}"),
            node("Shape", f"at{i}", f"c{i}"), node("ConstantOfShape", f"c{i}", f"batch{i}",
                 value=helper.make_tensor("v", I64, [1], [0])),
            node("RoiAlign", f"map{i} r{i} batch{i}", f"p{i}", output_height=2,
                 output_width=2, sampling_ratio=2, spatial_scale=0.5 ** i),
            node("Reshape", f"at{i} column", f"index{i}"), node("Shape", f"p{i}", f"ps{i}"),
            node("Expand", f"index{i} ps{i}", f"wide{i}"),
            node("ScatterElements", f"result{i} wide{i} p{i}", f"result{i + 1}", axis=0)]
    nodes += [node("Flatten", "result2", "rows"), node("MatMul", "rows w", "logits"),
              node("Softmax", "logits", "chance", axis=-1),
              node("Slice", "chance ones big ones", "classes"),
              node("Reshape", "classes flat", "all"), node("Greater", "all some", "good"),
              node("NonZero", "good", "g"), node("Squeeze", "g zeros", "found"),
              node("Gather", "all found", "found_scores"),
              node("ArgMax", "chance", "best", axis=1, keepdims=0)]
    constants = {"zeros": ints(0), "ones": ints(1), "channels": ints(3, 2, 2),
                 "l0": np.array(0), "l1": np.array(1), "column": ints(-1, 1, 1, 1),
                 "w": real(12, 4), "big": ints(2 ** 62), "flat": ints(-1),
                 "some": np.float32(0.3)}
    values = {"map0": real(1, 3, 12, 12), "map1": real(1, 3, 6, 6), "b": boxes_of(14),
              "level": RANDOM.integers(0, 2, 14), "score": real(14)}
    inputs = [{**values, "low": np.array(t, np.float32)} for t in (0, -9, 9)]
    return nodes, constants, inputs, ["result2", "chance", "found", "found_scores", "best"]


def masked():
    """Pictures' features into the places of a token (masked_scatter), a value into others
    (index_put), rows without padding through a product and back."""
    nodes = [
        node("Equal", "ids token", "isPicture"), node("NonZero", "isPicture", "nz"),
        node("Transpose", "nz", "at"), node("Shape", "at", "sh"),
        node("Gather", "sh zeros", "n"), node("Slice", "features zeros n zeros", "used"),
        node("ScatterND", "x at used", "filled"),
        node("Less", "ids three", "isLow"), node("NonZero", "isLow", "lz"),
        node("Transpose", "lz", "low"), node("Shape", "low", "ls"),
        node("Slice", "ls zeros ones", "ln"), node("Concat", "ln width", "shape", axis=0),
        node("Expand", "value shape", "values"), node("ScatterND", "filled low values", "y"),
        node("Reshape", "ids flat", "line"), node("Less", "line five", "isThere"),
        node("NonZero", "isThere", "tz"), node("Squeeze", "tz zeros", "there"),
        node("Reshape", "y rows", "tokens"), node("Gather", "tokens there", "packed"),
        node("MatMul", "packed w", "p"), node("MatMul", "p turned", "scores"),
        node("Transpose", "packed", "turned"), node("Softmax", "scores", "soft"),
        node("MatMul", "soft packed", "mixed"),
        node("LayerNormalization", "mixed scale", "normal"),
        node("Unsqueeze", "there ones", "column"), node("Shape", "normal", "ns"),
        node("Expand", "column ns", "index"),
        node("ScatterElements", "empty index normal", "unpacked", axis=0),
        node("ScatterElements", "empty index normal", "added", axis=0, reduction="add")]
    nodes[22], nodes[23] = nodes[23], nodes[22]
    constants = {"token": np.array(7), "zeros": ints(0), "ones": ints(1),
                 "three": np.array(3), "width": ints(4), "value": np.float32([0.5]),
                 "flat": ints(-1), "five": np.array(5), "rows": ints(-1, 4), "w": real(4, 4),
                 "scale": real(4), "empty": real(14, 4)}
    inputs = [{"ids": ids, "x": real(2, 7, 4), "features": real(14, 4)}
              for ids in (RANDOM.integers(0, 9, (2, 7)), np.full((2, 7), 7),
                          np.full((2, 7), 4))]
    return nodes, constants, inputs, ["filled", "y", "packed", "mixed", "unpacked", "added"]


def experts():
    """Each expert takes the rows that chose it, and adds its own to them."""
    nodes, constants = [node("MatMul", "x gate", "logits"),
                        node("Softmax", "logits", "chance"),
                        node("ArgMax", "logits", "chosen", axis=1, keepdims=0)], {}
    for i in range(3):
        nodes += [
            node("Equal", f"chosen e{i}", f"m{i}"), node("NonZero", f"m{i}", f"nz{i}"),
            node("Squeeze", f"nz{i} zeros", f"at{i}"),
            node("Gather", f"x at{i}", f"rows{i}"), node("MatMul", f"rows{i} w{i}", f"h{i}"),
            node("Relu", f"h{i}", f"a{i}"), node("Gather", f"chance at{i}", f"c{i}"),
            node("Gather", f"c{i} e{i}", f"g{i}", axis=1),
            node("Unsqueeze", f"g{i} ones", f"gate{i}"), node("Mul", f"a{i} gate{i}", f"y{i}"),
            node("Unsqueeze", f"at{i} ones", f"index{i}"),
            node("ScatterND", f"sum{i} index{i} y{i}", f"sum{i + 1}", reduction="add"),
            node("Shape", f"at{i}", f"n{i}")]
        constants |= {f"e{i}": np.array(i), f"w{i}": real(4, 4)}
    nodes.append(node("Concat", "n0 n1 n2", "load", axis=0))
    nodes.append(node("Split", "order load", "q0 q1 q2", axis=0))
    nodes.insert(-1, node("Concat", "at0 at1 at2", "order", axis=0))
    constants |= {"zeros": ints(0), "ones": ints(1), "sum0": np.zeros((9, 4), np.float32),
                  "gate": real(4, 3)}
    return nodes, constants, [{"x": real(9, 4)}, {"x": np.tile(real(1, 4), (9, 1))}], \
        ["sum3", "load", "order", "q1", "q2"]


def shaped():
    """Parts, sums, orders and fixed sizes of what was kept."""
    nodes = [
        node("Greater", "c zero", "mask"), node("Compress", "x mask", "rows", axis=0),
        node("Slice", "rows ones big zeros", "tail"),
        node("Slice", "rows zeros less zeros", "most"),
        node("Slice", "rows three_back big zeros", "last"),
        node("Slice", "rows less far zeros back", "reversed"),
        node("Slice", "rows zeros big zeros steps", "second"),
        node("CumSum", "rows axis", "sums"), node("CumSum", "rows axis", "rest", reverse=1),
        node("CumSum", "rows axis", "before", exclusive=1),
        node("ArgMax", "rows", "best", axis=0, keepdims=0),
        node("ArgMin", "rows", "worst", axis=0, keepdims=1),
        node("Shape", "rows", "shape"), node("Gather", "shape nought", "n"),
        node("Range", "nought n one", "numbers"), node("Range", "n minus minus", "down"),
        node("Cast", "numbers", "real", to=F32),
        node("Unsqueeze", "real ones", "column"), node("Add", "rows column", "numbered"),
        node("Sub", "sixteen n", "missing"), node("Unsqueeze", "missing zeros", "m"),
        node("Concat", "none m zeros", "pads", axis=0), node("Pad", "rows pads", "fixed"),
        node("Pad", "rows around value", "framed"),
        node("Concat", "rows x tail", "joined", axis=0),
        node("Einsum", "rows w", "product", equation="nk,km->mn"),
        node("ReduceMean", "rows", "mean", axes=[0]), node("Sub", "rows mean", "centered"),
        node("ReduceL2", "centered", "norm", axes=[0]),
        node("OneHot", "numbers depth off_on", "hot"),
        node("Tile", "rows twice", "wide"),
        node("GatherElements", "rows picks", "picked", axis=1),
        node("Slice", "indices zeros ones", "row0"), node("Expand", "row0 shape", "picks"),
        node("TopK", "rows two", "upper upper_at", axis=0),
        node("TopK", "rows three", "wide_top wide_at", axis=1, largest=0),
        node("Trilu", "rows", "triangle"), node("Mul", "product product", "squares"),
        node("Transpose", "rows", "turned"), node("Reshape", "turned line", "line_rows"),
        node("Where", "is_row rows fill", "chosen"), node("Greater", "rows zero", "is_row"),
        node("Shape", "rows", "shape2"), node("Reshape", "kept_flat shape2", "again"),
        node("Reshape", "rows flat", "kept_flat"),
        node("DynamicQuantizeLinear", "rows", "quantized scale point")]
    order = {name: i for i, n in enumerate(nodes) for name in n.output}
    done, sorted_nodes = set(), []

    def add(i):
        if i in done:
            return
        done.add(i)
        for name in nodes[i].input:
            if name in order:
                add(order[name])
        sorted_nodes.append(nodes[i])
    for i in range(len(nodes)):
        add(i)
    constants = {
        "zero": np.float32(0), "zeros": ints(0), "ones": ints(1), "big": ints(2 ** 62),
        "less": ints(-1), "three_back": ints(-3), "far": ints(-2 ** 62), "back": ints(-1),
        "steps": ints(2), "axis": np.array(0), "nought": np.array(0), "one": np.array(1),
        "minus": np.array(-1), "sixteen": np.array(16), "none": ints(0, 0),
        "around": ints(1, 0, 2, 1), "value": np.float32(7), "w": real(6, 5),
        "depth": np.array(4), "off_on": np.float32([0, 1]), "twice": ints(1, 2),
        "indices": RANDOM.integers(0, 6, (1, 6)), "two": ints(2), "three": ints(3),
        "line": ints(6, -1), "fill": np.float32(-1), "flat": ints(-1)}
    inputs = [{"x": real(12, 6), "c": real(12) + np.float32(shift)} for shift in (0, 9, 1)]
    return sorted_nodes, constants, inputs, [
        "tail", "most", "last", "reversed", "second", "sums", "rest", "before", "best",
        "worst", "numbers", "down", "numbered", "fixed", "framed", "joined", "product",
        "norm", "hot", "wide", "picked", "upper", "upper_at", "wide_top", "triangle",
        "line_rows", "chosen", "again", "quantized", "scale"]


CASES = {"levels": levels, "pooled": pooled, "masked": masked, "experts": experts,
         "shaped": shaped}
