"""A layer of Llama that is mostly attention, with its mask by positions and as a table."""
import os
import sys

import onnx

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench", "published"))
import fsdp  # noqa: E402
from layers import builder  # noqa: E402
from llama import Llama  # noqa: E402


class Table(builder.AbsentWeights, Llama):
    pass


for kind, path in zip((fsdp.Model, Table), sys.argv[1:]):
    onnx.save(kind(hidden=1024, heads=8, key_heads=8, inner=128, layers=1, vocabulary=64,
                   batch=8, length=16384).build(), path)
