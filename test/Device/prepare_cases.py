#!/usr/bin/env python3
"""Writes what a GPU is given: kernels as PTX, arguments, and what a CPU makes of them.

usage: prepare_cases.py BIN ZOO OUT [--models MODEL…] [--products] [--attentions]
                        [--large] [--seed 1] [--check] [--architecture sm_80]

BIN is the folder of built programs. A model is one of the zoo, or one of
test/E2E/training_models.py, with "-step" its training step (Adam). Each has a folder of
OUT, as record-kernels writes it. With --products there is one of small products, with
--attentions one for each of run_attention.py's and of some in halves; with --large two of kernels on tensors of 256 MiB, and of large products, without arguments: for
times. --check reads again what was written: arguments as
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

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "E2E"))
import run_attention  # noqa: E402
import training_models  # noqa: E402

MODELS = ["mlp", "mlp-step", "conv", "conv-step", "transformer", "transformer-step",
          "fused-step", "stack-step", "gpt2-script", "gpt2-builder-tied", "bert-dynamo",
          "bert-script-opset11", "llama-dynamo-opset23", "gemma2-script", "qwen2-dynamo",
          "vit-script", "dinov2-script", "t5-script", "modernbert-dynamo", "ppocr-cls"]
#: Edges in all dims, both transpositions, batches, rows that no vector fits.
PRODUCTS = [f"{kind}:{shape}" for kind in ("f32", "bf16", "f16") for shape in (
    "128x128x64", "128x128x64,ta", "128x128x64,tb", "128x128x64,ta,tb", "1x1x1", "7x5x3",
    "65x66x67", "65x66x67,ta", "65x66x67,tb", "65x66x67,ta,tb", "130x70x200,pad=8",
    "130x70x200,ta,tb,pad=8", "33x24x40,batch=5", "33x24x40,batch=5,shared,tb",
    "257x136x72,pad=1", "256x256x256", "200x1000x48,tiles=128/128/32/2/2/3/2",
    "333x190x79,tb,tiles=128/128/32/2/2/4/1", "333x192x80,ta,tiles=128/256/32/2/4/3/1")]
#: Tiles that are tried on large products: m/n/k/warp rows/warp columns/stages/resident.
TRIED = {
    "f32": ["128/128/16/2/4/2/2", "128/128/8/2/4/2/2", "128/128/16/2/4/3/2",
            "128/128/16/4/2/2/2", "128/256/16/2/4/2/1", "256/128/16/4/2/2/1"],
    "bf16": ["128/128/32/2/2/3/2", "128/128/32/2/4/3/2", "128/128/64/2/2/3/2",
             "128/256/32/2/4/3/1", "128/256/64/2/4/3/1", "256/128/32/4/2/3/1",
             "256/128/64/4/2/3/1", "128/128/32/2/2/4/2"],
}
LARGE = [f"{kind}:{size},tiles={tiles}" for kind, all_tiles in TRIED.items()
         for tiles in all_tiles for size in ("4096x4096x4096",)] + [
    f"{kind}:{size}" for kind in ("f32", "bf16", "f16")
    for size in ("2048x2048x2048", "1024x1024x1024", "4096x1024x4096",
                 "4096x4096x4096,ta", "4096x4096x4096,tb", "8192x8192x8192")
    if (kind, size) != ("f32", "8192x8192x8192")]
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


def attention_models(folder, seed):
    """Those of run_attention.py, and some in halves: a file of each."""
    run_attention.RANDOM = np.random.default_rng(seed)
    for name, graph, result, opset in run_attention.cases():
        yield name, graph.model(result, opset), list(graph.inputs.values())
    for kind, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        for s, t, d, groups in ((64, 64, 64, 4), (197, 197, 64, 2), (70, 300, 128, 4),
                                (33, 300, 40, 4), (130, 131, 16, 4)):
            graph = run_attention.Graph()
            q, k, v = run_attention.operands(graph, 2, 4, s, t, d, dtype=dtype)
            seen = run_attention.causal(s, t)
            result = run_attention.plain(
                graph, q, k, v, d, dtype=dtype,
                mask=lambda x: graph.op("Where", seen, x, dtype(-np.inf)))
            yield (f"{kind}_{s}_{t}_{d}", graph.model(result, 20),
                   list(graph.inputs.values()))


def prepare_attentions(args):
    for name, model, inputs in attention_models(args.out, args.seed):
        folder = args.out / f"attention-{name}"
        folder.mkdir(parents=True)
        onnx.save(model, folder / "model.onnx")
        write_inputs(folder, inputs)
        record(args, folder.name, folder / "model.onnx", folder, [])


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
    record(args, name, model, inputs, options)


def record(args, name, model, inputs, options):
    folder = args.out / name
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


def prepare_products(args, name, products, *options):
    folder = args.out / name
    folder.mkdir(parents=True)
    said = run([args.bin / "record-kernels", "products", *products, "--record", folder,
                "--architecture", args.architecture, *options])
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {said.strip()}, seed {args.seed}, {size / 2**20:.1f} MiB", flush=True)
    if args.check and (folder / "cases.json").exists():
        check(name, folder)


def large_attention(path, kind, heads, tokens, width, is_causal):
    graph = run_attention.Graph()
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    operands = [graph.input(name, np.zeros((4, heads, tokens, width), dtype))
                for name in "qkv"]
    seen = run_attention.of_positions(graph, tokens, tokens) if is_causal else None
    result = run_attention.plain(
        graph, *operands, width, dtype=dtype,
        mask=(lambda x: graph.op("Where", seen, x, dtype(-np.inf))) if is_causal else None)
    onnx.save(graph.model(result, 20), path)


def emit(args, name, write):
    """A model's kernels alone, for times."""
    folder = args.out / name
    folder.mkdir(parents=True)
    write(folder / "model.onnx")
    run([args.bin / "partita", "compile", folder / "model.onnx", "--to", "L3", "--dump-dir",
         folder / "ir"])
    said = run([args.bin / "partita-opt", folder / "ir/03-partitioned.mlir", "-o", os.devnull,
                f"--partita-emit-ptx=out={folder}/kernels.ptx "
                f"manifest={folder}/manifest.json architecture={args.architecture}"])
    shutil.rmtree(folder / "ir")
    (folder / "model.onnx").unlink()
    print(f"{name}: {said.strip()}, for times", flush=True)


def prepare_large(args):
    emit(args, "large", large_model)
    for kind in ("f32", "bf16"):
        for shape in ((16, 2048, 64), (16, 4096, 128)):
            for is_causal in (False, True):
                name = "large-attention-" + "-".join(map(str, (kind, *shape)))
                emit(args, name + ("-causal" if is_causal else ""),
                     lambda path: large_attention(path, kind, *shape, is_causal))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("zoo", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--products", action="store_true")
    parser.add_argument("--attentions", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--architecture", default="sm_80")
    args = parser.parse_args()
    if args.out.exists():
        shutil.rmtree(args.out)
    for name in args.models:
        prepare(args, name)
    if args.products:
        prepare_products(args, "products", PRODUCTS, "--seed", str(args.seed))
    if args.attentions:
        prepare_attentions(args)
    if args.large:
        prepare_large(args)
        prepare_products(args, "large-products", LARGE, "--timed")


if __name__ == "__main__":
    main()
