#!/usr/bin/env python3
"""Attention in every form in which exporters write it, as models of one layer's attention:
equal to ONNX Runtime by equality.py, by one thread and by two, with this machine's vectors
and with 256-bit ones. Each is one kernel, but for one with a single query; at four times the
length, four times the memory.

usage: run_attention.py PARTITA [NAME…]
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import equality
from run_contrib import call

RANDOM = np.random.default_rng(3)
LOWEST = np.finfo(np.float32).min


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


class Graph:
    """Nodes as they are made; arrays are initializers."""

    def __init__(self):
        self.nodes, self.initializers, self.inputs = [], [], {}

    def input(self, name, value):
        self.inputs[name] = value
        return name

    def op(self, kind, *operands, outputs=1, domain="", **attributes):
        names = []
        for operand in operands:
            if not isinstance(operand, str):
                tensor = numpy_helper.from_array(np.asarray(operand),
                                                 f"c{len(self.initializers)}")
                self.initializers.append(tensor)
                operand = tensor.name
            names.append(operand)
        results = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, names, results, results[0],
                                           domain=domain, **attributes))
        return results[0]

    def model(self, result, opset):
        first = next(v for v in self.inputs.values() if v.dtype.kind in "fV")
        graph = helper.make_graph(
            self.nodes, "main",
            [helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for n, v in self.inputs.items()],
            [helper.make_tensor_value_info(result, helper.np_dtype_to_tensor_dtype(first.dtype), None)], self.initializers)
        model = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)])
        return model


def operands(g, b, n, s, t, d, width=None, groups=None, dtype=np.float32):
    """Queries, keys and values [B, N, S, D]; of `groups` heads keys and values."""
    width, groups = width or d, groups or n
    return [g.input(name, value.astype(dtype)) for name, value in
            [("q", 2 * real(b, n, s, d)), ("k", real(b, groups, t, d)),
             ("v", real(b, groups, t, width))]]


def plain(g, q, k, v, d, mask=None, cap=None, bias=None, dtype=np.float32):
    """Softmax(q kᵀ / √d …) v."""
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = g.op("Mul", scores, dtype(d ** -0.5))
    if cap:
        scores = g.op("Mul", g.op("Tanh", g.op("Div", scores, dtype(cap))), dtype(cap))
    if bias is not None:
        scores = g.op("Add", scores, bias)
    if mask is not None:
        scores = mask(scores)
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), v)


def causal(s, t, window=None):
    rows, columns = np.arange(t - s, t)[:, None], np.arange(t)[None, :]
    seen = columns <= rows
    return seen & (columns > rows - window) if window else seen


def of_positions(g, s, t):
    """Compared where they are needed: nothing of it is constant to an importer that folds
    nothing larger."""
    start = g.input("start", np.array([t - s], np.int64))
    row = g.op("Unsqueeze", g.op("Add", np.arange(s), start), np.array([1]))
    return g.op("LessOrEqual", np.arange(t)[None, :], row)


def additive(seen, low):
    return np.where(seen, np.float32(0), np.float32(low)).astype(np.float32)


def cases():
    """name: (graph, result, opset)."""
    # Lengths that are no multiple of a block, a vector or a tile; T other than S.
    for s, t, d, width in [(64, 64, 64, 64), (197, 197, 64, 64), (33, 300, 40, 24),
                           (130, 259, 16, 80), (300, 65, 128, 128), (1, 400, 64, 64)]:
        g = Graph()
        yield f"plain_{s}_{t}_{d}_{width}", g, plain(
            g, *operands(g, 1, 3, s, t, d, width), d), 20
    for low in (-np.inf, LOWEST, -1e4):
        g = Graph()
        mask = additive(causal(200, 270), low)[None, None]
        yield f"added_{low:.0e}", g, plain(
            g, *operands(g, 2, 2, 200, 270, 32), 32,
            lambda x: g.op("Add", x, mask)), 20
    # Rows that see nothing: NaN, or all keys alike.
    for low in (-np.inf, LOWEST, -65504):
        g = Graph()
        seen = RANDOM.random((2, 1, 70, 300)) < 0.3
        seen[0, :, 11] = seen[1, :, 40:53] = False
        mask = g.input("mask", additive(seen, low))
        yield f"nothing_{low:.0e}", g, plain(
            g, *operands(g, 2, 2, 70, 300, 32), 32, lambda x: g.op("Add", x, mask)), 20
    g = Graph()
    seen = causal(280, 280) & (RANDOM.random((2, 1, 1, 280)) < 0.7)
    seen[0, 0, :3] = seen[1, 0, 100:140] = False
    flags = g.input("flags", seen)
    yield "nothing_chosen", g, plain(
        g, *operands(g, 2, 2, 280, 280, 32), 32,
        lambda x: g.op("Where", flags, x, np.float32(-1e4))), 20
    g = Graph()
    flags = g.input("flags", ~seen)
    yield "nothing_filled", g, plain(
        g, *operands(g, 2, 2, 280, 280, 32), 32,
        lambda x: g.op("Where", flags, np.float32(-np.inf), x)), 20
    # PyTorch's scaled_dot_product_attention: 0 where a query sees nothing.
    g = Graph()
    q, k, v = operands(g, 1, 2, 90, 90, 32)
    seen = np.tril(np.ones((90, 90), bool))
    seen[7] = False
    scores = g.op("Add", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])),
                  additive(seen, -np.inf))
    weights = g.op("Softmax", scores, axis=-1)
    weights = g.op("Where", g.op("IsNaN", weights), np.float32(0), weights)
    yield "zero_for_nan", g, g.op("MatMul", weights, v), 20
    # Keys of padding, a window, positions, a soft cap, a bias of positions.
    g = Graph()
    ones = np.arange(333)[None] < np.array([[333], [70]])
    mask = g.input("mask", additive(ones, LOWEST)[:, None, None])
    yield "padding", g, plain(g, *operands(g, 2, 3, 100, 333, 64), 64,
                              lambda x: g.op("Add", x, mask)), 20
    g = Graph()
    yield "window", g, plain(
        g, *operands(g, 1, 2, 600, 600, 32), 32,
        lambda x: g.op("Add", x, additive(causal(600, 600, 50), LOWEST))), 20
    g = Graph()
    seen = of_positions(g, 310, 420)
    yield "positions", g, plain(
        g, *operands(g, 1, 3, 310, 420, 32), 32,
        lambda x: g.op("Where", seen, x, np.float32(-np.inf))), 20
    g = Graph()
    seen = of_positions(g, 310, 420)
    mask = g.op("Where", seen, np.float32(0), np.float32(LOWEST))
    yield "soft_cap", g, plain(g, *operands(g, 1, 3, 310, 420, 32), 32,
                               lambda x: g.op("Add", x, mask), cap=5.0), 20
    g = Graph()
    bias = g.input("bias", real(1, 3, 140, 140))
    mask = g.input("mask", additive(causal(140, 140), LOWEST)[None, None])
    yield "bias", g, plain(g, *operands(g, 2, 3, 140, 140, 32), 32,
                           lambda x: g.op("Add", x, mask), bias=bias), 20
    # Groups of heads by Expand, as transformers repeats keys and values.
    for groups in (1, 2):
        g = Graph()
        q, k, v = operands(g, 2, 6, 150, 150, 32, groups=groups)
        k, v = [g.op("Reshape",
                     g.op("Expand", g.op("Unsqueeze", x, np.array([2])),
                          np.array([2, groups, 6 // groups, 150, 32])),
                     np.array([2, 6, 150, 32])) for x in (k, v)]
        mask = additive(causal(150, 150), LOWEST)
        yield f"groups_{groups}", g, plain(g, q, k, v, 32,
                                           lambda x: g.op("Add", x, mask)), 20
    # Heads as parts of a fused projection.
    g = Graph()
    fused = g.input("fused", real(2, 130, 3 * 64))
    parts = [f"part{i}" for i in range(3)]
    g.nodes.append(helper.make_node("Split", [fused], parts, axis=-1, num_outputs=3))
    q, k, v = [g.op("Transpose", g.op("Reshape", x, np.array([2, 130, 4, 16])),
                    perm=[0, 2, 1, 3]) for x in parts]
    y = plain(g, q, k, v, 16, lambda x: g.op("Add", x, additive(causal(130, 130), -1e9)))
    yield "fused", g, g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]),
                           np.array([2, 130, 64])), 20
    # ONNX's operator, and ONNX Runtime's.
    for name, more, dtype in [
            ("causal", {"is_causal": 1}, np.float32),
            ("half", {"is_causal": 1}, np.float16),
            ("cap", {"is_causal": 1, "softcap": 4.0, "scale": 0.3}, np.float32)]:
        g = Graph()
        q, k, v = operands(g, 2, 4, 170, 170, 32, groups=2, dtype=dtype)
        yield f"attention_{name}", g, g.op("Attention", q, k, v, **more), 23
    g = Graph()
    q, k, v = operands(g, 1, 4, 90, 170, 32)
    flags = g.input("flags", causal(90, 170))
    yield "attention_mask", g, g.op("Attention", q, k, v, flags), 23
    for unidirectional in (0, 1):
        g = Graph()
        rows = [g.input(n, real(2, 190, 96)) for n in "qkv"]
        yield f"heads_{unidirectional}", g, g.op(
            "MultiHeadAttention", *rows, domain="com.microsoft", num_heads=3,
            unidirectional=unidirectional), 20


def compiled(partita, path, bundle, *options):
    """The number of tasks, and the bytes of the arena."""
    done = subprocess.run([partita, "compile", path, "-o", bundle, *options],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise equality.Unequal(f"compile: {done.stderr.strip()}")
    text = done.stdout + done.stderr
    return (int(re.search(r"to (\d+) tasks", text)[1]),
            int(re.search(r"(\d+) B of arena", text)[1]))


def check_growth(partita, work):
    """Of the arena of a causal attention of 512 and of 2048 tokens."""
    arenas = []
    for length in (512, 2048):
        g = Graph()
        shapes = operands(g, 1, 2, length, length, 64)
        path = work / f"{length}.onnx"
        onnx.save(g.model(g.op("Attention", *shapes, is_causal=1), 23), path)
        arenas.append(compiled(partita, path, work / f"{length}")[1])
    if arenas[1] > 4 * arenas[0]:
        raise equality.Unequal(f"the arena grows from {arenas[0]} to {arenas[1]} bytes")


def check_bfloat(partita, work):
    """ONNX Runtime has none for CPUs: within 4 units of the scale of f64."""
    import ml_dtypes

    g = Graph()
    shapes = operands(g, 2, 4, 150, 150, 32, groups=2, dtype=ml_dtypes.bfloat16)
    path, folder, bundle = work / "model.onnx", work / "inputs", work / "bundle"
    onnx.save(g.model(g.op("Attention", *shapes, is_causal=1), 23), path)
    write_inputs(g, folder)
    tasks, _ = compiled(partita, path, bundle)
    call(partita, "run", bundle, "--inputs-dir", folder, "--outputs-dir", work / "out")
    exact = equality.WideResults(partita, [str(bundle)], folder)[0]
    actual = equality.load(work / "out" / "output_0.pb")
    _, largest = equality.errors(actual.astype(np.float64), exact)
    unit = equality.EPSILON["bfloat16"] * 2.0 ** np.floor(np.log2(np.abs(exact).max()))
    if tasks != 1 or actual.dtype.name != "bfloat16" or not largest <= 4 * unit:
        raise equality.Unequal(f"{tasks} tasks, {actual.dtype}, error {largest}")


def write_inputs(graph, folder):
    folder.mkdir()
    for i, (name, value) in enumerate(graph.inputs.items()):
        tensor = numpy_helper.from_array(value, name)
        (folder / f"input_{i}.pb").write_bytes(tensor.SerializeToString())


def attempt(partita, work, fewest, graph, result, opset):
    model = graph.model(result, opset)
    path = work / "model.onnx"
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Its fused kernels write 0 where ONNX has NaN.
    options.graph_optimization_level = \
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    (expected,) = session.run(None, graph.inputs)
    folder = work / "inputs"
    write_inputs(graph, folder)
    for how in ([], ["--threads", "2"], ["--target-cpu", "x86-64-v3"]):
        bundle, out = work / f"bundle{how[1:]}", work / f"out{how[1:]}"
        tasks, _ = compiled(partita, path, bundle, *how)
        # Positions from an input, or copies of keys and values that are outputs.
        more = graph.nodes[0].op_type in ("Add", "MultiHeadAttention")
        if tasks > fewest + more:
            raise equality.Unequal(f"has {tasks} tasks, expected {fewest}")
        call(partita, "run", bundle, "--inputs-dir", folder, "--outputs-dir", out)
        wide = equality.WideResults(partita, [str(bundle)], folder)
        equality.check(equality.load(out / "output_0.pb"), expected, wide, 0,
                       f"{' '.join(how) or 'one thread'}: output")


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    failed = count = 0
    for name, *rest in cases():
        if wanted and name not in wanted:
            continue
        count += 1
        with tempfile.TemporaryDirectory(prefix="partita-attention-") as work:
            try:
                # A single query is served by two products and a kernel.
                attempt(partita, pathlib.Path(work), 3 if "_1_" in name else 1, *rest)
            except equality.Unequal as error:
                failed += 1
                print(f"{name}: {error}", flush=True)
    for check in () if wanted else (check_growth, check_bfloat):
        count += 1
        with tempfile.TemporaryDirectory(prefix="partita-attention-") as work:
            try:
                check(partita, pathlib.Path(work))
            except equality.Unequal as error:
                failed += 1
                print(f"{check.__name__}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {count - failed} of {count} equal")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
