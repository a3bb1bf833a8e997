#!/usr/bin/env python3
"""open_sizes.py FOLDER [run]: writes models whose sizes are open; `run` runs the bundle `chat`
and compares what it gives."""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

FOLDER = pathlib.Path(sys.argv[1])
SUM = "past_sequence_length + sequence_length"


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def write(name, nodes, inputs, outputs):
    graph = helper.make_graph(nodes, name, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                              ir_version=9)
    onnx.save(model, FOLDER / f"{name}.onnx")


def run():
    random = np.random.default_rng(0)
    feeds = {"ids": random.integers(0, 9, (2, 3)),
             "mask": random.random((2, 7), np.float32),
             "past": random.random((2, 4), np.float32)}
    command = ["partita", "run", FOLDER / "chat", "--outputs-dir", FOLDER / "out"]
    for name, value in feeds.items():
        np.save(FOLDER / f"{name}.npy", value)
        command += ["--input", f"{name}={FOLDER / name}.npy"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    tensor = onnx.load_tensor(FOLDER / "out" / "output_0.pb")
    y = onnx.numpy_helper.to_array(tensor)
    wanted = np.concatenate([feeds["past"], feeds["ids"]], 1) * feeds["mask"]
    print("equal" if np.allclose(y, wanted) else "different", y.shape)


if len(sys.argv) > 2:
    run()
else:
    write("chat", [helper.make_node("Cast", ["ids"], ["now"], to=TensorProto.FLOAT),
                   helper.make_node("Concat", ["past", "now"], ["all"], axis=1),
                   helper.make_node("Mul", ["all", "mask"], ["y"])],
          [info("ids", ["batch_size", "sequence_length"], TensorProto.INT64),
           info("mask", ["batch_size", SUM]),
           info("past", ["batch_size", "past_sequence_length"])],
          [info("y", ["batch_size", "total"])])
    write("nameless", [helper.make_node("Add", ["x", "y"], ["z"])],
          [info("x", [None, 3]), info("y", None)], [info("z", None)])
