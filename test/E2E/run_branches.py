#!/usr/bin/env python3
"""If nodes whose condition is computed: both ways, on 1 and more ranks, against ONNX Runtime. A
run receives no more bytes than are told: both branches count there.

usage: run_branches.py PARTITA
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import equality

PARTITA = sys.argv[1]
RANDOM = np.random.default_rng(2)
ROWS, WIDTH = 4, 6


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def graph(name, nodes, outputs, initializers=()):
    return helper.make_graph(nodes, name, [], [info(o, None) for o in outputs],
                             [numpy_helper.from_array(v, k) for k, v in initializers])


def positive(name="c"):
    """Whether the sum of x is above 0."""
    return [node("ReduceSum", ["x"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], [name])]


def plain():
    """A product with a weight, or a sum and the row of it that all share."""
    then = graph("then", [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["t"])], ["t"])
    other = graph("else", [node("Add", ["x", "b"], ["e"])], ["e"],
                  [("b", real(WIDTH))])
    return [*positive(), node("If", ["c"], ["y"], name="if", then_branch=then,
                              else_branch=other),
            node("Mul", ["y", "y"], ["z"])], ["z"]


def passed():
    """A branch gives what is around it as it is; the other gives a constant."""
    then = graph("then", [node("Identity", ["x"], ["t"])], ["t"])
    other = graph("else", [node("Identity", ["k"], ["e"])], ["e"],
                  [("k", real(ROWS, WIDTH))])
    return [*positive(), node("If", ["c"], ["z"], name="if", then_branch=then,
                              else_branch=other)], ["z"]


def nested():
    """An If in an If; two results."""
    inner = [graph("a", [node("Exp", ["p"], ["ia"])], ["ia"]),
             graph("b", [node("Sin", ["x"], ["ib"])], ["ib"])]
    then = graph("then", [node("MatMul", ["x", "w"], ["p"]),
                          node("Less", ["total", "ten"], ["few"]),
                          node("If", ["few"], ["t"], name="inner", then_branch=inner[0],
                               else_branch=inner[1])], ["t", "p"])
    other = graph("else", [node("Neg", ["x"], ["e"]), node("Abs", ["x"], ["f"])], ["e", "f"])
    return [*positive(), node("If", ["c"], ["y", "z"], name="outer", then_branch=then,
                              else_branch=other)], ["y", "z"]


def unequal():
    """A branch gives another shape than the other: which, the data say."""
    then = graph("then", [node("Transpose", ["x"], ["t"])], ["t"])
    other = graph("else", [node("Relu", ["x"], ["e"])], ["e"])
    return [*positive(), node("If", ["c"], ["z"], name="if", then_branch=then,
                              else_branch=other)], ["z"]


def by_shape():
    """A condition that follows from shapes, as exporters write it: one branch is taken, and
    the other may give another shape."""
    then = graph("then", [node("Squeeze", ["x"], ["t"])], ["t"])
    other = graph("else", [node("Relu", ["x"], ["e"])], ["e"])
    return [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["width"], axis=0),
            node("Equal", ["width", "one"], ["c"]),
            node("If", ["c"], ["z"], name="if", then_branch=then, else_branch=other)], ["z"]


CASES = {"plain": plain, "passed": passed, "nested": nested, "unequal": unequal,
         "by_shape": by_shape}


def call(*arguments, fails=False):
    done = subprocess.run([PARTITA, *map(str, arguments)], capture_output=True, text=True)
    if (done.returncode != 0) != fails:
        raise RuntimeError(f"{arguments}: {done.stderr}")
    return done.stderr if fails else done.stdout


def save(make, path):
    nodes, outputs = make()
    made = helper.make_graph(
        nodes, "g", [info("x", [ROWS, WIDTH])], [info(o, None) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in [
            ("w", real(WIDTH, WIDTH)), ("zero", np.float32(0)), ("ten", np.float32(3)),
            ("one", np.array(1, np.int64))]])
    onnx.save(helper.make_model(made, ir_version=9,
                                opset_imports=[helper.make_opsetid("", 17)]), path)
    return outputs


def main():
    checks = received = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for case, make in CASES.items():
            model = folder / f"{case}.onnx"
            outputs = save(make, model)
            session = onnxruntime.InferenceSession(model)
            for mesh in ("", "d=2", "d=3", "dp=2,tp=2", "d=2 --mode data-parallel"):
                call("compile", model, "-o", folder / "b", "--force",
                     *(["--mesh", *mesh.split()] if mesh else []))
                call("verify", folder / "b")
                report = json.loads(call("report", folder / "b", "--json"))
                told = report["stages"][0]["received_bytes"]
                for sign in (1, 0.01, -1):
                    x = np.abs(real(ROWS, WIDTH)) * np.float32(sign)
                    np.save(folder / "x.npy", x)
                    shutil.rmtree(folder / "out", ignore_errors=True)
                    ran = call("run", folder / "b", f"--input=x={folder}/x.npy",
                               "--outputs-dir", folder / "out", "--profile", "--json")
                    counted = sum(node["received_bytes"]
                                  for node in json.loads(ran)["profile"]["nodes"])
                    if counted > told:
                        raise RuntimeError(f"{case} on {mesh}: {counted} B of {told}")
                    received += counted
                    for k, expected in enumerate(session.run(outputs, {"x": x})):
                        actual = equality.load(folder / f"out/output_{k}.pb")
                        if actual.shape != expected.shape or not np.allclose(
                                actual, expected, equality.RTOL, equality.ATOL):
                            raise RuntimeError(f"{case} on {mesh}: {actual}, {expected}")
                        checks += 1
        other_rank = lambda: ([*positive(), node(
            "If", ["c"], ["z"], name="if", then_branch=graph("t", [node(
                "Flatten", ["x"], ["t"], axis=0), node("Squeeze", ["t"], ["r"])], ["r"]),
            else_branch=graph("e", [node("Relu", ["x"], ["e"])], ["e"]))], ["z"])
        save(other_rank, folder / "rank.onnx")
        said = call("compile", folder / "rank.onnx", "-o", folder / "no", fails=True)
        wanted = "'if': the branches of an If whose condition is computed give tensors of " \
            "other types or ranks"
        if wanted not in said or (folder / "no").exists():
            raise RuntimeError(said)
    if received == 0:
        raise RuntimeError("nothing communicates")
    print(f"{checks} outputs equal, {received} B received")


main()
