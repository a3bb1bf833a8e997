"""Published rows as what `partita plan --price` is asked: a model without weights, a mesh,
a cluster, a training step (megatron.py, fsdp.py). Nothing is searched: mesh, rule, ZeRO
level, micro-batches and recompute are those that the source states."""
import collections
import csv
import hashlib
import json
import os
import random
import re
import subprocess

import onnx

import fsdp
import megatron

HERE = os.path.dirname(os.path.abspath(__file__))
#: Seed of the quarters of rows to which constants are fitted.
SEED = 2021


def read(name):
    with open(os.path.join(HERE, name)) as file:
        return list(csv.DictReader(file))


def groups():
    """Rows without a pipeline, by the part that they have in the comparison."""
    rows = [row for row in read("steps.csv") if row["pp"] == "1"]

    def of(source, **members):
        return [row for row in rows if source in row["source"]
                and all(row[key] == value for key, value in members.items())]

    def drawn(some):
        """The seeded quarter, and the others."""
        random.Random(SEED).shuffle(some)
        quarter = max(1, round(len(some) / 4))
        return some[:quarter], some[quarter:]
    vtrain = drawn(of("ground_truth_single"))
    maxtext = drawn(of("(MaxText)", dtype="bf16"))
    torchtitan = drawn(of("torchtitan", dtype="bf16", tp="1"))
    return {"fitted": vtrain[0], "vtrain": vtrain[1],
            "vtrain-64": of("ground_truth_multi"),
            "sc21": of("SC'21 Table 1"),
            "korthikanti": of("Korthikanti", model="GPT-22B"),
            "fsdp-fitted": maxtext[0] + torchtitan[0],
            "fsdp": maxtext[1] + torchtitan[1],
            "fsdp-7b": of("JAX-Toolbox docs/frameworks/maxtext", tp="1", zero_level="FSDP"),
            "fsdp-tp": of("torchtitan", dtype="bf16", tp="8")}


def asked(row):
    """The module that says how a row is asked."""
    return fsdp if fsdp.system(row) else megatron


def seconds(row):
    """The measured step. SC'21 states TFLOP/s per GPU by its formula (3), which counts
    what is computed again."""
    if row["measured"] == "step_s":
        return float(row["value"])
    layers_, hidden, length, batch, words, gpus = (
        int(row[key]) for key in ("layers", "hidden", "seq", "global_batch", "vocab",
                                  "gpus"))
    if row["measured"] == "tokens_per_s_per_gpu":
        return batch * length / gpus / float(row["value"])
    flops = 96 * batch * length * layers_ * hidden ** 2 * (
        1 + length / (6 * hidden) + words / (16 * layers_ * hidden))
    return flops / (float(row["value"]) * 1e12 * gpus)


#: Seconds of a step; of its passes (forward with what is computed again, backward,
#: update) those of the device and its links, and what the host starts.
Price = collections.namedtuple("Price", "step passes")
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}


def _seconds(text):
    value, unit = text.split()
    return float(value) * UNITS[unit]


class Pricer:
    """Prices rows with one compiler; files lie in `folder`, each model once."""

    def __init__(self, partita, folder):
        self.partita, self.folder = partita, folder

    def _file(self, value):
        text = json.dumps(value, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:16] + ".json"
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(text)
        return path

    def model(self, row):
        module = asked(row)
        sizes = module.sizes(row)
        path = os.path.join(self.folder, module.__name__ + "-" + "-".join(
            map(str, sizes.values())) + ".onnx")
        if not os.path.exists(path):
            onnx.save(module.Model(**sizes).build(), path)
        return path

    def command(self, row, constants=None):
        """`constants`: what a fit tries, {"device": …, "link": …, "network": …, "stack":
        …}; or the name of a stack, by default the row's."""
        module = asked(row)
        if not isinstance(constants, dict):
            constants = {"stack": constants or module.stack(row)}
        return [self.partita, "plan", self.model(row), "--price", "--mesh",
                module.mesh(row), "--cluster", self._file(module.cluster(row, constants)),
                "--train", self._file(module.step(row)), *module.hints(row)]

    def price(self, row, constants=None):
        """Predicted times of a step."""
        done = subprocess.run(self.command(row, constants), capture_output=True,
                              text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-500:])
        step = _seconds(re.search(r"^step: (\S+ \S+) =", done.stdout, re.M)[1])
        passes = re.findall(r"(?:again|backward|update) (\S+ \S+) in (\d+) launches",
                            done.stdout)
        return Price(step, [(_seconds(time), int(count)) for time, count in passes])
