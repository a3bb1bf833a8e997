#!/usr/bin/env python3
"""Writes one function per pair of layouts: its argument arrives in one and leaves in the
other, which takes every kind of step; a second result passes through a replicated op."""
import itertools
import sys

MESH = sys.argv[1]  # dp=2,tp=3 or dp=2,tp=2, where whole parts can change places

EVEN = ["[{12}, {24}]", "[{12: dp}, {24}]", "[{12}, {24: dp}]", "[{12: dp}, {24: tp}]",
        "[{12: tp}, {24: dp}]", "[{12: dp, tp}, {24}]", "[{12: tp, dp}, {24}]",
        "[{12}, {24: tp, dp}]",
        "[{3}*{4: dp}, {24}]", "[{2: dp}*{6: tp}, {24}]",
        "[{6: tp}*{2: dp}, {24}]"]
UNEVEN = [text.replace("/18", "/16").replace("/12", "/8").replace("/9", "/8")
          if MESH == "dp=2,tp=2" else text for text in [
          "[{13}, {7}]", "[{13/18: dp, tp}, {7}]", "[{13/18: tp, dp}, {7}]",
          "[{13/18: dp}, {7/9: tp}]", "[{13}, {7/12: tp, dp}]", "[{13/14: dp}, {7}]"]]
TYPES = ["f32", "i64", "bf16", "i1"]

print(f"#mesh = #dist.mesh<{MESH}>\nmodule attributes {{dist.mesh = #mesh}} {{")


def layout(text):
    return f"{{dist.layout = #dist.layout<#mesh, {text}>}}"



for number, (shape, before, after) in enumerate(
        [("12x24", *pair) for pair in itertools.product(EVEN, EVEN)] +
        [("13x7", *pair) for pair in itertools.product(UNEVEN, UNEVEN)]):
    element = TYPES[number % len(TYPES)]
    t = f"tensor<{shape}x{element}>"
    op = "not" if element == "i1" else "neg"
    print(f"  func.func @reshard_{number}(%x: {t} {layout(before)})"
          f" -> ({t} {layout(after)}, {t} {layout(after)}) {{\n"
          f"    %y = graph.{op} %x {{dist.strategy = #dist.strategy<#mesh, {{}}>}} : "
          f"({t}) -> {t}\n    return %x, %y : {t}, {t}\n  }}")
# Reductions over padding, which must be masked.
for kind in ["sum", "max", "min", "prod"]:
    t, rows = "tensor<13x7xf32>", UNEVEN[1]
    factor = rows[1:rows.index("}") + 1]
    print(f"  func.func @mask_{kind}(%x: {t} {layout(rows)})"
          f" -> (tensor<7xf32> {layout('[{7}]')}) {{\n"
          f'    %y = graph.reduce %x {{kind = #graph.reduce<{kind}>, axes = array<i64: 0>, '
          f"dist.strategy = #dist.strategy<#mesh, {{a: {factor}}}>}} : ({t}) -> tensor<7xf32>\n"
          f"    return %y : tensor<7xf32>\n  }}")
# Sums over a sharded dim are partial: reduced to every layout of the result.
for number, after in enumerate(["[{12}]", "[{12: dp}]", "[{12: tp}]", "[{12: dp, tp}]"]):
    for kind in ["sum", "max", "min", "prod"]:
        print(f"  func.func @reduce_{kind}_{number}(%x: tensor<12x24xf32> "
              f"{layout('[{12}, {24: dp, tp}]')})"
              f" -> (tensor<12xf32> {layout(after)}) {{\n"
              f'    %y = graph.reduce %x {{kind = #graph.reduce<{kind}>, axes = array<i64: 1>, '
              "dist.strategy = #dist.strategy<#mesh, {b: {dp, tp}}>} "
              ": (tensor<12x24xf32>) -> tensor<12xf32>\n    return %y : tensor<12xf32>\n  }")
print("}")
