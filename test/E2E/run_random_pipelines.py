#!/usr/bin/env python3
"""Training steps cut anywhere and run in any order, and orders that are damaged.

usage: run_random_pipelines.py PARTITA [--cases N] [--damaged N] [--seed S] [--jobs N]

A case cuts a small model behind drawn nodes, lays the stages on drawn groups of ranks, and draws
an order for each group, part by part, among what could run next; gradients of weights are a part
or not. On virtual ranks in f64 the step is that of one stage (`verify`). A damaged case swaps,
moves, drops, repeats or renames cells of such an order. What can still run, by the rules below,
must give the same numbers; what cannot must be refused with one sentence before anything runs.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile

import onnx

import tier
import training_models

MODELS = {"stack": lambda path: training_models.stack(path, batch=8, layers=3, width=8),
          "transformer": training_models.transformer, "unet": training_models.unet,
          "conv": training_models.convolutional}
OUTPUT = {"conv": "fc"}


class Order:
    """Cells (stage, kind, micro-batch) by line; `group` of every stage."""

    def __init__(self, draw, stages, count):
        groups = draw.randint(1, stages)
        # Every group has a stage; which is drawn.
        self.group = list(range(groups)) + [draw.randrange(groups) for _ in range(stages - groups)]
        draw.shuffle(self.group)
        seen = {}
        self.group = [seen.setdefault(g, len(seen)) for g in self.group]
        self.stages, self.count = stages, count
        self.kinds = draw.choice(["FB", "FIW"])
        self.lines = [[] for _ in range(groups)]
        done = set()
        while len(done) < stages * count * len(self.kinds):
            cell = draw.choice([cell for cell in self.cells() if cell not in done
                                and all(before in done for before in self.needs(cell))])
            done.add(cell)
            self.lines[self.group[cell[0]]].append(cell)

    def cells(self):
        return [(s, k, m) for s in range(self.stages) for k in self.kinds
                for m in range(self.count)]

    def needs(self, cell):
        stage, kind, number = cell
        if number > 0:  # sums over micro-batches are added up in their order
            yield (stage, kind, number - 1)
        if kind == "F" and stage > 0:
            yield (stage - 1, kind, number)
        if kind in "BI":
            yield (stage, "F", number)
            if stage + 1 < self.stages:
                yield (stage + 1, kind, number)
        if kind == "W":
            yield (stage, "I", number)

    def can_run(self):
        """Tells whether the lines are those of a step and come to an end."""
        all_cells = [cell for line in self.lines for cell in line]
        if collections.Counter(all_cells) != collections.Counter(self.cells()):
            return False
        if any(self.group[cell[0]] != g for g, line in enumerate(self.lines) for cell in line):
            return False
        done, at = set(), [0] * len(self.lines)
        moves = True
        while moves:
            moves = False
            for g, line in enumerate(self.lines):
                while at[g] < len(line) and all(b in done for b in self.needs(line[at[g]])):
                    done.add(line[at[g]])
                    at[g] += 1
                    moves = True
        return len(done) == len(all_cells)

    def damage(self, draw):
        line = draw.choice(self.lines)
        i, j = draw.randrange(len(line)), draw.randrange(len(line))
        stage, kind, number = line[i]
        how = draw.choice(["swap", "swap", "move", "drop", "repeat", "micro", "stage", "kind",
                           "line"])
        if how == "swap":
            line[i], line[j] = line[j], line[i]
        elif how == "move":
            line.insert(j, line.pop(i))
        elif how == "drop":
            del line[i]
        elif how == "repeat":
            line.insert(j, line[i])
        elif how == "micro":
            line[i] = (stage, kind, number + draw.choice([-1, 1, self.count]))
        elif how == "stage":
            line[i] = (stage + draw.choice([-1, 1, self.stages]), kind, number)
        elif how == "kind":
            line[i] = (stage, draw.choice("FBIWX"), number)
        else:
            draw.choice(self.lines).append(line.pop(i))
        return how

    def text(self):
        return "".join(",".join(f"{s}{k}{m}" for s, k, m in line) + "\n" for line in self.lines)


def nodes_of(command, work, name):
    """The nodes that the compiler keeps, in their order."""
    plan = f"{work}/{name}.plan.json"
    subprocess.run([command, "plan", f"{work}/{name}.onnx", "--mesh", "x=1", "-o", plan],
                   check=True, capture_output=True)
    with open(plan) as file:
        stage = json.load(file)["entries"][0]["stages"][0]
    kept = {name for node in stage["nodes"] for name in node["names"]}
    return [node.name for node in onnx.load(f"{work}/{name}.onnx").graph.node
            if node.name in kept]


def case(command, work, nodes, number, seed, is_damaged):
    """None, or what is wrong; and whether the order could run."""
    draw = random.Random(f"{seed} {number} {is_damaged}")
    # Cut between whole blocks, each stage waits for the one before it: the backward part of an
    # Add alone would be empty.
    name = draw.choice(list(MODELS) if not is_damaged else ["stack"])
    model, nodes = f"{work}/{name}.onnx", nodes[name]
    stages = draw.randint(2, 3 if is_damaged else 4)
    between = [i for i, node in enumerate(nodes)
               if i > 0 and (not is_damaged or node.endswith(".norm"))]
    cuts = sorted(draw.sample(between, stages - 1)) + [len(nodes)]
    places = {node: next(s for s, cut in enumerate(cuts) if i < cut)
              for i, node in enumerate(nodes)}
    order = Order(draw, stages, draw.choice([1, 2, 4]))
    before = order.text()
    how = order.damage(draw) if is_damaged else "no damage"
    base = f"{work}/{'damaged' if is_damaged else 'case'}{number}"
    loss = {"kind": "softmax_cross_entropy", "labels": "labels", "axis": -1,
            "of": OUTPUT.get(name, "head")}
    files = {"json": json.dumps({"loss": loss, "accumulation": order.count, "clip_norm": 0.5,
                                 "optimizer": {"kind": "adamw", "lr": 0.001}}),
             "hints.json": json.dumps({"stages": places, "groups": order.group}),
             "csv": order.text()}
    for ending, text in files.items():
        with open(f"{base}.{ending}", "w") as file:
            file.write(text)
    done = subprocess.run(
        [command, "verify", model, "--train", f"{base}.json", "--hints", f"{base}.hints.json",
         "--schedule", f"{base}.csv", "--steps", "2", "--f64", "--rtol", "1e-9", "--atol",
         "1e-9"], capture_output=True, text=True, timeout=300)
    told = f"{name} {stages} stages {how} {files['hints.json']}\n{before}{done.stderr[-300:]}"
    runs = order.can_run()
    if runs:
        isRight = done.returncode == 0 and "checked: equal" in done.stdout
    else:
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        isRight = done.returncode == 1 and len(errors) == 1
    for ending in files:
        os.remove(f"{base}.{ending}")
    return (None if isRight else told), runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--damaged", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as work, \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for name, write in MODELS.items():
            write(f"{work}/{name}.onnx")
        nodes = {name: nodes_of(arguments.partita, work, name) for name in MODELS}
        for sweep, count, is_damaged in (("pipelines-random", arguments.cases, False),
                                         ("pipelines-damaged", arguments.damaged, True)):
            numbers = tier.sample(sweep, range(count))
            runs = [pool.submit(case, arguments.partita, work, nodes, number,
                                arguments.seed, is_damaged) for number in numbers]
            able = 0
            for run in runs:
                message, could_run = run.result()
                able += could_run
                if message:
                    wrong += 1
                    print(f"WRONG {message}", flush=True)
            print(f"{sweep}: {len(runs)} cases, {able} that can run and are equal, "
                  f"{len(runs) - able} refused", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
