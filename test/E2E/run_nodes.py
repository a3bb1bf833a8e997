#!/usr/bin/env python3
"""ONNX's operator tests (the backend node tests of the onnx package) as whole models: each
is compiled in mode auto for 1, 2 and 3 ranks, run, and compared with the results that the
package has; what 2 ranks of this host do not divide, as a message costs more, also for 2
whose messages cost nothing. An input whose value the compiler asks for is bound with --const.

usage: run_nodes.py PARTITA [--sample N --seed S] [--filter GLOB] [--jobs J]
                    [--table FILE.md] [--outcomes FILE.tsv] [--verbose]

Every case has one outcome:
  right    every output of every run is equal by equality.py
  refused  one sentence that says why, the same for a user's model
  wrong    a run ends with other values, or a compiled program does not run
  crash    a signal, a hang, or an error that is no sentence
Wrong and crash are faults, and so is a case of which docs/node-tests.md says otherwise.
--table writes the outcomes by operator. A sample takes every
case whose number in a seeded order is below N.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import onnx
import onnxruntime

import equality
import tier

MESHES = ["", "d=2", "d=3"]
#: Two slow devices whose messages cost nothing.
FREE = {"device": {"name": "slow", "memory": "1GiB", "memory_bandwidth": 1e6,
                   "peak": {"f64": 1e6, "f32": 1e6, "f16": 1e6, "bf16": 1e6, "i8": 1e6}},
        "levels": [{"name": "free", "size": 2, "bandwidth": 1e18, "latency": 1e-15}]}
BINDS = re.compile(r"which --const (.*?)=FILE\.npy binds")
DATA = pathlib.Path(onnx.__file__).parent / "backend/test/data/node"
TIMEOUT = 120

TYPES = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
PAGE = pathlib.Path(__file__).parents[2] / "docs/node-tests.md"

# Where ONNX's data are not what its text says, and ONNX Runtime computes the latter, so do
# we. Aligned corners with scales: the data divide by the extent times the scale, the text
# by the result's extent, which is whole. MaxUnpool with a shape: in the data the places
# count in the shape that there would be without, by the text they are those of a MaxPool.
BY_TEXT = re.compile(r"^test_(resize_downsample_scales_(linear|cubic)_align_corners"
                     r"|maxunpool_export_with_output_shape)$")

# Outputs that no other implementation computes: of a generator of random numbers.
RANDOM = re.compile(r"^test_(bernoulli|training_dropout)")


class Ended(Exception):
    """The outcome of a case, with one line of reason."""

    def __init__(self, outcome, reason):
        super().__init__(reason)
        self.outcome = outcome


def call(arguments):
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=TIMEOUT,
                              errors="replace")
    except subprocess.TimeoutExpired as error:
        raise Ended("crash", f"no end within {TIMEOUT} s: {arguments[1]}") from error
    if done.returncode not in (0, 1):
        raise Ended("crash", f"exit {done.returncode}: {last_line(done.stderr)}")
    return done


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def sentence(stderr, model):
    """The reason of a refusal, without paths and names, so that equal ones count together."""
    lines = [line for line in stderr.splitlines() if line and not line.endswith("…")]
    text = " ".join(line.strip() for line in lines).replace(str(model), "MODEL")
    text = re.sub(r"^.*?error: ", "", text)
    text = re.sub(r"^'MODEL': (\d+ nodes? (is|are) not supported: )?", "", text)
    if not text:
        raise Ended("crash", "a failure without a message")
    return re.sub(r"-\d+ '[^']*':", ":", text)


class Case:
    def __init__(self, name):
        self.name = name
        self.model = DATA / name / "model.onnx"
        self.inputs = DATA / name / "test_data_set_0"
        graph = onnx.load(self.model).graph
        self.operators = sorted({(node.domain + "." if node.domain else "") + node.op_type
                                 for node in graph.node})
        # The operator that the test is about: the only one, or the one of its name.
        flat = name.removeprefix("test_").replace("_", "")
        named = [op for op in self.operators if flat.startswith(op.split(".")[-1].lower())]
        self.operator = max(named, key=len) if named else self.operators[0]
        initialized = {tensor.name for tensor in graph.initializer}
        self.input_names = [value.name for value in graph.input
                            if value.name not in initialized]
        self.outputs = len(graph.output)
        self.has_dims = any(
            any(dim.dim_value >= 2 for dim in value.type.tensor_type.shape.dim)
            for value in [*graph.input, *graph.output])
        # Those of the operator's inputs and outputs; shapes and axes are tensors too.
        self.types = {TYPES[value.type.tensor_type.elem_type]
                      for value in [*graph.input, *graph.output]
                      if value.type.HasField("tensor_type")}
        self.outcome, self.reason = "right", ""
        self.divided, self.divides_free = False, False

    def compile(self, partita, mesh, bundle, constants, more=()):
        """Binds what must be known, one input after another."""
        for _ in range(len(self.input_names) + 1):
            command = [partita, "compile", str(self.model), "-o", str(bundle)]
            for name in constants:
                file = self.inputs / f"input_{self.input_names.index(name)}.pb"
                command += ["--const", f"{name}={file}"]
            done = call(command + (["--mesh", mesh] if mesh else []) + list(more))
            if done.returncode == 0:
                return
            asked = [name for name in BINDS.findall(done.stderr)
                     if name in self.input_names and name not in constants]
            if not asked:
                where = f" (on {mesh})" if mesh else ""
                raise Ended("refused", sentence(done.stderr, self.model) + where)
            constants.append(asked[0])
        raise Ended("wrong", "asks for more inputs than there are")

    def run(self, partita, work):
        constants = []
        for mesh in MESHES:
            bundle = self.run_on(partita, work, mesh, constants)
            if mesh == MESHES[1]:
                self.divided = self.divides_free = divides(bundle)
        # Few of these tensors are worth a message. Where messages cost nothing, a plan
        # divides whatever the rules allow, and must be as right.
        if not self.divided:
            cluster = work / "free.json"
            cluster.write_text(json.dumps(FREE))
            bundle = self.run_on(partita, work, MESHES[1], constants,
                                 ["--cluster", str(cluster)])
            self.divides_free = divides(bundle)

    def run_on(self, partita, work, mesh, constants, more=()):
        bundle, out = work / "bundle", work / "out"
        for folder in (bundle, out):
            shutil.rmtree(folder, ignore_errors=True)
        self.compile(partita, mesh, bundle, constants, more)
        done = call([partita, "run", str(bundle), "--inputs-dir", str(self.inputs),
                     "--outputs-dir", str(out)])
        where = f"on {mesh or 'one rank'}"
        if done.returncode != 0:
            raise Ended("wrong", f"{where} it does not run: {last_line(done.stderr)}")
        self.compare(partita, bundle, out, where)
        return bundle

    def expected(self, k):
        """Output `k` as the package has it, or as ONNX Runtime computes it."""
        if not BY_TEXT.match(self.name):
            return equality.load(self.inputs / f"output_{k}.pb")
        session = onnxruntime.InferenceSession(str(self.model))
        values = {name: equality.load(self.inputs / f"input_{i}.pb")
                  for i, name in enumerate(self.input_names)}
        return session.run(None, values)[k]

    def compare(self, partita, bundle, out, where):
        wide = equality.WideResults(partita, [str(bundle)], self.inputs)
        for k in range(self.outputs):
            name = f"output_{k}.pb"
            expected = self.expected(k)
            actual = equality.load(out / name)
            if RANDOM.match(self.name) and expected.shape == actual.shape:
                continue
            try:
                equality.check(actual, expected, wide, k, f"output {k}")
            except equality.Unequal as error:
                raise Ended("wrong", f"{where}: {error}") from error


def divides(bundle):
    """Whether some op that computes has a loop that is split."""
    plan = json.loads((bundle / "plan.json").read_text())["entries"][0]
    return any(re.match(r"\{.+\}", node["strategy"]) for stage in plan["stages"]
               for node in stage["nodes"]
               if node["op"] not in ("graph.constant", "graph.weight"))


def attempt(partita, name):
    case = Case(name)
    work = pathlib.Path(tempfile.mkdtemp(prefix="partita-nodes-"))
    try:
        case.run(partita, work)
    except Ended as ended:
        case.outcome, case.reason = ended.outcome, str(ended)
    except Exception as error:  # of this script or its libraries: also not right
        case.outcome, case.reason = "crash", f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return case


def write_table(path, cases, summary):
    by_operator = collections.defaultdict(list)
    for case in cases:
        by_operator[case.operator].append(case)
    lines = ["# ONNX's operator tests", "",
             f"Generated by `test/E2E/run_nodes.py --table`: the {len(cases)} backend node "
             f"tests of onnx {onnx.__version__}, each in mode `auto` on 1, 2 and 3 ranks; "
             "what counts as right is in that file.", "", summary, "",
             "*Divided*: of the right ones with a dim of at least 2, those of which 2 ranks "
             "share some computation: where messages cost what they cost on this host, and "
             "where they cost nothing. Whether an op can be divided is what the second figure "
             "says: these tensors have a few dozen elements, and on a host a message costs more "
             "than all of their arithmetic, so that a plan which divides them is slower. "
             "*Types*: of inputs and outputs in the right ones.", "",
             "| operator | types | right | refused | divided | why refused |",
             "|---|---|---|---|---|---|"]
    for operator, group in sorted(by_operator.items()):
        right = [case for case in group if case.outcome == "right"]
        refused = [case for case in group if case.outcome == "refused"]
        reasons = collections.Counter(shorten(case.reason) for case in refused)
        why = "; ".join(f"{text}" + (f" ×{n}" if n > 1 else "")
                        for text, n in reasons.most_common())
        sized = [case for case in right if case.has_dims]
        types = ", ".join(sorted(set().union(*(case.types for case in right))))
        lines.append(f"| {operator} | {types} | {len(right)} | {len(refused) or ''} | "
                     f"{sum(case.divided for case in sized)}, "
                     f"{sum(case.divides_free for case in sized)} of {len(sized)} | {why} |")
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def outdated(cases):
    """What the committed table says otherwise of these cases."""
    table = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and cells[2].isdigit():
            table[cells[0]] = (set(cells[1].split(", ")), int(cells[3] or 0))
    lines = []
    for case in cases:
        types, refused = table.get(case.operator, (set(), 0))
        if case.outcome == "right" and not case.types <= types:
            lines.append(f"{case.name} is right with {', '.join(sorted(case.types))}, which "
                         f"'{case.operator}' in {PAGE.name} does not have")
        if case.outcome == "refused" and refused == 0:
            lines.append(f"{case.name} is refused, '{case.operator}' in {PAGE.name} never")
    return lines


def shorten(reason):
    reason = re.sub(r"^(ai\.onnx[\w.]*\.)(\w+): ", r"\2: ", reason)
    return reason.replace("|", "\\|")[:160]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--filter", default="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table")
    parser.add_argument("--outcomes", help="a file for one line per case")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    names = sorted(entry.name for entry in DATA.iterdir()
                   if "_expanded" not in entry.name
                   and fnmatch.fnmatch(entry.name, arguments.filter))
    if arguments.sample is not None:
        random.Random(arguments.seed).shuffle(names)
        names = tier.sample("nodes", sorted(names[:arguments.sample]))
    cases = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for case in pool.map(lambda name: attempt(arguments.partita, name), names):
            cases.append(case)
            if case.outcome in ("wrong", "crash") or arguments.verbose:
                print(f"{case.outcome:8}{case.name}: {case.reason}", flush=True)
    counts = collections.Counter(case.outcome for case in cases)
    sized = [case for case in cases if case.outcome == "right" and case.has_dims]
    summary = (", ".join(f"{counts[outcome]} {outcome}"
                         for outcome in ("right", "refused", "wrong", "crash")) +
               f" of {len(cases)}; {sum(case.divided for case in sized)} of {len(sized)} "
               "are divided on 2 ranks of this host, "
               f"{sum(case.divides_free for case in sized)} where messages cost nothing")
    if arguments.outcomes:
        pathlib.Path(arguments.outcomes).write_text("".join(
            f"{c.outcome}\t{c.operator}\t{c.name}\t{c.divided}\t{c.divides_free}\t{c.reason}\n"
            for c in cases))
    if arguments.table:
        write_table(arguments.table, cases, summary)
    old = outdated(cases)
    for line in old:
        print("out of date: " + line)
    faults = counts["wrong"] + counts["crash"] + len(old)
    print(("FAILED  " if faults else "ok      ") + summary)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
