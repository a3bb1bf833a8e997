#!/usr/bin/env python3
"""A bundle whose input is split every way, from every kind of file.

usage: run_inputs.py WORK PARTITA
"""
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORK, PARTITA = sys.argv[1:]


def path(name):
    return os.path.join(WORK, name)


def call(*arguments):
    return subprocess.run([PARTITA, *arguments], capture_output=True, text=True)


def build():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 8, 160])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3, 8, 160])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"], "neg")], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                ir_version=9), path("m.onnx"))


def write_safetensors(name, value):
    header = json.dumps({"x": {"dtype": "F32", "shape": list(value.shape),
                               "data_offsets": [0, value.nbytes]}}).encode()
    with open(path(name), "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + value.tobytes())


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    build()
    value = np.random.default_rng(0).standard_normal((4, 3, 8, 160)).astype(np.float32)
    np.save(path("x.npy"), value)
    np.save(path("column.npy"), np.asfortranarray(value))
    np.savez(path("x.npz"), other=np.zeros(3), x=value)
    np.savez_compressed(path("small.npz"), x=value)
    write_safetensors("x.safetensors", value)
    with open(path("x.pb"), "wb") as file:
        file.write(numpy_helper.from_array(value, "x").SerializeToString())
    files = ["x.npy", "column.npy", "x.npz", "x.npz:x", "x.safetensors",
             "x.safetensors:x", "x.pb"]
    splits = {"batch": ["a", None, None, None], "rows": [None, None, "a", None],
              "columns": [None, None, None, "a"]}
    for name, dims in splits.items():
        with open(path("hints.json"), "w") as file:
            json.dump({"tensors": {"x": dims}}, file)
        bundle = path(name)
        done = call("compile", path("m.onnx"), "-o", bundle, "--mesh", "a=2", "--hints",
                    path("hints.json"))
        if done.returncode:
            sys.exit(done.stderr)
        for given in files if name == "rows" else files[:3]:
            for transport in ("local", "mpi") if given == "x.npz" else ("local",):
                out = path("out")
                done = call("run", bundle, "--input", f"x={path(given)}", "--outputs-dir",
                            out, "--transport", transport, "--repeat", "2")
                if done.returncode:
                    sys.exit(f"{name}, {given}: {done.stderr}")
                result = numpy_helper.to_array(onnx.load_tensor(f"{out}/output_0.pb"))
                if not np.array_equal(result, -value):
                    sys.exit(f"{name}, {given}, {transport}: wrong numbers")
    errors = {"small.npz": "'x' is compressed; save it with numpy.savez",
              "x.npz:y": "has no tensor 'y'; it has other, x",
              "x.npz:other": "has element type f64, expected f32",
              "x.txt": "expected a .npy, .npz, .safetensors or .pb file",
              "absent.npz": "absent.npz"}
    for given, wanted in errors.items():
        done = call("run", path("rows"), "--input", f"x={path(given)}")
        if done.returncode != 1 or wanted not in done.stderr:
            sys.exit(f"{given}: {done.stderr}")
    with open(path("x.npz"), "rb") as file:
        whole = file.read()
    for cut in (10, len(whole) // 2, len(whole) - 30):
        with open(path("cut.npz"), "wb") as file:
            file.write(whole[:cut])
        done = call("run", path("rows"), "--input", f"x={path('cut.npz')}")
        if done.returncode != 1 or done.stderr.count("\n") != 1:
            sys.exit(f"cut at {cut}: {done.returncode} {done.stderr}")


if __name__ == "__main__":
    main()
