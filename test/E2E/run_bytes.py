#!/usr/bin/env python3
"""Products of 8-bit integers (MatMulInteger) on 1, 2 and 3 ranks: the bits of NumPy's sums in 64
bits, with numbers that saturate where a CPU adds two products in 16. ONNX Runtime is no judge:
its products saturate on CPUs without VNNI.

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

#: The way that each rank computes: as this CPU, as one of 256-bit vectors, by plain loops.
WAYS = {
    "cpu": ([], {}),
    "avx2": (["--target-cpu", "x86-64-v3"], {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "plain": (["--target", "plain"], {}),
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


def exact(a, b, za, zb):
    a, b = a.astype(np.int64), b.astype(np.int64)
    if za is not None:
        za = za.astype(np.int64)
        a = a - (za[:, None] if za.ndim else za)
    if zb is not None:
        b = b - zb.astype(np.int64)
    return np.matmul(a, b).astype(np.int32)  # modulo 2^32


def write(path, a, b, za, zb, is_weight):
    feeds = {"a": a} if is_weight else {"a": a, "b": b}
    constants = {"b": b} if is_weight else {}
    names = ["a", "b", "", ""]
    for i, (name, value) in enumerate([("za", za), ("zb", zb)]):
        if value is not None:
            constants[name], names[2 + i] = np.asarray(value), name
    while not names[-1]:
        names.pop()
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in feeds.items()]
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", names, ["y"], "product")], "main", info,
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)],
        [numpy_helper.from_array(x, n) for n, x in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return feeds


def run(partita, work, path, feeds, options, environment):
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
    return numpy_helper.to_array(onnx.load_tensor(work / "outputs" / "output_0.pb"))


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    failed = count = 0
    for name, a, b, za, zb, is_weight in cases():
        if wanted and name not in wanted:
            continue
        expected = exact(a, b, za, zb)
        with tempfile.TemporaryDirectory(prefix="partita-bytes-") as folder:
            work = pathlib.Path(folder)
            feeds = write(work / "model.onnx", a, b, za, zb, is_weight)
            for way, (options, environment) in WAYS.items():
                for mesh, given in MESHES.items():
                    # Hints are for matrices.
                    if mesh != "one rank" and (a.ndim != 2 or b.ndim != 2):
                        given = given[:2]
                    count += 1
                    try:
                        got = run(partita, work, work / "model.onnx", feeds,
                                  [*options, *given], environment)
                        wrong = np.count_nonzero(got != expected)
                        if got.shape != expected.shape or wrong:
                            raise RuntimeError(f"{wrong} of {expected.size} differ")
                    except RuntimeError as error:
                        failed += 1
                        print(f"{name}, {way}, {mesh}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {count - failed} of {count} equal")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
