#!/usr/bin/env python3
"""The ends of detectors that bench/onnxruntime/detectors.py writes: on one rank and on two,
boxes, labels and places that are kept are those of ONNX Runtime, exactly; scores are equal by
equality.py. No two scores of a class are equal, so there are no ties. Importing takes at most
3 s of the processor.

usage: run_detectors.py PARTITA [NAME…]
       run_detectors.py PARTITA --whole ZOO NAME…

--whole checks whole detectors, by hand: folders that bench/onnxruntime/torchvision_models.py
has written. Their scores come from a network, whose roundings decide near ties: of what
the model keeps in f64 at most 3% may be missing.
"""
import json
import pathlib
import resource
import shutil
import sys
import tempfile

import numpy as np
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


def feeds_of(folder):
    names = json.loads((folder / "case.json").read_text())["inputs"]
    return {name: numpy_helper.to_array(onnx.load_tensor(
                folder / "inputs" / f"input_{k}.pb")) for k, name in enumerate(names)}


def missing(ours, wanted):
    """Share of the boxes that are wanted with no such box, score and label of ours."""
    def columns(results):
        labels, = (x for x in results if x.dtype == np.int64)
        boxes, = (x for x in results if x.ndim == 2)
        scores, = (x for x in results if x.ndim == 1 and x.dtype == np.float32)
        return boxes, scores, labels
    boxes, scores, labels = columns(ours)
    lost = 0
    for box, score, label in zip(*columns(wanted)):
        near = (np.abs(boxes - box).max(1) < 0.05) & (np.abs(scores - score) < 2e-3)
        lost += not (near & (labels == label)).any()
    return lost / len(columns(wanted)[0])


def check_outputs(out, expected, wide, where):
    for k, want in enumerate(expected):
        equality.check(equality.load(out / f"output_{k}.pb"), want, wide, k,
                       f"on {where}: output {k}")


def check_whole(out, expected, wide, where):
    ours = [equality.load(out / f"output_{k}.pb") for k in range(len(expected))]
    if [x.shape for x in ours] != [x.shape for x in expected]:
        raise equality.Unequal(f"on {where}: another number of boxes is kept")
    exact = [wide[k].astype(x.dtype) for k, x in enumerate(expected)]
    share, theirs = missing(ours, exact), missing(expected, exact)
    if share > 0.03:
        raise equality.Unequal(f"on {where}: {100 * share:.1f}% of the boxes are missing")
    print(f"{out.parent.name} on {where}: of {len(exact[0])} boxes {100 * share:.1f}% are "
          f"missing, by ONNX Runtime {100 * theirs:.1f}%", flush=True)


def attempt(partita, folder, check):
    check_import(partita, folder)
    feeds = feeds_of(folder)
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
        check(out, expected, wide, where)


def main():
    partita, wanted = sys.argv[1], sys.argv[2:]
    zoo = pathlib.Path(wanted[1]) if wanted[:1] == ["--whole"] else None
    failed = 0
    taken = wanted[2:] if zoo else tier.sample(
        "detectors", [name for name in detectors.MODELS if not wanted or name in wanted])
    for name in taken:
        with tempfile.TemporaryDirectory(prefix="partita-detectors-") as work:
            folder = pathlib.Path(work) / name
            if zoo:
                shutil.copytree(zoo / name, folder)
            else:
                detectors.write(name, folder)
            try:
                attempt(partita, folder, check_whole if zoo else check_outputs)
            except equality.Unequal as error:
                failed += 1
                print(f"{name}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {len(taken) - failed} of {len(taken)} equal")
    return 1 if failed or not taken else 0


if __name__ == "__main__":
    sys.exit(main())
