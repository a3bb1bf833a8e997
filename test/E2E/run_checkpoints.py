#!/usr/bin/env python3
"""`partita run --checkpoint-dir`: training that is killed, stopped, moved to another plan.

usage: run_checkpoints.py PARTITA PARTITA_RUN [--kills N] [--seed S]

A small network is compiled for several plans (dp, tp, optimizer parallel of every level) and
trained with a generation after every step. Runs that are killed at drawn moments and go on have the
losses, the log and the states of a run that was not, bit for bit; a generation of any plan goes
on in any other; a full disk, a folder that cannot be written, signals and what does not fit are
told, and leave the generations that there are.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import re
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

import tier
import training_models
from commands import await_steps, ends_with, says
from disks import check_disks, check_full_log
from generations import losses, same, states_of, steps_of
from kills import check_kills, descendants
from states import read_states

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
import partita  # noqa: E402

ROWS, SEED = 100, 11
PLANS = {
    "one": ([], {}),
    "dp": (["--mesh", "dp=2", "--mode", "data-parallel"], {}),
    "tp": (["--mesh", "tp=2"], {}),
    "zero1": (["--mesh", "dp=2", "--mode", "data-parallel"], {"level": 1}),
    "zero2": (["--mesh", "dp=2", "--mode", "data-parallel"], {"level": 2}),
    "zero3": (["--mesh", "dp=2", "--mode", "data-parallel"], {"level": 3}),
    "dp3": (["--mesh", "dp=3", "--mode", "data-parallel"], {"level": 3}),
}


@dataclasses.dataclass
class Subject:
    """A model to train.

    `write` makes its file and returns, as those of training_models.MODELS do, a draw of each
    input, the shape of the labels and the number of classes; `rows` makes ROWS rows of that.
    """
    write: typing.Callable
    rows: typing.Callable
    output: str
    optimizer: dict


MLP = Subject(training_models.mlp, lambda draws, inputs, labels, classes: {
    "x": draws.normal(0, 1, (ROWS, 12)).astype(np.float32),
    "labels": draws.integers(0, classes, ROWS)}, "fc2", {"kind": "adamw", "lr": 0.01})


class Work:
    """Bundles of one model, and runs of them in folders."""

    def __init__(self, compiler, run, folder, subject=None):
        self.partita, self.command, self.folder = compiler, run, folder
        self.subject = subject or MLP
        self.data = self.subject.rows(np.random.default_rng(5),
                                      *self.subject.write(f"{folder}/model.onnx"))
        np.savez(f"{folder}/train.npz", **self.data)

    def compile(self, name, arguments, parallel, model="model", **more):
        spec = {"loss": {"kind": "softmax_cross_entropy", "of": self.subject.output,
                         "labels": "labels", "axis": -1},
                "optimizer": self.subject.optimizer, **more}
        if parallel:
            spec["optimizer_parallel"] = {"enable": True, "threshold_kb": 0, **parallel}
        with open(f"{self.folder}/spec.json", "w") as file:
            json.dump(spec, file)
        done = subprocess.run(
            [self.partita, "compile", f"{self.folder}/{model}.onnx", "-o",
             f"{self.folder}/{name}", "--train", f"{self.folder}/spec.json", *arguments],
            capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)

    def start(self, bundle, place, *words, program=None, **options):
        """`place` has the generations and the log."""
        usual = {"--data": f"{self.folder}/train.npz", "--seed": str(SEED),
                 "--checkpoint-dir": f"{place}/c", "--log": f"{place}/log.jsonl"}
        words = [word for option, value in usual.items() if option not in words
                 for word in (option, value)] + list(words)
        command = [self.command] if program is None else program
        return subprocess.Popen([*command, f"{self.folder}/{bundle}", *words],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                **options)

    def run(self, bundle, place, *words, status=0, **options):
        """What is printed."""
        process = self.start(bundle, place, *words, **options)
        out, err = process.communicate(timeout=300)
        if process.returncode != status:
            raise RuntimeError(f"{words} on {bundle} ended with {process.returncode}: "
                               f"{out}{err}")
        return out + err

    def place(self, name):
        path = f"{self.folder}/places/{name}"
        os.makedirs(path)
        return path


def move(work, a, b, reference, steps):
    """A generation of plan `a` goes on in plan `b`, behind the same states; the largest difference
    of a loss from the reference."""
    place = f"{work.folder}/places/{a}-{b}"
    shutil.copytree(f"{work.folder}/places/from-{a}", place)
    text = work.run(b, place, "--steps", str(steps), "--resume", "--keep", "9")
    says(rf"^goes on behind step 6 of '.*/step-6': [\d.]+ [KM]iB read by \d ranks, at most "
         r"[\d.]+ [KM]iB by one$", text)
    largest = 0
    for (epoch, loss), (expected_epoch, expected) in zip(losses(place), reference,
                                                         strict=False):
        largest = max(largest, abs(loss - expected))
        if epoch != expected_epoch or largest > 1e-4:
            raise RuntimeError(f"{a} to {b}: loss {loss}, expected {expected}")
    # States that were read are written again as they were, before a step is made.
    again = work.place(f"{a}-{b}-again")
    shutil.copytree(f"{place}/c/step-6", f"{again}/c/step-6")
    work.run(b, again, "--steps", "6", "--resume")
    same(f"{a} to {b}", states_of(place, 6), states_of(again, 6))
    if len(losses(place)) != steps or steps_of(place) != [3, 6, steps]:
        raise RuntimeError(f"{a} to {b} has steps {steps_of(place)}")
    return largest


def check_plans(work, plans, reference):
    """A generation of each plan goes on in each other one."""
    order = list(plans)
    pairs = [(a, b) for a in order for b in order if a != b]
    for plan in order:
        work.run(plan, work.place(f"from-{plan}"), "--steps", "6", "--save-every", "3")
    for a, b in tier.sample("checkpoint-plans", pairs, kind=lambda pair: pair[0]):
        move(work, a, b, reference, 9)
    print(f"{len(plans)} plans go on in each other", flush=True)


def check_reads(work):
    """Sharded states are read once, replicated ones by every rank."""
    read = {plan: re.search(r": ([\d.]+) KiB read", work.run(
        plan, f"{work.folder}/places/from-{plan}", "--steps", "6", "--resume"))
        for plan in ("one", "dp", "zero3")}
    whole, twice, once = (float(read[plan][1]) for plan in ("one", "dp", "zero3"))
    if abs(twice - 2 * whole) > 0.05 or abs(once - whole) > 0.05:
        raise RuntimeError(f"{whole}, {twice} and {once} KiB were read")


def check_parts(work):
    """Whether states are sharded or not, ranks write equal bytes."""
    for plan in ("dp", "zero3", "dp3"):
        with open(f"{work.folder}/places/from-{plan}/c/step-6/manifest.json") as file:
            sizes = [part["bytes"] for part in json.load(file)["parts"]]
        if max(sizes) > 1.1 * min(sizes):
            raise RuntimeError(f"parts of {plan} have {sizes} bytes")


def kill_below(process, signals=(signal.SIGKILL,), between=lambda: None):
    """Sends signals to a rank, or all of them, once there is one: a process that has threads."""
    end = time.time() + 30
    while time.time() < end and process.poll() is None:
        for pid in descendants(process.pid):
            try:
                with open(f"/proc/{pid}/comm") as file:
                    name = file.read()
                if name.startswith("partita") and len(os.listdir(f"/proc/{pid}/task")) > 1:
                    for k, number in enumerate(signals):
                        if k > 0:
                            between()
                        os.kill(pid, number)
                    return
            except OSError:
                continue
        time.sleep(0.01)


def check_restarts(work, reference):
    """A run that loses a rank goes on by itself; one that cannot ends with 75, an error with
    1."""
    lost = (r"^lost at \d{4}-\d\d-\d\dT[\d:]+Z: rank \d.*: the process was killed by signal 9 "
            r"\(Killed\).*; [\d.]+ s behind the last start, of which [\d.]+ s are lost since "
            r"step \d+ was saved; starts again in 1 s, 1 of 2$")
    for transport in ("local", "mpi"):
        place = work.place(f"restarts-{transport}")
        words = ["--steps", "1000000000", "--save-every", "5", "--transport", transport,
                 "--restarts", "2"]
        process = work.start("zero3", place, *words)
        await_steps(process, place, 20)
        for _ in range(2):
            saved = steps_of(place)[-1]
            kill_below(process)
            end = time.time() + 60
            while steps_of(place)[-1] <= saved + 20 and time.time() < end:
                time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        text = ends_with(process, 143)
        if len(re.findall(lost, text, re.MULTILINE)) != 2:
            raise RuntimeError(f"two losses are told as {text}")
        made = min(len(losses(place)), len(reference))
        if losses(place)[:made] != reference[:made]:
            raise RuntimeError(f"{transport}: losses are not those of a run that lost nothing")
    # Nothing new is saved in between: the limit.
    place = work.place("restarts-none")
    process = work.start("zero3", place, "--steps", "1000000000", "--restarts", "1")
    for _ in range(2):
        await_steps(process, place, 3)
        kill_below(process)
        os.remove(f"{place}/log.jsonl")
    text = ends_with(process, 75)
    says(r"^lost at .* are lost since the begin, as nothing is saved; starts again in 1 s, 1 of "
         "1$", text)
    says(r"^error: rank \d.*signal 9 \(Killed\); started again 1 time without a new generation "
         r"\(--restarts\)$", text)
    # Nobody starts again what was asked to stop.
    for transport in ("local", "mpi"):
        place = work.place(f"restarts-stopped-{transport}")
        process = work.start("zero3", place, "--steps", "1000000000", "--transport", transport,
                             "--restarts", "9")
        await_steps(process, place, 3)

        def ask(process=process):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)

        kill_below(process, (signal.SIGSTOP, signal.SIGKILL), ask)
        text = ends_with(process, 75)
        says(r"^error: rank \d.*signal 9 \(Killed\)$", text)
        if "lost at" in text:
            raise RuntimeError(text)
    # An error is none that another start would mend.
    text = work.run("zero3", work.place("restarts-error"), "--data", "nothing.npz", "--restarts",
                    "9", status=1)
    if "lost at" in text:
        raise RuntimeError(text)
    print("losses of ranks: told, and gone on from the newest generation", flush=True)


def check_signals(work, reference):
    for transport, sent, status in (("local", signal.SIGTERM, 143),
                                    ("local", signal.SIGINT, 130),
                                    ("mpi", signal.SIGTERM, 143),
                                    ("mpi", signal.SIGINT, 130)):
        place = work.place(f"signal-{transport}-{sent}")
        words = ["--transport", transport, "--resume"]
        process = work.start("zero3", place, "--steps", "1000000000", *words)
        await_steps(process, place, 5)
        process.send_signal(sent)
        text = ends_with(process, status)
        says(f"^note: stopped by {sent.name}; --resume goes on$", text)
        made = len(losses(place))
        if steps_of(place) != [made]:
            raise RuntimeError(f"{made} steps, but {steps_of(place)} are saved")
        count = min(made + 5, len(reference))
        work.run("zero3", place, "--steps", str(made + 5), *words)
        if losses(place)[:count] != reference[:count]:
            raise RuntimeError("losses are not those of a run that was never stopped")
    # No time to save: the folder is as it was.
    place = work.place("grace")
    work.run("zero3", place, "--steps", "3")
    process = work.start("zero3", place, "--steps", "1000000000", "--resume", "--grace", "0")
    await_steps(process, place, 5)
    process.send_signal(signal.SIGTERM)
    says(r"^error: ended, as the run did not stop within 0 s of SIGTERM \(--grace\)$",
         ends_with(process, 143))
    if steps_of(place) != [3]:
        raise RuntimeError(f"{steps_of(place)} are saved")
    # The user's own mpirun.
    place = work.place("own")
    mpirun = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", work.command]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    process = work.start("zero3", place, "--steps", "1000000000", program=mpirun,
                         env=environment)
    await_steps(process, place, 5)
    process.send_signal(signal.SIGUSR1)
    ends_with(process, 143)
    if steps_of(place) != [len(losses(place))]:
        raise RuntimeError(f"{len(losses(place))} steps, but {steps_of(place)} are saved")
    text = work.run("zero3", work.place("own-again"), "--restarts", "1", program=mpirun,
                    env=environment, status=1)
    says("^error: --restarts: ranks that an mpirun has started cannot start it again$", text)
    # Ranks that find other files would train on other rows.
    place = work.place("own-files")
    for rank, rows in enumerate((96, 90)):
        os.mkdir(f"{place}/{rank}")
        np.savez(f"{place}/{rank}/t.npz", **{name: value[:rows]
                                             for name, value in work.data.items()})
    text = work.run("zero3", place, "--steps", "4", "--data", "t*.npz", program=[
        *mpirun[:-1], "sh", "-c", f'cd {place}/$OMPI_COMM_WORLD_RANK && exec "$0" "$@"',
        work.command], env=environment, status=1)
    says("--data: ranks find other rows than rank 0, which has 96: the files that the option "
         "names must be the same for all$", text)
    print("SIGTERM and SIGINT: saved behind one step", flush=True)


def check_fits(work, reference):
    """What may differ where a run goes on, and what may not."""
    base = work.place("fits")
    work.run("dp", base, "--steps", "3")

    def go_on(bundle, *words, status=1):
        place = f"{work.folder}/places/fits-again"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(base, place)
        return work.run(bundle, place, "--steps", "5", "--resume", *words, status=status)

    np.savez(f"{work.folder}/other.npz", x=work.data["x"] + 1, labels=work.data["labels"])
    np.savez(f"{work.folder}/more.npz", **{name: np.concatenate([value, value[:1]])
                                           for name, value in work.data.items()})
    shutil.copy(f"{work.folder}/train.npz", f"{work.folder}/moved.npz")
    dp = PLANS["dp"][0]
    work.compile("lr", dp, {}, optimizer={"kind": "adamw", "lr": 1})
    work.compile("scheduled", dp, {}, schedule={"kind": "constant", "warmup_steps": 2})
    work.compile("kind", dp, {}, optimizer={"kind": "adam", "lr": 0.01})
    # A step equal to it, with defaults written out, and with what is no part of the step.
    work.compile("written", dp, {}, schedule={"kind": "constant"}, seed=0, compute="f32",
                 batch_norm="batch", gradients="mean", on_nan="stop",
                 comm_fusion={"openstate": False})
    training_models.mlp(f"{work.folder}/wide.onnx", batch=30)
    work.compile("wide", dp, {}, model="wide")
    work.compile("smooth", dp, {}, loss={
        "kind": "softmax_cross_entropy", "of": "fc2", "labels": "labels", "axis": -1,
        "label_smoothing": 0.1})
    other = f"{work.folder}/other.npz"
    for bundle, words, name, was, now, by in (
            ("dp", ["--seed", "12"], "seed", "11", "12", "seed"),
            ("dp", ["--data", other], r"data \(hash of a sample\)", r"\w+", r"\w+", "data"),
            ("dp", ["--data", f"{work.folder}/more.npz"], "number of rows", "100", "101",
             "data"),
            ("dp", ["--last", "pad"], "--last", "drop", "pad", "data"),
            ("wide", [], "batch", "24", "30", "batch"),
            ("lr", [], "optimizer/lr", "0.01", "1", "optimizer"),
            ("kind", [], "optimizer/kind", '"adamw"', '"adam"', "optimizer"),
            ("scheduled", [], "schedule/warmup_steps", "0", "2", "schedule"),
            ("smooth", [], "loss/label_smoothing", "0", "0.1", None)):
        remedy = f"--allow-change {by} goes on with it" if by else \
            "a run goes on with the same one only"
        says(f"^error: '.*/step-3' was written with {name} {was}, this run has {now}; "
             f"{remedy}$", go_on(bundle, *words))
        if not by:
            continue
        says(f"^goes on with another {name}: {was} becomes {now}$",
             go_on(bundle, *words, "--allow-change", f"seed,{by}", status=0))
        with open(f"{work.folder}/places/fits-again/c/step-5/manifest.json") as file:
            changes = json.load(file)["changes"]
        if changes[0]["step"] != 3 or not re.fullmatch(name, changes[0]["name"]):
            raise RuntimeError(f"the changes are {changes}")
    go_on("dp", "--data", f"{work.folder}/moved.npz", status=0)
    go_on("written", status=0)
    # Another batch goes on behind the same examples: 72 of the first epoch were taken.
    go_on("wide", "--allow-change", "batch", status=0)
    if [epoch for epoch, _ in losses(f"{work.folder}/places/fits-again")] != [1] * 3 + [2] * 2:
        raise RuntimeError("28 rows are no batch of 30")
    changed = onnx.load(f"{work.folder}/model.onnx")
    for tensor in changed.graph.initializer:
        if tensor.name == "fc1.weight":
            tensor.CopyFrom(numpy_helper.from_array(
                numpy_helper.to_array(tensor) * np.float32(2), tensor.name))
    onnx.save(changed, f"{work.folder}/changed.onnx")
    work.compile("changed", dp, {}, model="changed")
    says(r"^error: '.*/step-3' was written with model \(hash of its parameters\) \w+, this "
         "run has .*; a run goes on with the same one only$", go_on("changed"))
    work.compile("sgd", dp, {}, optimizer={"kind": "sgd", "lr": 0.01})
    says("^error: '.*/step-3' has a state '.*', which the bundle has not; it was written with "
         'optimizer/kind "adamw", this run has "sgd"$', go_on("sgd"))
    print("what does not fit is told, by both values", flush=True)


def check_kept(work):
    """A damaged generation is none of those that are kept, and what somebody else put beside
    them stays. A generation is no folder of generations."""
    place = work.place("kept")
    work.run("dp", place, "--steps", "12", "--save-every", "4", "--keep", "9")
    os.truncate(f"{place}/c/step-12/part-0.safetensors", 300)
    os.mkdir(f"{place}/c/step-1")
    with open(f"{place}/c/step-99", "w") as file:
        file.write("notes")
    words = ["--steps", "16", "--save-every", "100", "--keep", "2", "--resume"]
    says("'.*step-12' is skipped: ", work.run("dp", place, *words))
    there = sorted(name for name in os.listdir(f"{place}/c") if name.startswith("step-"))
    if there != ["step-1", "step-12", "step-16", "step-8", "step-99"]:
        raise RuntimeError(f"two generations, a damaged one and what was there: {there}")
    before = sorted(os.listdir(f"{place}/c/step-16"))
    says("^error: '.*/step-16' is a generation itself; expected the folder of a run's "
         "generations$", work.run("dp", place, *words, "--checkpoint-dir",
                                  f"{place}/c/step-16", status=1))
    if sorted(os.listdir(f"{place}/c/step-16")) != before:
        raise RuntimeError("the generation was written to")


def check_infinite(work):
    """No generation is written of a step that gave no number, on threads and over MPI."""
    work.compile("infinite", PLANS["dp"][0], {}, optimizer={"kind": "sgd", "lr": 1e20})
    for transport in ("local", "mpi"):
        place = work.place(f"infinite-{transport}")
        text = work.run("infinite", place, "--steps", "6", "--save-every", "1", "--keep",
                        "9", "--transport", transport)
        finite = [step for step, (_, loss) in enumerate(losses(place), 1)
                  if loss is not None]
        if finite != list(range(1, len(finite) + 1)) or not 0 < len(finite) < 6:
            raise RuntimeError(f"steps {finite} of 6 gave numbers")
        says(f"^no checkpoint is written of step {len(finite) + 1}, which gave an infinity "
             "or no number$", text)
        if steps_of(place) != finite:
            raise RuntimeError(f"{finite} gave numbers, {steps_of(place)} are saved")


def check_export(work):
    """A run that goes on exports what it has, on threads and over MPI."""
    place, out = work.place("export"), f"{work.folder}/trained.onnx"
    for steps, transport in (("4", "local"), ("6", "mpi"), ("6", "local")):
        text = work.run("zero3", place, "--steps", steps, "--resume", "--transport",
                        transport, "--export", out, program=[work.partita, "run"])
        says(f"^4 trained tensors in {out}$", text)
        trained = {tensor.name: numpy_helper.to_array(tensor)
                   for tensor in onnx.load(out).graph.initializer}
        expected = states_of(place, int(steps))
        same("the exported model", trained, expected)
        os.remove(out)
    left = [name for name in os.listdir(work.folder) if name.startswith("trained")]
    if left:
        raise RuntimeError(f"{left} were left")


def check_words(work):
    """The same command line again, and those that are wrong."""
    place = work.place("words")
    words = ["--epochs", "2", "--save-every", "3"]
    work.run("dp", place, *words)
    says("^error: '.*' has generations already, the newest behind step 8; --resume goes on "
         "with it, or give another folder$", work.run("dp", place, *words, status=1))
    before = losses(place)
    says("^all 8 steps are done$", work.run("dp", place, *words, "--resume"))
    if losses(place) != before or [epoch for epoch, _ in before] != [1] * 4 + [2] * 4:
        raise RuntimeError(f"two epochs of four steps are {before}")
    for words, expected in (
            (["--save-every", "1h"], "--save-every: expected a number of steps, or of seconds "
             "or minutes as in 30s and 10min, got '1h'"),
            (["--save-every", "0"], "got '0'"), (["--save-every", "1.5"], "got '1.5'"),
            (["--save-every", "2", "--checkpoint-dir", ""], "the folder has no name"),
            (["--keep", "0"], "--keep"), (["--grace", "-1"], "--grace"),
            (["--grace", "nan"], "--grace: expected a number of seconds from 0 to 1e9, got "
             "'nan'"), (["--seed", "-1"], "--seed: expected a whole number from 0 to "
             "18446744073709551615, got '-1'"), (["--timeout", "nan"], "--timeout: expected a "
             "number of seconds above 0, got 'nan'"),
            (["--last", "bad"], r"--last: expected drop\|pad, got 'bad'"),
            (["--allow-change", "model"], "--allow-change"),
            (["--on-save-error", "ask"],
             r"--on-save-error: expected continue\|stop, got 'ask'"),
            (["--state-dir", place], "--state-dir")):
        says(expected, work.run("dp", place, *words, status=2))
    for words, expected in ((["3"], "needs --checkpoint-dir or --state-dir"),
                            (["3s", "--state-dir", place], "a time needs --checkpoint-dir")):
        done = subprocess.run([work.command, f"{work.folder}/dp", "--data",
                               f"{work.folder}/train.npz", "--save-every", *words],
                              capture_output=True, text=True)
        if done.returncode != 2 or expected not in done.stderr:
            raise RuntimeError(f"expected {expected!r}, got {done.stderr}")
    # By time; the log has a line that is none.
    timed = work.place("timed")
    process = work.start("dp", timed, "--steps", "1000000000", "--save-every", "0.2s",
                         "--keep", "2")
    end = time.time() + 60
    while time.time() < end and (not os.path.exists(f"{timed}/c") or
                                 len(steps_of(timed)) < 2):
        time.sleep(0.02)
    process.kill()
    process.communicate()
    with open(f"{timed}/log.jsonl", "w") as file:
        file.write("hello\n")
    says(r"^error: '.*/log.jsonl', line 1: expected a line of a log, ",
         work.run("dp", timed, "--steps", "1000000000", "--resume", status=1))
    with open(f"{timed}/log.jsonl") as file:
        if file.read() != "hello\n":
            raise RuntimeError("the file that was no log was changed")


def check_forms(work, reference):
    """A checkpoint as one file, as a model, and as the beginning of another run."""
    out, folder = f"{work.folder}/forms", f"{work.folder}/places/from-zero3/c"
    expected = states_of(f"{work.folder}/places/from-zero3", 6)

    def convert(*words, status=0):
        done = subprocess.run([work.partita, "convert", *words], capture_output=True,
                              text=True)
        if done.returncode != status:
            raise RuntimeError(f"convert {words}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    says("^13 states of step 6 in .*/all.safetensors$",
         convert(folder, "--safetensors", f"{out}/all.safetensors"))
    whole, metadata = read_states(f"{out}/all.safetensors")
    same("--safetensors", whole, expected)
    if set(whole) != set(expected) or metadata != {"steps": "6"}:
        raise RuntimeError(f"the file has {set(whole)} and {metadata}")
    says("^4 trained tensors of step 3 in .*/trained.onnx$",
         convert(f"{folder}/step-3", "--onnx", f"{out}/trained.onnx"))
    same("--onnx", {it.name: numpy_helper.to_array(it)
                    for it in onnx.load(f"{out}/trained.onnx").graph.initializer},
         states_of(f"{work.folder}/places/from-zero3", 3))
    # A generation that is damaged is told, and the one before is taken.
    place = work.place("forms")
    shutil.copytree(folder, f"{place}/c")
    with open(f"{place}/c/step-6/part-0.safetensors", "r+b") as file:
        file.seek(1500)
        file.write(b"\xff\xff\xff\xff\xff\xff\xff")
    says("^note: '.*/step-6' is skipped: ",
         convert(f"{place}/c", "--safetensors", f"{out}/older.safetensors"))
    says("^error: '.*/step-6/part-0.safetensors' has other bytes from 0 to 7752 than its list "
         "of blocks says$",
         convert(f"{place}/c/step-6", "--safetensors", f"{out}/no.safetensors", status=1))
    says("^error: the model '/nowhere.onnx' of '.*' is not there; --model says where it is "
         "now$", convert(folder, "--onnx", f"{out}/no.onnx", "--model", "/nowhere.onnx",
                         status=1))
    other = onnx.load(f"{work.folder}/model.onnx")
    for renamed in (other.graph.initializer[0], *other.graph.node):
        inputs = getattr(renamed, "input", None)
        if inputs is None:
            lacks = renamed.name
            renamed.name = "another"
        for k, name in enumerate(inputs or ()):
            inputs[k] = "another" if name == lacks else name
    onnx.save(other, f"{work.folder}/another.onnx")
    says("^error: '.*/another.onnx' is another model than the one that was trained: it has "
         f"no initializer '{lacks}'$",
         convert(folder, "--onnx", f"{out}/no.onnx", "--model", f"{work.folder}/another.onnx",
                 status=1))
    done = subprocess.run([work.partita, "run", f"{work.folder}/dp", "--data",
                           f"{work.folder}/train.npz", "--steps", "1", "--export",
                           f"{work.folder}/no.onnx", "--model", f"{work.folder}/another.onnx"],
                          capture_output=True, text=True)
    says("^error: '.*/another.onnx' is another model than the one that was trained", done.stderr)
    says("^error: '.*' has no generation$",
         convert(out, "--safetensors", f"{out}/no.safetensors", status=1))
    says("^error: convert needs --safetensors, --onnx, --schedule-csv or --per-rank-onnx$",
         convert(folder, status=2))
    if sorted(os.listdir(out)) != ["all.safetensors", "older.safetensors", "trained.onnx"]:
        raise RuntimeError(f"converting left {os.listdir(out)}")
    # Weights alone: the first loss is that of step 7 on the rows of step 1.
    firsts = []
    for source, plan, transport in ((folder, "tp", "local"), (f"{folder}/step-6", "zero3", "mpi"),
                                    (f"{out}/all.safetensors", "one", "local")):
        began = work.place(f"began-{plan}")
        words = ["--weights-from", source, "--transport", transport, "--resume"]
        says("^begins with the weights of '", work.run(plan, began, "--steps", "1", *words))
        firsts.append(losses(began)[0][1])
        moments = states_of(began, 1)
        if moments["step"] != 1:
            raise RuntimeError(f"a run that begins is behind step {moments['step']}")
        text = work.run(plan, began, "--steps", "2", *words)
        says("^goes on behind step 1 ", text)
        if "begins with" in text:
            raise RuntimeError(text)
    if max(firsts) - min(firsts) > 1e-4 or abs(firsts[0] - reference[0][1]) < 1e-3:
        raise RuntimeError(f"the first losses are {firsts}")
    says("^error: '.*' has no tensor 'fc1.bias'$",
         work.run("one", work.place("other"), "--steps", "1", "--weights-from",
                  lacking(out), status=1))
    print("one file, a model, the beginning of another run", flush=True)


def lacking(folder):
    """A file of weights without fc1.bias."""
    path = f"{folder}/lacking.safetensors"
    header = {name: {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + count * 4]}
              for name, shape, at, count in (("fc1.weight", (12, 48), 0, 576),
                                             ("fc2.weight", (48, 8), 2304, 384),
                                             ("fc2.bias", (8,), 3840, 8))}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + bytes(3872))
    return path


def check_python(work):
    """Sessions save while requests run, and load what another plan has saved."""
    place = work.place("python")
    feed = {name: value[:24] for name, value in work.data.items()}
    with partita.Session(f"{work.folder}/zero3") as session:
        if session.load_checkpoint(f"{place}/c") is not None:
            raise RuntimeError("an empty folder has a step")
        for step in (1, 2, 3):
            session.run(feed)
            expected = {name: session.read_state(name) for name in session.states}
            session.save_checkpoint(f"{place}/c", step, keep=2)
            session.run(feed)  # changes what is being written
        session.wait_checkpoint()
        after = session.run(feed)["loss"]
        if session.load_checkpoint(f"{place}/c") != 3 or steps_of(place) != [2, 3]:
            raise RuntimeError(f"{steps_of(place)} are saved")
        session.run(feed)
        if session.run(feed)["loss"] != after:
            raise RuntimeError("a request behind a load is not as before")
    same("what Python saves", expected, states_of(place, 3))
    with open(f"{place}/c/step-3/part-1.safetensors", "r+b") as file:
        file.truncate(900)
    with partita.Session(f"{work.folder}/tp") as session, \
            warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if session.load_checkpoint(f"{place}/c") != 2 or len(told) != 1:
            raise RuntimeError(f"{[str(it.message) for it in told]} is told")
        says("^'.*/step-3' is skipped: '.*/part-1.safetensors' has 900 bytes, ",
             str(told[0].message))
        same("what another plan loads", states_of(place, 2),
             {name: session.read_state(name) for name in session.states})
        for call, sentence in (
                (lambda: session.save_checkpoint(f"{place}/no/c", 1), "^cannot create the folder"),
                (lambda: session.save_checkpoint(f"{place}/c", -1), "a step of at least 0")):
            try:
                call()
            except partita.PartitaError as error:
                says(sentence, str(error))
            else:
                raise RuntimeError(f"no error, expected {sentence}")
    with partita.Session(f"{work.folder}/changed") as session:
        try:
            session.load_checkpoint(f"{place}/c")
        except partita.PartitaError as error:
            says("^'.*/step-2' is of another model: ", str(error))
        else:
            raise RuntimeError("a checkpoint of another model was loaded")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("run")
    parser.add_argument("--kills", type=int, help="per plan and transport")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("PARTITA_SEED", "1")))
    arguments = parser.parse_args()
    kills = arguments.kills or (4 if tier.is_quick() else 20)
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(arguments.partita, arguments.run, folder)
        for name, (words, parallel) in PLANS.items():
            work.compile(name, words, parallel)
        reference = {}
        for plan in ("one", "dp", "tp", "zero3"):
            work.run(plan, work.place(f"reference-{plan}"), "--steps", "60")
            reference[plan] = losses(f"{folder}/places/reference-{plan}")
        check_plans(work, PLANS, reference["one"])
        check_reads(work)
        check_parts(work)
        cases = [(plan, transport) for plan in ("dp", "tp", "zero3")
                 for transport in ("local", "mpi")]
        # A run that lost a rank pauses before it starts again.
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            restarts = beside.submit(check_restarts, work, reference["zero3"])
            for plan, transport in tier.sample("checkpoint-kills", cases,
                                               kind=lambda case: case[1]):
                check_kills(work, plan, transport, draw, kills, reference[plan])
            check_signals(work, reference["zero3"])
            check_disks(work)
            check_full_log(work)
            check_fits(work, reference["dp"])
            check_words(work)
            check_export(work)
            check_kept(work)
            check_infinite(work)
            check_python(work)
            check_forms(work, reference["one"])
            restarts.result()


if __name__ == "__main__":
    main()
