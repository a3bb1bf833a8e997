#!/usr/bin/env python3
"""Writes what a GPU is given: kernels as PTX, arguments, and what a CPU makes of them.

usage: prepare_cases.py BIN ZOO OUT [--models MODEL…] [--large] [--seed 1] [--check]
                        [--architecture sm_80]

BIN is the folder of built programs. A model is one of the zoo, or one of
test/E2E/training_models.py, with "-step" its training step (Adam). Each has a folder of
OUT, as record-kernels writes it. With --large there is one more, of kernels on tensors of
256 MiB, without arguments: for times. --check reads again what was written: arguments as
many and as large as kernels take.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "E2E"))
import training_models  # noqa: E402

MODELS = ["mlp", "mlp-step", "conv", "conv-step", "transformer", "transformer-step",
          "fused-step", "stack-step", "gpt2-script", "gpt2-builder-tied", "bert-dynamo",
          "bert-script-opset11", "llama-dynamo-opset23", "gemma2-script", "qwen2-dynamo",
          "vit-script", "dinov2-script", "t5-script", "modernbert-dynamo", "ppocr-cls"]
#: The last node of the models that are written here.
OUTPUTS = {"mlp": "fc2", "conv": "fc"}


def write_inputs(folder, tensors):
    for k, tensor in enumerate(tensors):
        (folder / f"input_{k}.pb").write_bytes(
            numpy_helper.from_array(tensor).SerializeToString())


def own_model(name, folder, seed):
    """A model of training_models; the options of its compile."""
    base, is_step = name.removesuffix("-step"), name.endswith("-step")
    draws, labels, classes = training_models.MODELS[base](str(folder / "model.onnx"))
    random = np.random.default_rng(seed)
    tensors, options = [draw(random) for draw in draws.values()], []
    if is_step:
        spec = {"loss": {"kind": "softmax_cross_entropy", "labels": "labels", "axis": -1,
                         "of": OUTPUTS.get(base, "head")},
                "optimizer": {"kind": "adamw", "lr": 0.01, "weight_decay": 0.1},
                "clip_norm": 1.0}
        (folder / "spec.json").write_text(json.dumps(spec))
        options = ["--train", folder / "spec.json"]
        tensors.append(random.integers(0, classes, labels))
    write_inputs(folder, tensors)
    return folder / "model.onnx", folder, options


def zoo_model(zoo, name):
    case = json.loads((zoo / name / "case.json").read_text())
    options = [word for key, shape in case["shapes"].items()
               for word in ("--shape", key + "=" + ",".join(map(str, shape)))]
    return zoo / name / "model.onnx", zoo / name / "inputs", options


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command[:4]))}: {done.stderr[-2000:]}")
    return done.stdout


def prepare(args, name):
    folder = args.out / name
    folder.mkdir(parents=True)
    if name.removesuffix("-step") in training_models.MODELS:
        model, inputs, options = own_model(name, folder, args.seed)
    else:
        model, inputs, options = zoo_model(args.zoo, name)
    said = run([args.bin / "record-kernels", "compile", model, "-o", folder / "bundle",
                "--inputs-dir", inputs, "--record", folder, "--architecture",
                args.architecture, *options])
    shutil.rmtree(folder / "bundle")
    for path in list(folder.glob("*.pb")) + list(folder.glob("model.onnx")):
        path.unlink()
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {said.strip()}, seed {args.seed}, {size / 2**20:.1f} MiB", flush=True)
    if args.check:
        check(name, folder)


def parameters(ptx):
    """How many parameters each entry point has."""
    return {name: len(re.findall(r"\.param", body)) for name, body in
            re.findall(r"\.visible \.entry (\w+)\((.*?)\)", ptx, re.S)}


def check(name, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    counts = parameters((folder / "kernels.ptx").read_text())
    kernels = manifest["kernels"]
    if {k["name"]: len(k["arguments"]) for k in kernels} != counts:
        sys.exit(f"{name}: manifest and PTX differ in kernels or in their parameters")
    widths = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i64": 8, "i32": 4}
    end = 0
    for case in json.loads((folder / "cases.json").read_text()):
        arguments = kernels[case["kernel"]]["arguments"]
        tensors = [a for a in arguments if a["kind"] in ("in", "out")]
        bytes_of = [a["elements"] * widths.get(a["type"], 1) for a in tensors]
        outs = [b for a, b in zip(tensors, bytes_of) if a["kind"] == "out"]
        if bytes_of != case["before"] or outs != case["after"] or case["begin"] != end:
            sys.exit(f"{name}: {kernels[case['kernel']]['name']} has other arguments in "
                     "cases.json than in manifest.json")
        end += sum(bytes_of) + sum(outs)
    if end != (folder / "data.bin").stat().st_size or end == 0:
        sys.exit(f"{name}: data.bin has not the bytes that cases.json names")


def large_model(path):
    """Kernels of one op or few, on tensors that no cache holds."""
    rows, width = 65536, 1024
    nodes, weights, outputs = [], [], []
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, width])
              for n in ("x", "y")]
    inputs.append(helper.make_tensor_value_info("h", TensorProto.FLOAT16, [rows, 2 * width]))

    def op(kind, operands, name, shape=(rows, width), type=TensorProto.FLOAT, **attributes):
        nodes.append(helper.make_node(kind, operands, [name], name=name, **attributes))
        if shape:
            outputs.append(helper.make_tensor_value_info(name, type, shape))
        return name

    def weight(name, value):
        weights.append(numpy_helper.from_array(value, name))
        return name

    ones = weight("ones", np.linspace(0.5, 1.5, width, dtype=np.float32))
    op("Add", ["x", "y"], "add")
    op("Gelu", ["x"], "gelu")
    op("Add", ["h", "h"], "add_f16", (rows, 2 * width), TensorProto.FLOAT16)
    op("Softmax", ["x"], "softmax", axis=-1)
    op("LayerNormalization", ["x", ones, ones], "norm", axis=-1)
    op("ReduceSum", ["x", weight("last", np.array([1]))], "sum_rows", (rows,), keepdims=0)
    op("ReduceSum", ["x", weight("first", np.array([0]))], "sum_columns", (width,),
       keepdims=0)
    op("CumSum", ["x", weight("axis", np.array(1))], "cumulative")
    op("Relu", [op("Transpose", ["x"], "turn", None, perm=[1, 0])], "transpose",
       (width, rows))
    graph = helper.make_graph(nodes, "large", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 9
    onnx.save(model, path)


def prepare_large(args):
    folder = args.out / "large"
    folder.mkdir(parents=True)
    large_model(folder / "model.onnx")
    run([args.bin / "partita", "compile", folder / "model.onnx", "--to", "L3", "--dump-dir",
         folder / "ir"])
    said = run([args.bin / "partita-opt", folder / "ir/03-partitioned.mlir", "-o", os.devnull,
                f"--partita-emit-ptx=out={folder}/kernels.ptx "
                f"manifest={folder}/manifest.json architecture={args.architecture}"])
    shutil.rmtree(folder / "ir")
    (folder / "model.onnx").unlink()
    print(f"large: {said.strip()}, for times", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("zoo", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--architecture", default="sm_80")
    args = parser.parse_args()
    if args.out.exists():
        shutil.rmtree(args.out)
    for name in args.models:
        prepare(args, name)
    if args.large:
        prepare_large(args)


if __name__ == "__main__":
    main()
