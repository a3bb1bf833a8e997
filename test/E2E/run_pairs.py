#!/usr/bin/env python3
"""Products between pairs of QuantizeLinear and DequantizeLinear, as exporters write them, on one
rank and two: every product is one of bytes, and every number at most ½ + 10⁻⁴ quanta from the
real one, which f64 gives for the bytes that the program itself has made before. Told beside:
numbers that are not the nearest. Results that NumPy computes with a wrong zero point, scale or
bias have to be refused.

A sweep: the quick tier has each model on each kind of engine once, and a tenth of the others.

usage: run_pairs.py PARTITA [NAME…]
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

import run_bytes
import tier

MOST = 0.5 + 1e-4
MESHES = {
    "one rank": [],
    "images": ["--mesh", "d=2"],
    "rows": ["--mesh", "d=2", "--hints", {"x": [None, None, "d", None]}],
    "summands": ["--mesh", "d=2", "--hints", {"x": [None, "d", None, None]}],
    "channels": ["--mesh", "d=2", "--hints", {"y": [None, "d", None, None]}],
}
MATRIX_MESHES = {
    "one rank": [],
    "rows": ["--mesh", "d=2", "--hints", {"x": ["d", None]}],
    "summands": ["--mesh", "d=2", "--hints", {"x": [None, "d"]}],
    "columns": ["--mesh", "d=2", "--hints", {"y": [None, "d"]}],
}


class Model:
    """A graph, and what its bytes have to be. `wrong` says which mistake is made."""

    def __init__(self, seed, wrong=None):
        self.random = np.random.default_rng(seed)
        self.wrong = wrong
        self.feeds, self.constants, self.nodes = {}, {}, []
        self.quanta = {}  # bytes, by name: scale and zero point
        self.checks = []  # name of the bytes, and a function from all bytes to real numbers
        self.products = 0

    def constant(self, name, value):
        self.constants[name] = np.asarray(value)
        return name

    def node(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def pair(self, name, scale, zero):
        """Real numbers of bytes."""
        self.quanta[name] = (np.float32(scale), zero)
        return self.node("DequantizeLinear",
                         [name, self.constant(name + ".scale", np.float32(scale)),
                          self.constant(name + ".zero", zero)], name + ".real")

    def given(self, name, shape, zero, scale=0.02):
        self.feeds[name] = run_bytes.extremes(self.random, shape, zero.dtype)
        return self.pair(name, scale, zero)

    def rounded(self, real, name, compute, scale, zero):
        """The bytes of what `compute` says, and their real numbers."""
        self.node("QuantizeLinear", [real, self.constant(name + ".scale", np.float32(scale)),
                                     self.constant(name + ".zero", zero)], name)
        self.checks.append((name, compute))
        return self.pair(name, scale, zero)

    def real(self, values, name):
        scale, zero = self.quanta[name]
        return np.float64(scale) * (values[name].astype(np.float64) - np.float64(zero))

    def weight(self, name, numbers, scales, zero=None, axis=0):
        names = [self.constant(name, numbers), self.constant(name + ".scale", scales)]
        if zero is not None:
            names.append(self.constant(name + ".zero", zero))
        axes = {"axis": axis} if scales.ndim else {}
        return self.node("DequantizeLinear", names, name + ".real", **axes)

    def conv(self, of, name, filters, attributes, kind=np.int8, bias="whole", scale=None):
        """A convolution of the bytes `of`: its real numbers' name, and how they follow."""
        self.products += 1
        w = run_bytes.extremes(self.random, filters, kind)
        zero = None
        if kind == np.uint8: # fits a signed byte without its zero point
            w, zero = (w // 2 + 64).astype(np.uint8), np.uint8(128)
        channels = filters[0]
        scales = self.random.uniform(1e-3, 9e-3, channels).astype(np.float32) \
            if scale is None else np.float32(scale)
        zeros = None if zero is None else np.full(np.shape(scales), zero)
        inputs = [of + ".real", self.weight(name + ".w", w, np.asarray(scales), zeros)]
        sx, zx = self.quanta[of]
        added = np.zeros(channels)
        if bias == "whole":
            units = self.random.integers(-9000, 9000, channels).astype(np.int32)
            unit = np.broadcast_to(sx * scales, channels)
            inputs.append(self.weight(name + ".b", units, np.ascontiguousarray(unit)))
            added = units * unit.astype(np.float64)
        elif bias == "real":
            added = self.random.normal(0, 2, channels).astype(np.float32)
            inputs.append(self.constant(name + ".b", added))
        self.node("Conv", inputs, name + ".sum", **attributes)

        def compute(values):
            wrong = self.wrong
            around = np.uint8(0) if wrong == "zero" and zx.dtype == np.uint8 else zx
            sums = run_bytes.convolved(values[of], w, around, zero, attributes)
            own = np.broadcast_to(scales, channels).astype(np.float64)
            own = np.roll(own, 1) if wrong == "scale" else own
            column = (-1, *[1] * (len(filters) - 2))
            of_bias = np.roll(added, 1) if wrong == "bias" else added
            return sums * (np.float64(sx) * own).reshape(column) + of_bias.reshape(column)
        return name + ".sum", compute


U = np.uint8
SAME = {"pads": [1, 1, 1, 1]}


def convolution(zero=U(77), then=None, channels=(8, 12), group=1, kernel=3, quantum=0.3,
                to=U(100), **more):
    """A convolution: what limits its real numbers, and how its bytes are."""
    def make(m):
        m.given("x", (2, channels[0], 9, 10), zero)
        attributes = {**(SAME if kernel == 3 else {}), "group": group}
        real, compute = m.conv("x", "c", (channels[1], channels[0] // group, kernel, kernel),
                               attributes, **more)
        limits = (-np.inf, np.inf)
        if then == "relu":
            real, limits = m.node("Relu", [real], "r"), (0, np.inf)
        elif then == "clip":
            real = m.node("Clip", [real, m.constant("low", np.float32(-2)),
                                   m.constant("high", np.float32(6))], "r")
            limits = (-2, 6)
        m.rounded(real, "y", lambda v: np.clip(compute(v), *limits), quantum, to)
    return make


def chain(m):
    """Two convolutions, a pool between, a residual sum and what moves bytes behind."""
    m.given("x", (2, 8, 10, 10), U(128))
    real, first = m.conv("x", "c1", (8, 8, 3, 3), SAME)
    m.rounded(m.node("Relu", [real], "r1"), "q1", lambda v: np.maximum(first(v), 0), 0.25, U(0))
    pool = m.node("MaxPool", ["q1.real"], "p1.f", kernel_shape=[3, 3], strides=[1, 1],
                  pads=[1, 1, 1, 1])

    def pooled(v):
        x = np.pad(m.real(v, "q1"), [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
        return np.max([x[:, :, i:i + 10, j:j + 10] for i in range(3) for j in range(3)], 0)
    m.rounded(pool, "p1", pooled, 0.25, U(0))
    real, second = m.conv("p1", "c2", (8, 8, 1, 1), {})
    m.rounded(real, "q2", second, 0.3, U(120))
    total = m.node("Add", ["q2.real", "x.real"], "t.f")
    m.rounded(total, "t", lambda v: m.real(v, "q2") + m.real(v, "x"), 0.35, U(110))
    moved = m.node("Transpose", ["t.real"], "m.f", perm=[0, 2, 3, 1])
    m.rounded(moved, "y", lambda v: m.real(v, "t").transpose(0, 2, 3, 1), 0.35, U(110))


def product(kind, zero=U(77), shape=(6, 40), to=U(130)):
    """A product with a constant, with and without a bias."""
    def make(m):
        m.given("x", shape, zero)
        m.products += 1
        w = run_bytes.extremes(m.random, (40, 24), np.int8)
        scales = m.random.uniform(1e-3, 9e-3, 24).astype(np.float32)
        unit = m.quanta["x"][0] * scales
        units = m.random.integers(-9000, 9000, 24).astype(np.int32)
        if kind == "MatMul":
            units *= 0
            real = m.node("MatMul", ["x.real", m.weight("w", w, scales, axis=1)], "z")
        else:
            names = ["x.real", m.weight("w", np.ascontiguousarray(w.T), scales),
                     m.weight("b", units, unit)]
            real = m.node("Gemm", names, "z", transB=1)

        def compute(v):
            own = np.roll(scales, 1) if m.wrong == "scale" else scales
            zx = 0 if m.wrong == "zero" else np.int64(zero)
            sums = (v["x"].astype(np.int64) - zx) @ w.astype(np.int64)
            added = np.roll(units, 1) if m.wrong == "bias" else units
            return sums * (np.float64(m.quanta["x"][0]) * own) + added * unit.astype(np.float64)
        m.rounded(real, "y", compute, 0.4, to)
    return make


def computed(zero, other):
    """A product of two computed operands, as attention has them."""
    def make(m):
        m.given("x", (2, 3, 7, 40), zero)
        m.given("k", (2, 3, 40, 9), other, 0.01)
        m.products += 1
        m.node("MatMul", ["x.real", "k.real"], "z")

        def compute(v):
            wrong = {"x": 0, "k": 0} if m.wrong == "zero" else {"x": zero, "k": other}
            a, b = (v[n].astype(np.int64) - np.int64(wrong[n]) for n in "xk")
            return (a @ b) * (np.float64(m.quanta["x"][0]) * np.float64(m.quanta["k"][0]))
        m.rounded("z", "y", compute, 0.5, U(128))
    return make


#: Name, what makes the model, and mistakes that show.
MODELS = {
    "conv": (convolution(), ["zero", "scale", "bias"]),
    "conv_relu": (convolution(then="relu", to=U(0)), ["scale", "bias"]),
    "conv_relu_between": (convolution(then="relu", to=U(60)), ["zero"]),
    "conv_clip": (convolution(then="clip", quantum=0.05), ["zero", "bias"]),
    "conv_signed": (convolution(zero=np.int8(-5), to=np.int8(3)), ["scale"]),
    "conv_zero": (convolution(zero=U(0)), ["scale"]),
    "conv_no_bias": (convolution(bias=None), ["zero"]),
    "conv_real_bias": (convolution(bias="real"), ["bias"]),
    "conv_point": (convolution(kernel=1), ["scale"]),
    "conv_groups": (convolution(group=4), ["scale"]),
    "conv_depthwise": (convolution(channels=(16, 16), group=16, quantum=0.1), ["scale"]),
    "conv_u8_weights": (convolution(kind=np.uint8), ["zero"]),
    "conv_one_scale": (convolution(scale=0.004), ["zero"]),
    "chain": (chain, ["scale", "bias"]),
    "matmul": (product("MatMul"), ["zero", "scale"]),
    "matmul_batch": (product("MatMul", shape=(2, 5, 40)), ["zero", "scale"]),
    "gemm": (product("Gemm"), ["zero", "scale", "bias"]),
    "gemm_signed": (product("Gemm", zero=np.int8(-7)), ["bias"]),
    "computed": (computed(U(77), np.int8(5)), ["zero"]),
    "computed_unsigned": (computed(U(0), U(130)), ["zero"]),
}


def write(model, path):
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in model.feeds.items()]
    outputs = [helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(model.quanta[name][1].dtype), None)
               for name, _ in model.checks]
    graph = helper.make_graph(model.nodes[:-1], "pairs", info, outputs,
                              [numpy_helper.from_array(x, n)
                               for n, x in model.constants.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    onnx.save(onnx.shape_inference.infer_shapes(made), path)


def judge(model, values):
    """Numbers that are none of the nearest two, and those that are not the nearest."""
    wrong = neighbours = total = 0
    for name, compute in model.checks:
        scale, zero = model.quanta[name]
        limits = np.iinfo(zero.dtype)
        real = compute(values) / np.float64(scale) + np.float64(zero)
        real = np.clip(real, limits.min, limits.max)
        far = np.abs(values[name].astype(np.float64) - real)
        if far.shape != values[name].shape:
            raise RuntimeError(f"'{name}' has shape {values[name].shape}")
        wrong += np.count_nonzero(far > MOST)
        neighbours += np.count_nonzero(far > 0.5)
        total += far.size
    return wrong, neighbours, total


def check_form(partita, path, products):
    """The program has the products, all of bytes."""
    with tempfile.TemporaryDirectory(prefix="partita-pairs-") as folder:
        subprocess.run([partita, "compile", path, "--to", "L0", "--dump-dir", folder],
                       check=True, capture_output=True)
        formed = pathlib.Path(folder) / "00b-integers.mlir"
        text = formed.read_text() if formed.exists() else ""
    found = re.findall(r"graph\.(?:conv|contract) .*", text)
    whole = sum("sums = i32" in line for line in found)
    if whole != products or len(found) != products:
        raise RuntimeError(f"{whole} of {len(found)} products are of bytes, not {products}")


def check(partita, work, name, way, mesh):
    make, mistakes = MODELS[name]
    model = Model(7)
    make(model)
    path = work / "model.onnx"
    write(model, path)
    options, environment = run_bytes.WAYS[way]
    meshes = MESHES if model.feeds["x"].ndim == 4 else MATRIX_MESHES
    if mesh == "one rank":
        check_form(partita, path, model.products)
    outputs = run_bytes.run(partita, work, path, model.feeds, [*options, *meshes[mesh]],
                            environment, len(model.checks))
    values = dict(model.feeds)
    values.update(zip((n for n, _ in model.checks), outputs))
    wrong, neighbours, total = judge(model, values)
    if wrong:
        raise RuntimeError(f"{wrong} of {total} numbers are further than {MOST} quanta")
    for mistake in mistakes:
        other = Model(7, mistake)
        make(other)
        if not judge(other, values)[0]:
            raise RuntimeError(f"a wrong {mistake} is not found")
    return neighbours, total


def everything():
    for name, (make, _) in MODELS.items():
        model = Model(7)
        make(model)
        shape = model.feeds["x"].shape
        meshes = list(MESHES if len(shape) == 4 else MATRIX_MESHES)
        if len(shape) == 3 or name in ("computed", "computed_unsigned", "chain"):
            meshes = meshes[:2] if len(shape) == 4 else meshes[:1]
        if "groups" in name or "depthwise" in name:
            meshes = meshes[:3]
        for mesh in meshes:
            for way in run_bytes.WAYS:
                yield name, way, mesh


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    cases = list(everything())
    if wanted:
        cases = [case for case in cases if case[0] in wanted]
    else:
        cases = tier.sample("pairs", cases, kind=lambda case: (case[0], case[1]))
    failed = neighbours = total = 0
    for name, way, mesh in cases:
        with tempfile.TemporaryDirectory(prefix="partita-pairs-") as folder:
            try:
                found = check(partita, pathlib.Path(folder), name, way, mesh)
                neighbours, total = neighbours + found[0], total + found[1]
            except (RuntimeError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"{name}, {way}, {mesh}: {error}", flush=True)
    print(f"{neighbours} of {total} numbers are the second nearest")
    print(f"{'FAILED' if failed else 'ok'}: {len(cases) - failed} of {len(cases)} right")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
