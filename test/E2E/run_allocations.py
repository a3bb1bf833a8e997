#!/usr/bin/env python3
"""Counts from outside what Partita's own code allocates in a request: nothing, the first
one included. What an engine or MPI takes for itself is theirs: counted apart, and printed.

usage: run_allocations.py PARTITA PARTITA_RUN COUNTER ZOO
       run_allocations.py --requests BUNDLE TRANSPORT N     (of itself, COUNTER preloaded)

COUNTER is preloaded and counts every call of malloc and its relatives, mmap and brk, of
all threads, by the object file whose code asks. Models with every kind of engine call run
on threads and with MPI, in two ways. From Python, by way of the C API, the counter is
asked before and after each request: the difference must be 0. Of `partita run` and
`partita-run` the totals of the processes with ranks are compared, each with itself, after
2 requests and after 1002: between two runs they differ by a few, but not by one per
request. Those that only watch the others allocate as long as they watch.
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile

import tier

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
#: What splits weights, so that partial sums and gathers cross ranks.
GPT2_HINTS = {"*c_attn.weight": [None, "tp"], "*c_fc.weight": [None, "tp"],
              "wte.weight": [["tp"], []], "lm_head.weight": [[], ["tp"]]}
#: name in the zoo or "gpt2", mesh, hints for tensors, threads per rank
CASES = [("gpt2", "", {}, 1), ("gpt2", "tp=2", GPT2_HINTS, 1),
         ("gpt2", "dp=2,tp=2", {**GPT2_HINTS, "input_ids": ["dp", None]}, 1),
         ("gpt2", "", {}, 2),
         ("ppocr-rec", "dp=2", {}, 1), ("ppocr-det", "", {}, 1),
         ("squeezenet-random", "", {}, 2)]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def requests(bundle, transport, number):
    """What each of the requests of this process allocates."""
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import numpy as np
    import partita
    counter = ctypes.CDLL(None)
    for function in (counter.count_own, counter.count_others):
        function.restype, function.argtypes = ctypes.c_uint64, []
    count = counter.count_own
    before = count()
    session = partita.Session(bundle, transport=transport)
    loading = count() - before
    library, handle, arrays = partita._lib(), session._handle, []
    for infos, bind in [(session.inputs, library.partita_bind_input),
                        (session.outputs, library.partita_bind_output)]:
        for name, (dtype, shape) in infos.items():
            arrays.append(np.zeros(shape, dtype))
            assert bind(handle, name.encode(), arrays[-1].ctypes.data,
                        arrays[-1].nbytes) == 0
    run, counts = library.partita_run, [0] * number
    theirs = counter.count_others()
    for k in range(number):
        before = count()
        status = run(handle)
        counts[k] = count() - before
        assert status == 0
    others = (counter.count_others() - theirs) / number
    print(json.dumps({"loading": loading, "requests": counts, "others": others}),
          flush=True)
    session.close()


def compile_case(partita, zoo, work, name, mesh, hints, threads):
    sys.path.insert(0, os.path.join(HERE, "models"))
    import run_memory
    if name == "gpt2":
        model, _ = run_memory.make_model(work, "gpt2", run_memory.SMALL)
        shapes = []
    else:
        import run_model
        model = os.path.join(zoo, name, "model.onnx")
        with open(os.path.join(zoo, name, "case.json")) as file:
            shapes = list(run_model.shape_arguments(json.load(file)))
    bundle = os.path.join(work, f"{name}-{mesh}-{threads}")
    run_memory.compile_bundle(partita, model, bundle, mesh, hints,
                              [*shapes, "--threads", str(threads)])
    return bundle, os.path.join(os.path.dirname(model), "inputs")


def from_python(counter, bundle, transport, ranks, number=12):
    command = [sys.executable, os.path.abspath(__file__), "--requests", bundle, transport,
               str(number)]
    if transport == "mpi":
        command = [*MPIRUN, "-n", str(ranks), "-x", "LD_PRELOAD=" + counter, *command]
        environment = os.environ
    else:
        environment = {**os.environ, "LD_PRELOAD": counter}
    done = subprocess.run(command, env=environment, capture_output=True, text=True,
                          timeout=120)
    found = [json.loads(text) for text in re.findall(r"\{.*?\}", done.stdout)]
    if done.returncode != 0 or len(found) != (ranks if transport == "mpi" else 1):
        return f"{done.stdout[-500:]}{done.stderr[-500:]}", ""
    if not all(process["loading"] > 200 for process in found):
        return "the counter does not count", ""
    if any(any(process["requests"]) for process in found):
        return f"requests allocate: {[process['requests'] for process in found]}", ""
    others = max(process["others"] for process in found)
    return None, f"; other libraries {others:.0f} times a request"


def totals(counter, command, transport, folder):
    """What the process of each rank of an MPI job allocates; of threads the one of all."""
    os.makedirs(folder)
    subprocess.run([*command, "--transport", transport], check=True,
                   capture_output=True, timeout=300,
                   env={**os.environ, "LD_PRELOAD": counter, "COUNT_ALLOCATIONS": folder})
    found, processes = {}, set(os.listdir(folder))
    for process in processes:
        with open(os.path.join(folder, process)) as file:
            own, others, program, parent, rank = file.read().split()
        if not program.startswith("partita"):
            continue
        if rank != "-":
            found[int(rank)] = int(own), int(others)
        elif transport == "local" and parent in processes:
            found[0] = int(own), int(others)
    return found


def from_command(counter, command, transport, ranks, work):
    few, many = (totals(counter, [*command, "--repeat", str(n)], transport,
                        tempfile.mkdtemp(dir=work) + "/counts") for n in (2, 1002))
    expected = set(range(ranks if transport == "mpi" else 1))
    if set(few) != expected or set(many) != expected or min(few.values())[0] < 200:
        return f"processes counted {few} and {many}", ""
    grown = {rank: many[rank][0] - few[rank][0] for rank in sorted(expected)}
    others = max(many[rank][1] - few[rank][1] for rank in expected)
    if max(grown.values()) >= 500:
        return f"1000 requests allocate {grown} times, by rank", ""
    return None, (f"; 1000 requests {max(grown.values())} times more than before, other "
                  f"libraries {others / 1000:.0f} times a request")


def main(partita, partita_run, counter, zoo):
    failed = 0

    def check(label, problem, others):
        nonlocal failed
        failed += problem is not None
        print(f"FAILED  {label}: {problem}" if problem else f"ok      {label}{others}",
              flush=True)

    with tempfile.TemporaryDirectory() as work:
        for name, mesh, hints, threads in tier.sample(
                "allocations", CASES, kind=lambda case: (case[0] == "gpt2", case[3])):
            bundle, inputs = compile_case(partita, zoo, work, name, mesh, hints, threads)
            sizes = [int(n) for n in re.findall(r"=(\d+)", mesh)]
            ranks = sizes[0] * sizes[-1] if len(sizes) == 2 else max(sizes, default=1)
            for transport in ("local", "mpi"):
                label = f"{name}, {mesh or 'one rank'}, {threads} threads, {transport}"
                check(label, *from_python(counter, bundle, transport, ranks))
                if name != "gpt2" or threads > 1:
                    continue
                command = ([partita, "run"] if transport == "local" else [partita_run])
                command += [bundle, "--inputs-dir", inputs]
                check(label + ", " + " ".join(os.path.basename(w) for w in command[:-3]),
                      *from_command(counter, command, transport, ranks, work))
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "--requests":
        sys.exit(requests(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    sys.path.insert(0, HERE)
    sys.exit(main(*sys.argv[1:]))
