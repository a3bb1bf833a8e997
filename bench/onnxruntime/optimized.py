#!/usr/bin/env python3
"""Writes the transformers of models.py as ONNX Runtime's optimizers leave them: folders for
compare.py.

usage: optimized.py MODELS OUT_DIR NAME…

MODELS is made by models.py, or by test/E2E/models/zoo.py. OUT_DIR gets NAME-runtime (ONNX
Runtime's own passes) and NAME-script (those of onnxruntime.transformers, if they find
something), of BERT with attention also NAME-script-heads. Says which operators of
com.microsoft each has.
"""
import pathlib
import shutil
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parents[2] / "test" / "E2E")]

import models as published  # noqa: E402
import run_optimized  # noqa: E402

#: Heads and width of the published sizes in models.py.
SIZES = {**dict.fromkeys(published.EXPORTED, (12, 768)),
         "t5-small-encoder": (8, 512), "whisper-tiny-encoder": (6, 384)}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    models, out = map(pathlib.Path, sys.argv[1:3])
    for name in sys.argv[3:]:
        heads = ["script-heads"] if name in run_optimized.ATTENTION else []
        for how in ("runtime", "script", *heads):
            folder = out / f"{name}-{how}"
            shutil.copytree(models / name / "inputs", folder / "inputs")
            shutil.copy(models / name / "case.json", folder)
            # ONNX Runtime's passes leave weights where they are.
            for data in (models / name).glob("*.data") if how == "runtime" else ():
                shutil.copy(data, folder)
            try:
                found = run_optimized.optimize(models / name / "model.onnx", name, how,
                                               folder / "model.onnx",
                                               SIZES.get(name, run_optimized.HEADS_WIDTH))
            except Exception as error:  # the script's own, of any kind
                print(f"{folder.name}: the optimizer fails: {error}", flush=True)
                shutil.rmtree(folder)
                continue
            print(f"{folder.name}: " + (", ".join(
                f"{count} {op}" for op, count in sorted(found.items())) or "nothing"),
                flush=True)
            if not found:
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
