#!/usr/bin/env python3
"""Collectives of training steps: how many there are, in how many calls, how early they start.

usage: collectives.py PARTITA [--models mlp,gpt2-tiny,…] [--mesh dp=2] [--mode data-parallel]

Run by hand. Compiles each model to level L4, which reads no weights, and counts there: the
collectives of the step (before: each was a call), the calls that they are, the share of the
gradients' bytes that start before the last op of the backward pass or of a weight gradient, and
the bytes in flight at one time. Models that run (tiny ones) are compiled to bundles, too, with
and without buckets: the bytes of the arena.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench", "models"), os.path.join(ROOT, "test", "E2E")]
import generate  # noqa: E402
import onnx  # noqa: E402
import specs  # noqa: E402
import training_models  # noqa: E402
from layers import builder  # noqa: E402

TOLD = re.compile(r"a step has (\d+) collectives in (\d+) calls; (\d+)% of (\d+) bytes of "
                  r"gradients start before the last backward op; at most (\d+) bytes")


class SmallGpt2(builder.AbsentWeights, specs.Gpt2):
    location = "gpt2.data"


#: By name what writes the model to a path, and whether it has weights.
MODELS = {
    "mlp": (training_models.mlp, True),
    "gpt2-tiny": (lambda path: onnx.save(
        specs.Gpt2(True, 4, 32, hidden=64, heads=4, layers=4, vocabulary=503,
                   tied=True).build(), path), True),
    "gpt2-small": (lambda path: onnx.save(
        SmallGpt2(True, 2, 128, hidden=768, heads=12, layers=12, vocabulary=50257,
                  tied=True).build(), path), False),
    "gpt2-small-untied": (lambda path: onnx.save(
        SmallGpt2(True, 2, 128, hidden=768, heads=12, layers=12, vocabulary=50257,
                  tied=False).build(), path), False),
    "resnet18-tiny": (lambda path: onnx.save(
        generate.network("resnet18", "tiny", batch=4).build(), path), True),
}


def compiled(command, path, spec, where, *arguments):
    done = subprocess.run([command, "compile", path, "--train", spec, *where, *arguments],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout + done.stderr


def measure(command, work, name, arguments):
    write, runs = MODELS[name]
    path, spec = f"{work}/{name}.onnx", f"{work}/{name}.json"
    write(path)
    model = onnx.load(path, load_external_data=False)
    output = model.graph.output[0]
    with open(spec, "w") as file:
        json.dump({"loss": {"kind": "softmax_cross_entropy", "labels": "labels",
                            "of": output.name, "axis": 1 if len(
                                output.type.tensor_type.shape.dim) == 2 else -1},
                   "optimizer": {"kind": "adamw"}}, file)
    text = compiled(command, path, spec, ["--to", "L4"], *arguments)
    told = TOLD.search(text)
    if not told:
        print(f"{name:18} has no collectives")
        return
    members, calls, share, gradients, flying = (int(group) for group in told.groups())
    line = (f"{name:18} {members:4} collectives in {calls:3} calls, {share:3}% of "
            f"{gradients:,} B early, {flying:,} B in flight")
    if runs:
        arenas = []
        for more in ((), ("--comm-in-flight", "0")):
            text = compiled(command, path, spec, ["-o", f"{work}/b", "--force"], *arguments,
                            *more)
            arenas.append(int(re.search(r"(\d+) B of arena", text)[1]))
        line += f", arena {arenas[0]:,} B, {arenas[1]:,} B with none in flight"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--mesh", default="dp=2")
    parser.add_argument("--mode", default="data-parallel")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        for name in arguments.models.split(","):
            measure(arguments.partita, work, name,
                    ["--mesh", arguments.mesh, "--mode", arguments.mode])


if __name__ == "__main__":
    main()
