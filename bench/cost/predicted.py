#!/usr/bin/env python3
"""Seconds of a request that the search predicts, over those measured: the plan that it
finds by a cluster file, compiled and run.

usage: predicted.py PARTITA CLUSTER ZOO MODEL... [--ranks R]

CLUSTER is what `partita calibrate --ranks R` has written on this machine; ZOO is made by a
script of bench/onnxruntime. One rank is measured in seconds of the processor, for a
machine that others use, as compare.py does; requests of less than a millisecond by the
clock, since a run prints a line for each; more ranks by their fastest request. Where the
cluster says what the runtime takes, the prediction is of a request, else of a step.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[1] / "onnxruntime"))
import compare  # noqa: E402

UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
ROUNDS = 3
#: Seconds.
SHORT = 1e-3


class Planned(compare.Partita):
    """A bundle by the plan that a search on the cluster finds."""

    def __init__(self, arguments, folder, case, work):
        self.partita, self.cluster = arguments.partita, arguments.cluster
        super().__init__("partita", arguments.partita, folder, case, arguments,
                         os.path.join(work, "bundle"), "auto")

    def run(self, command):
        if command[1] == "compile":
            mesh = [] if "--mesh" in command else ["--mesh", "x=1"]
            options = command[command.index("--threads") + 2:] + mesh
            plan = command[4] + ".plan"
            text = super().run([self.partita, "plan", command[2], "--cluster",
                                self.cluster, "-o", plan, *options])
            times = {name: (value, unit) for name, value, unit in re.findall(
                r"^(step|request): ([\d.]+) (\S+)", text, re.MULTILINE)}
            value, unit = times.get("request", times["step"])
            self.predicted = float(value) * UNITS[unit]
            command = [*command, *mesh, "--plan", plan]
        return super().run(command)


def measure(arguments, folder):
    """Predicted and measured seconds of a request."""
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    with tempfile.TemporaryDirectory() as work:
        planned = Planned(arguments, folder, case, work)
        # A process by its seconds says nothing of a short request.
        by_processor, planned.processor = planned.processor, False
        planned.round(3)
        seconds = max(min(planned.times), planned.predicted)
        planned.processor = by_processor and seconds > SHORT
        requests = max(4, min(2000, int(2 / seconds)))
        planned.times.clear()
        for _ in range(ROUNDS):
            planned.round(requests)
    of = min if arguments.ranks > 1 else statistics.median
    return planned.predicted, of(planned.times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("cluster")
    parser.add_argument("zoo")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--ranks", type=int, default=1)
    arguments = parser.parse_args()
    arguments.threads, arguments.avx2 = 1, False
    arguments.processor = arguments.ranks == 1
    failed, worst = False, 1
    for model in arguments.models:
        try:
            predicted, measured = measure(arguments, os.path.join(arguments.zoo, model))
        except (OSError, RuntimeError) as error:
            print(f"{model}: {error}", file=sys.stderr)
            failed = True
            continue
        ratio = predicted / measured
        worst = max(worst, ratio, 1 / ratio)
        print(f"{model}, {arguments.ranks} ranks: predicted {predicted * 1e6:.1f} µs, "
              f"measured {measured * 1e6:.1f} µs, ratio {ratio:.2f}", flush=True)
    print(f"farthest from 1: {worst:.2f} times")
    return failed


if __name__ == "__main__":
    sys.exit(main())
