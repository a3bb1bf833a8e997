#!/usr/bin/env python3
"""Graphs that are written per rank (docs/manual.md): every primitive by reduction, group,
element type and extent, on 1 to 8 ranks, against numpy, which has the parts of all ranks.

usage: run_manual.py PARTITA [MESH…]

A mesh is one model of many cases. What every rank has goes in and comes out as a tensor
with a dim in front that all axes split, so that each rank's part is seen. Values are small
integers: sums and products are exact, in whatever order. The program is run as threads
and as processes under MPI (in the quick tier on two meshes), and `verify` runs it on
virtual ranks (there on every second mesh).
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
        self.known = {}

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
        """Members of a group, by rank, in their order. Many cases ask for the same."""
        result = self.known.get(tuple(axes))
        if result is None:
            result = self.known[tuple(axes)] = self.find_groups(axes)
        return result

    def find_groups(self, axes):
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


class Mail:
    """Tensors that ranks have sent and nobody has read, in the order of sending."""

    def __init__(self):
        self.boxes = {}

    def send(self, source, target, value):
        if target >= 0:
            self.boxes.setdefault((source, target), []).append(value)

    def receive(self, source, target):
        return self.boxes[source, target].pop(0)


def exchange(parts, mesh, groups, sends, receives, shapes):
    """NeighborExchange: each rank has a list of tensors and gets one."""
    mail = Mail()
    for rank, values in enumerate(parts):
        for target, value in zip(sends[rank], values):
            mail.send(rank, target, value)
    return [[np.zeros(shape, parts[0][0].dtype) if source < 0 else mail.receive(source, rank)
             for source, shape in zip(receives[rank], shapes)]
            for rank in range(len(parts))]


def strips(height, width, lens, inside):
    """The eight borders of an image, clockwise from the top: within it, or around it."""
    top, bottom, left, right = lens
    rows = [slice(0, top), slice(height - bottom, height), slice(0, height)] if inside else \
        [slice(0, top), slice(top + height, top + height + bottom), slice(top, top + height)]
    columns = [slice(0, left), slice(width - right, width), slice(0, width)] if inside else \
        [slice(0, left), slice(left + width, left + width + right), slice(left, left + width)]
    up, down, level = rows
    west, east, middle = columns
    return [(up, middle), (up, east), (level, east), (down, east), (down, middle),
            (down, west), (level, west), (up, west)]


def border_exchange(parts, mesh, groups, sends, receives, send_lens, receive_lens):
    """NeighborExchangeV2; `receive_lens`: of the ranks that receive, 0 where none does."""
    height, width = parts[0].shape[2:]
    top, bottom, left, right = receive_lens
    mail, results = Mail(), []
    for rank, value in enumerate(parts):
        for target, (rows, columns) in zip(sends[rank],
                                           strips(height, width, send_lens, True)):
            mail.send(rank, target, value[:, :, rows, columns])
    for rank, value in enumerate(parts):
        result = np.zeros((*value.shape[:2], top + height + bottom, left + width + right),
                          value.dtype)
        result[:, :, top:top + height, left:left + width] = value
        for source, (rows, columns) in zip(receives[rank],
                                           strips(height, width, receive_lens, False)):
            if source >= 0:
                result[:, :, rows, columns] = mail.receive(source, rank)
        results.append(result)
    return results


def by_rank(lists):
    return [",".join(map(str, numbers)) for numbers in lists]


def shifted(mesh, groups, step, is_ring):
    """The member that is `step` further, by rank; -1: none."""
    result = []
    for rank, group in enumerate(groups):
        place = group.index(rank) + step
        inside = 0 <= place < len(group)
        result.append(group[place % len(group)] if is_ring or inside else -1)
    return result


def exchanges(mesh, axes, draw):
    """Cases of NeighborExchange in one group."""
    f32, f64, i64, i32 = TYPES
    groups = mesh.groups(axes or mesh.names)
    n = len(groups[0])

    def case(sends, receives, shapes, results, dtype, says=True):
        attributes = {"send_rank_ids": by_rank(sends), "recv_rank_ids": by_rank(receives)}
        if says:
            attributes |= {"send_shapes": by_rank(shapes), "recv_shapes": by_rank(results),
                           "recv_type": TYPES[dtype]}
        return "NeighborExchange", attributes, axes, shapes, dtype, exchange, \
            (sends, receives, results)

    for step, is_ring in itertools.product({1, n - 1} - {0}, (True, False)):
        to, back = shifted(mesh, groups, step, is_ring), shifted(mesh, groups, -step, is_ring)
        for shape, dtype in (((), f32), ((7,), i64), ((3, 5), f32), ((0, 5), f64)):
            yield case([[r] for r in to], [[r] for r in back], [shape], [shape], dtype)
        # There and back: two tensors, of which each goes another way.
        for dtype in (f32, i32):
            yield case(list(zip(to, back)), list(zip(back, to)), [(3, 5), (7,)],
                       [(3, 5), (7,)], dtype)
    for trial in range(4):
        # Each tensor by a permutation of the group, of which some ways are not there.
        count = int(draw.integers(1, 4))
        shapes = [[(3, 5), (7,), (), (0, 5), (2, 3, 5)][draw.integers(5)]
                  for _ in range(count)]
        sends, receives = np.full((2, mesh.ranks, count), -1)
        for group in {tuple(group) for group in groups}:
            for i in range(count):
                for source, target in zip(group, draw.permutation(group)):
                    if draw.integers(4):
                        sends[source, i], receives[target, i] = target, source
        if np.all(np.any(receives >= 0, 0)):
            yield case(sends.tolist(), receives.tolist(), shapes, shapes,
                       list(TYPES)[trial], bool(trial % 2))
    if n > 1:
        # A single rank gets from all others, which get nothing: as many tensors as ranks.
        sends = [[group[0]] if group[0] != r else [-1] for r, group in enumerate(groups)]
        receives = [group[1:] if group[0] == r else [-1] * (n - 1)
                    for r, group in enumerate(groups)]
        yield case(sends, receives, [(3, 5)], [(3, 5)] * (n - 1), f32)


def border_exchanges(mesh, axes):
    """Cases of NeighborExchangeV2: ranks of a group as a grid or a column, which may be
    closed to a ring where all neighbours are different ranks."""
    f32, f64, i64, i32 = TYPES
    groups = mesh.groups(axes or mesh.names)
    sizes = [mesh.digit(0, axis)[1] for axis in axes or mesh.names] or [1]
    across = sizes[-1] if len(sizes) > 1 else 1
    down = len(groups[0]) // across
    for turned, is_ring in itertools.product((False, True), (False, True)):
        height, width = (across, down) if turned else (down, across)
        if is_ring and not all(size == 1 or size >= 3 for size in (height, width)):
            continue
        neighbours = []
        for rank, group in enumerate(groups):
            row, column = divmod(group.index(rank), width)
            list_of = []
            for y, x in ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)):
                if is_ring and (not y or height > 1) and (not x or width > 1):
                    y, x = (row + y) % height, (column + x) % width
                else:
                    y, x = row + y, column + x
                list_of.append(group[y * width + x] if 0 <= y < height and 0 <= x < width
                               else -1)
            neighbours.append(list_of)
        # Rows that are sent at the top are received at the bottom.
        for top, bottom, left, right in ((1, 1, 1, 1), (2, 1, 0, 3), (0, 3, 2, 0)):
            meets = [bottom, top, right, left]
            some = [max(ranks[side] for ranks in neighbours) >= 0 for side in (0, 4, 6, 2)]
            attributes = {"send_rank_ids": by_rank(neighbours),
                          "recv_rank_ids": by_rank(neighbours),
                          "send_lens": [top, bottom, left, right], "recv_lens": meets,
                          "format": "NCHW"}
            for shape, dtype in (((2, 3, 5, 7), f32), ((1, 1, 3, 3), i64), ((0, 2, 5, 3), f64)):
                yield "NeighborExchangeV2", attributes, axes, shape, dtype, border_exchange, \
                    (neighbours, neighbours, [top, bottom, left, right],
                     [length if is_there else 0 for length, is_there in zip(meets, some)])


def average(parts, mesh, groups):
    return [np.add.reduce([parts[r] for r in group]) / len(group) for group in groups]


def scatter(parts, mesh, groups, root):
    return [np.split(parts[group[root]], len(group))[group.index(r)]
            for r, group in enumerate(groups)]


def tensor_rt(mesh, axes):
    """Cases of TensorRT's DistCollective in one group."""
    f32, f64, i64, i32 = TYPES
    groups = mesh.groups(axes or mesh.names)
    n = len(groups[0])
    common = {"groups": groups[-1], "group_size": n} if axes else {"group_size": n}
    if n > 1:
        common["nb_rank"] = n

    def case(what, op, shape, dtype, function, arguments, **more):
        return "DistCollective", \
            {"collective_operation": what, "reduce_op": op, "root": -1} | common | more, axes, \
            shape, dtype, function, arguments

    for op, dtype in itertools.product(REDUCE, (f32, i64)):
        yield case("all_reduce", op, (3, 5), dtype, all_reduce, (op,))
        yield case("REDUCE_SCATTER", op.upper(), (3 * n, 5), dtype, reduce_scatter, (op, 0))
    for shape in ((), (7,), (0, 5)):
        yield case("all_reduce", "avg", shape, f64, average, ())
    for rows, dtype in itertools.product((0, 1, 3), (f32, i32)):
        yield case("all_gather", "none", (rows, 5), dtype, all_gather, (0,))
        yield case("all_to_all", "none", (rows * n, 5), dtype, all_to_all, (0, 0))
    for root, rank in enumerate(groups[-1]):
        yield case("broadcast", "none", (3, 5), f32, broadcast, (root,), root=rank)
        yield case("reduce", "max", (3, 5), i32, all_reduce, ("max",), root=rank)
        yield case("gather", "sum", (3, 5), f32, all_gather, (0,), root=rank)
        for rows in (0, 1, 3):
            yield case("scatter", "none", (rows * n, 5), i64, scatter, (root,), root=rank)


def cases(mesh):
    """(node, attributes, group, shape, type, function, its arguments) of every case; a list
    of shapes: of several inputs."""
    f32, f64, i64, i32 = TYPES
    draw = np.random.default_rng(mesh.ranks)
    for axes in [(), *mesh.lists()]:
        groups = mesh.groups(axes or mesh.names)
        n = len(groups[0])
        yield from exchanges(mesh, axes, draw)
        yield from border_exchanges(mesh, axes)
        yield from tensor_rt(mesh, axes)
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
        self.cases = 0
        self.constants = {}
        self.draw = np.random.default_rng(len(mesh.text))

    def node(self, op, inputs, domain="", /, **attributes):
        return self.node_of(op, inputs, 1, domain, **attributes)[0]

    def node_of(self, op, inputs, count, domain, /, **attributes):
        name = f"{op}_{len(self.nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, count))]
        self.nodes.append(helper.make_node(op, inputs, names, name, domain=domain,
                                           **attributes))
        return names

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
        mesh, ranks = self.mesh, self.mesh.ranks
        domain = "" if op == "DistCollective" else domain
        shapes = shape if isinstance(shape, list) else [shape]
        parts = [self.draw.integers(1, 4, (ranks, *own)).astype(dtype) for own in shapes]
        own = list(zip(*parts)) if isinstance(shape, list) else list(parts[0])
        results = function(own, mesh, mesh.groups(axes or mesh.names), *arguments)
        results = list(zip(*results)) if isinstance(shape, list) else [results]
        local = []
        for x in parts:
            name = f"x{len(self.inputs)}"
            self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], x.shape))
            self.fed.append(x)
            cut = self.node("ToLocal", [name], "partita", layout=self.layout(x.shape[1:]))
            local.append(self.shaped(cut, x.shape[1:]))
        group = written(mesh, axes, self.draw) if axes and domain == "partita" else {}
        for made, result in zip(self.node_of(op, local, len(results), domain, **attributes,
                                             **group), results):
            y = np.stack(result).astype(dtype)
            out = self.node("ToGlobal", [self.shaped(made, (1, *y.shape[1:]))], "partita",
                            layout=self.layout(y.shape[1:]))
            self.outputs.append(helper.make_tensor_value_info(out, TYPES[dtype], y.shape))
            self.expected.append(y)
            self.names.append(f"{op} {attributes} {group} of {shape} {dtype}")
        self.cases += 1

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


def check(partita, mesh, chosen, transports, verifies, work):
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
    if verifies:
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
    return len(wrong), model.cases


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
        # Processes and virtual ranks take most of the time, and see the same cases.
        transports = ["local"] + ["mpi"] * (not tier.is_quick() or number in (3, 8))
        verifies = not tier.is_quick() or number % 2 == 1
        with tempfile.TemporaryDirectory(prefix="partita-manual-") as work:
            bad, count = check(partita, Mesh(text), [c for t, c in chosen if t == text],
                               transports, verifies, pathlib.Path(work))
        wrong += bad
        total += count
        mpi += len(transports) - 1
    print(f"{'FAILED' if wrong else 'ok'}: {wrong} wrong of {total} cases on {len(meshes)} "
          f"meshes as threads and on {mpi} under MPI")
    return 1 if wrong or not total else 0


if __name__ == "__main__":
    sys.exit(main())
