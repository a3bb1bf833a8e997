"""Steps of four micro-batches: the bytes that one rank receives, as compile and report tell them
and as a run counts them, and how often a step runs each collective.

usage: accumulated_bytes.py PARTITA MODEL.onnx FOLDER
"""
import json
import re
import subprocess
import sys

import numpy as np

STEPS = [("f32", "dp=2", []), ("bf16", "dp=2", []), ("f16", "dp=2", []),
         ("f32", "tp=2", ["--hints", "megatron"]), ("bf16", "tp=2", ["--hints", "megatron"])]
TRIPS, ROWS, TOKENS = 4, 2, 16


def call(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def main(partita, model, folder):
    spec, bundle = f"{folder}/spec.json", f"{folder}/bundle"
    inputs = []
    for name in ("input_ids", "labels"):
        np.save(f"{folder}/{name}.npy", np.zeros((TRIPS * ROWS, TOKENS), np.int64))
        inputs += ["--input", f"{name}={folder}/{name}.npy"]
    for compute, mesh, options in STEPS:
        with open(spec, "w") as file:
            json.dump({"loss": {"kind": "softmax_cross_entropy", "of": "logits",
                                "labels": "labels", "axis": -1},
                       "optimizer": {"kind": "sgd", "lr": 0.1}, "accumulation": TRIPS,
                       "compute": compute}, file)
        text = call(partita, "compile", model, "--train", spec, "--mesh", mesh, "--mode",
                    "data-parallel", "--force", "-o", bundle, *options)
        told = int(re.search(r"communication per rank: .*?(\d+) B received", text)[1])
        stage = json.loads(call(partita, "report", bundle, "--json"))["stages"][0]
        run = json.loads(call(partita, "run", bundle, *inputs, "--profile", "--json"))
        counted = sum(node["received_bytes"] for node in run["profile"]["nodes"])
        if not told == stage["received_bytes"] == counted:
            sys.exit(f"{compute} {mesh}: compile tells {told} B, report "
                     f"{stage['received_bytes']}, a run receives {counted}")
        times = sorted({c["times"] for c in stage["collectives"]})
        print(f"{compute} {mesh}: {told} B, each {' or '.join(map(str, times))} "
              f"time{'s' * (times != [1])}")


if __name__ == "__main__":
    main(*sys.argv[1:])
