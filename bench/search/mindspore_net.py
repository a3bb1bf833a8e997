#!/usr/bin/env python3
"""Compiles an ONNX model of bench/models with MindSpore's auto_parallel mode and its
double-recursive search, and prints as JSON what the search took, or with --strategies what it chose.

usage: mindspore_net.py MODEL.onnx DEVICES [--strategies]

Runs in an environment with mindspore and onnx (pip install mindspore onnx). The package for
CPU compiles for other devices as far as its front end goes: the search refuses the target
CPU before it looks at anything, so the name of the target is replaced; compilation then
ends where it asks for the device itself, behind all passes that split the program, or, where
it has inserted a redistribution, in shape inference behind them, as groups have no members.

{"search_ms", "parallel_ms", "compile_s", "process_s", "ended"}: `search_ms` is MindSpore's
own "used time" of the pass that parses the graph, searches and gives every op its strategy;
`parallel_ms` that of the pass behind it, which inserts communication; `compile_s` is the
whole call, which ended with the error `ended`. What it says about time is in its log, so
everything is logged while it is measured. With --strategies: {ONNX node: [[shards per dim]
per operand]}, of MatMul's left operand with all but its last dim as one.
"""
import ctypes
import glob
import json
import os
import re
import sys
import tempfile
import time

started = time.time()


def pretend_target(name):
    """Lets MindSpore's context say that the target is `name`, whatever was loaded."""
    import mindspore
    from mindspore._c_expression import ms_ctx_param
    libraries = os.path.join(os.path.dirname(mindspore.__file__), "lib")
    core = ctypes.CDLL(os.path.join(libraries, "libmindspore_core.so"))
    context = ctypes.c_void_p.in_dll(core, "_ZN9mindspore9MsContext13inst_context_E")
    get = ctypes.CDLL(os.path.join(libraries, "libmindspore_common.so"))[
        "_ZNK9mindspore9MsContext9get_paramISsEERKT_NS_10MsCtxParamE"]
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]
    place = get(context.value, int(ms_ctx_param.device_target))
    # A string of libstdc++'s old ABI: a pointer to the text, before which length, capacity
    # and number of owners lie.
    text = name.encode()
    owned = b"".join(number.to_bytes(8, "little")
                     for number in (len(text), len(text), 1 << 20)) + text + b"\0"
    pretend_target.kept = ctypes.create_string_buffer(owned)
    ctypes.c_void_p.from_address(place).value = ctypes.addressof(pretend_target.kept) + 24


class Translator:
    """The source of a Cell with one sub-cell per ONNX node, so that full names of ops in
    MindSpore's program have the number of the node."""

    def __init__(self, graph):
        from onnx import numpy_helper
        self.lines, self.cells, self.parameters = [], [], []
        self.names, self.constants, self.shapes = {}, {}, {}
        self.order = [node.name or node.output[0] for node in graph.node]
        for value in list(graph.input) + list(graph.value_info) + list(graph.output):
            self.shapes[value.name] = [d.dim_value for d in value.type.tensor_type.shape.dim]
        for tensor in graph.initializer:
            self.shapes[tensor.name] = list(tensor.dims)
            if tensor.data_location == 0 and len(tensor.dims) < 2:
                self.constants[tensor.name] = numpy_helper.to_array(tensor)
        self.weights = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = [value.name for value in graph.input]
        for i, name in enumerate(self.inputs):
            self.names[name] = f"x{i}"
        for number, node in enumerate(graph.node):
            self.node(number, node)
        self.result = self.names[graph.output[0].name]

    def value(self, name):
        if name not in self.names:
            number = len(self.parameters)
            self.parameters.append((f"w{number}", self.weights[name]))
            self.names[name] = f"self.w{number}"
        return self.names[name]

    def cell(self, number, part, operation, *operands):
        name = f"node{number}{part}"
        self.cells.append((name, operation))
        return f"self.{name}({', '.join(operands)})"

    def node(self, number, node):
        attributes = {a.name: (list(a.ints) if a.type == 7 else a.i if a.type == 2 else a.f)
                      for a in node.attribute}
        values = [name for name in node.input]
        shape = self.shapes[node.output[0]]
        result = f"v{number}"
        apply = getattr(self, "on" + node.op_type)
        expression = apply(number, values, attributes, shape)
        self.lines.append(f"{result} = {expression}")
        self.names[node.output[0]] = result

    def simple(operation):
        def apply(self, number, values, attributes, shape):
            return self.cell(number, "", operation, *map(self.value, values))
        return apply

    onAdd, onSub = simple("ops.Add()"), simple("ops.Sub()")
    onMul, onDiv = simple("ops.Mul()"), simple("ops.Div()")
    onFlatten = simple("ops.Flatten()")
    onRelu, onErf, onTanh = simple("ops.ReLU()"), simple("ops.Erf()"), simple("ops.Tanh()")

    def onIdentity(self, number, values, attributes, shape):
        return self.value(values[0])

    def onMatMul(self, number, values, attributes, shape):
        left, right = (self.shapes[v] for v in values)
        if len(right) > 2:
            return self.cell(number, "", "ops.BatchMatMul()", *map(self.value, values))
        x = self.value(values[0])
        if len(left) > 2:  # nn.Dense does the same
            x = self.cell(number, "before", "ops.Reshape()", x, f"(-1, {left[-1]})")
        x = self.cell(number, "", "ops.MatMul()", x, self.value(values[1]))
        if len(left) > 2:
            x = self.cell(number, "behind", "ops.Reshape()", x, str(tuple(shape)))
        return x

    def onGemm(self, number, values, attributes, shape):
        turned = f"transpose_b={bool(attributes.get('transB', 0))}"
        x = self.cell(number, "", f"ops.MatMul({turned})", *map(self.value, values[:2]))
        return self.cell(number, "bias", "ops.Add()", x, self.value(values[2]))

    def onReshape(self, number, values, attributes, shape):
        return self.cell(number, "", "ops.Reshape()", self.value(values[0]),
                         str(tuple(shape)))

    onUnsqueeze = onReshape

    def onTranspose(self, number, values, attributes, shape):
        return self.cell(number, "", "ops.Transpose()", self.value(values[0]),
                         str(tuple(attributes["perm"])))

    def onSoftmax(self, number, values, attributes, shape):
        return self.cell(number, "", "ops.Softmax(-1)", self.value(values[0]))

    def onLayerNormalization(self, number, values, attributes, shape):
        axis = len(shape) - 1
        return self.cell(number, "", f"ops.LayerNorm({axis}, {axis})",
                         *map(self.value, values)) + "[0]"

    def onCast(self, number, values, attributes, shape):
        return self.cell(number, "", "ops.Cast()", self.value(values[0]), "ms.float32")

    def onGather(self, number, values, attributes, shape):
        axis = attributes.get("axis", 0)
        if axis == 1 and values[1] in self.constants:  # the first of the sequence
            rows = self.shapes[values[0]]
            begin, end = (0, 0, 0), (rows[0], 1, rows[2])
            x = self.cell(number, "", "ops.StridedSlice()", self.value(values[0]),
                          str(begin), str(end), "(1, 1, 1)")
            return self.cell(number, "behind", "ops.Reshape()", x, str(tuple(shape)))
        return self.cell(number, "", "ops.Gather()", *map(self.value, values), str(axis))

    def onConv(self, number, values, attributes, shape):
        weight = self.shapes[values[1]]
        pads = attributes["pads"]
        operation = (f"ops.Conv2D({weight[0]}, {tuple(attributes['kernel_shape'])}, "
                     f"pad_mode='pad', pad={pads[0]}, stride={attributes['strides'][0]})")
        return self.cell(number, "", operation, *map(self.value, values))

    def onBatchNormalization(self, number, values, attributes, shape):
        return self.cell(number, "", "ops.BatchNorm(is_training=False)",
                         *map(self.value, values)) + "[0]"

    def onMaxPool(self, number, values, attributes, shape):
        return self.cell(number, "", "ops.MaxPool(kernel_size=3, strides=2, "
                         "pad_mode='same')", self.value(values[0]))

    def onGlobalAveragePool(self, number, values, attributes, shape):
        return self.cell(number, "", "ops.ReduceMean(keep_dims=True)",
                         self.value(values[0]), "(2, 3)")

    def source(self):
        lines = ["import mindspore as ms", "from mindspore import nn, ops", "",
                 "class Net(nn.Cell):", "    def __init__(self, parameters):",
                 "        super().__init__()"]
        for name, _ in self.parameters:
            lines.append(f"        self.{name} = parameters['{name}']")
        for name, operation in self.cells:
            lines.append(f"        self.{name} = {operation}")
        lines.append(f"    def construct(self, {', '.join(f'x{i}' for i in range(len(self.inputs)))}):")
        lines += [f"        {line}" for line in self.lines]
        lines += [f"        return {self.result}", ""]
        return "\n".join(lines)


def strategies_of(folder, order):
    """The strategy of each ONNX node's main op, from the program behind the search."""
    program = glob.glob(os.path.join(folder, "*pre_auto_parallel*.ir"))
    with open(program[0]) as file:
        found = re.findall(r"\{instance name: node(\d+)\}.*\{in_strategy: (\(.*?\))(?:\}|, out)",
                           file.read())
    lists = str.maketrans("()", "[]")
    return {order[int(number)]: json.loads(strategy.translate(lists))
            for number, strategy in found}


def main():
    model_path, devices = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    dump = "--strategies" in sys.argv
    work = tempfile.mkdtemp()
    log = os.path.join(work, "log")
    os.chdir(work)  # it writes a folder where it runs
    os.environ["GLOG_v"] = "2" if dump else "1"
    # MindSpore logs to standard error, also from C++.
    saved = os.dup(2)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)

    import mindspore as ms
    import numpy
    import onnx
    from mindspore import context
    from mindspore.communication import _comm_helper
    from mindspore.common.api import _cell_graph_executor
    model = onnx.shape_inference.infer_shapes(onnx.load(model_path, load_external_data=False))
    translator = Translator(model.graph)
    source = os.path.join(work, "net.py")
    with open(source, "w") as file:
        file.write(translator.source())
    sys.path.insert(0, work)
    import net
    dtypes = {1: numpy.float32, 7: numpy.int32, 6: numpy.int32, 9: numpy.bool_}
    parameters = {name: ms.Parameter(ms.Tensor(numpy.zeros(list(tensor.dims),
                                                           dtypes[tensor.data_type])),
                                     name=name)
                  for name, tensor in translator.parameters}
    inputs = [ms.Tensor(numpy.zeros(translator.shapes[v.name],
                                    dtypes[v.type.tensor_type.elem_type]))
              for v in model.graph.input]
    context.set_context(mode=context.GRAPH_MODE)
    if dump:
        context.set_context(save_graphs=2, save_graphs_path=work)
    _comm_helper._HCCL_TEST_AVAILABLE = True  # or it wants as many devices as it finds
    pretend_target("Ascend")
    context.set_auto_parallel_context(
        parallel_mode="auto_parallel", search_mode="recursive_programming",
        device_num=devices, global_rank=0, full_batch=True)
    cell = net.Net(parameters)
    cell.set_train(False)
    before = time.time()
    error = ""
    try:
        _cell_graph_executor.compile(cell, *inputs, phase="predict")
    except (RuntimeError, ValueError) as what:
        error = str(what).split("\n")[0]
    after = time.time()
    os.dup2(saved, 2)
    with open(log) as file:
        text = file.read()
    search = re.findall(r"Now leaving step auto parallel, used time: (\d+) us", text)
    parallel = re.findall(r"Now leaving step parallel, used time: (\d+) us", text)
    if not dump and not parallel:
        print(json.dumps({"error": error}), flush=True)
        os._exit(1)
    if dump:
        print(json.dumps(strategies_of(work, translator.order)), flush=True)
        os._exit(0)
    print(json.dumps({"search_ms": max(map(int, search)) / 1e3,
                      "parallel_ms": max(map(int, parallel), default=0) / 1e3,
                      "compile_s": after - before,
                      "process_s": after - started, "ended": error}),
          flush=True)
    os._exit(0)  # its threads outlive the error


if __name__ == "__main__":
    main()
