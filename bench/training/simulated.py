#!/usr/bin/env python3
"""Measured steps on two ranks of MPI against what is predicted of them.

usage: simulated.py PARTITA [--steps N] [--turns N] [--cluster FILE] [MODEL…]

Run by hand, on an idle machine. Steps of six models, of one thread a rank, AdamW, are compiled with
--mesh dp=2. Measured: the median step of `partita run --transport mpi`, without the first ones;
the median of --turns runs. Against it stand
  timeline     `partita report --trace` of a run of its own: the tasks of a rank as they were
               measured, each call beside them (lib/Comm/CallTimeline); the slower rank
  certificate  the plan's request, priced for --cluster, which `mpirun -n 2 partita calibrate`
               writes
Models: mlp, resnet18 (pictures of 64²), gpt2, unet, bert, llama (small ones of their kinds).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "models"))
sys.path.insert(0, os.path.join(ROOT, "test", "E2E"))
import specs  # noqa: E402
import training_models  # noqa: E402
from bert import Bert  # noqa: E402
from llama import Llama  # noqa: E402
from resnet import ResNet  # noqa: E402

WARM = 3
UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6}


def mlp(batch=256, width=1024, layers=4):
    random = numpy.random.default_rng(1)
    nodes, weights, x = [], [], "x"
    for k in range(layers):
        gain = (2 / width)**0.5
        table = random.normal(0, gain, (width, width)).astype(numpy.float32)
        weights.append(numpy_helper.from_array(table, f"fc{k}.weight"))
        nodes += [helper.make_node("MatMul", [x, f"fc{k}.weight"], [f"p{k}"], f"fc{k}"),
                  helper.make_node("Relu", [f"p{k}"], [f"r{k}"], f"relu{k}")]
        x = f"r{k}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, width])
            for name in ("x", x)]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def unet():
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        training_models.unet(file.name, 64, 32)
        return onnx.load(file.name)


MODELS = {
    "mlp": mlp,
    "resnet18": lambda: ResNet(18, 64, 1, 64, 1000, 16).build(),
    "gpt2": lambda: specs.Gpt2(True, 16, 64, hidden=256, heads=4, layers=4,
                               vocabulary=2003, tied=False).build(),
    "unet": unet,
    "bert": lambda: Bert(256, 8, 4, 2003, 16, 64).build(),
    "llama": lambda: Llama(256, 8, 2, 688, 4, 2003, 16, 64).build(),
}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout


def shape_of(value):
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


class Step:
    """The step of a model as a bundle, with the data of some steps."""

    def __init__(self, partita, work, name, steps, options):
        self.partita, self.work, self.steps = partita, work, steps
        model = MODELS[name]()
        onnx.save(model, f"{work}/model.onnx")
        result = model.graph.output[0]
        *rows, classes = shape_of(result)
        random, data = numpy.random.default_rng(1), {}
        for value in model.graph.input:
            shape = shape_of(value)
            shape[0] *= steps
            floats = value.type.tensor_type.elem_type == TensorProto.FLOAT
            # Takes the first ones of words, both of a mask.
            data[value.name] = (random.normal(0, 1, shape).astype(numpy.float32) if floats
                                else random.integers(0, 2, shape))
        data["labels"] = random.integers(0, classes, [rows[0] * steps, *rows[1:]])
        numpy.savez(f"{work}/rows.npz", **data)
        loss = {"kind": "softmax_cross_entropy", "of": result.name, "labels": "labels"}
        if len(rows) > 1:
            loss["axis"] = -1
        with open(f"{work}/step.json", "w") as file:
            json.dump({"loss": loss, "optimizer": {"kind": "adamw"}}, file)
        run(partita, "compile", f"{work}/model.onnx", "--train", f"{work}/step.json", "-o",
            f"{work}/b", "--force", "--threads", "1", "--mesh", "dp=2", *options)

    def measured(self, *words):
        log = f"{self.work}/log.jsonl"
        run(self.partita, "run", f"{self.work}/b", "--data", f"{self.work}/rows.npz",
            "--steps", str(self.steps), "--transport", "mpi", "--log", log, *words)
        with open(log) as file:
            lines = [json.loads(line) for line in file]
        os.remove(log)
        return statistics.median([it["seconds"] for it in lines if "seconds" in it][WARM:])

    def timeline(self):
        self.measured("--trace", f"{self.work}/t.json")
        text = run(self.partita, "report", f"{self.work}/b", "--trace",
                   f"{self.work}/t.json", "--slower-calls", "0.0001")
        found = re.findall(r"rank \d+ .* \d+ +([\d.]+) (\w+), [\d.]+ \w+ more", text)
        return max(float(number) * UNITS[unit] for number, unit in found)

    def certificate(self):
        with open(f"{self.work}/b/plan.json") as file:
            known = json.load(file)["entries"][0]["certificate"]
        return known.get("request_seconds", known["step_seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("models", nargs="*", metavar="MODEL", default=[])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cluster")
    arguments = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as work:
        cluster = arguments.cluster or f"{work}/cluster.json"
        if not arguments.cluster:
            run("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2",
                arguments.partita, "calibrate", "--output", cluster)
        for name in arguments.models or MODELS:
            step = Step(arguments.partita, work, name, arguments.steps,
                        ["--cluster", cluster])
            turns = [(step.measured(), step.timeline()) for _ in range(arguments.turns)]
            seconds = statistics.median(it[0] for it in turns)
            lines = [f"{name:9} {1e3 * seconds:8.2f} ms"]
            for what, of in (("timeline", statistics.median(it[1] for it in turns)),
                             ("certificate", step.certificate())):
                lines.append(f"{what} {1e3 * of:8.2f} ms ({100 * (of / seconds - 1):+.1f}%)")
            print(", ".join(lines), flush=True)


if __name__ == "__main__":
    main()
