"""A small model for each operator whose nodes in files per rank are no copies of it
(run_rank_ops.py): running products, bits, suppressions, regions, trees, long loops, outputs
whose sizes are data. Of each: the model, its inputs, and names of nodes by the dim of their
first operand that ranks split.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import random_trees

F32, F64, I32, I64, BOOL = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32,
                            TensorProto.INT64, TensorProto.BOOL)
RANDOM = np.random.default_rng(38)


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def node(op, inputs, outputs, **attributes):
    name = attributes.pop("name", outputs.split()[0])
    return helper.make_node(op, inputs.split(), outputs.split(), name=name, **attributes)


def model(nodes, constants, inputs, outputs, opset=23, domains=()):
    """`outputs`: (name, type, dims)."""
    graph = helper.make_graph(
        nodes, "ops",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype),
                                       value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info(*output) for output in outputs],
        [numpy_helper.from_array(np.asarray(value), name)
         for name, value in constants.items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", opset), *(helper.make_opsetid(*d) for d in domains)]), inputs


def running():
    nodes = [node("CumProd", "x last", "a"), node("CumProd", "x last", "b", exclusive=1),
             node("CumProd", "x first", "c", reverse=1), node("CumSum", "k first", "d"),
             node("CumProd", "k last", "e", exclusive=1, reverse=1)]
    inputs = {"x": real(4, 6), "k": RANDOM.integers(-3, 4, (4, 6))}
    return model(nodes, {"first": np.int64(0), "last": np.int64(1)}, inputs,
                 [(name, I64 if name in "de" else F32, (4, 6)) for name in "abcde"], 26)


def bits():
    """Signs by their bit, and back."""
    nodes = [node("BitCast", "x", "i", to=I32), node("BitwiseXor", "i sign", "j"),
             node("BitCast", "j", "y", to=F32), node("BitCast", "x", "z", to=TensorProto.UINT32)]
    values = real(4, 6)
    values[0, :4] = [0.0, -0.0, np.inf, 1e-40]
    return model(nodes, {"sign": np.int32(-2 ** 31)}, {"x": values},
                 [("j", I32, (4, 6)), ("y", F32, (4, 6)), ("z", TensorProto.UINT32, (4, 6))], 26)


def boxes_of(*shape):
    low = np.abs(real(*shape, 2)) * 6
    return np.concatenate([low, low + np.abs(real(*shape, 2)) * 4 + 0.5], -1)


def suppressed(center=0, most=5):
    """Boxes that are kept, as many as there are, and their scores added up by class."""
    nodes = [node("NonMaxSuppression", "b s most iou low", "kept", center_point_box=center),
             node("GatherND", "s kept", "best"),
             node("Slice", "kept zero two one", "rows"),
             node("ScatterND", "empty rows best", "sums", reduction="add")]
    constants = {"most": np.int64([most]), "iou": np.float32([0.3]),
                 "low": np.float32([-0.5]), "zero": np.int64([0]), "one": np.int64([1]),
                 "two": np.int64([2]), "empty": np.zeros((2, 3), np.float32)}
    scores = np.round(real(2, 3, 40), 1)  # some are equal
    return model(nodes, constants, {"b": boxes_of(2, 40), "s": scores},
                 [("kept", I64, ("n", 3)), ("best", F32, ("n",)), ("sums", F32, (2, 3))])


def regions(mode="avg"):
    """Several pictures, so that a rank may have some of them."""
    nodes = [node("RoiAlign", "x r p", "y", mode=mode, output_height=2, output_width=3,
                  spatial_scale=0.5), node("Relu", "y", "z")]
    rois = boxes_of(6) * 2
    rois[4] = rois[4][[2, 3, 0, 1]]  # no region
    # ONNX Runtime has RoiAlign up to opset 21.
    return model(nodes, {"r": rois.astype(np.float32),
                         "p": np.int64([0, 3, 1, 2, 0, 1])}, {"x": real(4, 4, 9, 8)},
                 [("z", F32, (6, 4, 2, 3))], 21)


def trees():
    made = random_trees.Forest(RANDOM, 6, 2, [0])
    x = RANDOM.integers(-1, 5, (12, 4)).astype(np.float32)
    x[3, 1] = x[7, 2] = np.nan
    nodes = [helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], name="y",
                              domain="ai.onnx.ml", **made.regressor(missing=True))]
    return model(nodes, {}, {"x": x}, [("y", F32, (12, 2))], 21, [("ai.onnx.ml", 3)])


def scanned(trips=300):
    """More trips than files write out: a layer that reads itself, and rows."""
    body = helper.make_graph(
        [node("MatMul", "h w", "hw"), node("Add", "hw row", "s"), node("Tanh", "s", "next"),
         node("ReduceMean", "next axes", "out", keepdims=0)], "body",
        [helper.make_tensor_value_info("h", F32, (4, 6)),
         helper.make_tensor_value_info("row", F32, (4, 6))],
        [helper.make_tensor_value_info("next", F32, (4, 6)),
         helper.make_tensor_value_info("out", F32, (4,))])
    nodes = [helper.make_node("Scan", ["x", "rows"], ["last", "all"], name="scan",
                              num_scan_inputs=1, body=body), node("Relu", "last", "y")]
    return model(nodes, {"w": real(6, 6) / 4, "axes": np.int64([1])},
                 {"x": real(4, 6), "rows": real(trips, 4, 6)},
                 [("y", F32, (4, 6)), ("all", F32, (trips, 4))])


def looped(trips=1100):
    """A loop that scans nothing."""
    body = helper.make_graph(
        [node("Identity", "go", "on"), node("MatMul", "h w", "hw"), node("Sin", "hw", "next")],
        "body",
        [helper.make_tensor_value_info("i", I64, ()),
         helper.make_tensor_value_info("go", BOOL, ()),
         helper.make_tensor_value_info("h", F32, (4, 6))],
        [helper.make_tensor_value_info("on", BOOL, ()),
         helper.make_tensor_value_info("next", F32, (4, 6))])
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], name="loop", body=body)]
    return model(nodes, {"w": real(6, 6) / 2, "trips": np.int64(trips)},
                 {"x": real(4, 6)}, [("y", F32, (4, 6))])


def chosen():
    """Outputs whose sizes are data: two dims of one count, and one that is empty."""
    nodes = [node("Greater", "x zero", "m"), node("NonZero", "m", "places"),
             node("Compress", "x c", "rows", axis=0), node("MatMul", "rows turned", "square"),
             node("Transpose", "rows", "turned"), node("Greater", "x big", "none"),
             node("NonZero", "none", "nowhere"), node("Add", "x x", "twice")]
    inputs = {"x": real(8, 6), "c": np.array([1, 0, 0, 1, 1, 0, 1, 0], bool)}
    order = [nodes[i] for i in (0, 1, 2, 4, 3, 5, 6, 7)]
    return model(order, {"zero": np.float32(0), "big": np.float32(99)}, inputs,
                 [("places", I64, (2, "n")), ("rows", F32, ("r", 6)),
                  ("square", F32, ("r", "r")), ("nowhere", I64, (2, "e")),
                  ("twice", F32, (8, 6))])


def averaged():
    """Rows of a picture, of whose windows a rank has some that begin in its halo."""
    nodes = [node("AveragePool", "x", "y", kernel_shape=[3, 3], strides=[2, 2],
                  pads=[1, 1, 1, 1]),
             node("AveragePool", "x", "z", kernel_shape=[2, 2], strides=[3, 3],
                  dilations=[2, 2], pads=[1, 0, 1, 1])]
    return model(nodes, {}, {"x": real(2, 4, 10, 10)},
                 [("y", F32, (2, 4, 5, 5)), ("z", F32, (2, 4, 4, 3))])


MODELS = {
    "running": running, "bits": bits, "suppressed": suppressed,
    "suppressed_centers": lambda: suppressed(1, 100), "regions": regions,
    "regions_largest": lambda: regions("max"), "trees": trees, "scanned": scanned,
    "looped": looped, "chosen": chosen, "averaged": averaged}
