#!/usr/bin/env python3
"""Predicted against measured on the ranks of this machine: of each model the plan that the
search finds and others, each the best that keeps some nodes as a seeded draw says. Prints
every plan's two times, the rank correlation, and how far the found plan is from the best
that was measured.

usage: ranking.py PARTITA [--ranks N] [--plans N] [--seed S] [--through CMD] [--keep D]
                  [MODEL…]

A MODEL is NAME/SIZE of bench/models, SIZE tiny or small. Constants of the machine are
measured first (partita calibrate). Requests of all plans of a model are interleaved, and
each plan's time is that of its fastest: a machine that slows down for a while slows all.
Of twenty plans the fastest measured one has also had luck: the three fastest and the found
one are measured once more, twice as often, and compared by that.
What is timed runs as an argument of CMD, which may keep others from the machine. --keep
leaves plans, bundles, cluster file and times in the folder D, and measures again what a
run before has left there.
"""
import argparse
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "test", "E2E"))
import run_hints  # noqa: E402  finds the tensors that hints can name

DEFAULT = ["gpt3-350m/tiny", "gpt3-350m/small", "resnet18/tiny", "resnet18/small",
           "moe-380m/tiny", "moe-380m/small"]


def call(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-500:]}")
    return done.stdout


def candidates(partita, model, work):
    """Outputs of nodes that can be split: (node, rank, dim)."""
    call([partita, "compile", model, "--to", "L0", "--dump-dir", work])
    with open(os.path.join(work, "00-imported.mlir")) as file:
        ir = file.read()
    ops = list(run_hints.ops_of(ir))
    return [(t.node, t.rank, t.dim) for t in run_hints.tensors_of_nodes(ops, ir)
            if t.node and not t.isInput and t.index == 0]


def draw(random_, outputs):
    """Hints that split some nodes along a drawn dim, or keep them whole."""
    nodes = {}
    for node, rank, dim in random_.sample(outputs, min(len(outputs),
                                                       random_.choice([1, 2, 4, 8]))):
        dims = [[] for _ in range(rank)]
        if random_.random() < 0.8:
            dims[dim] = ["r"]
        nodes[node] = {"out": [dims]}
    return {"nodes": nodes}


def make_plans(partita, model, outputs, arguments, work, host):
    """[(predicted seconds, bundle)], the found plan first; distinct ones."""
    random_ = random.Random(arguments.seed)
    plans, seen = [], set()
    for attempt in range(20 * arguments.plans):
        if len(plans) == arguments.plans:
            break
        hints = []
        if attempt:
            path = os.path.join(work, "hints.json")
            with open(path, "w") as file:
                json.dump(draw(random_, outputs), file)
            hints = ["--hints", path]
        plan = os.path.join(work, "plan.json")
        mesh = f"r={arguments.ranks}"
        done = subprocess.run([partita, "plan", model, "--cluster", host, "--mesh", mesh,
                               "-o", plan, *hints], capture_output=True, text=True)
        if done.returncode:  # what these nodes cannot do together
            continue
        with open(plan) as file:
            text = json.load(file)
        seconds = text["entries"][0]["certificate"]["step_seconds"]
        key = json.dumps(text["entries"][0]["stages"])
        if key in seen:
            continue
        seen.add(key)
        bundle = os.path.join(work, f"bundle-{len(plans)}")
        call([partita, "compile", model, "--plan", plan, "--mesh", mesh, "-o", bundle])
        plans.append((seconds, bundle))
    return plans


def measure(partita, bundles, rounds, seconds, inputs):
    """The fastest request of each bundle. Short ones are repeated for a while: a rank that
    is interrupted holds up the others, and most of a tenth of a millisecond may be that."""
    repeats = str(max(12, min(400, int(0.04 / seconds))))
    best = [float("inf")] * len(bundles)
    for _ in range(rounds):
        for k, bundle in enumerate(bundles):
            text = call([partita, "run", bundle, "--repeat", repeats, *inputs])
            times = [float(t) for t in re.findall(r"request \d+: ([0-9.]+) s", text)]
            best[k] = min(best[k], *times[2:])
    return best


def measure_through(through, partita, plans, rounds, inputs):
    """The same in a process of its own."""
    task = json.dumps([partita, [bundle for _, bundle in plans], rounds, plans[0][0],
                       inputs])
    return json.loads(call([*through, sys.executable, os.path.abspath(__file__),
                            "--measure", task]))


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0] * len(values)
    for place, i in enumerate(order):
        result[i] = place
    return result


def correlation(a, b):
    """Spearman's."""
    n = len(a)
    ra, rb = ranks(a), ranks(b)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(ra, rb)) / (n * (n * n - 1))


def make_inputs(model, work):
    """Files of the model's inputs: zeros are as good as other values for a clock."""
    import numpy
    import onnx
    result = []
    for value in onnx.load(model).graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        path = os.path.join(work, f"input-{len(result) // 2}.npy")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        numpy.save(path, numpy.zeros(shape, dtype))
        result += ["--input", f"{value.name}={path}"]
    return result


def main():
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("models", nargs="*", default=DEFAULT)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--plans", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--through", default="")
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    through = arguments.through.split()
    with contextlib.ExitStack() as stack:
        top = arguments.keep or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(top, exist_ok=True)
        host = os.path.join(top, "host.json")
        if not os.path.exists(host):
            print(call([*through, arguments.partita, "calibrate", "--ranks",
                        str(arguments.ranks), "-o", host]))
        print("| model | plans | found plan: predicted | measured | best measured | "
              "found / best | rank correlation |\n|---|---|---|---|---|---|---|")
        for name in arguments.models or DEFAULT:
            kind, size = name.split("/")
            work = os.path.join(top, kind + "-" + size)
            os.makedirs(work, exist_ok=True)
            model = os.path.join(work, "model.onnx")
            times = os.path.join(work, "times.json")
            if os.path.exists(times):
                with open(times) as file:
                    plans = [(seconds, os.path.join(work, f"bundle-{k}"))
                             for k, seconds in enumerate(json.load(file)[0])]
            else:
                subprocess.run([sys.executable,
                                os.path.join(HERE, "..", "models", "generate.py"), kind,
                                f"--{size}", "-o", model], check=True,
                               stdout=subprocess.DEVNULL)
                outputs = candidates(arguments.partita, model, work)
                plans = make_plans(arguments.partita, model, outputs, arguments, work,
                                   host)
            compare(arguments, through, name, plans, make_inputs(model, work), times)


def compare(arguments, through, name, plans, inputs, times):
    # A round of plans that take long takes a minute.
    rounds = 5 if plans[0][0] < 0.02 else 2
    measured = measure_through(through, arguments.partita, plans, rounds, inputs)
    predicted = [seconds for seconds, _ in plans]
    with open(times, "w") as file:
        json.dump([predicted, measured], file)
    for p, m in zip(predicted, measured):
        print(f"    {name}: {p * 1e3:.3f} ms predicted, {m * 1e3:.3f} ms measured",
              file=sys.stderr)
    fastest = sorted(range(1, len(plans)), key=lambda k: measured[k])[:3]
    again = measure_through(through, arguments.partita,
                            [plans[k] for k in (0, *fastest)], 2 * rounds, inputs)
    print(f"| {name} | {len(plans)} | {predicted[0] * 1e3:.3f} ms | "
          f"{again[0] * 1e3:.3f} ms | {min(again) * 1e3:.3f} ms | "
          f"{again[0] / min(again):.2f} | {correlation(predicted, measured):.2f} |",
          flush=True)


if __name__ == "__main__":
    main()
