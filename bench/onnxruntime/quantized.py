#!/usr/bin/env python3
"""Writes quantized models at published sizes with random weights, each a folder as models.py
writes them, for compare.py.

usage: quantized.py OUT_DIR [NAME…]
       quantized.py --list

bert-dynamic and gpt2-dynamic: ONNX Runtime's `quantize_dynamic`, opset 18, weights s8 with
one scale per tensor, activations u8, no reduced range; 1 × 128 tokens. The others:
`quantize_static` of one image, weights s8 per channel, activations u8, to quantized operators
(-qoperator) or to pairs around operators in f32 (-qdq).
"""
import argparse
import json
import pathlib
import sys
import tempfile
import warnings

import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "models"), str(ROOT / "test" / "E2E" / "models")]
warnings.filterwarnings("ignore")


def bert(length=128):
    import bert as models
    return models.Bert(hidden=768, heads=12, layers=12, batch=1, length=length)


def gpt2(length=128):
    import specs
    return specs.Gpt3(hidden=768, heads=12, layers=12, batch=1, length=length)


def resnet50():
    import resnet
    return resnet.ResNet(layers=50, batch=1)


def mobilenet():
    import mobilenet as models
    return models.MobileNetV2()


def dynamic(network, source, target):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    quantize_dynamic(source, target, weight_type=QuantType.QInt8)


def static(network, source, target, form):
    import onnxruntime
    from onnxruntime import quantization
    options = onnxruntime.SessionOptions() # folds norms into convolutions
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = source
    onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])

    class Reader(quantization.CalibrationDataReader):
        left = [network.sample_inputs(seed) for seed in range(2)]

        def get_next(self):
            return self.left.pop() if self.left else None
    quantization.quantize_static(
        source, target, Reader(), quant_format=getattr(quantization.QuantFormat, form),
        per_channel=True, activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8)


def operators(network, source, target):
    static(network, source, target, "QOperator")


def pairs(network, source, target):
    static(network, source, target, "QDQ")


MODELS = {"bert-dynamic": (bert, dynamic), "gpt2-dynamic": (gpt2, dynamic),
          "resnet50-qoperator": (resnet50, operators), "resnet50-qdq": (resnet50, pairs),
          "mobilenetv2-qoperator": (mobilenet, operators),
          "mobilenetv2-qdq": (mobilenet, pairs)}


def write(target, name):
    make, quantize = MODELS[name]
    (target / "inputs").mkdir(parents=True, exist_ok=True)
    network = make()
    with tempfile.TemporaryDirectory() as work:
        onnx.save(network.build(), f"{work}/f32.onnx")
        quantize(network, f"{work}/f32.onnx", str(target / "model.onnx"))
    feeds = network.sample_inputs()
    for index, (key, value) in enumerate(feeds.items()):
        proto = onnx.numpy_helper.from_array(value, key)
        (target / "inputs" / f"input_{index}.pb").write_bytes(proto.SerializeToString())
    case = {"name": name, "inputs": list(feeds),
            "shapes": {key: list(value.shape) for key, value in feeds.items()}}
    (target / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list or not arguments.folder:
        print("\n".join(MODELS))
        return
    for name in arguments.names or MODELS:
        write(pathlib.Path(arguments.folder) / name, name)


if __name__ == "__main__":
    main()
