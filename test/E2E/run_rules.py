#!/usr/bin/env python3
"""Ready rules on the models of the zoo: --hints megatron finds the blocks of every family,
as both exporters write it, and leads to two reductions a layer; what it has found and
writes to a file leads to the same program; the result equals ONNX Runtime's. megatron-sp
has a gather and a reduce-scatter in the place of each, a gather before the head, and leaves
the batch to another axis; fsdp gathers weights and nothing else.

usage: run_rules.py PARTITA ZOO [--all] [--families F…] [--rule RULE] [--table FILE]

Without --all each export runs on one of the meshes, tp=2 or tp=4, with megatron, and one
export of each family with megatron-sp, of every other family with fsdp. --table writes
what was measured as a Markdown table.
"""
import argparse
import filecmp
import fnmatch
import json
import os
import subprocess
import sys
import tempfile

import equality

# Reductions that the blocks of two layers make: attention and an MLP each. A decoder of T5
# has attention to the encoder beside, and an encoder of two layers before it.
FAMILIES = {"gpt2": 4, "llama": 4, "qwen2": 4, "mistral": 4, "phi3": 4, "gemma2": 4,
            "t5": 4 + 6, "bert": 4, "modernbert": 4, "dinov2": 4}
EXPORTERS = ["dynamo", "script"]
# Queries, keys and values of Phi-3 are one product whose grouped heads lie in three runs of
# unequal length: an exchange of what it computes, per layer, beside the reductions.
EXCHANGES = {"phi3": 2}
# With the positions split, the head, whose vocabulary is, gathers them; and what T5's encoder
# gives is gathered once for all decoder layers.
GATHERS = {"gpt2": 1, "llama": 1, "qwen2": 1, "mistral": 1, "phi3": 1, "gemma2": 1, "t5": 1 + 1}


class Failure(Exception):
    pass


def call(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise Failure(f"{' '.join(arguments)}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def collectives(bundle):
    """Op, bytes and axes of each; the file has one entry for equal ones."""
    with open(os.path.join(bundle, "plan.json")) as file:
        return [(entry["op"], entry["bytes"], entry["axes"])
                for entry in json.load(file)["entries"][0]["stages"][0]["collectives"]
                for _ in entry["nodes"]]


def check_collectives(rule, family, made):
    """What a rule promises of the program's collectives."""
    count = {op: sum(o == op for o, _, _ in made) for op in {op for op, _, _ in made}}
    expected = {"megatron": {"all_reduce": FAMILIES[family]},
                "megatron-sp": {"reduce_scatter": FAMILIES[family],
                                "all_gather": FAMILIES[family] + GATHERS.get(family, 0)},
                "fsdp": {"all_gather": count.get("all_gather", 0)}}[rule]
    if rule == "megatron": # a reduction may leave its result split
        both = count.pop("all_reduce", 0) + count.pop("reduce_scatter", 0)
        count["all_reduce"] = both
    others = sum(n for op, n in count.items() if op not in expected)
    allowed = 0 if rule == "fsdp" else EXCHANGES.get(family, 0)
    if any(count.get(op, 0) != n for op, n in expected.items()) or others > allowed:
        raise Failure(f"expected {expected} and at most {allowed} others, got {count}")
    if not made or any("dp" in axes for _, _, axes in made):
        raise Failure(f"the batch's axis communicates, or nothing does: {made}")


def program(arguments, model, options, hints, work, label):
    """The partitioned program by these hints, as text."""
    path, ir = os.path.join(work, label + ".json"), os.path.join(work, "ir-" + label)
    with open(path, "w") as file:
        json.dump(hints, file)
    call([arguments.partita, "compile", model, "--to", "L3", "--dump-dir", ir, *options,
          "--hints", path])
    with open(os.path.join(ir, "03-partitioned.mlir")) as file:
        return file.read()


def check_names(arguments, model, options, rule_hints, rule_ir, work):
    """Hints by the framework's module paths lead to the program that hints by the file's
    own names lead to: for the rule's nodes, and for the columns of all weights."""
    shapes = options[:options.index("--mesh")]
    listed = json.loads(call([arguments.partita, "inspect", model, *shapes, "--nodes",
                              "--weights", "--json"]))
    products = [node for node in listed["nodes"]
                if node["op"] == "contract" and "module" in node]
    by_node, modules = {}, 0
    with open(rule_hints) as file:
        written = json.load(file)["nodes"]
    for glob, hint in written.items():
        names = [n["name"] for n in products if fnmatch.fnmatchcase(n["name"], glob)]
        if not names: # a path, then
            names = [n["name"] for n in products
                     if fnmatch.fnmatchcase(n["module"], glob)]
            modules += 1
        if not names:
            raise Failure(f"no product of the model is meant by '{glob}'")
        by_node.update({name: hint for name in names})
    with open(os.path.join(rule_ir, "03-partitioned.mlir")) as file:
        if file.read() != program(arguments, model, options, {"nodes": by_node}, work,
                                  "nodes"):
            raise Failure("the rule's hints by node names lead to another program")
    # Weights by path.weight, which the exporters have renamed or not.
    paths = {}
    for weight in listed["weights"]:
        for other in {weight["name"], *weight["other_names"]}:
            if other.endswith(".weight") and len(weight["shape"]) == 2:
                paths.setdefault(other, []).append(weight["name"])
    paths = {path: names[0] for path, names in paths.items()
             if len(names) == 1 and ".layer" in path or ".h." in path or ".block" in path}
    if len(set(paths.values())) < 8:
        raise Failure(f"only {len(paths)} weights have a path: {listed['weights'][:3]}")
    first = {name: path for path, name in paths.items()} # one path each
    columns = [None, "tp"]
    programs = [program(arguments, model, options, {"tensors": dict.fromkeys(names, columns)},
                        work, label)
                for label, names in (("by-name", first.keys()), ("by-path", first.values()))]
    if programs[0] != programs[1]:
        raise Failure("weights by module path lead to another program than by name")
    renamed = sum(name != path for name, path in first.items())
    # The same for nodes: the columns of each product whose module has no other.
    alone = {}
    for weight in listed["weights"]:
        readers = [n for n in products if weight["read_by"] == [n["name"]]]
        if len(weight["shape"]) != 2 or len(readers) != 1:
            continue
        node, module = readers[0]["name"], readers[0]["module"]
        inside = [n for n in products
                  if (n["module"] + ".").startswith(module + ".")]
        if len(inside) == 1 and module != node:
            alone[node] = module
    if len(alone) < 8:
        raise Failure(f"only {len(alone)} products have a module of their own")
    hint = {"in": [None, columns]}
    programs = [program(arguments, model, options, {"nodes": dict.fromkeys(names, hint)},
                        work, label)
                for label, names in (("by-node", alone.keys()),
                                     ("by-module", alone.values()))]
    if programs[0] != programs[1]:
        raise Failure("products by module path lead to another program than by node name")
    return (f"{modules} hints by module, {renamed} weights by path, "
            f"{len(alone)} products by module")


def run_case(arguments, rule, family, exporter, mesh, work):
    folder = os.path.join(arguments.zoo, f"{family}-{exporter}")
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    model = os.path.join(folder, "model.onnx")
    options = [text for name, shape in case["shapes"].items()
               for text in ("--shape", name + "=" + ",".join(map(str, shape)))]
    options += ["--mesh", mesh, "--mode", "data-parallel" if "dp" in mesh else "auto"]
    bundle, hints = os.path.join(work, "bundle"), os.path.join(work, "hints.json")
    call([arguments.partita, "compile", model, "-o", bundle, *options,
          "--hints", rule, "--write-hints", hints])
    made = collectives(bundle)
    check_collectives(rule, family, made)
    irs = []
    for given in (rule, hints):
        irs.append(os.path.join(work, "ir-" + os.path.basename(given)))
        call([arguments.partita, "compile", model, "--to", "L3", "--dump-dir", irs[-1],
              *options, "--hints", given])
    if not filecmp.cmp(*(os.path.join(ir, "03-partitioned.mlir") for ir in irs),
                       shallow=False):
        raise Failure("the hints that it writes lead to another program")
    names = ""
    if rule == "megatron":
        names = "; " + check_names(arguments, model, options, hints, irs[0], work)
    inputs, out = os.path.join(folder, "inputs"), os.path.join(work, "out")
    call([arguments.partita, "run", bundle, "--inputs-dir", inputs, "--outputs-dir", out])
    wide = equality.WideResults(arguments.partita, [bundle], inputs)
    figures = [equality.check(equality.load(os.path.join(out, f"output_{k}.pb")),
                              equality.load(os.path.join(folder, "expected",
                                                         f"output_{k}.pb")),
                              wide, k, f"output {k}")
               for k in range(len(case["outputs"]))]
    ops = [op for op, _, _ in made]
    counts = ", ".join(f"{ops.count(op)} {op}" for op in sorted(set(ops)))
    return counts, sum(size for _, size, _ in made), "; ".join(figures) + names


def sample():
    """Rule, family, exporter and mesh of each case of the suite."""
    cases = []
    for number, family in enumerate(FAMILIES):
        for e, exporter in enumerate(EXPORTERS):
            cases.append(("megatron", family, exporter, f"tp={(2, 4)[(number + e) % 2]}"))
        cases.append(("megatron-sp", family, EXPORTERS[number % 2], "dp=2,tp=2"))
        if number % 2:
            cases.append(("fsdp", family, EXPORTERS[number // 2 % 2], "tp=2"))
    return cases


def everything(rules):
    meshes = {"megatron": ["tp=2", "tp=4"], "megatron-sp": ["tp=2", "tp=4", "dp=2,tp=2"],
              "fsdp": ["tp=2", "tp=4"]}
    return [(rule, family, exporter, mesh) for rule in rules for family in FAMILIES
            for exporter in EXPORTERS for mesh in meshes[rule]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--rule", choices=["megatron", "megatron-sp", "fsdp"])
    parser.add_argument("--table")
    arguments = parser.parse_args()
    rules = [arguments.rule] if arguments.rule else ["megatron", "megatron-sp", "fsdp"]
    failed, rows = 0, []
    for rule, family, exporter, mesh in everything(rules) if arguments.all else sample():
        if rule not in rules or family not in arguments.families:
            continue
        label = f"{rule} {family}-{exporter} {mesh}"
        with tempfile.TemporaryDirectory(prefix="partita-rules-") as work:
            try:
                row = run_case(arguments, rule, family, exporter, mesh, work)
                rows.append((rule, f"{family}-{exporter}", mesh, *row))
                print(f"ok      {label}: {row[0]}; {row[1]} B; {row[2]}", flush=True)
            except (Failure, equality.Unequal, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED  {label}: {error}", flush=True)
    if arguments.table:
        with open(arguments.table, "w") as file:
            file.write("| rule | model | mesh | collectives | bytes per rank | against ONNX "
                       "Runtime |\n|---|---|---|---|---|---|\n")
            for row in rows:
                file.write("| " + " | ".join(map(str, row)) + " |\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
