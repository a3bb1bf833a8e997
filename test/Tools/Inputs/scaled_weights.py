"""scaled_weights.py MODEL OUT: the model with all its f32 weights of two dims times 1.5."""
import sys

import numpy as np
import onnx
from onnx import numpy_helper

model = onnx.load(sys.argv[1])
for weight in model.graph.initializer:
    values = numpy_helper.to_array(weight)
    if values.dtype == np.float32 and values.ndim == 2:
        weight.CopyFrom(numpy_helper.from_array(values * np.float32(1.5), weight.name))
onnx.save(model, sys.argv[2])
