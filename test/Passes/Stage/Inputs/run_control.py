#!/usr/bin/env python3
"""Runs the bundle of control.mlir and compares with the same loops in NumPy.

usage: run_control.py BUNDLE DIR       writes the inputs of the last run to DIR/NAME.npy
"""
import os
import sys

import numpy

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 4)
sys.path.insert(0, os.path.join(ROOT, "python"))
import partita  # noqa: E402


def expected(x, w, h, n, flag):
    rows, last = [], h
    for t in range(6):
        last = numpy.tanh(last + x[t // 3, t % 3] @ w)
        rows.append(last)
    either = h + 0.5 + 0.5 if flag else h - 0.25
    a, b = h, either
    for _ in range(4):
        a, b = b, a + b
    kept = h.copy()
    kept[int(n):] = 0
    return {"all": numpy.array(rows).reshape(2, 3, 2, 8), "last": last,
            "counted": h + 0.5 * int(n), "either": either, "kept": kept, "swapped": a}


def main(bundle, folder):
    random = numpy.random.default_rng(3)
    os.makedirs(folder, exist_ok=True)
    with partita.Session(bundle) as session:
        for n, flag in [(0, True), (1, False), (2, True), (2, False)]:
            given = {name: random.standard_normal(shape).astype("f4")
                     for name, shape in [("x", (2, 3, 2, 8)), ("w", (8, 8)), ("h", (2, 8))]}
            given |= {"n": numpy.int64(n), "flag": numpy.bool_(flag)}
            got, wanted = session.run(given), expected(**given)
            for name, value in wanted.items():
                if not numpy.allclose(got[name], value, rtol=1e-5, atol=1e-5):
                    sys.exit(f"{name} for n = {n}, flag = {flag} is\n{got[name]}\n"
                             f"expected\n{value}")
        for name, value in given.items():
            numpy.save(os.path.join(folder, name + ".npy"), value)
        for n, limit in [(6, 5)]:
            try:
                session.run(given | {"n": numpy.int64(n)})
                sys.exit(f"{n} trips are taken")
            except partita.PartitaError as error:
                if f"(repeat): it reads the value {n}, expected 0 to {limit}" not in str(error):
                    sys.exit(f"the error is: {error}")
            return  # a session with an error is over


if __name__ == "__main__":
    main(*sys.argv[1:])
