#!/usr/bin/env python3
"""Loops of ONNX, kept as loops: recurrent operators, Scan and Loop, each on 1, 2, 3 and 4
ranks, planned by search, by batches and with what is carried split by columns, equal to ONNX
Runtime by equality.py. On 2 ranks through MPI too. The bytes that compile, report and verify tell
are those that ranks receive.

usage: run_loops.py PARTITA [NAME…]
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import equality

RANDOM = np.random.default_rng(3)
STEPS, BATCH, WIDE = 7, 6, 12


def real(*shape):
    return (RANDOM.standard_normal(shape) * 0.5).astype(np.float32)


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def recurrent(kind, gates, directions=1, lengths=False, **attributes):
    given = {"X": real(STEPS, BATCH, WIDE)}
    constants = {"W": real(directions, gates * WIDE, WIDE),
                 "R": real(directions, gates * WIDE, WIDE),
                 "B": real(directions, 2 * gates * WIDE)}
    inputs = ["X", "W", "R", "B"]
    if lengths:
        given["lengths"] = np.array([7, 3, 5, 1, 7, 2], np.int32)
        inputs.append("lengths")
    outputs = ["Y", "Y_h"] + (["Y_c"] if kind == "LSTM" else [])
    way = "bidirectional" if directions == 2 else attributes.pop("way", "forward")
    node = helper.make_node(kind, inputs, outputs, "cell", hidden_size=WIDE, direction=way,
                            **attributes)
    return [node], given, constants, outputs


def scan(backwards=False):
    """An RNN as a Scan: states [B, H], rows of x, and two kinds of rows out."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["h", "R"], ["p"], "recurrence"),
         helper.make_node("Add", ["p", "x"], ["s"], "sum"),
         helper.make_node("Tanh", ["s"], ["h_next"], "state"),
         helper.make_node("Identity", ["h_next"], ["row"]),
         helper.make_node("ReduceSum", ["s", "last"], ["norm"], "norm", keepdims=0)],
        "body", [info("h", [BATCH, WIDE]), info("x", [BATCH, WIDE])],
        [info("h_next", [BATCH, WIDE]), info("row", [BATCH, WIDE]), info("norm", [BATCH])])
    more = {"scan_input_directions": [1], "scan_output_directions": [1, 0]} if backwards \
        else {}
    nodes = [helper.make_node("Transpose", ["X"], ["rows"], perm=[1, 0, 2]),
             helper.make_node("Scan", ["H", "rows"], ["last_h", "all", "norms"], "scan",
                              body=body, num_scan_inputs=1, **more)]
    return nodes, {"H": real(BATCH, WIDE), "X": real(BATCH, STEPS, WIDE)}, \
        {"R": real(WIDE, WIDE), "last": np.array([1], np.int64)}, ["last_h", "all", "norms"]


def loop(trips=STEPS, nested=False):
    """What is carried: a state and a sum; the number of the iteration is used."""
    nodes = [helper.make_node("Cast", ["i"], ["number"], to=TensorProto.FLOAT),
             helper.make_node("Mul", ["number", "tenth"], ["weight"]),
             helper.make_node("MatMul", ["h", "R"], ["p"], "recurrence"),
             helper.make_node("Tanh", ["p"], ["t"], "bent"),
             helper.make_node("Mul", ["t", "weight"], ["w"], "weighed"),
             helper.make_node("Add", ["total", "w"], ["total_next"], "total")]
    state = "t"
    if nested:
        inner = helper.make_graph(
            [helper.make_node("Identity", ["c2"], ["c2_next"]),
             helper.make_node("Mul", ["v", "half"], ["m"], "halved"),
             helper.make_node("Add", ["m", "t"], ["v_next"], "added")],
            "inner", [info("j", [], TensorProto.INT64), info("c2", [], TensorProto.BOOL),
                      info("v", [BATCH, WIDE])],
            [info("c2_next", [], TensorProto.BOOL), info("v_next", [BATCH, WIDE])])
        nodes.append(helper.make_node("Loop", ["three", "", "t"], ["state"], "inner loop",
                                      body=inner))
        state = "state"
    body = helper.make_graph(
        nodes + [helper.make_node("Identity", ["c"], ["c_next"]),
                 helper.make_node("Identity", [state], ["row"])],
        "body", [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL),
                 info("h", [BATCH, WIDE]), info("total", [BATCH, WIDE])],
        [info("c_next", [], TensorProto.BOOL), info(state, [BATCH, WIDE]),
         info("total_next", [BATCH, WIDE]), info("row", [BATCH, WIDE])])
    return [helper.make_node("Loop", ["trips", "", "H", "T"], ["h_end", "sum", "rows"],
                             "loop", body=body)], \
        {"H": real(BATCH, WIDE), "T": real(BATCH, WIDE)}, \
        {"R": real(WIDE, WIDE), "trips": np.array(trips, np.int64),
         "tenth": np.float32(0.1), "half": np.float32(0.5), "three": np.array(3, np.int64)}, \
        ["h_end", "sum", "rows"]


def growing():
    """What is carried grows: such a loop is unrolled."""
    body = helper.make_graph(
        [helper.make_node("Concat", ["h", "H"], ["h_next"], axis=0),
         helper.make_node("Identity", ["c"], ["c_next"])],
        "body", [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL),
                 info("h", ["n", WIDE])],
        [info("c_next", [], TensorProto.BOOL), info("h_next", ["m", WIDE])])
    return [helper.make_node("Loop", ["trips", "", "H"], ["out"], "loop", body=body)], \
        {"H": real(2, WIDE)}, {"trips": np.array(4, np.int64)}, ["out"]


# What is carried, split by columns.
COLUMNS = {"nodes": {"*recurrence": {"in": [None, [[], "d"]]}}}
CELLS = {"tensors": {"Y_h": [[], [], "d"]}}
# name: (what makes it, hints)
CASES = {
    "lstm": (lambda: recurrent("LSTM", 4), CELLS),
    "lstm_reverse": (lambda: recurrent("LSTM", 4, way="reverse"), None),
    "lstm_both_lengths": (lambda: recurrent("LSTM", 4, 2, lengths=True), None),
    "gru": (lambda: recurrent("GRU", 3, linear_before_reset=1), CELLS),
    "rnn": (lambda: recurrent("RNN", 1), None),
    "scan": (scan, COLUMNS),
    "scan_backwards": (lambda: scan(True), COLUMNS),
    "loop": (loop, COLUMNS),
    "loop_long": (lambda: loop(1500), None),
    "loop_nested": (lambda: loop(nested=True), COLUMNS),
    "loop_growing": (growing, None),
}


def call(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise equality.Unequal(f"{arguments[1]}: {done.stderr.strip()[-1500:]}")
    return done.stdout


def check_bytes(partita, bundle, folder, compiled):
    """The bytes that one rank receives in a run: as they are told, and as they are counted."""
    report = json.loads(call(partita, "report", bundle, "--json"))["stages"][0]
    run = json.loads(call(partita, "run", bundle, "--inputs-dir", folder, "--profile", "--json"))
    counted = sum(node["received_bytes"] for node in run["profile"]["nodes"])
    said = {"compile": compiled, "verify": call(partita, "verify", bundle)}
    told = {what: int(re.search(r"communication per rank: .*?(\d+) B received", text)[1])
            for what, text in said.items()}
    told["report"] = report["received_bytes"]
    if set(told.values()) != {counted}:
        raise equality.Unequal(f"{counted} B are received, told are {told}")
    return counted


def write_model(work, make):
    nodes, given, constants, outputs = make()
    graph = helper.make_graph(
        nodes, "main", [info(name, x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))
                        for name, x in given.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    del model.graph.output[:]
    model.graph.output.extend(info(name, None) for name in outputs)
    path = work / "model.onnx"
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return path, given, outputs, session.run(outputs, given)


def attempt(partita, work, make, hinted):
    path, given, outputs, expected = write_model(work, make)
    folder = work / "inputs"
    folder.mkdir()
    for i, (name, x) in enumerate(given.items()):
        (folder / f"input_{i}.pb").write_bytes(
            numpy_helper.from_array(x, name).SerializeToString())
    plans = [(1, ["--mode", "auto"]), (2, ["--mode", "auto"]), (2, ["--mode", "data-parallel"]),
             (3, ["--mode", "data-parallel"]), (4, ["--mode", "auto"])]
    if hinted:
        hints = work / "hints.json"
        hints.write_text(json.dumps(hinted))
        plans += [(n, ["--mode", "semi-auto", "--hints", hints]) for n in (2, 3, 4)]
    received = []
    for number, (ranks, options) in enumerate(plans):
        bundle = work / f"bundle{number}"
        compiled = call(partita, "compile", path, "-o", bundle, "--mesh", f"d={ranks}", *options)
        if ranks > 1:
            received.append(check_bytes(partita, bundle, folder, compiled))
        transports = ["local"]
        if ranks == 2 and shutil.which("mpirun"):
            transports.append("mpi")
        for transport in transports:
            out = work / f"out{number}-{transport}"
            call(partita, "run", bundle, "--transport", transport, "--inputs-dir", folder,
                 "--outputs-dir", out)
            wide = equality.WideResults(partita, [str(bundle)], folder)
            for k, want in enumerate(expected):
                equality.check(equality.load(out / f"output_{k}.pb"), want, wide, k,
                               f"on {ranks} ranks, {transport}: {outputs[k]}")
        shutil.rmtree(bundle)
    return received


def main():
    partita = pathlib.Path(sys.argv[1]).resolve()
    wrong = 0
    for name, (make, hints) in CASES.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                received = attempt(partita, pathlib.Path(folder), make, hints)
                print(f"{name}: right, {received} B received")
            except equality.Unequal as problem:
                wrong += 1
                print(f"{name}: WRONG {problem}")
    print(f"{wrong} wrong")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
