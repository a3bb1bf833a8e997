#!/usr/bin/env python3
"""ONNX's own ways to say training: Gradient nodes and training steps of the file
(TrainingInfoProto), on 1 and more ranks against NumPy in double.

usage: run_gradients.py PARTITA
"""
import itertools
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from states import read_states

PARTITA = sys.argv[1]
SIMPLE = pathlib.Path(onnx.__file__).parent / "backend/test/data/simple"
PREVIEW = "ai.onnx.preview.training"
RANDOM = np.random.default_rng(3)
checks = 0


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def gradient(inputs, outputs, name, **ends):
    return node("Gradient", inputs, outputs, domain=PREVIEW, name=name, **ends)


def model(graph):
    made = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid(PREVIEW, 1)])
    return made


def partita(*arguments, fails=False):
    done = subprocess.run([PARTITA, *map(str, arguments)], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, (arguments, done.stderr)
    return done.stderr


def run(bundle, inputs, folder):
    shutil.rmtree(folder / "out", ignore_errors=True)
    for name, value in inputs.items():
        np.save(folder / f"{name}.npy", value)
    partita("run", bundle, *(f"--input={name}={folder}/{name}.npy" for name in inputs),
            "--outputs-dir", folder / "out")
    files = sorted((folder / "out").glob("output_*.pb"),
                   key=lambda f: int(f.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(f.read_bytes()))
            for f in files]


def near(given, wanted, what, bound=1e-5):
    global checks
    checks += 1
    wanted = np.asarray(wanted, np.float64)
    assert given.shape == wanted.shape, (what, given.shape, wanted.shape)
    worst = np.abs(given - wanted).max(initial=0)
    assert worst <= bound * (1 + np.abs(wanted).max(initial=0)), (what, worst)


def of_onnx(folder):
    """The cases that ONNX itself has for Gradient."""
    for name in ("gradient_of_add", "gradient_of_add_and_mul"):
        data = SIMPLE / f"test_{name}"
        read = lambda kind: [numpy_helper.to_array(onnx.TensorProto.FromString(f.read_bytes()))
                             for f in sorted((data / "test_data_set_0").glob(f"{kind}_*.pb"))]
        names = [i.name for i in onnx.load(data / "model.onnx").graph.input]
        partita("compile", data / "model.onnx", "-o", folder / "b", "--force")
        given = run(folder / "b", dict(zip(names, read("input"))), folder)
        for i, (a, b) in enumerate(zip(given, read("output"), strict=True)):
            near(a, b, f"{name} output {i}")


def at_points(folder):
    """First and second derivatives, at the values named and elsewhere, on ranks."""
    nodes = [node("Mul", ["x", "x"], ["xx"]), node("Mul", ["xx", "x"], ["xxx"]),
             node("Mul", ["xxx", "w"], ["y"]),
             node("ReduceSum", ["y"], ["o"], keepdims=0),
             gradient(["x", "w"], ["dx", "dw"], "first", xs=["x", "w"], y="o"),
             gradient(["x2", "w"], ["ddx"], "second", xs=["x", "w"], y="dx"),
             gradient(["x2", "w2"], ["", "dw2"], "there", xs=["x", "w"], y="o"),
             gradient(["x2"], ["dx2"], "with_w", xs=["x"], y="o"),
             gradient(["w"], ["none"], "none", xs=["w"], y="xx"),
             gradient(["w"], ["of_input"], "of_input", xs=["w"], y="x"),
             gradient(["xx2"], ["inner"], "inner", xs=["xx"], y="y"),
             node("Mul", ["x2", "x2"], ["xx2"])]
    outputs = ["o", "dx", "dw", "ddx", "dw2", "dx2", "none", "inner", "of_input"]
    graph = helper.make_graph(nodes, "g", [info(n, [6]) for n in ("x", "w", "x2", "w2")],
                              [info(n, [] if n == "o" else [6]) for n in outputs])
    onnx.save(model(graph), folder / "points.onnx")
    x, w, x2, w2 = values = [real(6) for _ in range(4)]
    wanted = [(x**3 * w).sum(), 3 * x * x * w, x**3, 6 * x2 * w, x2**3, 3 * x2 * x2 * w,
              np.zeros(6), x * w, np.zeros(6)]
    for mesh in ("", "dp=2", "dp=3"):
        partita("compile", folder / "points.onnx", "-o", folder / "b", "--force",
                *(["--mesh", mesh] if mesh else []))
        given = run(folder / "b", dict(zip(("x", "w", "x2", "w2"), values)), folder)
        for name, a, b in zip(outputs, given, wanted, strict=True):
            near(a, b, f"{name} on {mesh or 'one rank'}")


def through_pools(folder):
    """Derivatives of Σ max(x²)² over windows of few taps and of many: 4x³ and 12x² of the
    largest, 0 of all others."""
    for window in (2, 6):
        spatial = dict(kernel_shape=[window, window], strides=[window, window])
        nodes = [node("Mul", ["x", "x"], ["xx"]), node("MaxPool", ["xx"], ["y"], **spatial),
                 node("Mul", ["y", "y"], ["yy"]), node("ReduceSum", ["yy"], ["o"], keepdims=0),
                 gradient(["x"], ["dx"], "first", xs=["x"], y="o"),
                 gradient(["x"], ["ddx"], "second", xs=["x"], y="dx")]
        shape = [2, 3, 12, 12]
        graph = helper.make_graph(nodes, "g", [info("x", shape)],
                                  [info("dx", shape), info("ddx", shape)])
        onnx.save(model(graph), folder / "pools.onnx")
        x = real(*shape)
        windows = (x * x).reshape(2, 3, 12 // window, window, 12 // window, window)
        largest = (windows == windows.max((3, 5), keepdims=True)).reshape(shape)
        for mesh in ("", "dp=2"):
            partita("compile", folder / "pools.onnx", "-o", folder / "b", "--force",
                    *(["--mesh", mesh] if mesh else []))
            dx, ddx = run(folder / "b", {"x": x}, folder)
            what = f"windows of {window} on {mesh or 'one rank'}"
            near(dx, np.where(largest, 4.0 * x**3, 0), f"dx of {what}")
            near(ddx, np.where(largest, 12.0 * x**2, 0), f"ddx of {what}")


def through_control(folder):
    """A program with a loop: y = x after three times x = x * w + x."""
    body = helper.make_graph(
        [node("Mul", ["h", "w"], ["hw"]), node("Add", ["hw", "h"], ["next"]),
         node("Identity", ["go"], ["on"])], "body",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL),
         info("h", [4])], [info("on", [], TensorProto.BOOL), info("next", [4])])
    nodes = [node("Loop", ["trips", "", "x"], ["y"], body=body, name="loop"),
             gradient(["x", "w"], ["dx", "dw"], "first", xs=["x", "w"], y="y")]
    graph = helper.make_graph(
        nodes, "g", [info("x", [4]), info("w", [4])], [info("dx", [4]), info("dw", [4])],
        [numpy_helper.from_array(np.int64(3), "trips")])
    onnx.save(model(graph), folder / "loop.onnx")
    x, w = real(4), real(4)
    partita("compile", folder / "loop.onnx", "-o", folder / "b", "--force", "--mesh", "dp=2")
    dx, dw = run(folder / "b", {"x": x, "w": w}, folder)
    near(dx, (1 + w)**3, "dx through a loop")
    near(dw, 3 * x * (1 + w)**2, "dw through a loop")


def step_of_file(folder):
    """A model with its own training step: a linear layer, mean squared error, momentum,
    weights that the initialization makes."""
    first, zeros = real(3, 2) * np.float32(0.5), np.zeros((3, 2), np.float32)
    model_graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"])], "g", [info("x", [8, 3])], [info("y", [8, 2])],
        [numpy_helper.from_array(zeros, "w")])
    algorithm = helper.make_graph(
        [node("Sub", ["y", "target"], ["d"]), node("Mul", ["d", "d"], ["dd"]),
         node("ReduceMean", ["dd"], ["loss"], keepdims=0),
         gradient(["w", "x", "target"], ["dw"], "gradient", xs=["w"], zs=["x", "target"],
                  y="loss"),
         node("Momentum", ["rate", "t", "w", "dw", "v"], ["w_next", "v_next"],
              domain=PREVIEW, name="momentum", alpha=0.9, beta=1.0, mode="standard",
              norm_coefficient=0.01),
         node("Add", ["t", "one"], ["t_next"])],
        "algorithm", [info("target", [8, 2])],
        [info("loss", []), info("w_next", [3, 2]), info("v_next", [3, 2]),
         info("t_next", [], TensorProto.INT64)],
        [numpy_helper.from_array(np.float32(0.1), "rate"),
         numpy_helper.from_array(np.int64(0), "t"),
         numpy_helper.from_array(np.int64(1), "one"),
         numpy_helper.from_array(zeros, "v")])
    initialization = helper.make_graph(
        [node("Mul", ["half", "seed"], ["w0"])], "initialization", [], [info("w0", [3, 2])],
        [numpy_helper.from_array(np.float32(0.5), "half"),
         numpy_helper.from_array(first * 2, "seed")])
    made = model(model_graph)
    step = made.training_info.add()
    step.algorithm.CopyFrom(algorithm)
    step.initialization.CopyFrom(initialization)
    step.initialization_binding.add(key="w", value="w0")
    for key in ("w", "v", "t"):
        step.update_binding.add(key=key, value=f"{key}_next")
    onnx.save(made, folder / "step.onnx")
    (folder / "spec.json").write_text('{"training_info": 0}')
    batches = [(real(8, 3), real(8, 2)) for _ in range(5)]
    np.savez(folder / "data.npz", x=np.concatenate([x for x, _ in batches]),
             target=np.concatenate([t for _, t in batches]))
    w, v, losses = first.astype(np.float64), np.zeros((3, 2)), []
    for x, target in batches:
        d = x @ w - target
        losses.append((d * d).mean())
        g = 2 / d.size * x.T @ d + 0.01 * w
        v = 0.9 * v + g
        w = w - 0.1 * v
    for mesh, mode in itertools.chain([("", "auto")], itertools.product(
            ("dp=2", "dp=4", "dp=2,tp=2"), ("auto", "data-parallel"))):
        partita("compile", folder / "step.onnx", "-o", folder / "b", "--force", "--train",
                folder / "spec.json", "--mode", mode, *(["--mesh", mesh] if mesh else []))
        given = [float(loss) for loss in losses_of(folder, batches)]
        near(np.array(given), losses, f"losses on {mesh} {mode}")
        state, _ = read_states(folder / "state/state.safetensors")
        near(state["w"], w, f"w on {mesh} {mode}")
        near(state["v"], v, f"v on {mesh} {mode}")
        assert state["t"] == 5, state["t"]
    missing = partita("compile", folder / "step.onnx", "-o", folder / "no", "--train",
                      write(folder / "two.json", '{"training_info": 2}'), fails=True)
    assert "no training step 2 (it has 1; they are numbered from 0)" in missing, missing
    assert not (folder / "no").exists()
    # A beginning of another shape, and one of another type.
    for kind, extents, expected in [
            (np.float32, (2, 3), "is f32 [3, 2], but its initialization makes f32 [2, 3]"),
            (np.float64, (3, 2), "is f32 [3, 2], but its initialization makes f64 [3, 2]")]:
        for i in range(2):
            value = np.full(extents if i else (), 0.5, kind)
            step.initialization.initializer[i].CopyFrom(
                numpy_helper.from_array(value, ("half", "seed")[i]))
        del step.initialization.output[:]
        onnx.save(made, folder / "other.onnx")
        said = partita("compile", folder / "other.onnx", "-o", folder / "no", "--train",
                       folder / "spec.json", fails=True)
        assert f"initializer 'w' {expected}" in said, said
        assert not (folder / "no").exists()


def write(path, text):
    path.write_text(text)
    return path


def losses_of(folder, batches):
    """One request for each batch, over the states that the one before left."""
    state = folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    for x, target in batches:
        np.save(folder / "x.npy", x)
        np.save(folder / "target.npy", target)
        partita("run", folder / "b", f"--input=x={folder}/x.npy",
                f"--input=target={folder}/target.npy", "--outputs-dir", folder / "out",
                "--state-dir", state)
        # Outputs of the model come before those of the step.
        yield numpy_helper.to_array(onnx.TensorProto.FromString(
            (folder / "out/output_1.pb").read_bytes()))


def errors(folder):
    """What a Gradient cannot say is one sentence, and nothing is written."""
    graph = lambda *nodes: helper.make_graph(
        [node("Floor", ["x"], ["f"]), node("Mul", ["f", "w"], ["y"]), *nodes], "g",
        [info("x", [4]), info("w", [4])], [info("g", [4])])
    for what, expected in [
            (gradient(["x"], ["g"], "n", xs=["x", "w"], y="y"),
             "node 'n' (Gradient) has 1 inputs for 2 names in \"xs\" and \"zs\""),
            (gradient(["x"], ["g"], "n", xs=["x"], y="q"),
             "node 'n' (Gradient) differentiates 'q', which is no value of the graph"),
            (gradient(["x"], ["g"], "n", xs=["q"], y="y"),
             "node 'n' (Gradient) names 'q', which is no value of the graph"),
            (gradient(["x", "x"], ["g"], "n", xs=["x"], zs=["x"], y="y"),
             "node 'n' (Gradient) names 'x' twice in \"xs\" and \"zs\""),
            (gradient([""], ["g"], "n", xs=["x"], y="y"),
             "node 'n' (Gradient) has no input for 'x'"),
            (gradient(["x"], ["g"], "n", xs=["x"], y="g"),
             "node 'n' (Gradient) differentiates what depends on itself"),
            (gradient(["x"], ["g", "h"], "n", xs=["x"], y="y"),
             "node 'n' (Gradient) has 2 outputs for 1 names in \"xs\"")]:
        onnx.save(model(graph(what)), folder / "bad.onnx")
        said = partita("compile", folder / "bad.onnx", "-o", folder / "no", fails=True)
        assert expected in said and not (folder / "no").exists(), (expected, said)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        of_onnx(folder)
        at_points(folder)
        through_pools(folder)
        through_control(folder)
        step_of_file(folder)
        errors(folder)
    print(f"{checks} tensors equal")


main()
