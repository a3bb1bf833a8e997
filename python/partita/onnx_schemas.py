"""Schemas of the operators of files per rank (docs/rank-files.md), for onnx.checker and
onnx.shape_inference, which know no operator that nobody has registered.

    import onnx
    import partita
    partita.register_onnx_schemas(mesh="dp=2,tp=2")
    onnx.checker.check_model("ranks/rank-0.onnx", full_check=True)

With a mesh, groups and layouts are compared with its axes and shapes are inferred; without
one, sizes that depend on the number of ranks stay open.
"""

import atexit
import math
import re

DOMAIN = "partita"

_NUMBERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
            "float16", "float", "double", "bfloat16"]
_ALL = [f"tensor({name})" for name in _NUMBERS + ["bool"]]
_REDUCED = [f"tensor({name})" for name in _NUMBERS]
_REDUCTIONS = ("sum", "max", "min", "prod")
_COLLECTIVES = ("all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter",
                "all_to_all", "gather", "scatter")

_registered = False
_mesh = None


def _parse_mesh(text):
    axes = {}
    for part in text.split(",") if text else []:
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)=(\d+)\s*", part)
        if not match or int(match[2]) < 1 or match[1] in axes:
            raise ValueError(f"'{text}' is no mesh; expected for example dp=2,tp=4")
        axes[match[1]] = int(match[2])
    return axes


def _error(message):
    import onnx
    return onnx.shape_inference.InferenceError(message)


def _axis_size(text):
    """The ranks along "tp" or "tp:(1)2"; None without a mesh."""
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)(?::\((\d+)\)(\d+))?\s*", text)
    if not match:
        raise _error(f"'{text}' is no axis of a mesh")
    name, before, size = match.groups()
    if _mesh is None:
        return int(size) if size else None
    if name not in _mesh:
        raise _error(f"there is no axis '{name}'; the mesh has " + ", ".join(_mesh))
    if size and (int(size) < 1 or _mesh[name] % (int(before) * int(size))):
        raise _error(f"'{text}' is no part of axis '{name}' of size {_mesh[name]}")
    return int(size) if size else _mesh[name]


def _product(sizes):
    return None if None in sizes else math.prod(sizes)


def _text(context, name, default=""):
    attribute = context.get_attribute(name)
    return attribute.s.decode() if attribute is not None else default


def _number(context, name, default=0):
    attribute = context.get_attribute(name)
    return attribute.i if attribute is not None else default


def _group(context):
    """The number of ranks of the node's group; None: not known."""
    text, lists = _text(context, "group"), context.get_attribute("groups")
    if lists is not None and lists.strings:
        if text:
            raise _error("'group' and 'groups' are two words for one thing")
        groups = [[int(rank) for rank in entry.decode().split(",")] for entry in lists.strings]
        if len({len(group) for group in groups}) != 1:
            raise _error("groups have different sizes")
        return len(groups[0])
    if text:
        names = [part.strip() for part in text.split(",")]
        if len(set(names)) != len(names):
            raise _error(f"group '{text}' names an axis twice")
        return _product([_axis_size(name) for name in names])
    return _ranks()


def _shape(context, index=0):
    """Dims of an input, None where one is not known; None: nothing is."""
    kind = context.get_input_type(index)
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else None
            for dim in kind.tensor_type.shape.dim]


def _give(context, shape, index=0, source=None):
    """Says the shape of an output, whose elements are those of an input."""
    import onnx
    kind = context.get_input_type(index if source is None else source)
    if kind is None:
        return
    made = onnx.TypeProto()
    made.tensor_type.elem_type = kind.tensor_type.elem_type
    if shape is not None:
        made.tensor_type.shape.SetInParent()
        for extent in shape:
            dim = made.tensor_type.shape.dim.add()
            if extent is not None:
                dim.dim_value = extent
    context.set_output_type(index, made)


def _dim(context, name, shape):
    axis = _number(context, name)
    if shape is not None and not -len(shape) <= axis < len(shape):
        raise _error(f"{name} {axis} is no dim of a tensor of rank {len(shape)}")
    return axis if shape is None or axis >= 0 else axis + len(shape)


def _reduction(context):
    word = _text(context, "op", "sum")
    if word not in _REDUCTIONS:
        raise _error(f"op '{word}' is none of " + ", ".join(_REDUCTIONS))


def _divided(extent, count, dim):
    if extent is None or count is None:
        return None
    if extent % count:
        raise _error(f"dim {dim} of size {extent} is not divided by the {count} ranks of its "
                     "group")
    return extent // count


def _multiplied(extent, count):
    return None if extent is None or count is None else extent * count


def _all_reduce(context):
    _reduction(context)
    _group(context)
    _give(context, _shape(context))


def _all_gather(context):
    shape, count = _shape(context), _group(context)
    axis = _dim(context, "axis", shape)
    if shape is not None:
        shape[axis] = _multiplied(shape[axis], count)
    _give(context, shape)


def _reduce_scatter(context):
    _reduction(context)
    shape, count = _shape(context), _group(context)
    axis = _dim(context, "axis", shape)
    if shape is not None:
        shape[axis] = _divided(shape[axis], count, axis)
    _give(context, shape)


def _all_to_all(context):
    shape, count = _shape(context), _group(context)
    split, concat = _dim(context, "split_dim", shape), _dim(context, "concat_dim", shape)
    said = context.get_attribute("split_count")
    if said is not None and count is not None and said.i != count:
        raise _error(f"split_count {said.i} is not the size of its group, {count}")
    if shape is not None:
        shape[split] = _divided(shape[split], count, split)
        shape[concat] = _multiplied(shape[concat], count)
    _give(context, shape)


def _broadcast(context):
    one, several = context.get_attribute("root_rank"), context.get_attribute("root_ranks")
    if (one is None) == (several is None):
        raise _error("expected one of root_rank and root_ranks")
    ranks = _ranks()
    for root in [one.i] if one is not None else several.ints:
        if root < 0 or (ranks is not None and root >= ranks):
            raise _error(f"root {root} is no rank of the mesh")
    _group(context)
    for index in range(context.get_num_inputs()):
        _give(context, _shape(context, index), index)


def _ranks():
    """The number of ranks; None without a mesh."""
    return math.prod(_mesh.values()) if _mesh is not None else None


def _numbers(name, text):
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise _error(f"{name} has '{text}', which is no list of numbers") from None


def _by_rank(context, name, count=None):
    """The lists of numbers of every rank. An attribute has one type in a schema, so that
    lists of numbers, which are those of all ranks, are none."""
    attribute = context.get_attribute(name)
    if attribute is None:
        raise _error(f"expected {name}")
    lists = [_numbers(name, entry.decode()) for entry in attribute.strings]
    if not lists or (_mesh is not None and len(lists) != _ranks()):
        raise _error(f"{name} has {len(lists)} lists; expected one for each rank")
    for numbers in lists:
        if count is not None and len(numbers) != count:
            raise _error(f"{name} has {len(numbers)} numbers, expected {count}")
    return lists


def _peers(context, name, count):
    lists = _by_rank(context, name, count)
    for peer in (peer for numbers in lists for peer in numbers):
        if peer < -1 or (_mesh is not None and peer >= _ranks()):
            raise _error(f"{name} has {peer}, which is neither -1 nor a rank of the mesh")
    return lists


def _said_shapes(context, name, count):
    attribute = context.get_attribute(name)
    if attribute is None:
        return None
    shapes = [_numbers(name, entry.decode()) for entry in attribute.strings]
    if len(shapes) != count:
        raise _error(f"{name} has {len(shapes)} shapes, expected {count}")
    if any(extent < 0 for shape in shapes for extent in shape):
        raise _error(f"{name} has a dim of a negative size")
    return shapes


def _exchange(context):
    inputs, outputs = context.get_num_inputs(), context.get_num_outputs()
    _group(context)
    _peers(context, "send_rank_ids", inputs)
    _peers(context, "recv_rank_ids", outputs)
    sent = [_shape(context, index) for index in range(inputs)]
    for shape, said in zip(sent, _said_shapes(context, "send_shapes", inputs) or sent):
        if shape is not None and None not in shape and shape != said:
            raise _error(f"send_shapes has {said} for an input of shape {shape}")
    # Outputs of several shapes are known to whoever sees the neighbours' files.
    common = sent[0] if all(shape == sent[0] for shape in sent) else None
    given = _said_shapes(context, "recv_shapes", outputs) or [common] * outputs
    for index, shape in enumerate(given):
        _give(context, shape, index, source=0)


def _border_exchange(context):
    _group(context)
    _peers(context, "send_rank_ids", 8)
    receives = _peers(context, "recv_rank_ids", 8)
    _by_rank(context, "send_lens", 4)
    lengths = _by_rank(context, "recv_lens", 4)
    layout = _text(context, "format", _text(context, "data_format", "NCHW"))
    if layout != "NCHW":
        raise _error(f"format '{layout}' is not NCHW")
    shape = _shape(context)
    if shape is None:
        return _give(context, None)
    if len(shape) != 4:
        raise _error(f"expected a tensor NCHW, got one of rank {len(shape)}")
    for side, (direction, dim) in enumerate(((0, 2), (4, 2), (6, 3), (2, 3))):
        # A side that some rank receives is there on all of them.
        taken = {lens[side] for peers, lens in zip(receives, lengths) if peers[direction] >= 0}
        if len(taken) > 1:
            raise _error(f"recv_lens has {sorted(taken)} for one side, and results have one "
                         "shape")
        if shape[dim] is not None:
            shape[dim] += sum(taken)
    _give(context, shape)


def _parse_layout(text):
    """[[(size, ranks)]] by dim and factor of "[{8: dp}*{3}, {6}]"."""
    match = re.fullmatch(r"\[(.*)\]", text.strip())
    if not match:
        raise _error(f"'{text}' is no layout; expected for example [{{8: dp}}, {{6}}]")
    dims = []
    body = match[1].strip()
    factor = r"\{\s*\d+\s*(?::[^{}]*)?\}"
    dim = rf"{factor}(?:\s*\*\s*{factor})*"
    if body and not re.fullmatch(rf"{dim}(?:\s*,\s*{dim})*", body):
        raise _error(f"'{text}' is no layout of dims that are divided evenly")
    for part in re.findall(dim, body):
        dims.append([])
        for size, axes in re.findall(r"\{\s*(\d+)\s*(?::([^{}]*))?\}", part):
            count = _product([_axis_size(axis) for axis in axes.split(",")] if axes else [1])
            if count is not None and int(size) % count:
                raise _error(f"{size} elements are not divided by {count} ranks in '{text}'")
            dims[-1].append((int(size), count))
    return dims


def _shapes_of(layout):
    whole = [math.prod(size for size, _ in dim) for dim in layout]
    local = [_product([None if count is None else size // count for size, count in dim])
             for dim in layout]
    return whole, local


def _layout_op(enters):
    def infer(context):
        text = _text(context, "layout")
        whole, local = _shapes_of(_parse_layout(text))
        taken, given = (whole, local) if enters else (local, whole)
        shape = _shape(context)
        if shape is not None and (len(shape) != len(taken) or any(
                a is not None and b is not None and a != b for a, b in zip(shape, taken))):
            raise _error(f"its operand of shape {shape} does not fit layout {text}, of which "
                         f"it would have shape {taken}")
        _give(context, given)
    return infer


def _value(context):
    if not _text(context, "value"):
        raise _error("expected the name of a value")
    ranks = context.get_attribute("ranks")
    # Ranks are those of the pipeline, of which the mesh is one stage's.
    if ranks is not None and (not ranks.ints or min(ranks.ints) < 0
                              or len(set(ranks.ints)) != len(ranks.ints)):
        raise _error(f"{list(ranks.ints)} is no list of ranks")


def _send(context):
    _value(context)
    _give(context, _shape(context))


def _receive(context):
    import onnx
    _value(context)
    shape, number = context.get_attribute("shape"), _number(context, "type")
    if shape is None or any(extent < 0 for extent in shape.ints):
        raise _error("expected the shape of what is received")
    try:
        name = onnx.TensorProto.DataType.Name(number).lower()
    except ValueError:
        name = ""
    if f"tensor({name})" not in _ALL:
        raise _error(f"type {number} is no type of elements")
    made = onnx.TypeProto()
    made.tensor_type.elem_type = number
    made.tensor_type.shape.SetInParent()
    for extent in shape.ints:
        made.tensor_type.shape.dim.add().dim_value = extent
    context.set_output_type(0, made)


def _collective(context):
    operation = _text(context, "collective_operation").lower()
    if operation not in _COLLECTIVES:
        raise _error(f"collective_operation '{operation}' is not known")
    reduction = _text(context, "reduce_op", "none").lower()
    reduces = operation in ("all_reduce", "reduce_scatter", "reduce")
    if reduction not in (_REDUCTIONS + ("avg",) if reduces else ("none",)):
        raise _error(f"reduce_op '{reduction}' does not go with {operation}")
    ranks, said = context.get_attribute("groups"), _number(context, "nb_rank")
    count = len(ranks.ints) if ranks is not None and ranks.ints else said
    if count < 1:
        raise _error("neither nb_rank nor groups says how many ranks there are")
    for name, number in (("nb_rank", said if said > 1 else count),
                         ("group_size", _number(context, "group_size") or count)):
        if number != count:
            raise _error(f"{name} {number} is not the size of its group, {count}")
    if operation in ("broadcast", "reduce", "gather", "scatter"):
        root = _number(context, "root", -1)
        if root < 0 or (ranks is not None and ranks.ints and root not in ranks.ints):
            raise _error(f"root {root} is no rank of its group")
    shape = _shape(context)
    if shape == [] and operation not in ("all_reduce", "reduce", "broadcast"):
        raise _error(f"a scalar has no rows to {operation}")
    if shape:
        if operation in ("all_gather", "gather"):
            shape[0] = _multiplied(shape[0], count)
        elif operation in ("reduce_scatter", "scatter"):
            shape[0] = _divided(shape[0], count, 0)
        elif operation == "all_to_all":
            _divided(shape[0], count, 0)
    _give(context, shape)


def _ort(operation):
    def infer(context):
        shape, count = _shape(context), _number(context, "group_size", 1)
        if operation != "AllReduce" and count < 1:
            raise _error(f"group_size {count} is no number of ranks")
        if operation == "AllGather":
            axis = _dim(context, "axis", shape)
            if shape is not None:
                shape[axis] = _multiplied(shape[axis], count)
        if operation == "AllToAll" and shape is not None:
            _divided(shape[0], count, 0)
        _give(context, shape)
    return infer


def _schemas():
    from onnx.defs import OpSchema
    kind = OpSchema.AttrType

    def make(domain, name, doc, infer, attributes, types=_ALL, variadic=False, begins=False):
        option = (OpSchema.FormalParameterOption.Variadic if variadic else
                  OpSchema.FormalParameterOption.Single)
        inputs = [OpSchema.FormalParameter("x", "T", param_option=option,
                                           is_homogeneous=not variadic)]
        outputs = [OpSchema.FormalParameter("y", "T", param_option=option,
                                            is_homogeneous=not variadic)]
        listed = [OpSchema.Attribute(attribute, getattr(kind, word.rstrip("!")), "",
                                     required=word.endswith("!"))
                  for attribute, word in attributes.items()]
        if begins:  # values that the rank has made before it waits, of any types
            inputs = [OpSchema.FormalParameter(
                "after", "A", param_option=OpSchema.FormalParameterOption.Variadic,
                is_homogeneous=False, min_arity=0)]
        schema = OpSchema(name, domain, 1, doc, inputs=inputs, outputs=outputs,
                          type_constraints=[("T", types, ""), *[("A", _ALL, "")] * begins],
                          attributes=listed)
        schema.set_type_and_shape_inference_function(infer)
        return schema

    group = {"group": "STRING", "groups": "STRINGS"}
    yield make(DOMAIN, "AllReduce", "The reduction of all x of the group.", _all_reduce,
               {"op": "STRING", **group}, _REDUCED)
    yield make(DOMAIN, "AllGather", "All x of the group behind each other along axis.",
               _all_gather, {"axis": "INT", **group})
    yield make(DOMAIN, "ReduceScatter", "The rank's block along axis of the reduction.",
               _reduce_scatter, {"op": "STRING", "axis": "INT", **group}, _REDUCED)
    yield make(DOMAIN, "AlltoAll", "Block i along split_dim goes to member i.", _all_to_all,
               {"split_dim": "INT", "concat_dim": "INT", "split_count": "INT", **group})
    yield make(DOMAIN, "Broadcast", "Of each input that of the root.", _broadcast,
               {"root_rank": "INT", "root_ranks": "INTS", **group}, variadic=True)
    lists = {"send_rank_ids": "STRINGS!", "recv_rank_ids": "STRINGS!", **group}
    yield make(DOMAIN, "NeighborExchange", "The tensors that other ranks send to this one.",
               _exchange, {"send_shapes": "STRINGS", "recv_shapes": "STRINGS",
                           "recv_type": "INT", **lists}, variadic=True)
    yield make(DOMAIN, "NeighborExchangeV2", "An image with borders of its neighbours around.",
               _border_exchange, {"send_lens": "STRINGS!", "recv_lens": "STRINGS!",
                                  "format": "STRING", "data_format": "STRING", **lists})
    yield make(DOMAIN, "ToLocal", "This rank's part of a tensor that all ranks have.",
               _layout_op(True), {"layout": "STRING!"})
    yield make(DOMAIN, "ToGlobal", "The tensor of which each rank has a part.",
               _layout_op(False), {"layout": "STRING!"})
    yield make(DOMAIN, "Send", "What other stages receive, as it is.", _send,
               {"value": "STRING!", "ranks": "INTS"})
    yield make(DOMAIN, "Receive", "What another stage sends.", _receive,
               {"value": "STRING!", "shape": "INTS!", "type": "INT!", "ranks": "INTS"},
               begins=True)
    microsoft = "com.microsoft"
    yield make(microsoft, "AllReduce", "The sum of all x.", _ort("AllReduce"), {}, _REDUCED)
    yield make(microsoft, "AllGather", "All x behind each other along axis.",
               _ort("AllGather"), {"axis": "INT", "group_size": "INT!"})
    yield make(microsoft, "AllToAll", "Blocks along dim 0 are exchanged.", _ort("AllToAll"),
               {"group_size": "INT!"})
    yield make("", "DistCollective", "A collective of TensorRT, along dim 0.", _collective,
               {"collective_operation": "STRING!", "reduce_op": "STRING", "root": "INT",
                "group_size": "INT", "nb_rank": "INT", "groups": "INTS"})


def register_onnx_schemas(mesh=None):
    """Lets onnx know the operators of files per rank, and which mesh they speak of. Calling
    it again changes the mesh."""
    global _registered, _mesh
    axes = None if mesh is None else _parse_mesh(mesh)
    if not _registered:
        import onnx
        for schema in _schemas():
            onnx.defs.register_schema(schema)
            # The registry outlives the interpreter, and schemas have functions of it.
            atexit.register(onnx.defs.deregister_schema, schema.name, schema.since_version,
                            schema.domain)
        _registered = True
    _mesh = axes
