#!/usr/bin/env python3
"""Training steps on virtual ranks in f64: every weight, moment and metric of 8 steps of the
partitioned program within 1e-9 of the unpartitioned one's, over pairwise covering options.

usage: run_training_f64.py PARTITA [--exported FOLDER] [--models NAME,…] [--jobs N]

The evaluator computes the same f64 program twice, whole and on ranks, so that what is left
of a difference is the order of sums: a wrong collective, mask or slice is far above 1e-9.
Any two values of two options stand together in one of the runs. Models are those of
training_models.py, or those that `test/Grad/against_torch.py --export FOLDER` writes.
"""
import argparse
import concurrent.futures
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import onnx

import tier
import training_models

STEPS = 8
OPTIMIZERS = {
    "sgd": {"kind": "sgd", "lr": 0.05, "weight_decay": 0.01},
    "nesterov": {"kind": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True},
    "adam": {"kind": "adam", "lr": 0.01},
    "adamw": {"kind": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "lamb": {"kind": "lamb", "lr": 0.01, "weight_decay": 0.01},
    # The bias before a norm has a gradient of 1e-17, which is zero but for rounding: PyTorch's
    # 1e-10 would make 1e-8 of it in the first step.
    "adagrad": {"kind": "adagrad", "lr": 0.05, "eps": 1e-6},
}
OPTIONS = {
    "mesh": ["dp=2", "dp=3", "dp=4", "dp=8", "tp=2", "tp=4", "dp=2,tp=2", "dp=2,tp=4"],
    "how": ["auto", "data-parallel", "megatron"],
    "level": [0, 1, 2, 3],
    "optimizer": list(OPTIMIZERS),
    "recompute": ["none", "nodes", "exactly", "drawn", "drawn exactly"],
    "communication": [True, False], # of what is computed again: again, or kept
    "gathering": [False, True],     # of its weights: once, or again
    "accumulation": [1, 3],
    "clip": [False, True],
}
OUTPUTS = {"mlp": "fc2", "conv": "fc", "transformer": "head", "fused": "head"}


def pairwise(options):
    """Rows of values, in which any two values of two options stand together: each row is
    begun by a pair that is missing, and goes on with what covers most of the rest."""
    names = list(options)
    pairs = lambda row: {((a, row[a]), (b, row[b]))
                         for a, b in itertools.combinations([n for n in names if n in row], 2)}
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2)
               for x in options[a] for y in options[b]}
    while missing:
        row = dict(min(missing, key=repr))
        for name in names:
            if name not in row:
                row[name] = max(options[name], key=lambda value: len(
                    pairs({**row, name: value}) & missing))
        missing -= pairs(row)
        yield {name: row[name] for name in names}


def recompute_of(path, row, seed):
    """By pattern, or half of the nodes in three lists; exactly: whatever reads them."""
    knobs = {"exactly": row["recompute"].endswith("exactly"),
             "mp_comm_recompute": row["communication"],
             "parallel_optimizer_comm_recompute": row["gathering"]}
    if not row["recompute"].startswith("drawn"):
        return [{"nodes": "*", **knobs}]
    names = [n.name for n in onnx.load(path, load_external_data=False).graph.node if n.name]
    drawn = random.Random(seed).sample(names, (len(names) + 1) // 2)
    return [{"nodes": drawn[part::3], **knobs} for part in range(min(3, len(drawn)))]


def spec_of(path, loss, row, seed):
    spec = {"loss": loss, "optimizer": OPTIMIZERS[row["optimizer"]],
            "accumulation": row["accumulation"]}
    if row["level"]:
        spec["optimizer_parallel"] = {
            "enable": True, "level": row["level"], "threshold_kb": 0,
            "gradient_accumulation_shard": row["level"] > 1}
    if row["recompute"] != "none":
        spec["recompute"] = recompute_of(path, row, seed)
    if row["clip"]:
        spec["clip_norm"] = 0.5
    return spec


def check(command, model, loss, row, seed, spec_path):
    spec_path.write_text(json.dumps(spec_of(model, loss, row, seed)))
    how = ["--hints", "megatron"] if row["how"] == "megatron" else ["--mode", row["how"]]
    done = subprocess.run(
        [command, "verify", model, "--train", spec_path, "--mesh", row["mesh"], *how,
         "--steps", str(STEPS), "--f64", "--rtol", "1e-9", "--atol", "1e-9"],
        capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()[-400:]
    return max(float(x) for x in re.findall(r"largest difference ([^,]+),",
                                            done.stdout)), ""


def models(arguments, work):
    if arguments.exported:
        folder = pathlib.Path(arguments.exported)
        known = {path.stem: (path, json.loads(path.with_suffix(".json").read_text()))
                 for path in sorted(folder.glob("*.onnx"))}
    else:
        known = {}
        for name in OUTPUTS:
            training_models.MODELS[name](f"{work}/{name}.onnx", batch=12)
            known[name] = (f"{work}/{name}.onnx",
                           {"kind": "softmax_cross_entropy", "labels": "labels",
                            "axis": -1, "of": OUTPUTS[name]})
    asked = arguments.models.split(",") if arguments.models else list(known)
    return {name: known[name] for name in asked}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--exported", help="folder of models and losses")
    parser.add_argument("--models", help="of them, by name")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    rows, wrong = list(pairwise(OPTIONS)), 0
    with tempfile.TemporaryDirectory() as work, \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for name, (path, loss) in models(arguments, work).items():
            # Megatron's rule wants blocks, and as many heads as it has ranks or a multiple.
            chosen = tier.sample(f"training-f64-{name}", enumerate(rows),
                                 kind=lambda row: row[1]["how"])
            runs = {i: pool.submit(check, arguments.partita, path, loss, row, i,
                                   pathlib.Path(f"{work}/{name}{i}.json"))
                    for i, row in chosen}
            worst, none = 0, 0
            for i, run in runs.items():
                difference, message = run.result()
                if difference is not None:
                    worst = max(worst, difference)
                elif rows[i]["how"] == "megatron" and "rule 'megatron'" in message:
                    none += 1
                else:
                    wrong += 1
                    print(f"WRONG {name} {rows[i]}: {message}")
            print(f"{name}: {len(runs) - none} of {len(rows)} plans of {STEPS} steps that "
                  f"cover pairs of options, largest difference {worst:.1e}"
                  + (f"; {none} where megatron does not fit" if none else ""),
                  flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
