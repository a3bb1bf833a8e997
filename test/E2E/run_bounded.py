#!/usr/bin/env python3
"""Models whose outputs are as long as the data say (docs/rules-any-op.md, Bounded sizes): on 1
to 4 ranks, threads and MPI, equal to ONNX Runtime, shapes included; with nothing found, and
with all there can be.

usage: run_bounded.py PARTITA [NAME…]
"""
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import bounded_models
import equality
import tier

PARTITA = sys.argv[1]
RANDOM = np.random.default_rng(3)
def free(ranks):
    """Slow devices whose messages cost nothing: whatever the rules allow is divided."""
    return {"device": {"name": "slow", "memory": "1GiB", "memory_bandwidth": 1e6,
                       "peak": {"f64": 1e6, "f32": 1e6, "f16": 1e6, "bf16": 1e6, "i8": 1e6}},
            "levels": [{"name": "free", "size": ranks, "bandwidth": 1e18, "latency": 1e-15}]}


#: Mesh, ranks, transport, and whether messages cost nothing.
RUNS = [("", 1, "local", False), ("d=2", 2, "local", False), ("d=2", 2, "local", True),
        ("d=3", 3, "local", True), ("d=2,e=2", 4, "local", True), ("d=2", 2, "mpi", True),
        ("d=4", 4, "mpi", True)]
#: Also in two stages.
STAGED = {"detection", "filtered", "compressed", "not_zero"}


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def detection():
    """A net that finds 48 boxes of 3 classes; those that are selected, with their scores and
    labels; how many there are, and the mean of their scores."""
    nodes = [
        node("Conv", ["x", "filter"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Reshape", ["r", "rows"], ["f"]),
        node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["t", "to_boxes"], ["offsets"]),
        node("Sigmoid", ["offsets"], ["inside"]),
        node("Add", ["inside", "anchors"], ["boxes"]),
        node("MatMul", ["t", "to_scores"], ["logits"]),
        node("Sigmoid", ["logits"], ["per_box"]),
        node("Transpose", ["per_box"], ["scores"], perm=[0, 2, 1]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "threshold"],
             ["selected"], name="nms"),
        node("Gather", ["selected", "two"], ["index"], axis=1),
        node("Squeeze", ["boxes", "zeros"], ["flat"]),
        node("Gather", ["flat", "index"], ["chosen"], axis=0),
        node("GatherND", ["scores", "selected"], ["confidence"]),
        node("Unsqueeze", ["confidence", "ones"], ["column"]),
        node("Concat", ["chosen", "column"], ["rows_of_5"], axis=1),
        node("Gather", ["selected", "one"], ["labels"], axis=1),
        node("Shape", ["selected"], ["shape"]),
        node("Gather", ["shape", "nought"], ["number"]),
        node("ReduceSum", ["confidence", "zeros"], ["total"], keepdims=0)]
    anchors = np.tile(np.arange(6, dtype=np.float32)[:, None] * 0.6, (8, 4))
    anchors[:, 2:] += 0.8
    constants = {
        "filter": real(8, 4, 3, 3), "rows": ints(1, 8, 48), "to_boxes": real(8, 4) * 0.2,
        "anchors": anchors, "to_scores": real(8, 3), "most": ints(7),
        "iou": np.float32([0.4]), "two": np.array(2), "one": np.array(1),
        "nought": np.array(0), "zeros": ints(0), "ones": ints(1)}
    inputs = [{"x": real(1, 4, 6, 8), "threshold": np.float32([t])}
              for t in (0.55, 0.999999, -1)]
    return nodes, constants, inputs, ["selected", "rows_of_5", "labels", "number", "total"]


def suppression(center=0):
    """Batches and classes; scores that are equal; a limit that is data."""
    names = ["boxes", "scores", "most", "iou", "threshold"]
    boxes = np.abs(real(2, 20, 4)) * 2
    inputs = [{"boxes": boxes, "scores": np.round(real(2, 3, 20) * 4).astype(np.float32) / 4,
               "most": ints(limit), "iou": np.float32([0.3]),
               "threshold": np.float32([threshold])}
              for limit, threshold in ((4, -0.5), (20, -9), (0, 0), (3, 9))]
    return [node("NonMaxSuppression", names, ["selected"], center_point_box=center)], {}, \
        inputs, ["selected"]


def crowd(spread):
    """More boxes than are compared at once, of which most are kept, or one per class."""
    low = np.abs(real(1, 1500, 2)) * spread
    names = ["boxes", "scores", "most", "iou", "threshold"]
    inputs = [{"boxes": np.concatenate([low, low + 3 + np.abs(real(1, 1500, 2))], 2),
               "scores": RANDOM.permuted(np.tile(np.linspace(-1, 1, 1500, dtype=np.float32),
                                                 (1, 2, 1)), axis=2),
               "iou": np.float32([iou]), "threshold": np.float32([threshold])}
              for iou, threshold in ((0.5, -0.5), (0, -9), (0.999, -9), (0.1, 0.2))]
    return [node("NonMaxSuppression", names, ["selected"])], {"most": ints(400)}, inputs, \
        ["selected"]


def filtered():
    """Boxes above a threshold first, then those that no better one overlaps: what is
    selected is as long as the data say, of boxes that are."""
    nodes = [
        node("Greater", ["score", "low"], ["mask"]),
        node("NonZero", ["mask"], ["where"], name="where"),
        node("Squeeze", ["where", "zeros"], ["kept"]),
        node("Gather", ["boxes", "kept"], ["boxes_kept"]),
        node("Gather", ["score", "kept"], ["score_kept"]),
        node("Unsqueeze", ["boxes_kept", "zeros"], ["b"]),
        node("Unsqueeze", ["score_kept", "both"], ["s"]),
        node("NonMaxSuppression", ["b", "s", "most", "iou"], ["selected"]),
        node("Slice", ["selected", "two", "three", "ones"], ["column"]),
        node("Squeeze", ["column", "ones"], ["index"]),
        node("Gather", ["boxes_kept", "index"], ["chosen"]),
        node("Gather", ["kept", "index"], ["original"]),
        node("Slice", ["original", "zeros", "five", "zeros"], ["first"])]
    constants = {"zeros": ints(0), "both": ints(0, 1), "most": ints(40),
                 "iou": np.float32([0.2]), "two": ints(2), "three": ints(3), "ones": ints(1),
                 "five": ints(5)}
    boxes = np.abs(real(40, 4)) * 2
    inputs = [{"boxes": boxes, "score": real(40), "low": np.float32([t])}
              for t in (0.0, 9, -9, 2.1)]
    return nodes, constants, inputs, ["kept", "chosen", "original", "first"]


def compressed():
    """Rows by a condition: products, a softmax along them, reductions of every kind, a
    division by what may not be there."""
    nodes = [
        node("Greater", ["c", "zero"], ["condition"]),
        node("Compress", ["x", "condition"], ["rows"], axis=0),
        node("MatMul", ["rows", "w"], ["product"]),
        node("Transpose", ["product"], ["turned"]),
        node("Softmax", ["turned"], ["soft"], axis=1),
        node("MatMul", ["soft", "rows"], ["mixed"]),
        node("ReduceSum", ["rows", "zeros"], ["sum"]),
        node("ReduceMean", ["rows"], ["mean"], axes=[0], keepdims=0),
        node("Cast", ["rows"], ["whole"], to=TensorProto.INT64),
        node("Add", ["whole", "hundred"], ["positive"]),
        node("Sub", ["positive", "hundred"], ["small"]),
        node("Mul", ["small", "small"], ["square"]),
        node("Add", ["square", "ones"], ["divisor"]),
        node("Div", ["hundred", "divisor"], ["quotient"]),
        node("Reshape", ["rows", "pairs"], ["paired"]),
        node("Size", ["rows"], ["size"]),
        node("Compress", ["x", "condition"], ["flat"])]
    constants = {"w": real(6, 5), "zero": np.float32(0), "zeros": ints(0),
                 "hundred": ints(100), "ones": ints(1), "pairs": ints(-1, 3, 2)}
    inputs = [{"x": real(14, 6), "c": real(14) + np.float32(shift)} for shift in (0, 9)]
    return nodes, constants, inputs, ["rows", "soft", "mixed", "sum", "mean", "quotient",
                                      "paired", "size", "flat"]


def not_zero():
    """Of three dims, and the elements there; of booleans; of one element."""
    nodes = [
        node("Relu", ["x"], ["r"]), node("NonZero", ["r"], ["where"]),
        node("Transpose", ["where"], ["places"]), node("GatherND", ["r", "places"], ["found"]),
        node("ReduceMax", ["x"], ["largest"], keepdims=0),
        node("Greater", ["largest", "zero"], ["any"]), node("NonZero", ["any"], ["scalar"]),
        node("ScatterND", ["r", "places", "negative"], ["added"], reduction="add"),
        node("Neg", ["found"], ["negative"])]
    nodes[-1], nodes[-2] = nodes[-2], nodes[-1]
    inputs = [{"x": x} for x in (real(3, 4, 5), -np.abs(real(3, 4, 5)),
                                 np.abs(real(3, 4, 5)) + 1)]
    return nodes, {"zero": np.float32(0)}, inputs, ["where", "found", "scalar", "added"]


def unique(**attributes):
    """All four outputs; few values, so that many are equal."""
    nodes = [node("Unique", ["x"], ["y", "first", "inverse", "counts"], **attributes),
             node("Cast", ["counts"], ["f"], to=TensorProto.FLOAT),
             node("ReduceSum", ["f"], ["all"], keepdims=0)]
    shape = (5, 8, 2)
    inputs = [{"x": RANDOM.integers(0, high, shape).astype(np.float32)}
              for high in (1, 2, 3)]
    inputs.append({"x": np.take(real(*shape), ints(3, 1, 1, 0, 5, 3, 0, 1), 1)})
    inputs.append({"x": RANDOM.permutation(80).reshape(shape).astype(np.float32)})
    return nodes, {}, inputs, ["y", "first", "inverse", "counts", "all"]


def branches():
    """A branch reads what was found around it."""
    then = helper.make_graph([node("ReduceSum", ["rows"], ["t"], keepdims=0)], "then", [],
                             [helper.make_tensor_value_info("t", TensorProto.FLOAT, [])])
    other = helper.make_graph([node("ReduceMax", ["rows"], ["e"], keepdims=0)], "else", [],
                              [helper.make_tensor_value_info("e", TensorProto.FLOAT, [])])
    nodes = [node("Greater", ["c", "zero"], ["condition"]),
             node("Compress", ["x", "condition"], ["rows"], axis=1),
             node("ReduceSum", ["x"], ["total"], keepdims=0),
             node("Greater", ["total", "zero"], ["which"]),
             node("If", ["which"], ["y"], then_branch=then, else_branch=other)]
    inputs = [{"x": np.abs(real(3, 9)) * np.float32(sign), "c": real(9)} for sign in (1, -1)]
    return nodes, {"zero": np.float32(0)}, inputs, ["rows", "y"]


CASES = {
    "detection": detection, "suppression": suppression,
    "suppression_center": lambda: suppression(1), "spread": lambda: crowd(40),
    "crowded": lambda: crowd(0.01), "filtered": filtered,
    "compressed": compressed, "not_zero": not_zero, "branches": branches,
    "unique": unique, "unique_unsorted": lambda: unique(sorted=0),
    "unique_axis": lambda: unique(axis=1), "unique_last": lambda: unique(axis=-1, sorted=0),
    **bounded_models.CASES}


def call(*arguments):
    done = subprocess.run([PARTITA, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise equality.Unequal(f"{arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def save(make, path):
    nodes, constants, inputs, outputs = make()
    made = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for name, x in inputs[0].items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    # ONNX Runtime knows the outputs' types; the file has to say them.
    model = helper.make_model(made, ir_version=9,
                              opset_imports=[helper.make_opsetid("", 17)])
    session = onnxruntime.InferenceSession(typed(model).SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    onnx.save(typed(model), path)
    return session, inputs


def typed(model):
    found = {value.name: value for value in
             onnx.shape_inference.infer_shapes(model).graph.output}
    for value in model.graph.output:
        value.CopyFrom(helper.make_tensor_value_info(
            value.name, found[value.name].type.tensor_type.elem_type, None))
    return model


def write(folder, values):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for i, (name, x) in enumerate(values.items()):
        (folder / f"input_{i}.pb").write_bytes(
            numpy_helper.from_array(x, name).SerializeToString())


def runs_of(case):
    return RUNS + ([("d=2", 4, "local", False, "--stages", "2")] if case in STAGED else [])


def attempt(case, runs, work):
    model = work / "model.onnx"
    session, inputs = save(CASES[case], model)
    checks = 0
    for mesh, ranks, transport, is_free, *stages in runs:
        (work / "free.json").write_text(json.dumps(free(ranks)))
        bundle = work / "bundle"
        where = " ".join([case, "on", mesh or "one rank", transport, *stages])
        call("compile", model, "-o", bundle, "--force", *(["--mesh", mesh] if mesh else []),
             *(["--cluster", work / "free.json"] if is_free else []), *stages)
        if transport == "local":
            call("verify", bundle)
        for values in inputs:
            write(work / "in", values)
            shutil.rmtree(work / "out", ignore_errors=True)
            call("run", bundle, "--transport", transport, "--inputs-dir", work / "in",
                 "--outputs-dir", work / "out")
            wide = equality.WideResults(PARTITA, [str(bundle)], work / "in")
            for k, expected in enumerate(session.run(None, values)):
                actual = equality.load(work / f"out/output_{k}.pb")
                if actual.shape != expected.shape:
                    raise equality.Unequal(f"{where}: output {k} has shape {actual.shape}, "
                                           f"expected {expected.shape}")
                equality.check(actual, expected, wide, k, f"{where}: output {k}")
                checks += 1
    return checks + in_python(session, inputs, work / "bundle-py", model)


def in_python(session, inputs, bundle, model):
    """One session, whose outputs are another length in each request."""
    import partita
    call("compile", model, "-o", bundle, "--mesh", "d=2")
    names = [output.name for output in session.get_outputs()]
    checks = 0
    with partita.Session(str(bundle)) as compiled:
        if list(compiled.outputs) != names:
            raise equality.Unequal(f"outputs {list(compiled.outputs)}, expected {names}")
        for values in inputs + inputs[::-1]:
            got = compiled.run(values)
            for name, expected in zip(names, session.run(None, values)):
                if got[name].shape != expected.shape or not np.allclose(
                        got[name], expected, equality.RTOL, equality.ATOL, equal_nan=True):
                    raise equality.Unequal(f"{name} in Python: {got[name]}, {expected}")
                checks += 1
    return checks


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root / "python"))
    os.environ.setdefault("PARTITA_RUNTIME", str(
        pathlib.Path(PARTITA).resolve().parents[1] / "lib/libpartita_runtime.so"))
    checks = failed = 0
    runs = [(case, run) for case in sys.argv[2:] or CASES for run in runs_of(case)]
    if not sys.argv[2:]:
        runs = tier.sample("bounded", runs, kind=lambda run: run[0])
    for case, group in itertools.groupby(runs, key=lambda run: run[0]):
        with tempfile.TemporaryDirectory(prefix="partita-bounded-") as work:
            try:
                checks += attempt(case, [run for _, run in group], pathlib.Path(work))
            except equality.Unequal as error:
                failed += 1
                print(f"{case}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {checks} outputs equal, {failed} cases not")
    return 1 if failed or not checks else 0


if __name__ == "__main__":
    sys.exit(main())
