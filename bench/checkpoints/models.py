#!/usr/bin/env python3
"""Checkpoints of GPT-2 and ResNet-18 (tiny): plans that go on in each other, runs that are killed.

usage: models.py PARTITA PARTITA_RUN [--models gpt2,resnet18] [--steps 50] [--kills 20] [--no-pairs]
                 [--no-exports] [--seed 1] [--transport local]

Each model is trained by six plans (dp=2, tp=2, dp=2 with tp=2, optimizer parallel of levels 1, 2
and 3). A generation of each goes on in each other one: its states are those that were saved, bit
for bit, and losses of all steps are within 1e-4 of a run on one rank, with the same epochs.
ResNet-18 is in f64 for that: in f32 an operand of a ReLU within rounding of 0 now and then takes
another branch, and losses differ by 1e-3 from then on, as they do between vectors of 256 and 512
bits on one rank. The model that `convert` makes of each plan's generation is the one that `run
--export` writes. Then runs of dp, tp and level 3 that save every step are killed (kill -9) at drawn
moments (`--kills` for each plan and transport): the command, a process of it, or all; what goes on
ends with the losses and states of a run that was not killed, bit for bit, and no generation is
lost. test/E2E/run_checkpoints.py and kills.py have the checks, and a smaller model for every day.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "test", "E2E")]
import run_checkpoints as checks  # noqa: E402
from run_pipelines import OPTIMIZERS, PUBLISHED, RATES, published  # noqa: E402

DATA_PARALLEL = ["--mode", "data-parallel"]
PLANS = {
    "dp": (["--mesh", "dp=2", *DATA_PARALLEL], {}),
    "tp": (["--mesh", "tp=2", "--hints", "megatron"], {}),
    "dp-tp": (["--mesh", "dp=2,tp=2", "--hints", "megatron"], {}),
    **{f"zero{level}": (["--mesh", "dp=2", *DATA_PARALLEL], {"level": level})
       for level in (1, 2, 3)},
}
KILLED = [(plan, transport) for plan in ("dp", "tp", "zero3") for transport in ("local", "mpi")]


#: The optimizer that each model is usually trained by, at rates that keep the rounding of sums small.
OPTIMIZERS_OF = {"gpt2": "adamw", "resnet18": "momentum"}


def in_double(write):
    """The same model with f64 in place of f32."""
    def wide(path):
        drawn, labels, classes = write(path)
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            if tensor.data_type == TensorProto.FLOAT:
                tensor.CopyFrom(numpy_helper.from_array(
                    numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
        for value in [*model.graph.input, *model.graph.output]:
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
        del model.graph.value_info[:]
        onnx.save(model, path)
        return drawn, labels, classes
    return wide


def rows(draws, inputs, labels, classes):
    """Batches of a model's own, one behind the other: no epoch ends in the middle of one."""
    count = 12
    data = {name: np.concatenate([draw(draws) for _ in range(count)])
            for name, draw in inputs.items()}
    data["labels"] = draws.integers(0, classes, (count * labels[0], *labels[1:]))
    return data


def prepared(arguments, name, folder, double):
    """Bundles of all plans, and the losses of a run on each."""
    write, kind = published(PUBLISHED[name]), OPTIMIZERS_OF[name]
    draw = rows if not double else lambda *of: {
        name: value.astype(np.float64) if value.dtype == np.float32 else value
        for name, value in rows(*of).items()}
    work = checks.Work(arguments.partita, arguments.run, folder, checks.Subject(
        in_double(write) if double else write, draw, "logits",
        {**OPTIMIZERS[kind], "lr": RATES[kind]}))
    reference = {}
    for plan, (words, parallel) in {"one": ([], {}), **PLANS}.items():
        work.compile(plan, words, parallel)
        work.run(plan, work.place(f"reference-{plan}"), "--steps",
                 str(max(arguments.steps, 40)))
        reference[plan] = checks.losses(f"{folder}/places/reference-{plan}")
    return work, reference


def check_pairs(arguments, name, double):
    with tempfile.TemporaryDirectory() as folder:
        work, reference = prepared(arguments, name, folder, double)
        for plan in PLANS:
            work.run(plan, work.place(f"from-{plan}"), "--steps", "6", "--save-every", "3")
        pairs = [(a, b) for a in PLANS for b in PLANS if a != b]
        largest = max(checks.move(work, a, b, reference["one"], arguments.steps)
                      for a, b in pairs)
        print(f"{name}: {len(pairs)} pairs of plans, {arguments.steps} steps, losses within "
              f"{largest:.1e}", flush=True)


def check_exports(arguments, name):
    """The model of a generation, and that of the run that has written it."""
    with tempfile.TemporaryDirectory() as folder:
        work, _ = prepared(arguments, name, folder, False)
        for plan in PLANS:
            place = work.place(f"exported-{plan}")
            files = [f"{place}/{way}.onnx" for way in ("run", "convert")]
            work.run(plan, place, "--steps", "4", "--export", files[0],
                     program=[work.partita, "run"])
            subprocess.run([work.partita, "convert", f"{place}/c", "--onnx", files[1]],
                           check=True, capture_output=True)
            run, converted = ({tensor.name: numpy_helper.to_array(tensor)
                               for tensor in onnx.load(file).graph.initializer}
                              for file in files)
            if run.keys() != converted.keys():
                raise RuntimeError(f"{name}, {plan}: initializers are others")
            checks.same(f"{name}, {plan}", run, converted)
        print(f"{name}: convert and --export are the same for {len(PLANS)} plans", flush=True)


def check_kills(arguments, name, draw):
    # On a disk that others use, most of the time would go into generations.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        work, reference = prepared(arguments, name, folder, False)
        for plan, transport in KILLED:
            if arguments.transport not in (None, transport):
                continue
            begin = time.time()
            checks.check_kills(work, plan, transport, draw, arguments.kills, reference[plan])
            print(f"{name}: {time.time() - begin:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("run")
    parser.add_argument("--models", default="gpt2,resnet18")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pairs", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--exports", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--transport", choices=("local", "mpi"), help="of kills: of this one alone")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    for name in arguments.models.split(","):
        if arguments.pairs:
            check_pairs(arguments, name, name == "resnet18")
        if arguments.exports:
            check_exports(arguments, name)
        if arguments.kills:
            check_kills(arguments, name, draw)


if __name__ == "__main__":
    main()
