#!/usr/bin/env python3
"""The published models of bench/models.

usage: run_bench_models.py PARTITA count           parameters against the published counts
       run_bench_models.py PARTITA full [NAME…]    full size to L3, weights absent
       run_bench_models.py PARTITA tiny [NAME…]    tiny ones on ranks, against ONNX Runtime
"""
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper
import onnxruntime

import equality

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench", "models"))
import generate  # noqa: E402
import specs  # noqa: E402

# Ranks that divide the batches of all models, groups of tokens of the experts included.
FULL_MESH, TINY_MESH = "dp=8", "dp=2"
UNITS = {"M": 1e6, "B": 1e9}
#: One of each structure; the others differ in sizes only.
TINY = ["gpt3-350m", "llama3-8b", "bert-large", "resnet18", "resnet50", "wide-resnet-250m",
        "t5-large", "moe-380m", "dlrm", "wide-deep"]


class Failure(Exception):
    pass


def call(arguments, timeout=600):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise Failure(f"{' '.join(arguments)}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


#: Counts that are published to the last digit.
EXACT = {"bert-large": 335141888, "resnet18": 11689512, "resnet50": 25557032,
         "t5-large": 737668096, "t5-3b": 2851598336, "t5-11b": 11307321344,
         "llama3-8b": 8030261248, "llama3-70b": 70553706496, "llama3-405b": 405853388800}


def megatron_count(hidden, heads, layers, vocabulary=50257, length=2048):
    """Narayanan et al. 2021, equation 2, which leaves out the last norm's 2 · hidden."""
    return (12 * layers * hidden**2 + 13 * layers * hidden +
            (vocabulary + length) * hidden + 2 * hidden)


def alpa_moe_count(hidden, heads, layers, experts, vocabulary=32000):
    """What Alpa's benchmark counts for its MoE models, with layers 8 times as wide inside;
    it leaves out the router and the positions."""
    attention, inner = 4 * hidden**2 + 2 * hidden, 16 * hidden**2 + 9 * hidden
    return (layers // 2 * (2 * (attention + 4 * hidden) + (1 + experts) * inner) +
            vocabulary * (hidden + 1))


def count(_, name):
    """Equal to the exact count or to the formula of the source. The figure by which the
    model is known is rounded (350M has 356 million): within 5% of that."""
    spec = specs.MODELS[name]
    have = generate.count_parameters(generate.network(name).build())
    with open(os.path.join(HERE, "..", "..", "bench", "models", "README.md")) as file:
        if f"| {name} | {have:,} | {spec.published} |" not in file.read():
            raise Failure(f"its row in bench/models/README.md is not '{name} | {have:,}'")
    want, within = EXACT.get(name), 0
    if spec.kind is specs.Gpt3:
        want = megatron_count(**spec.sizes)
    if spec.kind is specs.Moe:
        want, within = alpa_moe_count(**spec.sizes), 0.005
    if want is not None and abs(have - want) > within * want:
        raise Failure(f"{have:,} parameters, the source counts {want:,}")
    if spec.published[-1] not in UNITS:
        return f"{have:,} parameters, no count is published"
    said = float(spec.published[:-1]) * UNITS[spec.published[-1]]
    if abs(have - said) > 0.05 * said:
        raise Failure(f"{have:,} parameters, published {spec.published}")
    exact = "" if want is None else f", exactly {want:,}" if have == want else \
        f", by its formula {want:,}"
    return f"{have:,} parameters, published {spec.published}{exact}"


def full(partita, name):
    """Data-parallel to L3: no file of weights is there, and none is looked for."""
    with tempfile.TemporaryDirectory(prefix="partita-full-") as work:
        path = os.path.join(work, "model.onnx")
        onnx.save(generate.network(name).build(), path)
        text = call([partita, "compile", path, "--to", "L3", "--mesh", FULL_MESH, "--mode",
                     "data-parallel", "--dump-dir", os.path.join(work, "ir")])
        with open(os.path.join(work, "ir", "03-partitioned.mlir")) as file:
            arguments = re.search(r"func\.func @main\((.*?)\) ->", file.read(), re.S)[1]
        whole = [part for part in arguments.split("%")[1:] if "dp" not in part]
        if whole:
            raise Failure(f"inputs that are not split by dp: {' '.join(whole)[:300]}")
    return re.search(r"compiled .*", text)[0]


def tiny(partita, name):
    with tempfile.TemporaryDirectory(prefix="partita-tiny-") as work:
        path, bundle = os.path.join(work, "model.onnx"), os.path.join(work, "bundle")
        network = generate.network(name, "tiny")
        onnx.save(network.build(), path)
        feeds = network.sample_inputs()
        inputs, out = os.path.join(work, "inputs"), os.path.join(work, "out")
        os.makedirs(inputs)
        for k, (key, values) in enumerate(feeds.items()):
            with open(os.path.join(inputs, f"input_{k}.pb"), "wb") as file:
                file.write(numpy_helper.from_array(values, key).SerializeToString())
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        expected = session.run(None, feeds)
        call([partita, "compile", path, "-o", bundle, "--mesh", TINY_MESH, "--mode",
              "data-parallel"])
        call([partita, "run", bundle, "--inputs-dir", inputs, "--outputs-dir", out])
        wide = equality.WideResults(partita, [bundle], inputs)
        figures = []
        for k, want in enumerate(expected):
            if np.ptp(want) < 1e-3:
                raise Failure(f"output {k} is nearly constant, nothing would show")
            figures.append(f"output {k} " + equality.check(
                equality.load(os.path.join(out, f"output_{k}.pb")), want, wide, k,
                f"output {k}"))
    return "; ".join(figures)


def main(partita, what, *names):
    task = {"count": count, "full": full, "tiny": tiny}[what]
    failed = 0
    for name in names or (TINY if what == "tiny" else specs.MODELS):
        try:
            print(f"ok      {name}: {task(partita, name)}", flush=True)
        except (Failure, equality.Unequal, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED  {name}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
