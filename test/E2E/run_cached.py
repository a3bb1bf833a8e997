#!/usr/bin/env python3
"""Decoders whose caches grow by a Concat, as transformers exports them: the caches are
states that roll.

usage: run_cached.py PARTITA [--steps 64]

The past is 24 rows, so that 64 steps come to the ends of the caches' places more than once.
Each step gives a token to Partita and to ONNX Runtime, to which the caches are passed by
hand: logits of all steps and the caches of the last are equal, by the rule of equality.py.
What a step writes into the caches are the new rows.
Then entries for a prompt and for a token share the caches. The steps are also the rows of
a file, which one run takes one after the other: ranks as threads, and as processes by MPI.
"""
import argparse
import os
import sys
import tempfile

import numpy as np
import onnx

from run_decode import PLANS, ROOT, Reference, call, check_writes, equal, partita
from states import read_states

sys.path.append(os.path.join(ROOT, "test", "E2E", "models"))
import zoo  # noqa: E402

PAST, VOCABULARY = 24, 503


class Cached(Reference):
    """ONNX Runtime, which keeps the last rows of the caches."""

    def __init__(self, path):
        super().__init__(path)
        self.caches = {i.name: np.zeros([1, i.shape[1], PAST, i.shape[3]], np.float32)
                       for i in self.session.get_inputs() if i.name.startswith("past")}

    def run(self, inputs):
        values = self.session.run(None, {**self.caches, **inputs})
        outputs = dict(zip(self.names, values))
        for name in self.caches:
            present = outputs[name.replace("past_key_values.", "present.")]
            self.caches[name] = present[:, :, -PAST:]
        return outputs["logits"]


def inputs_of(at, count):
    """Tokens from place `at` on; the mask hides rows of the past that are not filled."""
    tokens = np.random.default_rng((3, at)).integers(0, VOCABULARY, (1, count))
    mask = np.ones((1, PAST + count), np.int64)
    mask[:, :max(0, PAST - at)] = 0
    return {"input_ids": tokens, "attention_mask": mask,
            "position_ids": np.arange(at, at + count)[None]}


def check(name, bundle, model, counts):
    """Requests of so many tokens each."""
    reference, at = Cached(model), 0
    with partita.Session(bundle) as session:
        if sorted(session.states) != sorted(reference.caches):
            raise RuntimeError(f"{name}: the states are {sorted(session.states)}")
        for count in counts:
            given = inputs_of(at, count)
            equal(f"{name}, token {at}", session.run(given)["logits"], reference.run(given))
            at += count
        for state, expected in reference.caches.items():
            equal(f"{name}, {state}", session.read_state(state), expected)


def shuffled(rows, seed=0):
    """The order in which a run takes the rows of a file, as docs/data.md has it."""
    def mix(z):
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 % 2**64
        z = (z ^ z >> 27) * 0x94d049bb133111eb % 2**64
        return z ^ z >> 31
    result, state = list(range(rows)), mix(mix(seed) % 2**64)
    for i in reversed(range(1, rows)):
        state = (state + 0x9e3779b97f4a7c15) % 2**64
        j = mix(state) * (i + 1) >> 64
        result[i], result[j] = result[j], result[i]
    return result


def check_data(command, name, bundle, model, steps, work):
    """Steps that are the rows of a file leave the caches that ONNX Runtime has."""
    reference, rows = Cached(model), [None] * steps
    for step, row in enumerate(shuffled(steps)):
        given = inputs_of(step, 1)
        reference.run(given)
        rows[row] = given
    data = os.path.join(work, "steps.npz")
    np.savez(data, **{key: np.concatenate([row[key] for row in rows]) for key in rows[0]})
    for transport in ("local", "mpi"):
        folder = tempfile.mkdtemp(dir=work)
        call([command, "run", bundle, "--data", data, "--state-dir", folder, "--transport",
              transport])
        saved, _ = read_states(os.path.join(folder, "state.safetensors"))
        for state, expected in reference.caches.items():
            equal(f"{name} by {transport}, {state}", saved[state], expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--steps", type=int, default=64)
    arguments = parser.parse_args()
    command = arguments.partita
    with tempfile.TemporaryDirectory() as work:
        for kind in ("script", "dynamo"):
            model = os.path.join(work, f"{kind}.onnx")
            light = onnx.load(os.path.join(ROOT, "test", "E2E", "models", "data",
                                           f"llama-cache-{kind}.onnx"))
            zoo.fill_weights(light)
            onnx.save(light, model)
            shapes = [] if kind == "dynamo" else \
                ["--shape", f"past={PAST}", "--shape", "sequence=1", "--shape",
                 f"total={PAST + 1}"]
            states = ["--state", "past_key_values.*=present.*"]
            for name, more in PLANS if kind == "script" else PLANS[:2]:
                bundle = os.path.join(work, f"{kind}-{name}")
                call([command, "compile", model, "-o", bundle, *shapes, *states, *more])
                check(f"{kind}, {name}", bundle, model, [1] * arguments.steps)
                check_writes(f"{kind}, {name}", bundle, 1)
                if kind == "script":
                    check_data(command, name, bundle, model, arguments.steps, work)
                print(f"{kind}, {name}: {arguments.steps} steps equal", flush=True)
            if kind == "dynamo":
                continue
            bundle = os.path.join(work, "prompts")
            call([command, "compile", model, "-o", bundle, *states, "--mesh", "tp=2",
                  "--shape", f"past={PAST}"] +
                 [text for count in (16, 1)
                  for text in ("--shape", f"sequence={count}", "--shape",
                               f"total={PAST + count}")])
            check("prompts", bundle, model, [16, 1, 1, 16, *[1] * 20, 16, 16, *[1] * 30])
            print("prompts and steps equal", flush=True)


if __name__ == "__main__":
    main()
