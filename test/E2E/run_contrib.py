#!/usr/bin/env python3
"""Operators of com.microsoft, and forms of ONNX's that its own tests do not have, each as a
model: on 1, 2 and 3 ranks equal to ONNX Runtime by equality.py, and really divided on 2.

usage: run_contrib.py PARTITA [NAME…]
"""
import json
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

RANDOM = np.random.default_rng(1)


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return np.abs(real(*shape)) + np.float32(0.5)


def caches(positions, half):
    angle = np.outer(np.arange(positions), 10000.0 ** (-np.arange(half) / half))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def ints(values, dtype=np.int64):
    return np.array(values, dtype)


def cases():
    """name: (operator, inputs by position (None: absent), number of outputs, attributes,
    and perhaps how input 0 is split). An input in a tuple is bound when compiling."""
    # A long axis, with equal elements, is split along it.
    few_values = np.round(real(1, 960) * 4).astype(np.float32)
    for largest in (0, 1):
        yield f"top_{largest}", ":TopK", [few_values, (ints([7]),)], 2, \
            {"largest": largest}, [None, "d"]
    yield "top_rows", ":TopK", [real(96, 3), (ints([5]),)], 2, {"axis": 0}, \
        ["d", None]
    # So is a running sum.
    for more in ({}, {"reverse": 1}, {"exclusive": 1}, {"exclusive": 1, "reverse": 1}):
        name = "_".join(["running", *more])
        yield name, ":CumSum", [real(2, 960), (ints(1),)], 1, more, [None, "d"]
        yield name + "_rows", ":CumSum", [real(1001, 2), (ints(0),)], 1, more, ["d", None]
    cos, sin = caches(16, 4)
    norm = [real(2, 6, 8), real(2, 6, 8), positive(8)]
    yield "gelu", "Gelu", [real(4, 6)], 1, {}
    yield "bias_gelu", "BiasGelu", [real(4, 6), real(6)], 1, {}
    yield "fast_gelu", "FastGelu", [real(4, 6), real(6)], 1, {}
    yield "fast_gelu_alone", "FastGelu", [real(4, 6)], 1, {}
    yield "quick_gelu", "QuickGelu", [real(4, 6)], 1, {"alpha": 1.5}
    yield "skip_norm", "SkipLayerNormalization", norm + [real(8), real(8)], 1, \
        {"epsilon": 1e-5}
    yield "skip_norm_sum", "SkipLayerNormalization", norm, (1, 0, 0, 1), {"epsilon": 1e-5}
    yield "skip_simple", "SkipSimplifiedLayerNormalization", norm + [real(8)], \
        (1, 0, 0, 1), {"epsilon": 1e-5}
    yield "simplified", ":SimplifiedLayerNormalization", [real(2, 6, 8), positive(8)], 1, \
        {"epsilon": 1e-5, "axis": -1}
    yield "matmul", "FusedMatMul", [real(2, 4, 6), real(2, 5, 6)], 1, \
        {"transB": 1, "alpha": 0.5}
    yield "matmul_a", "FusedMatMul", [real(2, 6, 4), real(6, 5)], 1, {"transA": 1}
    yield "matmul_batch", "FusedMatMul", [real(4, 2, 6), real(2, 6, 5)], 1, \
        {"transBatchA": 1}
    yield "gemm", "FusedGemm", [real(6, 4), real(5, 6), real(5)], 1, \
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0, "activation": "LeakyRelu",
         "activation_alpha": 0.25}
    conv = [real(2, 4, 6, 7), real(6, 4, 3, 3), real(6)]
    for name, activation, params in [("relu", "Relu", []), ("clip", "Clip", [-0.5, 0.75]),
                                     ("leaky", "LeakyRelu", [0.25]),
                                     ("hard", "HardSigmoid", [0.25, 0.4])]:
        more = {"activation_params": params} if params else {}
        yield f"conv_{name}", "FusedConv", conv, 1, \
            {"pads": [1, 1, 1, 1], "activation": activation, **more}
    yield "conv_sum", "FusedConv", conv + [real(2, 6, 6, 7)], 1, \
        {"pads": [1, 1, 1, 1], "activation": "Relu"}
    where = ints([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]])
    for pairs in (0, 1):
        yield f"rotary_{pairs}", "RotaryEmbedding", [real(2, 5, 24), where, cos, sin], 1, \
            {"interleaved": pairs, "num_heads": 3}
    yield "rotary_start", "RotaryEmbedding", [real(2, 3, 5, 8), ints([2]), cos, sin], 1, {}
    rows = [real(2, 5, 24) for _ in range(3)]
    yield "heads", "MultiHeadAttention", rows, 1, {"num_heads": 3}
    yield "heads_bias", "MultiHeadAttention", rows + [real(72)], 1, \
        {"num_heads": 3, "scale": 0.25}
    yield "heads_mask", "MultiHeadAttention", \
        rows + [None, ints([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)], 1, \
        {"num_heads": 3}
    yield "heads_flags", "MultiHeadAttention", \
        rows + [None, ints(np.tril(np.ones((2, 5, 5))), np.int32)], 1, {"num_heads": 3}
    yield "heads_causal", "MultiHeadAttention", \
        rows + [None, None, real(1, 3, 5, 5)], 1, {"num_heads": 3, "unidirectional": 1}
    yield "heads_past", "MultiHeadAttention", \
        rows + [None, None, None, real(2, 3, 4, 8), real(2, 3, 4, 8)], 3, {"num_heads": 3}
    # Heads of 16, which is what ONNX Runtime has kernels for.
    cos, sin = caches(16, 8)
    few = [real(2, 5, 64), real(2, 5, 32), real(2, 5, 32)]
    first = [None, None, ints([4, 4], np.int32), (ints(5, np.int32),)]
    group = {"num_heads": 4, "kv_num_heads": 2}
    yield "group", "GroupQueryAttention", few + first, 3, group
    yield "group_short", "GroupQueryAttention", \
        few + [None, None, ints([4, 4], np.int32), (ints(5, np.int32),), cos, sin], 3, \
        {**group, "do_rotary": 1, "local_window_size": 3}
    packed = [np.concatenate(few, 2), None, None] + first
    yield "group_packed", "GroupQueryAttention", packed, 3, group
    yield "group_packed_turned", "GroupQueryAttention", \
        packed + [cos, sin, ints([[0, 1, 2, 3, 4], [3, 5, 7, 9, 11]])], 3, \
        {**group, "do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 2}
    yield "group_bias", "GroupQueryAttention", \
        few + first + [None, None, None, real(2, 4, 5, 5)], 3, {**group, "softcap": 3.0}
    yield "group_sink", "GroupQueryAttention", \
        few + first + [None, None, None, None, real(4)], 3, group
    yield "group_smooth", "GroupQueryAttention", few + first, 3, \
        {**group, "smooth_softmax": 1}
    one = [real(2, 1, 64), real(2, 1, 32), real(2, 1, 32), real(2, 2, 6, 16),
           real(2, 2, 6, 16), ints([6, 6], np.int32), (ints(7, np.int32),), cos, sin]
    yield "group_past", "GroupQueryAttention", one, 3, \
        {**group, "do_rotary": 1, "scale": 0.5, "softcap": 20.0}


def model_of(operator, inputs, outputs, attributes):
    domain = "" if operator.startswith(":") else "com.microsoft"
    flags = (1,) * outputs if isinstance(outputs, int) else outputs
    given = [x[0] if isinstance(x, tuple) else x for x in inputs]
    names = ["" if x is None else f"input_{i}" for i, x in enumerate(given)]
    results = [f"output_{i}" if flag else "" for i, flag in enumerate(flags)]
    node = helper.make_node(operator.lstrip(":"), names, results, "the_node",
                            domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "main",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype),
                                       x.shape)
         for name, x in zip(names, given) if name],
        [helper.make_tensor_value_info(
            name, TensorProto.INT64 if operator == ":TopK" and i else TensorProto.FLOAT, None)
         for i, name in enumerate(results) if name])
    model = helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 9
    return model, {name: x for name, x in zip(names, given) if name}


def call(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise equality.Unequal(f"{arguments[1]}: {done.stderr.strip()}")


def divides(bundle):
    plan = json.loads((bundle / "plan.json").read_text())
    return any(re.match(r"\{.+\}", node["strategy"]) for stage in plan["stages"]
               for node in stage["nodes"])


def attempt(partita, work, operator, inputs, outputs, attributes, split=None):
    model, values = model_of(operator, inputs, outputs, attributes)
    path = work / "model.onnx"
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = session.run(None, values)
    constants, folder, hints = [], work / "inputs", []
    if split:
        (work / "hints.json").write_text(json.dumps({"tensors": {"input_0": split}}))
        hints = ["--mode", "semi-auto", "--hints", work / "hints.json"]
    folder.mkdir()
    for i, x in enumerate(inputs):
        if isinstance(x, tuple):
            np.save(work / f"c{i}.npy", x[0])
            constants += ["--const", f"input_{i}={work / f'c{i}.npy'}"]
    for i, name in enumerate(values):
        tensor = numpy_helper.from_array(values[name], name)
        (folder / f"input_{i}.pb").write_bytes(tensor.SerializeToString())
    for mesh in ([], ["--mesh", "d=2"], ["--mesh", "d=3"]):
        bundle = work / f"bundle{len(mesh)}{mesh[1:]}"
        out = work / f"out{len(mesh)}{mesh[1:]}"
        call(partita, "compile", path, "-o", bundle, *constants, *mesh,
             *(hints if mesh else []))
        call(partita, "run", bundle, "--inputs-dir", folder, "--outputs-dir", out)
        wide = equality.WideResults(partita, [str(bundle)], folder)
        for k, want in enumerate(expected):
            equality.check(equality.load(out / f"output_{k}.pb"), want, wide, k,
                           f"on {mesh[1] if mesh else 'one rank'}: output {k}")
        if mesh == ["--mesh", "d=2"] and not divides(bundle):
            raise equality.Unequal("on 2 ranks nothing is divided")


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    failed = count = 0
    for name, *rest in cases():
        if wanted and name not in wanted:
            continue
        count += 1
        with tempfile.TemporaryDirectory(prefix="partita-contrib-") as work:
            try:
                attempt(partita, pathlib.Path(work), *rest)
            except equality.Unequal as error:
                failed += 1
                print(f"{name}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {count - failed} of {count} equal")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
