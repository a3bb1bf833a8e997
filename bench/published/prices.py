#!/usr/bin/env python3
"""Predicted against published steps: each row's mesh, rule, ZeRO level, micro-batches and
recompute as its source states them, priced by `partita plan --price`.

usage: prices.py PARTITA [--stack NAME] [--every N] [--rows] [--at-most PERCENT] [GROUP…]

GROUP: fitted, vtrain, vtrain-64, sc21, korthikanti, fsdp-fitted, fsdp, fsdp-7b, fsdp-tp
(default: all). *fitted* and *fsdp-fitted* are the seeded quarters of vTrain's one-node rows,
and of MaxText's and torchtitan's rows in bf16 without tensor parallelism, to which the
stacks' constants were fitted (fit.py); *vtrain* and *fsdp* are the other rows. --every takes
each N-th row, --rows prints each. With --at-most a larger mean error of a group ends with
status 1.
"""
import argparse
import concurrent.futures
import os
import sys
import tempfile

import numpy

import rows


def table(priced, tells):
    """Prints rows; the mean error of a group in percent, and a line about it."""
    errors = []
    for row, predicted in priced:
        measured = rows.seconds(row)
        errors.append(predicted / measured - 1)
        if tells:
            print(f"    {row['model']:10} {row['gpus']:>4} dp={row['dp']} tp={row['tp']} "
                  f"b={row['micro_batch']}/{row['global_batch']} {row['recompute'][:9]}: "
                  f"{measured:.4f} s, predicted {predicted:.4f}, "
                  f"{100 * errors[-1]:+.1f}%")
    sizes = numpy.abs(errors)
    mean = 100 * sizes.mean()
    return mean, (
        f"{len(sizes)} rows, mean error {mean:.1f}%, "
        f"p90 {100 * numpy.quantile(sizes, 0.9):.1f}%, worst {100 * sizes.max():.1f}%, "
        f"bias {100 * numpy.mean(errors):+.1f}%")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--stack", help="default: that of the row's software")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--at-most", type=float, default=numpy.inf, metavar="PERCENT")
    arguments = parser.parse_intermixed_args()
    known = rows.groups()
    unknown = set(arguments.groups) - set(known)
    if unknown:
        parser.error(f"unknown group {unknown.pop()}; there are {', '.join(known)}")
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        pricer = rows.Pricer(arguments.partita, folder)
        for name in arguments.groups or known:
            taken = known[name][::arguments.every]
            prices = pool.map(lambda row: pricer.price(row, arguments.stack).step, taken)
            mean, said = table(list(zip(taken, prices)), arguments.rows)
            print(f"{name}: {said}", flush=True)
            if mean > arguments.at_most:
                sys.exit(f"error: {name} is off by {mean:.1f}%, at most "
                         f"{arguments.at_most:g}% are allowed")


if __name__ == "__main__":
    main()
