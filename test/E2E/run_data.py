#!/usr/bin/env python3
"""`partita run --data`: steps on the rows of a file, against a loop of NumPy's.

usage: run_data.py PARTITA_OPT PARTITA

The step is the one of run_training_step.py. Its losses over three epochs are those of a loop
over the same order of rows, on 1, 2 and 4 ranks, threads and MPI; a run that stops and goes on
is one run; what it exports is a model that ONNX Runtime runs with the trained weights; what is
wrong is told.
"""
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import run_training_step as step
from states import read_states

ROWS, SEED = 100, 11


def documented_order():
    """`order` as docs/data.md has it."""
    with open(os.path.join(step.ROOT, "docs/data.md")) as file:
        code = re.search(r"```python\n(.*?)```", file.read(), re.DOTALL).group(1)
    names = {}
    exec(code, names)
    return names["order"]


def write_states(path, values):
    header, data = {}, b""
    for name, value in values.items():
        bytes_ = np.asarray(value, np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(np.shape(value)),
                        "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Bundle:
    def __init__(self, opt, partita, work, plan, ranks):
        self.command, self.work = partita, work
        self.path = f"{work}/bundle-{plan}-{ranks}"
        text, states = step.module("adam")
        for name, content in (("step.mlir", text),
                              ("hints.json", json.dumps(step.hints(plan, states, 1)))):
            with open(f"{work}/{name}", "w") as file:
                file.write(content)
        subprocess.run(
            [opt, f"{work}/step.mlir",
             f"--partita-shard=mesh=dp={ranks} mode=semi-auto hints={work}/hints.json",
             "--partita-insert-reshards", "--partita-verify-planned",
             f"--partita-check-bundle=keep={self.path} compare=false", "-o", "/dev/null"],
            check=True, capture_output=True)

    def start(self, *words, states="states"):
        """With states that begin as `draw` has them, unless they are there."""
        folder = f"{self.work}/{states}"
        if not os.path.exists(folder):
            os.mkdir(folder)
            write_states(f"{folder}/state.safetensors",
                         step.draw(step.module("adam")[1], np.random.default_rng(3)))
        usual = {"--data": f"{self.work}/train.npz", "--seed": str(SEED),
                 "--state-dir": folder, "--log": f"{folder}/log.jsonl"}
        words = [word for option, value in usual.items() if option not in words
                 for word in (option, value)] + list(words)
        if "--state-dir" in words and not words[words.index("--state-dir") + 1]:
            at = words.index("--state-dir")
            words[at:at + 2] = []
        return subprocess.Popen([self.command, "run", self.path, *words],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words, states="states"):
        """The losses, the states at the end, and what was printed."""
        process = self.start(*words, states=states)
        out, err = process.communicate()
        if process.returncode:
            raise RuntimeError(err)
        with open(f"{self.work}/{states}/log.jsonl") as file:
            log = [json.loads(line) for line in file]
        if [it["step"] for it in log] != list(range(1, len(log) + 1)):
            raise RuntimeError(f"steps of the log are {[it['step'] for it in log]}")
        if set(log[0]) != {"step", "epoch", "loss", "seconds", "samples_per_second",
                           "memory"}:
            raise RuntimeError(f"a line of the log is {log[0]}")
        return ([it["loss"] for it in log],
                read_states(f"{self.work}/{states}/state.safetensors")[0], out)


def expected_losses(data, steps, order, pad=False):
    numpy = step.Numpy("adam", step.draw(step.module("adam")[1],
                                         np.random.default_rng(3)))
    per_epoch = -(-ROWS // step.BATCH) if pad else ROWS // step.BATCH
    losses = []
    for k in range(steps):
        rows, at = order(ROWS, SEED, k // per_epoch), k % per_epoch * step.BATCH
        rows = [rows[i % ROWS] for i in range(at, at + step.BATCH)]
        losses.append(numpy.step(*(data[name][rows].astype(np.float64)
                                   for name in ("x", "labels"))))
    return losses


def check_order(order):
    for rows in (1, 2, 24, 100):
        if sorted(order(rows, SEED, 3)) != list(range(rows)):
            raise RuntimeError(f"the order of {rows} rows is no order")
    if order(100, 1, 0) == order(100, 1, 1) or order(100, 1, 0) == order(100, 2, 0):
        raise RuntimeError("the order does not depend on seed or epoch")


def check_stopped(bundle, losses):
    """A run that is killed has left the states of a step at which they were due."""
    process = bundle.start("--steps", "1000000", "--save-every", "5", states="stopped")
    log = f"{bundle.work}/stopped/log.jsonl"
    end = time.time() + 60
    while time.time() < end and process.poll() is None:
        if os.path.exists(log) and len(open(log).readlines()) > 30:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    steps = read_states(f"{bundle.work}/stopped/state.safetensors")[1].get("steps")
    if steps is None or int(steps) < 25 or int(steps) % 5:
        raise RuntimeError(f"{steps} steps are behind the states of a run that was killed")


def forward_model(path, external):
    """The network of the step without its loss, untrained."""
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["z"]),
             helper.make_node("Relu", ["z"], ["h"]),
             helper.make_node("Gemm", ["h", "w2", "b2"], ["y"]),
             helper.make_node("Mul", ["y", "scale"], ["scaled"])]
    values = {name: np.zeros(shape, np.float32) for name, shape in step.SHAPES.items()}
    values["scale"] = np.full(step.CLASSES, 3, np.float32)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                                   ["n", step.INPUTS])],
        [helper.make_tensor_value_info("scaled", TensorProto.FLOAT, ["n", step.CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in values.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                ir_version=8), path,
              save_as_external_data=external, size_threshold=0,
              location=os.path.basename(path) + ".weights")


def check_export(bundle, data):
    """With the states of a folder; and with those of the run alone, which begin as zeros."""
    zeros = {name: np.zeros(shape) for name, shape in step.module("adam")[1].items()}
    os.mkdir(f"{bundle.work}/zeros")
    write_states(f"{bundle.work}/zeros/state.safetensors", zeros)
    for start, external in (("exported", False), ("zeros", True)):
        model, out = (f"{bundle.work}/{name}-{start}.onnx" for name in ("forward", "trained"))
        forward_model(model, external)
        export = ["--steps", "3", "--model", model, "--export", out]
        _, states, text = bundle.run(*(["--steps", "3"] if external else export),
                                     states=start)
        if external:
            command = bundle.start(*export, "--transport", "mpi", "--state-dir", "")
            text, err = command.communicate()
            if command.returncode:
                raise RuntimeError(err)
        if f"4 trained tensors in {out}" not in text:
            raise RuntimeError(text)
        onnx.checker.check_model(out, full_check=True)
        actual = onnxruntime.InferenceSession(out).run(None, {"x": data["x"]})[0]
        w = {name: states[name].reshape(shape).astype(np.float64)
             for name, shape in step.SHAPES.items()}
        y = np.maximum(data["x"] @ w["w1"] + w["b1"], 0) @ w["w2"] + w["b2"]
        step.close("the exported model", actual, 3 * y)
    found = sorted(name for name in os.listdir(bundle.work) if name.startswith("trained"))
    if found != ["trained-exported.onnx", "trained-zeros.onnx", "trained-zeros.onnx.data"]:
        raise RuntimeError(f"exporting left {found}")


def check_errors(bundle, data):
    def failure(*words, status=1):
        process = bundle.start(*words, states="wrong")
        out, err = process.communicate()
        if process.returncode != status:
            raise RuntimeError(f"{words} ended with {process.returncode}: {out}{err}")
        return err.strip().split("error: ")[-1]

    def says(expected, actual):
        if not re.search(expected, actual):
            raise RuntimeError(f"expected {expected!r}, got {actual!r}")

    def of(**arrays):
        np.savez(f"{bundle.work}/bad.npz", **arrays)
        return failure("--data", f"{bundle.work}/bad.npz")

    x, labels = data["x"], data["labels"]
    says(r"^input 'labels': '.*bad.npz' has no tensor 'labels'; it has x$", of(x=x))
    says(r"^'.*bad.npz' has 100 rows of 'x' and 99 of 'labels'$",
         of(x=x, labels=labels[1:]))
    says(r"^'.*bad.npz' has 20 rows, fewer than a batch of 24; --last pad repeats rows$",
         of(x=x[:20], labels=labels[:20]))
    says(r"^'.*bad.npz' has no rows$", of(x=x[:0], labels=labels[:0]))
    says(r"^input 'x': '.*bad.npz' has shape \[100, 11\], expected rows of \[12\]$",
         of(x=x[:, 1:], labels=labels))
    says(r"^input 'x': '.*bad.npz' has element type f64, expected f32$",
         of(x=x.astype(np.float64), labels=labels))
    np.savez_compressed(f"{bundle.work}/bad.npz", x=x, labels=labels)
    says(r"^input 'x': '.*bad.npz': 'x' is compressed; save it with numpy.savez$",
         failure("--data", f"{bundle.work}/bad.npz"))
    np.save(f"{bundle.work}/one.npy", x[:24])
    np.save(f"{bundle.work}/two.npy", labels[:24])
    says("^--batch 25: the bundle takes batches of 24$", failure("--batch", "25"))
    says("^--data takes no --repeat$", failure("--repeat", "2"))
    says("^--data takes no --inputs-dir$", failure("--inputs-dir", bundle.work))
    says("^cannot write '/nowhere/log.jsonl': No such file",
         failure("--log", "/nowhere/log.jsonl"))
    says("there is no input that it could be for$",
         failure(*(word for name, file in (("x", "one"), ("labels", "two"))
                   for word in ("--input", f"{name}={bundle.work}/{file}.npy"))))
    says("steps", failure("--steps", "0", status=2))
    forward_model(f"{bundle.work}/small.onnx", False)
    small = onnx.load(f"{bundle.work}/small.onnx")
    del small.graph.initializer[0].dims[:]
    small.graph.initializer[0].dims.extend([step.HIDDEN, step.INPUTS])
    onnx.save(small, f"{bundle.work}/small.onnx")
    out, at = ["--export", f"{bundle.work}/out.onnx"], f"{bundle.work}/small.onnx"
    says("^'.*small.onnx' is a file of the model itself; export under another name$",
         failure("--export", at, "--model", at))
    says("^cannot write '/proc/x/out.onnx'", failure("--export", "/proc/x/out.onnx"))
    says(r"^initializer 'w1' of '.*small.onnx' is f32\[48, 12\], but the state of this name "
         r"is f32\[12, 48\]; the states are in '.*/after'$",
         failure(*out, "--model", at, "--state-dir", f"{bundle.work}/after"))
    if os.path.exists(out[1]) or not os.path.exists(f"{bundle.work}/after/state.safetensors"):
        raise RuntimeError("an export that failed left a file, or no states")
    for kept in ("out.onnx.states", "out.onnx.states-2"):
        says(f"; the states are in '.*/{kept}'$", failure(*out, "--model", at, "--state-dir", ""))
        if os.listdir(f"{bundle.work}/{kept}") != ["state.safetensors"]:
            raise RuntimeError(f"{kept} has {os.listdir(bundle.work + '/' + kept)}")
    if aside := [name for name in os.listdir(bundle.work) if ".tmp-" in name]:
        raise RuntimeError(f"an export that failed left {aside}")
    says("^cannot write '/dev/null': it is not a regular file$",
         failure("--export", "/dev/null"))
    os.remove(f"{bundle.work}/wrong/log.jsonl")
    if sorted(os.listdir(f"{bundle.work}/wrong")) != ["state.safetensors"]:
        raise RuntimeError(f"a run that failed left {os.listdir(bundle.work + '/wrong')}")


def check_model_lost(partita, work):
    """The model is the one that the plan names; a bundle without states trains nothing."""
    forward_model(f"{work}/lost.onnx", False)
    subprocess.run([partita, "compile", f"{work}/lost.onnx", "-o", f"{work}/lost", "--mesh",
                    "dp=1", "--shape", "n=24"], check=True, capture_output=True)
    command = [partita, "run", f"{work}/lost", "--data", f"{work}/train.npz", "--export",
               f"{work}/found.onnx"]
    # As a run leaves it that was killed.
    os.mkdir(f"{work}/found.onnx.states.tmp-0123456789abcdef")
    for expected in ("the bundle has no states for '.*'; compile it with --state or --train",
                     f"the bundle's model '{work}/lost.onnx' is not there; --model says "
                     "where it is now"):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 1 or not re.fullmatch(f"error: {expected}\n", done.stderr):
            raise RuntimeError(f"expected {expected}, got {done.stdout}{done.stderr}")
        if any(name.startswith("found") for name in os.listdir(work)):
            raise RuntimeError(f"exporting left something in {os.listdir(work)}")
        if os.path.exists(f"{work}/lost.onnx"):
            os.remove(f"{work}/lost.onnx")


def check_several(bundle, data, losses):
    """Rows in several files are those of one file that has them in the order of the names."""
    cuts = {"part-1": (0, 30), "part-10": (30, 31), "part-2": (31, 31), "part-3": (31, ROWS)}
    for name, (begin, end) in cuts.items():
        np.savez(f"{bundle.work}/{name}.npz",
                 **{key: value[begin:end] for key, value in data.items()})
    given = [["--data", f"{bundle.work}/part-*.npz"],
             [word for name in ("part-3", "part-2", "part-10", "part-1", "part-3")
              for word in ("--data", f"{bundle.work}/{name}.npz")]]
    for k, (words, transport) in enumerate(zip(given, ("local", "mpi"))):
        several, _, _ = bundle.run("--steps", "12", "--transport", transport, *words,
                                   states=f"several-{k}")
        if several != losses:
            raise RuntimeError(f"{words}: the losses are not those of one file")
    np.savez(f"{bundle.work}/part-2.npz", x=data["x"][:5], labels=data["labels"][:4])
    for pattern, expected in (("part-*", r"part-2.npz' has 5 rows of 'x' and 4 of 'labels'$"),
                              ("none-*", r"--data: there is no file '.*none-\*.npz'$")):
        process = bundle.start("--data", f"{bundle.work}/{pattern}.npz", states="wrong")
        _, err = process.communicate()
        if process.returncode != 1 or not re.search(expected, err.strip()):
            raise RuntimeError(f"{pattern} ended with {process.returncode}: {err}")


def main():
    opt, partita = sys.argv[1:3]
    order = documented_order()
    check_order(order)
    random = np.random.default_rng(5)
    data = {"x": random.normal(0, 1, (ROWS, step.INPUTS)).astype(np.float32),
            "labels": np.eye(step.CLASSES, dtype=np.float32)[
                random.integers(0, step.CLASSES, ROWS)]}
    with tempfile.TemporaryDirectory() as work:
        np.savez(f"{work}/train.npz", unused=np.zeros(3), **data)
        expected = expected_losses(data, 12, order)
        padded = expected_losses(data, 12, order, pad=True)
        for plan, ranks in (("whole", 1), ("level1", 2), ("level3", 4)):
            bundle = Bundle(opt, partita, work, plan, ranks)
            losses, states, out = bundle.run("--epochs", "3", states=f"local-{ranks}")
            step.close(f"losses on {ranks}", np.array(losses), np.array(expected))
            if not re.search(r"^step 1, epoch 1: loss [\d.]+, [\d.]+ samples/s$", out,
                             re.M) or not re.search(r"^step 12, epoch 3: ", out, re.M):
                raise RuntimeError(f"the lines are\n{out}")
            over_mpi, states_mpi, _ = bundle.run("--steps", "12", "--epochs", "9",
                                                 "--transport", "mpi", "--batch", "24",
                                                 states=f"mpi-{ranks}")
            for name in states:
                if losses != over_mpi or (states[name] != states_mpi[name]).any():
                    raise RuntimeError(f"{ranks} ranks over MPI are not those of threads")
            print(f"{plan} on {ranks} ranks: 12 steps equal", flush=True)
        bundle.run("--steps", "5", states="parts")
        losses_parts, states_parts, _ = bundle.run("--steps", "7", "--save-every", "2",
                                                   states="parts")
        if losses_parts != losses or any((states[name] != states_parts[name]).any()
                                         for name in states):
            raise RuntimeError("5 steps and 7 more are not 12 steps")
        check_several(bundle, data, losses)
        losses, _, _ = bundle.run("--steps", "12", "--last", "pad", states="pad")
        step.close("losses with --last pad", np.array(losses), np.array(padded))
        # One input is the same in every step.
        np.save(f"{work}/one.npy", data["x"][:24])
        bundle.run("--steps", "2", "--input", f"x={work}/one.npy", states="fixed")
        check_stopped(bundle, losses)
        check_export(bundle, data)
        check_errors(bundle, data)
        check_model_lost(partita, work)
        print("in parts, of several files, padded, stopped, exported, wrong: as they should be")


if __name__ == "__main__":
    main()
