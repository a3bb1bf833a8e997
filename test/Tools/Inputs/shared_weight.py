"""A weight that several stages read: in products and reductions, or in a chain of products.

usage: shared_weight.py FILE [chain]
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "E2E"))
from training_models import Writer  # noqa: E402

w = Writer(9)
x, target, weight = w.input("x", [8, 8]), w.input("t", [8, 8]), w.weight("w", 8, 8)


def product(x, name):
    return w.op("MatMul", [x, weight], name)


if sys.argv[2:] == ["chain"]:
    y = x
    for k in range(4):
        y = w.op("Tanh", [product(y, f"m{k}")], f"t{k}")
else:
    y = w.op("Tanh", [product(x, "m0")], "t0")
    y = w.op("Mul", [y, w.op("ReduceMax", [weight], "q1", axes=[0], keepdims=0)], "mu1")
    y = w.op("Tanh", [y], "t1")
    y = w.op("Mul", [y, w.op("ReduceL2", [weight], "q2", axes=[1], keepdims=0)], "mu2")
    y = w.op("Tanh", [y], "t2")
    y = w.op("Mul", [y, w.op("ReduceMean", [weight], "q3", axes=[1], keepdims=0)], "mu3")
    y = product(y, "m5")
d = w.op("Sub", [y, target], "d")
w.save(sys.argv[1], w.op("ReduceMean", [w.op("Mul", [d, d], "sq")], "l0", keepdims=0), [])
