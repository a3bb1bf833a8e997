"""GPT-2 of any size in a moment: its large weights are zeros in a sparse file."""
import os

import onnx

import build_gpt2
import builder


class SparseGpt2(builder.AbsentWeights, build_gpt2.Gpt2):
    def __init__(self, batch=1, length=128, hidden=768, heads=12, layers=12,
                 vocabulary=50257):
        super().__init__(True, batch, length, hidden=hidden, heads=heads, layers=layers,
                         vocabulary=vocabulary)

    def save(self, folder):
        path = os.path.join(folder, "model.onnx")
        onnx.save(self.build(), path)
        with open(os.path.join(folder, self.location), "wb") as file:
            file.truncate(self.file_size)
        return path
