#!/usr/bin/env python3
"""A number of micro-batches that is chosen under a memory limit changes no step.

usage: run_accumulation.py PARTITA

Residual blocks on one and on two ranks, `"accumulation": "auto"`. Without a limit there is one
micro-batch. Under a limit that it does not meet, and where nothing may be computed again, there
are several: the inputs have the shapes that they had, and losses of steps and weights behind
them are those of one micro-batch, for means, sums, labels that do not count (whose number
differs from micro-batch to micro-batch) and clipped gradients. Where recompute may be chosen
too, the faster of both is taken. The plan says the number, and whoever follows it has it. What
would not be the same step is refused.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx

import training_models
from run_recompute import memory
from run_training import Step

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                "bench", "models"))
import generate  # noqa: E402

# Activations are most of what it needs.
training_models.MODELS["rows"] = lambda path: training_models.stack(path, batch=512, layers=4)
SGD = {"kind": "sgd", "lr": 0.1, "momentum": 0.9}
IGNORED = -1


class Auto(Step):
    """One whose labels may not count."""

    def feeds(self, steps):
        random = np.random.default_rng(11)
        for feed in super().feeds(steps):
            if "ignore_index" in self.spec["loss"]:
                labels = feed["labels"]  # most of those in front
                share = np.linspace(0.9, 0, len(labels))
                labels[random.random(len(labels)) < share] = IGNORED
            yield feed


def make(command, work, spec, *arguments, loss=None):
    loss = {"kind": "softmax_cross_entropy", "of": "head", "labels": "labels", "axis": -1,
            **(loss or {})}
    return Auto(command, work, "rows", {"optimizer": SGD, "accumulation": "auto",
                                        "loss": loss, **spec}, arguments)


def same(step, expected, what, steps=6):
    losses, _, states = step.run(steps)
    worst = max(abs(a - e) / abs(e) for a, e in zip(losses, expected[0]))
    apart = max(np.abs(value - expected[2][name]).max() / max(1e-3, np.abs(expected[2][name]).max())
                for name, value in states.items() if value.dtype == np.float32)
    print(f"{what}: losses within {worst:.1e}, states within {apart:.1e}", flush=True)
    if worst > 1e-5 or apart > 1e-4 or not np.isfinite(losses).all():
        raise RuntimeError(f"{what}: {losses}, one micro-batch: {expected[0]}")


def chosen(command, work, mesh):
    """Losses and the like under limits, beside those of one micro-batch."""
    counts = []
    for what, spec, loss in [
            ("mean", {"recompute": "none"}, {}),
            ("sum", {"recompute": "none", "optimizer": {**SGD, "lr": 0.002}},
             {"reduction": "sum"}),
            ("mean of labels that count", {"recompute": "none", "clip_norm": 0.5},
             {"ignore_index": IGNORED, "label_smoothing": 0.1})]:
        step = make(command, work, spec, *mesh, loss=loss)
        plan, m, needed = memory(step)
        expected = step.run(6)
        if plan["accumulation"] != 1:
            raise RuntimeError(f"without a limit: {plan['accumulation']} micro-batches")
        limit = needed - m["arena"] // 2
        step = make(command, work, spec, *mesh, "--memory", str(limit), loss=loss)
        plan, _, now = memory(step)
        counts.append(plan["accumulation"])
        if now > limit or plan["accumulation"] == 1:
            raise RuntimeError(f"{limit} B: needs {now}, {plan['accumulation']} micro-batches")
        same(step, expected, f"{what}, {limit} B on {' '.join(mesh) or 'one rank'}: "
                             f"{plan['accumulation']} micro-batches")
    certificate = plan.get("certificate")
    if mesh and certificate["lower_bound_seconds"] > certificate["step_seconds"]:
        raise RuntimeError(certificate)
    return expected, spec, loss, counts


def followed(command, work, expected, spec, loss, count):
    """The plan says it all: to a compile, to verify, to a report."""
    bundle = f"{work}/bundle"
    subprocess.run(["cp", f"{bundle}/plan.json", f"{work}/plan.json"], check=True)
    done = subprocess.run([command, "verify", bundle], capture_output=True, text=True)
    if done.returncode or "checked: equal" not in done.stdout:
        raise RuntimeError(f"verify: {done.stdout}{done.stderr}")
    done = subprocess.run([command, "report", bundle], capture_output=True, text=True)
    if f"accumulation: chosen, {count} micro-batches" not in done.stdout:
        raise RuntimeError(f"report: {done.stdout[:1000]}")
    step = make(command, work, spec, "--mesh", "dp=2", "--plan", f"{work}/plan.json", loss=loss)
    if memory(step)[0]["accumulation"] != count:
        raise RuntimeError("the plan followed has another number of micro-batches")
    same(step, expected, "the plan followed")


def with_recompute(command, work):
    """Micro-batches and recompute are one list: with both open a step is no slower."""
    step = make(command, work, {}, "--mesh", "dp=2")
    _, m, needed = memory(step)
    expected, limit = step.run(6), needed - m["arena"] // 2
    seconds = {}
    for name, spec in [("both", {}), ("micro-batches", {"recompute": "none"}),
                       ("recompute", {"accumulation": 1})]:
        step = make(command, work, spec, "--mesh", "dp=2", "--memory", str(limit))
        plan, _, now = memory(step)
        seconds[name] = plan["certificate"]["step_seconds"]
        if now > limit:
            raise RuntimeError(f"{name}: {now} B of {limit}")
        if name == "both":
            same(step, expected, f"both open: {plan['accumulation']} micro-batches, "
                                 f"{'with' if 'recompute' in plan else 'without'} recompute")
            bound = plan["certificate"]["lower_bound_seconds"]
    print("predicted: " + ", ".join(f"{k} {1e6 * v:.1f} µs" for k, v in seconds.items()) +
          f"; bound {1e6 * bound:.1f} µs")
    if seconds["both"] > 1.01 * min(seconds.values()) or bound > min(seconds.values()):
        raise RuntimeError(f"{seconds}, bound {bound}")


def refused(command, work):
    def error(name, spec, *arguments):
        try:
            Auto(command, work, name, {"optimizer": SGD, "accumulation": "auto", **spec},
                 arguments)
        except RuntimeError as failure:
            return str(failure)
        raise RuntimeError(f"{name}: {spec} is compiled")
    text = error("conv", {})
    if "in 'bn1' rows of the batch meet" not in text:
        raise RuntimeError(text)
    text = error("mlp", {"gradients": "sum"})
    if '"gradients": "sum" is of a number of micro-batches' not in text:
        raise RuntimeError(text)
    print("refused: moments of a batch, sums of gradients")


def generated(name, sequence):
    """A model of bench/models, whose reshapes and inputs say the batch in numbers."""
    def write(path):
        onnx.save(generate.network(name, "tiny", batch=8, sequence=sequence).build(), path)
        ids = lambda random: random.integers(0, 503, (8, sequence))
        return {"input_ids": ids}, (8, sequence), 503
    return write


def in_numbers(command, work):
    """Models that say the batch in numbers have micro-batches as others have."""
    training_models.MODELS["gpt3"] = generated("gpt3-350m", 16)
    training_models.MODELS["llama"] = generated("llama3-8b", 16)
    for name, output in [("transformer", "head"), ("gpt3", "logits"), ("llama", "logits")]:
        loss = {"kind": "softmax_cross_entropy", "of": output, "labels": "labels", "axis": -1}
        spec = {"optimizer": SGD, "accumulation": "auto", "recompute": "none", "loss": loss}
        step = Auto(command, work, name, spec)
        plan, m, needed = memory(step)
        expected, limit = step.run(4), needed - m["arena"] // 3
        step = Auto(command, work, name, spec, ["--memory", str(limit)])
        plan, _, now = memory(step)
        if now > limit or plan["accumulation"] == 1:
            raise RuntimeError(f"{name}: {now} B of {limit}, {plan['accumulation']} micro-batch")
        same(step, expected, f"{name}, the batch in numbers: {plan['accumulation']} micro-batches",
             steps=4)


def main():
    command = sys.argv[1]
    with tempfile.TemporaryDirectory() as work:
        chosen(command, work, [])
        expected, spec, loss, counts = chosen(command, work, ["--mesh", "dp=2"])
        followed(command, work, expected, spec, loss, counts[-1])
        with_recompute(command, work)
        in_numbers(command, work)
        refused(command, work)


if __name__ == "__main__":
    main()
