"""The compiler in this process: requests to libpartita_compiler (docs/requests.md)."""

import ctypes
import json
import os
import tempfile
import threading

from ._library import PartitaError, load

#: Options that are files, and may be given as what the files hold.
_DOCUMENTS = ("hints", "cluster", "train", "plan")

_library = None


def _lib():
    global _library
    if _library is None:
        library = load("PARTITA_COMPILER", "libpartita_compiler.so")
        library.partita_request.restype = ctypes.c_void_p
        library.partita_request.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)]
        library.partita_release.restype = None
        library.partita_release.argtypes = [ctypes.c_void_p]
        _library = library
    return _library


class Cancel:
    """Ends requests that were made with it: `cancel()` from any thread. They raise
    PartitaError "cancelled" and leave no files."""

    def __init__(self):
        self._flag = ctypes.c_int(0)

    def cancel(self):
        self._flag.value = 1


def _bindings(values):
    """{"x": (1, 128)} or {"x": "x.npy"} or ["x=1,128"] as the texts of the command line."""
    if values is None:
        return None
    if not hasattr(values, "items"):
        return list(values)
    text = lambda value: (os.fspath(value) if isinstance(value, (str, os.PathLike)) else
                          ",".join(map(str, value)) if hasattr(value, "__iter__") else
                          str(value))
    return [f"{name}={text(value)}" for name, value in values.items()]


def _call(request, cancel):
    """One request, in a thread of its own, so that Ctrl-C ends it."""
    text, answers = json.dumps(request).encode(), []

    def work():
        pointer = _lib().partita_request(text, ctypes.byref(cancel._flag))
        answers.append(ctypes.string_at(pointer))
        _lib().partita_release(pointer)

    _lib()  # an error of loading belongs to the caller
    thread = threading.Thread(target=work)
    thread.start()
    try:
        thread.join()
    except BaseException:
        cancel.cancel()
        thread.join()
        raise
    answer = json.loads(answers[0])
    if "error" in answer:
        error = answer["error"]
        raise PartitaError(error["message"], error.get("node"), error.get("dim"),
                           error.get("hint"))
    return answer["result"]


def _request(command, cancel, **options):
    request = {"command": command}
    with tempfile.TemporaryDirectory(prefix="partita-request-") as folder:
        for name, value in options.items():
            if value is None:
                continue
            if name in ("shapes", "constants"):
                value = _bindings(value)
            elif name in _DOCUMENTS and hasattr(value, "items"):
                path = os.path.join(folder, name + ".json")
                with open(path, "w") as file:
                    json.dump(value, file)
                value = path
            elif isinstance(value, os.PathLike):
                value = os.fspath(value)
            request[name] = value
        return _call(request, cancel or Cancel())


def compile(model, output, *, cancel=None, **options):
    """Compiles an ONNX file into a bundle, as `partita compile`. Options are those of the
    command with underscores: mesh="dp=2,tp=4", mode, hints, cluster, memory, plan, train,
    stages, groups, micro_batches, schedule, threads, target, target_cpu, force, states,
    compute ("bf16", "f16"), keep_f32, accuracy_level (4), copy_weights, hash_weights;
    shapes={"x": (1, 128)} and constants={"n": "n.npy"}. hints, cluster, train and plan may
    be dicts. A list of meshes makes a world of each
    (docs/elastic.md). A list of files is a program per rank (docs/rank-files.md). Returns a dict: bundle, notes, seconds, memory, received_bytes."""
    files = list(model) if isinstance(model, (list, tuple)) else [model]
    if len(files) > 1:
        options["other_ranks"] = [os.fspath(file) for file in files[1:]]
    return _request("compile", cancel, model=files[0], output=output, **options)


def plan(model, *, cancel=None, **options):
    """Searches the fastest plan, as `partita plan`: cluster, mesh, memory, hints, train,
    shapes, axes, time_limit, work, overlap, output… Returns a dict: text, plan."""
    return _request("plan", cancel, model=model, **options)


def report(bundle, *, entry=None):
    """The plan of a bundle, or of a plan.json, as a dict."""
    return _request("report", None, bundle=bundle, entry=entry)


def inspect(model, *, nodes=None, weights=None, shapes=None, constants=None):
    """Inputs, operators, parameters and unsupported nodes of an ONNX file, as a dict;
    with the patterns `nodes` and `weights` lists of those."""
    return _request("inspect", None, model=model, nodes=nodes, weights=weights,
                    shapes=shapes, constants=constants)


def verify(bundle=None, *, cancel=None, **options):
    """Checks that a bundle computes what its model computes, as `partita verify`; or with
    model= and mesh= the partitioned program of a model. Returns a dict: lines, verdict,
    outputs, unchecked. A difference is a PartitaError."""
    return _request("verify", cancel, bundle=bundle, **options)
