#!/usr/bin/env python3
"""A bundle as an ONNX file per rank, and back (docs/rank-files.md).

usage: run_rank_files.py PARTITA ZOO MODEL… [--plans NAME…] [--dialects NAME…] [--all]

Each model is compiled by each plan, written by `partita convert --per-rank-onnx`, checked
by onnx.checker with our schemas, and read back by `partita compile rank-*.onnx --mode
manual`. What that gives is the expected output by the rule of equality.py. On one rank ONNX
Runtime runs the file, too. A file is at most 5% larger than its rank's weights; beside them
it has nodes, whose names and attributes are counted apart, as the models of the zoo have
weights of a few kilobytes.
"""
import argparse
import json
import os
import pathlib
import re
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

import equality
import run_model
import tier

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from partita import onnx_schemas  # noqa: E402

#: (name, mesh, how): see run_model.CASES.
PLANS = [("data", "dp=2", "data"), ("columns", "tp=4", "hints"), ("both", "dp=2,tp=2", "hints"),
         ("uneven", "dp=3", "data")]
#: A mesh per stage: what crosses is split here and whole there, or has padding.
STAGED = [("stages", "tp=2;tp=1", "auto"), ("uneven-stages", "dp=3;dp=2", "data")]
#: Rows and columns of pictures: halos are gathers there. Of models that have them.
SPATIAL = ("spatial", "h=2,w=2", "spatial")
#: Share of a rank's weights that a file has beside them, and what a node takes: its names,
#: attributes and the constants that it reads.
SHARE = 0.05


class Counts(dict):
    def add(self, **counts):
        for name, count in counts.items():
            self[name] = self.get(name, 0) + count

    def __str__(self):
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.items())


def compile_by(arguments, folder, case, mesh, how, work):
    """The bundle of a model by a plan, and how many bytes of weights a rank has."""
    model, bundle = os.path.join(folder, "model.onnx"), os.path.join(work, "bundle")
    shapes = list(run_model.shape_arguments(case, folder))
    command = [arguments.partita, "compile", model, "-o", bundle, *shapes]
    if mesh:
        command += ["--mesh", mesh]
    if ";" in mesh:
        command += ["--stages", "2"]
    if how == "data":
        command += ["--mode", "data-parallel"]
    hints = None
    if how == "hints":
        dump = os.path.join(work, "ir")
        run_model.call([arguments.partita, "compile", model, "--to", "L0", "--dump-dir", dump,
                        *shapes])
        ir = pathlib.Path(dump, "00-imported.mlir").read_text()
        hints = run_model.weight_hints(ir, mesh, case["shapes"])
    if how == "spatial":
        hints = run_model.spatial_hints(model, mesh, case["shapes"])
    if hints:
        path = os.path.join(work, "hints.json")
        pathlib.Path(path).write_text(json.dumps(hints))
        command += ["--mode", "semi-auto", "--hints", path]
    said = run_model.call(command)
    # Ranks of several stages have weights of their own.
    return bundle, weights_of(said) if ";" not in mesh else None


def weights_of(said):
    """Bytes of weights that a rank has, of what a compile says."""
    return int(re.search(r"(\d+) B of weights as the model stores them", said)[1])


def overhead(model):
    """Bytes of a file that are no values of large tensors: its nodes, their names, and
    constants of a few elements."""
    small = sum(tensor.ByteSize() for tensor in model.graph.initializer
                if len(tensor.raw_data) <= 512)
    return small + sum(node.ByteSize() + 8 for node in model.graph.node)


def check_files(files, mesh, weights, counts):
    for path in files:
        model = onnx.load(path)
        stage = re.search(r" of stage (\d+) of ", model.graph.name)
        onnx_schemas.register_onnx_schemas(mesh.split(";")[int(stage[1])] if stage else mesh)
        onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
        counts.add(files=1)
        if weights is None:
            continue
        extra = os.path.getsize(path) - weights
        if extra > SHARE * weights + overhead(model) + 4096:
            raise run_model.Failure(
                f"{path} has {os.path.getsize(path)} bytes, its rank's weights have {weights} "
                f"and its nodes {overhead(model)}")
        counts.add(within_5_percent=int(extra <= SHARE * weights))


def compare(arguments, bundle, original, folder, case, work, counts, what):
    out = os.path.join(work, "out")
    run_model.call([arguments.partita, "run", bundle, "--inputs-dir",
                    os.path.join(folder, "inputs"), "--outputs-dir", out])
    wide = equality.WideResults(arguments.partita, [original], os.path.join(folder, "inputs"))
    for k in range(len(case["outputs"])):
        equality.check(equality.load(os.path.join(out, f"output_{k}.pb")),
                       equality.load(os.path.join(folder, "expected", f"output_{k}.pb")), wide,
                       k, f"output {k} {what}")
        counts.add(outputs_equal=1)


def run_plan(arguments, folder, case, plan, counts):
    name, mesh, how = plan
    with tempfile.TemporaryDirectory(prefix="partita-ranks-") as work:
        bundle, weights = compile_by(arguments, folder, case, mesh, how, work)
        staged = ["--stages", "2"] if ";" in mesh else []
        for dialect in arguments.dialects:
            if staged and dialect != "partita":
                continue  # an error, of which test/Tools has one
            ranks = os.path.join(work, dialect)
            said = run_model.call([arguments.partita, "convert", bundle, "--per-rank-onnx",
                                   ranks, "--dialect", dialect])
            files = sorted(str(path) for path in pathlib.Path(ranks).glob("rank-*.onnx"))
            check_files(files, mesh, weights, counts)
            counts.add(collectives=int(re.search(r"(\d+) of them collectives", said)[1]))
            back = os.path.join(work, "back-" + dialect)
            said = run_model.call([arguments.partita, "compile", *files, "-o", back, "--mesh",
                                   mesh, "--mode", "manual", *staged])
            # Each rank reads its own; nothing is whole.
            if weights is not None and weights_of(said) > (1 + SHARE) * weights + overhead(onnx.load(files[0])):
                raise run_model.Failure(f"a rank has {weights} bytes of weights, and "
                                        f"{weights_of(said)} when read back")
            compare(arguments, back, bundle, folder, case, work, counts,
                    f"by {name}, read back from {dialect}")


def run_alone(arguments, folder, case, counts):
    """ONNX Runtime runs the file of one rank, which has no collective."""
    with tempfile.TemporaryDirectory(prefix="partita-ranks-") as work:
        bundle, weights = compile_by(arguments, folder, case, "", "auto", work)
        ranks = os.path.join(work, "ranks")
        run_model.call([arguments.partita, "convert", bundle, "--per-rank-onnx", ranks])
        path = os.path.join(ranks, "rank-0.onnx")
        check_files([path], "", weights, counts)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        inputs = {entry.name: equality.load(os.path.join(folder, "inputs", f"input_{k}.pb"))
                  for k, entry in enumerate(session.get_inputs())}
        wide = equality.WideResults(arguments.partita, [bundle],
                                    os.path.join(folder, "inputs"))
        for k, actual in enumerate(session.run(None, inputs)):
            equality.check(np.asarray(actual), equality.load(
                os.path.join(folder, "expected", f"output_{k}.pb")), wide, k,
                f"output {k} by ONNX Runtime")
            counts.add(outputs_equal_in_ONNX_Runtime=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--plans", nargs="+", help="only these")
    parser.add_argument("--dialects", nargs="+", default=["partita"])
    parser.add_argument("--all", action="store_true", help="in whatever tier")
    arguments = parser.parse_args()
    plans = [*PLANS, *STAGED, ("alone", "", "auto")]
    cases = [(model, plan) for model in arguments.models for plan in plans
             if not arguments.plans or plan[0] in arguments.plans]
    cases += [(model, SPATIAL) for model in arguments.models
              if model in run_model.SPATIAL_MODELS
              and (not arguments.plans or "spatial" in arguments.plans)]
    counts, failures = Counts(), []
    if not arguments.all:
        cases = tier.sample("rank-files", cases, lambda case: case[1][0])
    for model, plan in cases:
        folder = os.path.join(arguments.zoo, model)
        with open(os.path.join(folder, "case.json")) as file:
            case = json.load(file)
        try:
            if plan[0] == "alone":
                run_alone(arguments, folder, case, counts)
            else:
                run_plan(arguments, folder, case, plan, counts)
            counts.add(cases=1)
        except (run_model.Failure, equality.Unequal, onnx.checker.ValidationError,
                onnx.shape_inference.InferenceError) as error:
            failures.append(f"{model} by {plan[0]}: {error}")
            print(failures[-1][:2000], flush=True)
    print(counts)
    if failures:
        sys.exit(f"{len(failures)} failed")


main()
