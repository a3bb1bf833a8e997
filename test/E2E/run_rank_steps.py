#!/usr/bin/env python3
"""Training steps as an ONNX file per rank, and back (docs/rank-files.md).

usage: run_rank_steps.py PARTITA [--all]

A step is compiled, written by `partita convert --per-rank-onnx` and read back by `compile
--mode manual`. Both train on the same batches, from what state.safetensors and the bundle
begin with: losses of every step and all states behind the last one are those of the bundle
by the tolerances of run_training.py, and states that are equal to the last bit are counted.
On one rank ONNX Runtime takes the same steps with the file.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

import equality
import run_training
import states
import tier
import training_models

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from partita import onnx_schemas  # noqa: E402
import partita  # noqa: E402

training_models.MODELS["windows"] = training_models.windows
STEPS = 3
#: Model, members of the specification, mesh, other arguments of the compile. Each of the
#: first is a kind of its own.
CASES = [
    ("mlp", {"optimizer": {"kind": "adamw"}, "accumulation": 2, "clip_norm": 1.0}, "dp=2,tp=2",
     ["--mode", "auto"]),
    ("mlp", {"optimizer": {"kind": "sgd", "momentum": 0.9},
             "optimizer_parallel": {"enable": True, "level": 3, "threshold_kb": 0}}, "dp=3",
     ["--mode", "data-parallel"]),
    ("transformer", {"optimizer": {"kind": "lamb"}, "on_nan": "skip",
                     "schedule": {"kind": "cosine", "warmup_steps": 2, "total_steps": 9}},
     "tp=4", ["--mode", "auto"]),
    ("mlp", {"optimizer": {"kind": "adam"}, "compute": "bf16", "loss_scale": "dynamic"}, "tp=2",
     ["--mode", "auto"]),
    ("mlp", {"optimizer": {"kind": "adamw"}, "clip_norm": 0.5}, "", []),
    ("windows", {"optimizer": {"kind": "sgd"}}, "", []),
]
MORE = [(model, {"optimizer": {"kind": kind}, **more}, mesh, ["--mode", mode])
        for model in ("mlp", "transformer", "fused")
        # The keys' bias of "fused" has no gradient but rounding, which the others divide.
        for kind, more in (("momentum", {}), ("adagrad", {"accumulation": 3}),
                           ("lamb", {"clip_norm": 1.0}))[:1 if model == "fused" else 3]
        for mesh, mode in (("dp=2", "data-parallel"), ("tp=2", "auto"), ("dp=2,tp=2", "auto"))]
MORE += [
    ("transformer", {"optimizer": {"kind": "adam"}}, "dp=2", ["--mode", "data-parallel"]),
    ("transformer", {"optimizer": {"kind": "sgd"}, "accumulation": 2}, "", []),
    ("windows", {"optimizer": {"kind": "adamw"}}, "dp=2", ["--mode", "data-parallel"]),
    ("windows", {"optimizer": {"kind": "sgd"}}, "tp=3", ["--mode", "auto"]),
    ("conv", {"optimizer": {"kind": "sgd", "momentum": 0.9}}, "", []),
    # Axes go from rows and the batch to channels.
    ("conv", {"optimizer": {"kind": "adamw"}}, "dp=2,tp=2", ["--mode", "auto"]),
]
for _, spec, *_ in MORE:
    if spec["optimizer"]["kind"] == "momentum":
        spec["optimizer"] = {"kind": "sgd", "momentum": 0.9, "nesterov": True}


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}\n{done.stdout[-500:]}"
                           f"{done.stderr[-1500:]}")
    return done.stdout


def train(bundle, feeds, begin=None):
    """Losses of all steps, and the states behind the last."""
    losses = []
    with partita.Session(str(bundle)) as session:
        if begin:
            session.load_states(str(begin))
        for feed in feeds:
            losses.append(float(session.run(feed)["loss"]))
        left = {name: session.read_state(name) for name in state_names(bundle)}
    return losses, left


def state_names(bundle):
    stage = json.loads(pathlib.Path(bundle, "plan.json").read_text())["entries"][0]["stages"][0]
    return [entry["state"] for entry in stage["arguments"] if entry.get("state")]


def compare(actual, wanted, what, counts, share=1e-3):
    """`share`: of the largest element of a state, by which elements may differ."""
    losses, left = actual
    for step, (mine, theirs) in enumerate(zip(losses, wanted[0])):
        if not abs(mine - theirs) <= share / 10 * max(1, abs(theirs)):
            raise RuntimeError(f"{what}: loss {mine} of step {step}, expected {theirs}")
    if set(left) != set(wanted[1]):
        raise RuntimeError(f"{what}: states {sorted(left)}, expected {sorted(wanted[1])}")
    for name, value in wanted[1].items():
        mine, theirs = left[name].astype(np.float64), value.astype(np.float64)
        error = np.max(np.abs(mine - theirs), initial=0)
        if left[name].shape != value.shape or \
                not error <= share * max(1e-3, np.max(np.abs(theirs), initial=0)):
            raise RuntimeError(f"{what}: state '{name}' differs by {error}")
        counts["states"] = counts.get("states", 0) + 1
        counts["equal to the last bit"] = counts.get("equal to the last bit", 0) + \
            int(np.array_equal(left[name], value))


def by_onnxruntime(path, first, feeds):
    """Losses and states of the same steps by a file of one rank, whose states go from
    outputs to inputs."""
    properties = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    pairs = [line.split("=") for line in properties["partita.states"].splitlines()]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names, losses, now = [entry.name for entry in session.get_outputs()], [], dict(first)
    for feed in feeds:
        results = dict(zip(names, session.run(None, {**feed, **now})))
        losses.append(float(results["loss"]))
        now = {past: results[present] for past, present in pairs}
    return losses, now


def run_case(command, case, work, counts):
    model, spec, mesh, how = case
    step = run_training.Step(command, str(work), model, spec,
                             [*(["--mesh", mesh] if mesh else []), *how])
    feeds = list(step.feeds(STEPS))
    wanted = train(step.bundle, feeds)
    ranks = work / "ranks"
    call(command, "convert", step.bundle, "--per-rank-onnx", ranks)
    files = sorted(ranks.glob("rank-*.onnx"))
    onnx_schemas.register_onnx_schemas(mesh)
    for path in files:
        onnx.checker.check_model(onnx.load(path), full_check=True, check_custom_domain=True)
    call(command, "compile", *files, "-o", work / "back",
         *(["--mesh", mesh, "--mode", "manual"] if mesh else []))
    # Halves are rounded at other places, as the rule for outputs has it.
    share = equality.HALF_UNITS * equality.EPSILON["bfloat16"] if "compute" in spec else 1e-3
    first, _ = states.read_states(ranks / "state.safetensors")
    compare(train(work / "back", feeds, ranks / "state.safetensors"), wanted, "read back",
            counts, share)
    if not mesh:
        compare(by_onnxruntime(files[0], first, feeds), wanted, "by ONNX Runtime", counts)
    counts["files"] = counts.get("files", 0) + len(files)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("--all", action="store_true", help="in whatever tier")
    arguments = parser.parse_args()
    cases, counts, failures = CASES + MORE, {}, []
    if not arguments.all:
        cases = tier.sample("rank-steps", cases,
                            lambda case: min(cases.index(case), len(CASES)))
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="partita-steps-") as work:
            try:
                run_case(arguments.partita, case, pathlib.Path(work), counts)
            except (RuntimeError, onnx.checker.ValidationError,
                    onnx.shape_inference.InferenceError) as error:
                failures.append(f"{case}: {error}")
                print(failures[-1][:2000], flush=True)
    print(f"{len(cases)} steps: " + ", ".join(f"{count} {name}"
                                              for name, count in counts.items()))
    if failures:
        sys.exit(f"{len(failures)} failed")


main()
