#!/usr/bin/env python3
"""`partita run --steps-ahead`: ranks of a pipeline begin a step while others end the one before.

usage: run_steps_ahead.py PARTITA PARTITA_RUN

Pipelines of several schedules, with accumulation, optimizer parallel and tied embeddings, have
the same losses and states, bit for bit, however many steps ahead their ranks may be, on threads
and MPI. Generations are written behind the steps that ask for them, a signal stops a run behind
a step that is saved, and a run of which a rank is lost or fails ends at once with one sentence.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import run_checkpoints
import tier
import training_models
from commands import await_steps, ends_with, says
from generations import losses, same, states_of, steps_of
from run_checkpoints import Work, kill_below
from run_pipelines import PUBLISHED, Pipeline, arguments_of, fits, published, spec_of

ROWS = [
    ("gpt2", {"stages": 2, "schedule": "1f1b", "micro": 4, "optimizer": "adamw"}),
    ("gpt2", {"stages": 2, "schedule": "zb-h2", "micro": 4, "optimizer": "momentum"}),
    ("transformer", {"stages": 2, "schedule": "zb-h1", "micro": 2, "mesh": "dp=2", "level": 3,
                     "optimizer": "adamw"}),
    ("transformer", {"stages": 4, "schedule": "interleaved", "micro": 4, "clip": True,
                     "optimizer": "lamb"}),
    ("transformer", {"stages": 4, "schedule": "zb-v", "micro": 4, "optimizer": "momentum"}),
    ("mlp", {"stages": 2, "schedule": "gpipe", "micro": 8, "scale": "dynamic", "nan": "skip",
             "optimizer": "adamw"}),
    ("conv", {"stages": 3, "schedule": "zb-auto:1.5", "micro": 2, "optimizer": "momentum"}),
    ("mlp", {"stages": 2, "schedule": "1f1b", "micro": 2, "mesh": "tp=2", "nan": "stop",
             "optimizer": "adamw"}),
]
USUAL = {"mesh": None, "level": 0, "clip": False, "scale": None, "recompute": False, "nan": None}
STAGES = ["--stages", "2", "--micro-batches", "4", "--schedule", "zb-h2"]


def check_bits(command, work, name, row):
    """A row with 0, 1 and 3 steps ahead on both transports."""
    row = fits(name, {**USUAL, **row})
    step = Pipeline(command, work, name, spec_of(row), arguments_of(row))
    expected = step.run(command, "local", "--steps-ahead", "0")
    for transport in ("local", "mpi"):
        for words in ([], ["--steps-ahead", "3"]):
            actual = step.run(command, transport, *words)
            what = f"{name} {row}, {transport} {words}"
            if actual[0] != expected[0]:
                raise RuntimeError(f"{what}: losses {actual[0]}, expected {expected[0]}")
            same(what, expected[1], actual[1])


def check_overlap(work):
    """Counts what ranks do together, and that they do it only where they may."""
    told = r"^\d+ of 20 steps were under way while a rank began the next one, [\d.]+ \S+ in all$"
    for transport in ("local", "mpi"):
        words = ["--steps", "20", "--transport", transport]
        text = work.run("pipeline", work.place(f"ahead-{transport}"), *words)
        says(told, text)
        text = work.run("pipeline", work.place(f"behind-{transport}"), *words, "--steps-ahead",
                        "0")
        if "under way" in text:
            raise RuntimeError(text)
        # Steps would take longer than a signal leaves.
        text = work.run("pipeline", work.place(f"grace-{transport}"), *words, "--grace", "0")
        says(r"^steps take [\d.]+ \S+, so that none is begun before the one before it is over: "
             r"a signal leaves 0 s \(--grace\)$", text)
        if "under way" in text:
            raise RuntimeError(text)


def check_generations(work, reference):
    """Generations see settled steps; by steps and by the clock."""
    for transport in ("local", "mpi"):
        place = work.place(f"generations-{transport}")
        words = ["--transport", transport, "--keep", "99"]
        work.run("pipeline", place, "--steps", "20", "--save-every", "7", *words)
        if steps_of(place) != [7, 14, 20] or losses(place) != reference[:20]:
            raise RuntimeError(f"{transport}: {steps_of(place)}, {losses(place)}")
        for step in steps_of(place):
            alone = work.place(f"alone-{transport}-{step}")
            work.run("pipeline", alone, "--steps", str(step), "--steps-ahead", "0")
            same(f"{transport}, step {step}", states_of(alone, step), states_of(place, step))
        place = work.place(f"clock-{transport}")
        process = work.start("pipeline", place, "--steps", "1000000000", "--save-every", "0.2s",
                             *words)
        end = time.time() + 60
        while time.time() < end and not (os.path.exists(f"{place}/c")
                                         and len(steps_of(place)) > 2):
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        ends_with(process, 143)
        made = min(len(losses(place)), len(reference))
        if len(steps_of(place)) < 3 or losses(place)[:made] != reference[:made]:
            raise RuntimeError(f"{transport}: {steps_of(place)}")


def check_signals(work, reference):
    for transport, sent, status in (("local", signal.SIGTERM, 143), ("mpi", signal.SIGINT, 130)):
        place = work.place(f"signal-{transport}")
        words = ["--transport", transport, "--resume"]
        process = work.start("pipeline", place, "--steps", "1000000000", *words)
        await_steps(process, place, 5)
        process.send_signal(sent)
        says(f"^note: stopped by {sent.name}; --resume goes on$", ends_with(process, status))
        made = len(losses(place))
        if steps_of(place) != [made]:
            raise RuntimeError(f"{made} steps, but {steps_of(place)} are saved")
        work.run("pipeline", place, "--steps", str(made + 5), *words)
        count = min(made + 5, len(reference))
        if losses(place)[:count] != reference[:count]:
            raise RuntimeError("losses are not those of a run that was never stopped")


def check_losses(work):
    """A rank is killed, and one meets an index that no table has."""
    for transport in ("local", "mpi"):
        place = work.place(f"killed-{transport}")
        process = work.start("pipeline", place, "--steps", "1000000000", "--transport", transport)
        await_steps(process, place, 20)
        begin = time.time()
        kill_below(process)
        text = ends_with(process, 75)
        if time.time() - begin > 20:
            raise RuntimeError(f"{transport}: the end took {time.time() - begin:.0f} s")
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        if len(errors) != 1:
            raise RuntimeError(text)
        says(r"^error: rank \d.*signal 9 \(Killed\)", errors[0])
        labels = {**work.data, "labels": work.data["labels"].copy()}
        labels["labels"][:1] = 99
        np.savez(f"{work.folder}/wrong.npz", **labels)
        text = work.run("pipeline", work.place(f"failed-{transport}"), "--data",
                        f"{work.folder}/wrong.npz", "--transport", transport, status=1)
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        if len(errors) != 1:
            raise RuntimeError(text)
        says(r"^error: rank 1, node .*: index 99 is outside a dim of 8 elements$", errors[0])


def check_refusals(work):
    for value in ("-1", "9", "two"):
        done = subprocess.run([work.command, f"{work.folder}/pipeline", "--data",
                               f"{work.folder}/train.npz", "--steps-ahead", value],
                              capture_output=True, text=True)
        if done.returncode == 0 or "--steps-ahead" not in done.stderr:
            raise RuntimeError(done.stderr)


def main():
    command, run = sys.argv[1:]
    training_models.MODELS.update({key: published(name) for key, name in PUBLISHED.items()})
    cases = tier.sample("steps-ahead", ROWS, kind=lambda case: case[0])
    with tempfile.TemporaryDirectory() as folder:
        for name, row in cases:
            check_bits(command, folder, name, row)
        print(f"{len(cases)} of {len(ROWS)} pipelines have the same bits", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(command, run, folder, run_checkpoints.MLP)
        work.compile("pipeline", STAGES, {})
        place = work.place("reference")
        work.run("pipeline", place, "--steps", "60", "--steps-ahead", "0")
        reference = losses(place)
        check_overlap(work)
        check_generations(work, reference)
        check_signals(work, reference)
        check_losses(work)
        check_refusals(work)
        print("generations, signals, losses and refusals are as without", flush=True)


if __name__ == "__main__":
    main()
