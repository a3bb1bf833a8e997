#!/usr/bin/env python3
"""Damages the sources, one line at a time, and expects unit-spmd (or unit-rule) to fail.

    test/Spmd/mutate.py [--work DIR] [--only NAME] [--from N] [--check]

Works on a copy of the tree and of its build folder, so the checkout is never touched.
Each damage rebuilds one or two files; about a minute each on one core. The last run's
result is in docs/spmd-tests.md.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Quickest first; the later ones run only if the damage survives.
TESTS = [["unit-spmd", "every damage*"], ["unit-spmd", "every op*"],
         ["unit-spmd", "every listed*"], ["unit-rule"], ["unit-base"]]
TARGETS = ["unit-spmd", "unit-rule", "unit-base"]

# name, file, text, replacement: the text must occur exactly once.
DAMAGES = [
    ("no mask for a reduced padded dim", "lib/Rule/Sharding/OperandForm.cpp",
     "        padding[d] = reduction->reduce;", "        padding[d] = std::nullopt;"),
    ("no mask for indices", "lib/Rule/Sharding/OperandForm.cpp",
     "          padding[d] = fill.kind;", "          padding[d] = std::nullopt;"),
    ("indices of a split dim stay global", "lib/Rule/Sharding/OperandForm.cpp",
     "      form.localIndex = dim;", "      form.localIndex = std::nullopt;"),
    ("rows of other ranks are not masked", "dialects/Graph/Indexed.h",
     "mlir::cast<Op>(local).setMasked(true);",
     "mlir::cast<Op>(local).setMasked(false);"),
    ("masks of the wrong kind", "lib/Rule/Sharding/OperandForm.cpp",
     "        padding[d] = reduction->reduce;", "        padding[d] = ReduceKind::Prod;"),
    ("masks on the wrong dim", "lib/Rule/Sharding/OperandForm.cpp",
     "      dims.push_back(static_cast<int64_t>(d));",
     "      dims.push_back(static_cast<int64_t>(padding.size() - 1 - d));"),
    ("a use reads the first served layout", "passes/Shard/InsertReshards.cpp",
     "        setOperand(use, now);", "        setOperand(use, values[0]);"),
    ("reshards from the first served layout instead of the produced one",
     "passes/Shard/InsertReshards.cpp",
     "Value from = wanted.from < 0 ? value : values[static_cast<size_t>(wanted.from)];",
     "Value from = values.empty() ? value : values[0];"),
    ("weights keep their partial layout", "passes/Partition/Partition.cpp",
     "    from.layout.partial.clear();\n", ""),
    ("a reduction is treated as parallel", "lib/Rule/Sharding/Strategy.cpp",
     "    if (const loop::Reduction *reduction = rule.factors[f].reduction())\n      for (const DimFactor &sub : strategy.factors[f].factors)\n        addPartial(layout, reduction->reduce, sub.axes);",
     ""),
    ("passing axes are forgotten on the result", "lib/Rule/Sharding/Strategy.cpp",
     "  for (const Passing &p : strategy.passing)\n    addPartial(layout, rule.linear[p.set].kind, p.axes);",
     ""),
    ("addends are added by every rank", "lib/Rule/Sharding/Strategy.cpp",
     "if (addend == static_cast<int32_t>(i))", "if (false)"),
    ("partial kinds nest the other way", "lib/Rule/Sharding/Strategy.cpp",
     "return p.kind >= kind; });", "return p.kind <= kind; });"),
    ("all operands of an op become partial with a set", "lib/Rule/Sharding/Strategy.cpp",
     "    if (std::find(set.operands.begin(), set.operands.end(), static_cast<int32_t>(i)) !=\n        set.operands.end())",
     "    if (!set.operands.empty())"),
    ("opposite neutral elements may meet", "lib/Rule/Sharding/Strategy.cpp",
     "rule.linear[p.set].operands != candidate.operands)", "false)"),
    ("slices of a split dim keep the global start", "dialects/Graph/Shape.cpp",
     "starts[d] = starts[d] / global[d] * now[d];", "starts[d] = starts[d] + 0 * now[d];"),
    ("concatenation takes the last part first", "dialects/Graph/Shape.cpp",
     "std::iota(all.begin(), all.end(), 0);",
     "std::iota(all.begin(), all.end(), 0);\n  all.resize(1);"),
    ("convolution keeps its global groups", "dialects/Graph/Contraction.cpp",
     "setGroup(channels / channelsPerGroup)", "getGroup()"),
    ("windows are parallel", "lib/Rule/Sharding/Families.cpp",
     "  if (!dim.pointwise())\n    what = loop::Window",
     "  if (false)\n    what = loop::Window"),
    ("a window buffer has only what its rank owns", "lib/Base/Layout/Halo.cpp",
     "    for (const ExchangeBlock &block : haloBlocks(mesh, halo, rank))\n",
     "    for (const ExchangeBlock &block : haloBlocks(mesh, halo, rank))\n      if (block.peer == rank)\n"),
    ("the halo of the low side is dropped", "lib/Base/Layout/Halo.cpp",
     "int64_t first = std::max<int64_t>(begin, 0);",
     "int64_t first = std::max<int64_t>(begin + window->low, 0);"),
    ("a window buffer ends one element early", "lib/Base/Layout/Halo.cpp",
     "std::min(begin + window->extent(positions.local()), halo.before.dims[d].size());",
     "std::min(begin + window->extent(positions.local()) - 1, halo.before.dims[d].size());"),
    ("a maximum over windows sees zeros around the image", "lib/Rule/Sharding/Strategy.cpp",
     "halo.fill = window->outside;", "halo.fill = ReduceKind::Sum;"),
    ("an average counts the pads of its buffer", "dialects/Graph/Reduction.cpp",
     "return plain ? std::vector<double>{} : scale;", "return {};"),
    ("a softmax row may be split", "lib/Rule/Sharding/Families.cpp",
     "if (mixed[d])\n      what = loop::Replicate{};", ""),
    ("the minor factor of a reshape comes first", "lib/Rule/Sharding/Families.cpp",
     "    tensor[dim].insert(tensor[dim].begin(), factor);",
     "    tensor[dim].push_back(factor);"),
    ("a maximum reduces as a sum", "lib/Rule/Sharding/Families.cpp",
     "loop::Reduction{.reduce = *kind}", "loop::Reduction{}"),
    ("an integer maximum passes through addition", "dialects/Graph/Ops/Elementwise.td",
     "[LinearSum<[0, 1]>, LinearMax<[0], [IfFloat]>,\n                                  LinearMax<[1]",
     "[LinearSum<[0, 1]>, LinearMax<[0]>,\n                                  LinearMax<[1]"),
    ("one factor of a product is not linear", "dialects/Graph/Ops/Elementwise.td",
     "[LinearSum<[0]>, LinearSum<[1]>, LinearProd<[0, 1]>]",
     "[LinearSum<[0]>, LinearProd<[0, 1]>]"),
    ("a sum passes through one side of addition", "dialects/Graph/Ops/Elementwise.td",
     '"x - y",\n                                 [LinearSum<[0, 1]>,',
     '"x - y",\n                                 [LinearSum<[0]>,'),
    ("axes of a step are in the other order", "lib/Base/Layout/StepBetween.cpp",
     "    const Change *first = loses ? loses : gains;",
     "    std::reverse(step.axes.begin(), step.axes.end());\n    const Change *first = loses ? loses : gains;"),
    ("the place of an all-to-all is where the axes go", "lib/Base/Layout/StepBetween.cpp",
     "    const Change *first = loses ? loses : gains;",
     "    const Change *first = gains ? gains : loses;"),
    ("to-partial keeps the value everywhere", "lib/Base/Layout/ReshardExecute.cpp",
     "        fillNeutral(out, *fill);", "        (void)fill;"),
    ("an integer maximum starts from zero", "lib/Base/Layout/ReshardExecute.cpp",
     "return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();",
     "return Limits::has_infinity ? -Limits::infinity() : T(0);"),
    ("a block starts one place late", "lib/Base/Layout/Layout.cpp",
     "int64_t first = factor.begin(mesh.coordinate(rank, factor.axes));",
     "int64_t coordinate = mesh.coordinate(rank, factor.axes);\n    int64_t first = factor.begin(coordinate) + (coordinate > 0);"),
    ("padding of a split reduced dim is kept per class", "lib/Rule/Sharding/AssignStrategies.cpp",
     "unit = uneven[root] ? product(used[root]) : 1;", "unit = uneven[root] ? 2 : 1;"),
]


def run(command, cwd, limit=900):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=limit)


def first_failure(output):
    """The first line that says what went wrong."""
    for line in output.splitlines():
        line = line.strip()
        if (line.startswith("WRONG") or "must-shard.txt says" in line
                or line.endswith(("not noticed", "but holds", "does not hold"))):
            return line[:100]
    lines = [line for line in output.splitlines() if "FAILED" in line]
    return (lines or ["it crashed"])[0][:100]


def verdict(work, name, file, text, replacement):
    """'killed by TEST', 'survived', or why the damage could not be tried."""
    path = work / file
    original = path.read_text()
    if original.count(text) != 1:
        return f"the text occurs {original.count(text)} times in {file}"
    path.write_text(original.replace(text, replacement))
    try:
        build = run(["ninja", "-C", "build/dev", *TARGETS], work, limit=3600)
        if build.returncode:
            return "does not compile: " + build.stdout.strip().splitlines()[-1]
        for test in TESTS:
            # Not found within the limit is not found: a damage may also hang a loop.
            try:
                result = run([f"build/dev/bin/{test[0]}", *test[1:]], work, limit=900)
            except subprocess.TimeoutExpired:
                return f"killed by {' '.join(test)} (time limit)"
            if result.returncode:
                return f"killed by {' '.join(test)}, {first_failure(result.stdout)}"
        return "survived"
    finally:
        path.write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", default="/tmp/partita-mutate")
    parser.add_argument("--only", help="part of a damage's name")
    parser.add_argument("--from", dest="first", type=int, default=0,
                        help="number of the first damage")
    parser.add_argument("--check", action="store_true",
                        help="only see that every text still occurs once")
    options = parser.parse_args()
    if options.check:
        lost = [f"{name}: the text occurs {count} times in {file}"
                for name, file, text, _ in DAMAGES
                if (count := (ROOT / file).read_text().count(text)) != 1]
        sys.exit("\n".join(lost) or None)
    work = pathlib.Path(options.work)
    if work.exists():
        shutil.rmtree(work)
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT).split(b"\0")
    for file in filter(None, files):
        target = work / os.fsdecode(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / os.fsdecode(file), target)
    for command in (["cmake", "--preset", "dev"], ["ninja", "-C", "build/dev", *TARGETS]):
        done = run(command, work, limit=3600)
        if done.returncode:
            sys.exit("the copy does not build: " + done.stdout[-2000:])
    bad = 0
    for name, file, text, replacement in DAMAGES[options.first:]:
        if options.only and options.only not in name:
            continue
        start = time.monotonic()
        result = verdict(work, name, file, text, replacement)
        bad += not result.startswith("killed")
        print(f"{name}: {result} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"{bad} damages not killed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
