#!/usr/bin/env python3
"""`partita run --eval`: the loss of rows that are held out, while a step trains.

usage: run_evaluation.py PARTITA PARTITA_RUN

Small networks are trained by several plans, with an evaluation and without one: losses and states
are the same, bit for bit. Each loss that an evaluation tells is the one that ONNX Runtime and
NumPy find for the model with the weights of that step's generation, whatever the number of rows.
The generation with the least loss stays, also where a run is killed and goes on; a session in
Python evaluates as `run` does; and what does not fit is told.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np
import onnxruntime
from onnx import TensorProto, numpy_helper

import tier
import training_models
from generations import files_of, states_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
import partita  # noqa: E402

SEED, ROWS, CLASSES, IGNORED = 11, 64, 8, -100
DP = ["--mesh", "dp=2", "--mode", "data-parallel"]


def dropping(path, batch=8):
    """A model as a framework exports it to train: a normalization by the batch, a dropout."""
    w = training_models.Writer(4)
    x = w.input("x", [batch, 3, 8, 8])
    x = w.op("Conv", [x, w.weight("conv.weight", 8, 3, 3, 3)], "conv", pads=[1] * 4)
    ones, zeros = np.ones(8), np.zeros(8)
    x = w.op("BatchNormalization",
             [x, w.weight("bn.weight", 8, value=ones), w.weight("bn.bias", 8, value=zeros),
              w.weight("bn.mean", 8, value=zeros), w.weight("bn.var", 8, value=ones)],
             "bn", outputs=3, training_mode=1)[0]
    w.weights.append(numpy_helper.from_array(np.array(True), "training"))
    w.weights.append(numpy_helper.from_array(np.array(0.5, np.float32), "ratio"))
    x = w.op("Dropout", [w.op("Relu", [x], "relu"), "ratio", "training"], "drop")
    x = w.op("Flatten", [w.op("GlobalAveragePool", [x], "mean")], "flat")
    x = w.op("Gemm", [x, w.weight("fc.weight", 8, CLASSES), w.weight("fc.bias", CLASSES)],
             "fc2")
    w.save(path, x, [batch, CLASSES])


def squared(path, batch=8):
    """A model that computes its loss."""
    w = training_models.Writer(5)
    x, t = w.input("x", [batch, 12]), w.input("labels", [batch, 8])
    y = w.op("MatMul", [x, w.weight("fc.weight", 12, 8)], "fc")
    d = w.op("Sub", [y, t], "difference")
    loss = w.op("ReduceMean", [w.op("Mul", [d, d], "square")], "total", keepdims=0)
    w.save(path, loss, [])


def positions(path):
    """A model of any number of rows, with any number of positions in each."""
    w = training_models.Writer(6)
    x = w.input("x", ["n", "length", 12])
    x = w.op("Tanh", [w.op("MatMul", [x, w.weight("fc1.weight", 12, 16)], "fc1")], "tanh")
    x = w.op("Add", [x, w.op("ReduceMean", [x], "mean", axes=[1], keepdims=1)], "add")
    x = w.op("MatMul", [x, w.weight("fc.weight", 16, CLASSES)], "fc2")
    w.save(path, x, ["n", "length", CLASSES])


def rows_of(model, count, seed, length=4):
    draw = np.random.default_rng(seed)
    if model == "positions":
        return {"x": draw.normal(0, 1, (count, length, 12)).astype(np.float32),
                "labels": np.where(draw.random((count, length)) < 0.3, IGNORED,
                                   draw.integers(0, CLASSES, (count, length)))}
    if model == "squared":
        return {"x": draw.normal(0, 1, (count, 12)).astype(np.float32),
                "labels": draw.normal(0, 1, (count, 8)).astype(np.float32)}
    if model in ("transformer", "tied"):
        return {"tokens": draw.integers(0, 40, (count, 8)),
                "labels": np.where(draw.random((count, 8)) < 0.3, IGNORED,
                                   draw.integers(0, 40, (count, 8)))}
    shape = (count, 12) if model == "mlp" else (count, 3, 8, 8)
    return {"x": draw.normal(0, 1, shape).astype(np.float32),
            "labels": np.where(draw.random(count) < 0.3, IGNORED,
                               draw.integers(0, CLASSES, count))}


def sums_of(loss, logits, labels):
    """The sum of a loss over what counts, and how much does, in f64."""
    logits = logits.astype(np.float64)
    if loss["kind"] == "mse":
        return ((logits - labels) ** 2).sum(), logits.size
    logs = logits - logits.max(-1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
    counts = labels != loss.get("ignore_index")
    places = np.where(counts, labels, 0)
    share = loss.get("label_smoothing", 0)
    each = (-(1 - share) * np.take_along_axis(logs, places[..., None], -1)[..., 0]
            - share * logs.mean(-1))
    return (each * counts).sum(), counts.sum()


class Work:
    """Bundles of the models, and runs of them in folders."""

    def __init__(self, compiler, run, folder):
        self.partita, self.command, self.folder, self.losses = compiler, run, folder, {}
        training_models.mlp(f"{folder}/mlp.onnx", batch=8)
        training_models.transformer(f"{folder}/transformer.onnx")
        training_models.transformer(f"{folder}/tied.onnx", tied=True)
        dropping(f"{folder}/dropping.onnx")
        squared(f"{folder}/squared.onnx")
        positions(f"{folder}/positions.onnx")
        for model in ("mlp", "transformer", "tied", "dropping", "squared", "positions"):
            np.savez(f"{folder}/{model}.npz", **rows_of(model, ROWS, 3))

    def compile(self, name, model, arguments=(), status=0, loss=None, evaluate=True, **more):
        self.losses[name] = loss = loss or {
            "kind": "softmax_cross_entropy", "labels": "labels", "axis": -1,
            "of": "head" if model in ("transformer", "tied") else "fc2",
            "ignore_index": IGNORED}
        spec = {"loss": loss, "optimizer": {"kind": "adamw", "lr": 0.02}, **more}
        if evaluate:
            spec["evaluate"] = True
        with open(f"{self.folder}/{name}.json", "w") as file:
            json.dump(spec, file)
        done = subprocess.run(
            [self.partita, "compile", f"{self.folder}/{model}.onnx", "-o",
             f"{self.folder}/{name}", "--train", f"{self.folder}/{name}.json", *arguments],
            capture_output=True, text=True)
        if done.returncode != status:
            raise RuntimeError(f"compile of {name}: {done.stderr}")
        return done.stdout + done.stderr

    def held(self, model, count, **more):
        path = f"{self.folder}/{model}-{count}.npz"
        np.savez(path, **rows_of(model, count, 4, **more))
        return path

    def ruled(self, name, count):
        """Rows of the small network whose labels follow from them."""
        path, data = f"{self.folder}/{name}.npz", rows_of("mlp", count, len(name))
        np.savez(path, x=data["x"], labels=data["x"][:, :CLASSES].argmax(1))
        return path

    def start(self, bundle, model, place, *words):
        return subprocess.Popen(
            [self.command, f"{self.folder}/{bundle}", "--data", f"{self.folder}/{model}.npz",
             "--seed", str(SEED), "--checkpoint-dir", f"{place}/c", "--log",
             f"{place}/log.jsonl", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, bundle, model, place, *words, status=0):
        """Runs to the end; the text that is printed."""
        process = self.start(bundle, model, place, *words)
        out, err = process.communicate(timeout=120)
        if process.returncode != status:
            raise RuntimeError(f"{words} on {bundle} ended with {process.returncode}: "
                               f"{out}{err}")
        return out + err

    def place(self, name):
        path = f"{self.folder}/places/{name}"
        os.makedirs(path)
        return path

    def tool(self, *words, status=0):
        done = subprocess.run([self.partita, *words], capture_output=True, text=True)
        if done.returncode != status:
            raise RuntimeError(f"{words} ended with {done.returncode}: {done.stderr}")
        return done.stdout + done.stderr

    def reference(self, bundle, generation, data, batch):
        """The loss by ONNX Runtime, a batch after the other and one by one at the end."""
        exported = f"{self.folder}/exported.onnx"
        self.tool("convert", generation, "--onnx", exported)
        quiet = onnxruntime.SessionOptions()
        quiet.log_severity_level = 3  # the constants of a dropout are left over
        session = onnxruntime.InferenceSession(exported, quiet,
                                               providers=["CPUExecutionProvider"])
        names = [item.name for item in session.get_inputs()]
        count, total, counted = len(data["labels"]), 0.0, 0
        for begin in range(0, count, batch):
            places = np.arange(begin, begin + batch)
            feed = {name: data[name].take(places % count, axis=0) for name in names}
            result = session.run(None, feed)[0]
            if not result.ndim:  # the loss itself
                total, counted = total + float(result), counted + 1
                continue
            fill = places < count
            sums = sums_of(self.losses[bundle], result[fill],
                           data["labels"][places[fill]])
            total, counted = total + sums[0], counted + sums[1]
        return total / counted


def log_of(place):
    with open(f"{place}/log.jsonl") as file:
        return [json.loads(line) for line in file]


def near(what, found, expected, within=1e-5):
    if not abs(found - expected) <= within * abs(expected):
        raise RuntimeError(f"{what}: {found} in place of {expected}")


def same_training(what, first, second, step):
    losses = [[it["loss"] for it in log_of(place)] for place in (first, second)]
    if losses[0] != losses[1]:
        raise RuntimeError(f"{what}: losses are {losses[0]} and {losses[1]}")
    one, other = states_of(first, step), states_of(second, step)
    for name in one:
        if one[name].tobytes() != other[name].tobytes():
            raise RuntimeError(f"{what}: '{name}' differs")


#: Model, rows that are held out, words of compile, members of the training file, words of run.
CASES = {
    "mlp": ("mlp", 13, [], {}, []),
    "few": ("mlp", 3, DP, {"optimizer_parallel": {"enable": True, "threshold_kb": 0}}, []),
    "tp": ("transformer", 11, ["--mesh", "tp=2"], {}, []),
    "zero2": ("dropping", 16, DP, {"optimizer_parallel": {
        "enable": True, "threshold_kb": 0, "level": 2}}, []),
    "zero3": ("dropping", 21, DP, {"optimizer_parallel": {
        "enable": True, "threshold_kb": 0, "level": 3}}, []),
    "parts": ("dropping", 19, DP, {"accumulation": 2, "clip_norm": 0.5,
                                   "on_nan": "skip", "loss_scale": "dynamic"}, []),
    "running": ("dropping", 9, [], {"batch_norm": "running", "parameters": {
        "freeze": ["conv.weight"]}}, []),
    "mpi": ("mlp", 13, ["--mesh", "dp=2"], {"gradient_norm": True}, ["--transport", "mpi"]),
    "smooth": ("mlp", 10, [], {"loss": {
        "kind": "softmax_cross_entropy", "of": "fc2", "labels": "labels", "reduction": "sum",
        "ignore_index": IGNORED, "label_smoothing": 0.1}}, []),
    "numbers": ("squared", 16, DP, {"loss": {"output": "total"}}, []),
    "staged": ("mlp", 11, ["--stages", "2", "--micro-batches", "2"], {}, []),
    # A table that the first and the last of four stages read, two stages on each rank.
    "folded": ("tied", 13, ["--stages", "4", "--groups", "2", "--schedule", "zb-v",
                            "--micro-batches", "4"], {"clip_norm": 0.5}, []),
    "staged-mpi": ("dropping", 19, [*DP, "--stages", "2"], {"accumulation": 2,
        "optimizer_parallel": {"enable": True, "threshold_kb": 0, "level": 3}},
                   ["--transport", "mpi"]),
}
# Bundles that the checks behind the cases use too; the quick tier deals the others.
SHARED = ("mlp", "few", "zero3", "numbers", "folded")
STEPS, EVERY = 5, 2


def check_case(work, name):
    model, count, words, more, how = CASES[name]
    work.compile(name, model, words, **more)
    held = work.held(model, count)
    places = [work.place(f"{name}-{kind}") for kind in ("without", "with")]
    usual = ["--steps", str(STEPS), "--save-every", "1", "--keep", "9", *how]
    work.run(name, model, places[0], *usual)
    told = work.run(name, model, places[1], *usual, "--eval", held, "--eval-every",
                    str(EVERY))
    same_training(name, *places, STEPS)
    found = {it["step"]: it["eval_loss"] for it in log_of(places[1]) if "eval_loss" in it}
    if list(found) != [2, 4, 5]:
        raise RuntimeError(f"{name}: evaluated behind {list(found)}")
    for step, loss in found.items():
        if f"step {step}, " not in told or f"eval loss {loss:.6g}, " not in told:
            raise RuntimeError(f"{name}: step {step} is not told: {told}")
        near(f"{name}, step {step}", loss, work.reference(
            name, f"{places[1]}/c/step-{step}", np.load(held), 8))
    if len(set(found.values())) == 1:
        raise RuntimeError(f"{name}: no loss differs: {found}")
    if name == "mlp":
        check_several(work, name, model, held, [*usual, "--eval-every", str(EVERY)], found)
    return places[1], held, found


def check_several(work, name, model, held, words, found):
    """Rows that are held out in several files give the losses of one file."""
    rows, place = np.load(held), work.place(f"{name}-several")
    count = len(rows[rows.files[0]])
    for part, (begin, end) in enumerate(((0, 1), (1, count // 2), (count // 2, count))):
        np.savez(f"{place}/held-{part}.npz", **{it: rows[it][begin:end] for it in rows.files})
    work.run(name, model, place, *words, "--eval", f"{place}/held-2.npz", "--eval",
             f"{place}/held-[01].npz")
    again = {it["step"]: it["eval_loss"] for it in log_of(place) if "eval_loss" in it}
    if again != found:
        raise RuntimeError(f"{name}: {again} by several files, {found} by one")


def check_tools(work):
    """Everything else reads a bundle of two entries."""
    check_stages(work)
    bundle = f"{work.folder}/few"
    for words in ([], ["--entry", "evaluate"], ["--entry", "main"]):
        if "equal" not in (text := work.tool("verify", bundle, *words)):
            raise RuntimeError(f"verify {words}: {text}")
        work.tool("report", bundle, *words, "--json")
    if "entries: 'main', 'evaluate'" not in (text := work.tool("report", bundle)):
        raise RuntimeError(text)
    plan = json.load(open(f"{bundle}/plan.json"))
    if [it.get("name", "main") for it in plan["entries"]] != ["main", "evaluate"]:
        raise RuntimeError("plan.json has other entries")
    stages = sorted(it for it in os.listdir(bundle) if it.endswith(".so"))
    if len(stages) != 2:
        raise RuntimeError(f"the programs are {stages}")
    model, _, words, more, _ = CASES["few"]
    # A plan of both is followed; its strategies are those of the plan.
    work.compile("again", model, [*words, "--plan", f"{bundle}/plan.json"], **more)
    again = json.load(open(f"{work.folder}/again/plan.json"))
    for one, other in zip(plan["entries"], again["entries"]):
        if one["stages"][0]["nodes"] != other["stages"][0]["nodes"]:
            raise RuntimeError(f"the plan of entry {one.get('name')} is not followed")
    for file in stages:
        with open(f"{bundle}/{file}", "rb") as a, open(f"{work.folder}/again/{file}",
                                                       "rb") as b:
            if a.read() != b.read():
                raise RuntimeError(f"'{file}' of the same plan differs")
    # A plan of the step alone leaves the evaluation open. Levels go on where they stand.
    work.compile("alone", model, words, evaluate=False, **more)
    work.compile("opened", model, [*words, "--plan", f"{work.folder}/alone/plan.json"],
                 **more)
    dump = f"{work.folder}/levels"
    work.compile("whole", model, [*words, "--dump-dir", dump], **more)
    for level in tier.sample("evaluation-levels", ("L2", "L3", "L4")):
        work.compile(f"from{level}", model, [*words, "--dump-dir", dump, "--from", level],
                     **more)
        if work.tool("run", f"{work.folder}/from{level}", "--data",
                     f"{work.folder}/{model}.npz", "--steps", "1", "--eval",
                     work.held(model, 5)).count("eval loss") != 1:
            raise RuntimeError(f"from {level}: no evaluation")
    weights = [sum(os.path.getsize(f"{work.folder}/{name}/{file}")
                   for file in os.listdir(f"{work.folder}/{name}") if "weights" in file)
               for name in ("few", "alone")]
    if weights[0] != weights[1]:
        raise RuntimeError(f"weights have {weights} bytes with and without evaluation")


def check_stages(work):
    """The evaluation of a pipeline is checked, told, and made by a plan as its step is."""
    for name in ("staged", "folded", "staged-mpi"):
        bundle, (model, _, words, more, _) = f"{work.folder}/{name}", CASES[name]
        if not os.path.exists(bundle):
            continue
        if "equal" not in (text := work.tool("verify", bundle, "--entry", "evaluate")):
            raise RuntimeError(f"verify {name}: {text}")
        work.tool("report", bundle, "--entry", "evaluate", "--json")
        work.compile(f"{name}-again", model, [*words, "--plan", f"{bundle}/plan.json"], **more)
        for file in sorted(it for it in os.listdir(bundle) if it.endswith(".so")):
            with open(f"{bundle}/{file}", "rb") as one, \
                    open(f"{bundle}-again/{file}", "rb") as other:
                if one.read() != other.read():
                    raise RuntimeError(f"{name}: '{file}' of the same plan differs")


def check_shapes(work):
    """A step of several shapes has an evaluation beside each, which reads the same states."""
    shapes = ["--shape", "n=8", "--shape", "length=4", "--shape", "n=4", "--shape", "length=6",
              "--shape", "n=6", "--shape", "length=4"]
    work.compile("shapes", "positions", [*DP, *shapes])
    steps = ["n=8 length=4", "n=4 length=6", "n=6 length=4"]
    with open(f"{work.folder}/shapes/plan.json") as file:
        names = [it["name"] for it in json.load(file)["entries"]]
    if names != [*steps, *(f"evaluate {name}" for name in steps)]:
        raise RuntimeError(f"the entries are {names}")
    usual = ["--save-every", "1", "--keep", "9", "--batch", "8"]
    plain, place = work.place("shapes-without"), work.place("shapes")
    work.run("shapes", "positions", plain, *usual, "--steps", "3")
    # Rows of the step's shape, and of another one.
    for count, length, words in ((13, 4, ["--steps", "3"]),
                                 (11, 6, ["--resume", "--steps", "6"])):
        held = work.held("positions", count, length=length)
        work.run("shapes", "positions", place, *usual, *words, "--eval", held,
                 "--eval-every", "1")
        if count == 13:
            same_training("several shapes", plain, place, 3)
        for it in log_of(place)[-3:]:
            near(f"shapes, step {it['step']}", it["eval_loss"], work.reference(
                "shapes", f"{place}/c/step-{it['step']}", np.load(held), 8))
        with partita.Session(f"{work.folder}/shapes") as session:
            session.load_checkpoint(f"{place}/c")
            near("shapes, Python", session.evaluate(dict(np.load(held))),
                 log_of(place)[-1]["eval_loss"], 1e-6)
    text = work.run("shapes", "positions", place, *usual, "--eval",
                    work.held("positions", 9, length=5), "--resume", status=1)
    if "expected rows of [4, 12]" not in text:
        raise RuntimeError(text)
    if "equal" not in (text := work.tool("verify", f"{work.folder}/shapes", "--entry",
                                         "evaluate n=4 length=6")):
        raise RuntimeError(text)
    # A plan of all entries is followed.
    work.compile("shapes-again", "positions", [
        *DP, *shapes, "--plan", f"{work.folder}/shapes/plan.json"])
    for file in sorted(it for it in os.listdir(f"{work.folder}/shapes") if it.endswith(".so")):
        with open(f"{work.folder}/shapes/{file}", "rb") as one, \
                open(f"{work.folder}/shapes-again/{file}", "rb") as other:
            if one.read() != other.read():
                raise RuntimeError(f"'{file}' of the same plan differs")
    text = work.compile("named", "positions", [
        "--shape", "evaluate n=1", "--shape", "evaluate n=2"], status=1)
    if "an entry named 'evaluate n=1' would be one that evaluates" not in text:
        raise RuntimeError(text)


def check_compute(work):
    """An inference in bf16 that is compiled apart from the step says the same."""
    work.compile("narrow", "dropping", DP, compute="bf16")
    held, place = work.held("dropping", 16), work.place("narrow")
    work.run("narrow", "dropping", place, "--steps", "3", "--eval", held)
    exported = f"{work.folder}/narrow.onnx"
    work.tool("convert", f"{place}/c/step-3", "--onnx", exported)
    partita.compile(exported, f"{work.folder}/inference", compute="bf16", threads=1,
                    **{"mesh": "dp=2", "mode": "data-parallel"})
    data, total, counted = np.load(held), 0.0, 0
    with partita.Session(f"{work.folder}/inference") as session:
        for begin in range(0, 16, 8):
            logits = session.run({"x": data["x"][begin:begin + 8]})["fc2"]
            sums = sums_of(work.losses["narrow"], logits, data["labels"][begin:begin + 8])
            total, counted = total + sums[0], counted + sums[1]
    near("bf16", log_of(place)[-1]["eval_loss"], total / counted)


def check_python(work, place, held, found):
    data = dict(np.load(held))
    with partita.Session(f"{work.folder}/zero3") as session:
        if set(session.entries) != {"main", "evaluate"} or session.entry != "main":
            raise RuntimeError(f"entries are {list(session.entries)}")
        session.load_checkpoint(f"{place}/c")
        before = {name: session.read_state(name) for name in session.states}
        near("Python", session.evaluate(data), found[STEPS], 1e-12)
        step = {name: value[:8] for name, value in data.items()}
        session.run(step)
        if session.entry != "main":
            raise RuntimeError(f"the session is about '{session.entry}'")
        near("Python, behind a step", session.evaluate(data), session.evaluate(data), 0)
        session.load_checkpoint(f"{place}/c")
        for name, value in before.items():
            if session.read_state(name).tobytes() != value.tobytes():
                raise RuntimeError(f"Python: '{name}' is another")
        for wrong, text in (
                ({"x": data["x"]}, "input 'labels' is missing"),
                ({**data, "y": data["x"]}, "there is no input 'y'"),
                ({**data, "labels": data["labels"][1:]}, "'x' has 21 rows and 'labels' 20"),
                ({**data, "x": data["x"][:, 1:]}, "expected rows of [3, 8, 8]"),
                ({name: value[:0] for name, value in data.items()}, "there are no rows"),
                ({**data, "labels": data["labels"] * 0 + IGNORED}, "no label counts"),
                ({**data, "x": data["x"].astype(np.float64)}, "expected float32")):
            try:
                session.evaluate(wrong)
                raise RuntimeError(f"Python: no error '{text}'")
            except partita.PartitaError as error:
                if text not in str(error):
                    raise RuntimeError(f"'{error}' in place of '{text}'") from error
    with partita.Session(f"{work.folder}/alone") as session:
        try:
            session.evaluate(data)
            raise RuntimeError("Python: a bundle without the entry evaluates")
        except partita.PartitaError as error:
            if "no entry 'evaluate'" not in str(error):
                raise


def best_of(place):
    with open(f"{place}/c/best-model/manifest.json") as file:
        return json.load(file)


def check_best(work):
    """The least loss of ten steps, of a rate at which losses rise and fall."""
    work.compile("best", "mlp", DP, optimizer={"kind": "adamw", "lr": 0.1})
    work.ruled("ruled", ROWS)
    held = work.ruled("held", 13)
    words = ["--steps", "10", "--eval", held, "--eval-every", "1", "--keep-best", "model",
             "--save-every", "4", "--keep", "1"]
    plain = work.place("best")
    work.run("best", "ruled", plain, *words)

    def check(what, place):
        log = log_of(place)
        if [it["step"] for it in log] != list(range(1, len(log) + 1)):
            raise RuntimeError(f"{what}: the log has {[it['step'] for it in log]}")
        least = min(log, key=lambda it: it["eval_loss"])
        manifest = best_of(place)
        if (manifest["step"], manifest["best"]["loss"]) != (least["step"],
                                                            least["eval_loss"]):
            raise RuntimeError(f"{what}: best-model is {manifest['best']}, the log has "
                               f"{least}")
        near(what, least["eval_loss"], work.reference("best", f"{place}/c/best-model",
                                                      np.load(held), 8))
        return least["step"]

    least = check("one run", plain)
    if not 1 < least < 10:
        raise RuntimeError(f"the least loss is that of step {least}, a poor test")
    if files_of(plain) != ["best-model", "step-10"]:
        raise RuntimeError(f"there are {files_of(plain)}")
    told = work.run("best", "ruled", work.place("weights"), "--steps", "1",
                    "--weights-from", f"{plain}/c/best-model")
    if "begins with the weights of" not in told:
        raise RuntimeError(f"weights of best-model: {told}")
    # Stopped behind any step, and gone on with, it keeps the same.
    for stop in (least - 1, least, least + 1):
        place = work.place(f"best-{stop}")
        work.run("best", "ruled", place, "--steps", str(stop), *words[2:])
        work.run("best", "ruled", place, *words, "--resume")
        if check(f"gone on behind {stop}", place) != least:
            raise RuntimeError(f"gone on behind {stop}: another step is best")
        same_training(f"gone on behind {stop}", plain, place, 10)
    check_killed(work, words, plain, check, least)
    check_second_name(work, words, held, plain, least)


def check_killed(work, words, plain, check, least):
    place = work.place("killed")
    for tries in range(3):
        process = work.start("best", "ruled", place, *words, *(["--resume"] if tries else []))
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:
            lines = (open(f"{place}/log.jsonl").read().count("\n")
                     if os.path.exists(f"{place}/log.jsonl") else 0)
            if lines > 2 * tries:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        process.communicate()
    work.run("best", "ruled", place, *words, "--resume")
    if check("killed", place) != least:
        raise RuntimeError("killed: another step is best")
    same_training("killed", plain, place, 10)


def check_second_name(work, words, held, plain, least):
    """A second name that a crash has left out, one that is lost, and other rows."""
    place = work.place("named")
    work.run("best", "ruled", place, "--steps", str(least), *words[2:])
    shutil.rmtree(f"{place}/c/best-model")
    work.run("best", "ruled", place, *words, "--resume")
    if best_of(place)["step"] != least:
        raise RuntimeError(f"the name of step {least} is not given again")
    shutil.rmtree(f"{place}/c/best-model")
    told = work.run("best", "ruled", place, "--steps", "11", *words[2:], "--resume")
    if "had the least loss and is gone" not in told or best_of(place)["step"] != 11:
        raise RuntimeError(f"a name that is lost: {told}")
    other = ["--steps", "12", "--eval", work.ruled("other", 14), *words[4:], "--resume"]
    told = work.run("best", "ruled", place, *other, status=1)
    if "has a least loss on other rows to evaluate on (13 rows, " not in told:
        raise RuntimeError(f"other rows: {told}")
    work.run("best", "ruled", place, *other, "--allow-change", "data")
    if best_of(place)["step"] != 12:
        raise RuntimeError("other rows: the least loss is not looked for anew")
    # A run without the option keeps what is there, and what is known.
    known = best_of(plain)["best"]
    work.run("best", "ruled", plain, "--steps", "11", "--resume")
    with open(f"{plain}/c/step-11/manifest.json") as file:
        if json.load(file)["best"] != known:
            raise RuntimeError("a run without --keep-best forgets the least loss")
    for step in ("10", "11"):
        shutil.rmtree(f"{plain}/c/step-{step}", ignore_errors=True)
    told = work.run("best", "ruled", plain, *words, "--resume", status=1)
    if "no generation beside it" not in told:
        raise RuntimeError(told)


def check_interrupted(work):
    """An evaluation that a signal leaves out is made where the run goes on."""
    words = ["--steps", "5", "--eval", work.ruled("many", 8000), "--eval-every", "3",
             "--keep-best", "model", "--keep", "1", "--resume"]
    for tries in range(10):  # a busy machine may not signal in time
        place = work.place(f"interrupted-{tries}")
        process = work.start("best", "ruled", place, *words)
        wait_for_lines(process, place, 2)
        time.sleep(0.02)  # the evaluation of step 3 takes longer
        process.send_signal(signal.SIGTERM)
        told = "".join(process.communicate(timeout=60))
        if process.returncode == 143 and "eval_loss" not in log_of(place)[-1] and len(
                log_of(place)) == 3:
            break
    else:
        raise RuntimeError(f"no evaluation was interrupted: {process.returncode}, {told}")
    manifest = f"{place}/c/step-3/manifest.json"
    owed = json.load(open(manifest))
    if not owed.get("owes_evaluation") or os.path.exists(f"{place}/c/best-model"):
        raise RuntimeError(f"the generation owes nothing: {owed}")
    # The same number of steps: nothing but the evaluation is left to do.
    told = work.run("best", "ruled", place, "--steps", "3", *words[2:])
    data = np.load(f"{work.folder}/many.npz")
    loss = work.reference("best", f"{place}/c/step-3", data, 8)
    near("interrupted", log_of(place)[2]["eval_loss"], loss)
    if (len(log_of(place)) != 3 or "step 3: eval loss" not in told
            or json.load(open(manifest)).get("owes_evaluation") or best_of(place)["step"] != 3):
        raise RuntimeError(f"the evaluation is not made: {told}")
    work.run("best", "ruled", place, *words)
    whole = work.place("whole")
    work.run("best", "ruled", whole, *words)
    losses = [[line.get("eval_loss") for line in log_of(it)] for it in (place, whole)]
    if losses[0] != losses[1] or sum(loss is not None for loss in losses[0]) != 2:
        raise RuntimeError(f"evaluated were {losses}")


def wait_for_lines(process, place, count):
    """Waits until the log of a run has so many lines."""
    path, deadline = f"{place}/log.jsonl", time.monotonic() + 60
    while not os.path.exists(path) or open(path).read().count("\n") < count:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the log gets no line {count}: {process.communicate()}")
        time.sleep(0.001)


def check_elastic(work):
    """A world of a bundle evaluates as the bundle does."""
    work.compile("worlds", "mlp", ["--mesh", "dp=2", "--mesh", "dp=1", "--mode",
                                   "data-parallel"])
    held, place = work.held("mlp", 13), work.place("worlds")
    work.run("worlds", "mlp", place, "--elastic", "1..2", "--steps", "2", "--eval", held,
             "--eval-every", "1", "--save-every", "1", "--keep-best", "model")
    # Fewer ranks go on.
    work.run("worlds", "mlp", place, "--elastic", "1..1", "--steps", "4", "--eval", held,
             "--eval-every", "1", "--save-every", "1", "--keep-best", "model", "--resume")
    log = log_of(place)
    for step in (2, 4):
        near(f"worlds, step {step}", log[step - 1]["eval_loss"], work.reference(
            "worlds", f"{place}/c/step-{step}", np.load(held), 8))


def check_metrics(work):
    place, held = work.place("metrics"), work.held("mlp", 13)
    process = work.start("mlp", "mlp", place, "--epochs", "100000", "--eval", held,
                         "--eval-every", "3", "--metrics", "0")
    try:
        address = ""
        while not address:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(process.communicate()[1])
            found = re.search(r"http://\S+", line)
            address = found.group() if found else ""
        deadline, page = time.monotonic() + 30, ""
        while "partita_eval_loss " not in page and time.monotonic() < deadline:
            with urllib.request.urlopen(address, timeout=10) as reply:
                page = reply.read().decode()
        step = int(re.search(r"^partita_eval_step (\d+)$", page, re.MULTILINE).group(1))
        loss = float(re.search(r"^partita_eval_loss (\S+)$", page, re.MULTILINE).group(1))
        if log_of(place)[step - 1]["eval_loss"] != loss:
            raise RuntimeError(f"metrics of step {step}: {loss}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    if process.returncode != 143:
        raise RuntimeError(f"SIGTERM ended the run with {process.returncode}")


def check_errors(work):
    data = rows_of("mlp", 9, 4)
    files = {"lacks": {"x": data["x"]}, "type": {**data, "x": data["x"].astype(np.float64)},
             "shape": {**data, "x": data["x"][:, 1:]},
             "empty": {name: value[:0] for name, value in data.items()},
             "uneven": {**data, "labels": data["labels"][1:]},
             "ignored": {**data, "labels": data["labels"] * 0 + IGNORED}, "good": data}
    for name, arrays in files.items():
        np.savez(f"{work.folder}/{name}.npz", **arrays)
    np.savez(f"{work.folder}/ten.npz", **rows_of("squared", 10, 4))

    def refused(text, *words, bundle="mlp", model="mlp", checkpoints=True, status=1):
        place = f"{work.folder}/places/refused"
        keeps = ["--checkpoint-dir", place] if checkpoints else []
        done = subprocess.run(
            [work.command, f"{work.folder}/{bundle}", "--data",
             f"{work.folder}/{model}.npz", *keeps, *words], capture_output=True, text=True)
        if done.returncode == 0 or text not in done.stderr or os.path.exists(place):
            raise RuntimeError(f"{words}: status {done.returncode}, '{done.stderr}' in "
                               f"place of '{text}'")

    def held(name, *words):
        return ["--eval", f"{work.folder}/{name}.npz", *words]

    refused("has no tensor 'labels'", *held("lacks"))
    refused("has element type f64, expected f32", *held("type"))
    refused("expected rows of [12]", *held("shape"))
    refused("empty.npz' has no rows", *held("empty"))
    refused("has 9 rows of 'x' and 8 of 'labels'", *held("uneven"))
    refused("no label counts", *held("ignored"))
    refused("none.npz", *held("none"))
    refused("10 rows, which batches of 8 do not divide", *held("ten"), bundle="numbers",
            model="squared")
    refused("has no entry 'evaluate'; compile it with \"evaluate\": true", *held("good"),
            bundle="alone", model="mlp")
    refused("the entry 'evaluate' trains nothing", *held("good"), "--entry", "evaluate",
            "--input", f"row_weights={work.folder}/weights.npz")
    refused("--eval-every", *held("good", "--eval-every", "0"))
    refused("--eval-every requires --eval", "--eval-every", "2")
    for name in ("a/b", "", ".tmp-1", "a b"):
        refused(f"'{name}' is no name for best-NAME", *held("good", "--keep-best", name))
    refused("--keep-best requires --checkpoint-dir", *held("good", "--keep-best", "model"),
            checkpoints=False)
    refused("--keep-best requires --eval", "--keep-best", "model")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita"), parser.add_argument("run")
    parser.add_argument("--only", help="one of the cases", choices=CASES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partita-evaluation-") as folder:
        work = Work(given.partita, given.run, folder)
        np.savez(f"{folder}/weights.npz", row_weights=np.ones(8, np.float32))
        known = {}
        for name in [given.only] if given.only else tier.sample(
                "evaluation", CASES, kind=lambda it: it if it in SHARED else "dealt"):
            known[name] = check_case(work, name)
            print(f"{name}: {known[name][2]}", flush=True)
        for check in () if given.only else (check_tools, check_shapes, check_compute,
                      lambda it: check_python(it, *known["zero3"]), check_best,
                      check_interrupted, check_elastic, check_metrics, check_errors):
            begin = time.monotonic()
            check(work)
            print(f"{getattr(check, '__name__', 'check')}: "
                  f"{time.monotonic() - begin:.1f} s", flush=True)
    print("evaluation: passed")


if __name__ == "__main__":
    main()
