#!/usr/bin/env python3
"""Bytes and work of training steps whose splits spread from equal seeds: ours beside those of
JAX's Shardy partitioner.

usage: shardy.py PARTITA [CASE...] [--inference] [--list]

Run by hand, with a Python that has jax (0.10 or later, for CPUs), onnx and numpy. A case is a
model, a mesh and seeds: splits of some inputs and weights by name. Ours spread them by
`--mode semi-auto --hints`; JAX gets them as shardings of the arguments of the same graph, and
all other shardings are its own to choose. Bytes are what one rank receives in a step; work
is that of products and convolutions of the rank that has most. A case is a line of both, and
the ratios of ours to theirs. --inference: forward passes in the place of steps.
"""
import argparse
import fnmatch
import json
import math
import os
import re
import subprocess
import sys
import tempfile

# Combined sums cannot be told from reduce-scatters.
os.environ["XLA_FLAGS"] = ("--xla_force_host_platform_device_count=8 "
                           "--xla_disable_hlo_passes=all-reduce-combiner,"
                           "cpu-all-reduce-combiner")
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench", "models")]
import hlo  # noqa: E402
import onnx_jax  # noqa: E402
from generate import PARAMETERS  # noqa: E402
from layers import Layers  # noqa: E402
from llama import Llama  # noqa: E402
from moe import Moe  # noqa: E402
from resnet import ResNet  # noqa: E402

RATE = 1e-3
RECEIVED = re.compile(r"communication per rank: .*?(\d+) B received")
PRODUCT = re.compile(r"graph\.(contract|conv\w*) .*?: \((.*?)\) -> tensor<([\dx]+)x\w+>")


class Mlp(Layers):
    def __init__(self, batch=512, widths=(512, 2048, 512, 2048, 512)):
        super().__init__(1)
        self.batch, self.widths = batch, widths

    def build(self):
        x = self.input("x", [self.batch, self.widths[0]])
        x = self.multilayer(x, self.widths, "layers", last=False)
        self.nodes[-1].output[0] = "logits"
        self.output("logits", [self.batch, self.widths[-1]])
        return self.model("mlp")


class Gpt(Layers):
    """Blocks of GPT-2 whose products keep batch and positions apart, as JAX programs do."""

    def __init__(self, batch=2, length=256, hidden=768, heads=12, layers=2, classes=1024):
        super().__init__(2)
        self.batch, self.length, self.hidden, self.heads = batch, length, hidden, heads
        self.layers, self.classes = layers, classes

    def gelu(self, x, name):
        cube = self.node("Mul", [self.node("Mul", [x, x], f"{name}.square"), x],
                         f"{name}.cube")
        small = self.node("Mul", [cube, self.scalar(f"{name}.c", 0.044715)], f"{name}.small")
        inner = self.node("Mul", [self.node("Add", [x, small], f"{name}.inner"),
                                  self.scalar(f"{name}.root", (2 / np.pi)**0.5)],
                          f"{name}.scaled")
        gate = self.node("Add", [self.node("Tanh", [inner], f"{name}.tanh"),
                                 self.scalar(f"{name}.one", 1)], f"{name}.gate")
        half = self.node("Mul", [x, self.scalar(f"{name}.half", 0.5)], f"{name}.halved")
        return self.node("Mul", [half, gate], name)

    def build(self):
        x = self.input("x", [self.batch, self.length, self.hidden])
        self.causal_mask(self.length)
        for layer in range(self.layers):
            name = f"h.{layer}"
            y = self.layer_norm(x, self.hidden, f"{name}.ln_1", 1e-5)
            parts = [self.split_heads(self.linear(y, self.hidden, self.hidden,
                                                  f"{name}.{part}"), self.batch,
                                      self.heads, self.hidden // self.heads,
                                      f"{name}.{part}") for part in "qkv"]
            y = self.attend(*parts, f"{name}.attn", scale=(self.hidden / self.heads)**-0.5,
                            mask="causal")
            y = self.linear(y, self.hidden, self.hidden, f"{name}.out")
            x = self.node("Add", [x, y], f"{name}.residual_1")
            y = self.layer_norm(x, self.hidden, f"{name}.ln_2", 1e-5)
            y = self.gelu(self.linear(y, self.hidden, 4 * self.hidden, f"{name}.fc"),
                          f"{name}.gelu")
            y = self.linear(y, 4 * self.hidden, self.hidden, f"{name}.proj")
            x = self.node("Add", [x, y], f"{name}.residual_2")
        x = self.layer_norm(x, self.hidden, "ln_f", 1e-5)
        head = self.weight("head.weight", self.draw(self.hidden, self.classes))
        self.node("MatMul", [x, head], "head", ["logits"])
        self.output("logits", [self.batch, self.length, self.classes])
        return self.model("gpt")


#: Seeds of GPT-2 whatever the axes: the first product of each half of a block by columns.
COLUMNS = {f"*.{part}.weight": [None, "tp"] for part in ("q", "k", "v", "fc")}
EXPERTS = {"*.moe.w?.weight": ["ep", None, None]}
#: Cases by name: a Builder, a mesh and seeds.
STEPS = {
    "mlp dp": (Mlp, "dp=4", {"x": ["dp", None]}),
    "mlp tp": (Mlp, "tp=4", {"layers.[02].weight": [None, "tp"]}),
    "mlp dp tp": (Mlp, "dp=2,tp=2", {"x": ["dp", None],
                                     "layers.[02].weight": [None, "tp"]}),
    "gpt2 dp": (Gpt, "dp=2", {"x": ["dp", None, None]}),
    "gpt2 tp": (Gpt, "tp=4", COLUMNS),
    "gpt2 dp tp": (Gpt, "dp=2,tp=2", {"x": ["dp", None, None], **COLUMNS}),
    "gpt2 rows tp=2": (Gpt, "tp=2", {"x": [None, "tp", None], **COLUMNS}),
    "gpt2 rows tp=4": (Gpt, "tp=4", {"x": [None, "tp", None], **COLUMNS}),
    "gpt2 rows dp tp": (Gpt, "dp=2,tp=2", {"x": ["dp", "tp", None], **COLUMNS}),
    "resnet18 dp": (lambda: ResNet(18, batch=8), "dp=4", {"images": ["dp", None, None, None]}),
    "resnet18 tp": (lambda: ResNet(18, batch=8), "tp=2",
                    {"*.conv_1.weight": ["tp", None, None, None]}),
    "resnet18 dp tp": (lambda: ResNet(18, batch=8), "dp=2,tp=2",
                       {"images": ["dp", None, None, None],
                        "*.conv_1.weight": ["tp", None, None, None]}),
    "resnet18 rows": (lambda: ResNet(18, batch=8), "h=2", {"images": [None, None, "h", None]}),
    "resnet18 rows 4": (lambda: ResNet(18, batch=8), "h=4",
                        {"images": [None, None, "h", None]}),
}


def small_moe():
    return Moe(hidden=256, heads=8, layers=2, experts=8, group=64, batch=8, length=64,
               vocabulary=2048)


def small_llama():
    return Llama(hidden=512, heads=8, key_heads=4, inner=1376, layers=2, vocabulary=2048,
                 batch=2, length=256)


INFERENCE = {
    "resnet50 rows": (lambda: ResNet(50, batch=1), "h=8", {"images": [None, None, "h", None]}),
    "moe ep": (small_moe, "ep=4", {"input_ids": ["ep", None], **EXPERTS}),
    "moe ep=8": (small_moe, "ep=8", {"input_ids": ["ep", None], **EXPERTS}),
    "moe dp ep": (small_moe, "dp=2,ep=4", {"input_ids": [["dp", "ep"], None], **EXPERTS}),
    "llama rows": (small_llama, "tp=8", {
        "embed_tokens_out": [None, "tp", None],
        **{f"*.{part}_proj.weight": [None, "tp"]
           for part in ("q", "k", "v", "gate", "up")}}),
    "llama only rows": (small_llama, "tp=8", {"embed_tokens_out": [None, "tp", None]}),
}


def lower(graph, mesh, seeds, trains):
    """JAX's program of one rank, as HLO text."""
    sizes = dict(part.split("=") for part in mesh.split(","))
    extents = [int(size) for size in sizes.values()]
    devices = np.array(jax.devices()[:int(np.prod(extents))]).reshape(extents)
    devices = Mesh(devices, tuple(sizes))

    def seeded(name):
        for glob, dims in seeds.items():
            if fnmatch.fnmatchcase(name, glob):
                return NamedSharding(devices, PartitionSpec(*dims))
        return None

    def abstract(name, shape, dtype):
        dtype = jnp.int32 if dtype == np.int64 else dtype
        return jax.ShapeDtypeStruct(shape, dtype, sharding=seeded(name))

    weights = {name: abstract(name, value.shape, value.dtype)
               for name, value in graph.weights.items() if name.endswith(PARAMETERS)}
    inputs = {name: abstract(name, *shape) for name, shape in graph.shapes.items()}

    def forward(weights, inputs):
        return graph.run({**inputs, **weights}, seeded)

    def loss(weights, inputs, labels):
        logits = forward(weights, inputs)
        chosen = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * chosen, -1))

    def step(weights, inputs, labels):
        value, gradients = jax.value_and_grad(loss)(weights, inputs, labels)
        new = {name: weights[name] - RATE * gradients[name] for name in weights}
        return value, {name: value if seeded(name) is None else
                       jax.lax.with_sharding_constraint(value, seeded(name))
                       for name, value in new.items()}

    if not trains:
        return jax.jit(forward).lower(weights, inputs).compile().as_text()
    shape = jax.eval_shape(forward, weights, inputs).shape[:-1]
    labels = jax.ShapeDtypeStruct(shape, jnp.int32)
    return jax.jit(step).lower(weights, inputs, labels).compile().as_text()


def theirs(model, mesh, seeds, trains):
    """Bytes that a rank receives, and operations of its products."""
    program = hlo.Program(lower(onnx_jax.Graph(model, trains), mesh, seeds, trains))
    return program.received()[0], program.multiplications()


def multiplications(text):
    """Operations of products and convolutions of a partitioned program."""
    total = 0
    for line in text.splitlines():
        if not (found := PRODUCT.search(line)):
            continue
        operands = [[int(n) for n in shape.split("x")]
                    for shape in re.findall(r"tensor<([\dx]+)x\w+>", found[2])]
        result = [int(n) for n in found[3].split("x")]
        if found[1] == "contract":
            equation = re.search(r'equation<"(.*?) ->', line)[1]
            loops = {}
            for dims, shape in zip(equation.split(","), operands):
                loops.update(zip(re.findall(r"\(.*?\)|\w+", dims), shape))
            total += 2 * math.prod(loops.values())
        elif found[1] == "conv_backward_filter":
            total += 2 * math.prod(operands[1]) * math.prod(result[1:])
        elif found[1] == "conv":
            total += 2 * math.prod(result) * math.prod(operands[1][1:])
        else:
            strides = re.search(r"strides = array<i64: ([\d, ]+)>", line)[1].split(", ")
            filters = operands[1][:1] + operands[1][2:]
            total += (2 * math.prod(result) * math.prod(filters) //
                      math.prod(int(n) for n in strides))
    return total


def ours(partita, model, mesh, seeds, trains):
    """The same of the program that Partita partitions."""
    with tempfile.TemporaryDirectory() as work:
        path, hints, spec = (os.path.join(work, name)
                             for name in ("model.onnx", "hints.json", "spec.json"))
        onnx.save(model, path)
        with open(hints, "w") as file:
            json.dump({"tensors": seeds}, file)
        with open(spec, "w") as file:
            json.dump({"loss": {"kind": "softmax_cross_entropy", "of": "logits",
                                "labels": "labels", "axis": -1},
                       "optimizer": {"kind": "sgd", "lr": RATE}}, file)
        done = subprocess.run(
            [partita, "compile", path, "--to", "L3", "--dump-dir", work, "--mesh", mesh,
             "--mode", "semi-auto", "--hints", hints, *(["--train", spec] if trains else [])],
            capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        with open(os.path.join(work, "03-partitioned.mlir")) as file:
            return (int(RECEIVED.search(done.stdout + done.stderr)[1]),
                    multiplications(file.read()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the cases")
    arguments = parser.parse_args()
    cases = INFERENCE if arguments.inference else STEPS
    if arguments.list:
        print("\n".join(f"{name:16} {mesh:10} {json.dumps(seeds)}"
                        for name, (_, mesh, seeds) in cases.items()))
        return
    for name in arguments.cases or cases:
        if name not in cases:
            parser.error(f"no case '{name}': {', '.join(cases)}")
        build, mesh, seeds = cases[name]
        model = build().build()
        mine = ours(arguments.partita, model, mesh, seeds, not arguments.inference)
        other = theirs(model, mesh, seeds, not arguments.inference)
        print(f"{name:16} {mesh:10} {mine[0]:12,} B of {other[0]:12,} B: "
              f"{mine[0] / other[0]:.3f};  {mine[1] / 1e9:7.3f} of {other[1] / 1e9:7.3f} "
              f"GFLOP: {mine[1] / other[1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
