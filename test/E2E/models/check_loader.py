#!/usr/bin/env python3
"""Checks the ONNX loader against ONNX Runtime.

    check_loader.py ONNX_NORMALIZE ZOO_DIR [--nodes] [--expand] [--verbose]

Every model is loaded and written again in canonical form by the tool onnx-normalize;
ONNX Runtime must compute the same from both files. --nodes adds the operator tests that
the onnx package carries, opset 7 to 27: what the loader must refuse (strings, sequences,
control flow, …) is counted by reason, and a wrong number anywhere is a failure.
The last line is "N passed, N failed, N skipped".
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime


class Normalizer:
    """One onnx-normalize process, asked line by line."""

    def __init__(self, tool, options):
        self.options = options
        self.process = subprocess.Popen([tool], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def __call__(self, source, target, shapes):
        bindings = self.options + [f"{name}={','.join(map(str, shape))}"
                    for name, shape in shapes.items()]
        line = "\t".join([str(source), str(target), *bindings])
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        if not answer:
            sys.exit(f"check_loader.py: onnx-normalize died on {line!r}")
        return answer


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    return onnxruntime.InferenceSession(str(path), options,
                                        providers=["CPUExecutionProvider"])


def compare(expected, actual):
    """None if equal, else one sentence. Canonical forms may round differently."""
    for index, (want, got) in enumerate(zip(expected, actual, strict=True)):
        if want.dtype != got.dtype or want.shape != got.shape:
            return (f"output {index} is {got.dtype}{list(got.shape)}, expected "
                    f"{want.dtype}{list(want.shape)}")
        if want.dtype.kind in "biu":
            if not np.array_equal(want, got):
                return f"output {index} differs in {(want != got).sum()} elements"
            continue
        rtol, atol = (2e-3, 2e-3) if want.dtype.itemsize == 2 else (1e-4, 1e-5)
        # Masked scores are -inf by ONNX's definition and the lowest number of the type in
        # ONNX Runtime's fused kernel: both mean "nothing".
        want, got = (np.clip(a.astype(np.float64), -1e30, 1e30) for a in (want, got))
        if not np.allclose(want, got, rtol, atol, equal_nan=True):
            return f"output {index} differs by {np.nanmax(np.abs(want - got))}"
    return None


def load_inputs(folder, pattern="input_*.pb"):
    files = sorted(folder.glob(pattern), key=lambda f: int(re.findall(r"\d+", f.name)[-1]))
    tensors = [onnx.load_tensor(str(file)) for file in files]
    return [onnx.numpy_helper.to_array(tensor) for tensor in tensors]


class Tally:
    def __init__(self, verbose):
        self.passed = self.failed = 0
        self.skipped = collections.Counter()
        self.verbose = verbose

    def skip(self, reason, name):
        self.skipped[reason] += 1
        if self.verbose:
            print(f"skip {name}: {reason}")

    def finish(self, problem, name):
        if problem:
            self.failed += 1
            print(f"FAIL {name}: {problem}", flush=True)
        else:
            self.passed += 1


def check(name, source, feeds, shapes, normalize, scratch, tally, must_load):
    target = scratch / "canonical.onnx"
    target.unlink(missing_ok=True)
    answer = normalize(source, target, shapes)
    if answer != "ok":
        reason = re.sub(r"'[^']*'", "'…'", answer)
        if must_load:
            tally.finish(answer, name)
        else:
            tally.skip("refused: " + reason, name)
        return
    try:
        original = session(source)
        expected = original.run(None, feeds)
    except Exception:
        # The operator tests have the right answer beside them.
        try:
            expected = load_inputs(source.parent / "test_data_set_0", "output_*.pb")
            session(target).run(None, feeds)
        except Exception:
            expected = []
        if not expected:
            tally.skip("ONNX Runtime cannot run it", name)
            return
    try:
        actual = session(target).run(None, feeds)
    except Exception as error:
        tally.finish(f"ONNX Runtime: {str(error)[:300]}", name)
        return
    tally.finish(compare(expected, actual), name)


def check_zoo(folder, normalize, scratch, tally):
    cases = sorted(folder.glob("*/case.json"))
    if not cases:
        sys.exit(f"check_loader.py: no models in {folder} (run zoo.py)")
    for case_file in cases:
        case = json.loads(case_file.read_text())
        inputs = load_inputs(case_file.parent / "inputs")
        feeds = dict(zip(case["inputs"], inputs, strict=True))
        check(case["name"], case_file.parent / "model.onnx", feeds, case["shapes"],
              normalize, scratch, tally, must_load=True)


def check_nodes(normalize, scratch, tally):
    data = pathlib.Path(onnx.__file__).parent / "backend/test/data"
    for folder in sorted([*data.glob("node/test_*"), *data.glob("simple/test_*"),
                          *data.glob("pytorch-*/test_*")]):
        source = folder / "model.onnx"
        model = onnx.load(source)
        opsets = {o.domain: o.version for o in model.opset_import}
        if not 7 <= opsets.get("", 0) <= 27:
            tally.skip("opset older than 7 or not standard", folder.name)
            continue
        try:
            arrays = load_inputs(folder / "test_data_set_0")
        except Exception:
            tally.skip("inputs are not plain tensors", folder.name)
            continue
        constants = {tensor.name for tensor in model.graph.initializer}
        names = [v.name for v in model.graph.input if v.name not in constants]
        if len(names) != len(arrays) or any(a.dtype.kind not in "biuf" for a in arrays):
            tally.skip("inputs are not plain tensors", folder.name)
            continue
        feeds = dict(zip(names, arrays))
        shapes = {name: list(array.shape) for name, array in feeds.items()}
        check(folder.name, source, feeds, shapes, normalize, scratch, tally,
              must_load=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("tool")
    parser.add_argument("zoo", type=pathlib.Path)
    parser.add_argument("--nodes", action="store_true")
    parser.add_argument("--expand", action="store_true",
                        help="expand every operator that has a function body")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    tally = Tally(arguments.verbose)
    normalize = Normalizer(arguments.tool, ["--expand"] * arguments.expand)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        check_zoo(arguments.zoo, normalize, scratch, tally)
        if arguments.nodes:
            check_nodes(normalize, scratch, tally)
    for reason, count in tally.skipped.most_common():
        print(f"skipped {count}: {reason}")
    print(f"{tally.passed} passed, {tally.failed} failed, "
          f"{sum(tally.skipped.values())} skipped")
    sys.exit(1 if tally.failed else 0)


main()
