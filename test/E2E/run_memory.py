#!/usr/bin/env python3
"""Compares the memory that ranks have while they run with what the plan says.

usage: run_memory.py PARTITA

A model with 340 MB of weights is compiled, run with both transports, and the peak
resident memory of every process that holds ranks is read from /proc while it runs. What
the runtime takes for itself (code, stacks, the transport's buffers) is what a model of a
few kB takes in the same way. The rest must be what plan.json says, within 5%, and no
more than 32 MiB above it.

How much of a mapped file a fault brings is the system's choice and differs between
kernels. So the mappings of weight files are looked at too (smaps): they must end up no
larger than the weights that tasks read as stored, each rounded to pages, whatever of them
is resident.
"""
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
from onnx import numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "models"))
import sparse_gpt2  # noqa: E402

LARGE = dict(batch=2, length=64, hidden=1024, heads=16, layers=6, vocabulary=5003)
SMALL = dict(batch=2, length=4, hidden=16, heads=2, layers=1, vocabulary=31)
#: Several layouts of weights: whole and used in place, copies of strided slices, both.
MESHES = [("", {}), ("dp=2", {}),
          ("tp=2", {"*c_attn.weight": [None, "tp"], "*c_fc.weight": [None, "tp"],
                    "wte.weight": [["tp"], []], "lm_head.weight": [[], ["tp"]]}),
          ("dp=2,tp=2", {"*c_attn.weight": [None, "tp"], "*c_fc.weight": [None, "tp"],
                         "input_ids": ["dp", None]})]
BOUND, SLACK = 0.05, 32 << 20


def make_model(work, name, sizes):
    folder = os.path.join(work, name)
    model = os.path.join(folder, "model.onnx")
    if not os.path.exists(folder):
        os.makedirs(os.path.join(folder, "inputs"))
        gpt2 = sparse_gpt2.SparseGpt2(**sizes)
        gpt2.save(folder)
        ids = np.arange(gpt2.batch * gpt2.length) % gpt2.vocabulary
        ids = ids.reshape(gpt2.batch, -1).astype(np.int64)
        proto = numpy_helper.from_array(ids, "input_ids")
        with open(os.path.join(folder, "inputs", "input_0.pb"), "wb") as file:
            file.write(proto.SerializeToString())
    return model, folder


def compile_bundle(partita, model, bundle, mesh, hints, arguments=()):
    mode = []
    if hints:
        mode = ["--mode", "semi-auto", "--hints", bundle + "-hints.json"]
        with open(mode[-1], "w") as file:
            json.dump({"tensors": hints}, file)
    subprocess.run([partita, "compile", model, "-o", bundle, *mode, *arguments,
                    *(["--mesh", mesh] if mesh else [])], check=True, capture_output=True)


def compile_model(partita, work, name, sizes, mesh, hints):
    model, folder = make_model(work, name, sizes)
    bundle = os.path.join(folder, "bundle-" + (mesh or "one"))
    compile_bundle(partita, model, bundle, mesh, hints)
    with open(os.path.join(bundle, "plan.json")) as file:
        return bundle, json.load(file)["entries"][0]["stages"][0]["memory"]


def compile_reads_weights(partita, work):
    """1 if compiling GPT-2 small brings more of its weight file into memory than the 64
    blocks of 4 MiB that are hashed (docs/bundle-format.md), or copies weights: the bundle is to
    refer to the file."""
    model, folder = make_model(work, "gpt2-small", {})
    weights = os.path.join(folder, "weights.bin")
    bundle = os.path.join(folder, "bundle")
    compile_bundle(partita, model, bundle, "tp=2", {})
    cached = int(subprocess.check_output(["fincore", "-b", "-n", "-o", "RES", weights]))
    copied = sum(os.path.getsize(os.path.join(bundle, name)) for name in os.listdir(bundle))
    good = 0 < cached <= 64 * 4 << 20 < os.path.getsize(weights) and copied < 1 << 20
    print(f"{'ok     ' if good else 'FAILED '} compiling GPT-2 small: {cached} bytes of the "
          f"weight file read, {copied} bytes written", flush=True)
    return not good


def children():
    """Parent of every process."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    return parents


def descendants(root):
    parents, found = children(), []
    for process in parents:
        at = process
        while at in parents and at != root:
            at = parents[at]
        if at == root:
            found.append(process)
    return found


def mapped_weights(process):
    """Bytes of the process's mappings of weight files, less what rounding to pages adds,
    and bytes of them that are resident."""
    with open(f"/proc/{process}/smaps") as file:
        text = file.read()
    size = resident = 0
    for header, fields in re.findall(r"^([0-9a-f]+-[0-9a-f]+ .*)\n((?:[A-Z].*\n)*)", text,
                                     re.MULTILINE):
        if header.endswith(("/weights.bin", "/weights.safetensors")):
            size += int(re.search(r"^Size: +(\d+)", fields)[1]) * 1024 - 8192
            resident += int(re.search(r"^Rss: +(\d+)", fields, re.MULTILINE)[1]) * 1024
    return size, resident


def peaks(partita, bundle, transport, processes, repeat, mapped=None):
    """Peak resident bytes of the processes that have the bundle's stage mapped, the largest
    first; `mapped` gets what each process had mapped of weights while requests ran. To
    a peak is added what is mapped and not resident: rows of a table that no request has
    looked up.

    Whoever looks gets his turn when the machine has one for him: on a busy one a run may
    be over before. It is run again then, with more requests, until there are as many
    `processes` and each was looked at late enough: in the last third of the time for
    which it was seen, when its first request, which brings the peak, is over. Where
    `mapped` lacks one, loading took most of the time, and nothing was resident yet."""
    for _ in range(8):
        looked = {} if mapped is None else mapped
        looked.clear()
        seen, late = watched(partita, bundle, transport, repeat, looked)
        if len(seen) == processes and late and (
                mapped is None or len(mapped) == processes):
            break
        repeat *= 2
    absent = {process: max(size - resident, 0)
              for process, (size, resident) in looked.items()}
    return sorted((peak + absent.get(process, 0) for process, peak in seen.items()),
                  reverse=True)


def watched(partita, bundle, transport, repeat, mapped):
    """One run: by process its peak; and whether each was looked at late enough."""
    command = [partita, "run", bundle, "--transport", transport, "--repeat", str(repeat),
               "--inputs-dir", os.path.join(os.path.dirname(bundle), "inputs")]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)
    seen, looks, gone, sizes = {}, {}, {}, {}
    while run.poll() is None:
        here = set()
        for process in descendants(run.pid):
            try:
                with open(f"/proc/{process}/maps") as file:
                    if bundle + "/stage-0.so" not in file.read():
                        continue
                with open(f"/proc/{process}/status") as file:
                    peak = re.search(r"VmHWM:\s+(\d+) kB", file.read())
                size, resident = mapped_weights(process)
                sizes.setdefault(process, []).append((time.monotonic(), size, resident))
            except OSError:
                continue
            if peak:
                seen[process] = max(seen.get(process, 0), int(peak.group(1)) * 1024)
                here.add(process)
                first, _ = looks.get(process, (time.monotonic(), 0))
                looks[process] = first, time.monotonic()
        for process in looks.keys() - here:
            gone.setdefault(process, time.monotonic())
        time.sleep(0.002)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: {run.stdout.read()}")
    ends = {process: gone.get(process, time.monotonic()) for process in looks}
    late = all(ends[process] - last < (ends[process] - first) / 3
               for process, (first, last) in looks.items())
    for process, (first, _) in looks.items():
        at = steady([look[1:] for look in sizes[process]
                     if look[0] - first > (ends[process] - first) / 3])
        late = late and at is not None
        if at and at[1]:
            mapped[process] = at
    return seen, late


def steady(looks):
    """The last of the looks (size, resident) while the requests ran, which is most of the
    time: what is mapped has the same size in most of them. While the process ends, mappings
    go one by one. None: too few looks to tell."""
    if len(looks) < 3:
        return None
    size, count = collections.Counter(size for size, _ in looks).most_common(1)[0]
    return [look for look in looks if look[0] == size][-1] if count >= 2 else None


def planned(memory, transport, processes):
    """What the plan says of each process, the largest first."""
    if transport == "local":
        return [memory["process"]]
    first, parts = memory["rank"], ["arena", "weights", "packed",
                                             "inputs", "transport"]
    return [first] + [sum(memory[part] for part in parts)] * (processes - 1)


def main(partita):
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        failed += compile_reads_weights(partita, work)
        for mesh, hints in MESHES:
            ranks = int(np.prod([int(n) for n in re.findall(r"=(\d+)", mesh)], initial=1))
            large, plan = compile_model(partita, work, "large", LARGE, mesh, hints)
            small, own = compile_model(partita, work, "small", SMALL, mesh, hints)
            for transport in ("local", "mpi"):
                processes = 1 if transport == "local" else ranks
                mapped = {}
                got = peaks(partita, large, transport, processes, 12, mapped)
                base = peaks(partita, small, transport, processes, 500)
                label = f"{mesh or 'one rank'}, {transport}"
                if len(got) != processes or len(base) != processes:
                    print(f"FAILED  {label}: {len(got)} and {len(base)} processes seen")
                    failed += 1
                    continue
                stored = plan["weights"] * (ranks if transport == "local" else 1)
                if len(mapped) != processes:
                    print(f"FAILED  {label}: {len(mapped)} processes map weights")
                    failed += 1
                for size, resident in mapped.values():
                    good = size <= stored
                    failed += not good
                    print(f"{'ok     ' if good else 'FAILED '} {label}: weight files mapped "
                          f"{size / 1e6:.1f} MB, resident {resident / 1e6:.1f} MB, read as "
                          f"stored {stored / 1e6:.1f} MB", flush=True)
                for k, (peak, empty, expect, little) in enumerate(zip(
                        got, base, planned(plan, transport, processes),
                        planned(own, transport, processes))):
                    runtime = empty - little
                    ratio = (peak - runtime) / expect
                    good = (abs(peak - runtime - expect) <= BOUND * expect
                            and peak - runtime - expect <= SLACK)
                    failed += not good
                    print(f"{'ok     ' if good else 'FAILED '} {label}, process {k}: "
                          f"peak and not looked up {peak / 1e6:.1f} MB = runtime {runtime / 1e6:.1f} + plan "
                          f"{expect / 1e6:.1f} × {ratio:.3f}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
