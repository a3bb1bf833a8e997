#!/usr/bin/env python3
"""A training step that is written by hand, on ranks, against NumPy in f64.

usage: run_training_step.py PARTITA_OPT PARTITA [--steps 5] [--all]

Two layers, softmax cross-entropy, stochastic gradient descent or Adam, as one function
whose weights and moments are states (docs/state.md). Where they lie is said by hints alone:

    whole    every rank has all                       one all-reduce for each gradient
    level 1  Adam's moments split over dp             gradients scattered, weights gathered
    level 2  and the gradients that a loop adds up    scattered in every micro-batch
    level 3  weights and moments split over dp        weights gathered before they are read
    2 and 3  all of that                              as ZeRO's third stage has it
    tp       the inner dim of both layers split       as Megatron has it

The module is checked in f64 on virtual ranks (--partita-check-spmd), compiled, and run step by
step; losses, and states after the last step, are compared with NumPy's. One more step runs
over MPI from a file of the states. With sharded states a rank has its part of them and no
more.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import equality

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
import partita  # noqa: E402

BATCH, INPUTS, HIDDEN, CLASSES = 24, 12, 48, 8
RATE, BETA1, BETA2, EPSILON = 0.05, 0.9, 0.999, 1e-8
SHAPES = {"w1": (INPUTS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES),
          "b2": (CLASSES,)}


class Function:
    """The text of one function of graph ops, op by op."""

    def __init__(self, kind):
        self.kind, self.lines, self.types, self.count = kind, [], {}, 0

    def type(self, shape):
        return f"tensor<{''.join(f'{n}x' for n in shape)}{self.kind}>"

    def op(self, text, operands, shape, name=None, attributes=""):
        self.count += 1
        result = f"%{self.count}"
        kinds = ", ".join(self.types[o] for o in operands)
        self.types[result] = self.type(shape)
        location = f' loc("{name}")' if name else ""
        self.lines.append(f"  {result} = {text} {', '.join(operands)}{attributes} : "
                          f"({kinds}) -> {self.types[result]}{location}")
        return result

    def constant(self, value):
        self.count += 1
        result = f"%{self.count}"
        self.types[result] = self.type(())
        self.lines.append(f"  {result} = graph.constant dense<{value:.17e}> : "
                          f"{self.type(())}")
        return result

    def contract(self, a, b, equation, shape, name):
        return self.op("graph.contract", [a, b], shape, name,
                       f' {{equation = #graph.equation<"{equation}">}}')

    def reduce(self, a, axes, shape, name, keep=False):
        more = ", keep_dims = true" if keep else ""
        return self.op("graph.reduce", [a], shape, name,
                       f" {{kind = #graph.reduce<sum>, axes = array<i64: "
                       f"{', '.join(map(str, axes))}>{more}}}")

    def each(self, op, operands, shape, name=None):
        return self.op(f"graph.{op}", operands, shape, name)


def gradients(f, value):
    """The loss of a micro-batch and its gradients, op by op."""
    inner, logits = (BATCH, HIDDEN), (BATCH, CLASSES)
    z = f.contract(value["x"], value["w1"], "b i, i h -> b h", inner, "layer1")
    z = f.each("add", [z, value["b1"]], inner, "bias1")
    h = f.each("relu", [z], inner, "relu")
    y = f.contract(h, value["w2"], "b h, h c -> b c", logits, "layer2")
    y = f.each("add", [y, value["b2"]], logits, "bias2")
    logs = f.op("graph.log_softmax", [y], logits, "logs", " {axis = 1 : i64}")
    p = f.each("exp", [logs], logits, "probabilities")
    picked = f.each("mul", [logs, value["labels"]], logits, "picked")
    loss = f.reduce(picked, (0, 1), (), "loss_sum")
    loss = f.each("mul", [loss, f.constant(-1 / BATCH)], (), "loss")
    # Backward.
    dy = f.each("sub", [p, value["labels"]], logits, "dy")
    dy = f.each("mul", [dy, f.constant(1 / BATCH)], logits, "dy_mean")
    gradient = {"w2": f.contract(h, dy, "b h, b c -> h c", SHAPES["w2"], "grad.w2"),
                "b2": f.reduce(dy, (0,), SHAPES["b2"], "grad.b2")}
    dh = f.contract(dy, value["w2"], "b c, h c -> b h", inner, "dh")
    # The derivative of relu: 1 where it is positive.
    positive = f.each("sign", [h], inner, "positive")
    dz = f.each("mul", [dh, positive], inner, "dz")
    gradient["w1"] = f.contract(value["x"], dz, "b i, b h -> i h", SHAPES["w1"], "grad.w1")
    gradient["b1"] = f.reduce(dz, (0,), SHAPES["b1"], "grad.b1")
    return loss, gradient


def sgd(f, value, gradient):
    rate, after = f.constant(RATE), {}
    for name, shape in SHAPES.items():
        change = f.each("mul", [gradient[name], rate], shape, f"change.{name}")
        after[name] = f.each("sub", [value[name], change], shape, f"next.{name}")
    return after


def adam(f, value, gradient):
    rate, one, epsilon = f.constant(RATE), f.constant(1), f.constant(EPSILON)
    after, fix = {}, {}
    for number, beta in ((1, BETA1), (2, BETA2)):
        decay = f.each("mul", [value[f"decay{number}"], f.constant(beta)], ())
        after[f"decay{number}"] = decay
        fix[number] = f.each("sub", [one, decay], ())
    for name, shape in SHAPES.items():
        g = gradient[name]
        squares = f.each("mul", [g, g], shape, f"square.{name}")
        for letter, beta, what in (("m", BETA1, g), ("v", BETA2, squares)):
            kept = f.each("mul", [value[f"{letter}.{name}"], f.constant(beta)], shape,
                          f"kept.{letter}.{name}")
            new = f.each("mul", [what, f.constant(1 - beta)], shape,
                         f"new.{letter}.{name}")
            after[f"{letter}.{name}"] = f.each("add", [kept, new], shape,
                                               f"next.{letter}.{name}")
        mean = f.each("div", [after[f"m.{name}"], fix[1]], shape, f"mean.{name}")
        spread = f.each("div", [after[f"v.{name}"], fix[2]], shape, f"spread.{name}")
        root = f.each("sqrt", [spread], shape, f"root.{name}")
        root = f.each("add", [root, epsilon], shape, f"stable.{name}")
        change = f.each("div", [mean, root], shape, f"step.{name}")
        change = f.each("mul", [change, rate], shape, f"change.{name}")
        after[name] = f.each("sub", [value[name], change], shape, f"next.{name}")
    return after


def header(f, value, arguments):
    """"%x: tensor<…> {graph.name = "x"}, …", and the values by name."""
    parts = []
    for name, shape, state in arguments:
        value[name] = f"%{name.replace('.', '_')}"
        f.types[value[name]] = f.type(shape)
        mark = f', dist.state = #dist.state<"{state}">' if state else ""
        parts.append(f'{value[name]}: {f.type(shape)} {{graph.name = "{name}"{mark}}}')
    return ",\n    ".join(parts)


def micro_batch(kind):
    """The body of the loop over micro-batches: it adds to the loss and the gradients."""
    f, value = Function(kind), {}
    arguments = [("carried.loss", (), None),
                 *[(f"carried.{name}", shape, None) for name, shape in SHAPES.items()],
                 ("x", (BATCH, INPUTS), None), ("labels", (BATCH, CLASSES), None),
                 *[(name, shape, None) for name, shape in SHAPES.items()]]
    text = header(f, value, arguments)
    loss, gradient = gradients(f, value)
    results = [f.each("add", [value["carried.loss"], loss], (), "sum.loss")]
    results += [f.each("add", [value[f"carried.{name}"], gradient[name]], shape,
                       f"sum.{name}") for name, shape in SHAPES.items()]
    types = ", ".join(f.types[r] for r in results)
    lines = "\n".join(f.lines)
    return (f"func.func private @micro({text})\n    -> ({types}) {{\n{lines}\n"
            f"  return {', '.join(results)} : {types}\n}}\n")


def accumulated(f, value, trips):
    """The means over the micro-batches."""
    shapes = {"loss": (), **SHAPES}
    zeros = []
    for name, shape in shapes.items():
        f.count += 1
        zeros.append(f"%{f.count}")
        f.types[zeros[-1]] = f.type(shape)
        f.lines.append(f"  {zeros[-1]} = graph.constant dense<0.0> : {f.type(shape)}")
    weights = [value[name] for name in SHAPES]
    operands = [*zeros, value["x"], value["labels"], *weights]
    f.count += 1
    results = f"%{f.count}"
    types = ", ".join(f.type(shape) for shape in shapes.values())
    f.lines.append(
        f"  {results}:{len(shapes)} = graph.repeat @micro trips {trips} "
        f"carried({', '.join(zeros)}) scanned({value['x']}, {value['labels']}) "
        f"with({', '.join(weights)}) : ({', '.join(f.types[o] for o in operands)}) -> "
        f'({types}) loc("accumulate")')
    share = f.constant(1 / trips)
    means = {}
    for k, (name, shape) in enumerate(shapes.items()):
        result = f"{results}#{k}"
        f.types[result] = f.type(shape)
        means[name] = f.each("mul", [result, share], shape, f"mean.{name}")
    return means.pop("loss"), means


def module(optimizer, kind="f32", trips=1):
    """The step, with states that begin as zeros: the test sets them."""
    f, value = Function(kind), {}
    rows = (trips,) if trips > 1 else ()
    states = dict(SHAPES)
    if optimizer == "adam":
        states.update({f"{m}.{name}": shape for name, shape in SHAPES.items()
                       for m in ("m", "v")})
        states["decay1"] = states["decay2"] = ()
    text = header(f, value, [("x", (*rows, BATCH, INPUTS), None),
                             ("labels", (*rows, BATCH, CLASSES), None),
                             *[(name, shape, name) for name, shape in states.items()]])
    loss, gradient = accumulated(f, value, trips) if trips > 1 else gradients(f, value)
    after = {"sgd": sgd, "adam": adam}[optimizer](f, value, gradient)
    results = [f'{f.type(())} {{graph.name = "loss"}}'] + [
        f'{f.type(shape)} {{graph.name = "next.{name}", '
        f'dist.state = #dist.state<"{name}">}}' for name, shape in states.items()]
    returned = [loss] + [after[name] for name in states]
    lines = "\n".join(f.lines)
    body = micro_batch(kind) if trips > 1 else ""
    return (f"{body}func.func @main({text})\n    -> ({', '.join(results)}) {{\n{lines}\n"
            f"  return {', '.join(returned)} : "
            f"{', '.join(f.types[r] for r in returned)}\n}}\n"), states


def hints(plan, states, trips):
    """Where things lie; the batch is split in the ops that have one."""
    batch = ["dp", None]
    nodes = {name: {"in": [batch, None]} for name in ("layer1", "layer2", "dh", "grad.w1",
                                                      "grad.w2")}
    for name in ("grad.w1", "grad.w2"):
        nodes[name] = {"in": [batch, batch]}
    if plan == "tp":
        split = {"w1": [None, "tp"], "w2": ["tp", None]}
        return {"tensors": {name: split[name[-2:]] for name in states
                            if name[-2:] in split}}
    tensors = {}
    if trips == 1:
        tensors = {"x": batch, "labels": batch}
    elif plan in ("level2", "level2+3"):
        tensors = {f"carried.{name}": ["dp"] + [None] * (len(shape) - 1)
                   for name, shape in SHAPES.items()}
    for name, shape in states.items():
        if not shape:
            continue
        is_moment = name[:2] in ("m.", "v.")
        split = "3" in plan or (plan in ("level1", "level2") and is_moment)
        tensors[name] = [("dp" if split else [])] + [None] * (len(shape) - 1)
    return {"nodes": nodes, "tensors": tensors}


class Numpy:
    """The same in f64."""

    def __init__(self, optimizer, states):
        self.optimizer, self.states = optimizer, states

    def gradients(self, x, labels):
        s = self.states
        z = x @ s["w1"] + s["b1"]
        h = np.maximum(z, 0)
        y = h @ s["w2"] + s["b2"]
        logs = y - y.max(1, keepdims=True)
        logs = logs - np.log(np.exp(logs).sum(1, keepdims=True))
        dy = (np.exp(logs) - labels) / BATCH
        dz = (dy @ s["w2"].T) * (h > 0)
        return (-(logs * labels).sum() / BATCH,
                {"w1": x.T @ dz, "b1": dz.sum(0), "w2": h.T @ dy, "b2": dy.sum(0)})

    def step(self, x, labels):
        s = self.states
        parts = [self.gradients(*part) for part in
                 (zip(x, labels) if x.ndim == 3 else [(x, labels)])]
        loss = sum(part[0] for part in parts) / len(parts)
        gradient = {name: sum(part[1][name] for part in parts) / len(parts)
                    for name in SHAPES}
        if self.optimizer == "adam":
            s["decay1"] = s["decay1"] * BETA1
            s["decay2"] = s["decay2"] * BETA2
        for name, g in gradient.items():
            if self.optimizer == "adam":
                m = s[f"m.{name}"] = BETA1 * s[f"m.{name}"] + (1 - BETA1) * g
                v = s[f"v.{name}"] = BETA2 * s[f"v.{name}"] + (1 - BETA2) * g * g
                g = (m / (1 - s["decay1"])) / (np.sqrt(v / (1 - s["decay2"])) + EPSILON)
            s[name] = s[name] - RATE * g
        return loss


def draw(states, random):
    values = {}
    for name, shape in states.items():
        if name in SHAPES:
            values[name] = random.normal(0, 0.5, shape)
        else:
            values[name] = np.ones(()) if name.startswith("decay") else np.zeros(shape)
    return values


def check(opt, partita_path, work, optimizer, plan, ranks, steps, trips=1):
    text, states = module(optimizer, "f32", trips)
    wide, _ = module(optimizer, "f64", trips)
    axis = "tp" if plan == "tp" else "dp"
    for name, content in (("step.mlir", text), ("wide.mlir", wide),
                          ("hints.json", json.dumps(hints(plan, states, trips)))):
        with open(os.path.join(work, name), "w") as file:
            file.write(content)
    shard = f"--partita-shard=mesh={axis}={ranks} mode=semi-auto hints={work}/hints.json"
    passes = [shard, "--partita-insert-reshards", "--partita-verify-planned"]
    bundle = os.path.join(work, "bundle")
    subprocess.run(["rm", "-rf", bundle])
    for command in (
            [opt, f"{work}/wide.mlir", *passes,
             "--partita-check-spmd=rtol=1e-12 atol=1e-12", "-o", f"{work}/planned.mlir"],
            [opt, f"{work}/step.mlir", *passes,
             f"--partita-check-bundle=keep={bundle} compare=false", "-o", "/dev/null"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{optimizer}, {plan} on {ranks}: {done.stderr[:2000]}")
    random = np.random.default_rng(3)
    numpy = Numpy(optimizer, draw(states, random))
    with partita.Session(bundle) as session:
        for name, value in numpy.states.items():
            session.write_state(name, np.asarray(value, np.float32))
        for k in range(steps):
            rows = (trips,) if trips > 1 else ()
            x = random.normal(0, 1, (*rows, BATCH, INPUTS))
            labels = np.eye(CLASSES)[random.integers(0, CLASSES, (*rows, BATCH))]
            expected = numpy.step(x.astype(np.float32).astype(np.float64), labels)
            actual = session.run({"x": x.astype(np.float32),
                                  "labels": labels.astype(np.float32)})["loss"]
            close(f"{optimizer}, {plan} on {ranks}: loss {k}", actual, expected)
        for name, value in numpy.states.items():
            close(f"{optimizer}, {plan} on {ranks}: {name}", session.read_state(name), value)
        session.save_states(f"{work}/state.safetensors")
    last_step_over_mpi(partita_path, work, bundle, numpy, x, labels)
    if trips > 1:
        check_reductions(opt, work, plan, ranks)
    return bytes_of(work, states, plan, ranks)


def check_reductions(opt, work, plan, ranks):
    """Gradients are reduced once behind the loop, or scattered in each trip."""
    done = subprocess.run([opt, f"{work}/planned.mlir", "--partita-partition"],
                          capture_output=True, text=True, check=True)
    body, main = done.stdout.split("func.func @main(")
    counts = [sum(part.count(f"= comm.{op} ") for op in ("all_reduce", "reduce_scatter"))
              for part in (body, main)]
    reduced = len(SHAPES) + 1  # each gradient, and the loss
    expected = [len(SHAPES), 1] if "2" in plan else [0, reduced]
    if ranks > 1 and plan != "tp" and counts != expected:
        raise RuntimeError(f"{plan} on {ranks}: {counts[0]} reductions in a trip and "
                           f"{counts[1]} behind the loop, not {expected}")


def deep_module(sizes):
    """Layers without biases, squared error, gradient descent; the hints of level 3."""
    f, value, layers = Function("f64"), {}, range(len(sizes) - 1)
    shapes = {f"w{k}": (sizes[k], sizes[k + 1]) for k in layers}
    text = header(f, value, [("x", (BATCH, sizes[0]), None),
                             ("wanted", (BATCH, sizes[-1]), None),
                             *[(name, shape, name) for name, shape in shapes.items()]])
    active = [value["x"]]
    for k in layers:
        z = f.contract(active[-1], value[f"w{k}"], "b i, i h -> b h",
                       (BATCH, sizes[k + 1]), f"layer{k}")
        active.append(f.each("tanh", [z], (BATCH, sizes[k + 1]), f"tanh{k}"))
    d = f.each("sub", [active[-1], value["wanted"]], (BATCH, sizes[-1]), "error")
    rate, one, after = f.constant(RATE), f.constant(1), {}
    for k in reversed(layers):
        shape = (BATCH, sizes[k + 1])
        slope = f.each("sub", [one, f.each("mul", [active[k + 1]] * 2, shape)], shape)
        d = f.each("mul", [d, slope], shape, f"d{k}")
        g = f.contract(active[k], d, "b i, b h -> i h", shapes[f"w{k}"], f"grad.w{k}")
        change = f.each("mul", [g, rate], shapes[f"w{k}"], f"change.w{k}")
        after[f"w{k}"] = f.each("sub", [value[f"w{k}"], change], shapes[f"w{k}"])
        if k:
            d = f.contract(d, value[f"w{k}"], "b h, i h -> b i", (BATCH, sizes[k]),
                           f"dx{k}")
    results = ", ".join(f'{f.type(shape)} {{graph.name = "next.{name}", '
                        f'dist.state = #dist.state<"{name}">}}'
                        for name, shape in shapes.items())
    returned = [after[name] for name in shapes]
    types = ", ".join(f.types[r] for r in returned)
    lines = "\n".join(f.lines)
    batch = ["dp", None]
    nodes = {f"{op}{k}": {"in": [batch, None]} for op in ("layer", "dx") for k in layers
             if f"dx{k}" != "dx0"}
    nodes.update({f"grad.w{k}": {"in": [batch, batch]} for k in layers})
    return (f"func.func @main({text})\n    -> ({results}) {{\n{lines}\n"
            f"  return {', '.join(returned)} : {types}\n}}\n",
            {"nodes": nodes, "tensors": {"x": batch, "wanted": batch,
                                         **{name: batch for name in shapes}}}, shapes)


def gathered_at_once(text):
    """The most bytes of gathered weights in memory at one op of @main, and the gathers."""
    import re
    ops = [line.strip() for line in text.split("func.func @main(")[1].split("\n")[1:]]
    ops = [line for line in ops if re.match(r"%\S+ = |return ", line)]
    lives = []
    for k, line in enumerate(ops):
        made = re.match(r"(%\w+) = comm.all_gather %arg.*-> tensor<([\dx]+)xf64>", line)
        if made:
            last = max(i for i, other in enumerate(ops)
                       if re.search(rf"{made[1]}\b", other.split(" = ", 1)[-1]))
            lives.append((k, last, 8 * int(np.prod([int(n) for n in
                                                    made[2].split("x")]))))
    return max(sum(size for first, last, size in lives if first <= k <= last)
               for k in range(len(ops))), len(lives)


def check_deep(opt, work, ranks=4):
    """Eight layers at level 3: right, and no more than two of them are gathered."""
    text, asked, shapes = deep_module([12, *[48] * 7, 8])
    for name, content in (("deep.mlir", text), ("hints.json", json.dumps(asked))):
        with open(os.path.join(work, name), "w") as file:
            file.write(content)
    done = subprocess.run(
        [opt, f"{work}/deep.mlir",
         f"--partita-shard=mesh=dp={ranks} mode=semi-auto hints={work}/hints.json",
         "--partita-insert-reshards", "--partita-verify-planned",
         "--partita-check-spmd=rtol=1e-12 atol=1e-12", "--partita-partition",
         "--partita-verify-partitioned"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"eight layers: {done.stderr[:2000]}")
    alive, gathers = gathered_at_once(done.stdout)
    largest = sum(sorted(8 * a * b for a, b in shapes.values())[-2:])
    if alive > largest:
        raise RuntimeError(f"eight layers: {gathers} gathers, {alive} bytes at once, the two "
                           f"largest weights have {largest}")
    print(f"eight layers at level 3: {gathers} gathers, at most {alive} bytes at once, "
          f"{largest} in the two largest weights", flush=True)


def last_step_over_mpi(command, work, bundle, numpy, x, labels):
    """From the file that is there, and back into it."""
    arguments = [command, "run", bundle, "--transport", "mpi", "--state-dir", work,
                 "--outputs-dir", work]
    for name, value in (("x", x), ("labels", labels)):
        np.save(f"{work}/{name}.npy", value.astype(np.float32))
        arguments += ["--input", f"{name}={work}/{name}.npy"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    expected = numpy.step(x.astype(np.float32).astype(np.float64), labels)
    close("the loss over MPI", equality.load(f"{work}/output_0.pb"), expected)
    with partita.Session(bundle) as session:
        session.load_states(f"{work}/state.safetensors")
        for name, value in numpy.states.items():
            close(f"{name} over MPI", session.read_state(name), value)


def close(what, actual, expected):
    worst = np.abs(actual - expected).max()
    if worst > 1e-5 * max(1, np.abs(expected).max()):
        raise RuntimeError(f"{what}: off by {worst:.3g}")


def bytes_of(work, states, plan, ranks):
    """Of the states that one rank has, by the planned module; checked."""
    import re
    with open(os.path.join(work, "planned.mlir")) as file:
        head = file.read().split("@main(")[1].split("->")[0]
    found = re.findall(r"dist.layout<#mesh, (\[[^\]]*\])>, dist.state = "
                       r"#dist.state<\"([^\"]+)\">", head)
    if sorted(name for _, name in found) != sorted(states):
        raise RuntimeError(f"the states are {found}")
    total = whole = 0
    for layout, name in found:
        size = int(np.prod(states[name])) if states[name] else 1
        ways = 1
        for dim in re.findall(r"\{([^}]*)\}", layout):
            if ":" in dim:
                ways *= ranks
        if "3" in plan and states[name] and ways != ranks:
            raise RuntimeError(f"{name} is {layout} at level 3")
        whole += size
        total += -(-size // ways)
    return total / max(whole, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("opt")
    parser.add_argument("partita")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    cases = [("sgd", "whole", 2, 1), ("adam", "level1", 3, 1), ("adam", "level3", 4, 1),
             ("adam", "tp", 2, 1), ("sgd", "whole", 2, 4), ("adam", "level2", 4, 3)]
    if arguments.all:
        cases = [(o, p, r, t) for o in ("sgd", "adam")
                 for p in ("whole", "level1", "level2", "level3", "level2+3", "tp")
                 for r in (1, 2, 3, 4, 8)
                 for t in (1, 4) if t > 1 or "2" not in p]
    with tempfile.TemporaryDirectory() as work:
        check_deep(arguments.opt, work)
        for optimizer, plan, ranks, trips in cases:
            share = check(arguments.opt, arguments.partita, work, optimizer, plan, ranks,
                          arguments.steps, trips)
            print(f"{optimizer}, {plan} on {ranks} ranks, {trips} micro-batches: "
                  f"{arguments.steps} steps equal; a rank has {share:.3f} of the states",
                  flush=True)


if __name__ == "__main__":
    main()
