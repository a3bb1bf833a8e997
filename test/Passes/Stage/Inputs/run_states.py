#!/usr/bin/env python3
"""Runs the bundle of states.mlir request by request and follows its states in NumPy.

usage: run_states.py BUNDLE PREFIX       writes PREFIX.x.npy and PREFIX.rows.npy
"""
import os
import sys

import numpy

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 4)
sys.path.insert(0, os.path.join(ROOT, "python"))
import partita  # noqa: E402


def same(what, got, wanted):
    if not numpy.allclose(got, wanted, rtol=1e-6, atol=1e-6):
        sys.exit(f"{what} is\n{got}\nexpected\n{wanted}")


def follow(session, request, states, rows):
    """One request, and what it leaves."""
    random = numpy.random.default_rng(request)
    x = random.standard_normal((4, 8)).astype("f4")
    new = random.standard_normal((1, 8, 4)).astype("f4")
    outputs = session.run({"x": x, "rows": new})
    count = int(states["count"][0])
    if count < rows:
        states["cache"][count] = new[0]
    same("the place", outputs["old"], count)
    states["count"] = numpy.array([count + 1])
    states["average"] += (x - states["average"]) / 2
    if count > 0:
        states["w"] = states["w"] - states["average"]
    same("y", outputs["y"], states["w"])
    same("all", outputs["all"], states["cache"])
    for name, value in states.items():
        same(f"state {name} after request {request}", session.read_state(name), value)


def main(bundle, prefix):
    random = numpy.random.default_rng(7)
    numpy.save(prefix + ".x.npy", random.standard_normal((4, 8)).astype("f4"))
    # Five requests, and four places: the last row comes where there is none.
    numpy.save(prefix + ".rows.npy", random.standard_normal((1, 8, 4)).astype("f4"))
    with partita.Session(bundle) as session:
        if sorted(session.states) != ["average", "cache", "count", "w"]:
            sys.exit(f"the states are {sorted(session.states)}")
        first = {name: session.read_state(name) for name in session.states}
        for name in ("average", "cache", "count"):
            same(f"state {name} before the first request", first[name], 0)
        if not first["w"].any():
            sys.exit("state w begins as zeros")
        states = {name: value.copy() for name, value in first.items()}
        for request in range(3):
            follow(session, request, states, 4)
        # Set from outside, and set back.
        states["average"] = numpy.full((4, 8), 3, "f4")
        session.write_state("average", states["average"])
        states["count"] = numpy.array([0])
        session.write_state("count", states["count"])
        follow(session, 3, states, 4)
        session.reset_states()
        for name, value in first.items():
            same(f"state {name} after the reset", session.read_state(name), value)
        states = {name: value.copy() for name, value in first.items()}
        for request in range(4):
            follow(session, request, states, 4)
        try:
            session.run({"x": numpy.zeros((4, 8), "f4"), "rows": numpy.zeros((1, 8, 4), "f4")})
            sys.exit("a row behind the last place is taken")
        except partita.PartitaError as error:
            if "it reads the value 4, expected 0 to 3" not in str(error):
                sys.exit(f"the error is: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
