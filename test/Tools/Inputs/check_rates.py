"""Checks the rates of a plan's certificate against each other, and that the ranks of its
name are all of the devices.

usage: check_rates.py PLAN.json DEVICES PEAK TOKENS
"""
import json
import math
import re
import sys


def main(path, devices, peak, tokens):
    with open(path) as file:
        plan = json.load(file)["entries"][0]
    known, work = plan["certificate"], plan["stages"][0]["work"]
    flops = known["flops_per_second_per_device"]
    assert math.isclose(known["model_flops_utilization"], flops / float(peak), rel_tol=1e-9)
    assert math.isclose(known["tokens_per_second"] * known["step_seconds"], float(tokens))
    # Most of all operations are products.
    of_step = flops * known["step_seconds"] * int(devices)
    assert 0.5 * work["operations"] < of_step <= work["operations"], (of_step, work)
    ranks = [int(re.fullmatch(r"[A-Za-z/]+(\d+)", part)[1])
             for part in plan["stages"][0]["name"].split("·") if not part.startswith("ZeRO")]
    assert math.prod(ranks) == int(devices), plan["stages"][0]["name"]
    print("rates: right")


if __name__ == "__main__":
    main(*sys.argv[1:])
