#!/usr/bin/env python3
"""Checks the layering of the tree: includes, cycles, what libraries link, file sizes.

usage: check_layering.py ROOT BUILD    checks a tree and its built libraries
       check_layering.py --self-test DIR
"""
import os
import re
import subprocess
import sys

# A layer may include its own files and those of the layers after it.
LAYERS = ["tools", "passes", "dialects", "lib"]
INCLUDE = re.compile(r'^\s*#include\s+[<"]([^>"]+)[>"]', re.M)
MAX_LINES = {".cpp": 800, ".h": 500, ".td": 400}
ENGINE = re.compile(r"partita/Runtime/(OneDnn|Plain)\.h")
# What each room of passes/Codegen may see of the others: forming tasks sees no target,
# how kernels compute is the same for all, the writer of bundles takes any, and targets
# see each other only where they share the code of a processor.
CODEGEN_ROOMS = {"Common": set(), "Emit": {"Common"}, "Bundle": {"Common", "Emit"},
                 "CPU": {"Common", "Emit"}, "Nvptx": {"Common", "Emit"},
                 "OneDnn": {"Common", "Emit", "CPU"}, "Plain": {"Common", "Emit", "CPU"}}
CODEGEN_ROOMS["Targets"] = set(CODEGEN_ROOMS) - {"Bundle"}
# What Common would say if it knew a target, where it has to ask the model.
TARGET_WORD = re.compile(
    r"PARTITA_(POST|FORMAT)_\w+|[Cc]hannels[- ]?([Ll]ast|[Ff]irst)|one[- ]?dnn|\bdnnl\w*|"
    r"kernels::(cpu|plain|ideal)\b|[!=]= *\"(cpu|plain|nvptx|cuda)\"", re.I)
# What passes may see of lib/Runtime: what an engine, which the code generator asks for
# sizes, and the team of threads that it counts on. The rest runs bundles.
COMPILER_MAY = re.compile(r"partita/Runtime/(Engine|OneDnn|Plain|Team)\.h")
COMPILER_LINKS = re.compile(r"\bPartita(Runtime|Launch)\b")
# Folders of lib/ that may see others, beyond what their headers say: lib/Runtime links
# only Base and Abi.
RUNTIME_MAY = {"Base", "Abi", "Runtime"}


def sources(root):
    for top in LAYERS + ["include"]:
        for folder, _, files in os.walk(os.path.join(root, top)):
            for name in sorted(files):
                if os.path.splitext(name)[1] in MAX_LINES:
                    yield os.path.relpath(os.path.join(folder, name), root)


def place(layer, folders):
    """(layer, sub-folder, room): `room` is the folder in the sub-folder, if any."""
    return layer, folders[0] if folders else "", folders[1] if len(folders) > 1 else ""


def home(path):
    """The place of a file; lib/Base/Layout and include/partita/Base/Layout are one."""
    parts = path.split("/")
    if parts[0] == "include":
        return place("lib", parts[2:-1])
    return place(parts[0], parts[1:-1])


def target(include):
    """The place an include leads to, None if it leaves the project."""
    parts = include.split("/")
    if parts[0] == "partita" and len(parts) > 2:
        return place("lib", parts[1:-1])
    if parts[0] in LAYERS and len(parts) > 2:
        return place(parts[0], parts[1:-1])
    return None


def check_includes(root):
    errors, edges, folders = [], {}, {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        limit = MAX_LINES[os.path.splitext(path)[1]]
        if text.count("\n") > limit:
            errors.append(f"{path}: {text.count(chr(10))} lines, more than {limit}")
        layer, sub, room = home(path)
        if (layer, sub, room) == ("passes", "Codegen", "Common"):
            for word in TARGET_WORD.finditer(text):
                line = text.count("\n", 0, word.start()) + 1
                errors.append(f"{path}:{line}: '{word.group()}' is of a target: ask the "
                              "model")
        for include in INCLUDE.findall(text):
            if layer == "lib" and re.match(r"(mlir|llvm)/", include):
                errors.append(f"{path}: lib/ includes {include}")
            to = target(include)
            if to is None:
                continue
            if LAYERS.index(to[0]) < LAYERS.index(layer):
                errors.append(f"{path}: {layer}/ includes {include} of {to[0]}/")
            if layer == "lib" and sub == "Runtime" and to[1] not in RUNTIME_MAY:
                errors.append(f"{path}: lib/Runtime includes {include}")
            if (layer, sub) == ("passes", "Codegen") and to[:2] == (layer, sub):
                if to[2] not in CODEGEN_ROOMS.get(room, set()) | {room}:
                    errors.append(f"{path}: Codegen/{room} includes Codegen/{to[2]}")
            if (layer, sub) == ("passes", "Codegen"):
                engine = ENGINE.match(include)
                if engine and engine.group(1) != room:
                    errors.append(f"{path}: Codegen/{room} includes {include} of an engine")
                if room == "Common" and to[:2] == ("lib", "Runtime"):
                    errors.append(f"{path}: Codegen/Common includes {include}: it asks the "
                                  "target")
            if layer == "passes" and to[:2] == ("lib", "Runtime") and \
                    not COMPILER_MAY.match(include):
                errors.append(f"{path}: passes/{sub} includes {include} of the runtime")
            if layer == "passes" and to[0] == "passes" and sub not in ("Pipelines", to[1]):
                if not (sub == "Codegen" and to[1] == "Codegen"):
                    errors.append(f"{path}: stage {sub} includes stage {to[1]}")
            if to != home(path):
                edges.setdefault(home(path), set()).add(to)
            if to[:2] != (layer, sub):
                folders.setdefault((layer, sub), set()).add(to[:2])
    return errors + check_links(root) + find_cycles(edges) + find_cycles(folders)


def check_links(root):
    """What runs bundles is linked by tools, never by passes or dialects."""
    errors = []
    for top in ["dialects", "passes"]:
        for folder, _, files in os.walk(os.path.join(root, top)):
            if "CMakeLists.txt" not in files:
                continue
            path = os.path.join(folder, "CMakeLists.txt")
            with open(path, encoding="utf-8") as file:
                for found in COMPILER_LINKS.findall(file.read()):
                    errors.append(f"{os.path.relpath(path, root)}: links Partita{found}, "
                                  "which runs bundles")
    return errors


def find_cycles(edges):
    errors, done = [], set()

    def visit(node, trail):
        if node in trail:
            loop = trail[trail.index(node):] + [node]
            errors.append("cycle: " + " -> ".join("/".join(n).rstrip("/") for n in loop))
            return
        if node in done:
            return
        for to in sorted(edges.get(node, ())):
            visit(to, trail + [node])
        done.add(node)

    for node in sorted(edges):
        visit(node, [])
    return errors


def check_libraries(build):
    """lib/ must not use LLVM or MLIR symbols, whatever its headers say."""
    errors = []
    for name in ["Base", "Rule", "Reference", "Onnx", "Runtime", "Solver",
                 "Topology", "Cost", "Search", "Deploy"]:
        path = os.path.join(build, "lib", f"libPartita{name}.a")
        if not os.path.exists(path):
            continue
        for symbol in undefined(path):
            if re.search(r"\b(mlir|llvm)::", symbol):
                errors.append(f"lib/{name} uses {symbol}")
                break
    # Passes that were linked with what runs bundles would name it.
    for name in [*("Codegen" + room for room in CODEGEN_ROOMS), "Pipelines"]:
        path = os.path.join(build, "lib", f"libPartita{name}.a")
        for symbol in undefined(path) if os.path.exists(path) else []:
            if re.match(r"partita::runtime::(?!(set)?[tT]eamSize|threadsPerRank|runParts)",
                        symbol):
                errors.append(f"passes: {name} uses {symbol} of the runtime")
    return errors


def undefined(path):
    symbols = subprocess.run(["nm", "-u", "-C", path], capture_output=True, text=True)
    return [line.split(" U ")[-1].strip() for line in symbols.stdout.splitlines()
            if " U " in line]


def self_test(folder):
    """Each rule is broken once in a tree of its own and must be found."""
    cases = {
        "lib/Base/A.cpp": ('#include "dialects/Graph/Graph.h"\n', "lib/ includes dialects"),
        "lib/Rule/B.cpp": ('#include "mlir/IR/Value.h"\n', "lib/ includes mlir"),
        "dialects/Graph/C.cpp": ('#include "passes/Shard/Passes.h"\n', "dialects/ includes"),
        "passes/Shard/D.cpp": ('#include "passes/Partition/Passes.h"\n', "stage Shard"),
        "lib/Runtime/E.cpp": ('#include "partita/Rule/Sharding/Flow.h"\n', "lib/Runtime includes"),
        "lib/Base/F.cpp": ("\n" * 900, "900 lines"),
        "passes/Codegen/Common/G.cpp": ('#include "passes/Codegen/CPU/CpuModel.h"\n',
                                        "Codegen/Common includes Codegen/CPU"),
        "passes/Codegen/Plain/K.cpp": ('#include "passes/Codegen/OneDnn/OneDnnModel.h"\n',
                                       "Codegen/Plain includes Codegen/OneDnn"),
        "passes/Codegen/Bundle/L.cpp": ('#include "passes/Codegen/CPU/CpuModel.h"\n',
                                        "Codegen/Bundle includes Codegen/CPU"),
        "passes/Codegen/CPU/M.cpp": ('#include "partita/Runtime/Plain.h"\n', "of an engine"),
        "passes/Codegen/Common/N.cpp": ('#include "partita/Runtime/Team.h"\n',
                                        "asks the target"),
        "passes/Codegen/Common/O.cpp": ("\nif (post.kind == PARTITA_POST_BINARY_ADD)\n",
                                        "O.cpp:2: 'PARTITA_POST_BINARY_ADD'"),
        "passes/Codegen/Common/P.cpp": ("bool isChannelsLast() const;\n", "'ChannelsLast'"),
        "passes/Codegen/Common/Q.cpp": ("/// as oneDNN does\n", "'oneDNN'"),
        "passes/Codegen/Common/R.cpp": ('if (target.name == "cpu")\n', "of a target"),
        "passes/Codegen/Common/S.cpp": ("if (&model.kernels == &kernels::cpu)\n",
                                        "'kernels::cpu'"),
        "passes/Codegen/Common/H.cpp": ('#include "partita/Runtime/OneDnn.h"\n',
                                        "of an engine"),
        "passes/Stage/I.cpp": ('#include "partita/Runtime/Session.h"\n', "of the runtime"),
        "passes/Pipelines/J.cpp": ('#include "partita/Runtime/RunBundle.h"\n',
                                   "of the runtime"),
        "passes/Pipelines/CMakeLists.txt": ("partita_mlir_library(P LINK PartitaRuntime)\n",
                                            "links PartitaRuntime"),
    }
    for path, (text, expected) in cases.items():
        tree = os.path.join(folder, os.path.basename(path))
        full = os.path.join(tree, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w") as file:
            file.write(text)
        found = check_includes(tree)
        if not any(expected in error for error in found):
            return [f"self-test: {path} was not found: {found}"]
    tree = os.path.join(folder, "cycle")
    for path, include in [("include/partita/A/X/A.h", "partita/A/Y/B.h"),
                          ("include/partita/A/Y/B.h", "partita/A/X/A.h")]:
        full = os.path.join(tree, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w") as file:
            file.write(f'#include "{include}"\n')
    if not any(error.startswith("cycle") for error in check_includes(tree)):
        return ["self-test: the cycle was not found"]
    return []


def main(args):
    if args[0] == "--self-test":
        errors = self_test(args[1])
    else:
        errors = check_includes(args[0]) + check_libraries(args[1])
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
