#!/usr/bin/env python3
"""Compares outputs, and states, of two runs: same_runs.py A B [STATES OF A, OF B]"""
import json
import pathlib
import sys

import numpy as np


def states(folder):
    data = pathlib.Path(folder, "state.safetensors").read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    body = data[8 + int.from_bytes(data[:8], "little"):]
    kinds = {"F32": "f4", "I64": "i8", "F64": "f8"}
    return {name: np.frombuffer(body[slice(*it["data_offsets"])], kinds[it["dtype"]])
            for name, it in header.items() if not name.startswith("__")}


def compare(a, b, what):
    assert set(a) == set(b), (sorted(a), sorted(b))
    for name, value in a.items():
        assert np.allclose(value, b[name], 1e-5, 1e-5), (name, value, b[name])
    return f"{len(a)} {what} are equal"


runs = [{path.name: np.load(path) for path in pathlib.Path(folder).glob("output_*.npy")}
        for folder in sys.argv[1:3]]
print(compare(*runs, "outputs") + "".join(
    ", " + compare(*map(states, sys.argv[3:5]), "states") for _ in sys.argv[3:4]))
