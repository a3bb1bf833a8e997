"""Published rows as what `partita plan --price` is asked: a model without weights, a mesh,
a cluster, a training step. Nothing is searched: mesh, rule, ZeRO level, micro-batches and
recompute are those that the source states."""
import collections
import csv
import hashlib
import json
import os
import random
import re
import subprocess
import sys

import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
import layers  # noqa: E402,F401  the path of build_gpt2
import specs  # noqa: E402
from layers import builder  # noqa: E402

#: Seed of the quarter of vTrain's rows to which constants are fitted.
SEED = 2021
#: Part of each layer that selective recompute repeats (Korthikanti et al. 2023).
SCORES = [f"h.*.attn.{part}" for part in ("scores", "scaled", "masked", "softmax",
                                          "mixed")]
#: Vocabulary of vTrain's rows, which do not say one: GPT-2's, padded as Megatron does.
VOCABULARY = 51200


def read(name):
    with open(os.path.join(HERE, name)) as file:
        return list(csv.DictReader(file))


def groups():
    """Rows without a pipeline, by the part that they have in the comparison."""
    rows = [row for row in read("steps.csv") if row["pp"] == "1"]

    def of(source, **members):
        return [row for row in rows if source in row["source"]
                and all(row[key] == value for key, value in members.items())]
    vtrain = of("ground_truth_single")
    random.Random(SEED).shuffle(vtrain)
    quarter = len(vtrain) // 4
    return {"fitted": vtrain[:quarter], "vtrain": vtrain[quarter:],
            "vtrain-64": of("ground_truth_multi"),
            "sc21": of("SC'21 Table 1"),
            "korthikanti": of("Korthikanti", model="GPT-22B")}


def seconds(row):
    """The measured step. SC'21 states TFLOP/s per GPU by its formula (3), which counts
    what is computed again."""
    if row["measured"] == "step_s":
        return float(row["value"])
    layers_, hidden, length, batch, words, gpus = (
        int(row[key]) for key in ("layers", "hidden", "seq", "global_batch", "vocab",
                                  "gpus"))
    flops = 96 * batch * length * layers_ * hidden ** 2 * (
        1 + length / (6 * hidden) + words / (16 * layers_ * hidden))
    return flops / (float(row["value"]) * 1e12 * gpus)


def cluster(row, constants):
    """Servers of 8 A100, one HDR adapter per device. `constants` is the name of a stack,
    or what a fit tries: {"device": …, "link": …, "network": …, "stack": …}."""
    gpus = int(row["gpus"])
    tried = {} if isinstance(constants, str) else constants
    levels = [{"name": "nvlink", "preset": "nvlink3", "size": min(gpus, 8),
               **tried.get("link", {})}]
    if gpus > 8:
        levels.append({"name": "network", "preset": "hdr", "size": gpus // 8,
                       **tried.get("network", {})})
    return {"device": {"preset": "A100-80GB", **tried.get("device", {})},
            "levels": levels, "stack": tried.get("stack", constants)}


def step(row):
    """The training step of Megatron with Adam in mixed precision."""
    micro = int(row["micro_batch"]) * int(row["dp"])
    recompute = row["recompute"]
    return {"loss": {"kind": "softmax_cross_entropy", "of": "logits", "labels": "labels",
                     "axis": -1},
            "optimizer": {"kind": "adamw", "lr": 1e-4}, "clip_norm": 1.0,
            "accumulation": int(row["global_batch"]) // micro, "compute": "bf16",
            "recompute": [{"nodes": "h.*"}] if recompute.startswith("full") else
            [{"nodes": SCORES}] if recompute.startswith("selective") else "none"}


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
        batch = int(row["micro_batch"]) * int(row["dp"])
        sizes = dict(hidden=int(row["hidden"]), heads=int(row["heads"]),
                     layers=int(row["layers"]), length=int(row["seq"]), batch=batch,
                     vocabulary=int(row["vocab"] or VOCABULARY))
        path = os.path.join(self.folder, "gpt-" + "-".join(map(str, sizes.values()))
                            + ".onnx")
        if not os.path.exists(path):
            class Absent(builder.AbsentWeights, specs.Gpt3):
                location = "absent.data"
            onnx.save(Absent(**sizes).build(), path)
        return path

    def command(self, row, constants):
        command = [self.partita, "plan", self.model(row), "--price", "--mesh",
                   f"dp={row['dp']},tp={row['tp']}", "--cluster",
                   self._file(cluster(row, constants)), "--train",
                   self._file(step(row))]
        if row["tp"] != "1":
            rule = "megatron-sp" if "SP" in row["recompute"] else "megatron"
            command += ["--hints", rule + ":tp"]
        return command

    def price(self, row, constants):
        """Predicted times of a step."""
        done = subprocess.run(self.command(row, constants), capture_output=True,
                              text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-500:])
        step = _seconds(re.search(r"^step: (\S+ \S+) =", done.stdout, re.M)[1])
        passes = re.findall(r"(?:again|backward|update) (\S+ \S+) in (\d+) launches",
                            done.stdout)
        return Price(step, [(_seconds(time), int(count)) for time, count in passes])
