"""expected_outputs.py MODEL FOLDER: random f32 inputs and ONNX Runtime's outputs for them, as
input_K.pb and output_K.pb."""
import pathlib
import sys

import numpy as np
import onnxruntime
from onnx import numpy_helper

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
folder = pathlib.Path(sys.argv[2])
folder.mkdir()
random = np.random.default_rng(3)
inputs = {i.name: random.uniform(-1, 1, i.shape).astype(np.float32)
          for i in session.get_inputs()}
outputs = session.run(None, inputs)
for stem, tensors in (("input", inputs.values()), ("output", outputs)):
    for k, tensor in enumerate(tensors):
        data = numpy_helper.from_array(tensor).SerializeToString()
        (folder / f"{stem}_{k}.pb").write_bytes(data)
