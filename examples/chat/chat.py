#!/usr/bin/env python3
"""Talks with a language model that runs as two stages of two ranks each, its caches in place.

usage: chat.py [--tokens 48] [--mesh tp=2] [--stages 2] [--check] [--partita PATH] PROMPT

Compiles the model of build_model.py with two entries, one for 16 tokens of a prompt and one
for a single token, which share the KV caches; then the prompt goes in, and the answer comes
out token by token. The weights are random, so the answer means nothing. --check gives the
same tokens to ONNX Runtime and compares every step.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx

import build_model

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
import partita  # noqa: E402

CHUNK = 16


def compile_model(arguments, work):
    """The bundle, and the model that it is of."""
    model = os.path.join(work, "chat.onnx")
    bundle = os.path.join(work, "chat")
    onnx.save(build_model.Model().build(), model)
    done = subprocess.run(
        [arguments.partita, "compile", model, "-o", bundle, "--mesh", arguments.mesh,
         "--stages", str(arguments.stages), "--shape", "batch=1",
         "--shape", f"sequence={CHUNK}", "--shape", "sequence=1",
         "--state", "past.*=present.*"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return bundle, model


class Reference:
    """ONNX Runtime, whose caches are given back to it at each step."""

    def __init__(self, model):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(model, options)
        self.caches = {i.name: np.zeros([1, *i.shape[1:]], np.float32)
                       for i in self.session.get_inputs() if i.name.startswith("past.")}

    def check(self, inputs, logits):
        names = [output.name for output in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(None, {**self.caches, **inputs})))
        for name in self.caches:
            self.caches[name] = outputs[name.replace("past.", "present.")]
        if not np.allclose(logits, outputs["logits"], rtol=1e-4, atol=1e-5):
            sys.exit(f"at {inputs['position'][0]} the logits differ from ONNX Runtime's by "
                     f"{np.abs(logits - outputs['logits']).max():.3g}")


def printable(token):
    return chr(token) if 32 <= token < 127 else "·"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prompt", nargs="?", default="Once upon a time in the east")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--mesh", default="tp=2")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--partita", default=shutil.which("partita") or os.path.join(
        ROOT, "build", "dev", "bin", "partita"))
    arguments = parser.parse_args()
    prompt = np.frombuffer(arguments.prompt.encode("ascii", "replace"), np.uint8)
    most = build_model.SIZES["most"]
    if not 0 < len(prompt) <= most - arguments.tokens:
        sys.exit(f"the prompt has {len(prompt)} tokens; with {arguments.tokens} of the "
                 f"answer there is room for 1 to {most - arguments.tokens}")
    with tempfile.TemporaryDirectory() as work:
        bundle, model = compile_model(arguments, work)
        reference = Reference(model) if arguments.check else None
        with partita.Session(bundle) as session:
            position = 0

            def step(tokens):
                nonlocal position
                inputs = {"tokens": tokens.astype(np.int64).reshape(1, -1),
                          "position": np.array([position])}
                logits = session.run(inputs)["logits"]
                if reference:
                    reference.check(inputs, logits)
                position += tokens.size
                return int(np.argmax(logits[0, -1]))

            # Whole chunks by the one entry, the rest token by token by the other.
            begin = time.perf_counter()
            while position + CHUNK <= len(prompt):
                token = step(prompt[position:position + CHUNK])
            while position < len(prompt):
                token = step(prompt[position:position + 1])
            read = time.perf_counter() - begin
            print(arguments.prompt, end="|", flush=True)
            begin = time.perf_counter()
            for k in range(arguments.tokens):
                print(printable(token), end="", flush=True)
                if k + 1 < arguments.tokens:
                    token = step(np.array([token]))
            wrote = time.perf_counter() - begin
            print(f"\n{len(prompt)} tokens read in {read * 1e3:.1f} ms, {arguments.tokens} "
                  f"written in {wrote * 1e3:.1f} ms, on {session.num_ranks} ranks"
                  + (", equal to ONNX Runtime" if reference else ""))


if __name__ == "__main__":
    main()
