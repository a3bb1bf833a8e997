#!/usr/bin/env python3
"""The ends of detectors that bench/onnxruntime/detectors.py writes: on one rank and on two,
boxes, labels and places that are kept are those of ONNX Runtime, exactly; scores are equal by
equality.py. No two scores of a class are equal, so there are no ties. Importing takes at most
3 s of the processor.

usage: run_detectors.py PARTITA [NAME…]
"""
import json
import pathlib
import resource
import sys
import tempfile

import onnx
import onnxruntime
from onnx import numpy_helper

import equality
import tier
from run_contrib import call

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench" / "onnxruntime"))
import detectors  # noqa: E402

IMPORT_SECONDS = 3


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_import(partita, folder):
    before = processor_seconds()
    call(partita, "compile", folder / "model.onnx", "--to", "L0", "--dump-dir",
         folder / "ir")
    taken = processor_seconds() - before
    if taken > IMPORT_SECONDS:
        raise equality.Unequal(f"importing took {taken:.1f} s of the processor")


def attempt(partita, folder, make):
    detectors.write(make, folder)
    check_import(partita, folder)
    names = json.loads((folder / "case.json").read_text())["inputs"]
    feeds = {name: numpy_helper.to_array(onnx.load_tensor(
                 folder / "inputs" / f"input_{k}.pb")) for k, name in enumerate(names)}
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"),
                                           providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    if not all(len(value) for value in expected):
        raise equality.Unequal("ONNX Runtime keeps no box")
    for mesh in ([], ["--mesh", "d=2"]):
        where = mesh[1] if mesh else "one rank"
        bundle, out = folder / f"bundle {where}", folder / f"out {where}"
        call(partita, "compile", folder / "model.onnx", "-o", bundle, *mesh)
        call(partita, "run", bundle, "--inputs-dir", folder / "inputs", "--outputs-dir", out)
        wide = equality.WideResults(partita, [str(bundle)], folder / "inputs")
        for k, want in enumerate(expected):
            equality.check(equality.load(out / f"output_{k}.pb"), want, wide, k,
                           f"on {where}: output {k}")


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    failed = 0
    taken = tier.sample("detectors", [name for name in detectors.MODELS
                                      if not wanted or name in wanted])
    for name in taken:
        with tempfile.TemporaryDirectory(prefix="partita-detectors-") as work:
            try:
                attempt(partita, pathlib.Path(work) / name, detectors.MODELS[name])
            except equality.Unequal as error:
                failed += 1
                print(f"{name}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {len(taken) - failed} of {len(taken)} equal")
    return 1 if failed or not taken else 0


if __name__ == "__main__":
    sys.exit(main())
