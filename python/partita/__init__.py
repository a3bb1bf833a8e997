"""Compile ONNX models for many ranks, and run the bundles on NumPy arrays.

    import partita
    partita.compile("model.onnx", "bundle", mesh="dp=2,tp=2")
    with partita.Session("bundle") as session:
        outputs = session.run({"x": x})        # {"y": array}

A thin wrapper of libpartita_runtime and libpartita_compiler (ctypes, nothing to build). The
libraries are looked for in $PARTITA_RUNTIME and $PARTITA_COMPILER (paths), in lib/ beside this
file, in build/*/lib of a source tree, and by the system's loader. bf16 tensors are uint16
arrays of the raw bits, as NumPy has no such type.
"""

import ctypes
import math
import os
import threading
import warnings

import numpy

from ._compiler import Cancel, compile, inspect, plan, report, verify
from ._library import PartitaError, load
from ._shard import Sharded, shard
from .onnx_schemas import register_onnx_schemas

__all__ = ["Cancel", "PartitaError", "Session", "Sharded", "compile", "inspect", "plan",
           "register_onnx_schemas", "report", "shard", "verify", "version"]

# Names that the compiler gives to what evaluates (docs/training.md).
_EVALUATION, _ROW_WEIGHTS = "evaluate", "row_weights"

_DTYPES = {
    "f32": numpy.float32, "f64": numpy.float64, "f16": numpy.float16,
    "bf16": numpy.uint16, "i8": numpy.int8, "i16": numpy.int16, "i32": numpy.int32,
    "i64": numpy.int64, "u8": numpy.uint8, "u16": numpy.uint16, "u32": numpy.uint32,
    "u64": numpy.uint64, "bool": numpy.bool_,
}


class _TensorInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                ("rank", ctypes.c_size_t), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("bytes", ctypes.c_size_t)]


class _Shape(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("rank", ctypes.c_size_t),
                ("shape", ctypes.POINTER(ctypes.c_int64))]


class _LoadOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("entry", ctypes.c_char_p),
                ("transport", ctypes.c_char_p), ("timeout", ctypes.c_double),
                ("threads", ctypes.c_int), ("weights_dir", ctypes.c_char_p),
                ("no_check", ctypes.c_int)]


def _open():
    library = load("PARTITA_RUNTIME", "libpartita_runtime.so")
    session, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    info = ctypes.POINTER(_TensorInfo)
    for name, result, arguments in [
            ("version", text, []),
            ("load", session, [text, ctypes.POINTER(_LoadOptions)]),
            ("free", None, [session]),
            ("error", text, [session]),
            ("num_ranks", size, [session]),
            ("num_entries", size, [session]),
            ("entry_name", text, [session, size]),
            ("use_entry", ctypes.c_int, [session, text]),
            ("fit_entry", ctypes.c_int, [session, ctypes.POINTER(_Shape), size,
                                         ctypes.c_int]),
            ("entry_in_use", size, [session]),
            ("num_inputs", size, [session]),
            ("num_outputs", size, [session]),
            ("input_info", ctypes.c_int, [session, size, info]),
            ("output_info", ctypes.c_int, [session, size, info]),
            ("output_shape", ctypes.c_int, [session, size, info]),
            ("bind_input", ctypes.c_int, [session, text, ctypes.c_void_p, size]),
            ("bind_output", ctypes.c_int, [session, text, ctypes.c_void_p, size]),
            ("num_states", size, [session]),
            ("state_info", ctypes.c_int, [session, size, info]),
            ("read_state", ctypes.c_int, [session, text, ctypes.c_void_p, size]),
            ("write_state", ctypes.c_int, [session, text, ctypes.c_void_p, size]),
            ("reset_states", ctypes.c_int, [session]),
            ("save_states", ctypes.c_int, [session, text]),
            ("load_states", ctypes.c_int, [session, text]),
            ("save_checkpoint", ctypes.c_int,
             [session, text, ctypes.c_int64, ctypes.c_int64]),
            ("wait_checkpoint", ctypes.c_int, [session]),
            ("load_checkpoint", ctypes.c_int,
             [session, text, ctypes.POINTER(ctypes.c_int64)]),
            ("skipped_checkpoints", text, [session]),
            ("run", ctypes.c_int, [session])]:
        function = getattr(library, "partita_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_library = None


def _lib():
    global _library
    if _library is None:
        _library = _open()
    return _library


def version():
    """The version of the loaded runtime library."""
    return _lib().partita_version().decode()


def __getattr__(name):
    if name == "__version__":
        return version()
    raise AttributeError(f"module 'partita' has no attribute {name!r}")


class Session:
    """A loaded bundle. `inputs` and `outputs` map names to (dtype, shape). Where a model
    gives as many elements as the data say, that is the largest shape, and `run` returns
    arrays of what there is.

    A bundle of several entry points loads them all, unless `entry` names one: `entries`
    maps their names to their inputs. `run` uses the one that takes arrays of these shapes,
    and `entry`, `inputs` and `outputs` are those of the last. `run(…, pad=True)` takes
    shorter ones too.

    `weights_dir` is searched first for files of the model that the bundle refers to.
    Without `check`, blocks of weight files are not compared with their hashes.

    Threads may share a session: their requests run one after the other. A process made by
    fork() has to load the bundle itself."""

    def __init__(self, bundle, entry=None, transport="local", timeout=60.0, threads=0,
                 weights_dir=None, check=True):
        self._handle = None
        self._lock = threading.Lock()
        self._process = os.getpid()
        options = _LoadOptions(ctypes.sizeof(_LoadOptions),
                               None if entry is None else entry.encode(),
                               transport.encode(), timeout, threads,
                               None if weights_dir is None else os.fsencode(weights_dir),
                               not check)
        self._handle = _lib().partita_load(os.fsencode(bundle), ctypes.byref(options))
        if not self._handle:
            raise PartitaError(_lib().partita_error(None).decode())
        self.num_ranks = _lib().partita_num_ranks(self._handle)
        self.entries = {}
        names = [_lib().partita_entry_name(self._handle, index).decode()
                 for index in range(_lib().partita_num_entries(self._handle))]
        self._names = names
        for name in reversed(names):
            self._use(name)
            self.entries[name] = self.inputs
        self.states = self._infos(_lib().partita_num_states, _lib().partita_state_info)

    def _use(self, name):
        self._check(_lib().partita_use_entry(self._handle, name.encode()))
        self.entry = name
        self._padded = False
        self._look()

    def _look(self):
        self.inputs = self._infos(_lib().partita_num_inputs, _lib().partita_input_info)
        self.outputs = self._infos(_lib().partita_num_outputs, _lib().partita_output_info)

    def _choose(self, inputs, pad):
        """Uses the entry that takes these shapes; a single one says itself what is wrong."""
        shapes = {name: numpy.shape(value) for name, value in inputs.items()}
        known = all(shapes.get(name, shape) == shape
                    for name, (_, shape) in self.inputs.items())
        if known and (pad or not self._padded):
            return
        if len(self.entries) == 1 and not pad:
            return self._use(self.entry)
        extents = [(ctypes.c_int64 * len(shape))(*shape) for shape in shapes.values()]
        given = (_Shape * len(shapes))(
            *[_Shape(name.encode(), len(values), values)
              for name, values in zip(shapes, extents)])
        self._check(_lib().partita_fit_entry(self._handle, given, len(shapes), pad))
        self.entry = self._names[_lib().partita_entry_in_use(self._handle)]
        self._look()
        self._padded = self.inputs != self.entries[self.entry]

    def _infos(self, count, get):
        result = {}
        for index in range(count(self._handle)):
            info = _TensorInfo()
            get(self._handle, index, ctypes.byref(info))
            shape = tuple(info.shape[i] for i in range(info.rank))
            result[info.name.decode()] = (numpy.dtype(_DTYPES[info.dtype.decode()]), shape)
        return result

    def _check(self, status):
        if status:
            raise PartitaError(_lib().partita_error(self._handle).decode())

    def _state(self, name):
        if self._handle is None:
            raise PartitaError("the session is closed")
        if name not in self.states:
            raise PartitaError(f"there is no state {name!r}; the states are "
                               + ", ".join(self.states))
        return self.states[name]

    def read_state(self, name):
        """A new array with the state as the last request left it."""
        dtype, shape = self._state(name)
        array = numpy.empty(shape, dtype)
        self._check(_lib().partita_read_state(self._handle, name.encode(),
                                              array.ctypes.data, array.nbytes))
        return array

    def write_state(self, name, value):
        """Sets the state for the next request."""
        dtype, shape = self._state(name)
        array = numpy.asarray(value)
        if array.dtype.newbyteorder("=") != dtype or array.shape != shape:
            raise PartitaError(f"state {name!r} is {dtype}{list(shape)}, got "
                               f"{array.dtype}{list(array.shape)}")
        array = numpy.ascontiguousarray(array, dtype=dtype)
        self._check(_lib().partita_write_state(self._handle, name.encode(),
                                               array.ctypes.data, array.nbytes))

    def reset_states(self):
        """All states become what they were before the first request."""
        if self._handle is None:
            raise PartitaError("the session is closed")
        self._check(_lib().partita_reset_states(self._handle))

    def save_states(self, path):
        """Writes all states to a safetensors file, as whole tensors."""
        if self._handle is None:
            raise PartitaError("the session is closed")
        self._check(_lib().partita_save_states(self._handle, os.fsencode(path)))

    def load_states(self, path):
        """Sets all states from such a file, whatever plan or number of ranks wrote it."""
        if self._handle is None:
            raise PartitaError("the session is closed")
        self._check(_lib().partita_load_states(self._handle, os.fsencode(path)))

    def save_checkpoint(self, folder, step, keep=3, wait=False):
        """Writes the generation `folder`/step-`step` of all states, as they are now. They
        are copied and written while requests run; with `wait` it returns when they are on
        the disk. The newest `keep` generations stay. An error of the save before is raised."""
        if self._handle is None:
            raise PartitaError("the session is closed")
        self._check(_lib().partita_save_checkpoint(self._handle, os.fsencode(folder), step,
                                                   keep))
        if wait:
            self.wait_checkpoint()

    def wait_checkpoint(self):
        """Waits until the checkpoint that is being written is on the disk."""
        if self._handle is None:
            raise PartitaError("the session is closed")
        self._check(_lib().partita_wait_checkpoint(self._handle))

    def load_checkpoint(self, folder):
        """Sets all states from the newest whole generation of a folder, whatever plan or
        number of ranks wrote it. Its step, or None where the folder has none. Warns of
        generations that are damaged."""
        if self._handle is None:
            raise PartitaError("the session is closed")
        step = ctypes.c_int64()
        self._check(_lib().partita_load_checkpoint(self._handle, os.fsencode(folder),
                                                   ctypes.byref(step)))
        for line in _lib().partita_skipped_checkpoints(self._handle).decode().splitlines():
            warnings.warn(line, stacklevel=2)
        return step.value if step.value >= 0 else None

    def run(self, inputs, pad=False):
        """Runs one request; returns {name: array} of new arrays.

        With `pad` inputs may be shorter than those of the bundle along the model's symbolic
        dims: the smallest entry into which they fit runs with zeros behind them, and outputs
        are cut to the same extents. That is right for a causal decoder, say, and wrong for a
        mean over such a dim."""
        if os.getpid() != self._process:  # its lock may be held for ever here
            raise PartitaError(f"the session belongs to process {self._process}; load the "
                               "bundle in this one")
        with self._lock:
            return self._run(inputs, pad)

    def evaluate(self, inputs):
        """The mean loss over all rows of `inputs` on the states as they are, of a training
        step whose file says `"evaluate": true`.

        `inputs` has the arrays of a step, labels among them, with any number of rows: dim 0
        of each. Labels that do not count (`ignore_index`) are left out of the mean. Nothing
        is trained, and `entry`, `inputs` and `outputs` are as before."""
        if os.getpid() != self._process:
            raise PartitaError(f"the session belongs to process {self._process}; load the "
                               "bundle in this one")
        with self._lock:
            if self._handle is None:
                raise PartitaError("the session is closed")
            before = self.entry
            try:
                return self._evaluate(inputs, before)
            finally:
                self._use(before)

    def _evaluate(self, inputs, step):
        arrays = {name: numpy.asarray(value) for name, value in inputs.items()}
        rows, batch = self._use_evaluation(arrays, step)
        total = counted = 0.0
        for begin in range(0, rows, batch):
            # The first rows fill the last batch, and do not count there.
            places = numpy.arange(begin, begin + batch)
            given = {name: array.take(places % rows, axis=0) if array.ndim else array
                     for name, array in arrays.items()}
            if _ROW_WEIGHTS in self.inputs:
                given[_ROW_WEIGHTS] = (places < rows).astype(numpy.float32)
            outputs = self._run(given, False)
            count = float(outputs.get("counted", batch))
            if count > 0:
                total, counted = total + float(outputs["loss"]) * count, counted + count
        if counted == 0:
            raise PartitaError("no label counts: all are \"ignore_index\" of the training "
                               "file")
        return total / counted

    def _use_evaluation(self, arrays, step):
        """Uses the entry that evaluates such arrays: the one beside `step` if it takes them,
        else the first that does. The number of rows, and how many a request takes."""
        own = _EVALUATION if step == "main" else f"{_EVALUATION} {step}"
        names = [name for name in self.entries
                 if name == _EVALUATION or name.startswith(f"{_EVALUATION} ")]
        failure = PartitaError(f"the session has no entry {_EVALUATION!r}; compile with "
                               '"evaluate": true in the training file, and load all entries')
        for index, name in enumerate(sorted(names, key=lambda it: it != own)):
            self._use(name)
            try:
                return self._rows(arrays)
            except PartitaError as error:
                failure = error if index == 0 else failure
        raise failure

    def _rows(self, arrays):
        """The number of rows, and how many a request takes."""
        first, rows, batch = None, 0, 0
        for name, (_, shape) in self.inputs.items():
            if name == _ROW_WEIGHTS or not shape:
                continue
            if name not in arrays:
                raise PartitaError(f"input {name!r} is missing")
            array = arrays[name]
            if array.ndim != len(shape) or array.shape[1:] != shape[1:]:
                raise PartitaError(f"input {name!r} has shape {list(array.shape)}, expected "
                                   f"rows of {list(shape[1:])}")
            if first is None:
                first, rows, batch = name, len(array), shape[0]
            elif len(array) != rows:
                raise PartitaError(f"{first!r} has {rows} rows and {name!r} {len(array)}")
        if rows == 0:
            raise PartitaError("there are no rows to evaluate on")
        if rows % batch and _ROW_WEIGHTS not in self.inputs:
            raise PartitaError(f"batches of {batch} do not divide {rows} rows, and of a loss "
                               "that the model computes it is not known what rows add to it")
        return rows, batch

    def _run(self, inputs, pad):
        if self._handle is None:
            raise PartitaError("the session is closed")
        unknown = set(inputs) - set(self.inputs)
        if unknown:
            raise PartitaError(f"there is no input {sorted(unknown)[0]!r}; the inputs are "
                               + ", ".join(self.inputs))
        self._choose(inputs, pad)
        keep = []
        for name, (dtype, shape) in self.inputs.items():
            if name not in inputs:
                raise PartitaError(f"input {name!r} is missing")
            array = numpy.asarray(inputs[name])
            if array.dtype.newbyteorder("=") != dtype or array.shape != shape:
                raise PartitaError(f"input {name!r} is {array.dtype}{list(array.shape)}, "
                                   f"expected {dtype}{list(shape)}")
            array = numpy.ascontiguousarray(array, dtype=dtype)
            keep.append(array)
            self._check(_lib().partita_bind_input(self._handle, name.encode(),
                                                  array.ctypes.data, array.nbytes))
        outputs = {name: numpy.empty(shape, dtype)
                   for name, (dtype, shape) in self.outputs.items()}
        for name, array in outputs.items():
            self._check(_lib().partita_bind_output(self._handle, name.encode(),
                                                   array.ctypes.data, array.nbytes))
        self._check(_lib().partita_run(self._handle))
        shapes = self._infos(_lib().partita_num_outputs, _lib().partita_output_shape)
        for name, (_, shape) in shapes.items():
            if shape != outputs[name].shape:  # what there is lies in the front
                flat = outputs[name].reshape(-1)
                outputs[name] = flat[:math.prod(shape)].reshape(shape)
        return outputs

    def close(self):
        """Stops the ranks and gives the memory back."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._handle:
                _lib().partita_free(self._handle)
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        self.close()
