"""Where the package's libraries are, and its exception."""

import ctypes
import glob
import os


class PartitaError(RuntimeError):
    """A failure of the compiler or the runtime; the message is its one sentence. Where they
    are known, `node` is the ONNX node that it is about, `dim` the dim of a value of it, and
    `hint` the place in the hints file; else they are None."""

    def __init__(self, message, node=None, dim=None, hint=None):
        super().__init__(message)
        self.node, self.dim, self.hint = node, dim, hint


def _candidates(variable, name):
    if variable in os.environ:
        yield os.environ[variable]
        return
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, "lib", name)
    yield from sorted(glob.glob(os.path.join(here, "..", "..", "build", "*", "lib", name)))
    yield name


def load(variable, name):
    """The library at the path in the environment variable, in lib/ beside this file, in
    build/*/lib of a source tree, or where the system's loader finds it."""
    reason = None
    for path in _candidates(variable, name):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reason = error
    raise PartitaError(f"{name} cannot be loaded: {reason}")
