#!/usr/bin/env python3
"""GatherBlockQuantized of com.microsoft on 1 to 4 ranks, against
ONNX Runtime where its CPU has the form and the formulas here, which are compared with each
other as well. That weights stay packed is the size of the bundle.

A sweep: the quick tier has a tenth of the cases.

usage: run_few_bits.py PARTITA [NAME…]
"""
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

#: Cases that are split in all ways.
THOROUGH = {"u8_4_float32_zeros", "u8_rest", "int4_0_1", "int4_1_2", "uint4_odd", "outside"}


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
    """One rank, what is chosen for three, and each of the hints on two."""
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
