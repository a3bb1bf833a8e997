"""The one rule by which results equal ONNX Runtime's (docs/architecture.md).

- Integers are equal, and so are floats of a byte and less.
- f32 and f64: every element is within rtol 1e-4 + atol 1e-5 of ONNX Runtime's. Where one
  misses that, the judge is the same model evaluated in f64: our root-mean-square error
  and our largest are at most 3 times ONNX Runtime's own. The judge reads the model as we
  do: where ONNX Runtime is farther from it than rounding explains, it has read another
  model, and the two differ.
- f16 and bf16: against the wide result, our largest error is within twice ONNX Runtime's
  own plus 4 units in the last place of the tensor's scale.

Used by the demo and the end-to-end tests. No other tolerance is an equality.
"""
import os
import shutil
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

RTOL, ATOL = 1e-4, 1e-5
#: How often ONNX Runtime's own error ours may be.
FACTOR, HALF_FACTOR = 3, 2
HALF_UNITS = 4
#: ONNX Runtime's own root-mean-square error as a part of the result's, of f32 and f64 and
#: of halves: more is no rounding.
ROUNDING, HALF_ROUNDING = 1e-2, 1e-1
#: Units in the last place at 1.
EPSILON = {"float16": 2.0 ** -10, "bfloat16": 2.0 ** -7}


class Unequal(Exception):
    """One sentence with all figures."""


class WideResults:
    """The outputs of a model in f64, evaluated when first asked for: it takes a while.

    `arguments` are those of `partita verify` that name the model: a bundle, or a file
    with its --shape options."""

    def __init__(self, partita, arguments, inputs_dir):
        self.command = [partita, "verify", *arguments, "--inputs-dir", str(inputs_dir)]
        self.outputs = {}

    def __getitem__(self, k):
        if not self.outputs:
            folder = tempfile.mkdtemp(prefix="partita-f64-")
            try:
                done = subprocess.run(self.command + ["--f64-dir", folder],
                                      capture_output=True, text=True, timeout=1200)
                if done.returncode != 0:
                    raise Unequal(f"cannot be judged in f64: {done.stderr.strip()}")
                for name in os.listdir(folder):
                    index = int(name.removeprefix("output_").removesuffix(".npy"))
                    self.outputs[index] = np.load(os.path.join(folder, name))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return self.outputs[k]


def load(path):
    return numpy_helper.to_array(onnx.load_tensor(str(path)))


def errors(values, exact):
    """Root mean square and largest."""
    difference = np.abs(values - exact)
    if not difference.size:
        return 0.0, 0.0
    return float(np.sqrt(np.mean(difference ** 2))), float(difference.max())


def judge(actual, expected, exact, what):
    """The f64 judge on floats of any width; the figures, or Unequal. Infinities and NaN
    are known to be the same in `actual` and `expected`."""
    finite = np.isfinite(expected.astype(np.float64))
    exact = exact[finite]
    ours = errors(actual[finite].astype(np.float64), exact)
    theirs = errors(expected[finite].astype(np.float64), exact)
    text = (f"against f64: ours rms {ours[0]:.3g} largest {ours[1]:.3g}, ONNX Runtime's "
            f"rms {theirs[0]:.3g} largest {theirs[1]:.3g}")
    size = float(np.sqrt(np.mean(exact ** 2))) if exact.size else 0.0
    part = HALF_ROUNDING if expected.dtype.itemsize == 2 else ROUNDING
    if theirs[0] > part * size + ATOL:
        raise Unequal(f"{what}: another model's result, {text}")
    if expected.dtype.itemsize == 2:
        scale = float(np.abs(exact).max(initial=0))
        unit = EPSILON[expected.dtype.name] * 2.0 ** np.floor(np.log2(scale or 1))
        within = ours[1] <= HALF_FACTOR * theirs[1] + HALF_UNITS * unit
        text += f", unit {unit:.3g}"
    else:
        within = all(a <= FACTOR * b for a, b in zip(ours, theirs))
    if not within:
        raise Unequal(f"{what}: differs, {text}")
    return text


def check(actual, expected, wide, k, what):
    """Compares output `k` with ONNX Runtime's; the figures as text, or Unequal.

    `wide[k]` is the output in f64; it is read only where the rule needs it."""
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        raise Unequal(f"{what}: {actual.dtype}{list(actual.shape)}, expected "
                      f"{expected.dtype}{list(expected.shape)}")
    if expected.dtype.kind in "biu":
        if not np.array_equal(expected, actual):
            raise Unequal(f"{what}: {(expected != actual).sum()} integers differ")
        return "equal"
    want, got = expected.astype(np.float64), actual.astype(np.float64)
    same = (want == got) | (np.isnan(want) & np.isnan(got))
    if expected.dtype.itemsize == 1:
        if not same.all():
            raise Unequal(f"{what}: {(~same).sum()} elements of {expected.dtype} differ")
        return "equal"
    # An infinity or NaN in one place only is no matter of rounding.
    if not same[~(np.isfinite(want) & np.isfinite(got))].all():
        raise Unequal(f"{what}: an infinity or NaN differs")
    if expected.dtype.itemsize == 2:
        return judge(actual, expected, wide[k], what)
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0, np.abs(want - got))
        close = same | (difference <= ATOL + RTOL * np.abs(want))
    text = f"largest difference {difference.max(initial=0):.3g}"
    if close.all():
        return text
    missed = f"{int((~close).sum())} of {close.size} elements beyond the tolerance, {text}"
    return missed + "; " + judge(actual, expected, wide[k], f"{what}, {missed}")
