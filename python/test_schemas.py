"""Schemas of the operators of files per rank: onnx.checker takes what is right, infers its
shape, and refuses every damage.

usage: test_schemas.py
"""
import pathlib
import sys

import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from partita import onnx_schemas  # noqa: E402

MESH = "dp=2,tp=3"
OPSETS = [helper.make_opsetid("", 23), helper.make_opsetid("partita", 1),
          helper.make_opsetid("com.microsoft", 1)]

#: Neighbours of six ranks in a row: receivers by sender, and senders by receiver.
NEXT, PREVIOUS = ["1", "2", "3", "4", "5", "-1"], ["-1", "0", "1", "2", "3", "4"]


def aside(direction, neighbours):
    """Lists of eight neighbours, of which each rank has one."""
    return [",".join(rank if i == direction else "-1" for i in range(8))
            for rank in neighbours]


#: Operator, domain, attributes, shape of the operand and of the result.
RIGHT = [
    ("AllReduce", "partita", {}, [4, 6], [4, 6]),
    ("AllReduce", "partita", {"op": "max", "group": "tp"}, [4, 6], [4, 6]),
    ("AllReduce", "partita", {"groups": ["0,1,2", "3,4,5"]}, [4, 6], [4, 6]),
    ("AllGather", "partita", {"axis": 1, "group": "tp"}, [4, 6], [4, 18]),
    ("AllGather", "partita", {"axis": -1, "group": "dp,tp"}, [4, 6], [4, 36]),
    ("AllGather", "partita", {}, [4, 6], [24, 6]),
    ("ReduceScatter", "partita", {"op": "prod", "axis": 1, "group": "tp"}, [4, 6], [4, 2]),
    ("AlltoAll", "partita", {"split_dim": 1, "concat_dim": 0, "split_count": 3,
                             "group": "tp"}, [4, 6], [12, 2]),
    ("AlltoAll", "partita", {"group": "dp"}, [4, 6], [4, 6]),
    ("Broadcast", "partita", {"root_rank": 2}, [4, 6], [4, 6]),
    ("Broadcast", "partita", {"root_ranks": [0, 0, 0, 3, 3, 3], "group": "tp"}, [4], [4]),
    ("ToLocal", "partita", {"layout": "[{4: dp}, {6: tp}]"}, [4, 6], [2, 2]),
    ("ToLocal", "partita", {"layout": "[{4}, {2}*{3: tp}]"}, [4, 6], [4, 2]),
    ("ToLocal", "partita", {"layout": "[]"}, [], []),
    ("ToGlobal", "partita", {"layout": "[{4: dp}, {6: tp}]"}, [2, 2], [4, 6]),
    ("ToGlobal", "partita", {"layout": "[{12: dp, tp}]"}, [2], [12]),
    ("AllReduce", "com.microsoft", {}, [4, 6], [4, 6]),
    ("AllGather", "com.microsoft", {"axis": 1, "group_size": 6}, [4, 6], [4, 36]),
    ("AllToAll", "com.microsoft", {"group_size": 6}, [6, 4], [6, 4]),
    ("DistCollective", "", {"collective_operation": "all_gather", "reduce_op": "none",
                            "nb_rank": 6}, [4, 6], [24, 6]),
    ("DistCollective", "", {"collective_operation": "reduce_scatter", "reduce_op": "sum",
                            "nb_rank": 3, "groups": [0, 1, 2], "group_size": 3}, [6, 4],
     [2, 4]),
    ("DistCollective", "", {"collective_operation": "ALL_TO_ALL", "nb_rank": 6}, [6, 4],
     [6, 4]),
    ("DistCollective", "", {"collective_operation": "gather", "root": 4, "nb_rank": 3,
                            "groups": [3, 4, 5]}, [2, 4], [6, 4]),
    ("DistCollective", "", {"collective_operation": "scatter", "root": 0, "nb_rank": 6},
     [6, 4], [1, 4]),
    ("NeighborExchange", "partita", {"send_rank_ids": NEXT, "recv_rank_ids": PREVIOUS}, [4, 6],
     [4, 6]),
    ("NeighborExchange", "partita", {"send_rank_ids": NEXT, "recv_rank_ids": PREVIOUS,
                                     "send_shapes": ["4,6"], "recv_shapes": ["4,6"],
                                     "recv_type": 1, "group": "dp,tp"}, [4, 6], [4, 6]),
    ("NeighborExchangeV2", "partita",
     {"send_rank_ids": aside(2, NEXT), "recv_rank_ids": aside(6, PREVIOUS),
      "send_lens": ["0,0,0,2"] * 6, "recv_lens": ["0,0,2,0"] * 6, "format": "NCHW"},
     [1, 3, 4, 5], [1, 3, 4, 7]),
    ("Send", "partita", {"value": "h", "ranks": [6, 7]}, [4, 6], [4, 6]),
    ("Receive", "partita", {"value": "h", "ranks": [0, 1], "shape": [4, 6], "type": 1}, None,
     [4, 6]),
    ("Receive", "partita", {"value": "h", "shape": [4, 6], "type": 1}, [2, 3], [4, 6]),
]


def model_of(op, domain, attributes, shape, result):
    """A model of one node; `shape` is that of its operand, None if it has none."""
    operands = [] if shape is None else ["x"]
    node = helper.make_node(op, operands, ["y"], name="culprit", domain=domain, **attributes)
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    graph = helper.make_graph([node], "g", [value(x, shape) for x in operands],
                              [value("y", result)])
    return helper.make_model(graph, ir_version=10, opset_imports=OPSETS)


def check(*case):
    onnx.checker.check_model(model_of(*case), full_check=True, check_custom_domain=True)


def damages():
    """Nodes with one thing wrong each."""
    for op, domain, attributes, shape, result in RIGHT:
        yield op, domain, {**attributes, "strength": 3}, shape, result
        for name, value in attributes.items():
            other = "no" if isinstance(value, int) else 5
            yield op, domain, {**attributes, name: other}, shape, result
            if isinstance(value, str) and name not in ("reduce_op", "value"):
                yield op, domain, {**attributes, name: "nonsense"}, shape, result
        for name, value in (("axis", 2), ("axis", -3), ("split_dim", 7), ("concat_dim", -9),
                            ("split_count", 4), ("root_rank", 6), ("root_rank", -1)):
            if name in attributes:
                yield op, domain, {**attributes, name: value}, shape, result
        for name, value in attributes.items():
            if isinstance(value, list) and isinstance(value[0], str) and name != "groups":
                for other in (value * 2, ["a"] * len(value), ["-2"] * len(value)):
                    yield op, domain, {**attributes, name: other}, shape, result
        if "send_rank_ids" in attributes:
            beyond = [text.replace("5", "6") for text in attributes["send_rank_ids"]]
            yield op, domain, {**attributes, "send_rank_ids": beyond}, shape, result
        if op == "DistCollective":
            for name, value in (("nb_rank", 4), ("group_size", 2)):
                yield op, domain, {"groups": [0, 1, 2], **attributes, name: value}, shape, result
        if attributes.get("root", -1) >= 0:
            yield op, domain, {**attributes, "root": -1}, shape, result
        if op == "NeighborExchangeV2":
            yield op, domain, attributes, [3, 4, 5], [3, 4, 7]
            yield op, domain, {**attributes, "format": "NHWC"}, shape, result
            yield (op, domain, {**attributes, "recv_lens": ["0,0,2,0"] * 5 + ["0,0,1,0"]}, shape,
                   result)
        if "value" in attributes:
            for name, value in (("value", ""), ("ranks", [-1]), ("ranks", [2, 2])):
                yield op, domain, {**attributes, name: value}, shape, result
        if op == "Receive":
            for name, value in (("type", 8), ("type", 99), ("shape", [4, -6])):
                yield op, domain, {**attributes, name: value}, shape, result
            yield op, domain, attributes, shape, [6, 4]
        if "layout" in attributes:
            yield op, domain, {}, shape, result
            yield op, domain, attributes, [*shape, 1], result
            for text in ("[{5: dp}]", "[{4: dp}, {6: dp:(1)4}]", "[{4/6: dp}, {6}]",
                         "{4: dp}", "[{4: dp}, {6: ep}]", "[{4: dp} {6}]"):
                yield op, domain, {"layout": text}, shape, result
        if "group" in attributes:
            for text in ("ep", "tp,tp", "tp:(1)2", "tp:", "tp dp"):
                yield op, domain, {**attributes, "group": text}, shape, result
            yield op, domain, {**attributes, "groups": ["0,1"]}, shape, result
    yield "ReduceScatter", "partita", {"axis": 1, "group": "tp"}, [4, 5], [4, 1]
    yield "AlltoAll", "partita", {"split_dim": 1, "group": "tp"}, [4, 4], [4, 4]
    yield "Broadcast", "partita", {}, [4], [4]
    yield "Broadcast", "partita", {"root_rank": 0, "root_ranks": [0]}, [4], [4]
    yield "AllGather", "com.microsoft", {"axis": 0}, [4], [4]
    yield "AllToAll", "com.microsoft", {"group_size": 6}, [4], [4]
    yield "Nonsense", "partita", {}, [4], [4]
    yield "DistCollective", "", {"collective_operation": "all_gather",
                                 "reduce_op": "sum", "nb_rank": 2}, [4], [8]
    yield "DistCollective", "", {"collective_operation": "all_reduce",
                                 "reduce_op": "none", "nb_rank": 2}, [4], [4]
    yield "DistCollective", "", {"collective_operation": "all_gather",
                                 "reduce_op": "none"}, [4], [8]


def main():
    onnx_schemas.register_onnx_schemas(MESH)
    for case in RIGHT:
        check(*case)
        inferred = onnx.shape_inference.infer_shapes(model_of(*case[:4], None),
                                                     strict_mode=True)
        shape = [dim.dim_value for dim in inferred.graph.output[0].type.tensor_type.shape.dim]
        assert shape == case[4], f"{case}: onnx infers {shape}"
    count = 0
    for case in damages():
        try:
            check(*case)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            count += 1
            continue
        raise AssertionError(f"{case} is not refused")
    assert count >= 50, count
    # Sizes that depend on the number of ranks are open where there is no mesh.
    onnx_schemas.register_onnx_schemas()
    check("AllGather", "partita", {"group": "ep"}, [4], ["n"])
    try:
        onnx_schemas.register_onnx_schemas("dp")
    except ValueError as error:
        assert "'dp' is no mesh" in str(error), error
    else:
        raise AssertionError("'dp' is taken for a mesh")
    print(f"{len(RIGHT)} right, {count} damaged, 0 taken for right")


main()
