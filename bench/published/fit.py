#!/usr/bin/env python3
"""Fits the constants of a software stack to the seeded quarter of vTrain's one-node rows
(rows.groups).

usage: fit.py PARTITA [--rounds N] [--every N] [--from JSON]

A step takes the longer of two times. The host's is exact: its launches, counted, times
`launch`. The logarithm of the device's is taken as linear in the logarithms of the other
constants, with slopes by differences. In this model the constants are sought that have the
least sum of the mean error, a fifth of the 90th percentile and PRIOR times the squares by
which logarithms differ from those of the device's own presets; then slopes are taken anew.
Prints the constants of each round with their errors as partita prices them; the best are
what lib/Topology/Presets.cpp states.
"""
import argparse
import concurrent.futures
import json
import os
import tempfile

import numpy

import rows

#: The device's own presets, where the search for constants begins.
START = {"launch": 33e-6, "efficiency": 0.92, "half_tile": 10.0, "fill_steps": 64.0,
         "memory_efficiency": 0.834, "link_efficiency": 0.77, "ramp": 16e6}
#: Fractions, which are at most 1.
FRACTIONS = {"efficiency", "memory_efficiency", "link_efficiency"}
#: Relative step of the differences; the largest change of a logarithm in a round; draws
#: of the search in the model, and its seed.
DIFFERENCE, LARGEST, DRAWS, SEED = 0.05, 0.2, 40000, 1
#: Weight of what the presets say, which other measurements have given. The launch has no
#: preset.
PRIOR = 0.05


def constants(values):
    return {"device": {"memory_efficiency": values["memory_efficiency"],
                       "matmul": {"efficiency": values["efficiency"],
                                  "half_tile": values["half_tile"],
                                  "fill_steps": values["fill_steps"],
                                  "functions_apart": True}},
            "link": {"efficiency": values["link_efficiency"], "ramp": values["ramp"]},
            "network": {"ramp": values["ramp"]},
            "stack": {"name": "tried", "launch": values["launch"],
                      "attention_apart": True}}


class Fit:
    def __init__(self, pricer, taken, pool):
        self.pricer, self.taken, self.pool = pricer, taken, pool
        self.measured = numpy.array([rows.seconds(row) for row in taken])

    def prices(self, values):
        tried = constants(values)
        return list(self.pool.map(lambda row: self.pricer.price(row, tried), self.taken))

    def score(self, seconds):
        """Mean error and 90th percentile along the last dim."""
        off = numpy.abs(seconds / self.measured - 1)
        return off.mean(axis=-1), numpy.quantile(off, 0.9, axis=-1)

    def tell(self, values, prices):
        mean, most = self.score(numpy.array([price.step for price in prices]))
        print(json.dumps({key: float(f"{value:.4g}") for key, value in values.items()}),
              f"mean error {100 * mean:.2f}%, p90 {100 * most:.2f}%", flush=True)

    def round(self, values):
        prices = self.prices(values)
        self.tell(values, prices)
        device = numpy.log([price.device for price in prices])
        launches = numpy.array([price.launches for price in prices])
        keys = [key for key in values if key != "launch"]
        slopes = []
        for key in keys:
            moved = dict(values)
            moved[key] *= 1 - DIFFERENCE if key in FRACTIONS else 1 + DIFFERENCE
            other = numpy.log([price.device for price in self.prices(moved)])
            slopes.append((other - device) / numpy.log(moved[key] / values[key]))
        draw = numpy.random.default_rng(SEED)
        best, center, width = None, numpy.zeros(len(keys) + 1), LARGEST
        most = numpy.array([numpy.log(1 / values[key]) if key in FRACTIONS else LARGEST
                            for key in keys + ["launch"]])
        for _ in range(4):  # ever nearer to the best
            tried = center + draw.uniform(-width, width, (DRAWS // 4, len(center)))
            tried = numpy.clip(tried, -LARGEST, numpy.minimum(most, LARGEST))
            seconds = numpy.maximum(
                numpy.exp(device + tried[:, :-1] @ numpy.array(slopes)),
                values["launch"] * numpy.exp(tried[:, -1:]) * launches)
            mean, worst = self.score(seconds)
            away = tried[:, :-1] + numpy.log([values[key] / START[key] for key in keys])
            score = mean + 0.2 * worst + PRIOR * (away ** 2).sum(axis=1)
            at = int(numpy.argmin(score))
            if best is None or score[at] < best:
                best, center = score[at], tried[at]
            width /= 2
        return {key: values[key] * float(numpy.exp(by))
                for key, by in zip(keys + ["launch"], center)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--from", dest="start", type=json.loads, default={})
    arguments = parser.parse_args()
    values = {**START, **arguments.start}
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        fit = Fit(rows.Pricer(arguments.partita, folder),
                  rows.groups()["fitted"][::arguments.every], pool)
        for _ in range(arguments.rounds):
            values = fit.round(values)
        fit.tell(values, fit.prices(values))


if __name__ == "__main__":
    main()
