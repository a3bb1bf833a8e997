"""Small models to train, written with onnx's helper: no framework is needed."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Writer:
    """A model, node by node; weights are drawn from `random`."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs = [], [], []

    def weight(self, name, *shape, scale=None, value=None):
        if value is None:
            scale = scale or 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])
            value = self.random.normal(0, scale, shape)
        self.weights.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def ints(self, name, values):
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def op(self, kind, inputs, name, outputs=1, **attributes):
        names = [name] if outputs == 1 else [f"{name}.{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
        return name if outputs == 1 else names

    def input(self, name, shape, kind=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def save(self, path, output, shape):
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "model", self.inputs, [result], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 9
        onnx.checker.check_model(model)
        onnx.save(model, path)


def mlp(path, batch=24):
    w = Writer(1)
    x = w.input("x", [batch, 12])
    x = w.op("Gemm", [x, w.weight("fc1.weight", 12, 48), w.weight("fc1.bias", 48)], "fc1")
    x = w.op("Relu", [x], "act")
    x = w.op("Gemm", [x, w.weight("fc2.weight", 48, 8), w.weight("fc2.bias", 8)], "fc2")
    w.save(path, x, [batch, 8])
    return {"x": lambda r: r.normal(0, 1, (batch, 12)).astype(np.float32)}, (batch,), 8


def convolutional(path, batch=8):
    """Convolutions, a normalization by the batch, both kinds of pool."""
    w = Writer(2)
    x = w.input("x", [batch, 3, 16, 16])

    def normalized(x, name, channels):
        ones, zeros = np.ones(channels), np.zeros(channels)
        return w.op("BatchNormalization",
                    [x, w.weight(f"{name}.weight", channels, value=ones),
                     w.weight(f"{name}.bias", channels, value=zeros),
                     w.weight(f"{name}.mean", channels, value=zeros),
                     w.weight(f"{name}.var", channels, value=ones)], name)

    x = w.op("Conv", [x, w.weight("conv1.weight", 8, 3, 3, 3)], "conv1", pads=[1] * 4)
    x = w.op("Relu", [normalized(x, "bn1", 8)], "relu1")
    x = w.op("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = w.op("Conv", [x, w.weight("conv2.weight", 12, 8, 3, 3), w.weight("conv2.bias", 12)],
             "conv2", strides=[2, 2], pads=[1] * 4)
    x = w.op("Relu", [normalized(x, "bn2", 12)], "relu2")
    x = w.op("AveragePool", [x], "mean", kernel_shape=[4, 4])
    x = w.op("Flatten", [x], "flat")
    x = w.op("Gemm", [x, w.weight("fc.weight", 12, 8), w.weight("fc.bias", 8)], "fc")
    w.save(path, x, [batch, 8])
    return {"x": lambda r: r.normal(0, 1, (batch, 3, 16, 16)).astype(np.float32)}, (batch,), 8


def windows(path, batch=6):
    """Windows of all kinds: groups, strides, dilations, pads that differ at both ends, rows
    that no window reads."""
    w = Writer(7)
    x = w.input("x", [batch, 4, 12, 11])
    x = w.op("Conv", [x, w.weight("conv1.weight", 6, 2, 3, 2), w.weight("conv1.bias", 6)],
             "conv1", group=2, strides=[2, 1], dilations=[1, 3], pads=[1, 0, 2, 1])
    x = w.op("MaxPool", [w.op("Tanh", [x], "tanh1")], "pool", kernel_shape=[3, 2],
             strides=[1, 2], dilations=[2, 1], pads=[2, 0, 1, 1])
    x = w.op("Conv", [x, w.weight("conv2.weight", 6, 3, 2, 2)], "conv2", group=2,
             strides=[2, 2])
    x = w.op("Flatten", [w.op("Tanh", [x], "tanh2")], "flat")
    x = w.op("MatMul", [x, w.weight("head.weight", 36, 8)], "head")
    w.save(path, x, [batch, 8])
    return {"x": lambda r: r.normal(0, 1, (batch, 4, 12, 11)).astype(np.float32)}, (batch,), 8


def transformer(path, batch=8, length=8, width=32, heads=4, words=40, fused=False, tied=False):
    """A table of words, one block of attention, one MLP, a head over words; `fused`: queries,
    keys and values by one product; `tied`: the head's weights are the table."""
    w = Writer(3)
    size = width // heads
    tokens = w.input("tokens", [batch, length], TensorProto.INT64)
    table = w.weight("wte", words, width, scale=0.3)
    x = w.op("Gather", [table, tokens], "embed")
    x = w.op("Add", [x, w.weight("wpe", length, width, scale=0.3)], "place")

    def norm(x, name):
        return w.op("LayerNormalization", [x, w.weight(f"{name}.weight", width,
                                                       value=np.ones(width)),
                                           w.weight(f"{name}.bias", width,
                                                    value=np.zeros(width))], name)

    def linear(x, name, a, b):
        if name == "qkv":  # as frameworks keep it
            weight = w.op("Transpose", [w.weight("qkv.weight", b, a)], "qkv.turned")
        else:
            weight = w.weight(f"{name}.weight", a, b)
        x = w.op("MatMul", [x, weight], name)
        if name == "k":  # its gradient would be zero but for rounding: softmax shifts
            return x
        return w.op("Add", [x, w.weight(f"{name}.bias", b, value=np.zeros(b))], f"{name}.add")

    heads_shape = w.ints("heads", [batch, length, heads, size])
    rows_shape = w.ints("rows", [batch, length, width])
    h, parts = norm(x, "ln_1"), []
    if fused:
        three = w.op("Split", [linear(h, "qkv", width, 3 * width)], "three", outputs=3, axis=2)
    for k, (name, order) in enumerate((("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]),
                                       ("v", [0, 2, 1, 3]))):
        y = three[k] if fused else linear(h, name, width, width)
        y = w.op("Reshape", [y, heads_shape], f"{name}.split")
        parts.append(w.op("Transpose", [y], f"{name}.heads", perm=order))
    y = w.op("MatMul", parts[:2], "scores")
    y = w.op("Mul", [y, w.weight("scale", value=1 / np.sqrt(size))], "scaled")
    y = w.op("Add", [y, w.op("Constant", [], "mask", value=numpy_helper.from_array(
        np.triu(np.full((length, length), -1e4, np.float32), 1)))], "masked")
    y = w.op("MatMul", [w.op("Softmax", [y], "shares"), parts[2]], "attend")
    y = w.op("Reshape", [w.op("Transpose", [y], "merge", perm=[0, 2, 1, 3]), rows_shape],
             "join")
    x = w.op("Add", [x, linear(y, "o", width, width)], "residual1")
    h = linear(norm(x, "ln_2"), "up", width, 4 * width)
    h = w.op("Mul", [h, w.op("Sigmoid", [h], "gate")], "silu")
    x = w.op("Add", [x, linear(h, "down", 4 * width, width)], "residual2")
    x = norm(x, "ln_f")
    head = (w.op("Transpose", [table], "wte.turned") if tied
            else w.weight("head.weight", width, words))
    x = w.op("MatMul", [x, head], "head")
    w.save(path, x, [batch, length, words])
    return ({"tokens": lambda r: r.integers(0, words, (batch, length))}, (batch, length),
            words)


def fused(path, batch=8):
    return transformer(path, batch, length=12, fused=True)


def stack(path, batch=64, layers=12, width=32):
    """Residual blocks one behind the other: a norm, two products, a gate."""
    w = Writer(4)
    x = w.input("x", [batch, width])
    for k in range(layers):
        h = f"h.{k}"
        y = w.op("LayerNormalization", [x, w.weight(f"{h}.norm.weight", width,
                                                    value=np.ones(width)),
                                        w.weight(f"{h}.norm.bias", width,
                                                 value=np.zeros(width))], f"{h}.norm")
        y = w.op("MatMul", [y, w.weight(f"{h}.up.weight", width, 4 * width)], f"{h}.up")
        y = w.op("Mul", [y, w.op("Sigmoid", [y], f"{h}.gate")], f"{h}.silu")
        y = w.op("MatMul", [y, w.weight(f"{h}.down.weight", 4 * width, width, scale=0.05)],
                 f"{h}.down")
        x = w.op("Add", [x, y], f"{h}.add")
    x = w.op("MatMul", [x, w.weight("head.weight", width, 8)], "head")
    w.save(path, x, [batch, 8])
    return {"x": lambda r: r.normal(0, 1, (batch, width)).astype(np.float32)}, (batch,), 8


def unet(path, batch=4, width=6):
    """Convolutions down and up again; each step up reads what the step down has made."""
    w = Writer(6)
    x = w.input("x", [batch, 2, 16, 16])

    def conv(x, name, a, b, **more):
        return w.op("Relu", [w.op("Conv", [x, w.weight(f"{name}.weight", b, a, 3, 3),
                                           w.weight(f"{name}.bias", b)],
                                  name, pads=[1] * 4, **more)], f"{name}.relu")

    size = w.op("Constant", [], "sizes", value=numpy_helper.from_array(
        np.array([1, 1, 2, 2], np.float32)))
    down = [conv(x, "down0", 2, width)]
    for k in (1, 2):
        down.append(conv(down[-1], f"down{k}", width * k, width * (k + 1), strides=[2, 2]))
    x = down.pop()
    for k in (2, 1):
        x = w.op("Resize", [x, "", size], f"up{k}.size", mode="nearest")
        x = w.op("Concat", [x, down.pop()], f"up{k}.join", axis=1)
        x = conv(x, f"up{k}", width * (2 * k + 1), width * k)
    x = w.op("GlobalAveragePool", [x], "mean")
    x = w.op("Flatten", [x], "flat")
    x = w.op("MatMul", [x, w.weight("head.weight", width, 8)], "head")
    w.save(path, x, [batch, 8])
    return {"x": lambda r: r.normal(0, 1, (batch, 2, 16, 16)).astype(np.float32)}, (batch,), 8


def two_batches(path):
    """An input whose first dim is not the batch of the other."""
    w = Writer(5)
    x = w.op("Add", [w.input("x", [4, 8]), w.input("mask", [1, 8])], "masked")
    w.save(path, w.op("MatMul", [x, w.weight("head.weight", 8, 8)], "head"), [4, 8])


MODELS = {"stack": stack, "mlp": mlp, "conv": convolutional, "transformer": transformer,
          "fused": fused}
