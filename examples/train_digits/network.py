#!/usr/bin/env python3
"""The network of this example in PyTorch, and the same training there.

usage: network.py export            writes digits.onnx
       network.py train FOLDER      trains on FOLDER/train.npz, which train.py has written:
                                    the same weights, batches and optimizer; the losses go
                                    to FOLDER/torch.jsonl, which the plot then shows

Needs torch and onnxscript, which train.py does not.
"""
import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch
from torch import nn

import train

HERE = pathlib.Path(__file__).resolve().parent


class Digits(nn.Module):
    """Pictures of 8 x 8 to ten classes."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(128, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, images):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(images)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def initial():
    torch.manual_seed(0)
    return Digits()


def export():
    batch = torch.export.Dim("batch")
    torch.onnx.export(initial(), (torch.zeros(4, 1, 8, 8),), HERE / "digits.onnx",
                      input_names=["images"], output_names=["logits"], dynamo=True,
                      dynamic_shapes=[{0: batch}], external_data=False)
    forget_places(HERE / "digits.onnx")


def forget_places(path):
    """The exporter notes for every node where in the files of this machine it was made."""
    import onnx
    model = onnx.load(path)
    for part in (*model.graph.node, *model.graph.value_info):
        kept = [entry for entry in part.metadata_props if "stack_trace" not in entry.key]
        del part.metadata_props[:]
        part.metadata_props.extend(kept)
    onnx.save(model, path)


def mix(z):
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 % 2**64
    z = (z ^ z >> 27) * 0x94d049bb133111eb % 2**64
    return z ^ z >> 31


def order(rows, seed, epoch):
    """Of the rows in an epoch, as docs/data.md has it."""
    result, state = list(range(rows)), mix((mix(seed) + epoch) % 2**64)
    for i in reversed(range(1, rows)):
        state = (state + 0x9e3779b97f4a7c15) % 2**64
        j = mix(state) * (i + 1) >> 64
        result[i], result[j] = result[j], result[i]
    return result


def rate(schedule, step):
    """The factor of the learning rate at step 1, 2, …, as docs/training.md has it."""
    warmup, total = schedule["warmup_steps"], schedule["total_steps"]
    if step < warmup:
        return step / warmup
    done = min(1, (step - warmup) / (total - warmup))
    return (1 + math.cos(math.pi * done)) / 2


def fit(folder):
    spec = json.loads((HERE / "spec.json").read_text())
    data = np.load(folder / "train.npz")
    images, labels = (torch.from_numpy(data[name]) for name in ("images", "labels"))
    network = initial()
    given = spec["optimizer"]
    optimizer = torch.optim.AdamW(network.parameters(), lr=given["lr"],
                                  weight_decay=given["weight_decay"])
    per_epoch = len(labels) // train.BATCH
    with open(folder / "torch.jsonl", "w") as log:
        for step in range(train.EPOCHS * per_epoch):
            begin = time.perf_counter()
            if step % per_epoch == 0:
                epoch = order(len(labels), train.SEED, step // per_epoch)
            rows = epoch[step % per_epoch * train.BATCH:][:train.BATCH]
            for group in optimizer.param_groups:
                group["lr"] = given["lr"] * rate(spec["schedule"], step + 1)
            loss = nn.functional.cross_entropy(network(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write(json.dumps({"step": step + 1, "loss": loss.item(),
                                  "seconds": time.perf_counter() - begin}) + "\n")
    held = np.load(folder / "held-out.npz")
    with torch.no_grad():
        logits = network(torch.from_numpy(held["images"])).numpy()
    print(f"PyTorch: {train.accuracy(logits, held['labels']):.2%} of the held-out pictures")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=["export", "train"])
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.action == "train" and not arguments.folder:
        parser.error("train needs a folder")
    export() if arguments.action == "export" else fit(arguments.folder)


if __name__ == "__main__":
    main()
