#!/usr/bin/env python3
"""A model as a pipeline of stages: how many samples a second, beside one stage.

usage: throughput.py [--model resnet50|gpt2-small] [--stages 2] [--micro-batches 8]
                     [--batch 8] [--rounds 5] [--small] [--partita PATH] [--check]

The one stage is one rank of one thread that runs the same slices of the batch one after the
other. Both run in turn, so that what else the machine does hits both. --small takes a narrow
form of the model; --check compares the two results, and those with ONNX Runtime's.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench", "models"),
                os.path.join(ROOT, "test", "E2E", "models")]


def with_any_batch(model, batch):
    """The model with a symbolic batch, where its file has a fixed one: the first dim of
    inputs and outputs, and of the shapes that Reshape nodes are given."""
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        values = (numpy_helper.to_array(tensor).copy() if tensor.name in shapes else
                  np.zeros(0, np.int64))
        if values.size > 1 and values[0] == batch and -1 not in values:
            values[0] = -1
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model


def resnet50(batch, small):
    from resnet import ResNet
    sizes = dict(channels=8, size=64, classes=10) if small else {}
    return ResNet(50, batch=batch, **sizes)


def gpt2_small(batch, small):
    from build_gpt2 import Gpt2
    sizes = (dict(layers=4, length=32) if small else
             dict(layers=12, length=128, hidden=768, heads=12, vocabulary=50257))
    return Gpt2(True, batch=batch, **sizes)


MODELS = {"resnet50": resnet50, "gpt2-small": gpt2_small}


def call(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


class Bundle:
    """One way to run the model, and the seconds of its requests."""

    def __init__(self, partita, model, out, batch, more):
        self.partita, self.out, self.seconds = partita, out, []
        call([partita, "compile", model, "-o", out, "--shape", f"batch={batch}",
              "--threads", "1", *more])

    def run(self, inputs, outputs, repeat):
        text = call([self.partita, "run", self.out, "--repeat", str(repeat + 1),
                     "--outputs-dir", outputs,
                     *[text for name, path in inputs.items()
                       for text in ("--input", f"{name}={path}")]])
        times = re.findall(r"request \d+: ([\d.]+) s", text)
        self.seconds += [float(t) for t in times[1:]]  # the first touches all memory
        return numpy_helper.to_array(onnx.load_tensor(os.path.join(outputs,
                                                                   "output_0.pb")))


def check(model, inputs, one, many, micro_batches):
    """The whole batch of the pipeline, and its last slice alone, are ONNX Runtime's."""
    import onnxruntime
    session = onnxruntime.InferenceSession(model)
    expected = session.run(None, inputs)[0]
    last = expected[-(len(expected) // micro_batches):]
    for what, actual, wanted in (("the pipeline", many, expected), ("one stage", one, last)):
        if not np.allclose(actual, wanted, rtol=1e-4, atol=1e-5):
            sys.exit(f"{what} differs from ONNX Runtime by "
                     f"{np.abs(actual - wanted).max():.3g}")
    print("equal to ONNX Runtime")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--partita", default=shutil.which("partita") or os.path.join(
        ROOT, "build", "dev", "bin", "partita"))
    arguments = parser.parse_args()
    if arguments.batch % arguments.micro_batches:
        parser.error("--batch does not divide by --micro-batches")
    with tempfile.TemporaryDirectory() as work:
        built = MODELS[arguments.model](arguments.batch, arguments.small)
        model = os.path.join(work, "model.onnx")
        onnx.save(with_any_batch(built.build(), arguments.batch), model)
        inputs = built.sample_inputs()
        part = arguments.batch // arguments.micro_batches
        files, slices = {}, {}
        for name, value in inputs.items():
            files[name] = os.path.join(work, f"{name}.npy")
            slices[name] = os.path.join(work, f"{name}.slice.npy")
            np.save(files[name], value)
            np.save(slices[name], value[-part:])
        one = Bundle(arguments.partita, model, os.path.join(work, "one"), part, [])
        many = Bundle(arguments.partita, model, os.path.join(work, "many"),
                      arguments.batch, ["--stages", str(arguments.stages),
                                        "--micro-batches", str(arguments.micro_batches)])
        outputs = os.path.join(work, "out")
        for _ in range(arguments.rounds):
            alone = one.run(slices, outputs, arguments.micro_batches)
            piped = many.run(files, outputs, 2)
        if arguments.check:
            check(model, inputs, alone, piped, arguments.micro_batches)
        single = part / statistics.median(one.seconds)
        pipeline = arguments.batch / statistics.median(many.seconds)
        print(f"{arguments.model}: one stage {single:.2f} samples/s, {arguments.stages} "
              f"stages and {arguments.micro_batches} micro-batches {pipeline:.2f} "
              f"samples/s: {pipeline / single:.2f} ×")


if __name__ == "__main__":
    main()
