#!/usr/bin/env python3
"""Forms of ONNX's operators, of every age, that its own tests do not have. All forms of an
opset are one model, which runs on 1, 2 and 3 ranks whose messages cost nothing: each is
equal to ONNX Runtime by equality.py, and divided on 2 where it can be.

usage: run_forms.py PARTITA [NAME…]
"""
import collections
import json
import pathlib
import re
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import equality
from random_trees import Forest
from run_contrib import RANDOM, call, ints, positive, real
from run_nodes import FREE

#: `inputs` by position (None: absent; in a tuple: an initializer). `expected` where ONNX
#: Runtime has no kernel for the types, or none that numpy can be given to, or reads the
#: operator in another way (docs/onnx-forms.md); REFERENCE: what ONNX's reference computes.
Form = collections.namedtuple(
    "Form", "name opset operator inputs attributes outputs isDivided expected")


REFERENCE = "reference"


def form(name, opset, operator, *inputs, outputs=1, isDivided=True, expected=None,
         **attributes):
    return Form(name, opset, operator, inputs, attributes, outputs, isDivided, expected)


def floats(*values, dtype=np.float32):
    return np.array(values, dtype)


def unpooled():
    """Places count in the result, as they come out of a MaxPool of such a picture."""
    x = real(2, 3, 2, 2)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    for rows, columns in ((4, 4), (5, 5), (5, 6), (4, 7)):
        places = np.array([[0, 2], [2 * columns + 1, 3 * columns + 3]])
        places = places + rows * columns * np.arange(6).reshape(2, 3, 1, 1)
        yield form(f"unpool_{rows}_{columns}", 22, "MaxUnpool", x, places,
                   (ints([2, 3, rows, columns]),), **window)


def regions():
    """A picture, and regions that lie inside, across the border and beyond it."""
    rois = floats([0.3, 0.5, 4.2, 5.1], [1, 2, 6, 7], [-3, -2, 2, 3], [5, 5, 12, 11])
    return real(2, 3, 8, 9), rois, ints([0, 1, 0, 1])


def sampling():
    for mode in ("avg", "max"):
        yield form(f"roi_old_{mode}", 10, "RoiAlign", *regions(), mode=mode,
                   sampling_ratio=2, output_height=3, output_width=2, spatial_scale=0.7)
    # As many samples as the regions are long: also none, and thousands outside.
    picture, rois, pictures = regions()
    more = floats([4, 4, 2, 2], [0, 0, 8, 7], [-4000, -2, 9000, 1], [1, 1, 1, 1.5])
    rois, pictures = np.concatenate([rois, more]), np.concatenate([pictures, pictures])
    for mode in ("avg", "max"):
        for half in ("half_pixel", "output_half_pixel"):
            for name, scale in (("", 1.0), ("_scaled", 0.7)):
                yield form(f"roi_{mode}_{half}{name}", 16, "RoiAlign", picture, rois,
                           pictures, mode=mode, coordinate_transformation_mode=half,
                           output_height=3, output_width=2, spatial_scale=scale)
    yield form("roi_f64", 16, "RoiAlign", picture.astype(np.float64),
               rois.astype(np.float64), pictures, output_height=2)
    picture = real(2, 3, 7, 6)
    # Along a dim that becomes smaller the next element, along others the one before.
    yield form("resize_10", 10, "Resize", picture, (floats(1, 1, 0.6, 1.7),))
    nothing = (np.zeros(0, np.float32),)
    for mode in ("nearest", "linear", "cubic"):
        yield form(f"resize_tf_{mode}", 11, "Resize", picture, nothing,
                   (floats(1, 1, 1.7, 0.6),), mode=mode,
                   coordinate_transformation_mode="tf_half_pixel_for_nn")
        yield form(f"resize_one_{mode}", 19, "Resize", picture, None, None,
                   (ints([2, 3, 1, 5]),), mode=mode,
                   coordinate_transformation_mode="pytorch_half_pixel")
    # Places that the rounding of f32 puts on an element, or half-way between two.
    yield form("resize_floor", 11, "Resize", real(2, 3, 10, 9), nothing,
               (floats(1, 1, 0.6, 1.7),), nearest_mode="floor",
               coordinate_transformation_mode="asymmetric")
    for rounding in ("floor", "ceil"):
        yield form(f"resize_corners_{rounding}", 13, "Resize", real(2, 3, 2, 5), None, None,
                   (ints([2, 3, 50, 7]),), nearest_mode=rounding,
                   coordinate_transformation_mode="align_corners")
    yield form("resize_ties", 19, "Resize", picture, (floats(0.2, 0.1, 0.8, 1.3),), None,
               (ints([4, 7]),), axes=[2, 3], extrapolation_value=9.0,
               coordinate_transformation_mode="tf_crop_and_resize")
    grid = (1.3 * real(2, 4, 5, 2)).astype(np.float32)
    for padding in ("zeros", "border", "reflection"):
        for aligned in (0, 1):
            more = {"padding_mode": padding, "align_corners": aligned}
            yield form(f"grid_{padding}_{aligned}", 20, "GridSample", picture, grid,
                       mode="cubic", **more)
            yield form(f"grid_row_{padding}_{aligned}", 20, "GridSample", real(2, 3, 1, 6),
                       grid, mode="linear", **more)
    # ONNX Runtime has the only row of an aligned grid at 1; by ONNX's definition it is the
    # first one, at -1.
    theta = real(2, 2, 3)
    points = np.stack([np.linspace(-1, 1, 5), -np.ones(5), np.ones(5)]).astype(np.float32)
    yield form("affine_row", 20, "AffineGrid", theta, (ints([2, 3, 1, 5]),), align_corners=1,
               expected=[(theta @ points).transpose(0, 2, 1)[:, None]])


def reductions():
    inf = np.inf
    rows = floats([1, inf, 2], [inf, -inf, 5], [-inf] * 3, [inf] * 3, [100, 99, -inf])
    for keep in (0, 1):
        yield form(f"log_sum_{keep}", 18, "ReduceLogSumExp", rows, (ints([1]),),
                   keepdims=keep)
    yield form("log_sum_u32", 18, "ReduceLogSumExp", ints([[0, 4, 2], [3, 1, 3]], np.uint32),
               (ints([1]),))
    for dtype in (np.int8, np.int32, np.int64):
        for op in ("ReduceMax", "ReduceMin"):
            yield form(f"{op}_none_{np.dtype(dtype).name}", 20, op, np.zeros((2, 0), dtype),
                       (ints([1]),), isDivided=False)
    for p in (1, 2, 3):
        yield form(f"global_lp_{p}", 11, "GlobalLpPool", real(2, 3, 4, 5), p=p)
    wide = [real(2, 3, 4), positive(2, 3, 4), real(2, 1, 4)]
    yield form("layer_norm_rows", 17, "LayerNormalization", *wide)
    yield form("layer_norm_row", 17, "LayerNormalization", real(2, 3, 4), positive(4),
               real(3, 1))
    yield form("rms_norm_rows", 23, "RMSNormalization", *wide[:2])
    # The judge of f16 evaluates the moments as well.
    half = real(3, 8).astype(np.float16)
    yield form("layer_norm_moments", 17, "LayerNormalization", half,
               positive(8).astype(np.float16), real(8).astype(np.float16), outputs=3)
    # ONNX leaves the mean of nothing open.
    for dtype in (np.float32, np.int64):
        name = f"mean_none_{np.dtype(dtype).name}"
        yield form(name, 18, "ReduceMean", np.zeros((2, 0), dtype), (ints([1]),),
                   isDivided=False)
    yield form("rms_norm_ones", 23, "RMSNormalization", wide[0], positive(1, 3, 4), axis=1)


def scalars():
    yield form("acosh", 22, "Acosh",
               floats(-1, -2, -1e10, -1e30, -np.inf, 0.5, 1, 1.5, 1e10, 1e30, np.inf))
    quotients = floats(5.3, -5.3, 0, 1, np.inf, 1e8, 1e12, -1e30, 3e38, 7)
    divisors = floats(2, -2, 3, np.inf, 1, 0.7, 3.3, 2.1, 1e-30, 0)
    yield form("fmod", 13, "Mod", quotients, divisors, fmod=1)
    yield form("fmod_f64", 13, "Mod", quotients.astype(np.float64),
               divisors.astype(np.float64), fmod=1)
    for dtype in (np.int32, np.int64):
        most = np.iinfo(dtype).max
        yield form(f"mod_{np.dtype(dtype).name}", 13, "Mod",
                   ints([most - 5, most // 2 + 9, 5 - most, 7, -7, 6, -6], dtype),
                   ints([most, most - 1, most, -3, 3, -3, 3], dtype))
    yield form("power", 15, "Pow", ints([1, 2, 3, 4, 5, 9, 10, 125, -3]),
               floats(0, 1, 2, 3, 2.5, 0.5, 5, 1 / 3, 3))
    # A number that the type does not have is the nearest, NaN is 0.
    none = [np.nan, np.inf, -np.inf, 3e9, -3e9, 300, -5]
    yield form("power_none", 15, "Pow", ints([-3, -4, 4, 9, 0], np.int32), floats(0.5),
               expected=[ints([0, 0, 2, 3, 0], np.int32)])
    yield form("cast_none", 19, "Cast", floats(*none), to=onnx.TensorProto.INT32,
               expected=[ints([0, 2**31 - 1, -2**31, 2**31 - 1, -2**31, 300, -5], np.int32)])
    for value in (0, -0.0, 5, -5):
        name = f"dynamic_{'less' if np.signbit(value) else ''}{abs(value)}"
        yield form(name, 20, "DynamicQuantizeLinear", np.full((4, 6), value, np.float32),
                   outputs=3)
    # A NaN is larger than any number, and of several the first comes first.
    n, inf = np.nan, np.inf
    rows = floats([1, n, 3, 2], [n, n, 1, 0], [n, -inf, inf, n], [4, 3, n, 5])
    for largest in (0, 1):
        for count in (2, 4):
            yield form(f"first_nan_{largest}_{count}", 20, "TopK", rows, (ints([count]),),
                       outputs=2, largest=largest, expected=REFERENCE)
    # Not saturated, what is too large is NaN or an infinity.
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        values = floats(0, 1, -7, 100, 1e6, -1e6, np.inf, np.nan)
        name = np.dtype(dtype).name
        with np.errstate(over="ignore", invalid="ignore"):
            results = (values / np.float32(0.5)).astype(dtype)
        yield form(f"quantize_{name}", 21, "QuantizeLinear", values, np.array(0.5, np.float32),
                   np.array(0, dtype), saturate=0, expected=[results])


def nothing():
    """Dims without elements beside dims of one element, and results without elements."""
    empty = np.zeros((0, 4), np.float32)
    none = {"isDivided": False}
    yield form("column_none", 20, "Reshape", np.zeros((0, 1), np.float32), (ints([0]),),
               **none)
    yield form("turned_none", 20, "Reshape", np.zeros((0, 3), np.float32),
               (ints([1, 3, 0]),), allowzero=1, **none)
    yield form("widened_none", 20, "Unsqueeze", empty, (ints([0, -1]),), **none)
    yield form("tiled_none", 20, "Tile", np.zeros((0, 2), np.float32), (ints([2, 3]),),
               **none)
    yield form("one_hot_none", 20, "OneHot", np.zeros(0, np.int64), (ints(3),),
               (floats(0, 1),), **none)
    yield form("blocks_none", 20, "DepthToSpace", np.zeros((0, 4, 2, 2), np.float32),
               blocksize=2, **none)
    yield form("scatter_none", 20, "ScatterND", real(4, 5), np.zeros((0, 2), np.int64),
               np.zeros(0, np.float32), reduction="add", **none)
    yield form("product_none", 20, "Einsum", empty, real(4, 5), equation="ij,jk->ik", **none)
    yield form("product_empty", 20, "Einsum", empty.T.copy(), empty, equation="ij,jk->ik",
               **none)
    for shape, axes in (((0, 3), (None, 0, 1)), ((0,), (None,))):
        for axis in axes:
            for isSorted in (0, 1):
                more = {} if axis is None else {"axis": axis}
                yield form(f"unique_none_{len(shape)}_{axis}_{isSorted}", 17, "Unique",
                           np.zeros(shape, np.float32), outputs=4, sorted=isSorted, **none,
                           **more)
    # ONNX Runtime ends where slices have no elements.
    yield form("unique_slices_none", 17, "Unique", np.zeros((3, 0), np.float32), outputs=4,
               axis=0, expected=[np.zeros((1, 0), np.float32), ints([0]), ints([0, 0, 0]),
                                 ints([3])], **none)
    yield form("first_none", 20, "TopK", real(4, 5), (ints([0]),), outputs=2, **none)


def products():
    def number(*shape):
        return RANDOM.integers(0, 255, shape).astype(np.uint8)

    one = np.array(1.5, np.float32), np.array(9, np.uint8)
    # Of more dims than two, and of one scale per row of the result.
    yield form("product_stack", 21, "QLinearMatMul", number(2, 3, 5),
               np.array(0.1, np.float32), np.array(3, np.uint8), number(2, 5, 4),
               positive(2, 1, 4), number(2, 1, 4), *one)
    a, b, scale = number(3, 5), number(5, 4), positive(3)
    zero = number(3)
    exact = a.astype(np.float32) @ b.astype(np.float32) / (16 * scale[:, None])
    yield form("product_rows", 21, "QLinearMatMul", a, np.full(3, 0.25, np.float32),
               np.zeros(3, np.uint8), b, np.full(4, 0.25, np.float32), np.zeros(4, np.uint8),
               scale, zero,
               expected=[np.clip(np.rint(exact) + zero[:, None], 0, 255).astype(np.uint8)])


def attention():
    rows = [real(2, 5, 24), real(2, 4, 24), real(2, 4, 24)]
    flags = ints([[0, 0, 0, 0], [1, 0, 1, 1]], np.int32)
    op = "com.microsoft:MultiHeadAttention"
    yield form("heads_none", 17, op, *rows, None, flags, num_heads=3)
    yield form("heads_filter", 17, op, *rows, None, flags, num_heads=3,
               mask_filter_value=-3.0)
    yield form("heads_bias_flags", 17, op, *rows, None, flags, real(2, 3, 5, 4), num_heads=3)
    yield form("heads_lengths", 17, op, *rows, None, ints([3, 1], np.int32), num_heads=3,
               unidirectional=1)
    yield form("heads_packed", 17, op, *rows, None,
               ints([3, 1, 0, 5, 10, 0, 4, 8], np.int32), num_heads=3)


def trees():
    """Trees of every mode, aggregate and transform."""
    op = "ai.onnx.ml:TreeEnsemble"

    def features(dtype=np.float32, missing=False):
        x = RANDOM.integers(-2, 6, (24, 4)).astype(dtype)
        if missing:
            x[RANDOM.random(x.shape) < 0.2] = np.nan
        return x

    for mode in range(7):
        yield form(f"tree_mode_{mode}", 21, op, features(),
                   **Forest(RANDOM, 3, 2, [mode]).ensemble())
    yield form("tree_modes", 21, op, features(), **Forest(RANDOM, 9, 3, range(7)).ensemble())
    yield form("tree_f64", 21, op, features(np.float64),
               **Forest(RANDOM, 3, 2, range(6)).ensemble(np.float64))
    for missing in (False, True):
        yield form(f"tree_missing_{missing}", 21, op, features(missing=True),
                   **Forest(RANDOM, 5, 2, range(6)).ensemble(missing=missing))
    for targets in (1, 3):
        for how, name in enumerate(("average", "sum", "min", "max")):
            forest, x = Forest(RANDOM, 4, targets, range(6), low=0), features()
            for post in range(5):
                attributes = dict(forest.ensemble(), aggregate_function=how)
                one = form(f"tree_{name}_{targets}_{post}", 21, op, x,
                           post_transform=post, **attributes)
                yield one._replace(expected=[transformed(
                    expected_of([form("y", 21, op, x, **attributes)])["y.0"], post)]) \
                    if post < 3 or targets == 1 else one
    op = "ai.onnx.ml:TreeEnsembleRegressor"
    yield form("regressor", 20, op, features(), **Forest(RANDOM, 5, 1, range(6)).regressor())
    for how in ("AVERAGE", "SUM", "MIN", "MAX"):
        # Leaves that say something of several targets, of one, or of none.
        for each in (1, 2, 3):
            yield form(f"regressor_{how}_{each}", 20, op, features(missing=True),
                       **Forest(RANDOM, 3, 3, range(6), each=each).regressor(missing=True),
                       aggregate_function=how, base_values=[0.5, -0.25, 0.125])
    for dtype in (np.float64, np.int32, np.int64):
        one = form(f"regressor_{np.dtype(dtype).name}", 20, op, features(),
                   **Forest(RANDOM, 3, 1, range(6)).regressor())
        yield one._replace(inputs=(one.inputs[0].astype(dtype),),
                           expected=list(expected_of([one]).values()))
    for post in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"):
        yield form(f"regressor_{post}", 20, op, features(),
                   **Forest(RANDOM, 2, 3, range(6), low=0).regressor(), post_transform=post)
    # More trees than go down at once, of ways of different lengths.
    for targets in (1, 3):
        deep = Forest(RANDOM, 19, targets, range(6), depth=7).ensemble(missing=True)
        yield form(f"tree_deep_{targets}", 21, "ai.onnx.ml:TreeEnsemble",
                   features(missing=True), **deep)
    # A label and the scores of its two classes, of one score.
    for post in ("NONE", "LOGISTIC"):
        yield form(f"linear_one_{post}", 20, "ai.onnx.ml:LinearClassifier", real(24, 3),
                   coefficients=[1.0, -2.0, 0.5], intercepts=[0.25], post_transform=post,
                   classlabels_ints=[4, 7], outputs=2)
    yield form("svm_linear", 20, "ai.onnx.ml:SVMClassifier", real(24, 3), rho=[0.25],
               coefficients=[*map(float, real(9))], classlabels_ints=[4, 7, 9],
               kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0], outputs=2)
    yield form("features", 20, "ai.onnx.ml:FeatureVectorizer", real(24, 3),
               real(24, 2), inputdimensions=[3, 2])
    keys = dict(keys_floats=[1.0, float("nan"), 2.0], values_floats=[0.5, 7.0, -1.0])
    x = RANDOM.choice(floats(1, 2, 3, np.nan), (24, 3))
    yield form("encoded", 21, "ai.onnx.ml:LabelEncoder", x, **keys, default_float=9.0)
    yield form("imputed_integers", 20, "ai.onnx.ml:Imputer",
               ints(RANDOM.integers(-1, 3, (24, 3))), imputed_value_int64s=[5, 6, 7],
               replaced_value_int64=-1)


def transformed(scores, post):
    """Scores [rows, targets] as ONNX's definition has the first three transforms, and ONNX
    Runtime, which swaps two of them and does none but the last to a single target, has
    the others."""
    if post == 0:
        return scores
    if post == 2:
        return (1 / (1 + np.exp(-scores))).astype(scores.dtype)
    e = np.exp(scores - scores.max(1, keepdims=True))
    if post == 4:
        x = 2 * scores.astype(np.float64) - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log((1 - x) * (1 + x))
        half = 2 / (np.pi * 0.147) + log / 2
        root = np.sqrt(np.sqrt(half**2 - log / 0.147) - half)
        return (np.sqrt(2) * np.sign(x) * root).astype(scores.dtype)
    if post == 3:
        e = np.where(scores == 0, 0, e)
    return (e / e.sum(1, keepdims=True)).astype(scores.dtype)


def recurrences():
    """All that a linear attention may be given, and a convolution that remembers."""
    batch, steps, keys, values = 2, 5, 4, 3
    for rule in ("linear", "gated", "delta", "gated_delta"):
        for heads, own in ((2, 2), (4, 2), (3, 1)):
            for isLong in (0, 1):
                decay = -positive(batch, steps, own * (keys if isLong else 1)) \
                    if "gated" in rule else None
                rate = np.tanh(positive(batch, steps, own if isLong else 1)) \
                    if "delta" in rule else None
                past = real(batch, own, keys, values) if isLong else None
                yield form(f"linear_{rule}_{heads}_{own}_{isLong}", 27, "LinearAttention",
                           real(batch, steps, heads * keys),
                           real(batch, steps, own * keys) / 2,
                           real(batch, steps, own * values), past, decay, rate, outputs=2,
                           expected=REFERENCE, q_num_heads=heads, kv_num_heads=own,
                           update_rule=rule, scale=0.3 * isLong)
    for extent in (1, 3, 7):
        for activation in ("none", "silu", "swish"):
            for bias, past in ((None, None), (real(4), None), (None, real(2, 4, extent - 1)),
                               (real(4), real(2, 4, extent - 1))):
                name = f"remembering_{extent}_{activation}_{bias is None}_{past is None}"
                yield form(name, 27, "CausalConvWithState", real(2, 4, 5),
                           real(4, 1, extent), bias, past, outputs=2, expected=REFERENCE,
                           activation=activation)


def lookups():
    # A long axis that no number of groups divides, and many of it; equal elements.
    steps = np.round(real(1009, 2) * 8).astype(np.float32)
    for largest in (0, 1):
        yield form(f"top_uneven_{largest}", 17, "TopK", steps, (ints([200]),), outputs=2,
                   axis=0, largest=largest)
        yield form(f"top_quarter_{largest}", 17, "TopK",
                   RANDOM.integers(-99, 99, (3, 1000)), (ints([250]),), outputs=2,
                   largest=largest)
        # Few of rows that are filled up: behind all, before some, with a NaN, with one element.
        tails = [np.concatenate([np.round(real(60 - k) * 4), np.full(k, value)])
                 for k, value in ((30, -np.inf), (30, np.inf), (20, 0), (59, 1), (60, 2))]
        many = np.stack(tails * 14 + [np.where(real(60) > 1.5, np.nan, real(60))] * 2)
        for count in (3, 15, 60):
            yield form(f"top_filled_{largest}_{count}", 20, "TopK", many.astype(np.float32),
                       (ints([count]),), outputs=2, largest=largest, expected=REFERENCE)
    # Long rows, of which a sample tells where the first end: wrongly, if every fourth is
    # of the first.
    for often in (1, 4):
        long = RANDOM.permuted(np.arange(2 * 8192).reshape(2, 8192), axis=1)
        long[:, ::often] += 2 ** 20 * (often > 1)
        for dtype in (np.float32, np.int64):
            yield form(f"top_sampled_{often}_{dtype.__name__}", 17, "TopK",
                       long.astype(dtype), (ints([100]),), outputs=2)
    for more in ({}, {"reverse": 1}, {"exclusive": 1}, {"exclusive": 1, "reverse": 1}):
        name = "_".join(["running", *more])
        yield form(name, 17, "CumSum", real(2, 1009), (ints(1),), **more)
    points = RANDOM.integers(-5, 5, (2, 3, 4, 2))
    yield form("points", 17, "GatherND", real(2, 6, 5, 3), points, batch_dims=1)
    yield form("flags", 17, "GatherND", RANDOM.integers(0, 2, (6, 5, 4)).astype(bool),
               RANDOM.integers(0, 4, (7, 3)))
    yield form("near", 17, "GatherElements", real(5, 6, 4),
               RANDOM.integers(-6, 6, (3, 7, 2)), axis=1)
    order = np.stack([RANDOM.permutation(6)[:4] for _ in range(6)], 1).reshape(4, 3, 2)
    for reduction in ("none", "add", "max"):
        yield form(f"put_{reduction}", 18, "ScatterElements", real(6, 5, 4), order,
                   real(4, 3, 2), axis=0, reduction=reduction)


def nodes_of(forms):
    """Nodes, inputs by name and initializers; the outputs of a form begin with its name."""
    nodes, given, initializers = [], {}, []
    for one in forms:
        names = []
        for i, value in enumerate(one.inputs):
            name = f"{one.name}_{i}" if value is not None else ""
            names.append(name)
            if isinstance(value, tuple):
                initializers.append(numpy_helper.from_array(value[0], name))
            elif value is not None:
                given[name] = value
        domain, _, op = one.operator.rpartition(":")
        nodes.append(helper.make_node(op, names, [f"{one.name}.{k}" for k in
                                                  range(one.outputs)],
                                      one.name, domain=domain, **one.attributes))
    return nodes, given, initializers


def model_of(forms, types):
    nodes, given, initializers = nodes_of(forms)
    graph = helper.make_graph(
        nodes, "main",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for name, x in given.items()],
        [helper.make_tensor_value_info(name, types[name], None) if name in types else
         onnx.ValueInfoProto(name=name) for node in nodes for name in node.output],
        initializers)
    opset = forms[0].opset
    model = helper.make_model(graph, ir_version=8 if opset < 21 else 11, opset_imports=[
        helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1),
        helper.make_opsetid("ai.onnx.ml", 3 if opset < 21 else 5)])
    return model, given


def expected_of(forms):
    """name of an output: what it is to be."""
    results = {}
    for one in forms:
        names = [f"{one.name}.{k}" for k in range(one.outputs)]
        if one.expected is not None and one.expected is not REFERENCE:
            results.update(zip(names, one.expected))
            continue
        model, given = model_of([one], {})
        model = onnx.shape_inference.infer_shapes(model)
        if one.expected is REFERENCE:
            session = ReferenceEvaluator(model)
        else:
            session = onnxruntime.InferenceSession(model.SerializeToString(),
                                                   providers=["CPUExecutionProvider"])
        results.update(zip(names, session.run(names, given)))
    return results


def divided(bundle):
    """The names in the plan of what some loop of is split."""
    plan = json.loads((bundle / "plan.json").read_text())["entries"][0]
    return " ".join(json.dumps(node["names"]) for stage in plan["stages"]
                    for node in stage["nodes"] if re.match(r"\{.+\}", node["strategy"]))


def attempt(partita, work, forms):
    """One message per form that fails."""
    wanted = expected_of(forms)
    types = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in wanted.items()}
    model, given = model_of(forms, types)
    onnx.save(model, work / "model.onnx")
    (work / "inputs").mkdir()
    for i, (name, value) in enumerate(given.items()):
        tensor = numpy_helper.from_array(value, name)
        (work / "inputs" / f"input_{i}.pb").write_bytes(tensor.SerializeToString())
    for ranks in (1, 2, 3):
        bundle, out = work / f"bundle{ranks}", work / f"out{ranks}"
        cluster = {**FREE, "levels": [{**FREE["levels"][0], "size": ranks}]}
        (work / "cluster.json").write_text(json.dumps(cluster))
        call(partita, "compile", work / "model.onnx", "-o", bundle, "--mesh", f"d={ranks}",
             *(["--cluster", work / "cluster.json"] if ranks > 1 else []))
        call(partita, "run", bundle, "--inputs-dir", work / "inputs", "--outputs-dir", out)
        wide = equality.WideResults(partita, [str(bundle)], work / "inputs")
        names = divided(bundle) if ranks == 2 else None
        for k, output in enumerate(model.graph.output):
            try:
                equality.check(equality.load(out / f"output_{k}.pb"), wanted[output.name],
                               wide, k, f"{output.name} on {ranks} ranks")
            except equality.Unequal as error:
                yield output.name.rpartition(".")[0], str(error)
        for one in forms if ranks == 2 else []:
            if one.isDivided and f'"{one.name}' not in names:
                yield one.name, "on 2 ranks nothing is divided"


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    by_opset = collections.defaultdict(list)
    for family in (sampling, unpooled, reductions, scalars, nothing, products, attention,
                   trees, recurrences, lookups):
        for one in family():
            if not wanted or one.name in wanted:
                by_opset[one.opset].append(one)
    failed, count = set(), sum(len(forms) for forms in by_opset.values())
    for opset, forms in sorted(by_opset.items()):
        with tempfile.TemporaryDirectory(prefix="partita-forms-") as work:
            try:
                for name, message in attempt(partita, pathlib.Path(work), forms):
                    failed.add(name)
                    print(f"{name}: {message}", flush=True)
            except equality.Unequal as error:
                failed.update(one.name for one in forms)
                print(f"opset {opset}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {count - len(failed)} of {count} equal")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
