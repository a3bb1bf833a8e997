#!/usr/bin/env python3
"""Random models with random hints on random meshes of up to 6 ranks. Each compiles, or is
refused for one of the reasons listed here; what the plan was priced at is what its
program has; the program computes what the model computes. So does the bundle of every tenth,
and of each in which two followers stand behind a product whose operand lies in another order.

usage: run_random.py PARTITA [--count N] [--seed S] [--jobs J] [--keep DIR] [--verbose]

--keep writes the model and the hints of each failure. Number S alone is tried again with
--count 1 --seed S.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import onnx

import random_forms
import random_model
import random_ops
import tier

# What a node cannot do, and what hints cannot ask for together.
REASONS = {
    "more ways than elements": "it has fewer elements|a dim of size 1 cannot be split",
    "a loop that the op needs whole": "needs all of it on every rank",
    "uneven inside a dim of the op": "where there is no room for padding",
    "dims of the op's own factors": r"\(\d+ ways\): '[^']*' cuts it into",
    "two hints that exclude each other": "is already used by|which is the same loop|"
                                         "that are still free split it|contradicts|"
                                         "its loops are split by",
    # docs/hints.md: weights that are folded, equal computations.
    "a name that is gone": r"no (node and no module|tensor) is named '(\w+)'(;|$)",
}
#: Their weights are folded into others.
PER_CHANNEL = {"BatchNormalization", "InstanceNormalization", "GroupNormalization", "RNN",
               "GRU", "LSTM", "RotaryEmbedding", "DeformConv"}
NORMS = {"LayerNormalization", "RMSNormalization"}
FORMULAS = random_ops.FORMULAS | random_forms.FORMULAS
RESHAPES = {"Reshape", "Unsqueeze", "Squeeze", "Flatten"}
#: What parts of formulas are.
PARTS = RESHAPES | {"Transpose", "Cast", "Split", "Slice", "Gather", "Abs"}
FIGURES = re.compile(r"^communication per rank: (\d+) B received and (\d+) B of buffers by "
                     r"the plan, (\d+) B received and (\d+) B of buffers by the program$",
                     re.MULTILINE)


def reason_of(message, model):
    """The reason, if it is one that this model can have."""
    for reason, pattern in REASONS.items():
        found = re.search(pattern, message)
        if found and (reason != "a name that is gone" or may_be_gone(found[2], model)):
            return reason
    return None


def may_be_gone(name, model):
    """Whether the name is that of a weight that is folded, or of what an earlier node
    computes as well: of two equal computations the first keeps its names."""
    known, same = {}, {}
    for tensor in model.initializers:
        key = (tensor.data_type, tuple(tensor.dims), tensor.raw_data)
        same[tensor.name] = known.setdefault(key, tensor).name
    for node in model.nodes:
        if node.op_type in PER_CHANNEL and name in node.input[1:]:
            return True
        # So are dims of 1 in front of a scale's own.
        if node.op_type in NORMS and name in node.input[1:] and any(
                tensor.name == name and tensor.dims[0] == 1 for tensor in
                model.initializers):
            return True
        # A reshape to the same shape is no op.
        # A small weight that is transposed is a constant of the result's name.
        if node.op_type == "Transpose" and name in node.input and any(
                tensor.name == name for tensor in model.initializers):
            return True
        # A part of a formula may be the same op of an operand.
        if name in (node.name, *node.output) and node.op_type in PARTS and any(
                node.input[0] in other.input for other in model.nodes
                if other is not node and other.op_type in FORMULAS):
            return True
        # Two of these from one shape to one are equal.
        if name in (node.name, *node.output) and node.op_type in RESHAPES and any(
                other.op_type in RESHAPES and node.input[0] == other.input[0]
                for other in model.nodes if other is not node):
            return True
        inputs = tuple(same.get(value, value) for value in node.input)
        key = (node.op_type, inputs, tuple(str(a) for a in node.attribute))
        if key in known and name in (node.name, *node.output):
            return True
        first = known.setdefault(key, node)
        same.update(zip(node.output, first.output))
        # A reshape to the same shape is no op.
        if node.op_type in RESHAPES and (
                model.shape_of(node.input[0]) == model.shape_of(node.output[0])):
            same[node.output[0]] = same.get(node.input[0], node.input[0])
    return False


def attempt(partita, seed, folder):
    """(outcome, bytes received) of one model; the outcome of a fault begins with FAILED."""
    model = random_model.RandomModel(seed)
    onnx.save(model.build(), os.path.join(folder, "model.onnx"))
    choose = random.Random(seed + 1)
    mesh, mode = choose.choice(random_model.MESHES), choose.choice(random_model.MODES)
    hints = model.hints(mesh)
    with open(os.path.join(folder, "hints.json"), "w") as file:
        json.dump(hints, file)
    options = [os.path.join(folder, "model.onnx"), "--mesh", mesh, "--mode", mode, "--hints",
               os.path.join(folder, "hints.json")]
    if choose.random() < 0.15:
        options.append("--no-all-to-all")
    command = [partita, "verify", *options]
    with open(os.path.join(folder, "command"), "w") as file:
        file.write(" ".join(command) + "\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        message = done.stderr.strip()
        reason = reason_of(message, model)
        if done.returncode == 1 and reason:
            return "refused: " + reason, 0
        return f"FAILED ({done.returncode}): {message[-600:]}", 0
    priced = FIGURES.search(done.stdout)
    if not priced or priced[1] != priced[3] or priced[2] != priced[4]:
        return f"FAILED: priced and emitted differ: {done.stdout[-300:]}", 0
    if not done.stdout.endswith("checked: equal\n"):
        return f"FAILED: {done.stdout[-300:]}", 0
    if model.has_followers or seed % 10 == 0:
        bundle = os.path.join(folder, "bundle")
        for command in ([partita, "compile", *options, "-o", bundle],
                        [partita, "verify", bundle]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            if done.returncode != 0:
                return f"FAILED ({done.returncode}): {command[1]}: {done.stderr[-600:]}", 0
    return "equal, with hints" if hints else "equal, without hints", int(priced[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", help="folder for the files of failures")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()

    def one(seed):
        with tempfile.TemporaryDirectory(prefix="partita-random-") as folder:
            outcome = attempt(arguments.partita, seed, folder)
            if arguments.keep and outcome[0].startswith("FAILED"):
                kept = os.path.join(arguments.keep, str(seed))
                os.makedirs(arguments.keep, exist_ok=True)
                subprocess.run(["cp", "-r", folder, kept], check=True)
            return outcome

    counts, failed, communicating = collections.Counter(), 0, 0
    seeds = tier.sample("random-models",
                        range(arguments.seed, arguments.seed + arguments.count))
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for seed, (outcome, received) in zip(seeds, pool.map(one, seeds)):
            wrong = outcome.startswith("FAILED")
            failed += wrong
            communicating += received > 0
            counts["failed" if wrong else outcome] += 1
            if wrong or arguments.verbose:
                print(f"seed {seed}: {outcome}", flush=True)
    print(f"{'FAILED  ' if failed else 'ok      '}{len(seeds)} random models from seed "
          f"{arguments.seed}: {communicating} communicate; " +
          ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
