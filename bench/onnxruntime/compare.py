#!/usr/bin/env python3
"""Time of a request on one rank with one thread against ONNX Runtime with one thread, in
the same run, alternating.

usage: compare.py PARTITA ZOO MODEL... [--rounds N]

Prints the median of each and the ratio. ZOO is made by test/E2E/models/zoo.py (bert-base and
gpt2-small when named).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time

import onnx
import onnxruntime
from onnx import numpy_helper


def ort_session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])


def measure(partita, folder, rounds):
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    model = os.path.join(folder, "model.onnx")
    shapes = [word for name, shape in case["shapes"].items()
              for word in ("--shape", f"{name}=" + ",".join(map(str, shape)))]
    feeds = {name: numpy_helper.to_array(
                 onnx.load_tensor(os.path.join(folder, "inputs", f"input_{k}.pb")))
             for k, name in enumerate(case["inputs"])}
    session = ort_session(model)
    session.run(None, feeds)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as work:
        bundle = os.path.join(work, "bundle")
        subprocess.run([partita, "compile", model, "-o", bundle, *shapes], check=True,
                       capture_output=True)
        for _ in range(rounds):
            text = subprocess.run(
                [partita, "run", bundle, "--inputs-dir", os.path.join(folder, "inputs"),
                 "--repeat", "6"], check=True, capture_output=True, text=True).stdout
            times = [float(t) for t in re.findall(r"request \d+: ([\d.]+) s", text)]
            ours += times[1:]  # the first touches all memory
            for _ in range(5):
                begin = time.perf_counter()
                session.run(None, feeds)
                theirs.append(time.perf_counter() - begin)
    return statistics.median(ours), statistics.median(theirs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for model in arguments.models:
        ours, theirs = measure(arguments.partita, os.path.join(arguments.zoo, model),
                               arguments.rounds)
        print(f"{model}: partita {ours * 1e3:.2f} ms, ONNX Runtime {theirs * 1e3:.2f} ms, "
              f"ratio {ours / theirs:.2f}", flush=True)


if __name__ == "__main__":
    main()
