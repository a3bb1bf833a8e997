#!/usr/bin/env python3
"""Gradients of graphs that are written per rank (docs/manual.md): a step of gradient descent
on ranks, in f64, against the derivative of the loss on all ranks' parts in one process.

usage: run_manual_gradients.py PARTITA [MESH…]

Of every primitive, reduction and group: parameters that ToLocal cuts, and ones that all
ranks have. The loss is a polynomial of them, and a sum over ranks; NumPy has its derivative
to the last digits by a step along the imaginary axis. Products have factors that are zero.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import run_manual
import states
import tier

MESHES = ["tp=2", "tp=3", "dp=2,tp=2", "tp=6", "dp=2,tp=3", "dp=2,tp=4", "a=2,b=2,c=2"]
STEP = 1e-30


def cases(mesh):
    """(node, attributes, group, shape, function, its arguments)."""
    for axes in [(), *mesh.lists()]:
        n = len(mesh.groups(axes or mesh.names)[0])
        for op in run_manual.REDUCE:
            for shape in ((), (3, 2)):
                yield "AllReduce", {"op": op}, axes, shape, run_manual.all_reduce, (op,)
            for axis, shape in ((0, (n, 2)), (1, (3, 2 * n))):
                yield "ReduceScatter", {"op": op, "axis": axis}, axes, shape, \
                    run_manual.reduce_scatter, (op, axis)
        for axis in (0, 1):
            yield "AllGather", {"axis": axis}, axes, (3, 2), run_manual.all_gather, (axis,)
        for root in range(n):
            yield "Broadcast", {"root_rank": mesh.groups(axes or mesh.names)[0][root]}, axes, \
                (3, 2) if root else (), run_manual.broadcast, (root,)
        for split, concat in ((0, 0), (0, 1), (1, 0), (1, 1)):
            yield "AlltoAll", {"split_dim": split, "concat_dim": concat}, axes, \
                (2 * n, 3) if split == 0 else (3, 2 * n), run_manual.all_to_all, \
                (split, concat)
        yield from exchanges(mesh, axes)


def exchanges(mesh, axes):
    """Those of neighbours, and what TensorRT's node alone has."""
    for op, attributes, _, shapes, _, function, arguments in run_manual.exchanges(
            mesh, axes, np.random.default_rng(mesh.ranks)):
        if all(np.prod(shape) for shape in shapes):
            if "recv_type" in attributes:
                attributes = attributes | {"recv_type": TensorProto.DOUBLE}
            yield op, attributes, axes, shapes, function, arguments
    for op, attributes, _, shape, dtype, function, arguments in \
            run_manual.border_exchanges(mesh, axes):
        if dtype == np.float32:  # the others are the same lists
            yield op, attributes, axes, (1, 2, 3, 3), function, arguments
    for op, attributes, _, shape, _, function, arguments in run_manual.tensor_rt(mesh, axes):
        if np.prod(shape) and function in (run_manual.average, run_manual.scatter):
            yield op, attributes, axes, shape, function, arguments


class Model(run_manual.Model):
    """The loss of many cases, and of each its parameter and its value by NumPy."""

    def __init__(self, mesh):
        super().__init__(mesh)
        self.parameters, self.losses, self.sums = [], [], []

    def parameter(self, shape):
        """Apart from each other by more than rounding, and some of them zero."""
        value = self.draw.permutation(np.arange(np.prod(shape, dtype=int)) - 1.0) / 7
        name = f"w{len(self.parameters)}"
        self.parameters.append(value.reshape(shape))
        self.constants[name] = numpy_helper.from_array(value.reshape(shape), name)
        return name

    def add(self, op, attributes, axes, shape, function, arguments, whole=False,
            joins=False):
        """`whole`: all ranks have the parameter. `joins`: the result is made one tensor."""
        mesh, ranks = self.mesh, self.mesh.ranks
        groups = mesh.groups(axes or mesh.names)
        shapes = shape if isinstance(shape, list) else None
        if shapes:  # the parameter is one row of all
            shape = (sum(int(np.prod(each)) for each in shapes),)
            function = as_rows(function, shapes)
        w = self.parameter(shape if whole else (ranks, *shape))
        own = w if whole else self.shaped(
            self.node("ToLocal", [w], "partita", layout=self.layout(shape)), shape)
        domain = "" if op == "DistCollective" else "partita"
        group = run_manual.written(mesh, axes, self.draw) if axes and domain else {}
        if shapes:
            y = self.rows_of(op, own, shapes, len(arguments[-1]), **attributes, **group)
        else:
            y = self.node(op, [own], domain, **attributes, **group)
        parts = [np.zeros(shape)] * ranks
        result = function(parts, mesh, groups, *arguments)[0].shape
        scale = self.draw.integers(1, 5, (ranks, *result)).astype(np.float64)
        if joins:
            y = self.node("ToGlobal", [self.shaped(y, (1, *result))], "partita",
                          layout=self.layout(result))
            factor = self.constant(scale)
        else:
            factor = self.shaped(self.node("ToLocal", [self.constant(scale)], "partita",
                                           layout=self.layout(result)), result)
        weighed = self.node("Mul", [self.node("Mul", [y, y]), factor])
        self.sums.append(self.node("ReduceSum", [weighed], keepdims=0))

        def loss(value):
            made = np.stack(function([value] * ranks if whole else list(value), mesh, groups,
                                     *arguments))
            return (ranks if joins else 1) * np.sum(made * made * scale)

        self.losses.append(loss)
        self.names.append(f"{op} {attributes} {group} of {shape}"
                          f"{' whole' * whole}{' joined' * joins}")

    def rows_of(self, op, row, shapes, count, **attributes):
        """A node of several inputs, cut from a row, and its outputs as a row."""
        sizes = self.constant(np.array([int(np.prod(shape)) for shape in shapes], np.int64))
        cut = self.node_of("Split", [row, sizes], len(shapes), "", axis=0)
        given = self.node_of(op, [self.shaped(*each) for each in zip(cut, shapes)], count,
                             "partita", **attributes)
        return self.node("Concat", [self.shaped(each, (-1,)) for each in given], axis=0)

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def save(self, folder):
        self.node("AllReduce", [self.node("Sum", self.sums)], "partita")
        loss = self.nodes[-1].output[0]
        # An input, as a step reads a batch.
        self.inputs.append(helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1]))
        out = self.node("Add", [self.shaped(loss, (1,)), "x"])
        out = self.shaped(out, ())
        self.outputs.append(helper.make_tensor_value_info(out, TensorProto.DOUBLE, []))
        self.fed.append(np.zeros(1))
        super().save(folder)
        (folder / "train.json").write_text(json.dumps(
            {"loss": {"output": out}, "parameters": {"train": ["w*"]},
             "optimizer": {"kind": "sgd", "lr": 1}}))


def as_rows(function, shapes):
    """A function of lists of tensors as one of rows."""
    cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]

    def of_rows(rows, mesh, groups, *arguments):
        own = [[part.reshape(shape) for part, shape in zip(np.split(row, cuts), shapes)]
               for row in rows]
        return [np.concatenate([result.ravel() for result in results])
                for results in function(own, mesh, groups, *arguments)]

    return of_rows


def derivative(loss, value):
    result = np.zeros(value.shape)
    for place in np.ndindex(value.shape):
        moved = value.astype(complex)
        moved[place] += 1j * STEP
        result[place] = loss(moved).imag / STEP
    return result


def check(partita, mesh, chosen, work):
    model = Model(mesh)
    for case in chosen:
        model.add(*case)
    # A tensor that every rank has goes in, and one tensor comes out.
    for axes in mesh.lists():
        for case in list(exchanges(mesh, axes))[::5]:
            if case[0] != "DistCollective":
                model.add(*case, whole=True)
        for whole, joins in ((True, False), (False, True), (True, True)):
            if joins and axes != tuple(mesh.names):
                continue # it would differ over axes that the layout does not name
            model.add("AllReduce", {}, axes, (3, 2), run_manual.all_reduce, ("sum",), whole,
                      joins)
            model.add("AllGather", {}, axes, (3, 2), run_manual.all_gather, (0,), whole,
                      joins)
    model.save(work)
    run_manual.call(partita, "compile", work / "model.onnx", "-o", work / "bundle", "--mode",
                    "manual", "--mesh", mesh.text, "--train", work / "train.json")
    run_manual.call(partita, "verify", work / "model.onnx", "--mode", "manual", "--mesh",
                    mesh.text, "--train", work / "train.json")
    run_manual.call(partita, "run", work / "bundle", "--inputs-dir", work / "in",
                    "--state-dir", work / "states")
    after, _ = states.read_states(work / "states" / "state.safetensors")
    wrong, largest = 0, 0.0
    for i, (before, loss) in enumerate(zip(model.parameters, model.losses)):
        wanted = derivative(loss, before)
        error = np.max(np.abs(before - after[f"w{i}"] - wanted), initial=0)
        scale = max(1, np.max(np.abs(wanted), initial=0))
        largest = max(largest, error / scale)
        if not error <= 1e-9 * scale:
            wrong += 1
            print(f"mesh '{mesh.text}': {model.names[i]}: expected\n{wanted}\ngot\n"
                  f"{before - after[f'w{i}']}", flush=True)
    return wrong, len(model.losses), largest


def main():
    partita, meshes = sys.argv[1], sys.argv[2:] or MESHES
    every = [(text, case) for text in meshes for case in cases(run_manual.Mesh(text))]
    chosen = tier.sample("manual-gradients", every,
                         lambda case: (case[0], case[1][0],
                                       case[1][1].get("op"))) \
        if meshes == MESHES else every
    wrong = total = 0
    largest = 0.0
    for text in meshes:
        with tempfile.TemporaryDirectory(prefix="partita-manual-") as work:
            bad, count, error = check(partita, run_manual.Mesh(text),
                                      [c for t, c in chosen if t == text],
                                      pathlib.Path(work))
        wrong, total, largest = wrong + bad, total + count, max(largest, error)
    print(f"{'FAILED' if wrong else 'ok'}: {wrong} wrong of {total} gradients on "
          f"{len(meshes)} meshes, largest error {largest:.1e} of 1e-9")
    return 1 if wrong or not total else 0


if __name__ == "__main__":
    sys.exit(main())
