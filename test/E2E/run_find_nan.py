#!/usr/bin/env python3
"""Runs that name the node which made a NaN or an infinity, and logs of each rank.

usage: run_find_nan.py PARTITA PARTITA_RUN [--seed S]

A node that makes such numbers of finite ones is planted behind a node of a small model: in a
training step or an inference, on one rank or several, as a whole kernel or call and inside of
one. `run --find-nan` has to name it. A run without such numbers ends as ever, whatever masks
hold; a weight or an input that is not finite is named with the node that reads it first.
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

import tier
import training_models

ROWS, PLANTED = 48, 50
PLANTS = ("root", "overflow", "quotient", "exponential")
PLACES = {  # of each model the nodes behind which one is planted
    "mlp": ("fc1", "act", "fc2"),
    "convolutional": ("conv1", "bn1", "relu1", "pool", "conv2", "relu2", "mean", "fc"),
    "transformer": ("place", "ln_1", "q.add", "k", "v.heads", "scores", "masked", "shares",
                    "attend", "residual1", "up.add", "gate", "silu"),
}
#: Inference has conv2 with relu2 behind it in one call of the engine, which gives 0 for a NaN.
DROPPED = ("conv1", "bn1", "relu1", "pool")
PLANS = {
    "one": [],
    "dp": ["--mesh", "dp=2", "--mode", "data-parallel"],
    "auto": ["--mesh", "tp=2"],
    "stages": ["--stages", "2", "--micro-batches", "2"],
}


class Planter(training_models.Writer):
    """Writes a model with one node more behind the node `place`; `scale` are small numbers
    that keep the others finite."""

    place = plant = None

    def op(self, kind, inputs, name, outputs=1, **attributes):
        result = super().op(kind, inputs, name, outputs, **attributes)
        if name != Planter.place:
            return result
        const = lambda value: self.weight(f"plant.{len(self.weights)}", value=value)
        if Planter.plant == "root":
            below = super().op("Sub", [result, const(1e4)], "below")
            return super().op("Sqrt", [below], "plant")
        if Planter.plant == "overflow":
            large = super().op("Add", [result, const(1e4)], "large")
            return super().op("Mul", [large, const(3e38)], "plant")
        if Planter.plant == "quotient":
            same = super().op("Sub", [result, result], "same")
            return super().op("Div", [same, same], "plant")
        above = super().op("Add", [result, const(1e4)], "above")
        return super().op("Exp", [above], "plant")


class Work:
    def __init__(self, compiler, run, folder):
        self.partita, self.command, self.folder = compiler, run, folder

    def call(self, words, status=0):
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        if done.returncode != status:
            raise RuntimeError(f"{words} ended with {done.returncode}: {done.stdout}"
                               f"{done.stderr}")
        return done.stdout + done.stderr

    def compile(self, model, name, arguments=()):
        self.call([self.partita, "compile", f"{self.folder}/{model}.onnx", "-o",
                   f"{self.folder}/{name}", *arguments])
        return f"{self.folder}/{name}"

    def run(self, bundle, *words, status=0):
        return self.call([self.command, bundle, *words], status)


def spec_of(path, output, frozen=(), **more):
    with open(path, "w") as file:
        json.dump({"loss": {"kind": "softmax_cross_entropy", "of": output, "labels": "labels",
                            "axis": -1},
                   "parameters": {"freeze": list(frozen)},
                   "optimizer": {"kind": "sgd", "lr": 0.01}, **more}, file)


def write_planted(work, name, model, place, plant):
    """The model with the node planted, and its data."""
    Planter.place, Planter.plant = place, plant
    saved, training_models.Writer = training_models.Writer, Planter
    try:
        made = getattr(training_models, model)(f"{work.folder}/{name}.onnx")
    finally:
        training_models.Writer = saved
    inputs, labels, classes = made[:3]
    draw = np.random.default_rng(4)
    data = {key: np.concatenate([value(draw) for _ in range(2)]) for key, value in inputs.items()}
    data["labels"] = draw.integers(0, classes, (2 * labels[0], *labels[1:]))
    np.savez(f"{work.folder}/{name}.npz", **data)
    graph = onnx.load(f"{work.folder}/{name}.onnx").graph
    frozen = [it.name for it in graph.initializer if it.name.startswith("plant.")]
    return graph.output[0].name, frozen


def expect(pattern, text):
    if not re.search(pattern, text, re.MULTILINE):
        raise RuntimeError(f"expected {pattern!r}, got {text!r}")


def cases(seed, count):
    """Draws of a model, a place, what is planted, a plan and a transport."""
    draw = random.Random(seed)
    result = []
    while len(result) < count:
        trains, plan = draw.choice([True, False]), draw.choice(["one", "dp", "auto", "stages"])
        if trains and plan == "stages":
            continue  # a batch of the model is a micro-batch's there
        model = draw.choice(sorted(PLACES))
        place = draw.choice(PLACES[model])
        if not trains and place in DROPPED:
            continue
        plant = draw.choice(PLANTS)
        if not trains and (place, plant) == ("conv2", "overflow"):
            continue  # import makes the product part of the convolution's weights
        case = (model, place, plant, plan, trains,
                draw.choice(["local", "mpi"]), draw.choice([1, 1, 2]))
        if case not in result:
            result.append(case)
    return result


def check_planted(work, number, case):
    model, place, plant, plan, trains, transport, accumulation = case
    name = f"planted-{number}"
    output, frozen = write_planted(work, name, model, place, plant)
    arguments = list(PLANS[plan])
    words = ["--data", f"{work.folder}/{name}.npz", "--steps", "1", "--find-nan",
             "--transport", transport]
    if trains:
        spec_of(f"{work.folder}/{name}.json", output, frozen, accumulation=accumulation)
        arguments += ["--train", f"{work.folder}/{name}.json"]
    else:
        data = dict(np.load(f"{work.folder}/{name}.npz"))
        data.pop("labels")
        np.savez(f"{work.folder}/{name}.npz", **data)
    bundle = work.compile(name, name, arguments)
    text = work.run(bundle, *words, status=1)
    expect(r"^error: step 1, rank \d+, node 'plant' \([a-z-]+\): it made .*, of finite operands$"
           r"|, of finite operands, or in the same kernel (.*, )?'plant'", text)
    return "in the same" not in text


def write_simple(folder):
    """A root of a product, and a mask of infinities that a softmax takes."""
    w = training_models.Writer(1)
    x = w.input("x", [8, 6])
    root = w.op("Sqrt", [w.op("Mul", [x, w.weight("ones", value=np.full(6, 2.0))], "double")],
                "root")
    y = w.op("MatMul", [root, w.weight("fc.weight", 6, 6)], "fc")
    y = w.op("Add", [y, w.weight("mask", value=np.triu(np.full((8, 6), -np.inf), 1))], "masked")
    w.save(f"{folder}/simple.onnx", w.op("Softmax", [y], "shares"), [8, 6])


def check_simple(work):
    write_simple(work.folder)
    bundle = work.compile("simple", "simple", PLANS["dp"])
    x = np.abs(np.random.default_rng(2).normal(1, 0.2, (8, 6))).astype(np.float32)

    def run(name, data, *words, status=0):
        np.save(f"{work.folder}/{name}.npy", data)
        return work.run(bundle, "--input", f"x={work.folder}/{name}.npy", *words, status=status)

    for transport in ("local", "mpi"):
        # Infinities of a mask are as they should be.
        out = [f"{work.folder}/out-{transport}-{k}" for k in range(2)]
        run("good", x, "--find-nan", "--transport", transport, "--outputs-dir", out[0])
        run("good", x, "--transport", transport, "--outputs-dir", out[1])
        if open(f"{out[0]}/output_0.pb", "rb").read() != open(f"{out[1]}/output_0.pb",
                                                              "rb").read():
            raise RuntimeError("looking has changed an output")
        negative = x.copy()
        negative[5, 1] = negative[6, 2] = -1
        text = run("negative", negative, "--find-nan", "--transport", transport, status=1)
        expect(r"^error: request 0, rank 1, node 'root' \([a-z]+\): it made 2 NaN among 24 "
               "elements, of finite operands$", text)
        bad = x.copy()
        bad[1, 1] = np.nan
        text = run("bad", bad, "--find-nan", "--transport", transport, status=1)
        expect(r"^error: request 0, rank 0, node '\w+' \([a-z]+\): it is the first that reads "
               "input 'x', which has 1 NaN among 24 elements$", text)
    # Nobody looks if the option is not given.
    run("bad", bad)
    print("a mask, a row of one rank, an input", flush=True)


def check_weight(work):
    w = training_models.Writer(1)
    x = w.input("x", [8, 6])
    value = np.ones((6, 4))
    value[2, 3] = np.nan
    w.save(f"{work.folder}/weight.onnx",
           w.op("MatMul", [w.op("Relu", [x], "act"), w.weight("fc.weight", value=value)], "fc"),
           [8, 4])
    bundle = work.compile("weight", "weight")
    np.save(f"{work.folder}/w.npy", np.ones((8, 6), np.float32))
    text = work.run(bundle, "--input", f"x={work.folder}/w.npy", "--find-nan", status=1)
    expect(r"node 'fc' \([a-z]+\): it is the first that reads a constant of the model, which has "
           "1 NaN among 24 elements$", text)
    print("a weight", flush=True)


def lines_of(path):
    with open(path) as file:
        lines = file.read().splitlines()
    for line in lines:
        expect(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line)
    return [line.split(" ", 1)[1] for line in lines]


def check_logs(work):
    """A file per rank and one of the supervisor, appended to by each run."""
    Planter.place = None
    training_models.mlp(f"{work.folder}/mlp.onnx")
    spec_of(f"{work.folder}/mlp.json", "fc2")
    draw = np.random.default_rng(3)
    np.savez(f"{work.folder}/mlp.npz", x=draw.normal(0, 1, (ROWS, 12)).astype(np.float32),
             labels=draw.integers(0, 8, ROWS))
    bundle = work.compile("mlp", "logged", [*PLANS["dp"], "--train", f"{work.folder}/mlp.json"])
    for transport in ("local", "mpi"):
        logs = f"{work.folder}/logs-{transport}"
        words = ["--data", f"{work.folder}/mlp.npz", "--transport", transport, "--log-dir", logs]
        printed = work.run(bundle, *words, "--steps", "2").splitlines()
        if sorted(os.listdir(logs)) != ["rank-0.log", "rank-1.log", "supervisor.log"]:
            raise RuntimeError(f"{logs} has {os.listdir(logs)}")
        first, second = lines_of(f"{logs}/rank-0.log"), lines_of(f"{logs}/rank-1.log")
        for lines in first, second:
            expect(rf"^starts: pid \d+ on '.+', bundle '{bundle}', transport {transport}$", lines[0])
            if lines[1] != "is loaded" or lines[-1] != "ends: done":
                raise RuntimeError(f"a log has {lines}")
        if not set(printed) <= set(first) or set(printed) & set(second):
            raise RuntimeError(f"{printed} are not in the log of rank 0 alone: {first}, {second}")
        if lines_of(f"{logs}/supervisor.log")[-1] != "ends: done":
            raise RuntimeError("the supervisor does not say how the run ended")
        os.rename(f"{logs}/rank-1.log", f"{logs}/kept")
        os.mkdir(f"{logs}/rank-1.log")
        text = work.run(bundle, *words, status=1)
        expect(rf"^error: cannot write '{logs}/rank-1.log': Is a directory$", text)
        said = lines_of(f"{logs}/supervisor.log")
        if said.count("ends: done") != 1 or not said[-1].startswith("ends: error: cannot write"):
            raise RuntimeError(f"the supervisor says {said}")
    text = work.run(bundle, "--data", f"{work.folder}/mlp.npz", "--log-dir",
                    f"{work.folder}/mlp.npz", status=1)
    expect(rf"^error: cannot create the folder '{work.folder}/mlp.npz': File exists$", text)
    print("logs of ranks", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("compiler")
    parser.add_argument("run")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partita-find-nan-") as folder:
        work = Work(options.compiler, options.run, folder)
        check_logs(work)
        check_simple(work)
        check_weight(work)
        # The quick tier has both inference and training.
        planted = tier.sample("find-nan", cases(options.seed, PLANTED),
                              kind=lambda case: case[4])
        failed = exact = 0
        for number, case in enumerate(planted):
            try:
                exact += check_planted(work, number, case)
            except RuntimeError as error:
                failed += 1
                print(f"{case}: {error}", flush=True)
        print(f"{len(planted) - failed} of {len(planted)} planted nodes are named, {exact} alone",
              flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
