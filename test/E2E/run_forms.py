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

import equality
from run_contrib import RANDOM, call, ints, positive, real
from run_nodes import FREE

#: `inputs` by position (None: absent; in a tuple: an initializer). `expected` where ONNX
#: Runtime has no kernel for the types, or none that numpy can be given to.
Form = collections.namedtuple(
    "Form", "name opset operator inputs attributes outputs isDivided expected")


def form(name, opset, operator, *inputs, outputs=1, isDivided=True, expected=None,
         **attributes):
    return Form(name, opset, operator, inputs, attributes, outputs, isDivided, expected)


def floats(*values, dtype=np.float32):
    return np.array(values, dtype)


def regions():
    """A picture, and regions that lie inside, across the border and beyond it."""
    rois = floats([0.3, 0.5, 4.2, 5.1], [1, 2, 6, 7], [-3, -2, 2, 3], [5, 5, 12, 11])
    return real(2, 3, 8, 9), rois, ints([0, 1, 0, 1])


def sampling():
    for mode in ("avg", "max"):
        yield form(f"roi_old_{mode}", 10, "RoiAlign", *regions(), mode=mode,
                   sampling_ratio=2, output_height=3, output_width=2, spatial_scale=0.7)
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
        helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)])
    return model, given


def expected_of(forms):
    """name of an output: what it is to be."""
    results = {f"{one.name}.{k}": value for one in forms if one.expected
               for k, value in enumerate(one.expected)}
    for one in forms:
        if one.expected:
            continue
        model, given = model_of([one], {f"{one.name}.{k}": onnx.TensorProto.FLOAT
                                        for k in range(one.outputs)}
                                if ":" in one.operator else {})
        model = onnx.shape_inference.infer_shapes(model)
        session = onnxruntime.InferenceSession(model.SerializeToString(),
                                               providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        results.update(zip(names, session.run(names, given)))
    return results


def divided(bundle):
    """The names in the plan of what some loop of is split."""
    plan = json.loads((bundle / "plan.json").read_text())
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
    for family in (sampling, reductions, scalars, nothing, products, attention):
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
