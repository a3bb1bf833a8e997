#!/usr/bin/env python3
"""Plans published models on clusters of A100 and prints one table: our plan beside
data-parallel, fully sharded, megatron and megatron-sp, priced alike; the gap to the lower
bound; and what the search took, in seconds of one core.

usage: run.py PARTITA [--models] [--depth] [--devices] [--scale] [--steps] [--overlap]

Default: the first three tables. --steps plans training steps (AdamW, f32) without a limit
of memory, and one under 80 GiB, beside the levels of ZeRO and Megatron with and without
its distributed optimizer. --overlap simulates plans whose collectives are in flight while kernels run, of
the plan that is the fastest in turns and of the one chosen for it. --scale plans every
model on 2, 8, 64 and 1,024 devices, the batch growing with them, on the best of all meshes
of one and two axes.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
GENERATE = os.path.join(HERE, "..", "models", "generate.py")

# (name, arguments of generate.py, servers of 8, mesh)
MODELS = [
    ("gpt3-1.3b", ["--batch", "16", "--sequence", "1024"], 1, "dp=2,tp=4"),
    ("gpt3-175b", ["--batch", "1536", "--sequence", "2048"], 128, "dp=64,tp=16"),
    ("llama3-8b", ["--batch", "8", "--sequence", "2048"], 1, "dp=2,tp=4"),
    ("llama3-70b", ["--batch", "64", "--sequence", "2048"], 8, "dp=8,tp=8"),
    ("bert-large", ["--batch", "32", "--sequence", "512"], 1, "dp=2,tp=4"),
    ("resnet50", ["--batch", "32"], 1, "dp=2,tp=4"),
    ("wide-resnet-2b", ["--batch", "32"], 2, "dp=4,tp=4"),
    ("t5-3b", ["--batch", "16", "--sequence", "512"], 1, "dp=2,tp=4"),
    ("moe-2.4b", ["--batch", "16"], 1, "dp=2,tp=4"),
    ("dlrm", ["--batch", "2048"], 2, "dp=4,tp=4"),
]

# (label, name, arguments of generate.py, servers of 8, mesh, micro-batches, memory)
STEPS = [
    ("gpt3-175b", "gpt3-175b", ["--batch", "1536", "--sequence", "2048"], 128,
     "dp=64,tp=16", 1, "1000TiB"),
    *[(f"gpt3-1.3b, {layers} layers", "gpt3-1.3b",
       ["--layers", str(layers), "--batch", "16", "--sequence", "1024"], 1, "dp=2,tp=4", 1,
       "1000TiB")
      for layers in (8, 64)],
    ("gpt3-350m, 4 micro-batches", "gpt3-350m", ["--batch", "8", "--sequence", "1024"], 1,
     "dp=2,tp=4", 4, "1000TiB"),
    ("gpt3-175b, 24 micro-batches, 80 GiB", "gpt3-175b",
     ["--batch", "64", "--sequence", "2048"], 128, "dp=64,tp=16", 24, "80GiB"),
]
STEP = {"loss": {"kind": "softmax_cross_entropy", "of": "logits", "labels": "labels",
                 "axis": -1},
        "optimizer": {"kind": "adamw", "lr": 1e-4}}
STEP_PLANS = ("data-parallel", "zero-1", "zero-2", "zero-3", "megatron", "megatron zero-1",
              "megatron-sp", "megatron-sp zero-1")

# (label, name, arguments of generate.py, servers of 8, mesh, other options, whether it is
# a training step)
OVERLAPS = [
    ("gpt3-175b", "gpt3-175b", ["--batch", "1536", "--sequence", "2048"], 128,
     "dp=128,tp=8", [], False),
    ("gpt3-175b, 60 GiB", "gpt3-175b", ["--batch", "1536", "--sequence", "2048"], 128,
     "dp=128,tp=8", ["--memory", "60GiB"], False),
    ("bert-large", "bert-large", ["--batch", "256", "--sequence", "512"], 8, "dp=16,tp=4",
     [], False),
    ("resnet50", "resnet50", ["--batch", "64"], 1, "dp=4,tp=2", [], False),
    ("gpt3-1.3b, 8 layers, training step", "gpt3-1.3b",
     ["--layers", "8", "--batch", "16", "--sequence", "1024"], 1, "dp=8", [], True),
]

# (name, other arguments of generate.py, samples per device): the batch is that times the
# devices, at least one.
SCALED = [
    ("gpt3-1.3b", ["--sequence", "1024"], 2),
    ("gpt3-13b", ["--sequence", "2048"], 1),
    ("gpt3-175b", ["--sequence", "2048"], 1),
    ("llama3-8b", ["--sequence", "2048"], 1),
    ("llama3-70b", ["--sequence", "2048"], 1),
    ("bert-large", ["--sequence", "512"], 4),
    ("resnet50", [], 8),
    ("wide-resnet-2b", [], 4),
    ("t5-3b", ["--sequence", "512"], 2),
    ("moe-2.4b", [], 2),
    ("dlrm", [], 128),
    ("wide-deep", [], 128),
]


def cluster(folder, servers):
    """Servers of 8 devices; half a server and less is one of fewer devices."""
    path = os.path.join(folder, f"a100-{servers}.json")
    with open(path, "w") as file:
        text = {"server": "DGX-A100"}
        if servers > 1:
            text["levels"] = [{"name": "rack", "preset": "hdr", "size": int(servers)}]
        if servers < 1:
            text = {"device": {"preset": "A100-80GB"},
                    "levels": [{"name": "nvlink", "preset": "nvlink3",
                                "size": int(8 * servers)}]}
        json.dump(text, file)
    return path


def generate(folder, name, arguments):
    path = os.path.join(folder, name + ".onnx")
    subprocess.run([sys.executable, GENERATE, name, "-o", path, *arguments], check=True,
                   stdout=subprocess.DEVNULL)
    return path


def plan(partita, model, file, mesh, limit, *others):
    """What `partita plan` says, and the seconds of a core that it took. Of a device's 80 GiB
    nothing is kept, unless `others` say the memory."""
    if "--memory" not in others:
        others = ("--memory", "80GiB", *others)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([partita, "plan", model, "--cluster", file,
                           *(["--mesh", mesh] if mesh else []),
                           "--time-limit", str(limit), *others], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (done.stdout, done.stderr.strip().splitlines()[-1:],
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def number(pattern, text, default="-"):
    found = re.search(pattern, text)
    return found.group(1) if found else default


def row(name, mesh, text, error, seconds):
    if not text:
        return f"| {name} | {mesh} | {' '.join(error)[:120]} | | | | | | | {seconds:.2f} |"
    mesh = mesh or number(r"mesh ([^ ]+) of", text)
    gap = "0" if "no plan is faster" in text else number(r"a gap of ([0-9.]+)%", text)
    known = {key: number(rf"{key} +[0-9.]+ .?s, ([0-9.]+) of ours", text) +
             ("*" if re.search(rf"{key} .*does not fit", text) else "")
             for key in ("data-parallel", "fully sharded", "megatron", "megatron-sp")}
    return (f"| {name} | {mesh} | {number('step: ([0-9.]+ .?s)', text)} | {gap}% | "
            f"{known['data-parallel']} | {known['fully sharded']} | "
            f"{known['megatron']} | {known['megatron-sp']} | "
            f"{number('memory per device: ([0-9.]+ .iB)', text)} | {seconds:.2f} |")


def step_row(name, mesh, text, error, seconds):
    if not text:
        return f"| {name} | {mesh} | {' '.join(error)[:120]} |"
    gap = "0" if "no plan is faster" in text else number(r"a gap of ([0-9.]+)%", text)
    known = " | ".join(number(rf"\n  {key} +[0-9.]+ .?s, ([0-9.]+) of ours", text)
                       for key in STEP_PLANS)
    return (f"| {name} | {mesh} | {number('step: ([0-9.]+ .?s)', text)} | {gap}% | {known} | "
            f"{number('memory per device: ([0-9.]+ .iB)', text)} | {seconds:.2f} |")


STEP_HEAD = ("| step | mesh | ours | gap | " + " | ".join(STEP_PLANS) +
             " | memory | core s |\n" + "|---" * (6 + len(STEP_PLANS)) + "|")

HEAD = ("| model | mesh | ours | gap | data-parallel | fully sharded | megatron | "
        "megatron-sp | memory | core s |\n|---|---|---|---|---|---|---|---|---|---|")


def overlap_row(name, mesh, texts, seconds):
    cells = [name, mesh]
    for text in texts:
        cells += [number("step: ([0-9.]+ .?s)", text),
                  number("with overlap: ([0-9.]+ .?s) simulated", text),
                  number("simulated, at least ([0-9.]+ .?s)", text),
                  number(r"simulated.* \(a gap of ([0-9.]+%)\)", text)]
    return "| " + " | ".join(cells + [f"{s:.2f}" for s in seconds]) + " |"


OVERLAP_HEAD = ("| model | mesh | in turns | simulated | at least | gap | --overlap: in turns "
                "| simulated | at least | gap | core s | --overlap |\n" + "|---" * 12 + "|")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    for table in ("models", "depth", "devices", "scale", "steps", "overlap"):
        parser.add_argument("--" + table, action="store_true")
    parser.add_argument("--time-limit", type=float, default=60)
    arguments = parser.parse_args()
    every = not (arguments.models or arguments.depth or arguments.devices or
                 arguments.scale or arguments.steps or arguments.overlap)
    with tempfile.TemporaryDirectory() as folder:
        def show(label, name, extra, servers, mesh, *others):
            model = generate(folder, name, extra)
            text, error, seconds = plan(arguments.partita, model, cluster(folder, servers),
                                        mesh, arguments.time_limit, *others)
            print(row(label, mesh, text, error, seconds), flush=True)
            times = number(r"(import .*s, problem .*s, solving .*s)\n", text)
            print(f"    {label}: {times}", file=sys.stderr)

        def show_step(label, name, extra, servers, mesh, micro_batches, memory):
            model = generate(folder, name, extra)
            spec = os.path.join(folder, "spec.json")
            with open(spec, "w") as file:
                json.dump({**STEP, "accumulation": micro_batches}, file)
            text, error, seconds = plan(arguments.partita, model, cluster(folder, servers),
                                        mesh, arguments.time_limit, "--train", spec,
                                        "--memory", memory)
            print(step_row(label, mesh, text, error, seconds), flush=True)
            times = number(r"(import .*s, problem .*s, solving .*s)\n", text)
            print(f"    {label}: {times}", file=sys.stderr)

        def show_overlap(label, name, extra, servers, mesh, others, trains):
            model = generate(folder, name, extra)
            others = list(others)
            if trains:
                spec = os.path.join(folder, "spec.json")
                with open(spec, "w") as file:
                    json.dump(STEP, file)
                others += ["--train", spec]
            texts, times = [], []
            for option in ([], ["--overlap"]):
                text, _, seconds = plan(arguments.partita, model, cluster(folder, servers),
                                        mesh, arguments.time_limit, *others, *option)
                texts.append(text)
                times.append(seconds)
            print(overlap_row(label, mesh, texts, times), flush=True)

        if arguments.overlap:
            print(OVERLAP_HEAD)
            for case in OVERLAPS:
                show_overlap(*case)
        if arguments.steps:
            print("Times of others as multiples of ours.\n" + STEP_HEAD)
            for step in STEPS:
                show_step(*step)
        if every or arguments.models or arguments.depth or arguments.devices or \
                arguments.scale:
            print("Times of others as multiples of ours; * does not fit.\n" + HEAD)
        if arguments.models or every:
            for name, extra, servers, mesh in MODELS:
                show(name, name, extra, servers, mesh)
        if arguments.depth or every:
            # Without a limit, and with one that binds: 1,024 layers need all of 80 GiB.
            for layers, memory in ((8, None), (64, None), (1024, "1000TiB"), (8, "1.6GiB"),
                                   (64, "6GiB"), (1024, None)):
                show(f"gpt3-1.3b, {layers} layers" + (f", {memory}" if memory else ""),
                     "gpt3-1.3b", ["--layers", str(layers), "--batch", "16"], 1,
                     "dp=2,tp=4", *(["--memory", memory] if memory else []))
        if arguments.devices or every:
            # One axis beside two has a smaller problem: ratios are between the latter.
            for servers, mesh in ((1, "dp=1,tp=8"), (1, "dp=2,tp=4"), (128, "dp=128,tp=8"),
                                  (2048, "dp=2048,tp=8")):
                show(f"gpt3-13b, {8 * servers} devices", "gpt3-13b",
                     ["--batch", str(2 * servers)], servers, mesh)
        if arguments.scale:
            for name, extra, samples in SCALED:
                for devices in (2, 8, 64, 1024):
                    batch = str(samples * devices)
                    show(f"{name}, {devices}", name, [*extra, "--batch", batch],
                         devices / 8, None)


if __name__ == "__main__":
    main()
