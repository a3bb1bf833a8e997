#!/usr/bin/env python3
"""Time of a request on one rank with T threads against one thread, in the same run,
alternating.

usage: speedup.py PARTITA ZOO MODEL... [--threads 2] [--rounds 5] [--against PARTITA]

Prints the medians, the fastest, and the ratios. With --against, another build's time on one
thread is measured in between, and compared with this one's. ZOO is made by
test/E2E/models/zoo.py.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile


class Bundle:
    def __init__(self, partita, folder, threads, out):
        with open(os.path.join(folder, "case.json")) as file:
            shapes = json.load(file)["shapes"]
        words = [word for name, shape in shapes.items()
                 for word in ("--shape", f"{name}=" + ",".join(map(str, shape)))]
        self.command = [partita, "run", out, "--inputs-dir", os.path.join(folder, "inputs"),
                        "--repeat", "8"]
        self.times = []
        subprocess.run([partita, "compile", os.path.join(folder, "model.onnx"), "-o", out,
                        "--threads", str(threads), *words], check=True,
                       capture_output=True)

    def run(self):
        text = subprocess.run(self.command, check=True, capture_output=True, text=True).stdout
        # The first touches all memory.
        self.times += [float(t) * 1e3
                       for t in re.findall(r"request \d+: ([\d.]+) s", text)][1:]

    def median(self):
        return statistics.median(self.times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", help="another build")
    arguments = parser.parse_args()
    for model in arguments.models:
        folder = os.path.join(arguments.zoo, model)
        with tempfile.TemporaryDirectory() as work:
            def bundle(name, partita, threads):
                return Bundle(partita, folder, threads, os.path.join(work, name))
            one = bundle("one", arguments.partita, 1)
            many = bundle("many", arguments.partita, arguments.threads)
            all_ = [one, many]
            if arguments.against:
                all_.append(bundle("other", arguments.against, 1))
            for _ in range(arguments.rounds):
                for each in all_:
                    each.run()
        print(f"{model}: 1 thread {one.median():.2f} ms (fastest {min(one.times):.2f}), "
              f"{arguments.threads} threads {many.median():.2f} ms "
              f"({min(many.times):.2f}), speedup {one.median() / many.median():.2f} "
              f"({min(one.times) / min(many.times):.2f})", flush=True)
        if arguments.against:
            other = all_[2]
            print(f"{model}: 1 thread against the other build {other.median():.2f} ms "
                  f"({min(other.times):.2f}): {one.median() / other.median():.3f} "
                  f"({min(one.times) / min(other.times):.3f})", flush=True)


if __name__ == "__main__":
    main()
