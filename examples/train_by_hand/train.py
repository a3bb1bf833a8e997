#!/usr/bin/env python3
"""Trains a network on pictures of digits on eight ranks, by a graph that is written per rank.

usage: train.py [FOLDER] [--transport local] [--partita PATH] [--torch] [--check]

MindSpore's tutorial of manual parallelism, with three dense layers: each rank takes its rows
of the batch, and an AllReduce adds the losses up. No gradient is reduced by hand: weights are
the same on all ranks and meet rows that differ, so theirs are sums over ranks
(docs/manual.md). The pictures are those of scikit-learn's package, 1,797 handwritten digits,
enlarged to 28 x 28. Every fifth is held out.

With --torch PyTorch exports the network (from_torch.py); else its nodes are written one by one.
FOLDER (default: by-hand) gets the models, the data, the bundle, the log and the trained model.
With --check less than 97% of the held-out pictures is an error, and weights that after five
steps in f64 differ by more than 1e-9 from those of the same network on one rank.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RANKS, BATCH, EPOCHS, SEED = 8, 64, 20, 1
LAYERS = (784, 512, 512, 10)
SPEC = {"loss": {"output": "loss"}, "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9}}


def begin(dtype):
    """Weights by name, as training begins."""
    draw = np.random.default_rng(SEED)
    weights = {}
    for i, (inputs, outputs) in enumerate(zip(LAYERS, LAYERS[1:])):
        w = draw.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)
        weights |= {f"w{i}": w.astype(dtype), f"b{i}": np.zeros(outputs, dtype)}
    return weights


def network(path, by_hand, dtype):
    """Writes the network with its loss: per rank, or of the whole batch."""
    kind = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}[dtype]
    nodes, weights = [], [numpy_helper.from_array(value, name)
                          for name, value in begin(dtype).items()]
    weights.append(numpy_helper.from_array(np.array(1 / BATCH, dtype), "share"))

    def node(op, inputs, domain="", /, **attributes):
        nodes.append(helper.make_node(op, inputs, [f"{op}_{len(nodes)}"],
                                      f"{op}_{len(nodes)}", domain=domain, **attributes))
        return nodes[-1].output[0]

    x, labels = "images", "labels"
    if by_hand:
        x = node("ToLocal", [x], "partita", layout=f"[{{{BATCH}: dp}}, {{784}}]")
        labels = node("ToLocal", [labels], "partita", layout=f"[{{{BATCH}: dp}}]")
    for i in range(len(LAYERS) - 1):
        x = node("Add", [node("MatMul", [x, f"w{i}"]), f"b{i}"])
        x = node("Relu", [x]) if i + 2 < len(LAYERS) else x
    # Cross-entropy of the rank's rows: minus the logarithm of what the label has.
    weights.append(numpy_helper.from_array(np.array([1]), "column"))
    place = node("Unsqueeze", [labels, "column"])
    chances = node("GatherElements", [node("LogSoftmax", [x], axis=1), place], axis=1)
    loss = node("Neg", [node("ReduceSum", [chances], keepdims=0)])
    if by_hand:
        loss = node("AllReduce", [loss], "partita", op="sum")
    nodes.append(helper.make_node("Mul", [loss, "share"], ["loss"], "loss"))
    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("images", kind, [BATCH, 784]),
         helper.make_tensor_value_info("labels", TensorProto.INT64, [BATCH])],
        [helper.make_tensor_value_info("loss", kind, [])], weights)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("partita", 1)]), path)


def write_data(folder):
    """Rows for training; returns those that are held out."""
    from sklearn.datasets import load_digits
    digits = load_digits()
    places = np.arange(28) * 8 // 28
    images = (digits.images / 16)[:, places][:, :, places].reshape(-1, 784)
    labels = digits.target.astype(np.int64)
    held = np.arange(len(labels)) % 5 == 0
    for name, dtype in (("train", np.float32), ("train64", np.float64)):
        np.savez(folder / f"{name}.npz", images=images[~held].astype(dtype),
                 labels=labels[~held])
    return images[held], labels[held]


def run(*command):
    print("$", *command, flush=True)
    done = subprocess.run([str(word) for word in command])
    if done.returncode:
        sys.exit(done.returncode)


def train(arguments, name, by_hand, dtype, *how):
    """The weights behind the training, by name."""
    folder, model = arguments.folder, arguments.folder / f"{name}.onnx"
    if arguments.torch:
        import from_torch
        from_torch.export(str(model), begin(dtype), BATCH, RANKS if by_hand else 1)
    else:
        network(model, by_hand, dtype)
    (folder / "spec.json").write_text(json.dumps(
        {**SPEC, "parameters": {"train": ["w*", "b*"]}}))
    ranks = ["--mode", "manual", "--mesh", f"dp={RANKS}"] if by_hand else []
    run(arguments.partita, "compile", model, "-o", folder / f"{name}.bundle", "--force",
        "--train", folder / "spec.json", *ranks)
    data = "train64.npz" if dtype == np.float64 else "train.npz"
    run(arguments.partita, "run", folder / f"{name}.bundle", "--data", folder / data,
        "--seed", SEED, "--transport", arguments.transport if by_hand else "local",
        "--log", folder / f"{name}.jsonl", "--export", folder / f"{name}-trained.onnx", *how)
    trained = onnx.load(folder / f"{name}-trained.onnx")
    return {w.name: numpy_helper.to_array(w) for w in trained.graph.initializer}


def logits(weights, x):
    for i in range(len(LAYERS) - 1):
        x = x @ weights[f"w{i}"] + weights[f"b{i}"]
        x = np.maximum(x, 0) if i + 2 < len(LAYERS) else x
    return x


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default="by-hand", type=pathlib.Path)
    parser.add_argument("--transport", default="local")
    parser.add_argument("--partita", default="partita")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    images, labels = write_data(arguments.folder)
    weights = train(arguments, "by-hand", True, np.float32, "--epochs", EPOCHS)
    share = float((logits(weights, images).argmax(1) == labels).mean())
    print(f"{share:.2%} of the held-out pictures")
    if not arguments.check:
        return
    if share < 0.97:
        sys.exit("error: expected at least 97%")
    ours = train(arguments, "by-hand-f64", True, np.float64, "--steps", 5)
    one = train(arguments, "one-rank-f64", False, np.float64, "--steps", 5)
    before = begin(np.float64)
    error = max(float(np.abs(ours[name] - one[name]).max()) for name in before)
    moved = max(float(np.abs(before[name] - one[name]).max()) for name in before)
    print(f"after 5 steps in f64 weights differ from one rank's by at most {error:.1e}, "
          f"and from what they were by up to {moved:.1e}")
    if not error <= 1e-9 or moved < 1e-3:
        sys.exit("error: expected at most 1e-9, of weights that train")


if __name__ == "__main__":
    main()
