#!/usr/bin/env python3
"""Products with weights of 4 bits in scaled blocks (MatMulNBits, DequantizeLinear before MatMul
and Gemm) on 1 to 4 ranks, against sums in f64, on each kind of engine. That their weights stay
packed is the size of the bundle.

A sweep: the quick tier has a tenth of the cases.

usage: run_blocks.py PARTITA [NAME…]
"""
import itertools
import pathlib
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

import tier
from run_bytes import WAYS, run

ROWS = {
    "one rank": [],
    "rows": ["--mesh", "d=2", "--hints", {"x": ["d", None]}],
    "columns": ["--mesh", "d=3", "--hints", {"y": [None, "d"]}],
    "summands": ["--mesh", "d=2", "--hints", {"x": [None, "d"]}],
    "summands of three": ["--mesh", "d=3", "--hints", {"x": [None, "d"]}],
    "both": ["--mesh", "d=2,e=2", "--hints", {"x": [None, "d"], "y": [None, "e"]}],
    "four": ["--mesh", "d=4"],
}


#: Cases that are split in all ways.
THOROUGH = {"block_32", "block_16_zeros", "block_64_zeros", "rest_packed", "many_rows",
            "matmul_i4_rest", "gemm_u4", "level_4", "level_4_many_rows"}


class Case:
    """A model of one product, its input, and what it should give, with the sum of the sizes of
    what is added to each number."""

    def __init__(self, name, rows, k, n, block, zeros=None, kind="nbits", dtype=np.float32,
                 bias=False, groups=False, level=0):
        random = np.random.default_rng(abs(hash((rows, k, n, block))) % 2 ** 31)
        self.name, self.kind, self.block, self.dtype = name, kind, block, dtype
        self.level = level
        self.x = random.standard_normal((*rows, k)).astype(dtype)
        blocks = -(-k // block)
        self.numbers = random.integers(0, 16, (n, k))
        self.scales = (random.random((n, blocks)) / 8 + 0.01).astype(dtype)
        self.zeros = random.integers(0, 16, (n, blocks)) if zeros == "packed" else \
            (8 + 3 * random.standard_normal((n, blocks))).astype(dtype) \
            if zeros == "real" else np.full((n, blocks), 8)
        self.has_zeros = zeros is not None
        self.bias = random.standard_normal(n).astype(dtype) if bias else None
        self.groups = np.roll(np.arange(k) // block, block).astype(np.int32) if groups \
            else None

    def expected(self):
        k = self.numbers.shape[1]
        place = self.groups if self.groups is not None else np.arange(k) // self.block
        zeros = self.zeros.astype(np.float64)[:, place]
        scales = self.scales.astype(np.float64)[:, place]
        x = self.rounded() if self.level == 4 else self.x.astype(np.float64)
        y = x @ ((self.numbers - zeros) * scales).T
        size = np.abs(x) @ ((self.numbers + np.abs(zeros)) * np.abs(scales)).T
        if self.bias is not None:
            y, size = y + self.bias, size + np.abs(self.bias)
        return y, size

    def rounded(self):
        """The rows in whole steps of a 127th of their block's largest magnitude."""
        k = self.x.shape[-1]
        whole = np.pad(self.x.astype(np.float32), [(0, 0)] * (self.x.ndim - 1)
                       + [(0, -k % self.block)])
        blocks = whole.reshape(*whole.shape[:-1], -1, self.block)
        largest = np.maximum(np.abs(blocks).max(axis=-1, keepdims=True), np.float32(1e-30))
        # In f32, as kernels do: a half goes one way or the other.
        steps = np.rint(blocks * (np.float32(127) / largest)).astype(np.float64)
        return (steps * (largest.astype(np.float64) / 127)).reshape(whole.shape)[..., :k]

    def packed(self, numbers):
        """Packs two in a byte along the last dim, the first one low."""
        if numbers.shape[-1] % 2:
            numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, 1)])
        return (numbers[..., ::2] | numbers[..., 1::2] << 4).astype(np.uint8)

    def nbits(self):
        n, k = self.numbers.shape
        blocks = self.scales.shape[1]
        # Numbers behind the last one of a row are not read.
        whole = np.pad(self.numbers, [(0, 0), (0, blocks * self.block - k)],
                       constant_values=13)
        given = {"w": self.packed(whole).reshape(n, blocks, self.block // 2),
                 "s": self.scales.reshape(-1) if k % 3 else self.scales}
        names = ["x", "w", "s", "", "", ""]
        for at, (name, value) in enumerate([("z", self.zeros if self.has_zeros else None),
                                            ("g", self.groups), ("b", self.bias)]):
            if value is not None:
                given[name], names[3 + at] = value, name
        if self.has_zeros and self.zeros.dtype != self.dtype:
            given["z"] = self.packed(self.zeros).reshape(-1)
        while not names[-1]:
            names.pop()
        node = helper.make_node("MatMulNBits", names, ["y"], "product", bits=4,
                                domain="com.microsoft", K=k, N=n, block_size=self.block,
                                accuracy_level=self.level)
        return [node], [numpy_helper.from_array(v, name) for name, v in given.items()]

    def dequantized(self):
        """The weight as `kind` says: of i4 or u4; for a MatMul [K, N], for one behind a
        Transpose and for a Gemm with transB [N, K]."""
        signed = "i4" in self.kind
        turned = "transposed" in self.kind or "gemm" in self.kind
        offset, kind = (8, ml_dtypes.int4) if signed else (0, ml_dtypes.uint4)

        def tensor(name, value):
            value = (value - offset).astype(kind)
            return numpy_helper.from_array(value if turned else value.T.copy(), name)
        given = [tensor("w", self.numbers),
                 numpy_helper.from_array(self.scales if turned else self.scales.T.copy(), "s")]
        names = ["w", "s"]
        if self.has_zeros or not signed:
            given.append(tensor("z", self.zeros))
            names.append("z")
        nodes = [helper.make_node("DequantizeLinear", names, ["real"], "real",
                                  axis=1 if turned else 0, block_size=self.block)]
        weight, more = "real", {}
        if "transposed" in self.kind:
            nodes.append(helper.make_node("Transpose", ["real"], ["turned"], "turn",
                                          perm=[1, 0]))
            weight = "turned"
        inputs = ["x", weight]
        if "gemm" in self.kind:
            more = {"transB": 1, "alpha": 1.0}
            if self.bias is not None:
                inputs.append("b")
                given.append(numpy_helper.from_array(self.bias, "b"))
        nodes.append(helper.make_node("Gemm" if more else "MatMul", inputs, ["y"], "product",
                                      **more))
        return nodes, given

    def write(self, path):
        nodes, given = self.nbits() if self.kind == "nbits" else self.dequantized()
        type = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        shape = (*self.x.shape[:-1], self.numbers.shape[0])
        graph = helper.make_graph(
            nodes, "main", [helper.make_tensor_value_info("x", type, self.x.shape)],
            [helper.make_tensor_value_info("y", type, shape)], given)
        model = helper.make_model(graph, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = 10
        onnx.save(model, path)

    def meshes(self):
        few = ["one rank", "summands" if self.x.ndim == 2 else "four"]
        return [(mesh, given) for mesh, given in ROWS.items()
                if self.name in THOROUGH or mesh in few]

    def staysPacked(self):
        return self.groups is None


def cases():
    for block in (16, 32, 64, 128, 256):
        yield Case(f"block_{block}", (5,), 3 * block, 29, block)
        yield Case(f"block_{block}_zeros", (2,), 4 * block, 24, block, "packed")
        yield Case(f"block_{block}_real", (1,), 5 * block, 33, block, "real")
    # The last block is not full.
    for zeros in (None, "packed", "real"):
        yield Case(f"rest_{zeros}", (4,), 70, 21, 32, zeros)
    yield Case("one_block", (3,), 32, 10, 32, "packed")
    yield Case("less_than_a_block", (3,), 20, 10, 32)
    yield Case("bias", (6,), 96, 40, 16, "packed", bias=True)
    yield Case("groups", (3,), 96, 12, 16, "packed", groups=True)
    yield Case("half", (3,), 96, 24, 32, "packed", dtype=np.float16)
    yield Case("half_real", (11,), 96, 24, 32, "real", dtype=np.float16)
    yield Case("many_rows", (300,), 352, 70, 32, "packed")
    yield Case("batches", (2, 3, 7), 96, 24, 32, "packed")
    yield Case("vector", (), 96, 24, 32)
    for kind in ("matmul_i4", "matmul_u4", "transposed_i4", "transposed_u4", "gemm_i4",
                 "gemm_u4"):
        yield Case(kind, (5,), 96, 27, 32, "packed", kind, bias="gemm" in kind)
        yield Case(f"{kind}_rest", (9,), 110, 20, 16, "packed", kind)
    yield Case("matmul_i4_plain", (2,), 128, 36, 64, None, "matmul_i4")
    yield Case("matmul_i4_half", (2,), 128, 36, 64, "packed", "matmul_i4", dtype=np.float16)
    for level in (1, 4):
        yield Case(f"level_{level}", (5,), 96, 40, 32, "packed", bias=True, level=level)
    for block in (16, 64, 128, 256):
        yield Case(f"level_4_block_{block}", (3,), 4 * block, 50, block, "packed", level=4)
    yield Case("level_4_real", (1,), 320, 70, 32, "real", level=4)
    yield Case("level_4_rest", (4,), 70, 21, 32, "packed", level=4)
    yield Case("level_4_half", (3,), 96, 24, 32, "packed", dtype=np.float16, level=4)
    yield Case("level_4_many_rows", (300,), 352, 70, 32, None, level=4)
    yield Case("level_4_matmul_u4", (5,), 96, 27, 32, "packed", "matmul_u4", level=4)
    yield Case("level_4_gemm_i4", (9,), 110, 20, 16, "packed", "gemm_i4", bias=True, level=4)


def check(partita, case, way, given):
    options, environment = WAYS[way]
    with tempfile.TemporaryDirectory(prefix="partita-blocks-") as folder:
        work = pathlib.Path(folder)
        case.write(work / "model.onnx")
        level = ["--accuracy-level", "4"] if case.level == 4 and case.kind != "nbits" else []
        [got] = run(partita, work, work / "model.onnx", {"x": case.x},
                    [*options, *given, *level], environment)
        weights = work / "bundle" / "weights.safetensors"
        bytes = weights.stat().st_size if weights.exists() else 0
    y, size = case.expected()
    if got.shape != y.shape or got.dtype != case.dtype:
        raise RuntimeError(f"is {got.dtype} {got.shape}, expected {y.shape}")
    rounding = 1e-6 * size + (np.abs(y) / 1024 if case.dtype == np.float16 else 0)
    if case.groups is not None and case.dtype == np.float32:
        rounding = 4 * rounding # weights are rounded before
    worst = float(np.max(np.abs(got.astype(np.float64) - y) / rounding))
    if not worst < 1:
        raise RuntimeError(f"{worst:.2f} of the rounding of f32")
    # A byte for two numbers; at most 8 for a block; names and a bias.
    most = case.scales.size * (case.block / 2 + 8) + 4 * y.shape[-1] + 2000
    if case.staysPacked() and bytes > most:
        raise RuntimeError(f"weights take {bytes} bytes, expected are at most {most:.0f}")


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    everything = [(case, way, mesh, given) for case in cases()
                  for (mesh, given), way in itertools.product(case.meshes(), WAYS)]
    taken = [c for c in everything if c[0].name in wanted] if wanted else \
        tier.sample("blocks", everything, kind=lambda case: case[1])
    failed = 0
    for case, way, mesh, given in taken:
        try:
            check(partita, case, way, given)
        except RuntimeError as error:
            failed += 1
            print(f"{case.name}, {way}, {mesh}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {len(taken) - failed} of {len(taken)} equal")
    return 1 if failed or not taken else 0


if __name__ == "__main__":
    sys.exit(main())
