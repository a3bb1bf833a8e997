#!/usr/bin/env python3
"""Training steps that `compile --train` derives: N ranks against one, and one against NumPy.

usage: run_training.py PARTITA [--steps 20] [--all]

One rank and every optimizer: two layers against NumPy in f64, 20 steps, weights within 1e-5.
N ranks: the losses of each step within 1e-4 of one rank's, weights behind the last step
within 1e-3 of the largest, whatever the mesh, the mode, the level of optimizer parallel and
the number of micro-batches. With a level, a rank has its part of the states and no more.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

import training_models

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
import partita  # noqa: E402

OPTIMIZERS = {
    "sgd": {"kind": "sgd", "lr": 0.05, "weight_decay": 0.01},
    "momentum": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
    "nesterov": {"kind": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True},
    "adam": {"kind": "adam", "lr": 0.01, "weight_decay": 0.01},
    "adamw": {"kind": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "lamb": {"kind": "lamb", "lr": 0.01, "weight_decay": 0.01},
    "adagrad": {"kind": "adagrad", "lr": 0.05},
}


class Step:
    """A compiled step, and the batches that it is fed."""

    def __init__(self, command, work, name, spec, arguments=()):
        path, spec_path = f"{work}/{name}.onnx", f"{work}/spec.json"
        self.inputs, self.label_shape, self.classes = training_models.MODELS[name](path)
        loss = {"kind": "softmax_cross_entropy", "labels": "labels", "axis": -1,
                "of": self.output(name)}
        self.spec = {"loss": loss, **spec}
        with open(spec_path, "w") as file:
            json.dump(self.spec, file)
        done = subprocess.run([command, "compile", path, "-o", f"{work}/bundle", "--force",
                               "--train", spec_path, *arguments],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-3000:])
        self.state_bytes = int(re.search(r"states per rank: (\d+) B", done.stdout)[1])
        told = re.search(r"collectives in (\d+) calls", done.stdout + done.stderr)
        self.calls = int(told[1]) if told else 0
        self.bundle = f"{work}/bundle"

    def output(self, name):
        return {"mlp": "fc2", "conv": "fc"}.get(name, "head")

    def feeds(self, steps):
        random = np.random.default_rng(7)
        trips = self.spec.get("accumulation", 1)
        trips = 1 if trips == "auto" else trips  # the model's batch is the step's
        for _ in range(steps):
            parts = [{**{key: draw(random) for key, draw in self.inputs.items()},
                      "labels": random.integers(0, self.classes, self.label_shape)}
                     for _ in range(trips)]
            yield {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def run(self, steps):
        """Losses, rates, and the states behind the last step."""
        losses, rates = [], []
        with open(f"{self.bundle}/plan.json") as file:
            arguments = json.load(file)["entries"][0]["stages"][0]["arguments"]
        with partita.Session(self.bundle) as session:
            for feed in self.feeds(steps):
                result = session.run(feed)
                losses.append(float(result["loss"]))
                rates.append(float(result["learning_rate"]))
            names = [a["state"] for a in arguments if a.get("state")]
            return losses, rates, {name: session.read_state(name) for name in names}


def weights_of(path):
    import onnx
    from onnx import numpy_helper
    return {t.name: numpy_helper.to_array(t).astype(np.float64)
            for t in onnx.load(path).graph.initializer}


class Numpy:
    """The two layers in f64, and each optimizer by its paper's or PyTorch's formula."""

    def __init__(self, weights, spec):
        self.w, self.spec, self.t = weights, spec, 0
        self.m = {k: np.zeros_like(v) for k, v in weights.items()}
        self.v = {k: np.zeros_like(v) for k, v in weights.items()}

    def gradients(self, x, labels):
        w = self.w
        z = x @ w["fc1.weight"] + w["fc1.bias"]
        h = np.maximum(z, 0)
        y = h @ w["fc2.weight"] + w["fc2.bias"]
        y = y - y.max(1, keepdims=True)
        logs = y - np.log(np.exp(y).sum(1, keepdims=True))
        dy = (np.exp(logs) - np.eye(8)[labels]) / len(x)
        dz = (dy @ w["fc2.weight"].T) * (z > 0)
        return (-logs[np.arange(len(x)), labels].mean(),
                {"fc1.weight": x.T @ dz, "fc1.bias": dz.sum(0),
                 "fc2.weight": h.T @ dy, "fc2.bias": dy.sum(0)})

    def step(self, feed):
        o = self.spec["optimizer"]
        loss, gradients = self.gradients(feed["x"].astype(np.float64), feed["labels"])
        if "clip_norm" in self.spec:
            norm = np.sqrt(sum((g ** 2).sum() for g in gradients.values()))
            scale = min(1, self.spec["clip_norm"] / (norm + 1e-6))
            gradients = {k: g * scale for k, g in gradients.items()}
        self.t += 1
        for name, g in gradients.items():
            self.update(name, g, o)
        return loss

    def update(self, name, g, o):
        w, m, v, t = self.w, self.m, self.v, self.t
        rate, decay = o["lr"], o.get("weight_decay", 0)
        kind = o["kind"]
        if kind == "sgd":
            d = g + decay * w[name]
            if o.get("momentum"):
                m[name] = o["momentum"] * m[name] + d
                d = d + o["momentum"] * m[name] if o.get("nesterov") else m[name]
            w[name] = w[name] - rate * d
            return
        if kind == "adagrad":
            v[name] = v[name] + g * g
            w[name] = w[name] - rate * g / (np.sqrt(v[name]) + 1e-10)
            return
        if kind == "adam":
            g = g + decay * w[name]
        m[name] = 0.9 * m[name] + 0.1 * g
        v[name] = 0.999 * v[name] + 0.001 * g * g
        epsilon = 1e-6 if kind == "lamb" else 1e-8
        u = m[name] / (1 - 0.9 ** t) / (np.sqrt(v[name] / (1 - 0.999 ** t)) + epsilon)
        if kind == "lamb":
            u = u + decay * w[name]
            far, long = np.linalg.norm(u), np.linalg.norm(w[name])
            w[name] = w[name] - rate * (long / far if long > 0 and far > 0 else 1) * u
            return
        if kind == "adamw":
            w[name] = w[name] * (1 - rate * decay)
        w[name] = w[name] - rate * u


def against_numpy(command, work, optimizer, steps, **more):
    spec = {"optimizer": OPTIMIZERS[optimizer], **more}
    step = Step(command, work, "mlp", spec)
    numpy = Numpy(weights_of(f"{work}/mlp.onnx"), spec)
    losses, _, states = step.run(steps)
    expected = [numpy.step(feed) for feed in step.feeds(steps)]
    worst = max(abs(a - e) / abs(e) for a, e in zip(losses, expected))
    far = max(np.abs(states[k] - w).max() for k, w in numpy.w.items())
    print(f"{optimizer} {more or ''}: {steps} steps against NumPy: losses within "
          f"{worst:.1e}, weights within {far:.1e}", flush=True)
    if worst > 1e-5 or far > 1e-5:
        raise RuntimeError(f"{optimizer}: not NumPy's")


def schedules(command, work):
    """The rate of each step, by the formulas of docs/training.md."""
    warm, total = 4, 12
    def along(t):
        return min(1, max(0, (t - warm) / (total - warm)))
    wanted = {
        "constant": ({}, lambda t: 1),
        "linear": ({"total_steps": total}, lambda t: 1 - along(t)),
        "cosine": ({"total_steps": total}, lambda t: (1 + np.cos(np.pi * along(t))) / 2),
        "step": ({"step_size": 3, "gamma": 0.5}, lambda t: 0.5 ** (max(0, t - 1 - warm) // 3)),
    }
    for kind, (keys, factor) in wanted.items():
        spec = {"optimizer": OPTIMIZERS["sgd"],
                "schedule": {"kind": kind, "warmup_steps": warm, **keys}}
        _, rates, _ = Step(command, work, "mlp", spec).run(15)
        expected = [0.05 * (t / warm if t < warm else factor(t)) for t in range(1, 16)]
        if np.abs(np.array(rates) - expected).max() > 1e-8:
            raise RuntimeError(f"schedule {kind}: {rates}, expected {expected}")
    print(f"schedules: {', '.join(wanted)}: 15 rates each as documented")


def ranks_against_one(command, work, name, optimizer, plans, steps, **more):
    spec = {"optimizer": OPTIMIZERS[optimizer], **more}
    one = Step(command, work, name, spec)
    losses, _, states = one.run(steps)
    for arguments, level in plans:
        asked = dict(spec)
        if level:
            asked["optimizer_parallel"] = {"enable": True, "level": level, "threshold_kb": 0}
        step = Step(command, work, name, asked, arguments)
        actual, _, behind = step.run(steps)
        worst = max(abs(a - e) / abs(e) for a, e in zip(actual, losses))
        far = max(np.abs(behind[k] - w).max() / max(1e-2, np.abs(w).max())
                  for k, w in states.items())
        share = step.state_bytes / one.state_bytes
        print(f"{name}, {optimizer}, {' '.join(arguments)}, level {level}, {more or ''}: "
              f"losses within {worst:.1e}, states within {far:.1e}; a rank has {share:.3f} "
              "of the states", flush=True)
        if worst > 1e-4 or far > 1e-3:
            raise RuntimeError("not what one rank gives")


def variants(command, work):
    """Recompute changes no loss; a narrower type changes them little; a step whose
    gradients are infinite changes nothing but the scale."""
    plain = Step(command, work, "transformer", {"optimizer": OPTIMIZERS["adam"]})
    losses, _, _ = plain.run(6)
    again = Step(command, work, "transformer",
                 {"optimizer": OPTIMIZERS["adam"],
                  "recompute": [{"nodes": name} for name in ("up.add", "gate", "silu")]})
    actual, _, _ = again.run(6)
    if actual != losses:
        raise RuntimeError(f"recompute: losses {actual}, without {losses}")
    for kind in ("bf16", "f16"):
        narrow = Step(command, work, "transformer",
                      {"optimizer": OPTIMIZERS["adam"], "compute": kind})
        actual, _, _ = narrow.run(6)
        worst = max(abs(a - e) / e for a, e in zip(actual, losses))
        if not 0 < worst < 0.01:
            raise RuntimeError(f"{kind}: losses {actual}, in f32 {losses}")
    scaled = Step(command, work, "mlp", {"optimizer": OPTIMIZERS["adamw"], "compute": "f16",
                                         "loss_scale": "dynamic"})
    with partita.Session(scaled.bundle) as session:
        for k, feed in enumerate(scaled.feeds(4)):
            before = session.read_state("fc1.weight")
            if k == 2:
                feed["x"] = feed["x"] * np.float32(1e30)
            session.run(feed)
            changed = (session.read_state("fc1.weight") != before).any()
            if changed == (k == 2):
                raise RuntimeError(f"dynamic scale: step {k} changed weights: {changed}")
        power, step = session.read_state("loss_scale"), session.read_state("step")
    if power != -1 or step != 3:
        raise RuntimeError(f"dynamic scale: 2^{power} after {step} steps")
    print("recompute: losses unchanged; bf16 and f16 within 1%; an infinite step is left out")


def buckets(command, work):
    """Losses and states have the same bits whatever is one call and whatever is in flight."""
    apart = [({"openstate": False}, 0)]
    size = {kind: {"mode": "size", "config": 2000}
            for kind in ("allreduce", "allgather", "reducescatter")}
    index = {"allreduce": {"mode": "index", "config": [2, 5]},
             "reducescatter": {"mode": "auto", "groups": [["*.weight"], ["*.bias"]]}}
    ways = apart + [({}, 2), ({}, 0), (size, 1), (size, 3), (index, 2)]
    for level, more in ((0, {}), (1, {}), (2, {"clip_norm": 0.5}), (3, {}),
                        (0, {"accumulation": 3}), (2, {"accumulation": 2})):
        spec = {"optimizer": OPTIMIZERS["adamw"], **more}
        if level:
            spec["optimizer_parallel"] = {"enable": True, "level": level, "threshold_kb": 0}
        expected, calls = None, set()
        for fusion, flying in ways:
            asked = {**spec, "comm_fusion": fusion}
            if level and fusion is index:
                asked["comm_fusion"] = {"allgather": size["allgather"]}
            step = Step(command, work, "transformer", asked,
                        ["--mesh", "dp=2", "--mode", "data-parallel",
                         "--comm-in-flight", str(flying)])
            calls.add(step.calls)
            losses, _, states = step.run(4)
            given = (losses, {k: v.tobytes() for k, v in states.items()})
            expected = expected or given
            if given != expected:
                raise RuntimeError(f"level {level}, {more}: other bits with {fusion}, "
                                   f"{flying} in flight")
        print(f"buckets, level {level}, {more or ''}: {len(ways)} ways with the same bits, "
              f"{min(calls)} to {max(calls)} calls", flush=True)
        if len(calls) < 3:
            raise RuntimeError("the ways do not differ")


def hierarchical(command, work):
    """Hosts of two ranks reduce and gather within, then across."""
    cluster = {"device": {"name": "core", "peak": {"f32": 1e12}, "memory": "16GiB",
                          "memory_bandwidth": 1e11},
               "levels": [{"name": "host", "size": 2, "bandwidth": 3e11, "latency": 1e-9},
                          {"name": "network", "size": 2, "bandwidth": 1e9,
                           "latency": 1e-9}],
               "host": {"memory": "64GiB", "bandwidth": 26e9}}
    with open(f"{work}/cluster.json", "w") as file:
        json.dump(cluster, file)
    plan = ["--mesh", "dp=4", "--mode", "data-parallel", "--cluster",
            f"{work}/cluster.json", "--hierarchical"]
    for name, level, more in (("transformer", 0, {}), ("transformer", 3, {}),
                              ("mlp", 2, {"accumulation": 2})):
        ranks_against_one(command, work, name, "adamw", [(plan, level)], 8, **more)
        with open(f"{work}/bundle/plan.json") as file:
            collectives = json.load(file)["entries"][0]["stages"][0]["collectives"]
        crossing = {call["axes"] for call in collectives}
        if not {"dp:(1)2", "dp:(2)2"} <= crossing:
            raise RuntimeError(f"{name}, level {level}: collectives over {crossing}")


def threads(command, work):
    """Threads beside the ranks receive data, and states have the same bits."""
    step = Step(command, work, "transformer", {
        "optimizer": OPTIMIZERS["adamw"],
        "optimizer_parallel": {"enable": True, "level": 3, "threshold_kb": 0}},
                ["--mesh", "dp=2", "--mode", "data-parallel"])
    feeds = list(step.feeds(4))
    np.savez(f"{work}/rows.npz",
             **{name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]})

    def run(place, *words):
        done = subprocess.run([command, "run", step.bundle, "--data", f"{work}/rows.npz",
                               "--epochs", "3", "--state-dir", f"{work}/{place}", *words],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stderr}")
        with open(f"{work}/{place}/state.safetensors", "rb") as file:
            return done.stdout, file.read()

    _, expected = run("none")
    for words in (["--comm-threads", "1"], ["--comm-threads", "3"],
                  ["--comm-threads", "1", "--transport", "mpi"]):
        moved, tries = 0, 0
        while moved == 0 and tries < 5:  # on busy cores such a thread may come too late
            told, states = run("-".join([*words, str(tries)]), *words)
            moved = int(re.search(r"threads beside the ranks received (\d+) B", told)[1])
            tries += 1
            if states != expected:
                raise RuntimeError(f"{words}: other bits")
        if moved == 0:
            raise RuntimeError(f"{words}: nothing was received meanwhile")
        print(f"{' '.join(words)}: the same bits, {moved:,} B received meanwhile")
    done = subprocess.run([command, "run", step.bundle, "--data", f"{work}/rows.npz",
                           "--transport", "mpi", "--comm-threads", "2"],
                          capture_output=True, text=True)
    if done.returncode == 0 or "one thread beside it at most" not in done.stderr:
        raise RuntimeError(f"two threads beside a rank of MPI: {done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()

    def mesh(text, mode=None):
        return ["--mesh", text] + (["--mode", mode] if mode else [])

    with tempfile.TemporaryDirectory() as work:
        command = arguments.partita
        for optimizer in OPTIMIZERS:
            against_numpy(command, work, optimizer, arguments.steps)
        against_numpy(command, work, "adamw", arguments.steps, clip_norm=0.5)
        schedules(command, work)
        variants(command, work)
        buckets(command, work)
        hierarchical(command, work)
        threads(command, work)
        data = "data-parallel"
        short = [(mesh("dp=2", data), 0), (mesh("dp=4", data), 1), (mesh("dp=4", data), 3),
                 (mesh("dp=2,tp=2"), 0)]
        every = short + [(mesh("dp=3", data), 0), (mesh("dp=8", data), 2),
                         (mesh("dp=2", data), 3), (mesh("tp=2"), 0), (mesh("dp=4"), 3),
                         (mesh("dp=2,tp=2", data), 1)]
        plans = every if arguments.all else short
        for name, optimizer in (("mlp", "adamw"), ("conv", "momentum"),
                                ("transformer", "adam")):
            ranks_against_one(command, work, name, optimizer, plans, 8)
        ranks_against_one(command, work, "transformer", "adamw",
                          [(mesh("dp=2", data), 0), (mesh("dp=4", data), 2)] if not
                          arguments.all else every, 4, accumulation=3, clip_norm=1.0)
        ranks_against_one(command, work, "conv", "sgd",
                          [(mesh("dp=2", data), 0)] if not arguments.all else every, 4,
                          accumulation=2)


if __name__ == "__main__":
    main()
