"""GPT-2 quantized as ONNX Runtime's tools leave it: dynamic (MatMulInteger), by channel, as
Q/DQ pairs, and by quantized operators (QGemm, QLinearMatMul).

usage: make_quantized.py FOLDER
"""
import logging
import os
import sys

import numpy as np
import onnx
from onnxruntime import quantization

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "E2E", "models"))
import build_gpt2  # noqa: E402

BATCH, LENGTH = 2, 16


class Reader(quantization.CalibrationDataReader):
    """A few batches of token ids."""

    def __init__(self):
        self.batches = iter(range(4))

    def get_next(self):
        seed = next(self.batches, None)
        return None if seed is None else {
            "input_ids": np.random.default_rng(seed).integers(0, 503, (BATCH, LENGTH))}


def main():
    folder = sys.argv[1]
    logging.disable(logging.WARNING)
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/float.onnx"
    onnx.save(build_gpt2.Gpt2(True, BATCH, LENGTH).build(), path)
    quantization.quantize_dynamic(path, f"{folder}/dynamic.onnx")
    quantization.quantize_dynamic(path, f"{folder}/channels.onnx", per_channel=True,
                                  weight_type=quantization.QuantType.QInt8)
    for name, form in (("pairs", quantization.QuantFormat.QDQ),
                       ("operators", quantization.QuantFormat.QOperator)):
        quantization.quantize_static(path, f"{folder}/{name}.onnx", Reader(),
                                     quant_format=form)


if __name__ == "__main__":
    main()
