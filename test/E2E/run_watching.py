#!/usr/bin/env python3
"""What a run on data tells while it trains, and what it does where numbers are lost.

usage: run_watching.py PARTITA PARTITA_RUN

A small network is trained on rows of which one is not a number. `on_nan` of the training file
stops there, or skips the step, which then changes no state; the log has rates, memory, labels that
count, and the norm of gradients; `--metrics` tells the same over HTTP while the run goes on.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import numpy as np

import training_models
from run_data import documented_order
from states import read_states

ROWS, BATCH, SEED = 96, 24, 5
DP = ["--mesh", "dp=2", "--mode", "data-parallel"]


def write_model(path):
    """Layers with a function that keeps what is not a number."""
    w = training_models.Writer(1)
    x = w.input("x", [BATCH, 12])
    x = w.op("Gemm", [x, w.weight("fc1.weight", 12, 48), w.weight("fc1.bias", 48)], "fc1")
    x = w.op("Tanh", [x], "act")
    x = w.op("Gemm", [x, w.weight("fc2.weight", 48, 8), w.weight("fc2.bias", 8)], "fc2")
    w.save(path, x, [BATCH, 8])


class Work:
    def __init__(self, compiler, run, folder):
        self.partita, self.command, self.folder = compiler, run, folder
        self.count = itertools.count()  # checks that run beside each other ask for places
        draw = np.random.default_rng(3)
        write_model(f"{folder}/model.onnx")
        self.x = draw.normal(0, 1, (ROWS, 12)).astype(np.float32)
        self.labels = draw.integers(0, 8, ROWS)
        np.savez(f"{folder}/good.npz", x=self.x, labels=self.labels)
        order = documented_order()
        self.rows = [order(ROWS, SEED, epoch)[k:k + BATCH] for epoch in range(3)
                     for k in range(0, ROWS, BATCH)]
        row = self.rows[2][0]
        bad = self.x.copy()
        bad[row, 3] = np.nan
        np.savez(f"{folder}/bad.npz", x=bad, labels=self.labels)
        np.savez(f"{folder}/rows.npz", x=bad)
        # Steps from 1 on which take the row: one in each epoch.
        self.lost = [step for step, rows in enumerate(self.rows, 1) if row in rows]

    def compile(self, name, arguments=(), loss=None, **more):
        spec = {"loss": {"kind": "softmax_cross_entropy", "of": "fc2", "labels": "labels",
                         "axis": -1, **(loss or {})},
                "optimizer": {"kind": "adamw", "lr": 0.01}, **more}
        with open(f"{self.folder}/{name}.json", "w") as file:
            json.dump(spec, file)
        done = subprocess.run(
            [self.partita, "compile", f"{self.folder}/model.onnx", "-o", f"{self.folder}/{name}",
             "--train", f"{self.folder}/{name}.json", *arguments], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)

    def place(self):
        path = f"{self.folder}/place-{next(self.count)}"
        os.mkdir(path)
        return path

    def start(self, bundle, place, *words, data="bad"):
        return subprocess.Popen(
            [self.command, f"{self.folder}/{bundle}", "--data", f"{self.folder}/{data}.npz",
             "--seed", str(SEED), "--log", f"{place}/log.jsonl", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, bundle, place, *words, status=0, data="bad"):
        process = self.start(bundle, place, *words, data=data)
        out, err = process.communicate(timeout=120)
        if process.returncode != status:
            raise RuntimeError(f"{words} on {bundle} ended with {process.returncode}: {out}{err}")
        return out + err


def log_of(place):
    with open(f"{place}/log.jsonl") as file:
        return [json.loads(line) for line in file]


def steps_of(folder):
    return sorted(int(name[5:]) for name in os.listdir(folder) if name.startswith("step-"))


def says(expected, actual):
    if not re.search(expected, actual, re.MULTILINE):
        raise RuntimeError(f"expected {expected!r}, got {actual!r}")


def check_stop(work):
    lost = work.lost[0]
    for bundle, arguments in (("stop", []), ("stop-dp", DP)):
        work.compile(bundle, arguments, on_nan="stop")
        for transport in ("local", "mpi") if arguments else ("local",):
            for folder in (False, True):
                place = work.place()
                words = ["--steps", "8", "--transport", transport]
                if folder:
                    words += ["--checkpoint-dir", f"{place}/c", "--save-every", "1", "--keep", "9"]
                text = work.run(bundle, place, *words, status=1)
                says(rf"^error: step {lost} has a loss or gradients that are not finite "
                     r"\(loss -?nan, not_finite 1\), where \"on_nan\" of the training file says "
                     "stop$", text)
                log = log_of(place)
                if [it["loss"] is None for it in log] != [False] * (lost - 1) + [True]:
                    raise RuntimeError(f"the log is {log}")
                if folder and steps_of(f"{place}/c") != list(range(1, lost)):
                    raise RuntimeError(f"{steps_of(place + '/c')} are saved")
    print(f"stop: behind step {lost}, no generation of it", flush=True)


def states_by_step(work, bundle, transport):
    """The states behind each of six steps, each a run of its own, and the lines of the log."""
    place, states = work.place(), []
    for _ in range(6):
        work.run(bundle, place, "--steps", "1", "--state-dir", f"{place}/s", "--transport",
                 transport)
        states.append(read_states(f"{place}/s/state.safetensors")[0])
    return states, log_of(place)


def check_skip(work):
    """A step that is skipped changes nothing, and the others are those of a run without it."""
    for bundle, arguments, more in (
            ("skip", [], {}), ("skip-dp", DP, {"clip_norm": 1.0}),
            ("skip-zero", DP, {"optimizer_parallel": {"enable": True, "threshold_kb": 0,
                                                      "level": 3}})):
        work.compile(bundle, arguments, on_nan="skip", **more)
        states, log = states_by_step(work, bundle, "mpi" if bundle == "skip-zero" else "local")
        if [it["skipped"] for it in log] != [float(k in work.lost) for k in range(1, 7)]:
            raise RuntimeError(f"{bundle}: the log is {log}, steps {work.lost} are lost")
        for step in range(2, 7):
            before, after = states[step - 2], states[step - 1]
            same = [name for name in after if np.array_equal(before[name], after[name])]
            if len(same) != (len(after) if step in work.lost else 0):
                raise RuntimeError(f"{bundle}: step {step} left {same}")
            if not all(np.isfinite(value).all() for value in after.values()):
                raise RuntimeError(f"{bundle}: states are not finite behind step {step}")
        place = work.place()
        text = work.run(bundle, place, "--steps", "6", "--checkpoint-dir", f"{place}/c",
                        "--save-every", "1", "--keep", "9")
        says(r"^step 6, .*, \d skipped$", text)
        # Skipped steps too, whose losses and norms are no numbers.
        if steps_of(f"{place}/c") != list(range(1, 7)) or len(log_of(place)) != 6:
            raise RuntimeError(f"{bundle}: {steps_of(place + '/c')} are saved")
    # Where every step is finite, the option changes no bit.
    work.compile("plain")
    losses = []
    for bundle in ("plain", "skip"):
        place = work.place()
        work.run(bundle, place, "--steps", "8", data="good")
        losses.append([it["loss"] for it in log_of(place)])
    if losses[0] != losses[1]:
        raise RuntimeError(f"skip changes {losses}")
    # Without it, training goes on with what is lost.
    place = work.place()
    work.run("plain", place, "--steps", "8")
    first = work.lost[0]
    if [it["loss"] is None for it in log_of(place)] != [k >= first for k in range(1, 9)]:
        raise RuntimeError(f"the log is {log_of(place)}")
    print("skip: no state changes, and training goes on", flush=True)


def check_names(work):
    """A flag is what the bundle says, not an output that is called like one."""
    for name in ("not_finite", "skipped"):
        w = training_models.Writer(1)
        w.op("ReduceSum", [w.input("x", [BATCH, 12])], name, keepdims=0)
        w.save(f"{work.folder}/{name}.onnx", name, [])
        done = subprocess.run([work.partita, "compile", f"{work.folder}/{name}.onnx", "-o",
                               f"{work.folder}/{name}"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        place = work.place()
        says(rf"^step 3, epoch 1: {name} -?nan, ",
             work.run(name, place, "--steps", "3", data="rows"))
        if [it[name] is None for it in log_of(place)] != \
                [k in work.lost for k in range(1, 4)]:
            raise RuntimeError(f"the log is {log_of(place)}")
    # A bundle whose flag is no output is damaged.
    path = f"{work.folder}/stop/bundle.json"
    with open(path) as file:
        text = file.read()
    for flags, sentence in (
            ({"stop": "los"}, "the bundle lists flag 'los', which is no scalar output of a "
                              "program"),
            ({"stops": "loss"}, "unknown"), ([], "expected"), ({"stop": 1}, "expected")):
        bundle = json.loads(text)
        if bundle["entries"][0]["flags"] != {"stop": "not_finite"}:
            raise RuntimeError(f"{path} has {bundle['entries'][0]}")
        bundle["entries"][0]["flags"] = flags
        with open(path, "w") as file:
            json.dump(bundle, file)
        says(rf"^error: .*{sentence}", work.run("stop", work.place(), "--steps", "1", status=1))
    with open(path, "w") as file:
        file.write(text)
    print("flags: by the bundle, not by names", flush=True)


def check_log(work):
    """Rates and norms are those of the rows that were taken."""
    work.compile("counted", loss={"ignore_index": 2}, gradient_norm=True)
    work.compile("clipped", loss={"ignore_index": 2}, clip_norm=1e6)
    place, clipped = work.place(), work.place()
    text = work.run("counted", place, "--steps", "6", data="good")
    says(r"^step 6, .*: loss \S+, learning rate 0.01, gradient_norm \S+, \S+ samples/s, \S+ "
         "tokens/s$", text)
    for line, rows in zip(log_of(place), work.rows, strict=False):
        counted = int((work.labels[rows] != 2).sum())
        if abs(line["tokens_per_second"] * line["seconds"] - counted) > 1e-6 * counted or \
                abs(line["samples_per_second"] * line["seconds"] - BATCH) > 1e-6 * BATCH:
            raise RuntimeError(f"{counted} labels count: {line}")
        if not 1e6 < line["memory"] < 4e9:
            raise RuntimeError(f"memory is {line['memory']}")
    work.run("clipped", clipped, "--steps", "6", data="good")
    norms = [[it["gradient_norm"] for it in log_of(where)] for where in (place, clipped)]
    if not np.allclose(*norms, rtol=1e-5):
        raise RuntimeError(f"norms with and without clipping are {norms}")
    print("log: rates, labels that count, memory, norms", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, path="/metrics", method="GET", host="127.0.0.1"):
    request = urllib.request.Request(f"http://{host}:{port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.read().decode(), reply.headers


def values_of(text):
    """What a scraper reads: each name has a help, a type and a value."""
    found = {}
    for line in text.splitlines():
        sample = re.fullmatch(r'(\w+(?:\{name="[^"]*"\})?) (NaN|[+-]Inf|[\d.e+-]+)', line)
        if sample:
            found[sample[1]] = float(sample[2])
            name = sample[1].split("{")[0]
            if not re.search(rf"^# HELP {name} .+\n# TYPE {name} (counter|gauge)$", text,
                             re.MULTILINE):
                raise RuntimeError(f"{name} has no type: {text}")
        elif not line.startswith("# "):
            raise RuntimeError(f"a line is {line!r}")
    return found


def check_metrics(work):
    for transport in ("local", "mpi"):
        port, place = free_port(), work.place()
        words = ["--steps", "1000000000", "--transport", transport]
        process = work.start("skip-dp", place, *words, "--metrics", str(port))
        try:
            says(rf"^metrics are at http://127\.0\.0\.1:{port}/metrics$",
                 process.stdout.readline())
            process.stdout.readline()  # the first step
            # A client that says nothing holds up nobody but clients, and those for a second.
            silent = socket.create_connection(("127.0.0.1", port))
            first = values_of(ask(port)[0])
            end, second = time.time() + 30, first
            while second["partita_step"] <= first["partita_step"] and time.time() < end:
                time.sleep(0.1)
                text, headers = ask(port)
                second = values_of(text)
            silent.close()
            if headers["Content-Type"] != "text/plain; version=0.0.4; charset=utf-8":
                raise RuntimeError(f"the type is {headers['Content-Type']}")
            if not 0 < first["partita_step"] < second["partita_step"]:
                raise RuntimeError(f"steps {first} and {second}")
            if second["partita_samples_total"] != BATCH * second["partita_steps_total"] or \
                    second["partita_tokens_total"] != second["partita_samples_total"] or \
                    not 0 <= second["partita_skipped_steps_total"] < second["partita_step"] or \
                    'partita_output{name="gradient_norm"}' not in second:
                raise RuntimeError(f"metrics are {second}")
            if ask(port, method="HEAD")[0] != "":
                raise RuntimeError("HEAD has a body")
            for path, method, status in (("/", "GET", 404), ("/metrics", "POST", 405)):
                try:
                    ask(port, path, method)
                    raise RuntimeError(f"{method} {path} is answered")
                except urllib.error.HTTPError as error:
                    if error.code != status:
                        raise
            text = work.run("skip-dp", work.place(), *words, "--metrics", str(port), status=1)
            says(rf"^error: --metrics {port}: cannot listen there: Address already in use$", text)
        finally:
            process.terminate()
            process.communicate(timeout=60)
        end = time.time() + 10
        while time.time() < end:
            try:
                ask(port)
            except OSError:
                break
        else:
            raise RuntimeError(f"port {port} is open behind the run")
    for where in ("", "x", "70000", "-1", "localhost:80", "1.2.3:x", "9100 "):
        says("--metrics: expected a port from 0 to 65535, or ADDRESS:PORT with a numeric "
             "address, got ", work.run("skip", work.place(), "--metrics", where, status=2))
    text = work.run("skip", work.place(), "--steps", "2", "--metrics", "[::1]:0")
    says(r"^metrics are at http://\[::1\]:\d+/metrics$", text)
    print("metrics: over HTTP while steps run, threads and MPI", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Work(arguments.partita, arguments.run, folder)
        check_skip(work)
        # Launchers of MPI wait more than they work.
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            metrics = beside.submit(check_metrics, work)
            check_stop(work)
            check_names(work)
            check_log(work)
            metrics.result()


if __name__ == "__main__":
    sys.exit(main())
