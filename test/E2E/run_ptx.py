#!/usr/bin/env python3
"""Lowers every generated kernel of models to PTX and assembles it.

usage: run_ptx.py PARTITA PARTITA_OPT ZOO MODEL… [--meshes MESH…] [--architecture sm_90]

Each model is compiled to level L3 for each mesh ("" is one rank), its kernels are written
as PTX (--partita-emit-ptx) and assembled with ptxas, of the wheel nvidia-cuda-nvcc, which
is fetched into the cache folder ($PARTITA_CACHE or ~/.cache/partita) if it is not there.
A kernel is for blocks of 256 threads; that is looked for in the text as well, and that the
manifest has the same kernels with as many arguments.
"""
import argparse
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

WHEEL = "nvidia-cuda-nvcc==13.5.37"
CACHE = pathlib.Path(os.environ.get("PARTITA_CACHE", pathlib.Path.home() / ".cache/partita"))


def assembler():
    """ptxas, which is one file of a wheel of 47 MB."""
    program = CACHE / WHEEL.replace("==", "-") / "ptxas"
    if program.exists():
        return program
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d",
                        folder, WHEEL], check=True)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [n for n in archive.namelist() if n.endswith("/bin/ptxas")]
            program.parent.mkdir(parents=True, exist_ok=True)
            part = program.with_suffix(f".{os.getpid()}")
            part.write_bytes(archive.read(name))
            part.chmod(part.stat().st_mode | stat.S_IXUSR)
            part.replace(program)
    return program


def lower(args, model, mesh, folder):
    """The file of PTX and how many kernels it is to have."""
    case = json.loads((args.zoo / model / "case.json").read_text())
    shapes = [word for name, shape in case["shapes"].items()
              for word in ("--shape", name + "=" + ",".join(map(str, shape)))]
    command = [args.partita, "compile", args.zoo / model / "model.onnx", "--to", "L3",
               "--dump-dir", folder / "ir", *shapes]
    subprocess.run(command + (["--mesh", mesh] if mesh else []), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ptx = folder / "kernels.ptx"
    done = subprocess.run(
        [args.partita_opt, folder / "ir/03-partitioned.mlir", "-o", os.devnull,
         f"--partita-emit-ptx=out={ptx} manifest={folder}/manifest.json "
         f"architecture={args.architecture}"],
        capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{model} on '{mesh}': {done.stderr[:2000]}")
    return ptx, int(re.search(r"(\d+) kernels", done.stdout)[1])


def check(args, ptxas, model, mesh):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ptx, count = lower(args, model, mesh, folder)
        text = ptx.read_text()
        entries = len(re.findall(r"^\s*\.visible \.entry kernel_", text, re.M))
        blocks = len(re.findall(r"^\s*\.maxntid 256", text, re.M))
        parameters = {name: body.count(".param") for name, body in
                      re.findall(r"\.visible \.entry (\w+)\((.*?)\)", text, re.S)}
        manifest = json.loads((folder / "manifest.json").read_text())
        if parameters != {k["name"]: len(k["arguments"]) for k in manifest["kernels"]}:
            sys.exit(f"{model} on '{mesh}': the manifest has other kernels than the PTX")
        done = subprocess.run([ptxas, f"-arch={args.architecture}", ptx, "-o",
                               folder / "kernels.cubin"], capture_output=True, text=True)
        if done.returncode or entries != count or blocks != count:
            sys.exit(f"{model} on '{mesh}': {count} kernels, {entries} entry points, {blocks} "
                     f"for 256 threads; ptxas: {done.stderr[:2000]}")
        size = (folder / "kernels.cubin").stat().st_size
        syncs = text.count("shfl.sync")
        print(f"{model} on '{mesh}': {count} kernels, {syncs} shuffles, {size} B of cubin",
              flush=True)
        return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita", type=pathlib.Path)
    parser.add_argument("partita_opt", type=pathlib.Path)
    parser.add_argument("zoo", type=pathlib.Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--meshes", nargs="+", default=["", "tp=2"])
    parser.add_argument("--architecture", default="sm_90")
    args = parser.parse_args()
    ptxas = assembler()
    total = sum(check(args, ptxas, model, mesh)
                for model in args.models for mesh in args.meshes)
    print(f"{total} kernels assembled, 0 refused")


if __name__ == "__main__":
    main()
