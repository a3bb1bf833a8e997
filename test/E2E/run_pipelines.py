#!/usr/bin/env python3
"""Training steps on pipelines: losses and weights of one rank with the same micro-batches.

usage: run_pipelines.py PARTITA [--models NAME,…] [--transport local|mpi]

Models with and without what crosses in unusual ways: tied weights (GPT-2, T5), an encoder that
every stage of the decoder reads, skips over stages (U-Net), running moments (ResNet), experts.
Rows of options cover every pair of two; losses of four steps are within 1e-4 of one rank's,
states behind them within 1e-3 of the largest; in bf16 and f16 within what those round.
"""
import argparse
import json
import os
import sys
import tempfile

import numpy as np

import tier
import training_models
from run_training import OPTIMIZERS, Step
from run_training_f64 import pairwise

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
sys.path.insert(0, os.path.join(ROOT, "bench", "models"))
import generate  # noqa: E402
import partita  # noqa: E402

STEPS = 4
PUBLISHED = {"gpt2": "gpt3-1.3b", "llama": "llama3-8b", "resnet18": "resnet18", "t5": "t5-large",
             "moe": "moe-1.3b"}
OPTIONS = {
    "stages": [2, 3, 4],
    "schedule": ["1f1b", "gpipe", "zb-h1"],
    "micro": [1, 2, 4, 8],
    "mesh": [None, "dp=2", "tp=2"],
    "level": [0, 1, 2, 3],
    "optimizer": ["momentum", "adamw", "lamb"],
    "clip": [False, True],
    "compute": ["f32", "bf16", "f16"],
    "recompute": [False, True],
}


def published(name):
    """A writer of training_models.MODELS for a model of bench/models."""
    def write(path):
        model = generate.network(name, "tiny", batch=8 if name == "resnet18" else None)
        with open(path, "wb") as file:
            file.write(model.build().SerializeToString())
        logits = [dim.dim_value for dim in model.outputs[0].type.tensor_type.shape.dim]
        shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
                  for value in model.inputs}

        def draw(name):
            below = model.limits[name]
            return (lambda r: r.integers(0, below, shapes[name])) if below else (
                lambda r: r.normal(0, 1, shapes[name]).astype(np.float32))
        return {name: draw(name) for name in shapes}, tuple(logits[:-1]), logits[-1]
    return write


class Pipeline(Step):
    def output(self, name):
        return {"mlp": "fc2", "conv": "fc", "transformer": "head", "unet": "head",
                "stack": "head"}.get(name, "logits")

    def run(self, steps):
        with open(f"{self.bundle}/plan.json") as file:
            stages = json.load(file)["entries"][0]["stages"]
        names = {a["state"] for stage in stages for a in stage["arguments"] if a.get("state")}
        losses = []
        with partita.Session(self.bundle) as session:
            for feed in self.feeds(steps):
                losses.append(float(session.run(feed)["loss"]))
            return losses, {name: session.read_state(name) for name in names}


def make(command, work, name, row, staged):
    # A bias in front of a normalization has no gradient but rounding, which Adam makes large.
    optimizer = "momentum" if name in ("resnet18", "conv", "unet") else row["optimizer"]
    spec = {"optimizer": OPTIMIZERS[optimizer], "accumulation": row["micro"]}
    if row["clip"]:
        spec["clip_norm"] = 0.5
    # Moments of few rows make what a narrow type rounds as large as the loss.
    compute = "f32" if name in ("resnet18", "conv") else row["compute"]
    if compute != "f32":
        spec["compute"] = compute
    if compute == "f16":
        spec["loss_scale"] = "dynamic"
    if not staged:
        return Pipeline(command, work, name, spec)
    if row["recompute"]:
        spec["recompute"] = [{"nodes": "*", "exactly": True}]
    arguments = ["--stages", str(row["stages"]), "--schedule", row["schedule"]]
    if row["mesh"]:
        arguments += ["--mesh", row["mesh"]]
    if row["mesh"] == "dp=2":
        arguments += ["--mode", "data-parallel"]
        if row["level"]:
            spec["optimizer_parallel"] = {"enable": True, "level": row["level"],
                                          "threshold_kb": 0}
    return Pipeline(command, work, name, spec, arguments)


def apart(actual, expected):
    losses = max(abs(a - e) / abs(e) for a, e in zip(actual[0], expected[0]))
    assert actual[1].keys() == expected[1].keys(), (
        f"states {actual[1].keys() ^ expected[1].keys()} are missing, or are too many")
    states = max(np.abs(actual[1][k] - v).max() / max(1e-2, np.abs(v).max())
                 for k, v in expected[1].items() if v.dtype.kind == "f")
    return losses, states


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--models")
    arguments = parser.parse_args()
    training_models.MODELS.update({key: published(name) for key, name in PUBLISHED.items()})
    names = (arguments.models.split(",") if arguments.models else
             ["mlp", "transformer", "conv", "unet", *PUBLISHED])
    cases = [(name, row) for name in names for row in pairwise(OPTIONS)]
    known, wrong, worst = {}, 0, [0, 0]
    with tempfile.TemporaryDirectory() as work:
        for name, row in tier.sample("pipelines", cases,
                                     kind=lambda case: (case[0], case[1]["schedule"])):
            if name == "mlp" and row["stages"] > 3:
                row = {**row, "stages": 3}  # it has two products and what is between
            key = json.dumps([name] + [row[k] for k in ("micro", "optimizer", "clip", "compute")])
            try:
                if key not in known:
                    known[key] = make(arguments.partita, work, name, row, False).run(STEPS)
                actual = make(arguments.partita, work, name, row, True).run(STEPS)
                far = apart(actual, known[key])
            except (RuntimeError, AssertionError, ValueError) as error:
                wrong += 1
                print(f"WRONG {name} {row}: {str(error)[-500:]}", flush=True)
                continue
            coarse = {"f32": 1, "f16": 50, "bf16": 200}[row["compute"]]
            if far[0] > 1e-4 * coarse or far[1] > 1e-3 * coarse:
                wrong += 1
                print(f"WRONG {name} {row}: losses within {far[0]:.1e}, states within "
                      f"{far[1]:.1e}", flush=True)
            if row["compute"] == "f32":
                worst = [max(a, b) for a, b in zip(worst, far)]
            if os.environ.get("PARTITA_VERBOSE"):
                print(f"{name} {row}: {far[0]:.1e} {far[1]:.1e}", flush=True)
    print(f"pipelines: {len(cases)} rows, in f32 losses within {worst[0]:.1e}, states within "
          f"{worst[1]:.1e}; {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
