#!/usr/bin/env python3
"""Time of a request on one rank, or on ranks of one thread, against ONNX Runtime with as
many threads, in the same run, alternating.

usage: compare.py PARTITA ZOO MODEL... [--threads T] [--rounds N] [--avx2]
                  [--before PARTITA] [--processor] [--ranks R] [--split WAY...]

Prints the median and the fastest of each, and the ratio of ours to ONNX Runtime's. ZOO is made by
models.py here, or by test/E2E/models/zoo.py (bert-base and gpt2-small when named).
--avx2 compiles and runs both as on a CPU without 512-bit vectors (limited.py). --exact: products of
bytes by ONNX Runtime do not saturate. --before adds another build of Partita. --ranks R: ours on R ranks with T
threads each, ONNX Runtime with R x T threads. --split: how ours is split, all ways in one
run: auto, a ready rule (megatron), or a dim of the first input that is split (1). --processor: seconds of the processor
instead of the clock's, for one thread on a machine that others use; of ours, the
difference between a run of many requests and one of a single request.
"""
import argparse
import json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import onnx
from onnx import numpy_helper

import limited


class OnnxRuntime:
    name = "ONNX Runtime"

    def __init__(self, onnxruntime, folder, case, threads, processor, exact):
        self.clock = time.thread_time if processor else time.perf_counter
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if exact:
            options.add_session_config_entry("session.x64quantprecision", "1")
        self.feeds = {name: numpy_helper.to_array(onnx.load_tensor(
                          os.path.join(folder, "inputs", f"input_{k}.pb")))
                      for k, name in enumerate(case["inputs"])}
        self.session = onnxruntime.InferenceSession(
            os.path.join(folder, "model.onnx"), options, ["CPUExecutionProvider"])
        self.session.run(None, self.feeds)
        self.times = []

    def round(self, requests):
        for _ in range(requests):
            begin = self.clock()
            self.session.run(None, self.feeds)
            self.times.append(self.clock() - begin)


def split_options(way, ranks, folder, case):
    """Of `partita compile`."""
    options = ["--mesh", f"x={ranks}"] if ranks > 1 else []
    if way.isdigit():
        first = onnx.load_tensor(os.path.join(folder, "inputs", "input_0.pb"))
        name, dims = case["inputs"][0], [None] * len(first.dims)
        if int(way) >= len(dims):
            raise RuntimeError(f"'{name}' has no dim {way}")
        dims[int(way)] = "x"
        hints = json.dumps({"tensors": {name: dims}})
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            file.write(hints)
        return options + ["--hints", file.name]
    return options + ([] if way == "auto" else ["--hints", way])


class Partita:
    def __init__(self, name, partita, folder, case, arguments, bundle, way):
        self.name, self.times, self.processor = name, [], arguments.processor
        self.command = [partita, "run", bundle, "--inputs-dir",
                        os.path.join(folder, "inputs")]
        self.environment = dict(os.environ)
        options = ["--threads", str(arguments.threads),
                   *split_options(way, arguments.ranks, folder, case)]
        for key, shape in case["shapes"].items():
            options += ["--shape", f"{key}=" + ",".join(map(str, shape))]
        if arguments.avx2:
            self.environment["ONEDNN_MAX_CPU_ISA"] = "AVX2"
            options += ["--target-cpu", "x86-64-v3"]
        self.run([partita, "compile", os.path.join(folder, "model.onnx"), "-o", bundle,
                  *options])

    def run(self, command):
        done = subprocess.run(command, capture_output=True, text=True,
                              env=self.environment)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {done.stderr.strip()}")
        return done.stdout

    def processor_seconds(self, requests):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.run([*self.command, "--repeat", str(requests)])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def round(self, requests):
        if self.processor:
            once = self.processor_seconds(1)
            self.times.append((self.processor_seconds(requests + 1) - once) / requests)
            return
        text = self.run([*self.command, "--repeat", str(requests + 1)])
        times = [float(t) for t in re.findall(r"request \d+: ([\d.]+) s", text)]
        self.times += times[1:]  # the first touches all memory


def measure(arguments, folder, onnxruntime):
    """The sides, ours first, with their times."""
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    with tempfile.TemporaryDirectory() as work:
        def partita(name, program, way):
            return Partita(name, program, folder, case, arguments,
                           os.path.join(work, name), way)
        sides = []
        for way in arguments.split:
            try:
                name = "partita" + ("" if arguments.split == ["auto"] else " " + way)
                sides.append(partita(name, arguments.partita, way))
            except RuntimeError as error:
                print(f"{os.path.basename(folder)}, {way}: {error}", file=sys.stderr)
        if not sides:
            raise RuntimeError("no way to split it")
        if arguments.before:
            sides.append(partita("before", arguments.before, arguments.split[0]))
        sides.append(OnnxRuntime(onnxruntime, folder, case,
                                 arguments.threads * arguments.ranks, arguments.processor,
                                 arguments.exact))
        for side in sides:
            side.round(1)
        # A request of ours is the difference of two processes, and may be anything.
        seconds = sum(max(side.times[0], sides[-1].times[0]) for side in sides)
        # The start of a process varies by as much as 20 short requests take.
        within, most = (5, 10000) if arguments.processor else (1, 20)
        requests = max(4, min(most, int(within / seconds)))
        for side in sides:
            side.times.clear()
        for _ in range(arguments.rounds):
            for side in sides:
                side.round(requests)
    return sides


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--before", metavar="PARTITA")
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--split", nargs="+", metavar="WAY", default=["auto"])
    arguments = parser.parse_args()
    if arguments.processor and arguments.threads * arguments.ranks != 1:
        parser.error("--processor is for one thread")
    with tempfile.TemporaryDirectory() as copy:
        if arguments.avx2:
            onnxruntime = limited.import_limited(copy)
        else:
            import onnxruntime
        return compare(arguments, onnxruntime)


def compare(arguments, onnxruntime):
    ratios, failed = {}, False
    for model in arguments.models:
        try:
            *sides, reference = measure(arguments, os.path.join(arguments.zoo, model),
                                        onnxruntime)
        except (OSError, RuntimeError) as error:
            print(f"{model}: {error}", file=sys.stderr)
            failed = True
            continue
        median = statistics.median(reference.times)
        print(f"{model}, {arguments.ranks} ranks of {arguments.threads} threads: "
              f"{reference.name} {median * 1e3:.2f} ms ({min(reference.times) * 1e3:.2f})")
        for side in sides:
            mine = statistics.median(side.times)
            ratio = mine / median
            ratios.setdefault(side.name, []).append(ratio)
            print(f"  {side.name} {mine * 1e3:.2f} ms ({min(side.times) * 1e3:.2f}), "
                  f"ratio {ratio:.2f} ({min(side.times) / min(reference.times):.2f})",
                  flush=True)
    for name, list_of in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, list_of)))
        print(f"geometric mean of the ratios of {name}: {mean:.2f}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
