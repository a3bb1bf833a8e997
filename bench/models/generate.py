#!/usr/bin/env python3
"""Writes the ONNX graph of a published model, at full size without its weights.

usage: generate.py NAME [--layers N] [--batch B] [--sequence S] [--tiny | --small] -o F.onnx
       generate.py --list

At full size the weights are external data in a file that does not exist: `partita compile
--to L3` and whatever else needs shapes only reads none of it. --tiny and --small keep the
structure at other widths, with random weights inside the file, so that the model runs.
"""
import argparse
import inspect
import os
import sys

import onnx
from onnx import TensorProto

import specs
from layers import builder

#: The names of what is trained; everything else is a table, a mask or a statistic.
PARAMETERS = (".weight", ".bias")


def network(name, size="full", **changes):
    """The Builder of a model, not yet built. `changes` are layers, batch and sequence;
    those that are None are left as they are."""
    spec = specs.MODELS[name]
    sizes = dict(spec.sizes)
    if size != "full":
        sizes.update(getattr(spec.kind, size.upper()))
        sizes.update(spec.shrunk)
    for key, value in changes.items():
        if value is None:
            continue
        argument = {"sequence": "length"}.get(key, key)
        if argument not in inspect.signature(spec.kind).parameters:
            raise ValueError(f"{name} has no {key} that could be changed")
        sizes[argument] = value
    if size != "full":
        return spec.kind(**sizes)

    class Absent(builder.AbsentWeights, spec.kind):
        location = f"{name}.data"
    return Absent(**sizes)


def count_parameters(model):
    """The trained numbers of a file, whether they are there or not."""
    count = 0
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name.endswith(PARAMETERS):
            elements = 1
            for extent in tensor.dims:
                elements *= extent
            count += elements
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--layers", type=int, help="other than published")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--sequence", type=int)
    group = parser.add_mutually_exclusive_group()
    for size in ("tiny", "small"):
        group.add_argument(f"--{size}", dest="size", action="store_const", const=size,
                           default="full")
    parser.add_argument("-o", "--output", metavar="F.onnx")
    arguments = parser.parse_args()
    if arguments.list:
        for name, spec in specs.MODELS.items():
            print(f"{name:20} {spec.published:>8}  {spec.source}")
        return 0
    if not arguments.name or not arguments.output:
        parser.error("NAME and -o F.onnx are needed (or --list)")
    if arguments.name not in specs.MODELS:
        parser.error(f"unknown model '{arguments.name}'; --list shows the names")
    try:
        model = network(arguments.name, arguments.size, layers=arguments.layers,
                        batch=arguments.batch, sequence=arguments.sequence).build()
        onnx.save(model, arguments.output)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{os.path.basename(arguments.output)}: {len(model.graph.node)} nodes, "
          f"{count_parameters(model):,} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
