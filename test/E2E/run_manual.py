#!/usr/bin/env python3
"""Graphs that are written per rank (docs/manual.md): every primitive by reduction, group,
element type and extent, on 1 to 8 ranks, against numpy, which has the parts of all ranks.

usage: run_manual.py PARTITA [MESH…]

A mesh is one model of many cases. What every rank has goes in and comes out as a tensor
with a dim in front that all axes split, so that each rank's part is seen. Values are small
integers: sums and products are exact, in whatever order. The program is run as threads
and as processes under MPI (in the quick tier on every third mesh), and `verify` runs it on
virtual ranks.
"""
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tier

MESHES = ["", "tp=2", "tp=3", "tp=4", "dp=2,tp=2", "tp=5", "tp=6", "dp=2,tp=3", "dp=3,tp=2",
          "tp=7", "tp=8", "dp=2,tp=4", "dp=4,tp=2", "a=2,b=2,c=2"]
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE,
         np.dtype(np.int64): TensorProto.INT64, np.dtype(np.int32): TensorProto.INT32}
REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


class Mesh:
    """Ranks in rows, the last axis fastest."""

    def __init__(self, text):
        self.text = text
        parts = [part.split("=") for part in text.split(",") if part]
        self.names = [name for name, _ in parts]
        self.sizes = [int(size) for _, size in parts]
        self.ranks = int(np.prod(self.sizes, dtype=np.int64))

    def digit(self, rank, axis):
        """The coordinate of a rank along "tp" or "tp:(2)3"."""
        name, _, part = axis.partition(":")
        number = self.names.index(name)
        rank //= int(np.prod(self.sizes[number + 1:], dtype=np.int64))
        coordinate = rank % self.sizes[number]
        if not part:
            return coordinate, self.sizes[number]
        pre, size = map(int, re.fullmatch(r"\((\d+)\)(\d+)", part).groups())
        return coordinate // (self.sizes[number] // pre // size) % size, size

    def place(self, rank, axes):
        """The member that a rank is of its group."""
        place = 0
        for axis in axes:
            coordinate, size = self.digit(rank, axis)
            place = place * size + coordinate
        return place

    def groups(self, axes):
        """Members of a group, by rank, in their order."""
        result = []
        for rank in range(self.ranks):
            same = [other for other in range(self.ranks)
                    if self.rest(rank, axes) == self.rest(other, axes)]
            result.append(sorted(same, key=lambda other: self.place(other, axes)))
        return result

    def rest(self, rank, axes):
        """Part of the rank's coordinates that the axes do not say."""
        rest = []
        for name, size in zip(self.names, self.sizes):
            mine = [axis for axis in axes if axis.partition(":")[0] == name]
            if not mine:
                rest.append(self.digit(rank, name)[0])
            for axis in mine:
                if ":" in axis:  # one part of an axis: the parts around it
                    pre, count = map(int, re.fullmatch(r".*\((\d+)\)(\d+)", axis).groups())
                    coordinate, below = self.digit(rank, name)[0], size // pre // count
                    rest += [coordinate // (below * count), coordinate % below]
        return tuple(rest)

    def lists(self):
        """Groups as lists of axes: some, in every order, and parts of an axis."""
        for count in range(1, len(self.names) + 1):
            yield from itertools.permutations(self.names, count)
        for name, size in zip(self.names, self.sizes):
            for pre, part in itertools.product(range(1, size), range(2, size)):
                if size % (pre * part) == 0:
                    yield (f"{name}:({pre}){part}",)


def all_reduce(parts, mesh, groups, op):
    return [REDUCE[op].reduce([parts[r] for r in group]) for group in groups]


def all_gather(parts, mesh, groups, axis):
    return [np.concatenate([parts[r] for r in group], axis) for group in groups]


def reduce_scatter(parts, mesh, groups, op, axis):
    reduced = all_reduce(parts, mesh, groups, op)
    return [np.split(reduced[r], len(group), axis)[group.index(r)]
            for r, group in enumerate(groups)]


def all_to_all(parts, mesh, groups, split, concat):
    return [np.concatenate([np.split(parts[r], len(group), split)[group.index(me)]
                            for r in group], concat)
            for me, group in enumerate(groups)]


def broadcast(parts, mesh, groups, root):
    return [parts[group[root]] for group in groups]


def cases(mesh):
    """(node, attributes, group, shape, type, function, its arguments) of every case."""
    f32, f64, i64, i32 = TYPES
    for axes in [(), *mesh.lists()]:
        groups = mesh.groups(axes or mesh.names)
        n = len(groups[0])
        for op, dtype in itertools.product(REDUCE, TYPES):
            for shape in ((), (7,), (3, 5), (0, 5), (2, 3, 5)):
                yield "AllReduce", {"op": op}, axes, shape, dtype, all_reduce, (op,)
        for axis, dtype in itertools.product((0, 1, -1), (f32, i64)):
            for shape in ((3, 5), (7, 1, 3), (0, 5)):
                yield "AllGather", {"axis": axis}, axes, shape, dtype, all_gather, (axis,)
        for op, dtype, axis in itertools.product(REDUCE, (f32, i32), (0, -1)):
            for rows in (0, 1, 3):
                shape = (rows * n, 5) if axis == 0 else (3, rows * n)
                yield "ReduceScatter", {"op": op, "axis": axis}, axes, shape, dtype, \
                    reduce_scatter, (op, axis)
        for root, dtype in itertools.product(range(n), (f32, i64)):
            roots = {"root_rank": groups[0][root]} if root % 2 else \
                {"root_ranks": [group[root] for group in groups]}
            for shape in ((), (7,), (3, 5), (0, 5)):
                yield "Broadcast", roots, axes, shape, dtype, broadcast, (root,)
        for split, concat in itertools.product(range(3), range(3)):
            for dtype, rows in itertools.product((f32, i64), (0, 1, 3)):
                shape = tuple(n * rows if d == split else e for d, e in enumerate((2, 3, 5)))
                yield "AlltoAll", {"split_dim": split, "concat_dim": concat}, axes, shape, \
                    dtype, all_to_all, (split, concat)


def written(mesh, axes, draw):
    """The attributes by which a node names its group: axes, or lists of ranks."""
    if draw.integers(2):
        return {"group": ", ".join(axes)}
    seen = {tuple(group) for group in mesh.groups(axes)}
    return {"groups": [",".join(map(str, group)) for group in sorted(seen)]}


class Model:
    """Cases of one mesh in one model."""

    def __init__(self, mesh):
        self.mesh = mesh
        self.nodes, self.inputs, self.outputs = [], [], []
        self.fed, self.expected, self.names = [], [], []
        self.constants = {}
        self.draw = np.random.default_rng(len(mesh.text))

    def node(self, op, inputs, domain="", /, **attributes):
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, domain=domain,
                                           **attributes))
        return name

    def shaped(self, value, shape):
        key = "shape_" + "_".join(map(str, shape))
        self.constants[key] = numpy_helper.from_array(np.array(shape, np.int64), key)
        return self.node("Reshape", [value, key], allowzero=1)

    def layout(self, shape):
        axes = ", ".join(self.mesh.names)
        return "[" + ", ".join([f"{{{self.mesh.ranks}: {axes}}}" if axes else "{1}",
                                *(f"{{{e}}}" for e in shape)]) + "]"

    def add(self, op, attributes, axes, shape, dtype, function, arguments,
            domain="partita"):
        ranks, name = self.mesh.ranks, f"x{len(self.inputs)}"
        x = self.draw.integers(1, 4, (ranks, *shape)).astype(dtype)
        y = np.stack(function(list(x), self.mesh, self.mesh.groups(axes or self.mesh.names),
                              *arguments)).astype(dtype)
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], x.shape))
        own = self.node("ToLocal", [name], "partita", layout=self.layout(shape))
        group = written(self.mesh, axes, self.draw) if axes else {}
        made = self.node(op, [self.shaped(own, shape)], domain, **attributes, **group)
        local = self.shaped(made, (1, *y.shape[1:]))
        out = self.node("ToGlobal", [local], "partita", layout=self.layout(y.shape[1:]))
        self.outputs.append(helper.make_tensor_value_info(out, TYPES[dtype], y.shape))
        self.fed.append(x)
        self.expected.append(y)
        self.names.append(f"{op} {attributes} {group} of {shape} {dtype}")

    def save(self, folder):
        graph = helper.make_graph(self.nodes, "manual", self.inputs, self.outputs,
                                  list(self.constants.values()))
        model = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("partita", 1),
            helper.make_opsetid("com.microsoft", 1)])
        onnx.save(model, folder / "model.onnx")
        (folder / "in").mkdir()
        for i, x in enumerate(self.fed):
            (folder / "in" / f"input_{i}.pb").write_bytes(
                numpy_helper.from_array(x).SerializeToString())


def call(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: status {done.returncode}\n"
                         f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def check(partita, mesh, chosen, transports, work):
    """The number of cases whose outputs are wrong by some way of running the model."""
    model = Model(mesh)
    for case in chosen:
        model.add(*case)
    if mesh.ranks > 1:  # ONNX Runtime's, whose group is all ranks
        f32 = np.dtype(np.float32)
        model.add("AllReduce", {}, (), (3, 5), f32, all_reduce, ("sum",), "com.microsoft")
        model.add("AllGather", {"axis": 1, "group_size": mesh.ranks}, (), (3, 5), f32,
                  all_gather, (1,), "com.microsoft")
        model.add("AllToAll", {"group_size": mesh.ranks}, (), (3 * mesh.ranks, 5), f32,
                  all_to_all, (0, 0), "com.microsoft")
    model.save(work)
    options = ["--mesh", mesh.text] if mesh.text else []
    call(partita, "compile", work / "model.onnx", "-o", work / "bundle", "--mode", "manual",
         *options)
    call(partita, "verify", work / "model.onnx", "--mode", "manual", *options)
    wrong = set()
    for transport in transports:
        call(partita, "run", work / "bundle", "--transport", transport, "--inputs-dir",
             work / "in", "--outputs-dir", work / transport)
        for i, wanted in enumerate(model.expected):
            proto = TensorProto()
            proto.ParseFromString((work / transport / f"output_{i}.pb").read_bytes())
            got = numpy_helper.to_array(proto)
            if got.dtype != wanted.dtype or got.shape != wanted.shape or \
                    not np.array_equal(got, wanted):
                wrong.add(i)
                print(f"mesh '{mesh.text}', {transport}: {model.names[i]}: expected\n"
                      f"{wanted}\ngot\n{got}", flush=True)
    return len(wrong), len(model.expected)


def block(by_hand):
    """Two layers of columns and rows, as Megatron has them: two sums over tp."""
    draw = np.random.default_rng(1)
    nodes, weights, value = [], [], "x"

    def node(op, inputs, output, domain="", **attributes):
        nodes.append(helper.make_node(op, inputs, [output], output, domain=domain,
                                      **attributes))
        return output

    def cut(name, layout):
        return node("ToLocal", [name], f"cut_{name}", "partita", layout=layout) \
            if by_hand else name

    value = cut("x", "[{8: dp}, {12}]")
    for i in range(2):
        for name, shape in ((f"up{i}", (12, 24)), (f"down{i}", (24, 12))):
            weights.append(numpy_helper.from_array(
                draw.standard_normal(shape).astype(np.float32), name))
        value = node("MatMul", [value, cut(f"up{i}", "[{12}, {24: tp}]")], f"columns{i}")
        value = node("Relu", [value], f"act{i}")
        value = node("MatMul", [value, cut(f"down{i}", "[{24: tp}, {12}]")], f"rows{i}")
        if by_hand:
            value = node("AllReduce", [value], f"sum{i}", "partita", group="tp")
    if by_hand:
        value = node("ToGlobal", [value], "join", "partita", layout="[{8: dp}, {12}]")
    nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 12])
            for name in ("x", "y")]
    graph = helper.make_graph(nodes, "block", ends[:1], ends[1:], weights)
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("partita", 1)])


def compare_block(partita, work):
    """A block by hand and by hints: bytes that ranks receive, and outputs, are equal."""
    columns = {"in": [["dp", None], [None, "tp"]]}
    hints = {True: {"subgraphs": {"cut_*": "manual", "sum*": "manual", "join": "manual"}},
             False: {"nodes": {"columns*": columns}}}
    (work / "in").mkdir()
    x = np.random.default_rng(2).standard_normal((8, 12)).astype(np.float32)
    (work / "in" / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    told, outputs = [], []
    for by_hand in (True, False):
        name = work / f"block{by_hand}"
        onnx.save(block(by_hand), f"{name}.onnx")
        pathlib.Path(f"{name}.json").write_text(json.dumps(hints[by_hand]))
        text = call(partita, "compile", f"{name}.onnx", "-o", name, "--mesh", "dp=2,tp=3",
                    "--mode", "semi-auto", "--hints", f"{name}.json")
        told.append(re.findall(r"(all_\w+|[a-z_]+)\s+(\d+) B\s+(tp|dp)\b", text))
        call(partita, "run", name, "--inputs-dir", work / "in", "--outputs-dir",
             f"{name}.out")
        outputs.append(pathlib.Path(f"{name}.out/output_0.pb").read_bytes())
    good = told[0] == told[1] and len(told[0]) >= 1 and outputs[0] == outputs[1]
    print(f"{'ok' if good else 'FAILED'}: a block by hand and by hints: {told[0]}, "
          f"{told[1]}; outputs are {'equal' if outputs[0] == outputs[1] else 'different'}")
    return 0 if good else 1


def main():
    partita, meshes = sys.argv[1], sys.argv[2:] or MESHES
    every = [(text, case) for text in meshes for case in cases(Mesh(text))]
    chosen = tier.sample("manual", every,
                         lambda case: (case[0], case[1][0])) \
        if meshes == MESHES else every
    with tempfile.TemporaryDirectory(prefix="partita-manual-") as work:
        wrong = compare_block(partita, pathlib.Path(work))
    total = mpi = 0
    for number, text in enumerate(meshes):
        transports = ["local"] + ["mpi"] * (not tier.is_quick() or number % 3 == 1)
        with tempfile.TemporaryDirectory(prefix="partita-manual-") as work:
            bad, count = check(partita, Mesh(text), [c for t, c in chosen if t == text],
                               transports, pathlib.Path(work))
        wrong += bad
        total += count
        mpi += len(transports) - 1
    print(f"{'FAILED' if wrong else 'ok'}: {wrong} wrong of {total} cases on {len(meshes)} "
          f"meshes as threads and on {mpi} under MPI")
    return 1 if wrong or not total else 0


if __name__ == "__main__":
    sys.exit(main())
