#!/usr/bin/env python3
"""Training steps against PyTorch: gradients of whole models, losses of 50 steps, optimizers.

usage: against_torch.py PARTITA [--models NAME,…] [--steps 50] [--optimizer NAME] [--export FOLDER]

Run by hand, with a Python that has torch 2.13: continuous integration has none.

Gradients: of one batch, against a run of PyTorch in double, ‖g − g64‖ ≤ 1e-4 (‖g64‖ + floor)
for each parameter; the floor is 1e-3 of the largest gradient per element, times the root of
the number of elements. Parameters whose g64 is below it are named: their gradient is zero in
exact arithmetic (the bias of a key, a bias before a norm).
Losses: of each step, same weights, data and optimizer, within 1e-3 relative of PyTorch's. A
step amplifies rounding (ResNet at a rate of 1e-3 and batch 8 does), so where that is missed the
judge is PyTorch in double: no further from it than three times PyTorch in f32 is.
"""
import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.dirname(os.path.abspath(__file__))]
import partita  # noqa: E402
import torch_models  # noqa: E402

warnings.filterwarnings("ignore")

#: As specifications of training have them.
OPTIMIZERS = {"adamw": {"kind": "adamw", "lr": 1e-3, "weight_decay": 0.01},
              "momentum": {"kind": "sgd", "lr": 1e-3, "momentum": 0.9},
              "sgd": {"kind": "sgd", "lr": 1e-3}}


class Case:
    def __init__(self, name, work):
        self.name, self.work = name, work
        make, self.inputs, self.labels, self.kind, self.axis = torch_models.MODELS[name]
        torch.manual_seed(1)
        self.module = make().train()
        self.path = os.path.join(work, f"{name}.onnx")
        random = np.random.default_rng(0)
        first = {key: torch.from_numpy(draw(random)) for key, draw in self.inputs.items()}
        exported = copy.deepcopy(self.module)
        torch.onnx.export(exported, tuple(first.values()), self.path,
                          input_names=list(first), output_names=["output"],
                          training=torch.onnx.TrainingMode.TRAINING,
                          do_constant_folding=False, opset_version=17, dynamo=False)

    def batches(self, count):
        random = np.random.default_rng(5)
        for _ in range(count):
            yield ({key: draw(random) for key, draw in self.inputs.items()},
                   self.labels(random))

    def loss(self, module, inputs, labels):
        dtype = next(module.parameters()).dtype
        values = [torch.from_numpy(v) for v in inputs.values()]
        output = module(*(v.to(dtype) if v.is_floating_point() else v for v in values))
        labels = torch.from_numpy(labels)
        if self.kind == "bce_with_logits":
            return torch.nn.functional.binary_cross_entropy_with_logits(
                output, labels.to(dtype))
        if output.dim() > 2:
            output = output.flatten(0, 1)
        return torch.nn.functional.cross_entropy(output, labels.flatten())

    def spec(self, optimizer, **more):
        loss = {"kind": self.kind, "of": "output", "labels": "labels"}
        if self.axis is not None:
            loss["axis"] = self.axis
        return {"loss": loss, "optimizer": optimizer, **more}

    def compile(self, command, spec, arguments=()):
        path = os.path.join(self.work, "spec.json")
        bundle = os.path.join(self.work, "bundle")
        with open(path, "w") as file:
            json.dump(spec, file)
        done = subprocess.run([command, "compile", self.path, "-o", bundle, "--train", path,
                               "--force", *arguments], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {done.stderr[:3000]}")
        return partita.Session(bundle)


def gradients(case, command):
    inputs, labels = next(case.batches(1))
    double = copy.deepcopy(case.module).double()
    case.loss(double, inputs, labels).backward()
    single = copy.deepcopy(case.module)
    case.loss(single, inputs, labels).backward()
    exact = {n: p.grad.numpy() for n, p in double.named_parameters() if p.grad is not None}
    theirs = {n: p.grad.numpy() for n, p in single.named_parameters()
              if p.grad is not None}
    with case.compile(command, case.spec({"kind": "sgd", "lr": 0.01, "momentum": 0.9})) as s:
        loss = s.run({**inputs, "labels": labels})["loss"]
        ours = {n: s.read_state(f"{n}.m") for n in exact}
    floor = 1e-3 * max(np.abs(g).max() for g in exact.values())
    worst, worst_theirs, below = 0, 0, []
    for name, g in exact.items():
        noise = floor * np.sqrt(g.size)
        scale = np.linalg.norm(g) + noise
        if np.linalg.norm(g) < noise:
            below.append(name)
        error = np.linalg.norm(ours[name] - g) / scale
        if error > 1e-4:
            print(f"  WRONG {name}: {error:.2e}, |g| {np.linalg.norm(g):.3e}")
        worst = max(worst, error)
        worst_theirs = max(worst_theirs, np.linalg.norm(theirs[name] - g) / scale)
    print(f"{case.name}: {len(exact)} gradients, worst {worst:.1e} (PyTorch in f32 "
          f"{worst_theirs:.1e}); loss {float(loss):.6f}; under the floor: "
          f"{', '.join(below) or 'none'}", flush=True)
    return worst <= 1e-4


def make_optimizer(spec, parameters):
    kind = spec["kind"]
    kwargs = {"lr": spec["lr"], "weight_decay": spec.get("weight_decay", 0)}
    if kind == "sgd":
        return torch.optim.SGD(parameters, momentum=spec.get("momentum", 0),
                               nesterov=spec.get("nesterov", False), **kwargs)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
            "adagrad": torch.optim.Adagrad}[kind](parameters, **kwargs)


def named(optimizer):
    return next((n for n, spec in OPTIMIZERS.items() if spec == optimizer), optimizer["kind"])


def steps(case, command, count, optimizer, arguments=(), **more):
    module = copy.deepcopy(case.module)
    double = copy.deepcopy(case.module).double()
    optimizers = [make_optimizer(optimizer, m.parameters()) for m in (module, double)]
    worst, losses, ours, theirs = 0, [], 0, 0
    with case.compile(command, case.spec(optimizer, **more), arguments) as session:
        for inputs, labels in case.batches(count):
            found = []
            for m, torch_optimizer in zip((module, double), optimizers):
                torch_optimizer.zero_grad()
                loss = case.loss(m, inputs, labels)
                loss.backward()
                if "clip_norm" in more:
                    torch.nn.utils.clip_grad_norm_(m.parameters(), more["clip_norm"])
                torch_optimizer.step()
                found.append(loss.item())
            expected, exact = found
            actual = float(session.run({**inputs, "labels": labels})["loss"])
            losses.append(actual)
            worst = max(worst, abs(actual - expected) / abs(expected))
            ours = max(ours, abs(actual - exact) / abs(exact))
            theirs = max(theirs, abs(expected - exact) / abs(exact))
        far = max(float(np.abs(session.read_state(n) - p.detach().numpy()).max())
                  for n, p in module.named_parameters() if p.grad is not None)
    print(f"{case.name}, {named(optimizer)} {' '.join(arguments)}: {count} steps, loss "
          f"{losses[0]:.4f} to {losses[-1]:.4f}, within {worst:.1e} of "
          f"PyTorch's; from PyTorch in double {ours:.1e}, PyTorch in f32 {theirs:.1e}; weights within {far:.1e}", flush=True)
    return worst <= 1e-3 or ours <= 3 * theirs


def export(folder, names):
    """Models and losses for test/E2E/run_training_f64.py."""
    os.makedirs(folder, exist_ok=True)
    for name in names:
        case = Case(name, folder)
        with open(os.path.join(folder, f"{name}.json"), "w") as file:
            json.dump(case.spec({})["loss"], file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--models", default=",".join(torch_models.MODELS))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--meshes", default="", help="more meshes for the steps: dp=2;tp=2")
    parser.add_argument("--export", help="only write models and losses to this folder")
    arguments = parser.parse_args()
    if arguments.export:
        return export(arguments.export, arguments.models.split(","))
    torch.set_num_threads(1)
    right = True
    with tempfile.TemporaryDirectory() as work:
        for name in arguments.models.split(","):
            case = Case(name, work)
            try:
                right &= gradients(case, arguments.partita)
                optimizer = OPTIMIZERS[arguments.optimizer]
                right &= steps(case, arguments.partita, arguments.steps, optimizer)
                for mesh in filter(None, arguments.meshes.split(";")):
                    right &= steps(case, arguments.partita, arguments.steps, optimizer,
                                   ["--mesh", mesh])
            except RuntimeError as error:
                print(f"FAILED {error}", flush=True)
                right = False
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
