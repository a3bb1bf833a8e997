#!/usr/bin/env python3
"""The zoo's transformers as ONNX Runtime's optimizers leave them, its own at
ORT_ENABLE_EXTENDED and the scripts of onnxruntime.transformers: on one rank and on two,
equal to ONNX Runtime by equality.py.

usage: run_optimized.py PARTITA ZOO [MODEL…]
"""
import argparse
import collections
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import onnx
import onnxruntime
from onnx import numpy_helper

import equality
import run_model
import tier

logging.disable(logging.CRITICAL)

#: The script of each family; the others by gpt2's, which knows the norms.
SCRIPTS = {"bert": "bert", "modernbert": "bert", "dinov2": "vit", "vit": "vit", "t5": "t5",
           "whisper": "bart"}
FAMILIES = {*SCRIPTS, "gpt2", "llama", "mistral", "qwen2", "gemma2", "phi3"}
HEADS_WIDTH = 4, 64  # of test/E2E/models/export_transformers.py
#: Where the script finds attention, and what it leaves then.
ATTENTION = {"bert-script": "EmbedLayerNormalization", "bert-script-opset11": None}
#: Models on which the script fails, or finds nothing.
NO_SCRIPT = {"modernbert-dynamo", "llama-dynamo-opset23"}


def session(path, **options):
    more = onnxruntime.SessionOptions()
    more.log_severity_level = 4
    more.intra_op_num_threads = 1
    for name, value in options.items():
        setattr(more, name, value)
    return onnxruntime.InferenceSession(str(path), more, ["CPUExecutionProvider"])


def optimize(source, model, how, path, heads_width=HEADS_WIDTH):
    """Writes the optimized model; returns how often it has each operator of
    com.microsoft."""
    if how == "runtime":
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        session(source, graph_optimization_level=level, optimized_model_filepath=str(path))
    else:
        from onnxruntime.transformers.fusion_options import FusionOptions
        from onnxruntime.transformers.optimizer import optimize_model
        kind = SCRIPTS.get(model.split("-")[0], "gpt2")
        options = FusionOptions(kind)
        options.use_multi_head_attention = how == "script-heads"
        optimize_model(str(source), kind, *heads_width, options,
                       opt_level=0).save_model_to_file(str(path))
    nodes = onnx.load(path, load_external_data=False).graph.node
    return collections.Counter(n.op_type for n in nodes if n.domain == "com.microsoft")


def cases(zoo):
    for model in sorted(os.listdir(zoo)):
        if model.split("-")[0] not in FAMILIES:
            continue
        yield model, "runtime"
        if model not in NO_SCRIPT:
            yield model, "script"
        if model in ATTENTION:
            yield model, "script-heads"


def expect(folder, case):
    """Outputs of the optimized model by ONNX Runtime."""
    feeds = {name: numpy_helper.to_array(onnx.load_tensor(
                 folder / "inputs" / f"input_{k}.pb"))
             for k, name in enumerate(case["inputs"])}
    for k, value in enumerate(session(folder / "model.onnx").run(None, feeds)):
        (folder / "expected" / f"output_{k}.pb").write_bytes(
            numpy_helper.from_array(value).SerializeToString())


def attempt(arguments, model, how, work):
    folder = work / model
    shutil.copytree(arguments.zoo / model, folder)
    case = json.loads((folder / "case.json").read_text())
    found = optimize(arguments.zoo / model / "model.onnx", model, how,
                     folder / "model.onnx")
    if not found:
        raise run_model.Failure("the optimizer left no operator of com.microsoft")
    if how != "runtime" and model in ATTENTION:
        fused = "MultiHeadAttention" if how == "script-heads" else "Attention"
        for name in filter(None, (fused, ATTENTION[model])):
            if name not in found:
                raise run_model.Failure(f"the optimizer left no {name}")
    expect(folder, case)
    for mesh in ("", "tp=2"):
        run = work / f"run{mesh}"
        run.mkdir()
        figures = run_model.run_case(arguments, folder, case, mesh, "auto", run)
        print(f"ok      {model} {how} {mesh or 'one rank'}: {figures}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    arguments.target = arguments.target_cpu = None
    arguments.transports = "local"
    failed = 0
    everything = [case for case in cases(arguments.zoo)
                  if not arguments.models or case[0] in arguments.models]
    for model, how in tier.sample("optimized", everything, kind=lambda case: case[1]):
        with tempfile.TemporaryDirectory(prefix="partita-optimized-") as work:
            try:
                attempt(arguments, model, how, pathlib.Path(work))
            except (run_model.Failure, equality.Unequal, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED  {model} {how}: {error}", flush=True)
    return 1 if failed or not everything else 0


if __name__ == "__main__":
    sys.exit(main())
