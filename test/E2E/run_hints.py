#!/usr/bin/env python3
"""Hints one dim of one tensor of a model of the zoo at a time, 2 to 6 ways: by a count, by
an axis, and by names of the tensor: its node's and its own. Tensors are the inputs and
outputs of every distinct node (of equal kinds and shapes one), what its import made of it
counted as one, and every distinct weight and input of the model. Every hint must be done,
and the partitioned program must compute what the model computes; only what the node alone
cannot do may be refused, with its reason.

usage: run_hints.py PARTITA ZOO MODEL [--tries N] [--seed S] [--all]
                    [--gate HINT-SWEEP] [--jobs J] [--verbose]

--all tries every dim in every form. --gate only partitions, by the program hint-sweep:
that the hint is done, that the gates of both levels and the price agree; a hundred times
as many tries in the same time.
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

import tier

WAYS = range(2, 7)
# What a node alone cannot do.
REASONS = {
    "more ways than elements": "it has fewer elements|a dim of size 1 cannot be split",
    "a loop that the op needs whole": "needs all of it on every rank",
    "uneven inside a dim of the op": "where there is no room for padding",
    "dims of the op's own factors": r"\(\d+ ways\): '[^']*' cuts it into",
}
#: `name` is what a hint for the tensor itself is given by; None where it has none.
Tensor = collections.namedtuple("Tensor", "node isInput index rank dim size name")
#: `makers` are other nodes whose imports made a constant, `names` those of the result.
Op = collections.namedtuple("Op", "value node kind operands shapes result makers names")


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


def makers_of(ir, names):
    """The nodes whose imports made a constant, by the number of its location."""
    text = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", ir, re.MULTILINE))

    def lists(location):
        here = {names[node] for listed in re.findall(
            r'fused<"made for">\[(.*?)\]', location)
            for node in re.findall(r"#loc\d*", listed)}
        return here.union(*(lists(text[inner])
                            for inner in re.findall(r"#loc\d*", location)))

    return {key: lists(location) for key, location in text.items()}


def all_names_of(ir):
    """All names inside a location, by its number."""
    text = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", ir, re.MULTILINE))

    def names(location):
        own = set(re.findall(r'"([^"]*)"', location))
        return own.union(*(names(text[inner]) for inner in re.findall(r"#loc\d*", location)))

    return {key: names(location) for key, location in text.items()}


def file_orders(ir):
    """The names of a node's inputs as its file has them, for nodes whose ops read them in
    another order (graph.node_inputs)."""
    found = re.search(r"graph\.node_inputs = \{(.*?\])\}", ir)
    return {node: re.findall(r'"([^"]*)"', names) for node, names in re.findall(
        r'"?([^",= ][^"=]*?)"? = \[(.*?)\]', found[1])} if found else {}


def ops_of(ir):
    """Every op of the program in order. Shapes of operands have the dims in the model's
    order, where the program has another (graph.operand_order)."""
    names, all_names = names_of(ir), all_names_of(ir)
    makers = makers_of(ir, names)
    pattern = (r"^ +%(\w+)(?::\d+)? = graph\.(\w+) (.*?) ?: (?:\((.*?)\) -> )?(tensor.*?) "
               r"loc\((#loc\d*)\)$")
    for value, kind, middle, operands, result, loc in re.findall(
            pattern, ir, re.MULTILINE):
        used = re.findall(r"%(\w+)", middle.split("{")[0])
        shapes = [shape_of(text) for text in re.findall(r"tensor<[^>]*>", operands)]
        order = re.search(r"graph\.operand_order = \[(.*?)\]", middle)
        if order:
            for i, text in enumerate(re.findall(r"array<i64(.*?)>", order[1])):
                dims = [int(d) for d in re.findall(r"\d+", text)]
                shapes[i] = [shapes[i][d] for d in dims] or shapes[i]
        attributes = re.sub(r"%\w+(#\d+)?|graph\.operand_order = \[.*?\]", "", middle)
        yield Op(value, names.get(loc), (kind, attributes if operands else ""), used,
                 shapes, shape_of(result), makers.get(loc, set()),
                 all_names.get(loc, set()) | set(re.findall(r'^"(.*?)"', middle)))


def tensors_of_nodes(ops, ir):
    """The inputs and outputs of distinct nodes: what comes from outside, in the file's
    order, once each, and what goes there."""
    orders = file_orders(ir)
    names = {value: {name} for value, name in re.findall(
        r"%(arg\d+): tensor<[^>]*> \{graph\.name = \"([^\"]*)\"", ir)}
    names.update((op.value, op.names) for op in ops)

    def place(node, value):
        return next((i for i, name in enumerate(orders[node])
                     if name in names.get(value, ())), len(orders[node]))

    nodes, producer, users = {}, {}, collections.defaultdict(set)
    for op in ops:
        if op.operands and op.node:
            nodes.setdefault(op.node, []).append(op)
        producer[op.value] = op
        for value in op.operands:
            users[value].add(op.node)
    seen = set()
    for node, members in nodes.items():
        own = {op.value for op in members}
        inputs = {}
        for op in members:
            for value, shape in zip(op.operands, op.shapes):
                source = producer.get(value)
                made = source and not source.operands and (
                    source.node == node or node in source.makers)
                if value not in own and not made:
                    inputs.setdefault(value, shape)
        if node in orders:
            inputs = {value: inputs[value]
                      for value in sorted(inputs, key=lambda value: place(node, value))}
        outputs = [op.result for op in members if users[op.value] != {node}]
        key = str(([op.kind for op in members], list(inputs.values()), outputs))
        if key in seen:
            continue
        seen.add(key)
        for shapes, isInput in ((inputs.values(), True), (outputs, False)):
            for index, shape in enumerate(shapes):
                for dim, size in enumerate(shape):
                    if size > 1:
                        alone = not isInput and len(outputs) == 1
                        yield Tensor(node, isInput, index, len(shape), dim, size,
                                     node if alone else None)


def tensors_of_sources(ir, ops):
    """Weights and inputs of the model, of equal shapes and readers one."""
    sources = [(value, name, shape_of(text)) for value, text, name in re.findall(
        r"%(arg\d+): (tensor<[^>]*>) \{graph\.name = \"([^\"]*)\"", ir)]
    sources += [(value, name, shape_of(text)) for value, name, text in re.findall(
        r"%(\w+) = graph\.weight \"([^\"]*)\".*? : (tensor<[^>]*>)", ir)]
    seen = set()
    for value, name, shape in sources:
        # What the import has folded has no name in the file.
        if re.search(r"/folded(_\d+)?$", name):
            continue
        readers = [(op.kind, op.shapes) for op in ops if value in op.operands]
        if str((shape, readers)) in seen:
            continue
        seen.add(str((shape, readers)))
        for dim, size in enumerate(shape):
            if size > 1:
                yield Tensor(None, False, 0, len(shape), dim, size, name)


def forms_of(tensor, valueNames):
    """(how, hints) for every way to say it; the entry is filled in later."""
    dims = lambda entry: [entry if d == tensor.dim else None for d in range(tensor.rank)]
    side = "in" if tensor.isInput else "out"
    node = lambda entry: {"nodes": {tensor.node: {
        side: [None] * tensor.index + [dims(entry)]}}}
    if tensor.node:
        yield "count", lambda ways: node(ways)
        yield "axis", lambda ways: node("tp")
    else:
        yield "tensor's count", lambda ways: {"tensors": {tensor.name: dims(ways)}}
    if tensor.name:
        yield "tensor's axis", lambda ways: {"tensors": {tensor.name: dims("tp")}}
        name = tensor.node and valueNames.get(tensor.node)
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

    def tensors(self):
        with tempfile.TemporaryDirectory(prefix="partita-hints-") as work:
            subprocess.run(
                [self.arguments.partita, "compile", self.model, "--to", "L0",
                 "--dump-dir", work, *self.shapes], check=True, capture_output=True)
            with open(os.path.join(work, "00-imported.mlir")) as file:
                ir = file.read()
        ops = list(ops_of(ir))
        return [*tensors_of_nodes(ops, ir), *tensors_of_sources(ir, ops)]

    def run(self, trial):
        """None if all is right, a reason of REASONS, or what went wrong."""
        tensor, how, hints, ways = trial
        with tempfile.TemporaryDirectory(prefix="partita-hints-") as work:
            path = os.path.join(work, "hints.json")
            with open(path, "w") as file:
                json.dump(hints, file)
            done = subprocess.run(
                [self.arguments.partita, "verify", self.model, "--inputs-dir",
                 os.path.join(self.folder, "inputs"), "--mesh", f"tp={ways}", "--mode",
                 "semi-auto", "--hints", path, *self.shapes],
                capture_output=True, text=True, timeout=600)
        return None if done.returncode == 0 else self.reason(done.stderr)

    def partition(self, trials):
        """What `run` gives for each, of the gates alone."""
        lines = "".join(f"tp={ways}\t{json.dumps(hints)}\n" for _, _, hints, ways in trials)
        done = subprocess.run([self.arguments.gate, self.model, *self.shapes],
                              input=lines, capture_output=True, text=True)
        answers = done.stdout.splitlines()
        if done.returncode or len(answers) != len(trials):
            what = f"exit {done.returncode} at {trials[len(answers) - 1]}: {done.stderr}"
            return [f"FAILED: {what}"] * len(trials)
        return [None if answer == "ok" else self.reason(answer) for answer in answers]

    def reason(self, error):
        for reason, pattern in REASONS.items():
            if "hints.json: " in error and re.search(pattern, error):
                return reason
        return f"FAILED: {error.strip()[-400:]}"

    def results(self, trials, pool):
        if not self.arguments.gate:
            return pool.map(self.run, trials)
        parts = [trials[i:i + 500] for i in range(0, len(trials), 500)]
        return (result for part in pool.map(self.partition, parts) for result in part)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("model")
    parser.add_argument("--tries", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--gate", metavar="HINT-SWEEP")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    trials = Trials(arguments)
    names = trials.value_names()
    every = [(tensor, how, make(ways), ways) for tensor in trials.tensors()
             for how, make in forms_of(tensor, names) for ways in WAYS]
    if not every:
        print(f"FAILED  {arguments.model}: no op was found in its program")
        return 1
    if not arguments.all:
        every = random.Random(arguments.seed).sample(
            every, min(arguments.tries, len(every)))
        every = tier.sample(f"hints-{'gate-' if arguments.gate else ''}{arguments.model}",
                            every, kind=lambda trial: trial[1])
    counts, failed = collections.Counter(), 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for trial, result in zip(every, trials.results(every, pool)):
            tensor, how, hints, ways = trial
            wrong = (result or "").startswith("FAILED")
            failed += wrong
            counts["failed" if wrong else result or
                   ("done" if arguments.gate else "done and equal")] += 1
            if wrong or arguments.verbose:
                print(f"{json.dumps(hints)} {ways} ways: {result or 'ok'}", flush=True)
    print(f"{'FAILED  ' if failed else 'ok      '}{arguments.model}: {len(every)} hints: " +
          ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
