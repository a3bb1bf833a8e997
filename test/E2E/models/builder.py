"""What writes a model node by node: nodes, weights, inputs and outputs in order.

A parameter of a model is called `….weight` or `….bias`, as exporters do; tables, masks and
statistics have other names.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    opset, ir_version = 17, 8

    def __init__(self, seed):
        self.nodes, self.initializers = [], []
        self.inputs, self.outputs, self.limits = [], [], {}
        self.random = np.random.Generator(np.random.PCG64(seed))

    def draw(self, *shape, gain=1.0, mean=0.0):
        values = self.random.standard_normal(shape, dtype=np.float32)
        return values * np.float32(gain) + np.float32(mean)

    def join(self, parts, axis):
        return np.concatenate(parts, axis)

    def weight(self, name, values):
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def ints(self, name, values):
        return self.weight(name, np.array(values, np.int64))

    def scalar(self, name, value):
        return self.weight(name, np.array(value, np.float32))

    def node(self, op, inputs, name, outputs=None, **attributes):
        outputs = outputs or [f"{name}_out"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name, **attributes))
        return outputs[0] if len(outputs) == 1 else outputs

    def input(self, name, shape, below=None):
        """An input of floats, or of integers from 0 to below what `below` says."""
        kind = TensorProto.INT64 if below else TensorProto.FLOAT
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        self.limits[name] = below
        return name

    def output(self, name, shape):
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def sample_inputs(self, seed=1000):
        """A value for every input by its name: integers over their whole range."""
        random = np.random.Generator(np.random.PCG64(seed))
        values = {}
        for value in self.inputs:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            below = self.limits[value.name]
            values[value.name] = (random.integers(0, below, shape) if below else
                                  random.standard_normal(shape, dtype=np.float32))
        return values

    def check(self, model):
        onnx.checker.check_model(model, full_check=True)

    def model(self, name):
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs,
                                  self.initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=self.ir_version)
        self.check(model)
        return model


class AbsentWeights:
    """Mixed in before a Builder: whatever is large has a name, a shape and a place in a
    file that nobody reads and that need not exist. Small values, which may say how the
    program looks, are in the model."""

    location = "weights.bin"
    smallest = 4096

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.file_size = 0

    def draw(self, *shape, gain=1.0, mean=0.0):
        return np.broadcast_to(np.float32(mean), shape)

    def join(self, parts, axis):
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.draw(*shape)

    def weight(self, name, values):
        if values.size < self.smallest:
            return super().weight(name, np.array(values))
        tensor = TensorProto(name=name, dims=values.shape,
                             data_type=helper.np_dtype_to_tensor_dtype(values.dtype),
                             data_location=TensorProto.EXTERNAL)
        length = values.size * values.dtype.itemsize
        for key, entry in [("location", self.location), ("offset", self.file_size),
                           ("length", length)]:
            tensor.external_data.add(key=key, value=str(entry))
        self.file_size += -(-length // 4096) * 4096
        self.initializers.append(tensor)
        return name

    def check(self, model):
        """The checker wants the file to exist."""
