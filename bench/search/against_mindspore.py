#!/usr/bin/env python3
"""MindSpore's double-recursive search beside ours, on the same nets: what both searches
take, and what MindSpore's strategies take by our cost model.

usage: against_mindspore.py PARTITA --python PYTHON [--devices N,…] [NET…]

PYTHON is an interpreter with mindspore and onnx. Nets (forward, f32): mlp, 6 linear layers of
1,024 with Relu on 512 rows; wide, the same of 8,192 on 64 rows, where rows are too few to
split; bert, the 12 layers of BERT-base on 64 × 512 tokens; resnet50 on 64 images.
The cluster is servers of 8 A100 with one HDR adapter per device.

MindSpore's strategies become hints, operand by operand, and `partita plan --hints` searches
what they leave open: how values are converted. Their mesh is the best of those with the
fewest axes that have all their splits.
"""
import argparse
import itertools
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
import onnx  # noqa: E402
from bert import Bert  # noqa: E402
from layers import Layers, builder  # noqa: E402
from resnet import ResNet  # noqa: E402

NETS = ("mlp", "wide", "bert", "resnet50")


class Multilayer(Layers):
    def __init__(self, rows, width, layers=6, seed=7):
        super().__init__(seed)
        self.rows, self.width, self.layers = rows, width, layers

    def build(self):
        shape = [self.rows, self.width]
        x = self.multilayer(self.input("x", shape), [self.width] * (self.layers + 1), "mlp")
        self.node("Identity", [x], "last", ["y"])
        self.output("y", shape)
        return self.model("multilayer")


class Encoder(Bert):
    """The layers of BERT without the tables before them and the pooler behind them."""
    def build(self):
        shape = [self.batch, self.length, self.hidden]
        x = self.input("hidden", shape)
        for layer in range(self.layers):
            x = self.layer(x, None, f"layer.{layer}")
        self.node("Identity", [x], "last", ["last_hidden_state"])
        self.output("last_hidden_state", shape)
        return self.model("encoder")


def write_net(name, path):
    kind, arguments = {
        "mlp": (Multilayer, dict(rows=512, width=1024)),
        "wide": (Multilayer, dict(rows=64, width=8192)),
        "bert": (Encoder, dict(hidden=768, heads=12, layers=12, batch=64)),
        "resnet50": (ResNet, dict(layers=50, batch=64)),
    }[name]

    class Absent(builder.AbsentWeights, kind):
        location = f"{name}.data"
    model = Absent(**arguments).build()
    onnx.save(model, path)
    return model


def write_cluster(path, devices):
    text = {"server": "DGX-A100"}
    if devices > 8:
        text = {"device": {"preset": "A100-80GB"},
                "levels": [{"name": "nvlink", "preset": "nvlink3", "size": 4 if devices % 8
                            else 8},
                           {"name": "rack", "preset": "hdr",
                            "size": devices // (4 if devices % 8 else 8)}]}
    with open(path, "w") as file:
        json.dump(text, file)


def mindspore(python, path, devices, *flags):
    done = subprocess.run([python, os.path.join(HERE, "mindspore_net.py"), path,
                           str(devices), *flags], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout or '{"error": "nothing was printed"}')


def hints_of(model, strategies):
    """Hints that ask of every node what MindSpore chose. The rows of a MatMul's left
    operand, which MindSpore has as one dim, are split from the first dim on."""
    model = onnx.shape_inference.infer_shapes(model)
    graph = model.graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
              for v in (*graph.input, *graph.value_info, *graph.output)}
    nodes = {}
    for node in graph.node:
        name = node.name or node.output[0]
        if name not in strategies:
            continue
        operands = strategies[name]
        shape = shapes.get(node.input[0], [])
        if node.op_type == "MatMul" and len(operands[0]) < len(shape):
            rows, dims = operands[0][0], []
            for extent in shape[:-1]:
                dims.append(math.gcd(extent, rows))
                rows //= dims[-1]
            operands = [dims + operands[0][1:]] + operands[1:]
        if node.op_type == "BatchNormalization":  # its statistics become a scale
            operands = operands[:1]
        nodes[name] = {"in": operands}
    return {"nodes": nodes}


def can_place(splits, axes):
    """Whether disjoint sets of axes have these products."""
    if not splits:
        return True
    return any(math.prod(part) == splits[0] and
               can_place(splits[1:], [x for i, x in enumerate(axes) if i not in chosen])
               for count in range(1, len(axes) + 1)
               for chosen in itertools.combinations(range(len(axes)), count)
               for part in [[axes[i] for i in chosen]])


def factorisations(devices, count):
    if count == 1:
        return [(devices,)]
    return [(size, *rest) for size in range(2, devices) if devices % size == 0
            for rest in factorisations(devices // size, count - 1)]


def meshes_of(strategies, devices):
    """The meshes of fewest axes that have every operand's splits, in any order."""
    wanted = {tuple(split for split in operand if split > 1)
              for operands in strategies.values() for operand in operands}
    for count in range(1, devices.bit_length()):
        fitting = [sizes for sizes in factorisations(devices, count)
                   if all(can_place(splits, list(sizes)) for splits in wanted)]
        if fitting:
            return [",".join(f"a{i}={size}" for i, size in enumerate(sizes))
                    for sizes in fitting]
    return []


def plan(partita, path, cluster, *more):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([partita, "plan", path, "--cluster", cluster, *more],
                          capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, seconds


def milliseconds(what, text):
    value, unit = re.search(rf"{what}:? ([0-9.]+) (ms|µs)", text).groups()
    return float(value) * (1 if unit == "ms" else 1e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("nets", nargs="*", default=NETS)
    parser.add_argument("--python", required=True)
    parser.add_argument("--devices", default="8,64,12,96")
    arguments = parser.parse_args()
    print("| net, devices | its search ms | its compile s | our problem, solving ms | "
          "our plan s | our mesh | our step ms | its step ms | its / ours |\n"
          "|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.nets or NETS:
            path = os.path.join(folder, name + ".onnx")
            model = write_net(name, path)
            for devices in map(int, arguments.devices.split(",")):
                show(arguments, folder, name, path, model, devices)


def show(arguments, folder, name, path, model, devices):
    cluster = os.path.join(folder, "cluster.json")
    write_cluster(cluster, devices)
    timed = mindspore(arguments.python, path, devices)
    text, seconds = plan(arguments.partita, path, cluster)
    ours = milliseconds("step", text)
    mesh = re.search(r"mesh ([^ ]+) of", text).group(1)
    alone, _ = plan(arguments.partita, path, cluster, "--mesh", mesh)
    problem, solving = (milliseconds(part, alone) for part in ("problem", "solving"))
    its = "-"
    if "error" not in timed:
        strategies = mindspore(arguments.python, path, devices, "--strategies")
        hints = os.path.join(folder, "hints.json")
        with open(hints, "w") as file:
            json.dump(hints_of(model, strategies), file)
        its = min(milliseconds("step", plan(arguments.partita, path, cluster, "--mesh",
                                            mesh, "--hints", hints)[0])
                  for mesh in meshes_of(strategies, devices))
    print(f"| {name}, {devices} | " +
          (f"{timed['search_ms']:.0f} | {timed['compile_s']:.2f}" if "error" not in timed
           else f"{timed['error']} | -") +
          f" | {problem:.1f}, {solving:.1f} | {seconds:.2f} | {mesh} | {ours:.3f} | " +
          (f"{its:.3f} | {its / ours:.3f} |" if its != "-" else "- | - |"), flush=True)


if __name__ == "__main__":
    main()
