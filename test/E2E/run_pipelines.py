#!/usr/bin/env python3
"""Training steps on pipelines against steps of one stage with the same micro-batches.

usage: run_pipelines.py PARTITA [--models NAME,…] [--jobs N]

Models in which something unusual crosses: tied weights (GPT-2, T5), an encoder that every stage
of the decoder reads, skips over stages (U-Net), running moments (ResNet), experts. Rows of
options cover every pair of two. On virtual ranks in f64 (`verify`) every weight, moment and
metric of 8 steps (quick tier: 4) is within 1e-9 of the unpartitioned step's; what is left is the
order of sums.
On real ranks in f32, threads and MPI, losses of 50 steps (quick tier: 8) are within 1e-4 of
those of the same mesh without stages, and weights (running moments too) within 1e-3 of the
largest. Momenta are no measure there: after 50 steps of ResNet-18 at this size those of one rank
and of two, both without stages, differ by 7%.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx

import tier
import training_models
from run_training import OPTIMIZERS, Step
from run_training_f64 import pairwise
from states import read_states

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "models"))
import generate  # noqa: E402

STEPS = 4 if tier.is_quick() else 8
STEPS_ON_RANKS = 8 if tier.is_quick() else 50
PUBLISHED = {"gpt2": "gpt3-1.3b", "llama": "llama3-8b", "resnet18": "resnet18", "t5": "t5-large",
             "moe": "moe-1.3b"}
OPTIONS = {
    "stages": [2, 3, 4],
    "schedule": ["1f1b", "gpipe", "zb-h1", "interleaved", "zb-h2", "zb-auto:1.5", "zb-v",
                 "v-half", "v-min"],
    "micro": [1, 2, 4, 8],
    "mesh": [None, "dp=2", "tp=2"],
    "level": [0, 1, 2, 3],
    "optimizer": ["momentum", "adamw", "lamb"],
    "clip": [False, True],
    "scale": [None, "dynamic"],
    "recompute": [False, True],
    "nan": [None, "stop", "skip"],
}
# Tied weights under everything that is agreed upon over stages, in full.
TIED = [{"stages": 4, "micro": 4, "mesh": "dp=2", "optimizer": "adamw", "recompute": False,
         "nan": None, "schedule": schedule, "level": level, "clip": clip, "scale": scale}
        for schedule in ("1f1b", "interleaved", "zb-h2", "zb-v") for level in (0, 3)
        for clip in (False, True) for scale in (None, "dynamic")]
# Small steps: what rounding makes of a model at its largest rate has no bound.
RATES = {"momentum": 0.0005, "adamw": 0.001, "lamb": 0.001}


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


def output_of(name):
    return {"mlp": "fc2", "conv": "fc", "transformer": "head", "unet": "head"}.get(name, "logits")


def spec_of(row):
    spec = {"optimizer": {**OPTIMIZERS[row["optimizer"]], "lr": RATES[row["optimizer"]]},
            "accumulation": row["micro"]}
    if row["clip"]:
        spec["clip_norm"] = 0.5
    if row["scale"]:
        spec["loss_scale"] = row["scale"]
    if row["nan"]:
        spec["on_nan"] = row["nan"]
    if row["recompute"]:
        spec["recompute"] = [{"nodes": "*", "exactly": True}]
    if row["mesh"] == "dp=2" and row["level"]:
        spec["optimizer_parallel"] = {"enable": True, "level": row["level"], "threshold_kb": 0}
    return spec


def mesh_of(row):
    return ((["--mesh", row["mesh"]] if row["mesh"] else [])
            + (["--mode", "data-parallel"] if row["mesh"] == "dp=2" else []))


def arguments_of(row):
    return (["--stages", str(row["stages"]), "--schedule", row["schedule"]]
            + (["--groups", "2"] if row["schedule"] == "interleaved" else [])
            + mesh_of(row))


def fits(name, row):
    isV = row["schedule"] in ("zb-v", "v-half", "v-min")
    # Two products and what is between make three stages at most.
    if name == "mlp":
        return {**row, "stages": 2 if isV else min(3, row["stages"]),
                "schedule": row["schedule"].replace("interleaved", "1f1b")}
    if isV:  # two stages on each group
        return {**row, "stages": 4}
    if row["schedule"] == "interleaved":  # both are multiples of the two groups
        return {**row, "stages": 4, "micro": max(2, row["micro"])}
    return row


def verify(command, model, name, row, path):
    """The largest difference in f64, or what is wrong."""
    loss = {"kind": "softmax_cross_entropy", "labels": "labels", "axis": -1,
            "of": output_of(name)}
    with open(path, "w") as file:
        json.dump({"loss": loss, **spec_of(row)}, file)
    done = subprocess.run(
        [command, "verify", model, "--train", path, *arguments_of(row), "--steps", str(STEPS),
         "--f64", "--rtol", "1e-9", "--atol", "1e-9"], capture_output=True, text=True)
    if done.returncode or "checked: equal" not in done.stdout:
        return None, done.stderr[-500:]
    return max(float(x) for x in re.findall("largest difference ([^,]+),", done.stdout)), ""


class Pipeline(Step):
    def output(self, name):
        return output_of(name)

    def run(self, command, transport, *words):
        """Losses of `STEPS_ON_RANKS` steps, and the states behind the last."""
        feeds = list(self.feeds(STEPS_ON_RANKS))
        data, log = f"{self.bundle}.npz", f"{self.bundle}.jsonl"
        np.savez(data, **{key: np.concatenate([feed[key] for feed in feeds])
                          for key in feeds[0]})
        with tempfile.TemporaryDirectory() as states:
            done = subprocess.run(
                [command, "run", self.bundle, "--data", data, "--steps", str(STEPS_ON_RANKS),
                 "--log", log, "--state-dir", states, "--transport", transport, *words],
                capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{transport}: {done.stderr[-500:]}")
            with open(log) as file:
                losses = [json.loads(line)["loss"] for line in file]
            return losses, read_states(f"{states}/state.safetensors")[0]


def apart(actual, expected, weights):
    losses = max(abs(a - e) / abs(e) for a, e in zip(actual[0], expected[0]))
    assert actual[1].keys() == expected[1].keys(), (
        f"states {actual[1].keys() ^ expected[1].keys()} are missing, or are too many")
    assert len(actual[0]) == len(expected[0]) == STEPS_ON_RANKS
    states = max(np.abs(actual[1][k] - v).max() / max(1e-2, np.abs(v).max())
                 for k, v in expected[1].items() if k in weights)
    return losses, states


ROWS = [
    {"stages": 2, "schedule": "1f1b", "micro": 4, "mesh": "dp=2", "level": 3},
    {"stages": 3, "schedule": "zb-h1", "micro": 4, "mesh": None, "level": 0},
    {"stages": 2, "schedule": "gpipe", "micro": 2, "mesh": "tp=2", "level": 0},
    {"stages": 4, "schedule": "interleaved", "micro": 4, "mesh": None, "level": 0},
    {"stages": 2, "schedule": "zb-h2", "micro": 4, "mesh": None, "level": 0},
    {"stages": 4, "schedule": "zb-v", "micro": 4, "mesh": None, "level": 0},
]


def on_ranks(command, work, name, number):
    """The largest differences of losses and of states, of one of ROWS."""
    row = fits(name, {**ROWS[number], "optimizer": "momentum", "clip": True, "scale": None,
                      "nan": None, "recompute": False})
    expected = Pipeline(command, work, name, spec_of(row), mesh_of(row)).run(command, "local")
    step, worst = Pipeline(command, work, name, spec_of(row), arguments_of(row)), [0, 0]
    weights = {tensor.name for tensor in onnx.load(f"{work}/{name}.onnx").graph.initializer}
    # The quick tier has each transport in every other row.
    for transport in (("local", "mpi") if not tier.is_quick() else (("local", "mpi")[number % 2],)):
        far = apart(step.run(command, transport), expected, weights)
        worst = [max(a, b) for a, b in zip(worst, far)]
        if far[0] > 1e-4 or far[1] > 1e-3:
            raise RuntimeError(f"{row}, {transport}: losses within {far[0]:.1e}, states "
                               f"within {far[1]:.1e}")
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--models")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    training_models.MODELS.update({key: published(name) for key, name in PUBLISHED.items()},
                                  unet=training_models.unet)
    names = (arguments.models.split(",") if arguments.models else
             ["mlp", "transformer", "conv", "unet", *PUBLISHED])
    rows, wrong = list(pairwise(OPTIONS)), 0
    cases = [(name, number, fits(name, row)) for name in names
             for number, row in enumerate(rows)]
    cases += [("gpt2", len(rows) + number, row) for number, row in enumerate(TIED)
              if "gpt2" in names]
    with tempfile.TemporaryDirectory() as work, \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for name in names:
            training_models.MODELS[name](f"{work}/{name}.onnx")
        runs = [(name, row, pool.submit(verify, arguments.partita, f"{work}/{name}.onnx", name,
                                        row, f"{work}/{name}{number}.json"))
                for name, number, row in tier.sample("pipelines", cases,
                                                     kind=lambda case: case[0])]
        worst = dict.fromkeys(names, 0)
        for name, row, run in runs:
            difference, message = run.result()
            if difference is None:
                wrong += 1
                print(f"WRONG {name} {row}: {message}", flush=True)
            else:
                worst[name] = max(worst[name], difference)
        print(f"{len(runs)} of {len(cases)} pipelines of {STEPS} steps that cover pairs of "
              "options, largest differences " + ", ".join(
                  f"{name} {far:.1e}" for name, far in worst.items()), flush=True)
        cases = [(name, number) for name in names for number in range(len(ROWS))]
        worst = [0, 0]
        cases = tier.sample("pipelines-ranks", cases, kind=lambda case: case[1])
        for name, number in cases:
            try:
                far = on_ranks(arguments.partita, work, name, number)
                worst = [max(a, b) for a, b in zip(worst, far)]
            except (RuntimeError, AssertionError, ValueError) as error:
                wrong += 1
                print(f"WRONG {name} on ranks: {str(error)[-500:]}", flush=True)
        print(f"{len(cases)} on ranks, {STEPS_ON_RANKS} steps: losses within {worst[0]:.1e}, "
              f"states within {worst[1]:.1e}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
