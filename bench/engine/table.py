#!/usr/bin/env python3
"""Times of engines for single products, by kind of product, shape and instruction set.

usage: table.py BENCH_ENGINE [--newest HEADERS LIBRARIES] [--only TEXT] [--rounds N]

BENCH_ENGINE is the program of this folder, which has the packaged oneDNN and our own kernels.
--newest adds a oneDNN of any version: a folder of headers, and folders of its shared objects
(with those that it needs) joined by ":"; library/products.cpp is compiled for it. Everything runs
on one core in turns. Prints a table in Markdown: milliseconds of each, the fastest in bold, and
how much faster our own is than the best oneDNN.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

#: Instruction sets, as ONEDNN_MAX_CPU_ISA says them, with what a CPU must have and the types of
#: elements that each multiplies.
SETS = {
    "AVX2": ("avx2", ["f32", "u8s8"]),
    "AVX512_CORE": ("avx512bw", ["f32", "u8s8"]),
    "AVX512_CORE_VNNI": ("avx512_vnni", ["u8s8"]),
    "AVX512_CORE_BF16": ("avx512_bf16", ["bf16"]),
    "AVX512_CORE_AMX": ("amx_int8", ["u8s8", "bf16"]),
}

#: How names of implementations of oneDNN begin.
LIBRARY = ("brg", "jit", "gemm", "ref", "x8s8")

#: BERT-base at 128 tokens, a token of GPT-2 and of a Llama of 1.1 billion parameters, layers of
#: ResNet-50 and MobileNetV2.
PROBLEMS = {
    "matmul 128 × 768 × 768": "matmul {} 128 768 768",
    "matmul 128 × 3072 × 768": "matmul {} 128 3072 768",
    "matmul 128 × 768 × 3072": "matmul {} 128 768 3072",
    "matmul 1 × 2304 × 768": "matmul {} 1 2304 768",
    "matmul 1 × 5632 × 2048": "matmul {} 1 5632 2048",
    "conv 7×7 3→64 @224 /2": "conv {} 3 64 224 7 2 1",
    "conv 1×1 64→256 @56": "conv {} 64 256 56 1 1 1",
    "conv 3×3 64→64 @56": "conv {} 64 64 56 3 1 1",
    "conv 3×3 256→256 @14": "conv {} 256 256 14 3 1 1",
    "conv 1×1 1024→256 @14": "conv {} 1024 256 14 1 1 1",
    "conv 3×3 512→512 @7": "conv {} 512 512 7 3 1 1",
    "conv 3×3 depthwise 96 @56": "conv {} 96 96 56 3 1 96",
}


def features():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split())
    return set()


def compiled(headers, libraries, folder):
    source = pathlib.Path(__file__).with_name("library") / "products.cpp"
    program = pathlib.Path(folder) / "library"
    places = [f"-L{place}" for place in libraries.split(":")]
    subprocess.run(["clang++-22", "-O2", "-std=c++17", "-I", headers, source, "-o", program,
                    *places, "-ldnnl", f"-Wl,-rpath,{libraries}",
                    "-Wl,--unresolved-symbols=ignore-in-shared-libs"], check=True)
    return program


def environmentOf(libraries):
    """Variables by which the shared objects are found: one that is built with SYCL computes on a
    CPU of OpenCL."""
    found = [place for place in map(pathlib.Path, libraries.split(":"))
             if (place / "libintelocl.so").exists()]
    opencl = {"OCL_ICD_FILENAMES": str(found[0] / "libintelocl.so")} if found else {}
    return {"LD_LIBRARY_PATH": libraries, "ONEDNN_VERBOSE": "none", **opencl}


def answers(command, lines, environment):
    """A line of JSON for each problem. One core, whatever the threading of the engine."""
    core = sorted(os.sched_getaffinity(0))[-1]
    done = subprocess.run(["taskset", "-c", str(core), *map(str, command)],
                          input="".join(f"{line}\n" for line in lines), text=True, check=True,
                          stdout=subprocess.PIPE, env={**os.environ, **environment})
    return [json.loads(line) for line in done.stdout.splitlines()]


def best(runs):
    """The fastest of several answers to one problem, by side."""
    sides = {}
    for run in runs:
        for side, answer in run.items():
            if answer and (side not in sides or answer[0] < sides[side][0]):
                sides[side] = answer
    return sides


def row(what, isa, kind, sides):
    own = sides.get("own")
    if own and own[1].startswith(LIBRARY):
        own = None # there are no kernels of our own for it
    times = {"packaged": sides.get("packaged"), "newest": sides.get("newest"), "own": own}
    fastest = min((t[0] for t in times.values() if t), default=None)

    def cell(answer):
        if not answer:
            return "–"
        text = f"{answer[0]:.3f}"
        return f"**{text}**" if answer[0] == fastest else text
    library = min((times[s][0] for s in ("packaged", "newest") if times[s]), default=None)
    gain = f"{library / own[0]:.2f}" if own and library else "–"
    runtime = sides.get("runtime")
    return f"| {what} | {kind} | {isa} | " + " | ".join(map(cell, times.values())) + \
        f" | {gain} | {runtime[1] if runtime else '–'} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("engine")
    parser.add_argument("--newest", nargs=2, metavar=("HEADERS", "LIBRARIES"))
    parser.add_argument("--only", default="", help="problems and types with this text")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    here = features()
    print("| product | type | instructions | packaged, ms | newest, ms | own, ms | "
          "best oneDNN to own | the runtime takes |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        newest = compiled(*arguments.newest, folder) if arguments.newest else None
        for isa, (feature, kinds) in SETS.items():
            if feature not in here:
                continue
            cases = [(what, kind, line.format(kind)) for kind in kinds
                     for what, line in PROBLEMS.items()
                     if arguments.only in f"{what} {kind}"]
            lines, environment = [case[2] for case in cases], {"ONEDNN_MAX_CPU_ISA": isa}
            runs = []
            for _ in range(arguments.rounds):
                run = answers([arguments.engine, 1, "-"], lines, environment)
                if newest:
                    given = {**environment, **environmentOf(arguments.newest[1])}
                    for sides, answer in zip(run, answers([newest], lines, given)):
                        sides["newest"] = answer
                runs.append(run)
            for case, all_runs in zip(cases, zip(*runs)):
                print(row(case[0], isa, case[1], best(all_runs)), flush=True)


if __name__ == "__main__":
    main()
