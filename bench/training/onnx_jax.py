"""Evaluates the ONNX graphs of `bench/models` by jax.numpy, so that JAX splits the program that
Partita splits. Operators that those graphs lack are an error."""
import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import numpy_helper


def attributes(node):
    return {it.name: onnx.helper.get_attribute_value(it) for it in node.attribute}


def convolve(at, x, weight, bias=None):
    rank = x.ndim - 2
    pads = at.get("pads", [0] * 2 * rank)
    y = jax.lax.conv_general_dilated(
        x, weight, at.get("strides", [1] * rank), list(zip(pads[:rank], pads[rank:])),
        rhs_dilation=at.get("dilations", [1] * rank), feature_group_count=at.get("group", 1))
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


def max_pool(at, x):
    rank = x.ndim - 2
    pads = at.get("pads", [0] * 2 * rank)
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 1, *at["kernel_shape"]),
        (1, 1, *at.get("strides", [1] * rank)),
        ((0, 0), (0, 0), *zip(pads[:rank], pads[rank:])))


def batch_norm(at, x, scale, shift, mean, variance):
    one = (-1, *[1] * (x.ndim - 2))
    if at["trains"]:  # by the statistics of the batch
        axes = (0, *range(2, x.ndim))
        mean = jnp.mean(x, axes)
        variance = jnp.mean((x - mean.reshape(one))**2, axes)
    factor = scale / jnp.sqrt(variance + at.get("epsilon", 1e-5))
    return (x - mean.reshape(one)) * factor.reshape(one) + shift.reshape(one)


def layer_norm(at, x, scale, shift):
    centred = x - jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(centred * centred, -1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + at.get("epsilon", 1e-5)) * scale + shift


def rms_norm(at, x, scale):
    square = jnp.mean(x * x, -1, keepdims=True)
    return x * jax.lax.rsqrt(square + at.get("epsilon", 1e-5)) * scale


def gemm(at, a, b, c=None):
    a = a.T if at.get("transA") else a
    b = b.T if at.get("transB") else b
    return a @ b if c is None else a @ b + c


def reshape(at, x, shape):
    return jnp.reshape(x, [x.shape[i] if extent == 0 else int(extent)
                           for i, extent in enumerate(np.asarray(shape))])


def split(at, x, sizes):
    return jnp.split(x, np.cumsum(np.asarray(sizes))[:-1].tolist(), at.get("axis", 0))


def unsqueeze(at, x, axes):
    return jnp.expand_dims(x, tuple(int(axis) for axis in np.asarray(axes)))


def reduced(function):
    def run(at, x, axes=None):
        axes = at.get("axes") if axes is None else [int(axis) for axis in np.asarray(axes)]
        return function(x, tuple(axes), keepdims=bool(at.get("keepdims", 1)))
    return run


def running_sum(at, x, axis):
    total = jnp.cumsum(x, int(np.asarray(axis)))
    return total - x if at.get("exclusive") else total


def power(at, x, exponent):
    return x ** int(np.asarray(exponent)) if isinstance(exponent, np.ndarray) else x**exponent


OPERATORS = {
    "Add": lambda at, a, b: a + b, "Sub": lambda at, a, b: a - b,
    "Mul": lambda at, a, b: a * b, "Div": lambda at, a, b: a / b, "Pow": power,
    "Neg": lambda at, x: -x, "Tanh": lambda at, x: jnp.tanh(x),
    "Relu": lambda at, x: jax.nn.relu(x), "Sigmoid": lambda at, x: jax.nn.sigmoid(x),
    "Equal": lambda at, a, b: a == b, "Less": lambda at, a, b: a < b,
    "Greater": lambda at, a, b: a > b, "Where": lambda at, c, a, b: jnp.where(c, a, b),
    "Cast": lambda at, x: x.astype(onnx.helper.tensor_dtype_to_np_dtype(at["to"])),
    "MatMul": lambda at, a, b: jnp.matmul(a, b), "Gemm": gemm, "Conv": convolve,
    "Softmax": lambda at, x: jax.nn.softmax(x, at.get("axis", -1)),
    "LayerNormalization": layer_norm, "RMSNormalization": rms_norm,
    "BatchNormalization": batch_norm, "MaxPool": max_pool,
    "GlobalAveragePool": lambda at, x: jnp.mean(x, tuple(range(2, x.ndim)), keepdims=True),
    "Flatten": lambda at, x: jnp.reshape(x, (x.shape[0], -1)),
    "Gather": lambda at, x, at_: jnp.take(x, at_, at.get("axis", 0)),
    "Reshape": reshape, "Transpose": lambda at, x: jnp.transpose(x, at["perm"]),
    "Split": split, "Concat": lambda at, *parts: jnp.concatenate(parts, at["axis"]),
    "Unsqueeze": unsqueeze, "CumSum": running_sum,
    "Expand": lambda at, x, shape: jnp.broadcast_to(x, jnp.broadcast_shapes(
        x.shape, tuple(int(extent) for extent in np.asarray(shape)))),
    "ReduceMax": reduced(jnp.max), "ReduceSum": reduced(jnp.sum),
}


class Graph:
    """A model: `shapes` of what it is given by name, `run` of values by name."""

    def __init__(self, model, trains=False):
        self.graph, self.trains = model.graph, trains
        self.shapes = {it.name: ([d.dim_value for d in it.type.tensor_type.shape.dim],
                                 onnx.helper.tensor_dtype_to_np_dtype(
                                     it.type.tensor_type.elem_type))
                       for it in model.graph.input}
        self.weights = {it.name: numpy_helper.to_array(it) for it in model.graph.initializer}
        self.output = model.graph.output[0].name

    def run(self, given, sharding=lambda name: None):
        """The first output. What is not in `given` is a constant of the program; `sharding`
        gives that of a value by its name, or nothing."""
        values = {**self.weights, **given, "": None}
        for node in self.graph.node:
            if node.op_type not in OPERATORS:
                raise NotImplementedError(f"{node.op_type} of '{node.name}'")
            result = OPERATORS[node.op_type]({**attributes(node), "trains": self.trains},
                                             *[values[name] for name in node.input])
            for name, value in zip(node.output,
                                   result if isinstance(result, list) else [result]):
                how = sharding(name)
                values[name] = (value if how is None else
                                jax.lax.with_sharding_constraint(value, how))
        return values[self.output]
