#!/usr/bin/env python3
"""Trains a small convolutional network on pictures of digits, on four ranks.

usage: train.py [FOLDER] [--mesh dp=4] [--transport local] [--partita PATH] [--check]

digits.onnx is the network as PyTorch exports it (network.py), with its weights at the
beginning. The pictures are those of scikit-learn's package: 1,797 handwritten digits of
8 x 8. Every fifth is held out. FOLDER (default: digits) gets the data, the bundle, the log, the
trained model, and a plot of the losses; with --check less than 97% of the held-out pictures
is an error.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
BATCH, EPOCHS, SEED = 64, 30, 1


def accuracy(logits, labels):
    return float((logits.argmax(1) == labels).mean())


def write_data(folder):
    from sklearn.datasets import load_digits
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    held = np.arange(len(labels)) % 5 == 0
    for name, rows in (("train", ~held), ("held-out", held)):
        np.savez(folder / f"{name}.npz", images=images[rows], labels=labels[rows])


def run(*command):
    print("$", *command, flush=True)
    done = subprocess.run(command)
    if done.returncode:
        sys.exit(done.returncode)


def read_log(path):
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


def plot(folder):
    """Losses by step; those of PyTorch too if network.py has trained there."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, label, style in (("torch", "PyTorch", dict(color="tab:orange", linewidth=3)),
                               ("metrics", "Partita", dict(color="tab:blue", linewidth=1))):
        if (folder / f"{name}.jsonl").exists():
            losses = read_log(folder / f"{name}.jsonl")
            axes.semilogy(range(1, len(losses) + 1), losses, label=label, **style)
    axes.set(xlabel="step", ylabel="cross-entropy of the batch", xlim=(1, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(folder / "loss.png", dpi=120)


def held_out_accuracy(folder):
    import onnxruntime
    held = np.load(folder / "held-out.npz")
    session = onnxruntime.InferenceSession(folder / "trained.onnx")
    return accuracy(session.run(["logits"], {"images": held["images"]})[0], held["labels"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default="digits", type=pathlib.Path)
    parser.add_argument("--mesh", default="dp=4")
    parser.add_argument("--transport", default="local")
    parser.add_argument("--partita", default="partita")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_data(folder)
    run(arguments.partita, "compile", HERE / "digits.onnx", "-o", folder / "bundle", "--force",
        "--train", HERE / "spec.json", "--mesh", arguments.mesh, "--shape", f"batch={BATCH}")
    run(arguments.partita, "run", folder / "bundle", "--data", folder / "train.npz",
        "--epochs", str(EPOCHS), "--seed", str(SEED), "--transport", arguments.transport,
        "--log", folder / "metrics.jsonl", "--export", folder / "trained.onnx")
    plot(folder)
    share = held_out_accuracy(folder)
    print(f"{share:.2%} of the held-out pictures; losses: {folder / 'loss.png'}")
    if arguments.check and share < 0.97:
        sys.exit("error: expected at least 97%")


if __name__ == "__main__":
    main()
