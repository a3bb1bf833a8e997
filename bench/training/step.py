#!/usr/bin/env python3
"""Seconds and memory of one training step on one rank with one thread, against PyTorch with
one thread: eager, and torch.compile where it works. Processes alternate.

usage: step.py PARTITA [MODEL...] [--rounds N] [--steps N] [--no-compile] [--channels-last]

Run with a Python that has torch 2.13. Models: resnet18 (16 pictures of 3x224x224), gpt2 (small, 2
x 128 tokens); random weights, SGD with momentum. Prints the median of each, ratios, and the peak of
resident memory of the processes. A step of ours is what `partita run` times as a request.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = ("resnet18", "gpt2")
RATE, MOMENTUM = 1e-3, 0.9


def make(name):
    """A module, its input and its labels; `resnet18-64` has pictures of 3x64x64."""
    import torch
    sys.path.insert(0, os.path.join(ROOT, "test", "Grad"))
    import torch_models
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if name.startswith("resnet18"):
        side = 64 if name.endswith("-64") else 224
        module, x = torch_models.ResNet(64, 1000), torch.randn(16, 3, side, side)
        return module.train(), x, torch.randint(0, 1000, (16,))
    module = torch_models.Gpt(50257, 128, 768, 12, 12)
    tokens = torch.randint(0, 50257, (2, 129))
    return module.train(), tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def specification(labels, optimizer="sgd", rate=RATE):
    """The training file of a model whose labels are these."""
    loss = {"kind": "softmax_cross_entropy", "of": "output", "labels": "labels"}
    if labels.dim() > 1:
        loss["axis"] = -1
    kind = {"kind": optimizer, "lr": rate}
    return {"loss": loss,
            "optimizer": dict(kind, momentum=MOMENTUM) if optimizer == "sgd" else kind}


def export(name, folder, batches=4):
    """The model, the specification and a file of data that has the batch so many times."""
    import numpy as np
    import torch
    warnings.filterwarnings("ignore")
    module, x, labels = make(name)
    torch.onnx.export(module, (x,), os.path.join(folder, "model.onnx"), input_names=["x"],
                      output_names=["output"], training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False, opset_version=17, dynamo=False)
    with open(os.path.join(folder, "spec.json"), "w") as file:
        json.dump(specification(labels), file)
    np.savez(os.path.join(folder, "data.npz"), x=np.concatenate([x.numpy()] * batches),
             labels=np.concatenate([labels.numpy()] * batches))


def torch_steps(name, how, steps, channels_last):
    """Seconds of each step, one per line."""
    import torch
    warnings.filterwarnings("ignore")
    module, x, labels = make(name)
    if channels_last and x.dim() == 4:
        module = module.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(module.parameters(), RATE, momentum=MOMENTUM)
    forward = torch.compile(module) if how == "compiled" else module
    for _ in range(steps + 1):
        begin = time.perf_counter()
        optimizer.zero_grad()
        output = forward(x)
        torch.nn.functional.cross_entropy(output.flatten(0, -2), labels.flatten()).backward()
        optimizer.step()
        print(time.perf_counter() - begin, flush=True)


def run(command):
    """What it prints, and its peak of resident memory in MiB."""
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, env=environment)
    output = child.stdout.read()
    error = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise RuntimeError(error.strip()[-500:])
    return output, usage.ru_maxrss / 1024


def measure(partita, name, arguments):
    seconds, peaks, failed = {}, {}, {}

    def add(who, times, peak):
        seconds.setdefault(who, []).extend(times)
        peaks[who] = max(peaks.get(who, 0), peak)

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "--export", name, folder], check=True,
                       stdout=subprocess.DEVNULL)
        bundle = os.path.join(folder, "bundle")
        subprocess.run([partita, "compile", os.path.join(folder, "model.onnx"), "-o", bundle,
                        "--train", os.path.join(folder, "spec.json"), "--mesh", "dp=1"],
                       check=True, stdout=subprocess.DEVNULL)
        steps = str(arguments.steps)
        for _ in range(arguments.rounds):
            output, peak = run([partita, "run", bundle, "--data",
                                os.path.join(folder, "data.npz"), "--steps",
                                str(arguments.steps + 1), "--threads", "1", "--timeout", "600", "--json"])
            add("partita", json.loads(output)["request_seconds"][1:], peak)
            for how in ("eager", "compiled"):
                if how in failed or (how == "compiled" and arguments.no_compile):
                    continue
                command = [sys.executable, __file__, "--torch", name, how, steps]
                try:
                    output, peak = run(command +
                                       (["--channels-last"] if arguments.channels_last else []))
                except RuntimeError as error:
                    failed[how] = re.sub(r"\s+", " ", str(error))[-120:]
                    continue
                add(how, [float(line) for line in output.split()][1:], peak)
    ours = statistics.median(seconds["partita"])
    print(f"{name}: partita {ours:.3f} s, {peaks['partita']:.0f} MiB", flush=True)
    for how in ("eager", "compiled"):
        if how in failed:
            print(f"  {how}: {failed[how]}")
        elif how in seconds:
            theirs = statistics.median(seconds[how])
            print(f"  {how} {theirs:.3f} s, {peaks[how]:.0f} MiB: ratio {ours / theirs:.2f}, "
                  f"of memory {peaks['partita'] / peaks[how]:.2f}", flush=True)


def main():
    if sys.argv[1:2] == ["--export"]:
        return export(*sys.argv[2:4])
    if sys.argv[1:2] == ["--torch"]:
        return torch_steps(sys.argv[2], sys.argv[3], int(sys.argv[4]),
                           "--channels-last" in sys.argv)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("partita")
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--channels-last", action="store_true",
                        help="of PyTorch's images; ours choose by themselves")
    arguments = parser.parse_args()
    for name in arguments.models:
        if name not in MODELS:
            parser.error(f"no model '{name}': {', '.join(MODELS)}")
        measure(arguments.partita, name, arguments)


if __name__ == "__main__":
    sys.exit(main())
