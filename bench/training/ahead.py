#!/usr/bin/env python3
"""Steps of a pipeline of two ranks that follow each other, beside those that wait.

usage: ahead.py PARTITA [--schedules 1f1b,zb-h1,zb-h2] [--micro 8] [--steps 12] [--rounds 3]
                [--untied] [--small] [--transport local]

Run by hand, on a machine with a core for each rank and nothing else to do. A GPT-2 (4 layers of
128, or with --small the published one) is trained by SGD with momentum. Runs with and without
`--steps-ahead 0` take turns; of each the median seconds of a step is told, and their ratio; then
what the schedule says of both, if each part takes what it took in a run without (`report --trace`).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "models"))
import generate  # noqa: E402,F401  (the path of layers)
import specs  # noqa: E402

UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1}


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return done.stdout


def write(folder, arguments):
    sizes = ({"hidden": 768, "heads": 12, "layers": 12, "vocabulary": 50257} if arguments.small
             else {"hidden": 128, "heads": 4, "layers": 4, "vocabulary": 1001})
    rows, length = 2, 128
    model = specs.Gpt2(True, rows, length, tied=not arguments.untied, **sizes).build()
    onnx.save(model, f"{folder}/gpt2.onnx")
    with open(f"{folder}/spec.json", "w") as file:
        json.dump({"loss": {"kind": "softmax_cross_entropy", "of": model.graph.output[0].name,
                            "labels": "labels", "axis": -1},
                   "optimizer": {"kind": "sgd", "lr": 0.01, "momentum": 0.9},
                   "accumulation": arguments.micro}, file)
    random, count = np.random.default_rng(3), rows * arguments.micro * 4
    data = {value.name: random.integers(0, sizes["vocabulary"], (count, length))
            for value in model.graph.input}
    data["labels"] = random.integers(0, sizes["vocabulary"], (count, length))
    np.savez(f"{folder}/train.npz", **data)


def seconds(command, folder, arguments, ahead, *words):
    """Seconds of a step, without the first ones, which fill the pipeline."""
    log = f"{folder}/log.jsonl"
    told = call(command, "run", f"{folder}/bundle", "--data", f"{folder}/train.npz", "--steps",
                str(arguments.steps), "--log", log, "--steps-ahead", str(ahead), "--transport",
                arguments.transport, *words)
    with open(log) as file:
        steps = [json.loads(line)["seconds"] for line in file]
    return statistics.median(steps[2:]), told


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--schedules", default="1f1b,zb-h1,zb-h2")
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--untied", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--transport", default="local")
    arguments = parser.parse_args()
    command = arguments.partita
    with tempfile.TemporaryDirectory() as folder:
        write(folder, arguments)
        for schedule in arguments.schedules.split(","):
            call(command, "compile", f"{folder}/gpt2.onnx", "--train", f"{folder}/spec.json",
                 "--stages", "2", "--schedule", schedule, "-o", f"{folder}/bundle", "--force")
            runs = [[seconds(command, folder, arguments, ahead) for ahead in (0, 1)]
                    for _ in range(arguments.rounds)]
            waits, follows = (statistics.median(run[ahead][0] for run in runs)
                              for ahead in (0, 1))
            ratio = statistics.median(run[0][0] / run[1][0] for run in runs)
            told = re.search(r"^\d+ of \d+ steps were under way.*$", runs[-1][1][1], re.MULTILINE)
            trace = f"{folder}/t.json"
            seconds(command, folder, arguments, 0, "--trace", trace)
            text = call(command, "report", f"{folder}/bundle", "--trace", trace)
            found = re.search(r"as long as these: ([\d.]+) (\S+), and ([\d.]+) (\S+) where", text)
            planned = [float(found[k]) * UNITS[found[k + 1]] for k in (1, 3)]
            print(f"{schedule}: {waits:.4f} s a step, {follows:.4f} s where steps follow each "
                  f"other, {ratio:.3f} times as fast (medians of {arguments.rounds} runs); by "
                  f"the schedule {planned[0]:.4f} s and {planned[1]:.4f} s, "
                  f"{planned[0] / planned[1]:.3f} times; {told[0] if told else 'no overlap'}",
                  flush=True)


if __name__ == "__main__":
    main()
