#!/usr/bin/env python3
"""GatherBlockQuantized, MatMulBnb4, MoE and QMoE of com.microsoft on 1 to 4 ranks, against
ONNX Runtime where its CPU has the form and the formulas here, which are compared with each
other as well. That weights stay packed is the size of the bundle.

A sweep: the quick tier has a tenth of the cases.

usage: run_few_bits.py PARTITA [NAME…]
"""
import os
import pathlib
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import equality
import tier
from run_bytes import run

# ONNX Runtime rounds rows to 8 bits where weights are blocks of 8, unless this is set.
os.environ["ORT_QMOE_CPU_QNBIT_GEMM"] = "fp32"

FP4 = np.array([0, 5.208333333e-03, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4])
TABLES = [np.concatenate([FP4, -FP4]), np.array([
    -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1])]


#: Cases that are split in all ways.
THOROUGH = {"u8_4_float32_zeros", "u8_rest", "int4_0_1", "int4_1_2", "uint4_odd", "outside",
            "bnb_1_32", "bnb_0_across", "bnb_1_turned", "moe_silu", "moe_swiglu",
            "qmoe_swiglu_0", "qmoe_swiglu_1", "qmoe_4_16_zeros", "qmoe_8_32", "qmoe_many",
            "counted"}


def numbers_of(packed, bits, is_high_first=False):
    """The numbers in the bytes of the last dim."""
    places = range(0, 8, bits)
    parts = [packed >> at & (1 << bits) - 1
             for at in (reversed(places) if is_high_first else places)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)


class Case:
    """A node, the arrays that are its inputs, which of them the model's run gives, hints
    by mesh, the result by its definition, and how many bytes its weights have at most."""

    def __init__(self, name, op, inputs, given, attributes, meshes, expected, bytes=None,
                 is_exact=False, has_kernel=True):
        self.name, self.op, self.inputs, self.given = name, op, inputs, given
        self.attributes, self.meshes, self.expected = attributes, meshes, expected
        self.bytes, self.is_exact, self.has_kernel = bytes, is_exact, has_kernel

    def model(self):
        names = [f"i{k}" if x is not None else "" for k, x in enumerate(self.inputs)]
        kind = helper.np_dtype_to_tensor_dtype
        node = helper.make_node(self.op, names, ["y"], "the_node", domain="com.microsoft",
                                **self.attributes)
        graph = helper.make_graph(
            [node], "main",
            [helper.make_tensor_value_info(names[k], kind(self.inputs[k].dtype),
                                           self.inputs[k].shape) for k in self.given],
            [helper.make_tensor_value_info("y", kind(self.expected.dtype),
                                           self.expected.shape)],
            [numpy_helper.from_array(x, names[k]) for k, x in enumerate(self.inputs)
             if x is not None and k not in self.given])
        model = helper.make_model(graph, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = 10
        return model

    def feeds(self):
        return {f"i{k}": self.inputs[k] for k in self.given}


def splits(*hints):
    """Runs of one rank, of what is chosen for three, and of each of the hints on two."""
    return [[], ["--mesh", "d=3"]] + [["--mesh", "d=2", "--hints", hint] for hint in hints]


# ---- GatherBlockQuantized


def table(name, kind, bits, shape, axis, quantized, block, has_zeros, dtype=np.float32,
          places=(2, 3), index=np.int64, is_constant=True):
    """`shape` is that of the numbers."""
    random = np.random.default_rng(len(name) + sum(map(ord, name)))
    low = -8 if kind is ml_dtypes.int4 else 0
    quantized %= len(shape)
    per_block = list(shape)
    per_block[quantized] = -(-shape[quantized] // block)

    def stored(dims):
        """Numbers, and how they are stored."""
        if kind is not np.uint8:
            numbers = random.integers(low, low + 16, dims)
            return numbers, numbers.astype(kind)
        width = -(-dims[-1] * bits // 8)
        packed = random.integers(0, 256, (*dims[:-1], width)).astype(np.uint8)
        return numbers_of(packed, bits)[..., :dims[-1]].astype(np.int64), packed

    numbers, data = stored(shape)
    scales = (random.random(per_block) + 0.1).astype(dtype)
    zeros, given_zeros = stored(per_block) if has_zeros else \
        (np.full(per_block, 2 ** (bits - 1) if kind is np.uint8 else 0), None)
    extent = shape[axis]
    rows = random.integers(-extent, extent, places).astype(index)
    spread = np.arange(shape[quantized]) // block
    real = (numbers - np.take(zeros, spread, quantized)).astype(np.float32) * \
        np.take(scales, spread, quantized).astype(np.float32)
    expected = np.take(real.astype(dtype), rows, axis)
    attributes = {"bits": bits, "gather_axis": axis, "quantize_axis": quantized,
                  "block_size": block}
    last = [None] * expected.ndim
    last[-1] = "d"
    hints = [{"y": last}]
    if places:
        hints.append({"i1": ["d"] + [None] * (len(places) - 1)})
    if kind is np.uint8:
        hints.append({"i0": ["d"] + [None] * (data.ndim - 1)})
    most = numbers.size * bits / 8 + scales.nbytes + zeros.size * bits / 8
    if axis % len(shape) == len(shape) - 1:
        most += numbers.size # an odd dim is packed
    inputs = [data, rows, scales] + ([given_zeros] if has_zeros else [])
    return Case(name, "GatherBlockQuantized", inputs,
                [1] if is_constant else [0, 1, 2], attributes, splits(*hints), expected,
                1.1 * most + 1500 if is_constant else None, True,
                dtype is not ml_dtypes.bfloat16)


def tables():
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        for has_zeros in (False, True):
            more = f"_{np.dtype(dtype).name}" + ("_zeros" if has_zeros else "")
            for bits in (2, 4, 8):
                yield table(f"u8_{bits}{more}", np.uint8, bits, (50, 128), 0, 1, 32,
                            has_zeros, dtype)
            for kind in (ml_dtypes.int4, ml_dtypes.uint4):
                yield table(f"{kind.__name__}{more}", kind, 4, (50, 128), 0, 1, 32,
                            has_zeros, dtype)
    # A block that is not full, and a byte of zero points that is not.
    yield table("u8_rest", np.uint8, 4, (40, 72), 0, -1, 16, True, index=np.int32)
    yield table("u8_three", np.uint8, 4, (40, 3, 48), 0, 2, 16, True)
    yield table("u8_scalar", np.uint8, 4, (40, 64), 0, 1, 64, True, places=())
    yield table("u8_input", np.uint8, 4, (40, 64), 0, 1, 16, False, is_constant=False)
    for kind in (ml_dtypes.int4, ml_dtypes.uint4):
        for axis in (0, 1, 2):
            for quantized in (0, 1, 2):
                yield table(f"{kind.__name__}_{axis}_{quantized}", kind, 4, (34, 35, 36),
                            axis, quantized, 16, axis != quantized)
        yield table(f"{kind.__name__}_odd", kind, 4, (30, 33), 0, 1, 16, True)
        yield table(f"{kind.__name__}_same", kind, 4, (70, 24), 0, 0, 32, True)


def outside():
    """Indices that name no row."""
    case = table("outside", np.uint8, 4, (40, 64), 0, 1, 16, True)
    case.inputs[1][0, :2] = 40, -41
    case.expected[0, :2] = 0
    return case


# ---- MatMulBnb4


def bnb(name, rows, k, n, block, kind, is_transposed=True, dtype=np.float32):
    random = np.random.default_rng(len(name) + sum(map(ord, name)))
    packed = random.integers(0, 256, (n * k + 1) // 2).astype(np.uint8)
    largest = (random.random(-(-n * k // block)) + 0.1).astype(dtype)
    numbers = numbers_of(packed, 4, is_high_first=True)[:n * k]
    weight = TABLES[kind][numbers] * np.repeat(largest.astype(np.float64), block)[:n * k]
    weight = weight.reshape(n, k)
    x = random.standard_normal((*rows, k if is_transposed else n)).astype(dtype)
    expected = (x.astype(np.float64) @ (weight.T if is_transposed else weight))
    attributes = {"K": k, "N": n, "block_size": block, "quant_type": kind}
    if not is_transposed:
        attributes["transB"] = 0
    rest = [None] * (x.ndim - 1)
    hints = [{"i0": [*rest, "d"]}, {"y": [*rest, "d"]}, {"i0": ["d", *rest]}]
    most = packed.nbytes + largest.nbytes + 64 * 4 + 2500
    # Kernels of ONNX Runtime have f32 alone, and read every weight as transposed.
    has_kernel = dtype is np.float32 and is_transposed
    return Case(name, "MatMulBnb4", [x, packed, largest], [0], attributes,
                splits(*hints), expected.astype(dtype), most, False, has_kernel)


def products():
    for kind in (0, 1):
        for block in (16, 32, 64):
            yield bnb(f"bnb_{kind}_{block}", (5,), 2 * block, 24, block, kind)
        # Blocks that go on in the next row; a last one that is not full; an odd number.
        yield bnb(f"bnb_{kind}_across", (3,), 40, 12, 16, kind)
        yield bnb(f"bnb_{kind}_rest", (3,), 33, 7, 32, kind)
        yield bnb(f"bnb_{kind}_batch", (2, 3), 64, 12, 32, kind)
        yield bnb(f"bnb_{kind}_turned", (4,), 64, 20, 32, kind, is_transposed=False)
        yield bnb(f"bnb_{kind}_half", (4,), 64, 20, 32, kind, dtype=np.float16)
        yield bnb(f"bnb_{kind}_brain", (4,), 64, 20, 32, kind, dtype=ml_dtypes.bfloat16)


# ---- MoE and QMoE


def activated(kind, fusion, h, l, limit):
    """Numbers [t, e, out]; swiglu with alpha 1.702 and beta 1."""
    def swish(x, alpha=1):
        return x / (1 + np.exp(-alpha * x))
    if kind == "swiglu":
        g, l = (h, l) if fusion == 0 else (h[..., ::2], h[..., 1::2]) if fusion == 1 \
            else np.split(h, 2, -1)
        return swish(np.minimum(g, limit), 1.702) * (np.clip(l, -limit, limit) + 1)
    y = {"relu": lambda x: np.maximum(x, 0), "silu": swish, "identity": lambda x: x,
         "gelu": lambda x: x / 2 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))
         }[kind](h)
    return y if l is None else y * l


class Experts:
    """Weights of a layer, as they are stored, and what they are worth."""

    def __init__(self, random, experts, bits, block, has_zeros, has_bias, dtype):
        self.random, self.experts, self.bits, self.block = random, experts, bits, block
        self.has_zeros, self.has_bias, self.dtype = has_zeros, has_bias, dtype

    def projection(self, out, k):
        """Returns (weight, scales, bias, zero points) as stored, and (weight, bias) as worth."""
        e, bits = self.experts, self.bits
        bias = self.random.standard_normal((e, out)).astype(self.dtype)
        bias = bias if self.has_bias else None
        if not bits:
            weight = (self.random.standard_normal((e, out, k)) / k ** 0.5).astype(self.dtype)
            return (weight, None, bias, None), (weight.astype(np.float64), bias)
        stored = self.random.integers(0, 256, (e, out, k * bits // 8)).astype(np.uint8)
        blocks = (k // self.block,) if self.block else ()
        scales = ((self.random.random((e, out, *blocks)) + 0.1) / 2 ** bits) \
            .astype(self.dtype)
        count = blocks[0] if blocks else out
        zeros, worth = None, 2 ** (bits - 1)
        if self.has_zeros:
            shape = (e, out) if blocks else (e,)
            zeros = self.random.integers(0, 256, (*shape, -(-count * bits // 8)))
            zeros = zeros.astype(np.uint8)
            worth = numbers_of(zeros, bits)[..., :count].astype(np.float64)
            worth = worth.reshape(e, out, -1, 1)
        numbers = numbers_of(stored, bits).astype(np.float64)
        numbers = numbers.reshape(e, out, blocks[0] if blocks else 1, -1)
        real = (numbers - worth) * scales.astype(np.float64).reshape(e, out, -1, 1)
        return (stored, scales, bias, zeros), (real.reshape(e, out, k), bias)


def node_of(bits, block, activation, k, fusion, normalizes, limit, rows, parts, weights):
    """Attributes and inputs of a MoE, or of a QMoE where there are `bits`."""
    attributes = {"k": k, "activation_type": activation,
                  "normalize_routing_weights": int(normalizes)}
    if activation == "swiglu":
        attributes |= {"swiglu_fusion": fusion, "activation_alpha": 1.702,
                       "activation_beta": 1.0, "swiglu_limit": limit}
    inputs = list(rows)
    if bits:
        attributes |= {"expert_weight_bits": bits} | ({"block_size": block} if block else {})
        three = parts + [(None,) * 4] * (3 - len(parts))
        for part in three:
            inputs += part[:3]
        inputs += [part[3] for part in three] + [weights]
    else:
        for part in parts:
            inputs += [part[0], part[2]]
    while inputs[-1] is None:
        inputs.pop()
    return attributes, inputs


def gates_of(logits, k, weights, normalizes):
    """Weights [tokens, experts], 0 for those that are not chosen."""
    logits = logits.astype(np.float64)
    mask = np.zeros(logits.shape)
    np.put_along_axis(mask, np.argsort(-logits, 1)[:, :k], 1, 1)
    softmax = np.exp(logits)
    softmax /= softmax.sum(1, keepdims=True)
    gates = mask * (softmax if weights is None else weights)
    return gates / gates.sum(1, keepdims=True) if normalizes else gates


def experts(name, bits, block, activation, k=2, count=4, fusion=0, third=False, zeros=False,
            bias=True, dtype=np.float32, shape=(2, 3), hidden=64, inner=32, mixing=False,
            normalizes=False, stays=False, limit=1.5):
    random = np.random.default_rng(len(name) + sum(map(ord, name)))
    layer = Experts(random, count, bits, block, zeros, bias, dtype)
    wide = inner * (2 if fusion else 1)
    parts = [layer.projection(wide, hidden), layer.projection(hidden, inner)]
    if third:
        parts.append(layer.projection(inner, hidden))
    x = random.standard_normal((*shape, hidden)).astype(dtype)
    tokens = int(np.prod(shape))
    # Logits are so far apart that a type's rounding changes no order.
    order = np.stack([random.permutation(count) for _ in range(tokens)])
    logits = (order / 2 + random.random((tokens, count)) / 8).astype(dtype)
    weights = random.random((tokens, count)).astype(dtype) if mixing else None

    rows = x.reshape(tokens, hidden).astype(np.float64)

    def of_all(part):
        (weight, offset) = part[1]
        y = np.einsum("ti,eoi->teo", rows, weight)
        return y if offset is None else y + offset
    h = activated(activation, fusion, of_all(parts[0]), of_all(parts[2]) if third else None,
                  limit)
    y = np.einsum("tei,eoi->teo", h, parts[1][1][0])
    if bias:
        y = y + parts[1][1][1]
    gates = gates_of(logits, k, weights, normalizes or (bits and not mixing))
    expected = np.einsum("te,teo->to", gates, y).reshape(x.shape)

    stored = [part[0] for part in parts]
    attributes, inputs = node_of(bits, block, activation, k, fusion, normalizes, limit,
                                 [x, logits], stored, weights)
    given = [0, 1] + ([14] if mixing else [])
    held = sum(v.nbytes for i, v in enumerate(inputs) if v is not None and i not in given)
    # Zero points take a byte each in the form, and scales 4.
    most = held + 3 * sum(v.size for v in inputs if v is not None and
                          v.ndim == 3 and v.dtype == dtype) + 6000
    if zeros:
        most += sum(part[0][1].size for part in parts)
    rest = [None] * len(shape)
    # Kernels of ONNX Runtime round rows to 8 bits where weights are blocks of 2, and read
    # weights of f16 in another order than its definition.
    has_kernel = not third and fusion != 2 and dtype is not ml_dtypes.bfloat16 and \
        (bits != 2 or not block) and (bits or dtype is np.float32)
    hints = [{"i0": ["d", *rest]}, {"y": [*rest, "d"]}]
    if stays or not bits: # the weight is there by its name
        hints.append({"i2": ["d", None, None]})
    return Case(name, "QMoE" if bits else "MoE", inputs, given, attributes, splits(*hints),
                expected.astype(dtype), most if stays else None, False, has_kernel)


def mixtures():
    for activation in ("relu", "gelu", "silu", "identity"):
        yield experts(f"moe_{activation}", 0, 0, activation)
        yield experts(f"moe_{activation}_normal", 0, 0, activation, normalizes=True)
        yield experts(f"qmoe_{activation}", 4, 32, activation, stays=True)
    yield experts("moe_swiglu", 0, 0, "swiglu", fusion=1, k=1)
    yield experts("moe_swiglu_halves", 0, 0, "swiglu", fusion=2)
    yield experts("moe_third", 0, 0, "silu", third=True, normalizes=True)
    yield experts("moe_half", 0, 0, "silu", dtype=np.float16, bias=False)
    for fusion in (0, 1, 2):
        yield experts(f"qmoe_swiglu_{fusion}", 4, 32, "swiglu", fusion=fusion,
                      third=fusion == 0, stays=True, k=3)
    yield experts("qmoe_third", 4, 16, "silu", third=True, stays=True, zeros=True)
    for bits in (2, 4, 8):
        for block in (0, 16, 32):
            for zeros in (False, True):
                if bits == 2 and not block and zeros:
                    continue
                yield experts(f"qmoe_{bits}_{block}" + ("_zeros" if zeros else ""), bits,
                              block, "swiglu", fusion=1, zeros=zeros, stays=bits == 4,
                              hidden=64, inner=64)
    yield experts("qmoe_mixing", 4, 32, "silu", mixing=True, stays=True)
    yield experts("qmoe_mixing_normal", 4, 32, "silu", mixing=True, normalizes=True)
    yield experts("qmoe_packed", 4, 32, "silu", shape=(7,), stays=True, bias=False)
    yield experts("qmoe_many", 4, 32, "swiglu", fusion=1, shape=(4, 40), count=8, k=4,
                  stays=True)
    yield experts("qmoe_all", 4, 32, "relu", k=4, stays=True)
    yield experts("qmoe_odd", 4, 0, "relu", hidden=20, inner=12)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        yield experts(f"qmoe_{np.dtype(dtype).name}", 4, 32, "silu", dtype=dtype)


# ---- Sizes that are data


class Counted(Case):
    """All three, one behind the other, of as many rows as flags are set."""

    def __init__(self):
        random = np.random.default_rng(3)

        def scales(*shape):
            return (random.random(shape) / 16).astype(np.float32)

        def numbers(*shape):
            return random.integers(0, 256, shape).astype(np.uint8)
        self.weights = {
            "all": np.array([-1]), "w": numbers(20, 32), "s": scales(20, 4),
            "router": random.standard_normal((20, 4)).astype(np.float32),
            "w1": numbers(4, 32, 32), "s1": scales(4, 32, 4), "w2": numbers(4, 64, 16),
            "s2": scales(4, 64, 2), "b": numbers(64 * 12), "largest": scales(48)}
        flags = random.random(20) < 0.4
        super().__init__("counted", "several", [flags], [0], {}, splits(),
                         np.zeros((flags.sum(), 24), np.float32))

    def model(self):
        def node(op, inputs, output, **attributes):
            return helper.make_node(op, inputs, [output], f"the_{output}", **attributes)
        few = {"domain": "com.microsoft"}
        nodes = [
            node("NonZero", ["i0"], "places"), node("Reshape", ["places", "all"], "rows"),
            node("GatherBlockQuantized", ["w", "rows", "s"], "x", block_size=16, **few),
            node("Gather", ["router", "rows"], "logits"),
            node("QMoE", ["x", "logits", "w1", "s1", "", "w2", "s2"], "h", block_size=16,
                 k=2, activation_type="silu", **few),
            node("MatMulBnb4", ["h", "b", "largest"], "y", K=64, N=24, block_size=32,
                 quant_type=1, **few)]
        graph = helper.make_graph(
            nodes, "main", [helper.make_tensor_value_info("i0", onnx.TensorProto.BOOL, [20])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 24])],
            [numpy_helper.from_array(value, key) for key, value in self.weights.items()])
        model = helper.make_model(graph, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = 10
        return model


# ---- Comparison


def check_definition(case, got):
    """ONNX Runtime's result and the formula here."""
    size = np.abs(case.expected.astype(np.float64)).max()
    unit = 2e-6 if got.dtype == np.float32 else 1e-2
    worst = np.abs(got.astype(np.float64) - case.expected.astype(np.float64)).max()
    if got.shape != case.expected.shape or got.dtype != case.expected.dtype or \
            worst > (0 if case.is_exact else unit * size):
        raise RuntimeError(f"ONNX Runtime is {worst:.3g} from the definition")


def check(partita, case, mesh):
    model, expected = case.model(), case.expected
    if case.has_kernel:
        session = onnxruntime.InferenceSession(model.SerializeToString(),
                                               providers=["CPUExecutionProvider"])
        [expected] = session.run(None, case.feeds())
        if not isinstance(case, Counted):
            check_definition(case, expected)
    with tempfile.TemporaryDirectory(prefix="partita-few-bits-") as folder:
        work = pathlib.Path(folder)
        onnx.save(model, work / "model.onnx")
        [got] = run(partita, work, work / "model.onnx", case.feeds(), mesh, {})
        wide = equality.WideResults(partita, [str(work / "bundle")], work / "inputs")
        if case.is_exact:
            wrong = np.count_nonzero(got != expected)
            if got.shape != expected.shape or got.dtype != expected.dtype or wrong:
                raise RuntimeError(f"{got.dtype} {got.shape}, {wrong} elements differ")
        else:
            equality.check(got, expected, wide, 0, "y")
        weights = work / "bundle" / "weights.safetensors"
        bytes = weights.stat().st_size if weights.exists() else 0
    if case.bytes is not None and not mesh and bytes > case.bytes:
        raise RuntimeError(f"weights take {bytes} bytes, expected are at most "
                           f"{case.bytes:.0f}")


def cases():
    yield from tables()
    yield outside()
    yield from products()
    yield from mixtures()
    yield Counted()


def meshes_of(number, case):
    """Meshes of a case: all of some, of the rest one rank and another."""
    if case.name in THOROUGH:
        return case.meshes
    return [case.meshes[0], case.meshes[1 + number % (len(case.meshes) - 1)]]


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    everything = [(case, mesh) for number, case in enumerate(cases())
                  for mesh in meshes_of(number, case)]
    taken = [c for c in everything if c[0].name in wanted] if wanted else \
        tier.sample("few-bits", everything, kind=lambda case: (case[0].op, not case[1]))
    failed = 0
    for case, mesh in taken:
        try:
            check(partita, case, mesh)
        except (RuntimeError, equality.Unequal) as error:
            failed += 1
            print(f"{case.name}, {mesh or 'one rank'}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {len(taken) - failed} of {len(taken)} equal")
    return 1 if failed or not taken else 0


if __name__ == "__main__":
    sys.exit(main())
