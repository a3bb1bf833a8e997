#!/usr/bin/env python3
"""Runs bundles of target `plain` under the address and undefined-behaviour sanitizers.

usage: run_sanitized.py PARTITA PARTITA_RUN CLANG ZOO [MODEL…]

PARTITA_RUN is built with -fsanitize=address,undefined: reading and checking the bundle,
ranks, collectives and the loops that `plain` has for engine calls. The kernels are compiled
again by CLANG, from the LLVM IR that --dump-dir writes, with the address sanitizer's
checks. While a task runs, all of the rank's blocks but the task's operands are poisoned
(lib/Runtime/Core/Sanitizer.h), so that an access beside an operand is found although
another buffer lies there.

Every model runs on two ranks and must give what ONNX Runtime gives. Then kernels of one
bundle are changed to access one element further on: each change must be found.
"""
import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile

import equality
import run_memory
import run_model

ENVIRONMENT = dict(os.environ, ASAN_OPTIONS="abort_on_error=0:exitcode=99",
                   UBSAN_OPTIONS="print_stacktrace=1")


class Failure(Exception):
    pass


def call(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300,
                          env=ENVIRONMENT)
    if done.returncode != 0:
        raise Failure(f"{' '.join(arguments)}: status {done.returncode}\n"
                      f"{done.stdout[-500:]}{done.stderr[:4000]}")
    return done.stdout


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def hash_of(data):
    """That of lib/Base/Files/Hash.cpp, by the library itself."""
    xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
    xxh3.restype = Hash128
    hashed = xxh3(data, ctypes.c_size_t(len(data)))
    return f"{hashed.high:016x}{hashed.low:016x}"


def instrument(clang, text, bundle, work):
    """Makes the bundle's only stage of this text, with checks of every access."""
    text = re.sub(r"(?m)^(attributes #\d+ = \{)", r"\1 sanitize_address", text)
    source, library = os.path.join(work, "stage.ll"), os.path.join(bundle, "stage-0.so")
    with open(source, "w") as file:
        file.write(text)
    call([clang, "-O1", "-fsanitize=address", "-shared", "-fPIC", "-w", source, "-o", library])
    with open(library, "rb") as file:
        now = hash_of(file.read())
    path = os.path.join(bundle, "bundle.json")
    with open(path) as file:
        described = json.load(file)
    described["entries"][0]["stages"][0]["hash"] = now
    with open(path, "w") as file:
        json.dump(described, file)


def compiled(arguments, model, work, *more):
    """The bundle on two ranks, and its kernels as text."""
    bundle, levels = os.path.join(work, "bundle"), os.path.join(work, "levels")
    call([arguments.partita, "compile", model, "-o", bundle, "--force", "--target", "plain",
          "--dump-dir", levels, *more])
    with open(os.path.join(levels, "stage-0.ll")) as file:
        return bundle, file.read()


def run(arguments, bundle, *more):
    return call([arguments.partita_run, bundle, "--timeout", "250", *more])


def check_model(arguments, name, mesh, how):
    folder = os.path.join(arguments.zoo, name)
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    inputs = os.path.join(folder, "inputs")
    with tempfile.TemporaryDirectory() as work:
        bundle, text = compiled(arguments, os.path.join(folder, "model.onnx"), work,
                                *run_model.shape_arguments(case), "--mesh", mesh, *how)
        instrument(arguments.clang, text, bundle, work)
        out = os.path.join(work, "out")
        run(arguments, bundle, "--inputs-dir", inputs, "--outputs-dir", out)
        wide = equality.WideResults(arguments.partita, [bundle], inputs)
        for k in range(len(case["outputs"])):
            equality.check(equality.load(os.path.join(out, f"output_{k}.pb")),
                           equality.load(os.path.join(folder, "expected", f"output_{k}.pb")),
                           wide, k, f"output {k}")


def accesses(text):
    """Of each kernel its body, and where in it addresses of elements are computed."""
    for kernel in re.finditer(r"(?ms)^define void @kernel_\d+_body\(.*?^\}", text):
        yield kernel, list(re.finditer(
            r"(?m)^  %\S+ = getelementptr [^,]*, ptr %\S+, i64 (%\S+)$", kernel.group(0)))


def check_mutations(arguments, work, most=6):
    """Changed kernels: the last access of each, which stores its result, is one element
    further on, so that the last element lies behind the operand."""
    model, folder = run_memory.make_model(work, "small", run_memory.SMALL)
    bundle, text = compiled(arguments, model, work, "--mesh", "tp=2")
    instrument(arguments.clang, text, bundle, work)
    inputs = ["--inputs-dir", os.path.join(folder, "inputs")]
    run(arguments, bundle, *inputs)
    tried = found = 0
    for kernel, places in accesses(text):
        if not places or tried == most:
            continue
        at, body = places[-1], kernel.group(0)
        index = at.group(1)
        other = (f"  %further = add i64 {index}, 1\n"
                 + at.group(0).removesuffix(index) + "%further")
        body = body[:at.start()] + other + body[at.end():]
        instrument(arguments.clang, text[:kernel.start()] + body + text[kernel.end():],
                   bundle, work)
        tried += 1
        try:
            run(arguments, bundle, *inputs)
        except Failure as failure:
            found += "AddressSanitizer: use-after-poison" in str(failure)
    if tried < 3 or found != tried:
        raise Failure(f"{tried} kernels were changed, {found} changes were found")
    return f"{tried} of {tried}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("partita_run")
    parser.add_argument("clang")
    parser.add_argument("zoo")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    failed = 0

    def check(label, what, *given):
        nonlocal failed
        try:
            print(f"ok      {label} {what(*given) or ''}".rstrip(), flush=True)
        except (Failure, equality.Unequal, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED  {label}: {error}", flush=True)

    for name in arguments.models:
        for mesh, how in (("dp=2", ["--mode", "data-parallel"]), ("tp=2", [])):
            check(f"{name} {mesh}", check_model, arguments, name, mesh, how)
    with tempfile.TemporaryDirectory() as work:
        check("accesses one element further on, found:", check_mutations, arguments, work)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
