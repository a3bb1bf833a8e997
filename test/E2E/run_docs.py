#!/usr/bin/env python3
"""Every command line in README.md, docs/ and the help of the commands works as it stands.

usage: run_docs.py BIN ZOO SOURCE [--list]

They are run one after the other in a folder that has the files that they name: a GPT-2, a
BERT, text detection, the model of examples/chat, a small one, a cluster and a program.
"""
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ("partita", "partita-run", "partita-solve", "partita-opt", "mlir-opt-22")
#: Half a minute of measurements, and what another test runs.
LEFT_OUT = [r"\bpartita calibrate"]
CLUSTER = {
    "device": {"preset": "A100-80GB"},
    "levels": [{"name": "nvlink", "size": 8, "bandwidth": 300e9, "latency": 3e-6},
               {"name": "rack", "size": 16, "bandwidth": 25e9, "latency": 6e-6},
               {"name": "spine", "size": 8, "bandwidth": 25e9, "latency": 8e-6}]}
HINTS = {"tensors": {"*.c_attn.weight": [None, "tp"], "*.c_fc.weight": [None, "tp"]}}
PROGRAM = """
func.func @main(%x: tensor<8x4xf32>, %w: tensor<4x6xf32>) -> tensor<8x6xf32> {
  %y = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">}
       : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  return %y : tensor<8x6xf32>
}
"""
PROBLEM = {"problem": {
    "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 5], [2, 4]],
              "usages": [[6, 1], [6, 2]]},
    "edges": {"nodes": [[0, 1]], "costs": [[0, 1, 1, 0]]}, "usage_limit": 8}}


def lines_of(text):
    """Command lines, without what explains them after three spaces or a #."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        line = line.strip().removeprefix("$ ")
        words = line.split()
        known = words and (words[0] in TOOLS or words[:1] == ["mpirun"]) and len(words) > 1
        # "partita COMMAND" and "partita run: …" are prose.
        if known and not re.search(r"…|\b[A-Z]{3,}\b|^\S+ \S*[:,.]( |$)", line):
            yield re.split(r"\s+#|\s{3,}", line)[0]


def commands(folder, source):
    found = {}
    for page in [source / "README.md", *sorted((source / "docs").rglob("*.md"))]:
        blocks = re.findall(r"^```.*?$(.*?)^```|((?:^    .*\n)+)", page.read_text(),
                            re.MULTILINE | re.DOTALL)
        for fenced, indented in blocks:
            for line in lines_of(fenced or indented):
                found.setdefault(line, page.relative_to(source))
    helps = [["partita-run", "--help"], ["partita-solve", "--help"], ["partita", "--help"]]
    about = subprocess.run([folder / "partita", "--help"], capture_output=True, text=True,
                           check=True).stdout
    helps += [["partita", name, "--help"] for name in
              re.findall(r"^  ([a-z]+) ", about.split("Subcommands:")[1], re.MULTILINE)]
    for tool, *words in helps:
        text = subprocess.run([folder / tool, *words], capture_output=True, text=True,
                              check=True).stdout
        for line in lines_of(text):
            found.setdefault(line, " ".join([tool, *words]))
    return found


def small_model(work):
    """x of 128 rows through two layers: 1,024 devices have something to do."""
    generator = np.random.Generator(np.random.PCG64(1))
    weights = [onnx.numpy_helper.from_array(
        generator.standard_normal(shape, np.float32), name)
        for name, shape in (("up", (64, 256)), ("down", (256, 64)))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "up"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
         helper.make_node("MatMul", ["b", "down"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [128, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [128, 64])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                ir_version=8), work / "model.onnx")
    x = generator.standard_normal((128, 64), np.float32)
    np.save(work / "x.npy", x)
    np.savez(work / "train.npz", x=np.concatenate([x, x]), target=np.concatenate([x, x]))
    (work / "step.json").write_text(json.dumps(
        {"loss": {"kind": "mse", "of": "y", "labels": "target"},
         "optimizer": {"kind": "adamw"}}))
    np.savez(work / "held.npz", x=x[:100], target=x[:100])
    (work / "evaluated.json").write_text(json.dumps(
        {"loss": {"kind": "mse", "of": "y", "labels": "target"},
         "optimizer": {"kind": "adamw"}, "evaluate": True}))
    (work / "small").mkdir()
    (work / "small/input_0.pb").write_bytes(
        onnx.numpy_helper.from_array(x, "x").SerializeToString())


def prepare(work, zoo, folder):
    for name, model in (("gpt2", "gpt2-dynamo"), ("gpt3", "gpt2-dynamo"),
                        ("bert", "bert-dynamo"), ("det", "ppocr-det")):
        shutil.copy(zoo / model / "model.onnx", work / f"{name}.onnx")
    # As the README's first two lines take it out of the package.
    package = work / "ocr/rapidocr_onnxruntime/models"
    package.mkdir(parents=True)
    shutil.copy(zoo / "ppocr-cls/model.onnx",
                package / "ch_ppocr_mobile_v2.0_cls_infer.onnx")
    shutil.copytree(zoo / "gpt2-dynamo/inputs", work / "gpt2-data")
    shutil.copytree(zoo / "gpt2-dynamo/expected", work / "gpt2-data", dirs_exist_ok=True)
    small_model(work)
    subprocess.run([sys.executable, SOURCE / "examples/chat/build_model.py", "--layers", "1",
                    work / "chat.onnx"], check=True)
    for name, value in (("prompt", np.zeros((1, 32), np.int64)),
                        ("token", np.zeros((1, 1), np.int64)),
                        ("first", np.array([0])), ("second", np.array([32]))):
        np.save(work / f"{name}.npy", value)
    (work / "a100.json").write_text(json.dumps(CLUSTER))
    (work / "hints.json").write_text(json.dumps(HINTS))
    (work / "program.mlir").write_text(PROGRAM)
    # As seen from the folder in which the README's reader builds.
    (work / "build").mkdir()
    (work / "build/dev").symlink_to(folder.parent)
    (work / "problem.json").write_text(json.dumps(PROBLEM))
    with gzip.open(work / "problem.json.gz", "wt") as file:
        file.write(json.dumps(PROBLEM))
    # A home for the completion script.
    (work / ".local/share/bash-completion/completions").mkdir(parents=True)


def data_of(line):
    return "gpt2-data" if "gpt2" in line else "small"


def run(line, work, environment):
    words = line.split()
    # Anew: the examples of several pages write the same files.
    for at, word in enumerate(words[:-1]):
        if word in ("-o", "--outputs-dir"):
            target = work / words[at + 1]
            shutil.rmtree(target, ignore_errors=True)
            target.unlink(missing_ok=True)
    data = work / "test_data_set_0"
    data.unlink(missing_ok=True)
    data.symlink_to(data_of(line))
    # What an example runs, an example has compiled.
    for bundle, model, how in (
            ("gpt2.bundle", "gpt2.onnx", ["--mesh", "tp=4"]),
            ("bundle", "model.onnx", ["--mesh", "dp=2,tp=2"]),
            ("pipeline", "model.onnx", ["--train", "step.json", "--stages", "2",
                                        "--micro-batches", "4"])):
        if bundle in [word.split("/")[0] for word in words] and "-o" not in words:
            if not (work / bundle).exists():
                subprocess.run(["partita", "compile", model, "-o", bundle, *how],
                               cwd=work, env=environment, check=True, capture_output=True)
    if "--plan plan.json" in line:
        mesh = words[words.index("--mesh") + 1]
        model = words[2]
        subprocess.run(["partita", "plan", model, "--cluster", "a100.json", "--mesh", mesh,
                        "-o", "plan.json"], cwd=work, env=environment, check=True,
                       capture_output=True)
    line = line.replace("mpirun ", "mpirun --oversubscribe --bind-to none ", 1)
    return subprocess.run(["bash", "-c", line], cwd=work, env=environment, text=True,
                          capture_output=True, timeout=300)


def main():
    folder, zoo, source = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
    found = commands(folder, source)
    if len(found) < 25:
        sys.exit(f"only {len(found)} command lines were found: the search is at fault")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="partita-docs-") as name:
        work = pathlib.Path(name)
        prepare(work, zoo, folder)
        environment = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(work),
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        for line, where in found.items():
            if any(re.search(pattern, line) for pattern in LEFT_OUT):
                print(f"left out  {where}: {line}", flush=True)
                continue
            done = run(line, work, environment)
            if done.returncode == 0:
                print(f"ok        {where}: {line}", flush=True)
                continue
            failed += 1
            print(f"FAILED    {where}: {line}\n{done.stdout[-500:]}{done.stderr[-800:]}",
                  flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
