#!/usr/bin/env python3
"""Models of the zoo with --compute bf16 and f16, on one rank and on two, on this CPU, on one of
256-bit vectors and by plain loops: by the rule of `partita verify` (docs/precision.md), which
judges the imported, the partitioned and the compiled program against the model in f64. Inputs and
outputs keep their types, weights take half of the bytes, plan.json and bundle.json say the type,
and a plan of another one is refused.

A sweep: the quick tier has each model once, and a tenth of the others.

usage: run_compute.py PARTITA ZOO [MODEL…]
"""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from onnx import load_tensor, numpy_helper

import tier

#: A model of each kind: normalizations as one op and as many, masks of the least f32, positions,
#: grouped heads, convolutions and pools, encoder and decoder.
MODELS = ["bert-script-opset11", "gpt2-script", "llama-dynamo", "gemma2-script", "t5-script",
          "vit-script", "ppocr-cls", "squeezenet-random"]
#: As this CPU computes, as one without 512-bit vectors and without bf16, by plain loops.
WAYS = {
    "cpu": ([], {}),
    "avx2": (["--target-cpu", "x86-64-v3"], {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "plain": (["--target", "plain"], {}),
}
MESHES = {"one rank": [], "two ranks": ["--mesh", "x=2"]}


def call(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600,
                          env={**os.environ, **(environment or {})})
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip())[:600])
    return done.stdout


def check_bundle(partita, folder, case, bundle, compute, environment):
    for file in ("bundle.json", "plan.json"):
        text = json.loads((bundle / file).read_text())
        said = text["compute"] if file == "bundle.json" else text["entries"][0]["compute"]
        if said != compute:
            raise RuntimeError(f"{file} says {said}")
    outputs = bundle.parent / "outputs"
    call([partita, "run", str(bundle), "--inputs-dir", str(folder / "inputs"),
          "--outputs-dir", str(outputs), "--npy"], environment)
    for k, name in enumerate(case["outputs"]):
        ours = np.load(outputs / f"output_{k}.npy")
        theirs = numpy_helper.to_array(load_tensor(
            str(folder / "expected" / f"output_{k}.pb")))
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            raise RuntimeError(f"output '{name}' is {ours.dtype}{ours.shape}, not "
                               f"{theirs.dtype}{theirs.shape}")


def check(partita, folder, compute, way, mesh, work):
    """The lines of `verify` about the bundle."""
    case = json.loads((folder / "case.json").read_text())
    options, environment = WAYS[way]
    shapes = [f"--shape={name}={','.join(map(str, shape))}"
              for name, shape in case["shapes"].items()]
    bundle = work / "b"
    model = str(folder / "model.onnx")
    call([partita, "compile", model, "-o", str(bundle), "--compute", compute, *shapes,
          *options, *MESHES[mesh]], environment)
    check_bundle(partita, folder, case, bundle, compute, environment)
    text = call([partita, "verify", str(bundle), "--inputs-dir", str(folder / "inputs")],
                environment)
    lines = [line for line in text.splitlines() if line.startswith("bundle on its ranks")]
    if len(lines) != len(case["outputs"]) or "checked: equal" not in text:
        raise RuntimeError(f"verify says: {text}")
    return lines


def check_sizes(partita, zoo):
    """Weights of f32 take twice the bytes, and a plan says its type."""
    with tempfile.TemporaryDirectory(prefix="partita-compute-") as folder:
        work, model = pathlib.Path(folder), str(zoo / "squeezenet-random" / "model.onnx")
        for compute in ("f32", "bf16"):
            call([partita, "compile", model, "-o", str(work / compute), "--compute", compute])
        sizes = [(work / compute / "weights.safetensors").stat().st_size
                 for compute in ("f32", "bf16")]
        if not 0.49 < sizes[1] / sizes[0] < 0.52:
            raise RuntimeError(f"weights take {sizes} bytes")
        done = subprocess.run(
            [partita, "compile", model, "-o", str(work / "again"), "--plan",
             str(work / "bf16" / "plan.json")], capture_output=True, text=True)
        if done.returncode == 0 or "--compute bf16, and this is --compute f32" not in done.stderr:
            raise RuntimeError(f"a plan of another type: {done.stderr}")
        call([partita, "compile", model, "-o", str(work / "again"), "--compute", "bf16",
              "--plan", str(work / "bf16" / "plan.json")])


def main():
    partita, zoo, wanted = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    taken = list(itertools.product(MODELS, ("bf16", "f16"), WAYS, MESHES))
    if wanted:
        taken = [case for case in taken if case[0] in wanted]
    else:
        taken = tier.sample("compute", taken, kind=lambda case: case[0])
    failed = 0
    for model, compute, way, mesh in taken:
        with tempfile.TemporaryDirectory(prefix="partita-compute-") as folder:
            try:
                for line in check(partita, zoo / model, compute, way, mesh,
                                  pathlib.Path(folder)):
                    print(f"{model}, {compute}, {way}, {mesh}: {line.split(', ', 1)[1]}",
                          flush=True)
            except RuntimeError as error:
                failed += 1
                print(f"{model}, {compute}, {way}, {mesh}: {error}", flush=True)
    check_sizes(partita, zoo)
    print(f"{'FAILED' if failed else 'ok'}: {len(taken) - failed} of {len(taken)} within "
          "the roundings")
    return 1 if failed or not taken else 0


if __name__ == "__main__":
    sys.exit(main())
