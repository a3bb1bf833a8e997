#!/usr/bin/env python3
"""Training steps whose attention is one op, against the same steps with two products and a
softmax: equal losses, on one rank and on two, and memory that grows with the tokens, not with
their square.

usage: run_trained_attention.py PARTITA [NAME…]

Forms: causal by a table and by positions, keys of padding as an addend, grouped heads, PyTorch's
0 where a query sees nothing; in f32, bf16 and f16. A hint that names the scores, and asks nothing of them, keeps the
products apart. Attention whose bias trains, or with dropout behind the softmax, stays apart,
and a note says why.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
from onnx import TensorProto

from training_models import Writer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
import partita  # noqa: E402

WORDS, WIDTH, HEADS, BATCH = 23, 32, 4, 2


def model(path, form, tokens):
    """A layer of attention on embeddings, with a head. Returns how inputs are drawn."""
    w = Writer(5)
    size = WIDTH // HEADS
    groups = 2 if form == "groups" else HEADS
    feeds = {"words": lambda r: r.integers(0, WORDS, (BATCH, tokens))}
    x = w.op("Gather", [w.weight("table", WORDS, WIDTH, scale=1.0),
                        w.input("words", [BATCH, tokens], TensorProto.INT64)], "embed", axis=0)

    def heads(name, count):
        y = w.op("MatMul", [x, w.weight(f"{name}.weight", WIDTH, count * size)], name)
        y = w.op("Reshape", [y, w.ints(f"{name}.shape", [BATCH, tokens, count, size])],
                 f"{name}.heads")
        return w.op("Transpose", [y], f"{name}.across", perm=[0, 2, 1, 3])

    q, k, v = heads("q", HEADS), heads("k", groups), heads("v", groups)
    if form == "groups":
        w.ints("wide", [BATCH, groups, HEADS // groups, tokens, size])
        w.ints("all", [BATCH, HEADS, tokens, size])
        w.ints("two", [2])
        k, v = [w.op("Reshape", [w.op("Expand", [w.op("Unsqueeze", [y, "two"], f"{n}.one"),
                                                 "wide"], f"{n}.wide"), "all"], f"{n}.all")
                for n, y in (("k", k), ("v", v))]
    y = w.op("MatMul", [q, w.op("Transpose", [k], "k.t", perm=[0, 1, 3, 2])], "scores")
    y = w.op("Mul", [y, w.weight("scale", value=np.float32(2 * size ** -0.5))], "scaled")
    low = w.weight("low", value=np.float32(-np.inf if form == "nothing" else -1e30))
    rows, columns = np.arange(tokens)[:, None], np.arange(tokens)[None, :]
    seen = columns <= rows
    if form in ("causal", "groups", "nothing", "dropout"):
        if form == "nothing":
            seen[tokens // 2] = False
        mask = w.op("Cast", [w.ints("seen", seen.astype(np.int64))], "mask",
                    to=TensorProto.BOOL)
        y = w.op("Where", [mask, y, low], "masked")
    elif form == "positions":
        start = w.input("start", [1], TensorProto.INT64)
        feeds["start"] = lambda r: np.zeros(1, np.int64)
        row = w.op("Unsqueeze", [w.op("Add", [w.ints("row", rows[:, 0]), start], "row.at"),
                                 w.ints("last", [1])], "row.column")
        mask = w.op("LessOrEqual", [w.ints("column", columns), row], "mask")
        y = w.op("Where", [mask, y, low], "masked")
    elif form == "padding":
        added = w.input("padding", [BATCH, 1, 1, tokens])
        lengths = np.array([tokens, tokens // 3 + 1])[:, None, None, None]
        feeds["padding"] = lambda r: np.where(columns < lengths, 0, -1e30).astype(np.float32)
        y = w.op("Add", [y, added], "masked")
    elif form == "bias":
        y = w.op("Add", [y, w.weight("bias", 1, HEADS, tokens, tokens)], "masked")
    y = w.op("Softmax", [y], "weights", axis=-1)
    if form == "nothing":
        zero = w.weight("zero", value=np.float32(0))
        y = w.op("Where", [w.op("IsNaN", [y], "none"), zero, y], "weights.some")
    if form == "dropout":
        y = w.op("Dropout", [y, w.weight("ratio", value=np.float32(0.25)),
                             w.op("Cast", [w.ints("one", 1)], "training",
                                  to=TensorProto.BOOL)], "dropped")
    y = w.op("MatMul", [y, v], "mixed")
    y = w.op("Transpose", [y], "joined", perm=[0, 2, 1, 3])
    y = w.op("Reshape", [y, w.ints("rows", [BATCH, tokens, WIDTH])], "joined.rows")
    w.op("MatMul", [y, w.weight("head.weight", WIDTH, WORDS)], "head")
    w.save(path, "head", [BATCH, tokens, WORDS])
    return feeds


SPEC = {"loss": {"kind": "softmax_cross_entropy", "of": "head", "labels": "labels", "axis": -1},
        "optimizer": {"kind": "sgd", "lr": 0.5, "momentum": 0.9}, "recompute": "none"}
APART = {"tensors": {"scores": None}}


class Tests:
    def __init__(self, command, work):
        self.command, self.work = command, work
        self.specify()
        with open(f"{work}/apart.json", "w") as file:
            json.dump(APART, file)

    def compile(self, form, tokens, *arguments):
        """Draws of inputs, and what was told."""
        feeds = model(f"{self.work}/model.onnx", form, tokens)
        done = subprocess.run(
            [self.command, "compile", f"{self.work}/model.onnx", "-o", f"{self.work}/bundle",
             "--force", "--train", f"{self.work}/spec.json", *arguments],
            capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-3000:])
        return feeds, done.stdout + done.stderr

    def losses(self, feeds, tokens):
        random = np.random.default_rng(3)
        with partita.Session(f"{self.work}/bundle") as session:
            return [float(session.run({
                **{name: draw(random) for name, draw in feeds.items()},
                "labels": random.integers(0, WORDS, (BATCH, tokens))})["loss"])
                for _ in range(4)]

    def equal(self, form):
        """Steps in every way; sizes are no multiples of blocks, tiles or vectors."""
        tokens = 37
        feeds, told = self.compile(form, tokens, "--hints", f"{self.work}/apart.json")
        assert "its attention is two products" in told, told
        wanted = self.losses(feeds, tokens)
        assert np.isfinite(wanted).all() or form == "nothing", wanted
        ways = [[], ["--mesh", "tp=2", "--hints", "megatron"]]
        if form in ("causal", "groups"):
            ways += [["--threads", "2"], ["--mesh", "dp=2", "--mode", "data-parallel"]]
        for arguments in ways:
            feeds, told = self.compile(form, tokens, *arguments)
            assert "its attention is two products" not in told, told
            got = self.losses(feeds, tokens)
            if not np.isfinite(wanted).all():
                # Products apart have NaN for gradients of rows that see nothing.
                assert abs(got[0] - wanted[0]) < 2e-5 * wanted[0], (got, wanted)
                wanted = got
                assert np.isfinite(wanted).all(), wanted
            np.testing.assert_allclose(got, wanted, rtol=2e-5, err_msg=f"{form} {arguments}")
        return wanted

    def moments(self, feeds, tokens):
        """Momentum of what makes q, k and v, behind a step: gradients through attention."""
        random = np.random.default_rng(3)
        with partita.Session(f"{self.work}/bundle") as session:
            session.run({**{name: draw(random) for name, draw in feeds.items()},
                         "labels": random.integers(0, WORDS, (BATCH, tokens))})
            return {name: session.read_state(name) for name in session.states
                    if name in [f"{n}.weight.m" for n in "qkv"]}

    def narrow(self, form):
        """The step in 16 bits against that in f32: gradients of q, k and v differ by roundings,
        some units of 2⁻⁸ and 2⁻¹¹ of their size."""
        tokens, errors = 37, {}
        feeds, _ = self.compile(form, tokens)
        wanted = self.moments(feeds, tokens)
        assert len(wanted) == 3, wanted.keys()
        ways, types = {"": []}, {"bf16": 0.015}
        if form == "groups":
            ways |= {"plain": ["--target", "plain"],
                     "tp": ["--mesh", "tp=2", "--hints", "megatron"],
                     "dp": ["--mesh", "dp=2", "--mode", "data-parallel"]}
            types["f16"] = 0.002
        for compute, bound in types.items():
            self.specify(compute=compute, **({"loss_scale": 64} if compute == "f16" else {}))
            for name, arguments in ways.items():
                feeds, told = self.compile(form, tokens, *arguments)
                assert "its attention is two products" not in told, told
                got = self.moments(feeds, tokens)
                for state, value in wanted.items():
                    error = (np.linalg.norm(got[state] - value) / np.linalg.norm(value))
                    errors[compute] = max(errors.get(compute, 0), float(error))
                    assert error < bound, (form, compute, name, state, error)
        self.specify()
        return errors

    def specify(self, **more):
        with open(f"{self.work}/spec.json", "w") as file:
            json.dump({**SPEC, **more}, file)

    def memory(self):
        """Arena of a step at twice the tokens."""
        growth = {}
        for name, hints, compute in (("op", [], "f32"), ("bf16", [], "bf16"),
                                     ("apart", ["--hints", f"{self.work}/apart.json"], "f32")):
            sizes = []
            self.specify(compute=compute)
            for tokens in (384, 768):
                _, told = self.compile("causal", tokens, *hints)
                sizes.append(int(re.search(r"(\d+) B of arena", told)[1]))
            growth[name] = sizes[1] / sizes[0]
        self.specify()
        assert growth["op"] < 2.2 and growth["bf16"] < 2.2, growth
        assert growth["apart"] > 3, growth
        return growth

    def apart(self, form, why):
        _, told = self.compile(form, 12)
        assert "its attention is two products" in told and why in told, told


def main():
    command, names = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as work:
        tests = Tests(command, work)
        for form in ("causal", "positions", "padding", "groups", "nothing"):
            if not names or form in names:
                print(form, tests.equal(form), flush=True)
        for form in ("padding", "groups"):
            if not names or form in names:
                print(form, tests.narrow(form), flush=True)
        if not names or "memory" in names:
            print("memory", tests.memory())
        for form, why in (("bias", "trains"), ("dropout", "stands behind it")):
            if not names or form in names:
                tests.apart(form, why)
                print(form, "stays apart")


if __name__ == "__main__":
    main()
