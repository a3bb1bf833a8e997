#!/usr/bin/env python3
"""Fits how much slower kernels, collectives and copies of the host go beside one another, and
says what the rule of include/partita/Topology/Contention.h errs by where nothing was fitted.

usage: overlap.py

overlap.csv has rows of Mist's measurements (a product, an all-gather and copies in both
directions, started together on five GPUs, one to four nodes): milliseconds of each by itself and
of all together. `part` is the half that is fitted, drawn by seed 1, or the half that is tested.
By itself a part was measured on any number of nodes of that GPU. Prints the six factors per
GPU, which lib/Topology/Presets.cpp and test/Unit/Cost/ContentionTest.cpp have.
"""
import csv
import itertools
import math
import os
import statistics

HERE = os.path.dirname(os.path.abspath(__file__))
RESOURCES = ["device", "links", "host_in", "host_out"]
PAIRS = list(itertools.combinations(range(len(RESOURCES)), 2))
#: Errors count by their squares below this one and by themselves above: some parts were measured
#: while something stood still. Of 0.05 to 0.3 it has the least 90th percentile where it is fitted.
SCALE = 0.3


def together(alone, factors):
    """Seconds until all are done: the rule of Contention.h."""
    left, now = list(alone), 0.0
    while any(left):
        speeds = [0.0 if left[r] == 0 else
                  1 / (1 + sum(factors[min(r, s), max(r, s)] - 1
                               for s in range(4) if s != r and left[s] > 0)) for r in range(4)]
        every = min(sum(speeds), 1)
        speeds = [speed / every for speed in speeds]
        step = min(left[r] / speeds[r] for r in range(4) if speeds[r] > 0)
        now += step
        for r in range(4):
            left[r] -= speeds[r] * step
            if left[r] <= 1e-12 * alone[r]:
                left[r] = 0
    return now


def loss(rows, factors):
    return sum(math.hypot(1, math.log(together(alone, factors) / measured) / SCALE)
               for alone, measured in rows)


def descend(rows, start):
    """Moves one factor after the other, by steps that get smaller."""
    factors = dict.fromkeys(PAIRS, start)
    best, step = loss(rows, factors), 0.32
    while step > 0.004:
        better = False
        for pair in PAIRS:
            for change in (step, -step):
                tried = {**factors, pair: max(1.0, round(factors[pair] + change, 3))}
                if (found := loss(rows, tried)) < best - 1e-9:
                    factors, best, better = tried, found, True
        if not better:
            step /= 2
    return best, factors


def fit(rows):
    return min((descend(rows, start) for start in (1.0, 1.2, 1.5)), key=lambda it: it[0])[1]


def errors(rows, predict):
    """Median and 90th percentile, in percent."""
    found = sorted(abs(predict(gpu, alone) - measured) / measured for gpu, alone, measured in rows)
    return (f"median {100 * statistics.median(found):.1f}%, 90th percentile "
            f"{100 * found[int(0.9 * len(found))]:.1f}% of {len(found)} rows")


def main():
    parts = {"fit": [], "test": []}
    with open(os.path.join(HERE, "overlap.csv"), encoding="utf-8") as file:
        for row in csv.DictReader(file):
            parts[row["part"]].append((row["gpu"], [float(row[f"{name}_ms"]) for name in RESOURCES],
                                       float(row["together_ms"])))
    fitted = {}
    for gpu in sorted({row[0] for row in parts["fit"]}):
        rows = [(alone, measured) for of, alone, measured in parts["fit"] if of == gpu]
        fitted[gpu] = fit(rows)
        print(f"{gpu}, {len(rows)} rows: " + ", ".join(
            f"{RESOURCES[a]}-{RESOURCES[b]} {fitted[gpu][a, b]:.2f}" for a, b in PAIRS))
    print("fitted half:", errors(parts["fit"], lambda gpu, alone: together(alone, fitted[gpu])))
    print("tested half:", errors(parts["test"], lambda gpu, alone: together(alone, fitted[gpu])))
    print("the longest part:", errors(parts["test"], lambda gpu, alone: max(alone)))
    print("all parts in turn:", errors(parts["test"], lambda gpu, alone: sum(alone)))
    print("1.2 for all pairs:", errors(parts["test"], lambda gpu, alone: together(
        alone, dict.fromkeys(PAIRS, 1.2))))


if __name__ == "__main__":
    main()
