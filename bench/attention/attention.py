#!/usr/bin/env python3
"""Time and memory of one attention beside ONNX Runtime, in one process, alternating: as
ONNX's fused operator, as ONNX Runtime's, and as the plain operators that exporters write.

usage: attention.py PARTITA RUNTIME [--tokens 2048] [--heads 12] [--size 64] [--keys T]
                    [--groups N] [--rounds 7] [--threads 1] [--target-cpu NAME] [--full]

RUNTIME is libpartita_runtime.so. Prints for each form the median and minimum of processor
time of both, and their ratios; then each of ours against the fastest of ONNX Runtime's
forms. Memory is what the plan has beside inputs, outputs and the weights of the file.
With --full, nothing is masked.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def model(nodes, shapes, result, initializers=()):
    graph = helper.make_graph(
        nodes, "attention",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)], initializers)
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)])


def forms(a):
    """name: model. The plain form has its mask as a constant, as exporters fold it."""
    s, t, n, g, d = a.tokens, a.keys, a.heads, a.groups, a.size
    apart = {"q": [1, n, s, d], "k": [1, g, t, d], "v": [1, g, t, d]}
    yield "Attention", model([helper.make_node(
        "Attention", ["q", "k", "v"], ["y"], is_causal=int(not a.full))], apart, apart["q"])
    if g == n and s == t:
        rows = {name: [1, s, n * d] for name in "qkv"}
        yield "MultiHeadAttention", model([helper.make_node(
            "MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft",
            num_heads=n, unidirectional=int(not a.full))], rows, rows["q"])
    constants = [numpy_helper.from_array(np.array(d ** -0.5, np.float32), "scale"),
                 numpy_helper.from_array(np.array([1, g, n // g, t, d]), "wide"),
                 numpy_helper.from_array(np.array([1, n, t, d]), "all"),
                 numpy_helper.from_array(np.array([2]), "two")]
    nodes, k, v = [], "k", "v"
    if g != n:
        for x in "kv":
            nodes += [helper.make_node("Unsqueeze", [x, "two"], [x + "1"]),
                      helper.make_node("Expand", [x + "1", "wide"], [x + "2"]),
                      helper.make_node("Reshape", [x + "2", "all"], [x + "3"])]
        k, v = "k3", "v3"
    nodes += [helper.make_node("Transpose", [k], ["across"], perm=[0, 1, 3, 2]),
              helper.make_node("MatMul", ["q", "across"], ["scores"]),
              helper.make_node("Mul", ["scores", "scale"], ["scaled"])]
    if not a.full:
        seen = np.arange(t) <= np.arange(t - s, t)[:, None]
        mask = np.where(seen, 0, np.finfo(np.float32).min).astype(np.float32)
        constants.append(numpy_helper.from_array(mask[None, None], "mask"))
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["masked"]))
    nodes += [helper.make_node("Softmax", [nodes[-1].output[0]], ["weights"], axis=-1),
              helper.make_node("MatMul", ["weights", v], ["y"])]
    yield "plain operators", model(nodes, apart, apart["q"], constants)


def load(a, work, proto, number):
    """The two sessions as functions without arguments, and the bytes of the plan."""
    path = work / f"{number}.onnx"
    onnx.save(proto, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = a.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feeds = {i.name: random.standard_normal(i.shape, dtype=np.float32)
             for i in theirs.get_inputs()}
    bundle = work / f"bundle{number}"
    target = ["--target-cpu", a.target_cpu] if a.target_cpu else []
    done = subprocess.run([a.partita, "compile", path, "-o", bundle, "--threads",
                           str(a.threads), *target], check=True, capture_output=True,
                          text=True)
    arena = int(re.search(r"(\d+) B of arena", done.stdout + done.stderr)[1])
    shapes = [i.shape for i in theirs.get_inputs()] + [theirs.get_outputs()[0].shape]
    extra = arena - sum(4 * int(np.prod(s)) for s in shapes)
    ours = partita.Session(str(bundle))
    difference = np.abs(ours.run(feeds)["y"] - theirs.run(None, feeds)[0]).max()
    if not difference < 1e-4:
        sys.exit(f"results differ by {difference}")
    return (lambda: ours.run(feeds)), (lambda: theirs.run(None, feeds)), extra


def timed(call):
    begin = time.process_time()
    call()
    return 1e3 * (time.process_time() - begin)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("runtime")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--keys", type=int)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--groups", type=int)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target-cpu")
    parser.add_argument("--full", action="store_true")
    a = parser.parse_args()
    a.keys, a.groups = a.keys or a.tokens, a.groups or a.heads
    os.environ["PARTITA_RUNTIME"] = a.runtime
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
    global partita
    import partita
    with tempfile.TemporaryDirectory(prefix="bench-attention-") as work:
        made = [(name, *load(a, pathlib.Path(work), proto, i))
                for i, (name, proto) in enumerate(forms(a))]
        times = {name: ([], []) for name, *_ in made}
        for _ in range(a.rounds + 2):  # the first two touch memory
            for name, ours, theirs, _ in made:
                times[name][0].append(timed(ours))
                times[name][1].append(timed(theirs))
    best = min(statistics.median(theirs[2:]) for _, theirs in times.values())
    for name, _, _, extra in made:
        ours, theirs = (x[2:] for x in times[name])
        middle = statistics.median(ours), statistics.median(theirs)
        print(f"{name}: partita {middle[0]:.1f} ms (least {min(ours):.1f}), ONNX Runtime "
              f"{middle[1]:.1f} ms (least {min(theirs):.1f}), ratio "
              f"{middle[0] / middle[1]:.2f}, to its fastest form {middle[0] / best:.2f}; "
              f"{extra / 1024:.0f} KiB beside inputs and output", flush=True)


if __name__ == "__main__":
    main()
