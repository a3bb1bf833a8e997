#!/usr/bin/env python3
"""Compares what plans take with test/Frozen/figures.txt, which was written before a change.

usage: run_frozen.py PLAN-FIGURES PARTITA ZOO [--write] [--renew] [--only TEXT] [--jobs N]

A row is a model, how it is planned and for which mesh, and its figures: the price of the
plan, the kernels that the price counts, and kernels, calls and bytes of the program that
is formed (test/E2E/plan-figures says which is which). Models are those of the zoo, and
training steps with AdamW, a clipped norm and two micro-batches. Plans:

  auto           the search, by work and not by seconds
  followed       the plan that the search found when the file was written
                 (test/Frozen/plans.tar.xz): its prices may change, its choices may not
  data-parallel, megatron, zero1, zero3
                 the modes and rules of these names
  cluster        the search over all meshes of eight A100 (no program is formed)

`--renew` beside `--write` follows what the search finds now: where names of ops changed,
the old plan is none of the model any more.

A row that differs is printed, each figure with both values. `--write` makes the file what
was measured now; the difference belongs into the commit's message, and a figure that got
worse needs its reason there. Code is for x86-64-v3 and one thread, so that every machine
has the same figures; but an engine may ask for other scratch where caches are larger, so
that figures of the arena are compared on a processor of the file's kind alone.
"""
import argparse
import collections
import concurrent.futures
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import tier
import training_models

HERE = pathlib.Path(__file__).resolve().parent
FIGURES = HERE.parent / "Frozen" / "figures.txt"
PLANS = HERE.parent / "Frozen" / "plans.tar.xz"
CLUSTER = {"device": {"preset": "A100-80GB"},
           "levels": [{"name": "nvlink", "preset": "nvlink3", "size": 8}]}
#: Figures that depend on how much scratch an engine asks for.
OF_CACHES = {"arena", "live", "scratch"}
Row = collections.namedtuple("Row", "model how mesh")
RULES = {"data-parallel": [], "zero1": [], "zero3": [], "megatron": ["--hints", "megatron"]}


def rows_of(zoo):
    for model in sorted(os.listdir(zoo)):
        yield Row(model, "auto", "one")
        for mesh in ("dp=2", "dp=2,tp=2"):
            yield from (Row(model, how, mesh) for how in ("auto", "followed",
                                                          "data-parallel"))
        yield Row(model, "megatron", "dp=2,tp=2")
        yield Row(model, "cluster", "8xA100")
    for model in training_models.MODELS:
        step = f"{model}-step"
        yield Row(step, "auto", "one")
        for mesh in ("dp=2", "dp=2,tp=2"):
            yield from (Row(step, how, mesh) for how in ("auto", "followed", "data-parallel",
                                                         "zero1", "zero3"))
        yield Row(step, "megatron", "dp=2,tp=2")
        yield Row(step, "cluster", "8xA100")


def processor():
    with open("/proc/cpuinfo") as file:
        return next(line.split(":")[1].strip() for line in file if "model name" in line)


class Bench:
    def __init__(self, arguments, work):
        self.figures, self.partita = arguments.figures, arguments.partita
        self.zoo, self.work = pathlib.Path(arguments.zoo), work
        (work / "a100.json").write_text(json.dumps(CLUSTER))
        for name, write in training_models.MODELS.items():
            write(str(work / f"{name}-step.onnx"))
        self.environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2",
                            "XDG_CONFIG_HOME": str(work)}  # where nothing was calibrated

    def specification(self, row):
        name = row.model.removesuffix("-step")
        spec = {"loss": {"kind": "softmax_cross_entropy", "labels": "labels", "axis": -1,
                         "of": {"mlp": "fc2", "conv": "fc"}.get(name, "head")},
                "optimizer": {"kind": "adamw", "lr": 0.01}, "clip_norm": 1,
                "accumulation": 2}
        if row.how.startswith("zero"):
            spec["optimizer_parallel"] = {"enable": True, "level": int(row.how[-1]),
                                          "threshold_kb": 0}
        path = self.work / f"{row.model}-{row.how}-{row.mesh}.json"
        path.write_text(json.dumps(spec))
        return ["--train", str(path)]

    def source(self, row):
        if row.model.endswith("-step"):
            return [str(self.work / f"{row.model}.onnx"), *self.specification(row)]
        case = json.loads((self.zoo / row.model / "case.json").read_text())
        shapes = (f"{name}={','.join(map(str, shape))}"
                  for name, shape in case["shapes"].items())
        return [str(self.zoo / row.model / "model.onnx"),
                *(part for shape in shapes for part in ("--shape", shape))]

    def plan_path(self, row):
        return self.work / "plans" / f"{row.model} {row.mesh}.json"

    def run(self, command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300,
                              env=self.environment)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")
        return done.stdout

    def measure(self, row):
        """The figures of a row by name."""
        if row.how == "cluster":
            return self.search(row)
        command = [self.figures, *self.source(row)]
        if row.mesh != "one":
            command += ["--mesh", row.mesh]
        if row.how in RULES:
            command += ["--mode", "data-parallel", *RULES[row.how]]
        if row.how == "followed":
            command += ["--plan", str(self.plan_path(row))]
        elif row.how == "auto" and row.mesh != "one":
            command += ["--save-plan", str(self.plan_path(row)) + ".new"]
        return dict(part.split("=") for part in self.run(command).split())

    def search(self, row):
        path = self.work / f"{row.model}-cluster.json"
        self.run([self.partita, "plan", *self.source(row), "--cluster",
                  str(self.work / "a100.json"), "--work", "400000", "-o", str(path)])
        plan = json.loads(path.read_text())["entries"][0]
        certificate = plan["certificate"]
        mesh = plan["stages"][0]["mesh"].replace("=", ":")
        picos = lambda name: str(round(certificate[name] * 1e12))  # noqa: E731
        return {"mesh": mesh, "step": picos("step_seconds"),
                "bound": picos("lower_bound_seconds"),
                "memory": str(certificate["memory_per_device"]),
                "received": str(certificate["communication_bytes"])}


def read_figures():
    frozen, kind = {}, None
    for line in FIGURES.read_text().splitlines() if FIGURES.exists() else []:
        if line.startswith("# processor: "):
            kind = line.removeprefix("# processor: ")
        if not line.startswith("#"):
            name, figures = line.split(" | ")
            frozen[Row(*name.split())] = dict(part.split("=") for part in figures.split())
    return frozen, kind


def write_figures(measured):
    lines = ["# What plans take: test/E2E/run_frozen.py --write", f"# processor: {processor()}"]
    lines += [" ".join(row) + " | " + " ".join(f"{k}={v}" for k, v in figures.items())
              for row, figures in measured.items()]
    FIGURES.write_text("\n".join(lines) + "\n")


def write_plans(folder):
    """What was searched for becomes what is followed. Same plans, same bytes."""
    with tarfile.open(PLANS, "w:xz", preset=9) as archive:
        for path in sorted(folder.iterdir()):
            info = tarfile.TarInfo(path.name)
            text = path.read_bytes()
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))


def read_plans(folder):
    with tarfile.open(PLANS) as archive:
        for member in archive.getmembers():
            (folder / os.path.basename(member.name)).write_bytes(
                archive.extractfile(member).read())


def difference(old, new, same_processor):
    """The figures of a row that differ, in words."""
    texts = []
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name, "absent"), new.get(name, "absent")
        if a == b or (name in OF_CACHES and not same_processor):
            continue
        change = ""
        if a.isdigit() and b.isdigit() and int(a):
            change = f" ({100 * (int(b) / int(a) - 1):+.2f}%)"
        texts.append(f"{name} {a} -> {b}{change}")
    return ", ".join(texts)


def tell_misses(measured):
    """Prints in how many rows kernels, calls or bytes are not those of the groups."""
    formed = [figures for figures in measured.values() if "kernels" in figures]
    missed = {name: [row for row in formed if row[name] != row[f"grouped-{name}"]]
              for name in ("kernels", "calls", "stored")}
    rows = [row for row in formed if any(row in rows for rows in missed.values())]
    print(f"{len(rows)} of {len(formed)} programs are not as grouped: "
          + ", ".join(f"{len(rows)} in {name}" for name, rows in missed.items()))


def measure_all(bench, rows, jobs):
    measured = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        def attempt(row):
            try:
                return bench.measure(row)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                return {"error": str(error)}
        for row, figures in zip(rows, pool.map(attempt, rows)):
            measured[row] = figures
    return measured


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("figures")
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    everything = list(rows_of(arguments.zoo))
    rows = everything if arguments.write else tier.sample("frozen", everything)
    rows = [row for row in rows if arguments.only in " ".join(row)]
    frozen, kind = read_figures()
    with tempfile.TemporaryDirectory(prefix="partita-frozen-") as work:
        bench = Bench(arguments, pathlib.Path(work))
        (bench.work / "plans").mkdir()
        if PLANS.exists():
            read_plans(bench.work / "plans")
        if arguments.write and (arguments.renew or not PLANS.exists()):
            first = [row for row in rows if row.how == "auto" and row.mesh != "one"]
            measure_all(bench, first, arguments.jobs)
            for path in (bench.work / "plans").glob("*.new"):
                path.replace(path.with_suffix(""))
            write_plans(bench.work / "plans")
        measured = measure_all(bench, rows, arguments.jobs)
    failures = 0
    for row, figures in measured.items():
        if "error" in figures:
            text = figures["error"]
        elif row not in frozen:
            text = "a new row"
        else:
            text = difference(frozen[row], figures, kind == processor())
        failures += bool(text)
        if text:
            print(f"{' '.join(row)}: {text}")
    for row in frozen.keys() - set(everything):
        failures += 1
        print(f"{' '.join(row)}: the file has this row, the suite has not")
    tell_misses(measured)
    print(f"{len(measured)} rows, {failures} differ", flush=True)
    if arguments.write:
        if any("error" in figures for figures in measured.values()):
            print("nothing is written, as some rows have no figures")
            return 1
        write_figures({**frozen, **measured} if arguments.only else measured)
        return 0
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
