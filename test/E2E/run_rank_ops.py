#!/usr/bin/env python3
"""Operators of their own writer in files per rank, and back (docs/rank-files.md).

usage: run_rank_ops.py PARTITA [MODEL…] [--all]

Each model of rank_op_models.py is compiled by each of its plans, written by `partita convert
--per-rank-onnx`, checked by onnx.checker with our schemas and read back in mode manual. What
that gives is what ONNX Runtime gives of the model, by the rule of equality.py. On one rank
ONNX Runtime runs the file, too.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import equality
import rank_op_models
import run_model
import tier

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from partita import onnx_schemas  # noqa: E402

#: Mesh and mode by plan.
PLANS = {"alone": ("", "auto"), "data": ("dp=2", "data-parallel"),
         "uneven": ("dp=3", "data-parallel"), "hints": ("tp=2", "semi-auto"),
         "rows": ("h=3", "semi-auto")}
#: Splits that only hints ask for: the products inside a loop, so that its body has a
#: collective, the rows of a picture, the pictures of regions.
HINTS = {
    "scanned": ("hints", {"*hw": [[None, "tp"], ["tp", None]]}),
    "looped": ("hints", {"*hw": [[None, "tp"], ["tp", None]]}),
    "averaged": ("rows", {name: [[None, None, "h", None]] for name in "yz"}),
    "regions": ("hints", {"y": [["tp", None, None, None]]})}
#: Collectives that the hints lead to.
EXCHANGES = {"scanned", "looped", "regions"}


def runs_in_onnxruntime(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, inputs)]


def compare(partita, bundle, work, actual, expected, what):
    wide = equality.WideResults(partita, [str(bundle)], work / "inputs")
    if len(actual) != len(expected):
        raise equality.Unequal(f"{what}: {len(actual)} outputs, expected {len(expected)}")
    for k, (value, wanted) in enumerate(zip(actual, expected)):
        equality.check(value, wanted, wide, k, f"output {k} {what}")


def collectives_of(graph):
    """Nodes that exchange, in bodies of loops too."""
    count = 0
    for node in graph.node:
        count += node.domain == "partita" and node.op_type not in ("ToLocal", "ToGlobal")
        count += sum(collectives_of(attribute.g) for attribute in node.attribute
                     if attribute.type == onnx.AttributeProto.GRAPH)
    return count


def run_case(partita, name, plan, work):
    model, inputs = rank_op_models.MODELS[name]()
    path = work / "model.onnx"
    onnx.save(model, path)
    (work / "inputs").mkdir()
    for k, (key, value) in enumerate(inputs.items()):
        onnx.save_tensor(numpy_helper.from_array(value, key), work / "inputs" / f"input_{k}.pb")
    expected = runs_in_onnxruntime(path, inputs)
    mesh, mode = PLANS[plan]
    split = ["--mesh", mesh] if mesh else []
    more = ["--mode", mode]
    if mode == "semi-auto":
        hints = {"nodes": {node: {"in": ways} for node, ways in HINTS[name][1].items()}}
        (work / "hints.json").write_text(json.dumps(hints))
        more += ["--hints", str(work / "hints.json")]
    bundle, ranks, back = work / "bundle", work / "ranks", work / "back"
    run_model.call([partita, "compile", str(path), "-o", str(bundle), *split, *more])
    run_model.call([partita, "convert", str(bundle), "--per-rank-onnx", str(ranks)])
    files = sorted(ranks.glob("rank-*.onnx"))
    onnx_schemas.register_onnx_schemas(mesh)
    for file in files:
        onnx.checker.check_model(str(file), full_check=True, check_custom_domain=True)
    if mode == "semi-auto" and name in EXCHANGES and not collectives_of(onnx.load(files[0]).graph):
        raise run_model.Failure("no rank exchanges anything")
    if not mesh:
        compare(partita, bundle, work, runs_in_onnxruntime(files[0], inputs), expected,
                "of the file in ONNX Runtime")
    run_model.call([partita, "compile", *map(str, files), "-o", str(back), *split, "--mode",
                    "manual"])
    run_model.call([partita, "run", str(back), "--inputs-dir", str(work / "inputs"),
                    "--outputs-dir", str(work / "out")])
    actual = [equality.load(work / "out" / f"output_{k}.pb") for k in range(len(expected))]
    compare(partita, bundle, work, actual, expected, "when read back")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("models", nargs="*", default=list(rank_op_models.MODELS))
    parser.add_argument("--all", action="store_true", help="in whatever tier")
    arguments = parser.parse_args()
    cases = [(name, plan) for name in arguments.models
             for plan in ("alone", "data", "uneven", *HINTS.get(name, ())[:1])]
    if not arguments.all:
        cases = tier.sample("rank-ops", cases, lambda case: case[0])
    failures = 0
    for name, plan in cases:
        with tempfile.TemporaryDirectory(prefix="partita-rank-ops-") as work:
            try:
                run_case(arguments.partita, name, plan, pathlib.Path(work))
            except (run_model.Failure, equality.Unequal, onnx.checker.ValidationError,
                    onnx.shape_inference.InferenceError) as error:
                failures += 1
                print(f"{name} by {plan}: {error}"[:2000], flush=True)
    print(f"{len(cases) - failures} of {len(cases)} equal")
    if failures:
        sys.exit(f"{failures} failed")


main()
