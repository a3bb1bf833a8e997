#!/usr/bin/env python3
"""Produces the models of the end-to-end tests with inputs and expected outputs.

    zoo.py OUT_DIR [NAME…]      the named models; all small ones by default
    zoo.py --list               what there is

Each model becomes a folder: model.onnx, case.json (the --shape bindings, the names of
inputs and outputs), inputs/input_K.pb and expected/output_K.pb as ONNX Runtime computes
them. Deterministic: the same versions write the same bytes. A folder that is complete
and of the same recipe is left alone.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import zlib

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime

import build_gpt2
import text_picture

HERE = pathlib.Path(__file__).resolve().parent
#: Part of every case.json: raise it when what this script writes changes.
RECIPE = 2


def randomized(path):
    """The light model with random weights in place of its ConstantOfShape nodes: its
    own fills make all channels equal, so that a wrong one would not show."""
    def build():
        model = onnx.load(path)
        graph = model.graph
        shapes = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        roles = {}
        for node in graph.node:
            for index, name in enumerate(node.input):
                roles.setdefault(name, (node.op_type, index))
        kept = []
        for node in graph.node:
            if node.op_type != "ConstantOfShape":
                kept.append(node)
                continue
            (name,) = node.output
            shape = tuple(int(extent) for extent in shapes[node.input[0]])
            generator = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
            values = generator.standard_normal(shape, dtype=np.float32)
            operator, index = roles.get(name, ("", 0))
            if operator == "BatchNormalization":
                # scale, shift, mean, variance; the last is positive.
                # A scale of a half keeps sums over residual branches, and with them the
                # logits, at a size where the softmax is not just one winner.
                values = 0.1 * values + {1: 0.5, 4: 1.0}.get(index, 0.0)
                values = np.abs(values) if index == 4 else values
            elif index == 1 and len(shape) > 1:
                values *= (2 / np.prod(shape[1:])) ** 0.5
            else:
                values *= 0.1
            graph.initializer.append(
                onnx.numpy_helper.from_array(values.astype(np.float32), name))
        del graph.node[:]
        graph.node.extend(kept)
        used = {name for node in kept for name in node.input}
        for fields in (graph.initializer, graph.input):
            unused = [field for field in fields if field.name not in used]
            for field in unused:
                fields.remove(field)
        # IR 3 wants every initializer among the inputs, IR 4 does not.
        model.ir_version = 4
        return model
    build.__name__ = f"{path.stem}, randomized"
    return build


def cache_folder():
    default = pathlib.Path.home() / ".cache" / "partita"
    return pathlib.Path(os.environ.get("PARTITA_CACHE", default))


def ocr(name):
    return cache_folder() / "rapidocr-1.4.4" / name


def light(name):
    return pathlib.Path(onnx.__file__).parent / "backend/test/data/light" / name


def logits(path):
    """The model without the softmax at its end. Where all channels are alike, so are the
    logits but for their last digit, which of numbers of 6e9 is 512: behind a softmax it
    decides between a thousandth and nothing."""
    def build():
        model = onnx.load(path)
        graph = model.graph
        last = graph.node[-1]
        assert last.op_type == "Softmax" and list(last.output) == [graph.output[0].name]
        graph.node.remove(last)
        graph.output[0].name = last.input[0]
        return model
    build.__name__ = f"{path.stem}, logits"
    return build


def exported(name):
    return HERE / "data" / f"{name}.onnx"


def tokens(batch, length):
    return {"input_ids": [batch, length]}


def bert_inputs(batch, length):
    names = ["input_ids", "attention_mask", "token_type_ids"]
    return {name: [batch, length] for name in names}


def masked(batch, length):
    return {name: [batch, length] for name in ["input_ids", "attention_mask"]}


def both_tokens(batch, length):
    return {name: [batch, length] for name in ["input_ids", "decoder_input_ids"]}


#: name: (file, or function that builds it; shape of every input; is it large)
MODELS = {
    "ppocr-det": (ocr("ch_PP-OCRv4_det_infer.onnx"), {"x": [2, 3, 96, 160]}, False),
    "ppocr-rec": (ocr("ch_PP-OCRv4_rec_infer.onnx"), {"x": [2, 3, 48, 208]}, False),
    "ppocr-cls": (ocr("ch_ppocr_mobile_v2.0_cls_infer.onnx"), {"x": [2, 3, 48, 192]},
                  False),
    "resnet50": (light("light_resnet50.onnx"), {"gpu_0/data_0": [1, 3, 224, 224]}, False),
    "squeezenet": (logits(light("light_squeezenet.onnx")), {"data_0": [1, 3, 224, 224]},
                   False),
    "resnet50-random": (randomized(light("light_resnet50.onnx")),
                        {"gpu_0/data_0": [1, 3, 224, 224]}, False),
    "squeezenet-random": (randomized(light("light_squeezenet.onnx")),
                          {"data_0": [1, 3, 224, 224]}, False),
    "gpt2-dynamo": (exported("gpt2-dynamo"), tokens(2, 12), False),
    "gpt2-dynamo-dynamic": (exported("gpt2-dynamo-dynamic"), tokens(4, 16), False),
    "gpt2-script": (exported("gpt2-script"), masked(4, 16), False),
    "gpt2-builder-fused": (build_gpt2.fused, tokens(2, 16), False),
    "gpt2-builder-apart": (build_gpt2.apart, tokens(2, 16), False),
    "gpt2-builder-tied": (build_gpt2.tied, tokens(2, 16), False),
    "bert-dynamo": (exported("bert-dynamo"), bert_inputs(4, 16), False),
    "bert-script": (exported("bert-script"), bert_inputs(4, 16), False),
    "bert-script-opset11": (exported("bert-script-opset11"), bert_inputs(2, 12), False),
    "llama-dynamo": (exported("llama-dynamo"), tokens(4, 16), False),
    "llama-dynamo-opset23": (exported("llama-dynamo-opset23"), tokens(2, 12), False),
    "llama-script": (exported("llama-script"), masked(4, 16), False),
    "vit-dynamo": (exported("vit-dynamo"), {"pixel_values": [2, 3, 32, 32]}, False),
    "vit-script": (exported("vit-script"), {"pixel_values": [4, 3, 32, 32]}, False),
    **{f"{family}-{exporter}": (exported(f"{family}-{exporter}"), inputs, False)
       for family, dynamo, script in [
           ("qwen2", tokens(2, 12), masked(2, 12)),
           ("mistral", tokens(2, 12), masked(2, 12)),
           ("phi3", tokens(2, 12), masked(2, 12)),
           ("gemma2", tokens(2, 12), masked(2, 12)),
           ("t5", both_tokens(2, 12), both_tokens(2, 12)),
           ("modernbert", masked(2, 12), masked(2, 12)),
           ("dinov2", {"pixel_values": [2, 3, 32, 32]}, {"pixel_values": [2, 3, 32, 32]})]
       for exporter, inputs in [("dynamo", dynamo), ("script", script)]},
    "t5-script-dynamic": (exported("t5-script-dynamic"), both_tokens(24, 12), False),
    "bert-base": (exported("bert-base"), bert_inputs(1, 128), True),
    "gpt2-small": (exported("gpt2-small"), tokens(1, 128), True),
}

RECIPE_TEXT = re.compile(r"normal mean=(\S+) std=(\S+) seed=(\d+)$")


def fill_weights(model):
    """Follows the recipes that export_transformers.py left in place of weights."""
    for tensor in model.graph.initializer:
        recipe = RECIPE_TEXT.match(tensor.doc_string)
        if not recipe:
            continue
        mean, std, seed = recipe.groups()
        generator = np.random.Generator(np.random.PCG64(int(seed)))
        values = generator.standard_normal(tuple(tensor.dims), dtype=np.float32)
        values = values * np.float32(std) + np.float32(mean)
        tensor.raw_data = values.tobytes()
        tensor.ClearField("doc_string")


#: Noise means nothing to the OCR models: they get pictures of text.
PICTURES = {
    "ppocr-det": text_picture.detection_input,
    "ppocr-rec": text_picture.recognition_input,
    "ppocr-cls": text_picture.recognition_input,
}


def make_input(model, name, value, shape, index):
    if model in PICTURES:
        return PICTURES[model](shape[0], shape[2], shape[3])
    kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    generator = np.random.Generator(np.random.PCG64(1000 + index))
    if name == "attention_mask":
        # The last tokens of every other row are padding, as in a batch of sentences.
        values = np.ones(shape, kind)
        values[1::2, -3:] = 0
        return values
    if name == "token_type_ids":
        values = np.zeros(shape, kind)
        values[:, shape[1] // 2:] = 1
        return values
    if np.issubdtype(kind, np.integer):
        return generator.integers(0, 503, shape, dtype=kind)
    return generator.standard_normal(shape, dtype=np.float32).astype(kind)


def run(path, feeds):
    options = onnxruntime.SessionOptions()
    # One thread and no fusions: sums in the order of the graph, the same everywhere.
    options.intra_op_num_threads = 1
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def write_case(name, target, own_input=None, more=None):
    """Writes the folder of a model. `own_input` makes its inputs in place of make_input;
    `more` is what case.json says besides. Inputs that are "constants" there are bound when the
    model is compiled (--const): each is a file NAME.npy."""
    source, shapes, large = MODELS[name]
    if not callable(source) and not source.exists():
        sys.exit(f"zoo.py: {name}: {source} is missing (run utils/setup)")
    work = target.with_name(target.name + ".work")
    shutil.rmtree(work, ignore_errors=True)
    (work / "inputs").mkdir(parents=True)
    (work / "expected").mkdir()
    model = source() if callable(source) else onnx.load(source)
    fill_weights(model)
    if large:
        onnx.save(model, work / "model.onnx", save_as_external_data=True,
                  location="model.onnx.data")
    else:
        onnx.save(model, work / "model.onnx")
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in constants]
    bound = (more or {}).get("constants", [])
    feeds = {}
    for index, value in enumerate(inputs):
        shape = shapes[value.name]
        values = (own_input(value.name, value, shape, index) if own_input else
                  make_input(name, value.name, value, shape, index))
        feeds[value.name] = values
        if value.name in bound:
            np.save(work / f"{value.name}.npy", values)
            continue
        proto = onnx.numpy_helper.from_array(values, value.name)
        (work / "inputs" / f"input_{index}.pb").write_bytes(proto.SerializeToString())
    outputs = [value.name for value in model.graph.output]
    for index, values in enumerate(run(work / "model.onnx", feeds)):
        if not np.isfinite(values).all():
            sys.exit(f"zoo.py: {name}: output '{outputs[index]}' is not finite")
        proto = onnx.numpy_helper.from_array(values, outputs[index])
        (work / "expected" / f"output_{index}.pb").write_bytes(proto.SerializeToString())
    case = {
        "name": name, "recipe": RECIPE, "onnxruntime": onnxruntime.__version__,
        "shapes": {key: value for key, value in shapes.items()
                   if key in feeds and key not in bound},
        "inputs": [key for key in feeds if key not in bound], "outputs": outputs, **(more or {}),
    }
    (work / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    shutil.rmtree(target, ignore_errors=True)
    work.rename(target)


def is_complete(name, target):
    try:
        case = json.loads((target / "case.json").read_text())
    except (OSError, ValueError):
        return False
    source, shapes, _ = MODELS[name]
    if callable(source):
        source = pathlib.Path(build_gpt2.__file__)
    return (case.get("recipe") == RECIPE and case.get("shapes") == shapes
            and case.get("onnxruntime") == onnxruntime.__version__
            and (target / "case.json").stat().st_mtime >= source.stat().st_mtime)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        for name, (source, shapes, large) in MODELS.items():
            print(name, "large" if large else "small",
                  source.__name__ if callable(source) else source.name, json.dumps(shapes))
        return
    if arguments.out is None:
        parser.error("OUT_DIR is missing")
    unknown = [name for name in arguments.names if name not in MODELS]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; known are {', '.join(MODELS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    small = [name for name, (_, _, large) in MODELS.items() if not large]
    for name in arguments.names or small:
        target = arguments.out / name
        if is_complete(name, target):
            continue
        print(f"[zoo] {name}", flush=True)
        write_case(name, target)


if __name__ == "__main__":
    main()
