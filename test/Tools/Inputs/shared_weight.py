"""A weight that products and reductions of several stages read. Usage: shared_weight.py FILE"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "E2E"))
from training_models import Writer  # noqa: E402

w = Writer(9)
x, target, weight = w.input("x", [8, 8]), w.input("t", [8, 8]), w.weight("w", 8, 8)
y = w.op("Tanh", [w.op("MatMul", [x, weight], "m0")], "t0")
y = w.op("Mul", [y, w.op("ReduceMax", [weight], "q1", axes=[0], keepdims=0)], "mu1")
y = w.op("Tanh", [y], "t1")
y = w.op("Mul", [y, w.op("ReduceL2", [weight], "q2", axes=[1], keepdims=0)], "mu2")
y = w.op("Tanh", [y], "t2")
y = w.op("Mul", [y, w.op("ReduceMean", [weight], "q3", axes=[1], keepdims=0)], "mu3")
d = w.op("Sub", [w.op("MatMul", [y, weight], "m5"), target], "d")
w.save(sys.argv[1], w.op("ReduceMean", [w.op("Mul", [d, d], "sq")], "l0", keepdims=0), [])
