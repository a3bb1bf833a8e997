#!/usr/bin/env python3
"""Peak resident memory of one rank against ONNX Runtime: each in a Python process of its
own that loads the model and runs some requests, with the same inputs.

usage: memory.py PARTITA ZOO MODEL... [--threads T]

Prints what the kernel counted as the most (VmHWM), all of the process included, and the
ratio; behind it what a process has that only imports the library. ZOO is made by
models.py. PARTITA_RUNTIME names the runtime's library.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUESTS = 3


def feeds_of(folder):
    import onnx
    from onnx import numpy_helper
    with open(folder / "case.json") as file:
        names = json.load(file)["inputs"]
    return {name: numpy_helper.to_array(onnx.load_tensor(folder / "inputs" /
                                                         f"input_{k}.pb"))
            for k, name in enumerate(names)}


def peak_bytes():
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def run_child(side, folder, bundle, threads):
    """Prints the peak. Without a bundle or model, of the imports alone."""
    feeds = feeds_of(folder)
    if side == "partita":
        sys.path.insert(0, str(ROOT / "python"))
        import partita
        if bundle:
            with partita.Session(bundle, threads=threads) as session:
                for _ in range(REQUESTS):
                    session.run(feeds)
    else:
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if bundle:
            session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options,
                                                   ["CPUExecutionProvider"])
            for _ in range(REQUESTS):
                session.run(None, feeds)
    print(peak_bytes())


def child(side, folder, bundle, threads):
    command = [sys.executable, __file__, "--child", side, folder, bundle, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{folder}: {side}: {done.stderr.strip().splitlines()[-1]}")
    return int(done.stdout)


def measure(partita, folder, threads):
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    shapes = [word for key, shape in case["shapes"].items()
              for word in ("--shape", f"{key}=" + ",".join(map(str, shape)))]
    with tempfile.TemporaryDirectory() as work:
        bundle = os.path.join(work, "bundle")
        compiled = subprocess.run(
            [partita, "compile", os.path.join(folder, "model.onnx"), "-o", bundle,
             "--threads", str(threads), *shapes], capture_output=True, text=True)
        if compiled.returncode:
            raise RuntimeError(compiled.stderr.strip())
        return [child(side, folder, what, threads) for side in ("partita", "onnxruntime")
                for what in (bundle, "")]


def main():
    if sys.argv[1:2] == ["--child"]:
        side, folder, bundle, threads = sys.argv[2:]
        run_child(side, pathlib.Path(folder), bundle, int(threads))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    failed = False
    for model in arguments.models:
        try:
            ours, import1, theirs, import2 = measure(
                arguments.partita, os.path.join(arguments.zoo, model), arguments.threads)
        except (OSError, RuntimeError) as error:
            print(f"{model}: {error}", file=sys.stderr)
            failed = True
            continue
        mib = 2**20
        print(f"{model}: partita {ours / mib:.0f} MiB, ONNX Runtime {theirs / mib:.0f} MiB, "
              f"ratio {ours / theirs:.2f}; imports {import1 / mib:.0f} and "
              f"{import2 / mib:.0f} MiB", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
