#!/usr/bin/env python3
"""Fits constants of software stacks to seeded quarters of published rows (rows.groups).
Other constants of the device and its links are their presets, which others' measurements
have given (docs/cost.md).

usage: fit.py PARTITA [--every N] [megatron] [fsdp]

megatron: what the host takes to start a kernel, from the quarter of vTrain's one-node rows.
Each row is priced once. The two constants of lib/Topology/Presets.cpp are those of a grid
of microseconds that have the least mean error, where the 90th percentile is at most 20%.

fsdp: the share of the peak that long products reach before their tiles' loads, of the
device of MaxText's rows and of torchtitan's, from the quarter of each. Of a grid of
hundredths the one with the least mean error.
"""
import argparse
import concurrent.futures
import os
import tempfile

import numpy

import fsdp
import rows

#: Microseconds that are tried, of a launch in the forward and in the backward pass.
FORWARD, BACKWARD = range(10, 60), range(10, 80, 2)
#: Largest 90th percentile of the error.
MOST = 0.2
#: Shares of the peak that are tried.
EFFICIENCIES = [hundredths / 100 for hundredths in range(50, 100)]


def fit_launches(pricer, pool, taken):
    stack = {"device": {"matmul": {"functions_apart": True}},
             "stack": {"name": "tried", "attention_apart": True}}
    prices = list(pool.map(lambda row: pricer.price(row, stack), taken))
    measured = numpy.array([rows.seconds(row) for row in taken])
    device, launches = (numpy.array([[each[i] for each in price.passes]
                                     for price in prices]) for i in (0, 1))
    found = []
    for forward in FORWARD:
        for backward in BACKWARD:
            host = 1e-6 * (forward * launches[:, 0] + backward * launches[:, 1])
            seconds = numpy.maximum(device[:, 0] + device[:, 1], host) + device[:, 2]
            off = numpy.abs(seconds / measured - 1)
            most = numpy.quantile(off, 0.9)
            found.append((max(0.0, most - MOST), off.mean(), most, forward, backward))
    _, mean, most, forward, backward = min(found)
    print(f"launch {forward} us, backward_launch {backward} us: {len(taken)} rows, "
          f"mean error {100 * mean:.2f}%, p90 {100 * most:.2f}%")


def stack_of(row, efficiency):
    """The row's stack as lib/Topology/Presets.cpp has it, with this share of the peak."""
    stack = {"name": "tried", "flash_attention": True, "overlaps": True}
    if fsdp.system(row) == "torchtitan":
        stack["attention_efficiency"] = 0.35
    if fsdp.stack(row) == "torchtitan-2024":
        stack["eager"] = True
    return {"device": {"matmul": {"functions_apart": True, "efficiency": efficiency}},
            "stack": stack}


def fit_products(pricer, pool, taken):
    """The error is convex in the inverse of the share, so the grid is searched by halves."""
    def error(efficiency):
        prices = pool.map(lambda row: pricer.price(row, stack_of(row, efficiency)).step,
                          taken)
        return numpy.mean([abs(price / rows.seconds(row) - 1)
                           for price, row in zip(prices, taken)])
    known = {}

    def at(i):
        if i not in known:
            known[i] = error(EFFICIENCIES[i])
        return known[i]
    low, high = 0, len(EFFICIENCIES) - 1
    while low < high:
        middle = (low + high) // 2
        if at(middle) <= at(middle + 1):
            high = middle
        else:
            low = middle + 1
    print(f"{fsdp.system(taken[0])}: efficiency {EFFICIENCIES[low]:.2f}: {len(taken)} rows, "
          f"mean error {100 * at(low):.2f}%")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("what", nargs="*", metavar="WHAT")
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_intermixed_args()
    what = arguments.what or ["megatron", "fsdp"]
    for unknown in set(what) - {"megatron", "fsdp"}:
        parser.error(f"unknown fit {unknown}; there are megatron, fsdp")
    groups = rows.groups()
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        pricer = rows.Pricer(arguments.partita, folder)
        if "megatron" in what:
            fit_launches(pricer, pool, groups["fitted"][::arguments.every])
        if "fsdp" in what:
            for system in ("maxtext", "torchtitan"):
                fit_products(pricer, pool, [row for row in groups["fsdp-fitted"]
                                            if fsdp.system(row) == system])


if __name__ == "__main__":
    main()
