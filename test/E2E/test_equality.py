#!/usr/bin/env python3
"""The rule of equality.py lets through what it says and nothing else."""
import unittest

import ml_dtypes
import numpy as np

import equality


class Never:
    def __getitem__(self, k):
        raise AssertionError("the f64 result is not needed here")


def array(values, dtype=np.float32):
    return np.asarray(values, dtype)


class Rule(unittest.TestCase):
    def check(self, actual, expected, exact=None):
        wide = Never() if exact is None else {0: array(exact, np.float64)}
        return equality.check(actual, expected, wide, 0, "output 0")

    def fails(self, *arguments):
        with self.assertRaises(equality.Unequal) as raised:
            self.check(*arguments)
        return str(raised.exception)

    def test_close(self):
        self.check(array([1.00009, 0]), array([1, 0.9e-5]))

    def test_one_element_is_judged_in_f64(self):
        # ONNX Runtime is 2e-5 off, we 5e-5: beyond the tolerance, within 3 times.
        text = self.check(array([5e-5, 1]), array([-2e-5, 1]), [0, 1])
        self.assertIn("ours rms 3.54e-05 largest 5e-05", text)
        self.assertIn("ONNX Runtime's rms 1.41e-05 largest 2e-05", text)

    def test_another_model(self):
        # We compute exactly what we have read, and ONNX Runtime has read something else.
        text = self.fails(array([1, 2]), array([2, 1]), [1, 2])
        self.assertIn("another model's result", text)
        text = self.fails(array([1, 2], np.float16), array([2, 1], np.float16), [1, 2])
        self.assertIn("another model's result", text)

    def test_largest_error_beyond_three_times(self):
        # The rms of many exact elements would let this through.
        theirs = array([2e-5] * 4)
        text = self.fails(array([7e-5, 0, 0, 0]), theirs, [0, 0, 0, 0])
        self.assertIn("largest 7e-05", text)

    def test_rms_beyond_three_times(self):
        # The largest alone would let this through.
        theirs = array([2e-5, 0, 0, 0])
        self.fails(array([5e-5] * 4), theirs, [0, 0, 0, 0])

    def test_exact_runtime_leaves_no_room(self):
        self.fails(array([1.01]), array([1]), [1])

    def test_nan_and_infinity(self):
        self.check(array([np.nan, np.inf]), array([np.nan, np.inf]))
        self.fails(array([np.nan, 1]), array([1, 1]), [1, 1])
        self.fails(array([np.inf, 1]), array([-np.inf, 1]), [1, 1])
        self.fails(array([np.inf, 1], np.float16), array([6e4, 1], np.float16), [7e4, 1])

    def test_integers_types_and_shapes(self):
        self.check(array([1], np.int64), array([1], np.int64))
        self.fails(array([1], np.int64), array([2], np.int64))
        self.fails(array([1], np.int32), array([1], np.int64))
        self.fails(array([1]), array([[1]]))

    def test_halves(self):
        # A unit of the scale 1.5 is 2^-10 in f16 and 2^-7 in bf16: four are allowed above
        # twice ONNX Runtime's own error, here none.
        for dtype, unit in ((np.float16, 2.0 ** -10), (ml_dtypes.bfloat16, 2.0 ** -7)):
            expected = array([1.5, 0], dtype)
            self.check(array([1.5 - 4 * unit, 0], dtype), expected, [1.5, 0])
            self.fails(array([1.5 - 5 * unit, 0], dtype), expected, [1.5, 0])
            self.check(array([1.5 - 5 * unit, 0], dtype), expected, [1.5 + unit, 0])


if __name__ == "__main__":
    unittest.main()
