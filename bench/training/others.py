#!/usr/bin/env python3
"""Steps under memory limits on two ranks: the plan that is chosen beside others that fit.

usage: others.py PARTITA [--models gpt2,resnet18,moe] [--others 20] [--pool 48] [--seed 1]

Run by hand, with a Python that has torch 2.13, onnx and numpy. Others are drawn with a seed: batches
split, or some tensors of the model split along some dim; moments, or weights too, in parts or whole;
nothing computed again, or some modules. What they need is what their bundles allocate. Limits
begin below what the fastest plan needs, or half of the others, if that is more (of ResNet-18 none
needs less than the fastest), and end above what the smallest of all does. Constants of the
machine are measured first. Steps of the plans of a model alternate; the least time of each counts.
Short steps are repeated for a while: a rank that is interrupted holds up the other one.
Ours and the fastest of the others are then measured again, and only that counts.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench", "search")]
import ranking  # noqa: E402
from memory import MODELS, Model, needed  # noqa: E402

MESH = ["--mesh", "r=2"]


class Pair(Model):
    """A model's step on two ranks; bundles by number."""

    def __init__(self, command, work, name, host):
        super().__init__(command, work, name, MODELS[name])
        self.host, self.count, self.repeats = host, 0, 3
        random_ = np.random.default_rng(3)
        parts = [(self.draw(random_), self.labels(random_)) for _ in range(3)]
        np.savez(f"{work}/data.npz", x=np.concatenate([x for x, _ in parts]),
                 labels=np.concatenate([y for _, y in parts]))

    def make(self, spec, *arguments):
        """A bundle and its bytes of a rank; nothing if it cannot be."""
        bundle = f"{self.work}/bundle-{self.count}"
        self.count += 1
        spec = {"loss": {"kind": "softmax_cross_entropy", "of": "output", "labels": "labels",
                         "axis": self.axis}, "optimizer": {"kind": "adamw", "lr": 1e-3}, **spec}
        with open(f"{self.work}/spec.json", "w") as file:
            json.dump(spec, file)
        done = subprocess.run([self.command, "compile", self.path, "-o", bundle, "--threads", "1",
                               "--train", f"{self.work}/spec.json", *MESH, *arguments],
                              capture_output=True, text=True)
        if done.returncode:
            return None
        with open(f"{bundle}/plan.json") as file:
            plan = json.load(file)["entries"][0]
        memory = plan["stages"][0]["memory"]
        again = sum(len(s) for s in plan.get("recompute", {}).get("nodes", []))
        return bundle, needed(memory), again

    def steps(self, bundle):
        text = subprocess.run([self.command, "run", bundle, "--data", f"{self.work}/data.npz",
                               "--steps", str(self.repeats), "--json"],
                              capture_output=True, text=True)
        if text.returncode:
            raise RuntimeError(text.stderr[-500:])
        seconds = json.loads(text.stdout)["request_seconds"][1:]
        self.repeats = max(3, min(150, int(0.3 / min(seconds))))
        return seconds


def modules(path):
    """"/h.0/*" and the like."""
    names = [node.name for node in onnx.load(path).graph.node]
    found = {re.match(r"(/[^/]+)/", name)[1] for name in names if re.match(r"(/[^/]+)/", name)}
    return sorted(f"{name}/*" for name in found) or sorted(names)


def draw(random_, model, outputs, groups):
    spec, arguments = {"recompute": "none"}, ["--mode", "data-parallel"]
    if random_.random() < 0.6:
        path = f"{model.work}/hints.json"
        with open(path, "w") as file:
            json.dump(ranking.draw(random_, outputs), file)
        arguments = ["--mode", "semi-auto", "--hints", path]
    if level := random_.choice([0, 0, 1, 3]):
        spec["optimizer_parallel"] = {"enable": True, "level": level, "threshold_kb": 0}
    if share := random_.choice([0, 0, 0.3, 0.6, 1]):
        spec["recompute"] = [{"nodes": name}
                             for name in random_.sample(groups, max(1, int(share * len(groups))))]
    return spec, arguments


def compare(model, arguments):
    random_ = random.Random(arguments.seed)
    outputs = ranking.candidates(model.command, model.path, model.work)
    groups = modules(model.path)
    pool = []
    for _ in range(3 * arguments.pool):
        spec, words = draw(random_, model, outputs, groups)
        if len(pool) < arguments.pool and (made := model.make(spec, *words)):
            pool.append(made)
    free = model.make({}, "--cluster", model.host, "--memory", "1TiB")
    sizes = sorted(size for _, size, _ in pool)
    if len(sizes) < 2:
        raise RuntimeError(f"{model.name}: {len(sizes)} others can be compiled")
    high, low = max(free[1], sizes[len(sizes) // 2]), min(free[1], sizes[0])
    ours = {}
    for k in (1, 2, 3, 4):
        limit = high - (high - low) * k // 5
        ours[limit] = model.make({}, "--cluster", model.host, "--memory", str(limit))
    seconds = {}
    for _ in range(arguments.rounds):
        for bundle, _, _ in [*pool, *filter(None, ours.values())]:
            seconds[bundle] = min([seconds.get(bundle, 1e9), *model.steps(bundle)])
    # Equal bundles differ by a fifth from measurement to measurement, so the least of twenty
    # is a lucky one. What counts is measured again: ours, and the fastest of the others.
    fits = {limit: [it for it in pool if it[1] <= limit][:arguments.others] for limit in ours}
    fastest = {limit: sorted(some, key=lambda it: seconds[it[0]])[:arguments.finalists]
               for limit, some in fits.items()}
    finalists = {it[0] for some in [filter(None, ours.values()), *fastest.values()]
                 for it in some}
    seconds = {}
    for _ in range(3 * arguments.rounds):
        for bundle in sorted(finalists):
            seconds[bundle] = min([seconds.get(bundle, 1e9), *model.steps(bundle)])
    for limit, made in ours.items():
        others = [seconds[bundle] for bundle, _, _ in fastest[limit]]
        if not made:
            print(f"| {model.name} | {limit / 1e6:.2f} | no plan | | | {len(fits[limit])} | | |")
            continue
        bundle, size, again = made
        best = f"{1e3 * min(others):.2f}" if others else "–"
        ratio = f"{seconds[bundle] / min(others):.2f}" if others else "–"
        print(f"| {model.name} | {limit / 1e6:.2f} | {size / 1e6:.2f} | {again} | "
              f"{1e3 * seconds[bundle]:.2f} | {len(fits[limit])} | {best} | {ratio} |", flush=True)
        if size > limit:
            raise RuntimeError(f"{size} B of {limit}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--others", type=int, default=20)
    parser.add_argument("--pool", type=int, default=48, help="plans that are drawn")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--finalists", type=int, default=4, help="others that are measured again")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        host = f"{work}/host.json"
        subprocess.run([arguments.partita, "calibrate", "--ranks", "2", "-q", "-o", host],
                       check=True, stdout=subprocess.DEVNULL)
        print("| model | limit MB | needs MB | nodes again | step ms | others that fit | best of "
              "them ms | ratio |\n|---|---|---|---|---|---|---|---|")
        for name in arguments.models.split(","):
            folder = f"{work}/{name}"
            os.makedirs(folder)
            compare(Pair(arguments.partita, folder, name, host), arguments)


if __name__ == "__main__":
    main()
