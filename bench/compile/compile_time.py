#!/usr/bin/env python3
"""How compile time grows: with the number of layers, and with the number of ranks.

usage: compile_time.py PARTITA ZOO

ZOO is made by test/E2E/models/zoo.py (resnet50-random; bert-base when named). The layer
models have the shapes of GPT-2 small; their weights lie in a sparse file of zeros.
"""
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "test", "E2E", "models"))
import sparse_gpt2  # noqa: E402


def compile_once(partita, model, mesh, shapes, work):
    bundle = os.path.join(work, "bundle")
    subprocess.run(["rm", "-rf", bundle], check=True)
    text = subprocess.run([partita, "compile", model, "-o", bundle, *shapes,
                           *(["--mesh", mesh] if mesh else [])],
                          check=True, capture_output=True, text=True).stdout
    stages = dict(re.findall(r"^  (\w+) +([\d.]+) s$", text, re.M))
    total = float(re.search(r"in ([\d.]+) s", text).group(1))
    return total, {name: float(seconds) for name, seconds in stages.items()}


def median(partita, model, mesh, shapes, work, times=5):
    runs = [compile_once(partita, model, mesh, shapes, work) for _ in range(times)]
    code = statistics.median(stages.get("code", 0) for _, stages in runs)
    return statistics.median(total for total, _ in runs), code


def main(partita, zoo):
    with tempfile.TemporaryDirectory() as work:
        rows = []
        for layers in (12, 24, 48, 96):
            folder = os.path.join(work, str(layers))
            os.makedirs(folder)
            model = sparse_gpt2.SparseGpt2(layers=layers).save(folder)
            rows.append((layers, *median(partita, model, "dp=2,tp=4", [], work)))
            print("GPT-2 shapes, %d layers, 8 ranks: whole %.3f s, code %.3f s" % rows[-1],
                  flush=True)
        (few, whole_few, code_few), (many, whole_many, code_many) = rows[0], rows[-1]
        print(f"slope {(whole_many - whole_few) / (many - few) * 1e3:.2f} ms a layer; "
              f"code generation {many} against {few} layers: {code_many / code_few:.2f}×")
        for name in ("resnet50-random", "bert-base"):
            folder = os.path.join(zoo, name)
            if not os.path.exists(folder):
                continue
            with open(os.path.join(folder, "case.json")) as file:
                case = json.load(file)
            words = [word for key, shape in case["shapes"].items()
                     for word in ("--shape", f"{key}=" + ",".join(map(str, shape)))]
            model = os.path.join(folder, "model.onnx")
            small, _ = median(partita, model, "dp=2,tp=4", words, work)
            large, _ = median(partita, model, "dp=64,tp=16", words, work)
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(f"{name}: 8 ranks {small:.2f} s, 1024 ranks {large:.2f} s "
                  f"({large / small:.2f}×), peak of all compiles so far {peak:.0f} MiB",
                  flush=True)
        # The plans above differ by mesh: what 16 ranks cannot share, 4 may. Here every
        # rank has the same program on both meshes.
        seconds = []
        for mesh, ranks in [("dp=2,tp=4", 8), ("dp=64,tp=16", 1024)]:
            folder = os.path.join(work, f"batch-{ranks}")
            os.makedirs(folder)
            model = sparse_gpt2.SparseGpt2(layers=12, batch=ranks).save(folder)
            seconds.append(median(partita, model, mesh, ["--mode", "data-parallel"], work,
                                  times=9)[0])
        print(f"GPT-2 shapes, 12 layers, a sentence per rank: 8 ranks {seconds[0]:.3f} s, "
              f"1024 ranks {seconds[1]:.3f} s ({seconds[1] / seconds[0]:.2f}×)")


if __name__ == "__main__":
    main(*sys.argv[1:])
