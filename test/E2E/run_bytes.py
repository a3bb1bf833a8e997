#!/usr/bin/env python3
"""Products and convolutions of 8-bit integers (MatMulInteger, ConvInteger, QLinearConv) on 1, 2
and 3 ranks: the bits of NumPy's sums in 64 bits, scaled in f32, with numbers that saturate where
a CPU adds two products in 16. ONNX Runtime is no judge: its products saturate on CPUs without
VNNI.

A sweep: the quick tier has each product on each kind of engine once, and a tenth of the others.

usage: run_bytes.py PARTITA [NAME…]
"""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tier

#: The way that each rank computes: as this CPU, as one of 256-bit vectors, by plain loops.
WAYS = {
    "cpu": ([], {}),
    "avx2": (["--target-cpu", "x86-64-v3"], {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "plain": (["--target", "plain"], {}),
}
IMAGE_MESHES = {
    "one rank": [],
    "images": ["--mesh", "d=2"],
    "rows": ["--mesh", "d=2", "--hints", {"a": [None, None, "d", None]}],
    "channels": ["--mesh", "d=2", "--hints", {"y": [None, "d", None, None]}],
    "summands": ["--mesh", "d=2", "--hints", {"a": [None, "d", None, None]}],
}
MESHES = {
    "one rank": [],
    "rows": ["--mesh", "d=2", "--hints", {"a": ["d", None]}],
    "columns": ["--mesh", "d=3", "--hints", {"b": [None, "d"]}],
    "summands": ["--mesh", "d=2", "--hints", {"a": [None, "d"], "b": ["d", None]}],
    "both": ["--mesh", "d=2,e=3", "--hints", {"a": ["d", None], "b": [None, "e"]}],
}


def extremes(random, shape, dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = random.integers(low, high + 1, shape)
    values = np.where(random.random(shape) < 0.3, high, values)
    return np.where(random.random(shape) < 0.3, low, values).astype(dtype)


def cases():
    """Name, a, b, the zero points, and whether b is a weight."""
    random = np.random.default_rng(1)
    for left, right in itertools.product([np.uint8, np.int8], repeat=2):
        a, b = extremes(random, (7, 37), left), extremes(random, (37, 29), right)
        kinds = f"{left.__name__}_{right.__name__}"
        za, zb = extremes(random, (), left), extremes(random, (), right)
        yield f"{kinds}_plain", a, b, None, None, True
        yield f"{kinds}_both", a, b, za, zb, True
        yield f"{kinds}_computed", a, b, za, zb, False
    a, b = extremes(random, (5, 131), np.uint8), extremes(random, (131, 50), np.int8)
    yield "rows_and_columns", a, b, extremes(random, (5,), np.uint8), \
        extremes(random, (50,), np.int8), True
    yield "known_zero", a, b, np.uint8(3), np.int8(0), True
    many = extremes(random, (2, 3, 5, 131), np.uint8)
    yield "batch_of_one_weight", many, b, np.uint8(7), np.int8(-2), True
    yield "batches", many, extremes(random, (3, 131, 4), np.int8), np.uint8(7), np.int8(9), \
        False
    yield "row", a[0], b, np.uint8(200), np.int8(5), True
    yield "column", a, b[:, 0], np.uint8(200), np.int8(5), True
    yield "long", extremes(random, (2, 70000), np.uint8), \
        extremes(random, (70000, 3), np.int8), np.uint8(255), np.int8(-128), True


def images():
    """Name, image, filter, the zero points, and attributes; the filter is a weight."""
    random = np.random.default_rng(2)
    for left, right in itertools.product([np.uint8, np.int8], repeat=2):
        x, w = extremes(random, (2, 5, 9, 8), left), extremes(random, (6, 5, 3, 3), right)
        kinds = f"conv_{left.__name__}_{right.__name__}"
        yield f"{kinds}_plain", x, w, None, None, {}
        yield f"{kinds}_both", x, w, extremes(random, (), left), extremes(random, (), right), \
            {"pads": [1, 1, 1, 1]}
    x = extremes(random, (1, 8, 12, 12), np.uint8)
    w = extremes(random, (12, 8, 3, 3), np.int8)
    yield "conv_padded", x, w, np.uint8(77), None, {"pads": [1, 0, 2, 1], "strides": [2, 1]}
    yield "conv_same", x, w, np.uint8(77), None, {"auto_pad": "SAME_UPPER"}
    yield "conv_dilated", x, w, np.uint8(3), np.int8(0), {"dilations": [2, 2]}
    yield "conv_channels", x, w, np.uint8(3), extremes(random, (12,), np.int8), \
        {"pads": [1, 1, 1, 1]}
    yield "conv_groups", x, w[:, :2], np.uint8(128), None, {"group": 4, "pads": [1, 1, 1, 1]}
    yield "conv_depthwise", x, w[:8, :1], np.uint8(128), None, \
        {"group": 8, "pads": [1, 1, 1, 1]}
    # Fits a signed byte without its zero point, as exporters write filters of u8.
    yield "conv_shifted", x, (w.astype(np.int16) // 2 + 128).astype(np.uint8), np.uint8(3), \
        np.uint8(128), {"pads": [1, 1, 1, 1]}
    yield "conv_point", x, w[:, :, :1, :1], np.uint8(255), None, {}
    yield "conv_row", x[:, :, 0], w[:, :, 0], np.uint8(255), None, {"pads": [1, 1]}


def requantized():
    """Name, image, filter, the zero points, attributes, and how QLinearConv scales: scales of
    image, filter and result, the result's zero point, and a bias."""
    random = np.random.default_rng(3)
    x = extremes(random, (1, 8, 12, 12), np.uint8)
    w = extremes(random, (12, 8, 3, 3), np.int8)
    few = np.float32(2) ** random.integers(-9, -5, 12).astype(np.float32)
    many = random.uniform(1e-3, 2e-2, 12).astype(np.float32)
    bias = random.integers(-20000, 20000, 12).astype(np.int32)
    same = {"pads": [1, 1, 1, 1]}
    # Powers of two put many sums halfway between two numbers.
    yield "qconv_halves", x, w, np.uint8(77), None, same, \
        (np.float32(0.25), few, np.float32(0.5), np.uint8(135), bias)
    yield "qconv_signed", x.view(np.int8), w, np.int8(-3), None, same, \
        (np.float32(0.02), many, np.float32(0.1), np.int8(-5), bias)
    yield "qconv_point", x, w[:, :, :1, :1], np.uint8(0), None, {}, \
        (np.float32(0.02), many, np.float32(0.01), np.uint8(0), bias)
    yield "qconv_one_scale", x, w, np.uint8(9), None, {"strides": [2, 2]}, \
        (np.float32(0.02), np.float32(0.003), np.float32(0.02), np.uint8(128), None)
    yield "qconv_depthwise", np.repeat(x, 2, 1), np.repeat(w[:8, :1], 2, 0), np.uint8(128), \
        None, {"group": 16, **same}, (np.float32(0.02), np.float32(0.003), np.float32(0.01),
                                      np.uint8(3), None)


def scaled(sums, scales, x):
    """Results of QLinearConv from sums, by its formula in f32."""
    ofX, ofW, ofY, zero, bias = scales
    column = (-1, *[1] * (x.ndim - 2))
    if bias is not None:
        sums = sums + bias.reshape(column)
    factor = (ofX * ofW) / ofY
    y = np.rint(sums.astype(np.float32) * np.reshape(factor, column)) + np.float32(zero)
    limits = np.iinfo(zero.dtype)
    return np.clip(y, limits.min, limits.max).astype(zero.dtype)


def convolved(x, w, zx, zw, attributes):
    x, w = x.astype(np.int64), w.astype(np.int64)
    if zx is not None:
        x = x - int(zx)
    if zw is not None:
        w = w - zw.astype(np.int64).reshape(-1, *[1] * (w.ndim - 1))
    n, kernel, group = x.ndim - 2, w.shape[2:], attributes.get("group", 1)
    strides = attributes.get("strides", [1] * n)
    dilations = attributes.get("dilations", [1] * n)
    pads = attributes.get("pads", [0] * 2 * n)
    if "auto_pad" in attributes: # strides of 1
        total = [(k - 1) * d for k, d in zip(kernel, dilations)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:n], pads[n:])])
    out = [(size - (k - 1) * d - 1) // s + 1
           for size, k, d, s in zip(x.shape[2:], kernel, dilations, strides)]
    y = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    each, own = w.shape[0] // group, w.shape[1]
    for tap in itertools.product(*map(range, kernel)):
        at = tuple(slice(t * d, t * d + (o - 1) * s + 1, s)
                   for t, d, o, s in zip(tap, dilations, out, strides))
        for g in range(group):
            y[:, g * each:(g + 1) * each] += np.einsum(
                "nc...,oc->no...", x[(slice(None), slice(g * own, (g + 1) * own), *at)],
                w[(slice(g * each, (g + 1) * each), slice(None), *tap)])
    return y.astype(np.int32)


def exact(a, b, za, zb):
    a, b = a.astype(np.int64), b.astype(np.int64)
    if za is not None:
        za = za.astype(np.int64)
        a = a - (za[:, None] if za.ndim else za)
    if zb is not None:
        b = b - zb.astype(np.int64)
    return np.matmul(a, b).astype(np.int32)  # modulo 2^32


def write(path, a, b, za, zb, is_weight, attributes=None, scales=None):
    feeds = {"a": a} if is_weight else {"a": a, "b": b}
    constants = {"b": b} if is_weight else {}
    names = ["a", "b", "", ""]
    for i, (name, value) in enumerate([("za", za), ("zb", zb)]):
        if value is not None:
            constants[name], names[2 + i] = np.asarray(value), name
    kind, result = "MatMulInteger" if attributes is None else "ConvInteger", "INT32"
    if scales:
        kind, result = "QLinearConv", "UINT8" if scales[3].dtype == np.uint8 else "INT8"
        for name, value in zip(["sa", "sb", "sy", "zy", "bias"], scales):
            if value is not None:
                constants[name] = np.asarray(value)
        for name, value in [("za", np.zeros((), a.dtype)), ("zb", np.zeros((), b.dtype))]:
            constants.setdefault(name, value)
        names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy",
                 "bias" if "bias" in constants else ""]
    while not names[-1]:
        names.pop()
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in feeds.items()]
    graph = helper.make_graph(
        [helper.make_node(kind, names, ["y"], "product", **(attributes or {}))], "main", info,
        [helper.make_tensor_value_info("y", getattr(onnx.TensorProto, result), None)],
        [numpy_helper.from_array(x, n) for n, x in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return feeds


def run(partita, work, path, feeds, options, environment, outputs=1):
    """The first outputs of a model."""
    given = []
    for option in options:
        if isinstance(option, dict):
            (work / "hints.json").write_text(json.dumps({"tensors": option}))
            option = work / "hints.json"
        given.append(option)
    inputs = work / "inputs"
    inputs.mkdir(exist_ok=True)
    for i, (name, value) in enumerate(feeds.items()):
        (inputs / f"input_{i}.pb").write_bytes(
            numpy_helper.from_array(value, name).SerializeToString())
    for command in (["compile", path, "-o", work / "bundle", "--force", *given],
                    ["run", work / "bundle", "--inputs-dir", inputs, "--outputs-dir",
                     work / "outputs"]):
        done = subprocess.run([str(x) for x in [partita, *command]], capture_output=True,
                              text=True, env={**os.environ, **environment})
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
    return [numpy_helper.to_array(onnx.load_tensor(work / "outputs" / f"output_{i}.pb"))
            for i in range(outputs)]


def meshes_of(a, b, attributes=None):
    """Name and options of each mesh. Hints are for matrices, and for images of two dims and one
    group; others are split as the compiler likes, once on each mesh."""
    is_image = attributes is not None
    ranks = 4 if is_image else 2
    is_hinted = a.ndim == b.ndim == ranks and not (is_image and "group" in attributes)
    seen = []
    for mesh, options in (IMAGE_MESHES if is_image else MESHES).items():
        given = options if is_hinted else options[:2]
        if given not in seen:
            seen.append(given)
            yield mesh, given


def everything():
    """Every case: name, operands, bits that are expected, way, mesh, the mesh's options."""
    models = [(name, (a, b, za, zb, is_weight), exact(a, b, za, zb), meshes_of(a, b))
              for name, a, b, za, zb, is_weight in cases()]
    models += [(name, (x, w, zx, zw, True, attributes), convolved(x, w, zx, zw, attributes),
                meshes_of(x, w, attributes)) for name, x, w, zx, zw, attributes in images()]
    models += [(name, (x, w, zx, zw, True, attributes, scales),
                scaled(convolved(x, w, zx, zw, attributes), scales, x),
                meshes_of(x, w, attributes))
               for name, x, w, zx, zw, attributes, scales in requantized()]
    for name, operands, expected, meshes in models:
        for (mesh, given), way in itertools.product(meshes, WAYS):
            yield name, operands, expected, way, mesh, given


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    taken = list(everything())
    if wanted:
        taken = [case for case in taken if case[0] in wanted]
    else:
        taken = tier.sample("bytes", taken, kind=lambda case: (case[0], case[3]))
    failed = 0
    for name, operands, expected, way, mesh, given in taken:
        options, environment = WAYS[way]
        with tempfile.TemporaryDirectory(prefix="partita-bytes-") as folder:
            work = pathlib.Path(folder)
            feeds = write(work / "model.onnx", *operands)
            try:
                [got] = run(partita, work, work / "model.onnx", feeds, [*options, *given],
                            environment)
                wrong = np.count_nonzero(got != expected)
                if got.shape != expected.shape or wrong:
                    raise RuntimeError(f"{wrong} of {expected.size} differ")
            except RuntimeError as error:
                failed += 1
                print(f"{name}, {way}, {mesh}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {len(taken) - failed} of {len(taken)} equal")
    return 1 if failed or not taken else 0


if __name__ == "__main__":
    sys.exit(main())
