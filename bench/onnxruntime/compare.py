#!/usr/bin/env python3
"""Time of a request on one rank against ONNX Runtime with as many threads, in the same
run, alternating.

usage: compare.py PARTITA ZOO MODEL... [--threads T] [--rounds N] [--avx2]
                  [--before PARTITA] [--processor]

Prints the median and the fastest of each, and the ratio of the medians. ZOO is made by
models.py here, or by test/E2E/models/zoo.py (bert-base and gpt2-small when named).
--avx2 compiles and runs ours as on a CPU without 512-bit vectors; ONNX Runtime cannot be
limited so. --before adds another build of Partita. --processor: seconds of the processor
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
import onnxruntime
from onnx import numpy_helper


class OnnxRuntime:
    name = "ONNX Runtime"

    def __init__(self, folder, case, threads, processor):
        self.clock = time.thread_time if processor else time.perf_counter
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
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


class Partita:
    def __init__(self, name, partita, folder, case, threads, bundle, avx2, processor):
        self.name, self.times, self.processor = name, [], processor
        self.command = [partita, "run", bundle, "--inputs-dir",
                        os.path.join(folder, "inputs")]
        self.environment = dict(os.environ)
        options = ["--threads", str(threads)]
        for key, shape in case["shapes"].items():
            options += ["--shape", f"{key}=" + ",".join(map(str, shape))]
        if avx2:
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


def measure(arguments, folder):
    """The sides, ours first, with their times."""
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    with tempfile.TemporaryDirectory() as work:
        def partita(name, program):
            return Partita(name, program, folder, case, arguments.threads,
                           os.path.join(work, name), arguments.avx2,
                           arguments.processor)
        sides = [partita("partita", arguments.partita)]
        if arguments.before:
            sides.append(partita("before", arguments.before))
        sides.append(OnnxRuntime(folder, case, arguments.threads, arguments.processor))
        for side in sides:
            side.round(1)
        seconds = sum(side.times[0] for side in sides)
        requests = max(4, min(20, int(1 / seconds)))
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
    parser.add_argument("--before", metavar="PARTITA")
    parser.add_argument("--processor", action="store_true")
    arguments = parser.parse_args()
    if arguments.processor and arguments.threads != 1:
        parser.error("--processor is for one thread")
    ratios, failed = {}, False
    for model in arguments.models:
        try:
            ours, *others = measure(arguments, os.path.join(arguments.zoo, model))
        except (OSError, RuntimeError) as error:
            print(f"{model}: {error}", file=sys.stderr)
            failed = True
            continue
        mine = statistics.median(ours.times)
        words = [f"partita {mine * 1e3:.2f} ms ({min(ours.times) * 1e3:.2f})"]
        for other in others:
            median = statistics.median(other.times)
            ratio = mine / median
            ratios.setdefault(other.name, []).append(ratio)
            words.append(f"{other.name} {median * 1e3:.2f} ms "
                         f"({min(other.times) * 1e3:.2f}), ratio {ratio:.2f} "
                         f"({min(ours.times) / min(other.times):.2f})")
        print(f"{model}, {arguments.threads} threads: " + ", ".join(words), flush=True)
    for name, list_of in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, list_of)))
        print(f"geometric mean of the ratios to {name}: {mean:.2f}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
