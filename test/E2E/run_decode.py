#!/usr/bin/env python3
"""A decoder whose caches are states, step by step against ONNX Runtime.

usage: run_decode.py PARTITA [--steps 64] [--all]

The model is that of examples/chat. Each step gives a token to Partita, which keeps its
caches, and to ONNX Runtime, which is given the caches that it returned. The logits of all
steps and the caches of the last one are equal by the rule of equality.py, without a judge
in f64. What a request writes into a cache are the new rows, in place, whether they are
scattered into it or appended to a window by Concat, which then begins elsewhere: the bytes
are counted over the tasks (test/Passes/Codegen/in-place-scatter.mlir, rolling-state.mlir).

Entries for a prompt and for one token share the caches: a prompt of 32, then steps.
A batch in micro-batches has its caches in as many slices.

Then states are files: what one bundle saves, others of other plans, numbers of ranks and
transports load, bit by bit, and go on from there.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

import equality
from states import read_states

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "examples", "chat")]
import build_model  # noqa: E402
import partita  # noqa: E402
import window_model  # noqa: E402

#: Name, arguments of compile.
PLANS = [("one", []),
         ("tp2", ["--mesh", "tp=2", "--hints", "megatron"]),
         ("stages2x2", ["--mesh", "tp=2", "--stages", "2"]),
         ("auto4", ["--mesh", "a=2,b=2"])]
MORE = [("tp4", ["--mesh", "tp=4", "--hints", "megatron"]),
        ("auto2", ["--mesh", "tp=2"]),
        ("auto3", ["--mesh", "tp=3"]),
        ("auto8", ["--mesh", "a=2,b=4"])]


def call(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}\n{done.stderr[-2000:]}")
    return done.stdout


class Reference:
    """ONNX Runtime, whose caches are passed on by hand."""

    def __init__(self, path, batch=1):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns of every cache that it copies
        self.session = onnxruntime.InferenceSession(path, options)
        self.names = [output.name for output in self.session.get_outputs()]
        self.caches = {i.name: np.zeros([batch, *i.shape[1:]], np.float32)
                       for i in self.session.get_inputs() if i.name.startswith("past.")}

    def step(self, tokens, position):
        values = self.session.run(None, {**self.caches, "tokens": tokens,
                                         "position": position})
        outputs = dict(zip(self.names, values))
        for name, past in self.caches.items():
            present = outputs[name.replace("past.", "present.")]
            self.caches[name] = present[:, :, -past.shape[2]:]  # of one that grows
        return outputs["logits"]


def equal(what, actual, expected):
    close = np.isclose(actual, expected, rtol=equality.RTOL, atol=equality.ATOL)
    if not close.all():
        worst = np.abs(actual - expected).max()
        raise RuntimeError(f"{what}: {(~close).sum()} of {close.size} elements differ, "
                           f"by {worst:.3g} at most")


#: With entries for 32 tokens and for one.
ENTRY_PLANS = [("prompt2", ["--mesh", "tp=2"]),
               ("prompt2x2", ["--mesh", "tp=2", "--stages", "2"]),
               ("promptgroups", ["--mesh", "tp=2;tp=1", "--stages", "4", "--groups",
                                 "2"])]


def check_writes(name, bundle, rows):
    """A request of so many rows writes these into the caches of each rank, and no others.
    Of stages each has its layers' caches."""
    with open(os.path.join(bundle, "plan.json")) as file:
        stages = json.load(file)["entries"][0]["stages"]
    caches = 0
    for stage in stages:
        sizes = {axis.split("=")[0]: int(axis.split("=")[1])
                 for axis in stage["mesh"].split(",") if axis}
        wanted = 0
        for layout in (a["layout"] for a in stage["arguments"] if "state" in a):
            known = re.fullmatch(r"\[\{1\}, \{2(/\d+)?(: .*)?\}, \{\d+\}, \{16\}\]", layout)
            if not known:
                raise RuntimeError(f"{name}: a cache lies in {layout}")
            heads = int((known[1] or "/2")[1:])  # with padding
            for axis in (known[2] or ": ")[2:].split(", "):
                # All of an axis, or a part "axis:(before)size".
                heads //= int(axis.split(")")[1]) if ")" in axis else sizes.get(axis, 1)
            wanted += heads * rows * 16 * 4
            caches += 1
        if wanted == 0:
            raise RuntimeError(f"{name}: a stage has no caches")
        if stage["memory"]["state_writes"] != wanted:
            raise RuntimeError(f"{name}: a request writes {stage['memory']['state_writes']} "
                               f"bytes into the caches of a rank, expected {wanted}")
    if caches != 4:
        raise RuntimeError(f"{name}: {caches} caches, expected those of 2 layers")


def check_entries(name, bundle, model, steps, pads=True):
    """A prompt, then steps, twice: the second time from states that were reset."""
    with partita.Session(bundle) as session:
        for _ in range(2):
            reference = Reference(model)
            tokens = np.random.default_rng(5).integers(0, 128, (1, 32))
            for step in range(steps):
                position = np.array([31 + step if step else 0])
                expected = reference.step(tokens, position)
                actual = session.run({"tokens": tokens, "position": position})["logits"]
                equal(f"{name}, step {step}", actual, expected)
                if session.entry != ("sequence=1" if step else "sequence=32"):
                    raise RuntimeError(f"{name}: step {step} ran in {session.entry}")
                tokens = inputs_of(step)[0]
            for state, expected in reference.caches.items():
                equal(f"{name}, {state}", session.read_state(state), expected)
            session.reset_states()
        if pads:  # else rows of padding would be appended
            check_short(name, session, model)


def check_short(name, session, model):
    """Five tokens and one more where there are entries for 32 and for one."""
    reference = Reference(model)
    tokens, at = np.random.default_rng(8).integers(0, 128, (1, 11)), 0
    for count in (5, 1, 5):
        given = {"tokens": tokens[:, at:at + count], "position": np.array([at])}
        if count == 5:
            try:
                session.run(given)
                raise RuntimeError(f"{name}: five tokens are taken")
            except partita.PartitaError as error:
                if ("'sequence=32' takes" not in str(error)
                        or "pad=True" not in str(error)):
                    raise
        logits = session.run(given, pad=True)["logits"]
        equal(f"{name}, {count} tokens padded", logits, reference.step(**given))
        if session.entry != ("sequence=32" if count == 5 else "sequence=1"):
            raise RuntimeError(f"{name}: {count} tokens ran in {session.entry}")
        at += count
    for given, said in (({"tokens": np.zeros((1, 33), np.int64)}, "no entry takes"),
                        ({"tokens": np.zeros((2, 5), np.int64)}, "no entry takes"),
                        ({"tokens": np.zeros((1, 5), np.int64)}, "'position' is missing")):
        try:
            session.run(given, pad=True)
            raise RuntimeError(f"{name}: {given} is taken")
        except partita.PartitaError as error:
            if said not in str(error):
                raise


#: A batch of four in micro-batches, each with its rows of the caches.
BATCH = 4
SLICED_PLANS = [("slices", ["--micro-batches", "2"]),
                ("slices2x2", ["--micro-batches", "4", "--mesh", "tp=2;tp=1", "--stages",
                               "2"])]


def check_slices(command, model, work, counts=(8, 1, 8, 1)):
    """Prompts and tokens, then a state of one plan in the other."""
    reference = Reference(model, BATCH)
    random = np.random.default_rng(7)
    saved, at, inputs = os.path.join(work, "slices", "state.safetensors"), 0, []
    for count in counts:
        inputs.append({"tokens": random.integers(0, 128, (BATCH, count)),
                       "position": np.full(BATCH, at)})
        at += count
    expected = [reference.step(**i) for i in inputs]
    for name, more in SLICED_PLANS:
        bundle = os.path.join(work, f"{name}.bundle")
        call([command, "compile", model, "-o", bundle, "--shape", f"batch={BATCH}",
              "--shape", "sequence=8", "--shape", "sequence=1", "--state",
              "past.*=present.*", *more])
        with partita.Session(bundle) as session:
            for step, (given, logits) in enumerate(zip(inputs, expected)):
                equal(f"{name}, step {step}", session.run(given)["logits"], logits)
            for state, value in reference.caches.items():
                equal(f"{name}, {state}", session.read_state(state), value)
            if not os.path.exists(saved):
                os.makedirs(os.path.dirname(saved))
                session.save_states(saved)
    given = {"tokens": random.integers(0, 128, (BATCH, 1)),
             "position": np.full(BATCH, at)}
    for key, value in given.items():
        np.save(os.path.join(work, f"{key}.npy"), value)
    call([command, "run", bundle, "--transport", "mpi", "--state-dir",
          os.path.dirname(saved), "--outputs-dir", work,
          *[text for key in given for text in ("--input", f"{key}={work}/{key}.npy")]])
    equal("slices, from a file by mpi", equality.load(os.path.join(work, "output_0.pb")),
          reference.step(**given))


def check_padding(command, bundle, model, work):
    """Five tokens in the entry for 32, then one behind them, by the command."""
    reference = Reference(model)
    tokens = np.random.default_rng(6).integers(0, 128, (1, 6))
    folder = os.path.join(work, "padded")
    for part, position in ((tokens[:, :5], 0), (tokens[:, 5:], 5)):
        np.save(os.path.join(work, "tokens.npy"), part)
        np.save(os.path.join(work, "position.npy"), np.array([position]))
        arguments = [command, "run", bundle, "--state-dir", folder, "--outputs-dir",
                     folder, "--input", f"tokens={work}/tokens.npy", "--input",
                     f"position={work}/position.npy"]
        if part.shape[1] == 5:
            done = subprocess.run(arguments, capture_output=True, text=True)
            if done.returncode != 1 or "--pad, in Python" not in done.stderr:
                raise RuntimeError(f"five tokens without --pad: {done.stderr}")
        call([*arguments, "--pad"])
        equal(f"padded, at {position}",
              equality.load(os.path.join(folder, "output_0.pb")),
              reference.step(part, np.array([position])))


def inputs_of(step, seed=0):
    """The token of a step, and where it goes."""
    token = np.random.default_rng((seed, step)).integers(0, 128, (1, 1))
    return token, np.array([step])


def check_steps(name, bundle, model, steps):
    reference = Reference(model)
    with partita.Session(bundle) as session:
        if sorted(session.states) != sorted(reference.caches):
            raise RuntimeError(f"{name}: the states are {sorted(session.states)}")
        if sorted(session.inputs) != ["position", "tokens"]:
            raise RuntimeError(f"{name}: the inputs are {sorted(session.inputs)}")
        for step in range(steps):
            tokens, position = inputs_of(step)
            expected = reference.step(tokens, position)
            actual = session.run({"tokens": tokens, "position": position})["logits"]
            equal(f"{name}, step {step}", actual, expected)
        for state, expected in reference.caches.items():
            equal(f"{name}, {state}", session.read_state(state), expected)


def check_windows(command, work, steps, plans):
    """Caches that are windows of 12 rows, long enough to be full and come to the ends of
    their places several times."""
    for form in ("shift", "slice", "both", "grow"):
        model = os.path.join(work, f"{form}.onnx")
        onnx.save(window_model.WindowModel(form, 12, layers=2).build(), model)
        bundles = []
        for name, more in plans if form in ("shift", "grow") else PLANS[:1]:
            bundle = os.path.join(work, f"{form}-{name}")
            call([command, "compile", model, "-o", bundle, "--shape", "batch=1", "--shape",
                  "sequence=1", "--state", "past.*=present.*", *more])
            check_steps(f"window by {form}, {name}", bundle, model, max(16, steps))
            check_writes(f"window by {form}, {name}", bundle, 1)
            bundles.append((name, bundle))
    check_files(command, bundles, tempfile.mkdtemp(dir=work), steps=29, rows=12)
    # Rows of 96 bytes, which begin at multiples of 64.
    model = os.path.join(work, "wide.onnx")
    onnx.save(window_model.WindowModel("grow", 12, layers=2, head=24).build(), model)
    for name, more in PLANS[:2]:
        bundle = os.path.join(work, f"wide-{name}")
        call([command, "compile", model, "-o", bundle, "--shape", "batch=1", "--shape",
              "sequence=1", "--state", "past.*=present.*", *more])
        check_steps(f"window of wide rows, {name}", bundle, model, max(16, steps))
    model = os.path.join(work, "prompt.onnx")
    onnx.save(window_model.WindowModel("grow", 40, layers=2).build(), model)
    for name, more in ENTRY_PLANS:
        bundle = os.path.join(work, f"window-{name}")
        call([command, "compile", model, "-o", bundle, "--shape", "batch=1", "--shape",
              "sequence=32", "--shape", "sequence=1", "--state", "past.*=present.*", *more])
        check_entries(f"window, {name}", bundle, model, 60, pads=False)
    check_slices(command, model, tempfile.mkdtemp(dir=work),
                 (8, 1, 8, 1, *[8, 1] * 6))


def save_inputs(folder, step):
    for name, value in zip(("tokens", "position"), inputs_of(step)):
        np.save(os.path.join(folder, f"{name}.npy"), value)
    return [text for name in ("tokens", "position")
            for text in ("--input", f"{name}={folder}/{name}.npy")]


def check_files(command, bundles, work, steps=3, rows=96):
    """Some steps by the last bundle, then one by each from its file. All but two of the
    steps are one session's."""
    first = os.path.join(work, "first")
    os.makedirs(first)
    with partita.Session(bundles[-1][1]) as session:
        for step in range(steps - 2):
            session.run(dict(zip(("tokens", "position"), inputs_of(step))))
        session.save_states(os.path.join(first, "state.safetensors"))
    for step in range(steps - 2, steps):
        call([command, "run", bundles[-1][1], "--state-dir", first,
              *save_inputs(work, step)])
    saved, metadata = read_states(os.path.join(first, "state.safetensors"))
    if not any(" on " in text for text in metadata.values()):
        raise RuntimeError(f"the file does not tell layouts: {metadata}")
    # Loading and saving without a request between changes nothing.
    for name, bundle in bundles:
        again = os.path.join(work, f"{name}.safetensors")
        with partita.Session(bundle) as session:
            session.load_states(os.path.join(first, "state.safetensors"))
            session.save_states(again)
        loaded = read_states(again)[0]
        if loaded.keys() != saved.keys() or any(
                loaded[key].tobytes() != saved[key].tobytes() for key in saved):
            raise RuntimeError(f"{name}: what is loaded is not what is saved")
    expected = None
    for name, bundle in bundles:
        for transport in ("local", "mpi"):
            folder = os.path.join(work, f"{name}-{transport}")
            os.makedirs(folder)
            with open(os.path.join(folder, "state.safetensors"), "wb") as file:
                with open(os.path.join(first, "state.safetensors"), "rb") as source:
                    file.write(source.read())
            call([command, "run", bundle, "--transport", transport, "--state-dir", folder,
                  *save_inputs(work, steps), "--outputs-dir", folder])
            value = equality.load(os.path.join(folder, "output_0.pb"))
            expected = value if expected is None else expected
            equal(f"{name}, {transport}, the step from a file", value, expected)
    check_errors(command, bundles[0][1], work, rows)


def check_errors(command, bundle, work, rows):
    """A file of other states is one sentence, and nothing is set."""
    cases = {"of another size": {"past.0.key": np.zeros((1, 2, rows - 1, 16), np.float32)},
             "that lacks one": {"past.0.key": None},
             "with one more": {"past.9.key": np.zeros(3, np.float32)}}
    wanted = {"of another size": f"state 'past.0.key' is f32[1, 2, {rows - 1}, 16], "
                                 f"expected f32[1, 2, {rows}, 16]",
              "that lacks one": "has no state 'past.0.key'",
              "with one more": "has a state 'past.9.key', which the bundle has not"}
    with partita.Session(bundle) as session:
        for what, change in cases.items():
            tensors = {n: np.zeros(shape, dtype)
                       for n, (dtype, shape) in session.states.items()}
            tensors.update(change)
            path = os.path.join(work, "bad.safetensors")
            write_safetensors(path, {n: v for n, v in tensors.items() if v is not None})
            try:
                session.load_states(path)
                raise RuntimeError(f"a file {what} is taken")
            except partita.PartitaError as error:
                if wanted[what] not in str(error):
                    raise RuntimeError(f"a file {what}: {error}") from error
    done = subprocess.run([command, "run", bundle, "--state-dir", "/dev/null/x",
                           *save_inputs(work, 0)], capture_output=True, text=True)
    if done.returncode != 1 or "cannot create the folder" not in done.stderr:
        raise RuntimeError(f"a folder that cannot be: {done.stderr}")


def write_safetensors(path, tensors):
    import json
    header, offset = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape),
                        "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(value.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        model = os.path.join(work, "chat.onnx")
        onnx.save(build_model.Model(layers=2).build(), model)
        bundles = []
        plans = PLANS + (MORE if arguments.all else [])
        for name, more in plans:
            bundle = os.path.join(work, name)
            call([arguments.partita, "compile", model, "-o", bundle, "--shape", "batch=1",
                  "--shape", "sequence=1", "--state", "past.*=present.*", *more])
            check_steps(name, bundle, model, arguments.steps)
            check_writes(name, bundle, 1)
            print(f"{name}: {arguments.steps} steps equal", flush=True)
            bundles.append((name, bundle))
        for name, more in ENTRY_PLANS:
            bundle = os.path.join(work, name)
            call([arguments.partita, "compile", model, "-o", bundle, "--shape", "batch=1",
                  "--shape", "sequence=32", "--shape", "sequence=1", "--state",
                  "past.*=present.*", *more])
            check_entries(name, bundle, model, 8)
            check_padding(arguments.partita, bundle, model,
                          tempfile.mkdtemp(dir=work))
            print(f"{name}: a prompt and steps equal", flush=True)
        check_windows(arguments.partita, work, arguments.steps, plans)
        print("caches that are windows equal", flush=True)
        check_slices(arguments.partita, model, work)
        print("micro-batches with their rows of the caches equal", flush=True)
        check_files(arguments.partita, bundles, work)
        print(f"{len(bundles)} bundles load what one has saved, bit by bit")


if __name__ == "__main__":
    main()
