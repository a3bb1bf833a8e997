#!/usr/bin/env python3
"""Writes the ends of detectors, as exporters write them, with boxes and scores by a seed:
folders for compare.py.

usage: detectors.py OUT_DIR [NAME…]
       detectors.py --list

Of the suppressions alone at least 1000 candidates per class pass the threshold. `spread` and
`yolo` keep at least 100 of them, in `crowded` all boxes of a class overlap.
"""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

import cases

RANDOM = np.random.default_rng(11)
PICTURE = 320


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def ints(*values):
    return np.array(values, np.int64)


def spread_boxes(count, smallest=8, largest=40):
    low = RANDOM.uniform(0, PICTURE - largest, (count, 2))
    return np.concatenate([low, low + RANDOM.uniform(smallest, largest, (count, 2))],
                          1).astype(np.float32)


def crowded_boxes(count):
    """One box, moved a little."""
    box = np.array([100, 100, 200, 220], np.float32)
    return box + RANDOM.uniform(-2, 2, (count, 4)).astype(np.float32)


def different(low, high, *shape):
    """Scores of which no two of the last dim are equal."""
    steps = np.linspace(low, high, shape[-1], endpoint=False, dtype=np.float32)
    return RANDOM.permuted(np.broadcast_to(steps, shape), axis=-1)


def suppression(boxes, scores, most, iou, threshold):
    nodes = [node("NonMaxSuppression", "boxes scores most iou threshold", "selected")]
    constants = {"most": ints(most), "iou": np.float32([iou]),
                 "threshold": np.float32([threshold])}
    return nodes, constants, {"boxes": boxes[None], "scores": scores[None]}, ["selected"]


def spread():
    return suppression(spread_boxes(2000), different(0.1, 1, 4, 2000), 300, 0.5, 0.2)


def crowded():
    return suppression(crowded_boxes(2000), different(0.1, 1, 4, 2000), 300, 0.5, 0.2)


def yolo():
    """80 classes, of which an eighth of the scores pass."""
    return suppression(spread_boxes(8400), different(0, 0.285, 80, 8400), 300, 0.45, 0.25)


def filtered(i, most):
    """The scores `s{i}` [n] above the threshold, at most so many of them, with boxes."""
    return [
        node("Greater", f"s{i} low", f"m{i}"), node("NonZero", f"m{i}", f"nz{i}"),
        node("Squeeze", f"nz{i} zeros", f"at{i}"), node("Gather", f"s{i} at{i}", f"f{i}"),
        node("Shape", f"f{i}", f"sh{i}"), node("Gather", f"sh{i} nought", f"n{i}"),
        node("Unsqueeze", f"n{i} zeros", f"nu{i}"),
        node("Concat", f"{most} nu{i}", f"both{i}", axis=0),
        node("ReduceMin", f"both{i}", f"k{i}", keepdims=0),
        node("Reshape", f"k{i} flat", f"kk{i}"),
        node("TopK", f"f{i} kk{i}", f"top{i} order{i}"),
        node("Gather", f"at{i} order{i}", f"place{i}")]


def batched(parts, kept):
    """torchvision's batched_nms of what is joined: each class is moved away from the others."""
    names = {name: " ".join(f"{name}{i}" for i in range(parts))
             for name in ("box", "top", "label")}
    return [
        node("Concat", names["box"], "boxes_all", axis=0),
        node("Concat", names["top"], "scores_all", axis=0),
        node("Concat", names["label"], "labels_all", axis=0),
        node("ReduceMax", "boxes_all", "largest", keepdims=0),
        node("Add", "largest one", "step"),
        node("Cast", "labels_all", "class", to=TensorProto.FLOAT),
        node("Mul", "class step", "away"), node("Unsqueeze", "away ones", "column"),
        node("Add", "boxes_all column", "moved"), node("Unsqueeze", "moved zeros", "nb"),
        node("Unsqueeze", "scores_all both", "ns"),
        node("NonMaxSuppression", "nb ns many iou", "selected"),
        node("Gather", "selected two", "picked", axis=1),
        node("Squeeze", "picked ones", "keep"),
        node("Slice", f"keep zeros {kept}", "first"),
        node("Gather", "boxes_all first", "boxes_kept"),
        node("Gather", "scores_all first", "scores_kept"),
        node("Gather", "labels_all first", "labels_kept")]


CONSTANTS = {
    "flat": ints(-1), "zeros": ints(0), "ones": ints(1), "both": ints(0, 1),
    "nought": np.array(0), "two": np.array([2]), "one": np.float32(1),
    "many": ints(2 ** 63 - 1), "low": np.float32(0.3)}
OUTPUTS = ["boxes_kept", "scores_kept", "labels_kept"]


def ssdlite():
    """SSDLite320 of torchvision: 90 classes, one after the other, 300 of each."""
    anchors, classes, nodes = 3234, 90, []
    for i in range(classes):
        nodes += [node("Gather", f"scores class{i}", f"s{i}", axis=1), *filtered(i, "most"),
                  node("Gather", f"boxes place{i}", f"box{i}"),
                  node("Shape", f"top{i}", f"many{i}"),
                  node("Expand", f"number{i} many{i}", f"label{i}")]
    constants = {**CONSTANTS, "most": ints(300), "iou": np.float32([0.55]),
                 "all": ints(300), "low": np.float32(0.001)}
    for i in range(classes):
        constants |= {f"class{i}": np.array(i + 1), f"number{i}": ints(i + 1)}
    logits = RANDOM.standard_normal((anchors, classes + 1)) * 2
    logits[:, 0] += 6
    scores = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    inputs = {"boxes": spread_boxes(anchors), "scores": scores.astype(np.float32)}
    return nodes + batched(classes, "all"), constants, inputs, OUTPUTS


def retinanet():
    """RetinaNet of torchvision: five levels of anchors x classes, 1000 of each."""
    nodes, classes = [], 90
    sizes = [14400, 3600, 900, 225, 63]
    inputs = {}
    for i, size in enumerate(sizes):
        nodes += [node("Sigmoid", f"logits{i}", f"p{i}"), node("Reshape", f"p{i} flat", f"s{i}"),
                  *filtered(i, "most"),
                  node("Div", f"place{i} classes", f"anchor{i}"),
                  node("Mod", f"place{i} classes", f"label{i}"),
                  node("Gather", f"anchors{i} anchor{i}", f"box{i}")]
        inputs |= {f"logits{i}": (RANDOM.standard_normal((size, classes)) * 1.5 - 5).astype(
            np.float32), f"anchors{i}": spread_boxes(size)}
    constants = {**CONSTANTS, "most": ints(1000), "iou": np.float32([0.5]), "all": ints(300),
                 "classes": np.array(classes), "low": np.float32(0.05)}
    return nodes + batched(len(sizes), "all"), constants, inputs, OUTPUTS


def faster_rcnn():
    """Faster R-CNN's last part: 1000 proposals of 90 classes, taken together."""
    proposals, classes = 1000, 90
    nodes = [node("Reshape", "scores flat", "s0"), *filtered(0, "most"),
             node("Gather", "boxes place0", "box0"), node("Mod", "place0 classes", "label0")]
    constants = {**CONSTANTS, "most": ints(proposals * classes), "iou": np.float32([0.5]),
                 "all": ints(100), "classes": np.array(classes), "low": np.float32(0.05)}
    scores = np.exp(RANDOM.standard_normal((proposals, classes)) * 2)
    inputs = {"boxes": spread_boxes(proposals * classes),
              "scores": (scores / scores.sum(1, keepdims=True)).astype(np.float32)}
    return nodes + batched(1, "all"), constants, inputs, OUTPUTS


MODELS = {f.__name__: f for f in (spread, crowded, yolo, ssdlite, retinanet, faster_rcnn)}


def write(name, folder):
    nodes, constants, inputs, outputs = MODELS[name]()
    graph = helper.make_graph(
        nodes, folder.name,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for n, x in inputs.items()],
        [helper.make_tensor_value_info(
            n, TensorProto.INT64 if n in ("selected", "labels_kept") else TensorProto.FLOAT,
            None) for n in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    cases.save(folder, graph, inputs)


if __name__ == "__main__":
    cases.main(MODELS, write)
