#!/usr/bin/env python3
"""Damages graphs that are written per rank (docs/manual.md): each damage must be one sentence,
at compile time, that names the node that asks and the node that is not as it asks.

usage: run_manual_damage.py PARTITA

The graphs are blocks of a transformer, data-parallel, by columns and rows, with sequences in
parts. A damage is a node left out, a group, a layout, a dim or a root that does not fit its
neighbours, two nodes exchanged. What stays a right program is not a damage and not here.
"""
import copy
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import tier

ROWS, WIDTH, HIDDEN = 12, 6, 24
MESHES = {"dp=2,tp=3": (2, 3), "dp=3,tp=2": (3, 2), "dp=2,tp=2": (2, 2)}


def node(op, inputs, output, **attributes):
    domain = "partita" if op in ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll",
                                 "Broadcast", "ToLocal", "ToGlobal", "NeighborExchange",
                                 "NeighborExchangeV2") else ""
    outputs = output if isinstance(output, list) else [output]
    return helper.make_node(op, inputs, outputs, outputs[0], domain=domain, **attributes)


def block(dp, tp):
    """Columns, rows, a sum; then the same with the rows of the batch in parts over tp."""
    return [
        node("ToLocal", ["x"], "cut", layout=f"[{{{ROWS}: dp}}, {{{WIDTH}}}]"),
        node("ToLocal", ["w1"], "columns", layout=f"[{{{WIDTH}}}, {{{HIDDEN}: tp}}]"),
        node("ToLocal", ["w2"], "rows", layout=f"[{{{HIDDEN}: tp}}, {{{WIDTH}}}]"),
        node("MatMul", ["cut", "columns"], "up"),
        node("Relu", ["up"], "act"),
        node("MatMul", ["act", "rows"], "down"),
        node("AllReduce", ["down"], "sum", group="tp"),
        node("Relu", ["sum"], "between"),
        node("ReduceScatter", ["down"], "scatter", group="tp", axis=0),
        node("Abs", ["scatter"], "part"),
        node("AllGather", ["part"], "gather", group="tp", axis=0),
        node("Add", ["between", "gather"], "both"),
        node("Broadcast", ["part"], "first", group="tp", root_rank=0),
        node("ReduceMax", ["first"], "most", keepdims=0),
        node("Add", ["both", "most"], "result"),
        node("ToGlobal", ["result"], "y", layout=f"[{{{ROWS}: dp}}, {{{WIDTH}}}]"),
    ]


def neighbours(mesh):
    """The next and the previous rank along dp, by rank; -1: none."""
    dp, tp = mesh
    ranks = range(dp * tp)
    return [r + tp if r + tp < dp * tp else -1 for r in ranks], \
        [r - tp if r >= tp else -1 for r in ranks]


def by_rank(*lists):
    return [",".join(map(str, numbers)) for numbers in zip(*lists)]


def stencil(dp, tp):
    """Rows in parts over dp: a shift, one there and back, and borders of images."""
    down, up = neighbours((dp, tp))
    none = [-1] * (dp * tp)
    rows = ROWS // dp
    around = by_rank(up, none, none, none, down, none, none, none)
    return [
        node("ToLocal", ["x"], "cut", layout=f"[{{{ROWS}: dp}}, {{{WIDTH}}}]"),
        node("NeighborExchange", ["cut"], "ring", send_rank_ids=by_rank(down),
             recv_rank_ids=by_rank(up), send_shapes=[f"{rows},{WIDTH}"],
             recv_shapes=[f"{rows},{WIDTH}"], recv_type=TensorProto.FLOAT),
        node("Constant", [], "flat", value_ints=[rows * WIDTH]),
        node("Reshape", ["ring", "flat"], "row"),
        node("NeighborExchange", ["cut", "row"], ["two", "two_back"],
             send_rank_ids=by_rank(down, up), recv_rank_ids=by_rank(up, down)),
        node("Constant", [], "nchw", value_ints=[1, 1, rows, WIDTH]),
        node("Reshape", ["cut", "nchw"], "image"),
        node("NeighborExchangeV2", ["image"], "border", send_rank_ids=around,
             recv_rank_ids=around, send_lens=[1, 2, 0, 0], recv_lens=[2, 1, 0, 0],
             format="NCHW"),
        node("ReduceMax", ["border"], "most", keepdims=0),
        node("ReduceMax", ["two_back"], "more", keepdims=0),
        node("Sum", ["ring", "two", "most", "more"], "result"),
        node("ToGlobal", ["result"], "y", layout=f"[{{{ROWS}: dp}}, {{{WIDTH}}}]"),
    ]


def stencil_damages(mesh):
    """Damages of a stencil, as `damages` has them."""
    dp, tp = mesh
    count = dp * tp
    down, up = neighbours(mesh)
    none = [-1] * count

    def change(name, *named, **values):
        return f"{name} {values}", (name, *named), \
            lambda nodes: attribute(nodes, name, **values)

    def but(lists, rank, value):
        return [value if r == rank else other for r, other in enumerate(lists)]

    last, rows = count - 1, ROWS // dp
    # Nobody takes it, or nobody gives it; or somebody does in another node.
    yield change("ring", recv_rank_ids=by_rank(none))
    yield change("ring", send_rank_ids=by_rank(none))
    for rank in range(tp):
        yield change("ring", send_rank_ids=by_rank(but(down, rank, -1)))
        yield change("ring", recv_rank_ids=by_rank(but(up, last - rank, -1)))
        yield change("ring", send_rank_ids=by_rank(but(down, rank, last if rank == 0 else 0)))
        yield change("two", send_rank_ids=by_rank(but(down, rank, -1), up))
        yield change("two", recv_rank_ids=by_rank(up, but(down, rank, -1)))
    yield change("ring", send_rank_ids=by_rank(up), recv_rank_ids=by_rank(up))

    def crossed(nodes):
        attribute(nodes, "ring", recv_rank_ids=by_rank(none))
        attribute(nodes, "two", send_rank_ids=by_rank(none, up))
    yield "ring is received in two", ("ring", "two"), crossed

    def crossed_back(nodes):
        attribute(nodes, "ring", send_rank_ids=by_rank(none))
        attribute(nodes, "two", recv_rank_ids=by_rank(none, down))
    yield "two is received in ring", ("ring", "two"), crossed_back

    # Lists that are none.
    for name, key in itertools.product(("ring", "two", "border"),
                                       ("send_rank_ids", "recv_rank_ids")):
        width = {"ring": 1, "two": 2, "border": 8}[name]
        for wrong in ([",".join(["0"] * (width + 1))] * count, [""] * count,
                      [",".join(["-1"] * width)] * (count - 1),
                      [",".join(["-1"] * (width - 1) + [str(count)])] * count,
                      [",".join(["-1"] * (width - 1) + ["-2"])] * count,
                      [",".join(["x"] * width)] * count, [-1] * (width + 1), [], None):
            yield change(name, **{key: wrong})
    for name in ("ring", "two", "border"):
        yield change(name, group="tp")  # neighbours are along dp
        yield change(name, group="pp")
    # Shapes and types.
    for key, wrong in itertools.product(
            ("send_shapes", "recv_shapes"),
            ([f"{rows},{WIDTH + 1}"], [f"{WIDTH},{rows + 1}"], ["-1,2"], ["a"], [""],
             [f"{rows},{WIDTH}"] * 2)):
        yield change("ring", **{key: wrong})
    for kind in (TensorProto.DOUBLE, TensorProto.INT64, 99):
        yield change("ring", recv_type=kind)
    for shapes in ([f"{rows},{WIDTH}"] * 2, [f"{rows * WIDTH}", f"{rows},{WIDTH}"]):
        yield change("two", recv_shapes=shapes)
    # Each output gets the shape of the other.
    yield "two turned around", ("result|two",), lambda nodes: attribute(
        nodes, "two", send_rank_ids=by_rank(up, down))

    def cast(nodes):
        nodes.insert(4, node("Cast", ["row"], "wide", to=TensorProto.DOUBLE))
        find(nodes, "two").input[1] = "wide"
    yield "two of two types", ("two", "wide"), cast

    # Borders.
    for key in ("send_lens", "recv_lens"):
        for wrong in ([1, 1, 1], [1, 1, -1, 0], [rows + 1, 2, 0, 0], [1, rows + 1, 0, 0],
                      [3, 3, 0, 0], None):
            yield change("border", **{key: wrong})
    for side in range(tp, count):
        for key, lens in (("recv_lens", "2,1,0,0"), ("send_lens", "1,2,0,0")):
            yield change("border", **{key: ["3,3,0,0" if r == side else lens
                                            for r in range(count)]})
    for wrong in ("NHWC", "NC"):
        yield change("border", format=wrong)
    for corner in (1, 3, 5, 7):
        lists = [up, none, none, none, down, none, none, none]
        lists[corner] = [0 if r == last else -1 for r in range(count)]
        yield change("border", recv_rank_ids=by_rank(*lists))
    lists = [up, none, up, none, none, none, none, none]
    for key in ("send_rank_ids", "recv_rank_ids"):
        yield change("border", **{key: by_rank(*lists)})

    def unshaped(nodes):
        find(nodes, "border").input[0] = "cut"
    yield "border of rows", ("border",), unshaped

    # Their results differ over dp, as their operands do.
    yield change("y", "cut|ring|two", layout=f"[{{{rows}}}, {{{WIDTH}}}]")

    def uncut(nodes):
        nodes[0] = node("Slice", ["x", "zero", "end", "zero"], "cut")
        nodes[:0] = [node("Constant", [], "zero", value_ints=[0]),
                     node("Constant", [], "end", value_ints=[rows])]
        attribute(nodes, "y", layout=f"[{{{rows}}}, {{{WIDTH}}}]")
    yield "neighbours of what all have", ("y", "ring|two|border"), uncut


def find(nodes, name):
    return next(n for n in nodes if n.name == name)


def attribute(nodes, name, **values):
    for key, value in values.items():
        own = find(nodes, name)
        for known in [a for a in own.attribute if a.name == key]:
            own.attribute.remove(known)
        if value is not None:
            kind = AttributeProto.INTS if value == [] else None
            own.attribute.append(helper.make_attribute(key, value, attr_type=kind))


def without(nodes, name):
    """The node's users read what it reads."""
    own = find(nodes, name)
    nodes.remove(own)
    for other in nodes:
        for i, given in enumerate(other.input):
            if given == own.output[0]:
                other.input[i] = own.input[0]
    if name == "y":
        find(nodes, own.input[0]).output[0] = "y"


def as_list(mesh, axes):
    ranks = np.arange(np.prod(mesh)).reshape(mesh)
    groups = ranks.reshape(-1, mesh[1]) if axes == "tp" else ranks.T.reshape(-1, mesh[0])
    return [list(map(int, group)) for group in groups]


def damages(mesh):
    """(what is done, who must be named, a function of the nodes)."""
    dp, tp = mesh
    groups = as_list(mesh, "tp")

    def change(name, *named, **values):
        return f"{name} {values}", (name, *named), \
            lambda nodes: attribute(nodes, name, **values)

    # Left out: what differs goes on to who cannot take it.
    for name, named in (("sum", ("y", "columns|rows|down")), ("gather", ("both|gather|y",)),
                        ("y", ("y", "cut")), ("scatter", ("part|gather|both|y",)),
                        ("first", ("y", "scatter"))):
        yield f"without {name}", named, lambda nodes, name=name: without(nodes, name)
    for name in ("cut", "columns", "rows"):
        yield f"without {name}", ("up|down|y",), lambda nodes, name=name: without(nodes, name)
    # Over other ranks than those that differ.
    for name, named in (("sum", "columns|rows|down"), ("gather", "scatter|columns|both"),
                        ("first", "scatter|columns|rows")):
        yield f"{name} over dp", ("y|both", named), \
            lambda nodes, name=name: attribute(nodes, name, group="dp")
    # Words that do not fit.
    for name in ("sum", "scatter", "gather", "first"):
        for group in ("pp", "tp,tp", "tp,dp,tp", "tp:(1)5", "tp:(7)2", "dp:", "0,1", "tp dp"):
            yield change(name, group=group)
        broken = copy.deepcopy(groups)
        broken[0][0], broken[-1][-1] = broken[-1][-1], broken[0][0]
        turned = [group[::-1] for group in groups]
        short = groups[:-1]
        uneven = [groups[0] + groups[1][:1], groups[1][1:], *groups[2:]]
        outside = [*groups[:-1], [r + dp * tp for r in groups[-1]]]
        twice = [*groups, groups[0]]
        for wrong in (broken, turned, short, uneven, outside, twice, [[]]):
            yield change(name, group=None, groups=[",".join(map(str, g)) for g in wrong])
        yield change(name, groups=[",".join(map(str, g)) for g in groups])
    for name, op in itertools.product(("sum", "scatter"), ("mean", "SUM", "none", "add")):
        yield change(name, op=op)
    for name, axis in itertools.product(("scatter", "gather"), (2, -3, 100)):
        yield change(name, axis=axis)
    for root in (-1, dp * tp, 1000):
        yield change("first", root_rank=root)
    yield change("first", root_rank=None)
    yield change("first", root_ranks=[0] * (dp * tp))
    yield change("first", root_rank=None, root_ranks=[0] * (dp * tp))
    yield change("first", root_rank=None, root_ranks=[0])
    yield change("first", root_rank=None,
                 root_ranks=[group[i % tp] for i, group in enumerate(groups) for _ in group])
    # Layouts.
    for name, shape in (("cut", (ROWS, WIDTH)), ("columns", (WIDTH, HIDDEN)),
                        ("rows", (HIDDEN, WIDTH)), ("y", (ROWS, WIDTH))):
        a, b = shape
        for layout in (f"[{{{a}}}]", f"[{{{a}: pp}}, {{{b}}}]", f"[{{{a}: dp}}, {{{b}: dp}}]",
                       f"[{{{a + 1}: dp}}, {{{b}}}]", f"[{{{a}: dp}}, {{{b}}}", "none", "rows",
                       f"[{{{a}/{a + dp}: dp}}, {{{b}}}]", f"[{{{a}}}, {{{b}}}, {{1}}]",
                       f"[{{{a}={a}+{'+'.join('0' * (dp - 1))}: dp}}, {{{b}}}]"):
            yield change(name, layout=layout)
    yield change("y", "cut", layout=f"[{{{ROWS // dp * tp}: tp}}, {{{WIDTH}}}]")
    yield change("y", "cut", layout=f"[{{{ROWS // dp}}}, {{{WIDTH}}}]")


def model_of(nodes):
    def weight(name, *shape):
        return numpy_helper.from_array(np.ones(shape, np.float32), name)

    graph = helper.make_graph(
        nodes, "damaged",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight("w1", WIDTH, HIDDEN), weight("w2", HIDDEN, WIDTH)])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("partita", 1)])


def attempt(partita, text, nodes, work):
    onnx.save(model_of(nodes), work / "model.onnx")
    try:
        done = subprocess.run([partita, "compile", work / "model.onnx", "-o", work / "bundle",
                               "--force", "--mode", "manual", "--mesh", text],
                              capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return None, "it does not end"
    return done.returncode, done.stderr


def judge(status, text, named, work):
    """Fault of the answer to a damage; empty: none."""
    lines = [line for line in text.splitlines() if not line.endswith("…")]
    if status != 1 or (work / "bundle").exists():
        return f"status {status}"
    if len(lines) not in (1, 2) or not lines[0].startswith("error: "):
        return "no sentence"
    if len(lines) == 2 and "1 node is not supported" not in lines[0]:
        return "several sentences"
    missing = [name for name in named if not re.search(f"'({name})'", text)]
    return f"{missing} not named" if missing else ""


def main():
    partita = sys.argv[1]
    every = [(text, (*case, graph)) for text, mesh in MESHES.items()
             for graph, cases in ((block, damages(mesh)), (stencil, stencil_damages(mesh)))
             for case in cases]
    chosen = tier.sample("manual-damages", every,
                         lambda case: (case[0], case[1][1][0]))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="partita-manual-") as folder:
        work = pathlib.Path(folder)
        for (text, mesh), graph in itertools.product(MESHES.items(), (block, stencil)):
            status, answer = attempt(partita, text, graph(*mesh), work)
            if status:
                raise SystemExit(f"mesh {text}: the graph itself: {answer}")
            subprocess.run(["rm", "-r", work / "bundle"], check=True)
        for text, (what, named, damage, graph) in chosen:
            nodes = graph(*MESHES[text])
            damage(nodes)
            status, answer = attempt(partita, text, nodes, work)
            wrong = judge(status, answer, named, work)
            if wrong:
                failed += 1
                subprocess.run(["rm", "-rf", work / "bundle"], check=True)
                print(f"mesh {text}: {what}: {wrong}\n{answer[-400:]}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {len(chosen) - failed} of {len(chosen)} damages "
          "are errors that name their nodes")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
