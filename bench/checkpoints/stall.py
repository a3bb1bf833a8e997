#!/usr/bin/env python3
"""Costs of saving for training: the wait per save, and steps while a generation is written.

usage: stall.py PARTITA [--megabytes 800] [--width 2048] [--batch 128] [--ranks 1] [--steps 31]
                [--every 10] [--rounds 3] [--folder DIR]

Layers of width × width are trained by AdamW, whose states are three times the weights. Three runs
of the same steps, in turn: without checkpoints; with a generation now and then, so that every
wait is a save's own; with one behind every step, so that all steps run while one is written. All
begin at step 0. Printed are, by round:
  memcpy   seconds to copy as many bytes as the states have, by one thread, of memory that is there
  stall    what training waited for one save at most, and on average, over memcpy
  step     median seconds of a step without checkpoints
  writing  the same while a generation is written, over that
  behind   the same of steps right behind a save (they wait for copies, and share the cores), over that
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "test", "E2E")]
import training_models  # noqa: E402

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds_of(text):
    value, unit = text.split()
    return float(value) * UNITS[unit]


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        width, batch = options.width, options.batch
        layers = max(1, round(options.megabytes * 1e6 / (12 * width * width)))
        self.bytes = layers * width * width * 12
        model = training_models.Writer(1)
        x = model.input("x", [batch, width])
        for k in range(layers):
            x = model.op("MatMul", [x, model.weight(f"w{k}", width, width)], f"fc{k}")
            x = model.op("Relu", [x], f"act{k}")
        model.save(f"{folder}/model.onnx", x, [batch, width])
        rows = np.random.default_rng(2)
        np.savez(f"{folder}/data.npz", x=rows.normal(0, 1, (batch * 4, width)).astype(np.float32),
                 y=rows.normal(0, 1, (batch * 4, width)).astype(np.float32))
        with open(f"{folder}/spec.json", "w") as file:
            json.dump({"loss": {"kind": "mse", "of": x, "labels": "y"},
                       "optimizer": {"kind": "adamw", "lr": 1e-4}}, file)
        mesh = ["--mesh", f"dp={options.ranks}", "--mode", "data-parallel"]
        self.call("compile", f"{folder}/model.onnx", "-o", f"{folder}/bundle", "--train",
                  f"{folder}/spec.json", "--threads", "1",
                  *(mesh if options.ranks > 1 else []))

    def call(self, *words):
        done = subprocess.run([self.options.partita, *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{words}: {done.stderr}")
        return done.stdout + done.stderr

    def memcpy(self):
        source = np.ones(self.bytes // 4, np.float32)
        target = np.zeros_like(source)
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            np.copyto(target, source)
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    def run(self, name, every):
        """Seconds of each step, and what is printed."""
        place = f"{self.folder}/{name}"
        words = ["run", f"{self.folder}/bundle", "--data", f"{self.folder}/data.npz",
                 "--steps", str(self.options.steps), "--log", f"{place}.jsonl"]
        if every:
            words += ["--checkpoint-dir", place, "--save-every", str(every), "--keep", "1"]
        printed = self.call(*words)
        with open(f"{place}.jsonl") as file:
            log = [json.loads(line) for line in file]
        for path in [f"{place}.jsonl"] + ([place] if every else []):
            subprocess.run(["rm", "-rf", path], check=True)
        return [it["seconds"] for it in log], [it["loss"] for it in log], printed

    def round(self):
        memcpy = self.memcpy()
        plain, losses, _ = self.run("plain", 0)
        some, same, printed = self.run("some", self.options.every)
        always, again, _ = self.run("always", 1)
        if not losses == same == again:
            sys.exit("losses differ")
        waited = re.search(r"(\d+) generations? w.* waited (\S+ \S+) for them, at most (\S+ \S+) for",
                           printed)
        count, total, most = int(waited[1]), seconds_of(waited[2]), seconds_of(waited[3])
        step = statistics.median(plain[1:])
        behind = statistics.median(some[self.options.every::self.options.every])
        writing = statistics.median(always[1:])
        print(f"memcpy {memcpy:.3f} s; stall at most {most / memcpy:.2f}, on average "
              f"{total / count / memcpy:.2f}; step {step:.3f} s, writing {writing / step:.2f}, "
              f"behind {behind / step:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("--megabytes", type=float, default=800)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=31)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where generations are written (a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(options, folder)
        print(f"{bench.bytes / 1e6:.0f} MB of states, {options.ranks} rank(s)", flush=True)
        for _ in range(options.rounds):
            bench.round()


if __name__ == "__main__":
    main()
