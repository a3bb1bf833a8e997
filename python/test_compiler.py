"""The compiler in this process (partita.compile, plan, report, inspect, verify).

    python3 python/test_compiler.py
"""

import json
import os
import pathlib
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import partita  # noqa: E402
from expecting import expect_error  # noqa: E402


def layers(path, count, width=16, batch="batch"):
    """`count` layers of x·w and relu, whose batch is symbolic; all but the last are alike."""
    random = numpy.random.default_rng(1)
    nodes, weights, value = [], [], "x"
    for i in range(count):
        weights.append(numpy_helper.from_array(
            (random.standard_normal((width, width)) / 4).astype(numpy.float32), f"w{i}"))
        nodes += [helper.make_node("MatMul", [value, f"w{i}"], [f"h{i}"], name=f"fc{i}"),
                  helper.make_node("Relu", [f"h{i}"], [f"a{i}"], name=f"act{i}")]
        value = f"a{i}"
    tensor = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, width])
    graph = helper.make_graph(nodes, "layers", [tensor("x")], [tensor(value)], weights)
    onnx.save(helper.make_model(graph, ir_version=8,
                                opset_imports=[helper.make_opsetid("", 17)]), path)
    return [numpy_helper.to_array(weight) for weight in weights]


def check_commands(folder, model, weights):
    assert partita.__version__ == partita.version()
    listed = partita.inspect(model, nodes="fc*", shapes={"batch": 4})
    assert listed["supported"] and len(listed["nodes"]) == 2, listed
    bundle = folder / "bundle"
    made = partita.compile(model, bundle, mesh="dp=2,tp=2", shapes={"x": (4, 16)},
                           hints={"nodes": {"fc0": {"out": [[["dp"], ["tp"]]]}}})
    assert made["bundle"] == str(bundle) and made["received_bytes"] > 0, made
    assert partita.verify(bundle)["verdict"] == "checked: equal"
    assert partita.verify(model=model, mesh="tp=2", shapes={"batch": 2})["outputs"] == 1
    assert partita.report(bundle)["stages"][0]["mesh"] == "dp=2,tp=2"
    planned = partita.plan(model, mesh="tp=2", shapes={"batch": 64}, work=10_000)
    assert planned["plan"]["entries"][0]["certificate"]["step_seconds"] > 0
    worlds = partita.compile(model, folder / "worlds", mesh=["tp=2", "tp=4"],
                             shapes={"x": (4, 16)})
    assert [world["ranks"] for world in worlds["worlds"]] == [4], worlds
    assert partita.verify(folder / "worlds/worlds/4")["verdict"] == "checked: equal"
    for mesh, words in ((["tp=2", ""], "a mesh is empty"), ([2], "mesh"),
                        (["tp=2", "dp=2"], "both have 2 ranks")):
        expect_error(words, lambda mesh=mesh: partita.compile(
            model, folder / "no", mesh=mesh, shapes={"x": (4, 16)}))
    again = partita.compile(model, folder / "planned", mesh="tp=2", shapes={"batch": 64},
                            plan=planned["plan"])
    assert again["bundle"].endswith("planned")
    x = numpy.ones((4, 16), numpy.float32)
    expected = x
    for weight in weights:
        expected = numpy.maximum(expected @ weight, 0)
    with partita.Session(bundle) as session:
        (y,) = session.run({"x": x}).values()
    numpy.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def check_errors(folder, model):
    error = expect_error("fc7", lambda: partita.compile(
        model, folder / "no", mesh="tp=2", shapes={"batch": 4},
        hints={"nodes": {"fc7": {"out": [[1, 2]]}}}))
    assert error.hint and "fc7" in error.hint, vars(error)
    bad = folder / "bad.onnx"
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"], name="first"),
         helper.make_node("Nonsense", ["r"], ["y"], name="culprit")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    onnx.save(helper.make_model(graph, ir_version=8,
                                opset_imports=[helper.make_opsetid("", 17)]), bad)
    error = expect_error("culprit", lambda: partita.compile(bad, folder / "no"))
    assert error.node == "culprit", vars(error)
    expect_error("no such option", lambda: partita.compile(model, folder / "no", mash="tp=2"))
    expect_error("expected an integer", lambda: partita.compile(
        model, folder / "no", stages="two", shapes={"batch": 4}))
    expect_error("is not there", lambda: partita.verify(folder / "bundle", model="a" * 5000))
    expect_error("nowhere.onnx", lambda: partita.compile(folder / "nowhere.onnx", "no"))
    try:
        partita.compile(model, folder / "no", threads=numpy.int64(2))
    except TypeError:
        pass
    else:
        raise AssertionError("JSON has no NumPy numbers")
    assert not (folder / "no").exists()


def check_threads(folder, model):
    """Requests of many threads give what each gives alone, their errors are their own."""
    results = {}

    def work(number):
        mesh = f"tp={1 + number % 4}"
        if number % 5 == 4:
            results[number] = expect_error("mash", lambda: partita.compile(
                model, folder / f"t{number}", mesh="mash", shapes={"batch": 4})).args
            return
        partita.compile(model, folder / f"t{number}", mesh=mesh, shapes={"batch": 4})
        results[number] = partita.report(folder / f"t{number}")["stages"][0]["mesh"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 10, f"{10 - len(results)} requests were lost"
    for number, result in results.items():
        assert number % 5 == 4 or result == f"tp={1 + number % 4}", (number, result)


def check_cancel(folder):
    """A search of minutes ends soon after it is cancelled, and leaves nothing."""
    model = folder / "deep.onnx"
    layers(model, 60, width=96, batch=96)
    cluster = {"device": {"preset": "A100-80GB"}, "levels": [
        {"name": "nvlink", "size": 8, "bandwidth": 300e9, "latency": 3e-6},
        {"name": "rack", "size": 16, "bandwidth": 25e9, "latency": 10e-6}]}
    cancel, begun = partita.Cancel(), time.monotonic()
    timer = threading.Timer(2, cancel.cancel)
    timer.start()
    expect_error("cancelled", lambda: partita.plan(
        model, cluster=cluster, axes=4, time_limit=600.0, output=folder / "plan.json",
        cancel=cancel))
    took = time.monotonic() - begun
    assert 2 <= took < 30, f"it ended after {took:.1f} s"
    assert not (folder / "plan.json").exists()
    cancel = partita.Cancel()
    cancel.cancel()
    expect_error("cancelled", lambda: partita.compile(model, folder / "no", cancel=cancel))
    assert not [path for path in folder.iterdir() if path.name.startswith("no")]


def check_specification(folder):
    """A specification that is a dict is part of the bundle, wherever that goes."""
    layers(folder / "step.onnx", 2, batch=4)
    bundle, moved = folder / "step", folder / "moved"
    partita.compile(folder / "step.onnx", bundle, mesh="dp=2", mode="data-parallel",
                    train={"loss": {"kind": "mse", "of": "a1", "labels": "t"},
                           "optimizer": {"kind": "adam"}})
    bundle.rename(moved)
    assert partita.verify(moved)["verdict"] == "checked: equal"


def check_verify(folder, model):
    """`verify` has the options of the command, and ends while it evaluates."""
    bundle, data, other = folder / "verified", folder / "data", folder / "other"
    layers(folder / "big.onnx", 2, batch=4)
    far = onnx.load(folder / "big.onnx")
    data.mkdir()
    onnx.save(far, data / "far.onnx", save_as_external_data=True, location="far.data",
              size_threshold=0)
    partita.compile(data / "far.onnx", bundle, mesh="tp=2")
    other.mkdir()
    (data / "far.onnx").rename(folder / "far.onnx")
    (data / "far.data").rename(other / "far.data")
    moved = {"model": folder / "far.onnx", "weights_dir": other}
    expect_error("far.data", lambda: partita.verify(bundle, model=folder / "far.onnx"))
    assert partita.verify(bundle, strict=True, **moved)["verdict"] == "checked: equal"
    assert partita.verify(model=folder / "far.onnx", mesh="tp=2",
                          weights_dir=other)["verdict"] == "checked: equal"
    expect_error("'nowhere' is not a folder", lambda: partita.verify(
        bundle, model=folder / "far.onnx", weights_dir="nowhere"))
    expect_error("needs \"inputs_dir\"", lambda: partita.verify(bundle, expect_dir=folder))
    expect_error("no such option", lambda: partita.verify(model=model, no_check=True))
    # The lowest bit of an element, which no comparison sees.
    with open(other / "far.data", "r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))
    expect_error("has other bytes", lambda: partita.verify(bundle, **moved))
    assert partita.verify(bundle, no_check=True, **moved)["verdict"] == "checked: equal"
    empty = folder / "empty.onnx"
    onnx.save(helper.make_model(helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])], "empty",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, "n"])]),
        ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), empty)
    zeros = folder / "zeros"
    zeros.mkdir()
    (zeros / "input_0.pb").write_bytes(numpy_helper.from_array(
        numpy.zeros(4, numpy.float32), "x").SerializeToString())
    assert partita.verify(model=empty, inputs_dir=zeros)["unchecked"] == [0]
    expect_error("not checked", lambda: partita.verify(
        model=empty, inputs_dir=zeros, strict=True))
    # Long on the reference evaluator, which is not fast.
    layers(folder / "long.onnx", 40, width=1024, batch=1024)
    cancel, begun = partita.Cancel(), time.monotonic()
    threading.Timer(3, cancel.cancel).start()
    expect_error("cancelled", lambda: partita.verify(
        model=folder / "long.onnx", mesh="tp=2", cancel=cancel))
    took = time.monotonic() - begun
    assert 3 <= took < 60, f"it ended after {took:.1f} s"


def check_compute(folder, model):
    bundle = folder / "narrow"
    partita.compile(model, bundle, compute="bf16", keep_f32=["*1"],
                    shapes={"batch": 64})
    report = partita.report(bundle)
    assert report["compute"] == "bf16", report
    lines = partita.verify(bundle)["lines"]
    assert any("of roundings alone" in line for line in lines), lines
    expect_error("is a plan for --compute bf16", lambda: partita.compile(
        model, folder / "wide", shapes={"batch": 64},
        plan=json.loads((bundle / "plan.json").read_text())))
    expect_error("tf32 is a type of GPUs", lambda: partita.compile(
        model, folder / "wide", compute="tf32", shapes={"batch": 64}))
    plan = partita.plan(model, mesh="tp=2", compute="f16", shapes={"batch": 64})["plan"]
    assert plan["entries"][0]["compute"] == "f16", plan


def check_ranks(folder):
    """A list of files is a program per rank: each has a scale of its own."""
    files = []
    for rank in range(2):
        nodes = [helper.make_node("Mul", ["x", "scale"], ["h"], name="times"),
                 helper.make_node("AllReduce", ["h"], ["y"], name="sum", domain="partita")]
        graph = helper.make_graph(
            nodes, "rank", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
            [numpy_helper.from_array(numpy.float32([rank + 1]), "scale")])
        files.append(folder / f"rank-{rank}.onnx")
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 20), helper.make_opsetid("partita", 1)]), files[-1])
    bundle = folder / "ranks"
    partita.compile(files, bundle, mesh="tp=2", mode="manual")
    x = numpy.arange(3, dtype=numpy.float32)
    with partita.Session(bundle) as session:
        numpy.testing.assert_array_equal(session.run({"x": x})["y"], 3 * x)
    assert partita.verify(bundle)["verdict"] == "checked: equal"
    expect_error("2 ranks for a mesh", lambda: partita.compile(
        files, folder / "no", mesh="tp=3", mode="manual"))


def main():
    with tempfile.TemporaryDirectory(prefix="partita-compiler-") as name:
        folder = pathlib.Path(name)
        weights = layers(folder / "model.onnx", 2)
        check_commands(folder, folder / "model.onnx", weights)
        check_errors(folder, folder / "model.onnx")
        check_threads(folder, folder / "model.onnx")
        check_cancel(folder)
        check_specification(folder)
        check_verify(folder, folder / "model.onnx")
        check_compute(folder, folder / "model.onnx")
        check_ranks(folder)
    print("ok")


main()
