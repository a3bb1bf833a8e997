#!/usr/bin/env python3
"""Training steps under memory limits, and what recompute takes.

usage: memory.py PARTITA [--models gpt2,resnet18,moe] [--steps 5] [--blocks] [--depth]

Run by hand, with a Python that has torch 2.13, onnx and numpy (PARTITA_RUNTIME names the
library). Without options: each model under four limits, of which the last is what it needs at
least; it says where losses differ. --blocks: a GPT-2 of 12 layers with and without recompute of every
layer; what a block keeps, what blocks have at one time, and the head of the loss apart.
--depth: seconds of a compile of 12 and of 96 layers.
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

import numpy as np
import torch
from torch import nn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "test", "Grad")]
import partita  # noqa: E402
import torch_models  # noqa: E402

warnings.filterwarnings("ignore")


class MoeStack(nn.Module):
    """Six layers of experts, each behind a norm and beside the residual stream."""

    def __init__(self, width=64, experts=4, layers=6, classes=6):
        super().__init__()
        self.layers = nn.ModuleList(torch_models.Moe(width, experts) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, classes)
        for layer in self.layers:
            layer.head = nn.Identity()

    def forward(self, x):
        for norm, moe in zip(self.norms, self.layers):
            h = norm(x)
            weights = moe.gate(h).softmax(-1)
            top, places = weights.topk(2, dim=-1)
            chosen = torch.zeros_like(weights).scatter(-1, places, top)
            y = nn.functional.silu(torch.einsum("bsw,ewh->ebsh", h, moe.up))
            y = torch.einsum("ebsh,ehw->ebsw", y, moe.down)
            x = x + (y * chosen.permute(2, 0, 1)[..., None]).sum(0)
        return self.head(x.mean(1))


def gpt(layers, width, vocabulary, length, batch):
    draw = lambda r: r.integers(0, vocabulary, (batch, length))  # noqa: E731
    return (lambda: torch_models.Gpt(vocabulary, length, width, layers, max(1, width // 64)),
            draw, draw, -1)


MODELS = {
    "gpt2": gpt(12, 256, 2048, 128, 2),
    "resnet18": (lambda: torch_models.ResNet(16),
                 lambda r: r.normal(0, 1, (16, 3, 64, 64)).astype("float32"),
                 lambda r: r.integers(0, 10, 16), 1),
    "moe": (MoeStack, lambda r: r.normal(0, 1, (8, 64, 64)).astype("float32"),
            lambda r: r.integers(0, 6, 8), 1),
}


class Model:
    def __init__(self, command, work, name, entry):
        self.command, self.work, self.name = command, work, name
        make, self.draw, self.labels, self.axis = entry
        torch.manual_seed(1)
        self.path = f"{work}/{name}.onnx"
        first = torch.from_numpy(self.draw(np.random.default_rng(0)))
        torch.onnx.export(make().train(), (first,), self.path, input_names=["x"],
                          output_names=["output"], dynamo=False, opset_version=17,
                          training=torch.onnx.TrainingMode.TRAINING,
                          do_constant_folding=False)

    def compile(self, *arguments, recompute=None, level=None):
        spec = {"loss": {"kind": "softmax_cross_entropy", "of": "output", "labels": "labels",
                         "axis": self.axis}, "optimizer": {"kind": "adamw", "lr": 1e-3}}
        if recompute is not None:
            spec["recompute"] = recompute
        with open(f"{self.work}/spec.json", "w") as file:
            json.dump(spec, file)
        out = ["--to", level] if level else ["-o", f"{self.work}/bundle", "--force"]
        done = subprocess.run([self.command, "compile", self.path, *out, "--threads", "1",
                               "--train", f"{self.work}/spec.json", *arguments],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-1500:])
        return done.stdout

    def plan(self):
        with open(f"{self.work}/bundle/plan.json") as file:
            plan = json.load(file)["entries"][0]
        with open(f"{self.work}/bundle/bundle.json") as file:
            allocated = json.load(file)
        return plan, plan["stages"][0]["memory"], allocated

    def run(self, steps):
        """Losses, and the least seconds of a core that a step behind the first takes."""
        random, losses, seconds = np.random.default_rng(3), [], []
        with partita.Session(f"{self.work}/bundle") as session:
            for _ in range(steps):
                feed = {"x": self.draw(random), "labels": self.labels(random)}
                begin = time.process_time()
                losses.append(float(session.run(feed)["loss"]))
                seconds.append(time.process_time() - begin)
        return losses, min(seconds[1:])


def needed(memory):
    return memory["arena"] + memory["weights"] + memory["states"]


def least(model):
    try:
        model.compile("--memory", "1KiB")
    except RuntimeError as failure:
        found = re.search(r"a memory of (\d+) bytes would do", str(failure))
        if not found:
            raise
        return int(found[1])
    raise RuntimeError("a step in a KiB")


def limits(model, steps):
    model.compile()
    plan, memory, _ = model.plan()
    losses, seconds = model.run(steps)
    before = needed(memory)
    print(f"| {model.name} | none | {before / 1e6:.2f} | {memory['arena'] / 1e6:.2f} | – | – | "
          f"{1e3 * seconds:.2f} | – |", flush=True)
    low = least(model)
    for limit in (before - (before - low) * k // 4 for k in (1, 2, 3, 4)):
        said = model.compile("--memory", str(limit))
        plan, memory, allocated = model.plan()
        chosen = plan.get("recompute", {"nodes": [], "seconds": 0})
        nodes = sum(len(stretch) for stretch in chosen["nodes"])
        # What the runtime takes is in the bundle; what was predicted is in the plan.
        stage = allocated["entries"][0]["stages"][0]
        exact = stage["memory_per_rank"]["arena"] == memory["arena"]
        again, now = model.run(steps)
        note = re.search(r"\(([\d.]+)% of a step\)", said)
        print(f"| {model.name} | {limit / 1e6:.2f} | {needed(memory) / 1e6:.2f} | "
              f"{memory['arena'] / 1e6:.2f} | {nodes} in {len(chosen['nodes'])} | "
              f"{note[1] if note else '-'}% | {1e3 * now:.2f} | {now / seconds - 1:+.1%} |",
              flush=True)
        if again != losses:
            worst = max(abs(a - b) / abs(b) for a, b in zip(again, losses))
            print(f"losses differ by up to {worst:.1e}, first in step "
                  f"{[a != b for a, b in zip(again, losses)].index(True) + 1}", flush=True)
        if needed(memory) > limit or not exact:
            raise RuntimeError(f"{memory}; {stage}")


def arena(model, **more):
    model.compile("--dump-dir", f"{model.work}/levels", **more)
    with open(f"{model.work}/levels/arena-0.json") as file:
        return json.load(file), model.run(3)[0]


def most(values, times):
    return max((sum(v["bytes"] for v in values if v["first"] <= t <= v["last"])
                for t in times), default=0)


def blocks(model):
    plain, losses = arena(model, recompute="none")
    again, repeated = arena(model, recompute=[{"nodes": "h.*"}])
    if losses != repeated:
        raise RuntimeError(f"losses {repeated}, without {losses}")
    for name, it in (("without", plain), ("every layer again", again)):
        of = [v for v in it["values"] if re.match(r"/h\.\d+/", v["node"])]
        kept = [sum(v["bytes"] for v in of if v["kind"] == "activations" and
                    v["node"].startswith(f"/h.{k}/")) for k in range(12)]
        forward = [v for v in of if not re.search(r"/(backward|weight)$", v["node"])]
        in_layers = [t for t, n in enumerate(it["tasks"])
                     if re.match(r"/h\.\d+/.*/(backward|weight|recompute)$", n)]
        head = [t for t, n in enumerate(it["tasks"])
                if re.match(r"(loss|/ln_f|/lm_head)", n)]
        print(f"{name}: arena {it['arena'] / 1e6:.2f} MB; kept by a block "
              f"{statistics.median(kept) / 1e6:.3f} MB; activations of 12 layers at most "
              f"{most(forward, range(len(it['tasks']))) / 1e6:.2f} MB; everything in the arena "
              f"during the layers' backward pass {most(it['values'], in_layers) / 1e6:.2f} MB, "
              f"during the head and the loss {most(it['values'], head) / 1e6:.2f} MB",
              flush=True)


def depth(command, work):
    for layers in (12, 96):
        model = Model(command, work, f"gpt{layers}", gpt(layers, 64, 256, 32, 2))
        best = {}
        for _ in range(3):
            text = model.compile(recompute="none")
            for stage, seconds in re.findall(r"^  (\w+) +([\d.]+) s$", text, re.M):
                best[stage] = min(best.get(stage, 1e9), float(seconds))
            kernels = re.search(r"to (\d+) tasks and (\d+) kernels", text)
        print(f"{layers} layers: {kernels[0]}; " +
              ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in best.items()),
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--small", action="store_true", help="GPT-2 small for --blocks")
    parser.add_argument("--depth", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if arguments.depth:
            return depth(arguments.partita, work)
        if arguments.blocks:
            entry = gpt(12, 768, 50257, 128, 2) if arguments.small else MODELS["gpt2"]
            return blocks(Model(arguments.partita, work, "gpt2", entry))
        print("| model | limit MB | needs MB | arena MB | nodes again | predicted | step ms | "
              "measured |\n|---|---|---|---|---|---|---|---|")
        for name in arguments.models.split(","):
            limits(Model(arguments.partita, work, name, MODELS[name]), arguments.steps)


if __name__ == "__main__":
    main()
