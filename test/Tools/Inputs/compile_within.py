#!/usr/bin/env python3
"""Compiles a model whose emitted program takes more than the search expects, with limits
just below what each program took, until nothing fits: no bundle ever exceeds its limit.

usage: compile_within.py MODEL CLUSTER FOLDER
"""
import json
import os
import re
import subprocess
import sys


def compile_model(model, cluster, folder, memory):
    done = subprocess.run(["partita", "compile", model, "--cluster", cluster, "--mesh",
                           "dp=4", "--memory", str(memory), "-o", folder],
                          capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    model, cluster, folder = sys.argv[1:]
    os.makedirs(folder)
    memory, again, code = 10**9, 0, 0
    for number in range(12):
        bundle = os.path.join(folder, str(number))
        code, text = compile_model(model, cluster, bundle, memory)
        if code:
            break
        again += "planned again" in text
        with open(os.path.join(bundle, "plan.json")) as file:
            takes = json.load(file)["entries"][0]["certificate"]["memory_per_device"]
        parts = re.search(r"([0-9]+) B of weights .* ([0-9]+) B of arena",
                          text)
        assert takes == int(parts.group(1)) + int(parts.group(2)), text
        assert takes <= memory, f"{takes} of {memory}"
        memory = takes - 1
    assert code == 1 and "infeasible" in text, text
    assert not os.path.exists(bundle), f"{bundle} is left"
    print(f"{number} programs fit, {again} times planned again")
    print("within: right")


if __name__ == "__main__":
    main()
