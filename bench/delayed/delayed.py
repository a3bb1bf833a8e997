#!/usr/bin/env python3
"""Steps whose collectives take so long at least: what grows, and what the timeline leaves exposed.

usage: delayed.py PARTITA [--delay MS] [--steps N] [--turns N] [PLAN…]

Run by hand. Two ranks of MPI train a GPT-2 of four layers. SlowMpi.cpp, which stands in the
place of the MPI transport, makes each collective last --delay milliseconds at least. Measured:
the median step with the delay, less the one without; predicted: `partita report --trace
--slower-calls` on a trace without the delay. PLAN: buckets, waiting, zero3, tensor.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "models"))
import onnx  # noqa: E402
import specs  # noqa: E402

ROWS, LENGTH, WORDS = 16, 64, 2003
#: Members of the training file and options of compile, by name.
PLANS = {
    "buckets": ({}, ["--mesh", "dp=2", "--mode", "data-parallel"]),
    "waiting": ({}, ["--mesh", "dp=2", "--mode", "data-parallel", "--comm-in-flight", "0"]),
    "zero3": ({"optimizer_parallel": {"enable": True, "level": 3, "threshold_kb": 0}},
              ["--mesh", "dp=2", "--mode", "data-parallel"]),
    "tensor": ({}, ["--mesh", "tp=2", "--hints", "megatron:tp"]),
}


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr


class Steps:
    """A model, its data, and a folder whose partita has the slow transport."""

    def __init__(self, partita, work, steps):
        self.partita, self.work, self.steps = partita, work, steps
        model = specs.Gpt2(True, ROWS, LENGTH, hidden=256, heads=4, layers=4,
                           vocabulary=WORDS, tied=False).build()
        self.path, self.loss = f"{work}/model.onnx", model.graph.output[0].name
        self.input = model.graph.input[0].name
        onnx.save(model, self.path)
        random = numpy.random.default_rng(1)
        shape = (ROWS * steps, LENGTH)
        numpy.savez(f"{work}/rows.npz", **{self.input: random.integers(0, WORDS, shape),
                                           "labels": random.integers(0, WORDS, shape)})
        bin_folder = os.path.dirname(os.path.abspath(partita))
        os.mkdir(f"{work}/bin")
        for name in ("partita", "partita-run"):
            shutil.copy(f"{bin_folder}/{name}", f"{work}/bin")
        shutil.copy(f"{bin_folder}/../lib/slow-mpi.so", f"{work}/bin/libpartita_mpi.so")

    def compile(self, members, arguments):
        with open(f"{self.work}/step.json", "w") as file:
            json.dump({"loss": {"kind": "softmax_cross_entropy", "labels": "labels",
                                "of": self.loss, "axis": -1},
                       "optimizer": {"kind": "adamw"}, **members}, file)
        run(self.partita, "compile", self.path, "--train", f"{self.work}/step.json", "-o",
            f"{self.work}/b", "--force", "--threads", "1", *arguments)

    def seconds(self, delay, *words):
        """The median step, without the first."""
        log = f"{self.work}/log.jsonl"
        run(f"{self.work}/bin/partita", "run", f"{self.work}/b", "--data",
            f"{self.work}/rows.npz", "--steps", str(self.steps), "--transport", "mpi",
            "--log", log, *words, env={**os.environ, "PARTITA_CALL_DELAY_MS": str(delay)})
        with open(log) as file:
            lines = [json.loads(line) for line in file]
        os.remove(log)
        return numpy.median([line["seconds"] for line in lines if "seconds" in line][1:])

    def predicted(self, delay):
        """The growth that the timeline of the slowest rank says, and its calls."""
        text = run(self.partita, "report", f"{self.work}/b", "--trace",
                   f"{self.work}/t.json", "--slower-calls", str(delay))
        found = re.findall(r"rank \d+ .* (\d+) +([\d.]+ \w+), ([\d.]+ \w+) more", text)
        unit = {"s": 1, "ms": 1e-3, "µs": 1e-6}

        def seconds(word):
            number, of = word.split()
            return float(number) * unit[of]
        return max(seconds(more) for _, _, more in found), int(found[0][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("plans", nargs="*", metavar="PLAN", default=[])
    parser.add_argument("--delay", type=float, default=50)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as work:
        steps = Steps(arguments.partita, work, arguments.steps)
        for name in arguments.plans or PLANS:
            steps.compile(*PLANS[name])
            for _ in range(arguments.turns):
                plain = steps.seconds(0)
                slow = steps.seconds(arguments.delay)
                steps.seconds(0, "--trace", f"{work}/t.json")
                growth, calls = steps.predicted(arguments.delay)
                print(f"{name:8} {calls:3} calls; {1e3 * plain:.1f} ms, with calls of "
                      f"{arguments.delay:g} ms {1e3 * slow:.1f} ms: "
                      f"{1e3 * (slow - plain):.1f} ms more, predicted {1e3 * growth:.1f} ms "
                      f"({(slow - plain) / growth:.3f})", flush=True)


if __name__ == "__main__":
    main()
