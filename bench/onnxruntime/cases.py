"""Folders for compare.py: a model, its inputs, and case.json."""
import json
import pathlib
import sys

import onnx
from onnx import helper, numpy_helper


def save(folder, model, inputs, shapes=None, opset=17):
    """Writes a ModelProto, or a graph as a model of this opset, with the inputs by name."""
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    if isinstance(model, onnx.GraphProto):
        model = helper.make_model(model, ir_version=9,
                                  opset_imports=[helper.make_opsetid("", opset)])
    onnx.save(model, folder / "model.onnx")
    for k, (name, value) in enumerate(inputs.items()):
        (folder / "inputs" / f"input_{k}.pb").write_bytes(
            numpy_helper.from_array(value, name).SerializeToString())
    (folder / "case.json").write_text(json.dumps(
        {"inputs": list(inputs), "shapes": shapes or {}}))


def main(models, write):
    """The command of a script: `--list`, or OUT_DIR and names of models."""
    if sys.argv[1:2] == ["--list"]:
        print("\n".join(models))
        return
    for name in sys.argv[2:] or models:
        write(name, pathlib.Path(sys.argv[1]) / name)
