"""partita.shard: strategies by node or module, of an ONNX file and of a model in memory
(test_shard_torch.py has modules of torch).

usage: test_shard.py (with PARTITA_RUNTIME and PARTITA_COMPILER set)
"""
import pathlib
import sys
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import partita  # noqa: E402
from expecting import expect_error  # noqa: E402

BATCH, WIDTH = 8, 16


def network():
    """y, z = relu(x·w1)·w2, the sum of its rows."""
    random = numpy.random.default_rng(3)
    weights = [random.standard_normal((WIDTH, WIDTH)).astype(numpy.float32) / 4
               for _ in range(2)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"], name="up"),
             helper.make_node("Relu", ["h"], ["a"], name="act"),
             helper.make_node("MatMul", ["a", "w1"], ["y"], name="down"),
             helper.make_node("ReduceSum", ["y", "axes"], ["z"], name="sum", keepdims=0)]
    tensors = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    tensors.append(numpy_helper.from_array(numpy.array([1]), "axes"))
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "network", [value("x", [BATCH, WIDTH])],
                              [value("y", [BATCH, WIDTH]), value("z", [BATCH])], tensors)
    model = helper.make_model(graph, ir_version=10,
                              opset_imports=[helper.make_opsetid("", 20)])
    x = random.standard_normal((BATCH, WIDTH)).astype(numpy.float32)
    y = numpy.maximum(x @ weights[0], 0) @ weights[1]
    return model, x, y


def collectives(sharded):
    return sorted((call["op"], call["axes"]) for stage in sharded.report()["stages"]
                  for call in stage["collectives"])


def check_result(sharded, x, y):
    for results in (sharded(x), sharded(x=x)):
        assert isinstance(results, tuple) and len(results) == 2, results
        numpy.testing.assert_allclose(results[0], y, rtol=1e-4, atol=1e-5)
        numpy.testing.assert_allclose(results[1], y.sum(1), rtol=1e-4, atol=1e-5)


def check_strategies(folder):
    model, x, y = network()
    path = folder / "network.onnx"
    onnx.save(model, path)
    megatron = {"up": [["dp", None], [None, "tp"]], "down": [["dp", "tp"], ["tp", None]]}
    with partita.shard(path, megatron, mesh="dp=2,tp=2", mode="semi-auto") as sharded:
        check_result(sharded, x, y)
        assert ("all_reduce", "tp") in collectives(sharded), collectives(sharded)
        place = pathlib.Path(sharded.bundle)
        assert place.exists()
    assert not place.exists(), "the bundle of a result that is closed is left"
    # The same asked for by the weights, in numbers of ways.
    kept = folder / "kept"
    with partita.shard(model, mesh="tp=2", mode="semi-auto", bundle=kept,
                       parameter_plan={"w0": (1, 2), "w1": (2, 1)}) as sharded:
        check_result(sharded, x, y)
        assert collectives(sharded) == [("all_reduce", "tp")], collectives(sharded)
    assert kept.exists(), "a bundle with a place of its own went"
    assert partita.verify(kept)["verdict"] == "checked: equal", "a kept bundle has no model"
    # The batch by the ends alone.
    with partita.shard(model, mesh="dp=2", mode="semi-auto", in_strategy=[("dp", None)],
                       out_strategy=[None, ("dp",)]) as sharded:
        check_result(sharded, x, y)
        assert collectives(sharded) == [], collectives(sharded)


def check_errors(folder):
    model, x, y = network()
    shard = lambda *given, **named: partita.shard(*given, **{"mesh": "tp=2", **named})
    expect_error("has an entry per dim", lambda: shard(model, {"up": [None, "tp"]}))
    expect_error("expected a list with an entry per input", lambda: shard(model, {"up": "tp"}))
    expect_error("nothing", lambda: shard(model, {"nothing": [[1, 2]]}))
    expect_error("in_strategy has 2 entries", lambda: shard(model, in_strategy=[None, None]))
    expect_error("the entry of 'x' in in_strategy is a str; expected a list",
                 lambda: shard(model, in_strategy=["tp"]))
    expect_error("'w0' in parameter_plan is a str", lambda: shard(model,
                                                                  parameter_plan={"w0": "tp"}))
    expect_error("strategies is a list; expected a dict by name", lambda: shard(model, [1]))
    expect_error("give either them or hints",
                 lambda: shard(model, {"up": [[1, 2]]}, hints={"nodes": {}}))
    expect_error("expected the path of an ONNX file", lambda: shard(3))
    expect_error("nowhere.onnx", lambda: shard(folder / "nowhere.onnx"))
    with shard(model, mesh="tp=1") as sharded:
        expect_error("got 2 inputs", lambda: sharded(x, x))
        expect_error("given twice", lambda: sharded(x, x=x))
        expect_error("is missing", sharded)
    expect_error("closed", lambda: sharded(x))


def main():
    with tempfile.TemporaryDirectory(prefix="partita-shard-test-") as name:
        folder = pathlib.Path(name)
        check_strategies(folder)
        check_errors(folder)
    print("ok")


main()
