#!/usr/bin/env python3
"""Training steps as an ONNX file per rank, and back (docs/rank-files.md).

usage: run_rank_steps.py PARTITA [--all] [--stages]

A step is compiled, written by `partita convert --per-rank-onnx` and read back by `compile
--mode manual`. Both train on the same batches, from what state.safetensors and the bundle
begin with: losses of every step and all states behind the last one are those of the bundle
by the tolerances of run_training.py, and states that are equal to the last bit are counted.
On one rank ONNX Runtime takes the same steps with the file.

Steps of several stages are read back as one program on the ranks of one stage. Where each
stage has one rank, the files run beside each other, too, in threads of onnx's reference
evaluator that send and receive through queues: a file must do what its rank does, in an
order in which no rank waits for ever. `--all` has these for rows of run_pipelines.py that
cover every pair of options, on five models, `--stages` those alone.

Nodes Send and Receive of such files are damaged, one thing at a time: each damage is one
sentence that names the node, and nobody waits for ever.
"""
import argparse
import json
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading

import numpy as np
import onnx
import onnx.reference
import onnxruntime

import equality
import run_pipelines
import run_training
import run_training_f64
import states
import tier
import training_models

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from partita import onnx_schemas  # noqa: E402
import partita  # noqa: E402

training_models.MODELS["windows"] = training_models.windows
STEPS = 3
#: Model, members of the specification, mesh, other arguments of the compile. Each of the
#: first is a kind of its own.
CASES = [
    ("mlp", {"optimizer": {"kind": "adamw"}, "accumulation": 2, "clip_norm": 1.0}, "dp=2,tp=2",
     ["--mode", "auto"]),
    ("mlp", {"optimizer": {"kind": "sgd", "momentum": 0.9},
             "optimizer_parallel": {"enable": True, "level": 3, "threshold_kb": 0}}, "dp=3",
     ["--mode", "data-parallel"]),
    ("transformer", {"optimizer": {"kind": "lamb"}, "on_nan": "skip",
                     "schedule": {"kind": "cosine", "warmup_steps": 2, "total_steps": 9}},
     "tp=4", ["--mode", "auto"]),
    ("mlp", {"optimizer": {"kind": "adam"}, "compute": "bf16", "loss_scale": "dynamic"}, "tp=2",
     ["--mode", "auto"]),
    ("mlp", {"optimizer": {"kind": "adamw"}, "clip_norm": 0.5}, "", []),
    ("windows", {"optimizer": {"kind": "sgd"}}, "", []),
]
MORE = [(model, {"optimizer": {"kind": kind}, **more}, mesh, ["--mode", mode])
        for model in ("mlp", "transformer", "fused")
        # The keys' bias of "fused" has no gradient but rounding, which the others divide.
        for kind, more in (("momentum", {}), ("adagrad", {"accumulation": 3}),
                           ("lamb", {"clip_norm": 1.0}))[:1 if model == "fused" else 3]
        for mesh, mode in (("dp=2", "data-parallel"), ("tp=2", "auto"), ("dp=2,tp=2", "auto"))]
MORE += [
    ("transformer", {"optimizer": {"kind": "adam"}}, "dp=2", ["--mode", "data-parallel"]),
    ("transformer", {"optimizer": {"kind": "sgd"}, "accumulation": 2}, "", []),
    ("windows", {"optimizer": {"kind": "adamw"}}, "dp=2", ["--mode", "data-parallel"]),
    ("windows", {"optimizer": {"kind": "sgd"}}, "tp=3", ["--mode", "auto"]),
    ("conv", {"optimizer": {"kind": "sgd", "momentum": 0.9}}, "", []),
    # Axes go from rows and the batch to channels.
    ("conv", {"optimizer": {"kind": "adamw"}}, "dp=2,tp=2", ["--mode", "auto"]),
]
for _, spec, *_ in MORE:
    if spec["optimizer"]["kind"] == "momentum":
        spec["optimizer"] = {"kind": "sgd", "momentum": 0.9, "nesterov": True}


#: Models of published networks, with tied weights and with running moments among them.
STAGED_MODELS = ["mlp", "conv", "gpt2", "resnet18", "t5"]
DEFAULTS = {"stages": 2, "schedule": "1f1b", "micro": 2, "mesh": None, "level": 0,
            "optimizer": "momentum", "clip": False, "scale": None, "recompute": False,
            "nan": None}
#: Model, what its row has beside the defaults, and, if meshes of stages differ, these and the
#: mesh on which the files are read. The first are of stages of one rank.
STAGED = [(model, run_pipelines.fits(model, {**DEFAULTS, **row}), meshes)
          for model, row, meshes in [
              ("mlp", {"stages": 3, "schedule": "gpipe", "micro": 4, "clip": True}, None),
              ("gpt2", {"schedule": "zb-h1", "clip": True}, None),
              ("gpt2", {"schedule": "zb-v", "clip": True, "micro": 4}, None),
              ("mlp", {"mesh": "dp=2", "level": 3, "optimizer": "adamw", "clip": True,
                       "schedule": "zb-h2", "micro": 4}, None),
              ("gpt2", {"mesh": "tp=2", "schedule": "interleaved"}, None),
              ("conv", {"mesh": "dp=2", "schedule": "1f1b", "micro": 1}, None),
              ("resnet18", {"mesh": "dp=2", "level": 2, "micro": 2}, None),
              ("mlp", {"optimizer": "adamw", "clip": True}, ("dp=2,tp=2;dp=2", "dp=2,tp=2")),
              ("mlp", {"schedule": "zb-auto:1.5", "scale": "dynamic", "nan": "skip"},
               ("one=1;tp=3", "tp=3")),
          ]]


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}\n{done.stdout[-500:]}"
                           f"{done.stderr[-1500:]}")
    return done.stdout


def train(bundle, feeds, begin=None):
    """Losses of all steps, and the states behind the last."""
    losses = []
    with partita.Session(str(bundle)) as session:
        if begin:
            session.load_states(str(begin))
        for feed in feeds:
            losses.append(float(session.run(feed)["loss"]))
        left = {name: session.read_state(name) for name in state_names(bundle)}
    return losses, left


def state_names(bundle):
    entry = json.loads(pathlib.Path(bundle, "plan.json").read_text())["entries"][0]
    return sorted({argument["state"] for stage in entry["stages"]
                   for argument in stage["arguments"] if argument.get("state")})


def compare(actual, wanted, what, counts, share=1e-3):
    """`share`: of the largest element of a state, by which elements may differ."""
    losses, left = actual
    for step, (mine, theirs) in enumerate(zip(losses, wanted[0])):
        if not abs(mine - theirs) <= share / 10 * max(1, abs(theirs)):
            raise RuntimeError(f"{what}: loss {mine} of step {step}, expected {theirs}")
    if set(left) != set(wanted[1]):
        raise RuntimeError(f"{what}: states {sorted(left)}, expected {sorted(wanted[1])}")
    for name, value in wanted[1].items():
        mine, theirs = left[name].astype(np.float64), value.astype(np.float64)
        error = np.max(np.abs(mine - theirs), initial=0)
        if left[name].shape != value.shape or \
                not error <= share * max(1e-3, np.max(np.abs(theirs), initial=0)):
            raise RuntimeError(f"{what}: state '{name}' differs by {error}")
        counts["states"] = counts.get("states", 0) + 1
        counts["equal to the last bit"] = counts.get("equal to the last bit", 0) + \
            int(np.array_equal(left[name], value))


def by_onnxruntime(path, first, feeds):
    """Losses and states of the same steps by a file of one rank, whose states go from
    outputs to inputs."""
    properties = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    pairs = [line.split("=") for line in properties["partita.states"].splitlines()]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names, losses, now = [entry.name for entry in session.get_outputs()], [], dict(first)
    for feed in feeds:
        results = dict(zip(names, session.run(None, {**feed, **now})))
        losses.append(float(results["loss"]))
        now = {past: results[present] for past, present in pairs}
    return losses, now


class Queues(dict):
    """Sent values by name, until somebody receives them."""

    def __missing__(self, value):
        return self.setdefault(value, queue.Queue())


def crossing_ops(queues):
    """Operators for onnx's reference evaluator."""
    class Send(onnx.reference.op_run.OpRun):
        op_domain = "partita"

        def _run(self, x, value=None, ranks=None):
            queues[value].put(x)
            return (x,)

    class Receive(onnx.reference.op_run.OpRun):
        op_domain = "partita"

        def _run(self, *after, value=None, ranks=None, shape=None, type=None):
            x = queues[value].get(timeout=240)  # a file in a wrong order waits for ever
            assert list(x.shape) == list(shape), f"{value}: {x.shape}, expected {shape}"
            return (x,)

    class GatherElements(onnx.reference.op_run.OpRun):
        # The evaluator's own takes no dim of more than 64 elements.
        def _run(self, data, indices, axis=0):
            return (np.take_along_axis(data, indices, axis),)

    class Pad(onnx.reference.op_run.OpRun):
        # The evaluator's own takes no pads below zero, which cut.
        def _run(self, data, pads, value=None, axes=None, mode="constant"):
            ends = list(zip(pads[:data.ndim], pads[data.ndim:]))
            cut = data[tuple(slice(max(0, -low), extent - max(0, -high))
                             for extent, (low, high) in zip(data.shape, ends))]
            return (np.pad(cut, [(max(0, low), max(0, high)) for low, high in ends],
                           constant_values=0 if value is None else value),)

    return [Send, Receive, GatherElements, Pad]


def by_reference(files, first, feeds):
    """Losses and states of the same steps by all files, each in a thread of its own."""
    queues, now, losses = Queues(), dict(first), []
    models = [onnx.load(path) for path in files]
    evaluators = [onnx.reference.ReferenceEvaluator(model, new_ops=crossing_ops(queues))
                  for model in models]
    pairs = [line.split("=") for model in models for entry in model.metadata_props
             if entry.key == "partita.states" for line in entry.value.splitlines()]
    for feed in feeds:
        results, given = {}, {**feed, **now}

        def work(evaluator):
            try:
                outputs = evaluator.run(None, {name: given[name]
                                               for name in evaluator.input_names})
                results.update(zip(evaluator.output_names, outputs))
            except Exception as error:  # pylint: disable=broad-except
                results.setdefault("error", error)
        threads = [threading.Thread(target=work, args=(each,)) for each in evaluators]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if "error" in results:
            raise RuntimeError(f"by the reference evaluator: {results['error']!r}")
        left = [value for value, waiting in queues.items() if not waiting.empty()]
        if left:
            raise RuntimeError(f"by the reference evaluator: nobody received {left}")
        losses.append(float(results["loss"]))
        now = {past: np.asarray(results[present]) for past, present in pairs}
    return losses, now


def run_staged(command, case, work, counts):
    """A step of several stages."""
    model, row, meshes = case
    arguments = run_pipelines.arguments_of(row)
    step = run_pipelines.Pipeline(command, str(work), model, run_pipelines.spec_of(row), [
        *arguments, *(["--mesh", meshes[0], "--mode", "auto"] if meshes else [])])
    feeds = list(step.feeds(STEPS))
    wanted = train(step.bundle, feeds)
    ranks = work / "ranks"
    call(command, "convert", step.bundle, "--per-rank-onnx", ranks)
    files = sorted(ranks.glob("rank-*.onnx"))
    mesh = meshes[1] if meshes else row["mesh"] or ""
    onnx_schemas.register_onnx_schemas(mesh)
    for path in files:
        onnx.checker.check_model(onnx.load(path), full_check=True, check_custom_domain=True)
    call(command, "compile", *reversed(files), "-o", work / "back", "--mode", "manual",
         *(["--mesh", mesh] if mesh else []))
    first, _ = states.read_states(ranks / "state.safetensors")
    compare(train(work / "back", feeds, ranks / "state.safetensors"), wanted, "read back",
            counts)
    if not mesh:
        compare(by_reference(files, first, feeds), wanted, "rank by rank", counts)
        counts["run rank by rank"] = counts.get("run rank by rank", 0) + 1
    counts["files"] = counts.get("files", 0) + len(files)


def damages(models):
    """Nodes that cross, by file, with what to do to the file and what the error says."""
    def put(attribute, value):
        def change(graph, node):
            kept = [each for each in node.attribute if each.name != attribute]
            del node.attribute[:]
            node.attribute.extend(kept)
            if value is not None:
                node.attribute.append(onnx.helper.make_attribute(attribute, value))
        return change

    def hide(graph, node):
        """Takes the Send from the outputs: nobody reads a node whose result nobody needs."""
        kept = [each for each in graph.output if each.name != node.output[0]]
        del graph.output[:]
        graph.output.extend(kept)
        for other in graph.node:
            for index, name in enumerate(other.input):
                other.input[index] = node.input[0] if name == node.output[0] else name

    def early(graph, node):
        """Moves the Receive to the front: the rank waits for what follows from later nodes."""
        nodes = [each for each in graph.node if each.name != node.name]
        del node.input[:]
        del graph.node[:]
        graph.node.extend([node, *nodes])

    for number, model in enumerate(models):
        for node in model.graph.node:
            if node.op_type not in ("Send", "Receive"):
                continue
            for attribute, value in (("value", "nothing"), ("value", None), ("ranks", [7])):
                yield number, node.name, put(attribute, value), node.name
            if node.op_type == "Send":
                yield number, node.name, hide, node.name.replace("/Send", "/Receive")
                continue
            for attribute, value in (("shape", [5, 3]), ("shape", None), ("type", 11),
                                     ("type", 99)):
                yield number, node.name, put(attribute, value), node.name
            # The first group needs nothing to begin with, and the last one is at the turn.
            if number == 0 and ", micro-batch 0" in node.name:
                yield number, node.name, early, "wait for each other for ever"


def run_damaged(command, work, counts):
    row = DEFAULTS
    step = run_pipelines.Pipeline(command, str(work), "mlp", run_pipelines.spec_of(row),
                                  run_pipelines.arguments_of(row))
    call(command, "convert", step.bundle, "--per-rank-onnx", work / "ranks")
    files = sorted((work / "ranks").glob("rank-*.onnx"))
    cases = list(damages([onnx.load(path) for path in files]))
    for number, name, change, said in tier.sample("rank-steps-damaged", cases):
        damaged = onnx.load(files[number])
        change(damaged.graph, next(each for each in damaged.graph.node if each.name == name))
        onnx.save(damaged, work / "damaged.onnx")
        given = [work / "damaged.onnx" if index == number else path
                 for index, path in enumerate(files)]
        done = subprocess.run([command, "compile", *given, "-o", work / "no", "--mode", "manual"],
                              capture_output=True, text=True, timeout=30)
        if done.returncode != 1 or "error: " not in done.stderr or said not in done.stderr:
            raise RuntimeError(f"damaged '{name}' of rank {number}: {done.returncode}, "
                               f"{done.stderr[-500:]}, expected '{said}'")
        if (work / "no").exists():
            raise RuntimeError(f"damaged '{name}' of rank {number}: a bundle is there")
        counts["damages refused"] = counts.get("damages refused", 0) + 1


def staged_rows():
    """Rows that cover every pair of options, on all models."""
    rows = list(run_training_f64.pairwise(run_pipelines.OPTIONS))
    cases = [(model, run_pipelines.fits(model, row), None) for model in STAGED_MODELS
             for row in rows] + [("gpt2", row, None) for row in run_pipelines.TIED]
    # A bias of keys, or before a normalization, has no gradient but rounding, which the
    # other optimizers divide.
    return [(model, row if model == "mlp" else {**row, "optimizer": "momentum"}, at)
            for model, row, at in cases]


def all_cases():
    return ([(run_case, case) for case in CASES + MORE]
            + [(run_staged, case) for case in STAGED])


def kind_of(entry):
    """The kind of a case of all_cases, of each of which the quick tier has one."""
    run, case = entry
    if run is run_staged:
        return "stages" if case[0] == "mlp" else None
    return CASES.index(case) if case in CASES else None


def run_case(command, case, work, counts):
    model, spec, mesh, how = case
    step = run_training.Step(command, str(work), model, spec,
                             [*(["--mesh", mesh] if mesh else []), *how])
    feeds = list(step.feeds(STEPS))
    wanted = train(step.bundle, feeds)
    ranks = work / "ranks"
    call(command, "convert", step.bundle, "--per-rank-onnx", ranks)
    files = sorted(ranks.glob("rank-*.onnx"))
    onnx_schemas.register_onnx_schemas(mesh)
    for path in files:
        onnx.checker.check_model(onnx.load(path), full_check=True, check_custom_domain=True)
    call(command, "compile", *files, "-o", work / "back",
         *(["--mesh", mesh, "--mode", "manual"] if mesh else []))
    # Halves are rounded at other places, as the rule for outputs has it.
    share = equality.HALF_UNITS * equality.EPSILON["bfloat16"] if "compute" in spec else 1e-3
    first, _ = states.read_states(ranks / "state.safetensors")
    compare(train(work / "back", feeds, ranks / "state.safetensors"), wanted, "read back",
            counts, share)
    if not mesh:
        compare(by_onnxruntime(files[0], first, feeds), wanted, "by ONNX Runtime", counts)
    counts["files"] = counts.get("files", 0) + len(files)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("--all", action="store_true", help="in whatever tier")
    parser.add_argument("--stages", action="store_true", help="steps of several stages alone")
    arguments = parser.parse_args()
    training_models.MODELS.update(
        {name: run_pipelines.published(run_pipelines.PUBLISHED[name])
         for name in STAGED_MODELS if name in run_pipelines.PUBLISHED})
    cases, counts, failures = all_cases(), {}, []
    if arguments.all:
        cases += [(run_staged, case) for case in staged_rows()]
    else:
        cases = tier.sample("rank-steps", cases, kind_of)
    if arguments.stages:
        cases = [case for case in cases if case[0] is run_staged]
    for run, case in cases:
        with tempfile.TemporaryDirectory(prefix="partita-steps-") as work:
            try:
                run(arguments.partita, case, pathlib.Path(work), counts)
            except (RuntimeError, AssertionError, onnx.checker.ValidationError,
                    onnx.shape_inference.InferenceError) as error:
                failures.append(f"{case}: {error}")
                print(failures[-1][:2000], flush=True)
    with tempfile.TemporaryDirectory(prefix="partita-steps-") as work:
        try:
            run_damaged(arguments.partita, pathlib.Path(work), counts)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failures.append(str(error))
            print(failures[-1][:2000], flush=True)
    print(f"{len(cases)} steps: " + ", ".join(f"{count} {name}"
                                              for name, count in counts.items()))
    if failures:
        sys.exit(f"{len(failures)} failed")


main()
