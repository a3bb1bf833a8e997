#!/usr/bin/env python3
"""Hints one dim of one tensor of one op of a model of the zoo at a time, 2 to 6 ways: by a
count, by an axis, and by names of the tensor: its node's and its own. Every hint must be done, and the
partitioned program must compute what the model computes; only what the node alone cannot
do may be refused, with its reason.

usage: run_hints.py PARTITA ZOO MODEL [--tries N] [--seed S] [--all] [--jobs J] [--verbose]

--all tries every dim of every distinct op (equal shapes count once) in every form.
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

WAYS = range(2, 7)
# What a node alone cannot do.
REASONS = {
    "more ways than elements": "it has fewer elements|a dim of size 1 cannot be split",
    "a loop that the op needs whole": "needs all of it on every rank",
    "uneven inside a dim of the op": "where there is no room for padding",
    "dims of the op's own factors": r"\(\d+ ways\): '[^']*' cuts it into",
}
Tensor = collections.namedtuple("Tensor", "node isInput index rank dim size value")


def shape_arguments(case):
    for name, shape in case["shapes"].items():
        yield "--shape"
        yield name + "=" + ",".join(map(str, shape))


def shape_of(text):
    """The shape in `tensor<2x3xf32>`."""
    return [int(n) for n in re.findall(r"(\d+)x", text)]


def names_of(ir):
    """Node names by the number of their location: the first name inside it."""
    text = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", ir, re.MULTILINE))

    def resolve(location, depth=0):
        named = re.match(r'"([^"]*)"', location)
        if named and not re.match(r'"[^"]*":\d', location):
            return named.group(1)
        for inner in re.findall(r"#loc\d*", location):
            found = resolve(text.get(inner, ""), depth + 1)
            if found and depth < 8:
                return found
        return None

    return {key: resolve(value) for key, value in text.items()}


def distinct_ops(ir):
    """(node, operand types, result types) of ops of distinct kind, shapes and attributes.
    Of nodes that became several ops only those whose operands all come from outside."""
    names = names_of(ir)
    ops, per_node = [], collections.Counter()
    pattern = (r"^ +%(\w+)(?::\d+)? = graph\.(\w+) (.*?) ?: \(?([^()]*?)\)? -> (.*?) "
               r"loc\((#loc\d*)\)$")
    for value, kind, middle, operands, results, loc in re.findall(
            pattern, ir, re.MULTILINE):
        node = names.get(loc)
        if not node:
            continue
        per_node[node] += 1
        ops.append((node, kind, re.sub(r"%\w+(#\d+)?|dist\.\w+ = (#\w+|\".*?\")", "", middle),
                    re.findall(r"tensor<[^>]*>", operands),
                    re.findall(r"tensor<[^>]*>", results), value))
    seen = {}
    for node, kind, middle, operands, results, value in ops:
        if operands and per_node[node] == 1:
            seen.setdefault((kind, middle, *operands, *results), (node, operands, results))
    return list(seen.values())


def tensors_of(ops):
    for node, operands, results in ops:
        for types, isInput in ((operands, True), (results, False)):
            for index, text in enumerate(types):
                shape = shape_of(text)
                for dim, size in enumerate(shape):
                    if size > 1:
                        yield Tensor(node, isInput, index, len(shape), dim, size,
                                     not isInput and len(types) == 1)


def forms_of(tensor, valueNames):
    """(how, hints) for every way to say it; the entry is filled in later."""
    dims = lambda entry: [entry if d == tensor.dim else None for d in range(tensor.rank)]
    side = "in" if tensor.isInput else "out"
    node = lambda entry: {"nodes": {tensor.node: {
        side: [None] * tensor.index + [dims(entry)]}}}
    yield "count", lambda ways: node(ways)
    yield "axis", lambda ways: node("tp")
    if tensor.value:
        yield "node's value", lambda ways: {"tensors": {tensor.node: dims("tp")}}
        name = valueNames.get(tensor.node)
        if name:
            yield "value", lambda ways: {"tensors": {name: dims(ways)}}


class Trials:
    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = os.path.join(arguments.zoo, arguments.model)
        with open(os.path.join(self.folder, "case.json")) as file:
            self.shapes = list(shape_arguments(json.load(file)))
        self.model = os.path.join(self.folder, "model.onnx")

    def value_names(self):
        """The ONNX name of what a node computes, by the name of the node."""
        nodes = onnx.load(self.model, load_external_data=False).graph.node
        count = collections.Counter(node.name for node in nodes)
        return {node.name: node.output[0] for node in nodes
                if count[node.name] == 1 and len(node.output) == 1}

    def ops(self):
        with tempfile.TemporaryDirectory(prefix="partita-hints-") as work:
            subprocess.run(
                [self.arguments.partita, "compile", self.model, "--to", "L2", "--mesh",
                 "tp=2", "--mode", "semi-auto", "--dump-dir", work, *self.shapes],
                check=True, capture_output=True)
            name = next(n for n in sorted(os.listdir(work)) if n.startswith("02-"))
            with open(os.path.join(work, name)) as file:
                return distinct_ops(file.read())

    def run(self, trial):
        """None if all is right, a reason of REASONS, or what went wrong."""
        tensor, how, hints, ways = trial
        with tempfile.TemporaryDirectory(prefix="partita-hints-") as work:
            path = os.path.join(work, "hints.json")
            with open(path, "w") as file:
                json.dump(hints, file)
            done = subprocess.run(
                [self.arguments.partita, "verify", self.model, "--mesh", f"tp={ways}",
                 "--mode", "semi-auto", "--hints", path, "--inputs-dir",
                 os.path.join(self.folder, "inputs"), *self.shapes],
                capture_output=True, text=True, timeout=600)
        if done.returncode == 0:
            return None
        for reason, pattern in REASONS.items():
            if "hints.json: " in done.stderr and re.search(pattern, done.stderr):
                return reason
        return f"FAILED: {done.stderr.strip()[-400:]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("model")
    parser.add_argument("--tries", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    trials = Trials(arguments)
    names = trials.value_names()
    every = [(tensor, how, make(ways), ways) for tensor in tensors_of(trials.ops())
             for how, make in forms_of(tensor, names) for ways in WAYS]
    if not every:
        print(f"FAILED  {arguments.model}: no op was found in its program")
        return 1
    if not arguments.all:
        every = random.Random(arguments.seed).sample(
            every, min(arguments.tries, len(every)))
    counts, failed = collections.Counter(), 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for trial, result in zip(every, pool.map(trials.run, every)):
            tensor, how, hints, ways = trial
            wrong = (result or "").startswith("FAILED")
            failed += wrong
            counts["failed" if wrong else result or "done and equal"] += 1
            if wrong or arguments.verbose:
                print(f"{json.dumps(hints)} {ways} ways: {result or 'ok'}", flush=True)
    print(f"{'FAILED  ' if failed else 'ok      '}{arguments.model}: {len(every)} hints: " +
          ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
