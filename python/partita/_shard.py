"""Operator splitting as a function: a model and strategies by module in, something to call
out (docs/requests.md, Shard)."""

import os
import shutil
import tempfile

import numpy

from ._compiler import compile, inspect, report
from ._library import PartitaError


def _torch():
    """The module torch where the caller uses it; never imported for its own sake."""
    import sys
    return sys.modules.get("torch")


def _is_module(model):
    torch = _torch()
    return torch is not None and isinstance(model, torch.nn.Module)


def _array(value):
    """Tensors of torch are arrays, too, once they are on the host."""
    torch = _torch()
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    return numpy.asarray(value)


def _sentence(error):
    """Gives the first line of an error, which is its sentence; the others are its history."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _export(module, inputs, path):
    """Writes a module of torch, whose names of submodules the exporter keeps."""
    if inputs is None:
        raise PartitaError("a torch module is exported by running it: shard(…, inputs=…) "
                           "has the tensors to run it on")
    inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    torch = _torch()
    values = tuple(value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
                   for value in inputs)
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        torch.onnx.export(module, values, path, dynamo=True, external_data=False,
                          verbose=False)
    except Exception as error:
        # The innermost error is the one of the module or of the missing package.
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise PartitaError(f"torch cannot export the module {type(module).__name__}: "
                           f"{_sentence(cause)}") from error
    finally:
        for part, was_training in modes:
            part.training = was_training


def _save(model, inputs, folder):
    """The path of the model's ONNX file."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    path = os.path.join(folder, "model.onnx")
    if _is_module(model):
        _export(model, inputs, path)
    elif hasattr(model, "SerializeToString"):  # an onnx.ModelProto
        with open(path, "wb") as file:
            file.write(model.SerializeToString())
    else:
        raise PartitaError("expected the path of an ONNX file, an onnx.ModelProto or a torch "
                           f"module, got {type(model).__name__}")
    return path


def _is_layout(strategy):
    """Tells a split per dim from a list of such splits."""
    return all(entry is None or isinstance(entry, (int, str)) for entry in strategy)


def _node_hint(name, strategy):
    """The hint of a node or module."""
    if hasattr(strategy, "items"):
        return dict(strategy)
    if not isinstance(strategy, (tuple, list)):
        raise PartitaError(f"the strategy of {name!r} is a {type(strategy).__name__}; expected "
                           "a list with an entry per input, or a dict with \"in\" and \"out\"")
    if strategy and _is_layout(strategy) and any(entry is not None for entry in strategy):
        raise PartitaError(f"the strategy of {name!r} has an entry per dim; expected a list of "
                           "these, one for each input")
    return {"in": list(strategy)}


def _entries(what, strategy):
    """The list of a strategy; a text would be one of its letters."""
    if not isinstance(strategy, (tuple, list)):
        raise PartitaError(f"{what} is a {type(strategy).__name__}; expected a list")
    return list(strategy)


def _by_name(what, strategies):
    """Names and their strategies."""
    if strategies is None:
        return ()
    if not hasattr(strategies, "items"):
        raise PartitaError(f"{what} is a {type(strategies).__name__}; expected a dict by name")
    return strategies.items()


def _end_hints(which, strategy, names):
    """Hints of a model's inputs or outputs, in their order."""
    if strategy is None:
        return {}
    strategy = _entries(which, strategy)
    if len(strategy) > len(names):
        raise PartitaError(f"{which} has {len(strategy)} entries, and the model has "
                           f"{len(names)}: " + ", ".join(names))
    return {name: _entries(f"the entry of {name!r} in {which}", entry)
            for name, entry in zip(names, strategy) if entry is not None}


def _ends(path, options):
    """Names of a model's inputs and outputs in their order."""
    described = inspect(path, shapes=options.get("shapes"), constants=options.get("constants"))
    return ([entry["name"] for entry in described["inputs"]],
            [entry["name"] for entry in described["outputs"]])


def _hints(path, strategies, in_strategy, out_strategy, parameter_plan, options):
    tensors = {name: _entries(f"the entry of {name!r} in parameter_plan", entry)
               for name, entry in _by_name("parameter_plan", parameter_plan)}
    if in_strategy is not None or out_strategy is not None:
        inputs, outputs = _ends(path, options)
        tensors.update(_end_hints("in_strategy", in_strategy, inputs))
        tensors.update(_end_hints("out_strategy", out_strategy, outputs))
    nodes = {name: _node_hint(name, strategy)
             for name, strategy in _by_name("strategies", strategies)}
    return {key: value for key, value in (("nodes", nodes), ("tensors", tensors)) if value}


class Sharded:
    """A compiled model to be called with its inputs, by position or by name. It gives the
    output, or a tuple of several: NumPy arrays, or tensors of torch if it was given one.

    `session` is the partita.Session, `bundle` the folder. `close()`, or the end of a `with`,
    stops the ranks and removes what was written only for it."""

    def __init__(self, bundle, folder, **options):
        from . import Session
        self.bundle = bundle
        self._folder = folder
        self.session = Session(bundle, **options)

    def __call__(self, *values, **named):
        names = list(self.session.inputs)
        if len(values) > len(names):
            raise PartitaError(f"got {len(values)} inputs; the model has {len(names)}: "
                               + ", ".join(names))
        given = dict(zip(names, values))
        for name, value in named.items():
            if name in given:
                raise PartitaError(f"input {name!r} is given twice")
            given[name] = value
        outputs = self.session.run({name: _array(value) for name, value in given.items()})
        results = tuple(outputs.values())
        torch = _torch()
        if torch is not None and any(isinstance(v, torch.Tensor) for v in given.values()):
            results = tuple(torch.from_numpy(result) for result in results)
        return results[0] if len(results) == 1 else results

    def report(self):
        """The plan, as partita.report gives it."""
        return report(self.bundle)

    def close(self):
        """Stops the ranks, and removes the bundle unless shard() was given a place for it."""
        self.session.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def shard(model, strategies=None, *, mesh, in_strategy=None, out_strategy=None,
          parameter_plan=None, inputs=None, bundle=None, transport="local", timeout=60.0,
          **options):
    """Splits a model over the ranks of `mesh` and returns a Sharded, which is called as the
    model is.

        net = partita.shard("mlp.onnx", {"fc1": [["dp", None], [None, "tp"]],
                                         "fc2": [["dp", "tp"], ["tp", None]]},
                            mesh="dp=2,tp=2")
        y = net(x)

    `model` is the path of an ONNX file, an onnx.ModelProto, or a torch module, which
    torch.onnx exports by running it on `inputs`. `strategies` says by node or module (globs
    are allowed) how it is split: a list with an entry per input, or a dict with "in", "out"
    and "priority". An entry has one item per dim: None (open), a number of ways, an axis of
    the mesh or a list of them (docs/hints.md). `in_strategy` and `out_strategy` say the same
    of the model's inputs and outputs, in their order, `parameter_plan` of weights by name.
    All else is split so that it fits.

    `bundle` names the folder of the compiled model, which stays, with a model that was no
    file in it; without it, one is made that goes with the result. `options` are those of
    partita.compile: shapes, compute, threads…"""
    folder = tempfile.TemporaryDirectory(prefix="partita-shard-")
    try:
        path = _save(model, inputs, folder.name)
        hints = _hints(path, strategies, in_strategy, out_strategy, parameter_plan, options)
        place = os.fspath(bundle) if bundle is not None else os.path.join(folder.name, "bundle")
        if hints and options.get("hints") is not None:
            raise PartitaError("strategies become hints: give either them or hints, not both")
        if hints:
            options["hints"] = hints
        compile(path, place, mesh=mesh, **options)
        if bundle is not None and os.path.dirname(path) == folder.name:
            # Verifying and converting the bundle later need the model.
            shutil.move(path, os.path.join(place, os.path.basename(path)))
        return Sharded(place, folder, transport=transport, timeout=timeout)
    except BaseException:
        folder.cleanup()
        raise
