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
from onnx import helper, numpy_helper

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


def number(*shape, dtype=np.uint8):
    """All values of a type of one byte."""
    return RANDOM.integers(0, 256, shape).astype(np.uint8).view(dtype)


def scaled(x, scale, zero):
    """A quantized tensor as three inputs."""
    return [x, np.array(scale, np.float32), np.array(zero, x.dtype)]


def quantized(dtype, suffix):
    """What ONNX Runtime's quantizer leaves. With powers of two as scales many results are
    half-way between two numbers."""
    def one(scale, zero):
        return scaled(np.zeros(0, dtype), scale, zero)[1:]

    for name, scales in (("", (0.1, 0.02, 0.013)), ("_ties", (0.5, 0.25, 1.0))):
        a, b, y = scales
        x, row = scaled(number(3, 64, dtype=dtype), a, 8), \
            scaled(number(64, dtype=dtype), b, 3)
        for op in ("Add", "Mul"):
            yield f"q_{op}{name}{suffix}", f"QLinear{op}", x + row + one(y, 5), 1, {}
        yield f"q_concat{name}{suffix}", "QLinearConcat", \
            one(y, 5) + x + scaled(number(5, 64, dtype=dtype), b, 3) + \
            scaled(number(2, 64, dtype=dtype), y, 5), 1, {"axis": 0}
        yield f"q_leaky{name}{suffix}", "QLinearLeakyRelu", x + one(y, 5), 1, \
            {"alpha": 0.25}
        image = scaled(number(2, 3, 4, 6, dtype=dtype), a, 8)
        for last in (0, 1):
            yield f"q_average_{last}{name}{suffix}", "QLinearGlobalAveragePool", \
                image + one(b, 3), 1, {"channels_last": last}
        chance = one(1 / 256, np.iinfo(dtype).min)
        yield f"q_sigmoid{name}{suffix}", "QLinearSigmoid", x + chance, 1, {}
        x = scaled(number(4, 6, 5, dtype=dtype), b, 3)
        for opset in (11, 13):
            yield f"q_softmax_{opset}{name}{suffix}", "QLinearSoftmax", x + chance, 1, \
                {"axis": 1, "opset": opset}
        yield f"q_where{name}{suffix}", "QLinearWhere", \
            [RANDOM.random((4, 1, 5)) < 0.5] + x + scaled(number(6, 1, dtype=dtype), a, 8) + \
            one(y, 5), 1, {}
    wide = np.uint16 if dtype == np.uint8 else np.int16
    yield f"q_numbers{suffix}", "QuantizeLinear", \
        [real(6, 8), positive(6), np.arange(6, dtype=wide)], 1, {"axis": 0}
    yield f"q_reals{suffix}", "DequantizeLinear", \
        [number(6, 16).view(wide), np.array(0.1, np.float32), np.array(9, wide)], 1, {}
    # Of 7 bits: without VNNI, ONNX Runtime adds two products of u8 and i8 in 16 bits, and
    # saturates.
    a, b = number(12, 20, dtype=dtype), number(20, 9, dtype=np.int8) >> 1
    one_scale, one_zero = np.array(0.02, np.float32), np.array(3, np.int8)
    zeros = RANDOM.integers(-9, 9, (9,)).astype(np.int8)
    yield f"q_product{suffix}", "MatMulIntegerToFloat", \
        [a, b, np.array(0.1, np.float32), positive(9), np.array(9, dtype), zeros, real(9)], \
        1, {}
    yield f"q_product_plain{suffix}", "MatMulIntegerToFloat", \
        [a, b, np.array(0.1, np.float32), one_scale], 1, {}
    if dtype == np.int8:
        yield "q_dynamic", "DynamicQuantizeMatMul", \
            [real(2, 5, 20), b, one_scale, one_zero, real(9)], 1, {}
        yield "q_dynamic_columns", "DynamicQuantizeMatMul", \
            [real(5, 20), b, positive(9), zeros], 1, {}
    bias = RANDOM.integers(-999, 999, (9,)).astype(np.int32)
    yield f"q_gemm{suffix}", "QGemm", scaled(a, 0.1, 9) + scaled(b, 0.02, 3) + [bias] + \
        one(0.3, 7), 1, {"alpha": 0.5}
    columns = [positive(9), RANDOM.integers(-9, 9, (9,)).astype(np.int8)]
    turned = [np.ascontiguousarray(b.T)]
    yield f"q_gemm_columns{suffix}", "QGemm", scaled(np.ascontiguousarray(a.T), 0.1, 9) + \
        turned + columns + [bias] + one(30, 7), 1, {"transA": 1, "transB": 1}
    yield f"q_gemm_real{suffix}", "QGemm", scaled(a, 0.1, 9) + turned + columns, 1, \
        {"transB": 1}


def few_bits():
    def weight(name, n, k, bits, block, *more, dtype=np.float32):
        blocks = -(-k // block)
        return f"bits_{name}", "MatMulNBits", \
            [real(2, 3, k).astype(dtype), number(n, blocks, block * bits // 8),
             positive(n, blocks).astype(dtype), *more], 1, \
            {"K": k, "N": n, "bits": bits, "block_size": block}

    for bits in (2, 4, 8):
        yield weight(bits, 8, 64, bits, 32)
        # The last block is not full, nor is the last byte of zero points.
        yield weight(f"{bits}_rest", 6, 40, bits, 16, number(6, (3 * bits + 7) // 8))
    yield weight("real_zero", 8, 48, 4, 16, 8 * positive(8, 3))
    groups = np.repeat(np.array([2, 0, 1], np.int32), 16)
    yield weight("groups", 8, 48, 4, 16, None, groups)
    yield weight("bias", 8, 48, 4, 16, None, None, real(8))
    yield weight("f16", 8, 64, 4, 32, dtype=np.float16)


def merged():
    """Queries, keys and values by one product, under every form of a mask."""
    op, heads = "Attention", {"num_heads": 3}
    given = [real(2, 5, 16), real(16, 72), real(72)]
    yield "attention", op, given, 1, heads
    yield "attention_scale", op, given, 1, {**heads, "scale": 0.25}
    yield "attention_widths", op, [given[0], real(16, 60), real(60)], 1, \
        {**heads, "qkv_hidden_sizes": [24, 24, 12]}
    for name, mask in (("lengths", [3, 5]), ("both_ends", [4, 5, 1, 0]),
                       ("packed", [3, 5, 0, 5, 10, 0, 3, 8]),
                       ("flags", [[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]),
                       ("pairs", np.tril(np.ones((2, 5, 5))))):
        for causal in (0, 1):
            yield f"attention_{name}_{causal}", op, given + [ints(mask, np.int32)], 1, \
                {**heads, "unidirectional": causal, "mask_filter_value": -3.0}
    yield "attention_bias", op, given + [None, None, real(1, 3, 5, 5)], 1, heads
    past = real(2, 2, 3, 4, 8)
    yield "attention_past", op, given + [None, past], 2, {**heads, "unidirectional": 1}
    flags = ints(RANDOM.random((2, 9)) < 0.8, np.int32)
    yield "attention_past_flags", op, given + [flags, past], 2, heads
    words = ints(RANDOM.integers(0, 30, (2, 5)), np.int32)
    kinds = ints([[0, 0, 0, 0, 0], [0, 0, 1, 1, 1]], np.int32)
    tables = [real(30, 16), real(8, 16), real(2, 16), positive(16), real(16)]
    op, places = "EmbedLayerNormalization", ints([[7, 6, 5, 4, 3]], np.int32)
    flags = ints([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
    yield "embed", op, [words, kinds] + tables, 2, {}
    yield "embed_words", op, [words, None, *tables[:2], None, *tables[3:]], 2, {}
    yield "embed_all", op, [words, kinds, *tables, flags, places], 3, {"epsilon": 1e-3}


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
    yield from merged()
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
    yield from quantized(np.uint8, "")
    yield from quantized(np.int8, "_signed")
    yield from few_bits()


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
        [onnx.ValueInfoProto(name=name) for name in results if name])
    model = helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 9
    return model, {name: x for name, x in zip(names, given) if name}


def call(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise equality.Unequal(f"{arguments[1]}: {done.stderr.strip()}")


def divides(bundle):
    plan = json.loads((bundle / "plan.json").read_text())["entries"][0]
    return any(re.match(r"\{.+\}", node["strategy"]) for stage in plan["stages"]
               for node in stage["nodes"])


def attempt(partita, work, operator, inputs, outputs, attributes, split=None):
    model, values = model_of(operator, inputs, outputs, attributes)
    path = work / "model.onnx"
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    expected = session.run(None, values)
    for output, value in zip(model.graph.output, expected):
        output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    onnx.save(model, path)
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
