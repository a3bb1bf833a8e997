#!/usr/bin/env python3
"""Fits what the host of a software stack takes to start a kernel, to the seeded quarter of
vTrain's one-node rows (rows.groups). Constants of the device and its links are their
presets, which others' measurements have given (docs/cost.md).

usage: fit.py PARTITA [--every N]

Each row is priced once. The two constants of lib/Topology/Presets.cpp are those of a grid
of microseconds that have the least mean error, where the 90th percentile is at most 20%.
"""
import argparse
import concurrent.futures
import os
import tempfile

import numpy

import rows

#: Microseconds that are tried, of a launch in the forward and in the backward pass.
FORWARD, BACKWARD = range(10, 60), range(10, 80, 2)
#: Largest 90th percentile of the error.
MOST = 0.2


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    taken = rows.groups()["fitted"][::arguments.every]
    stack = {"device": {"matmul": {"functions_apart": True}},
             "stack": {"name": "tried", "attention_apart": True}}
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        pricer = rows.Pricer(arguments.partita, folder)
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


if __name__ == "__main__":
    main()
