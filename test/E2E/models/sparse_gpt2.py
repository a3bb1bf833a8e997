"""GPT-2 of any size in a moment: its large weights are zeros in a sparse file."""
import os

import numpy as np
import onnx
from onnx import TensorProto

import build_gpt2


class SparseGpt2(build_gpt2.Gpt2):
    """GPT-2 whose large weights exist as a name, a shape and a place in a file."""

    def __init__(self, batch=1, length=128, hidden=768, heads=12, layers=12,
                 vocabulary=50257):
        super().__init__(True, batch, length, hidden=hidden, heads=heads, layers=layers,
                         vocabulary=vocabulary)
        self.offset = 0

    def draw(self, *shape, gain=1, mean=0):
        return np.broadcast_to(np.float32(mean), shape)

    def weight(self, name, value):
        if value.size < 4096:
            return super().weight(name, np.array(value))
        tensor = TensorProto(name=name, dims=value.shape, data_type=TensorProto.FLOAT,
                             data_location=TensorProto.EXTERNAL)
        length = value.size * 4
        if value.dtype == bool:
            tensor.data_type, length = TensorProto.BOOL, value.size
        for key, entry in [("location", "weights.bin"), ("offset", self.offset),
                           ("length", length)]:
            tensor.external_data.add(key=key, value=str(entry))
        self.offset += -(-length // 4096) * 4096
        self.initializers.append(tensor)
        return name

    def save(self, folder):
        check, onnx.checker.check_model = onnx.checker.check_model, lambda *a, **k: None
        try:
            model = self.build()
        finally:
            onnx.checker.check_model = check
        onnx.save(model, os.path.join(folder, "model.onnx"))
        with open(os.path.join(folder, "weights.bin"), "wb") as file:
            file.truncate(self.offset)
        return os.path.join(folder, "model.onnx")
