#!/usr/bin/env python3
"""Lowers every generated kernel of models to PTX and assembles it.

usage: run_ptx.py PARTITA PARTITA_OPT ZOO MODEL… [--meshes MESH…] [--architecture sm_90]
                  [--tiles ARCHITECTURE…]

Each model is compiled to level L3 for each mesh ("" is one rank), its kernels are written
as PTX (--partita-emit-ptx) and assembled with ptxas, of the wheel nvidia-cuda-nvcc, which
is fetched into the cache folder ($PARTITA_CACHE or ~/.cache/partita) if it is not there.
The manifest has the same kernels, with as many arguments and for blocks of as many threads.
With --tiles, large products and attentions are assembled for these architectures, too.
No kernel may spill registers; how many they have at most is printed.
"""
import argparse
import itertools
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Device"))
import prepare_cases  # noqa: E402

WHEEL = "nvidia-cuda-nvcc==13.5.37"
#: Of every type, one for each size of tiles, and edges with operands transposed.
PRODUCTS = [f"{kind}:{shape}" for kind in ("f32", "bf16", "f16") for shape in (
    "8192x8192x8192", "2048x2048x2048", "256x256x256,tb", "65x66x67,ta,batch=2")]
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
    return int(re.search(r"(\d+) kernels", done.stdout)[1])


def assemble(ptxas, architecture, folder, count, what):
    """Assembles kernels.ptx of a folder and compares it with manifest.json; `count`: how
    many kernels there are to be."""
    ptx = folder / "kernels.ptx"
    manifest = json.loads((folder / "manifest.json").read_text())
    entries = {name: (body.count(".param"), int(threads)) for name, body, threads in
               re.findall(r"\.visible \.entry (\w+)\((.*?)\)\s*\.maxntid (\d+)",
                          ptx.read_text(), re.S)}
    wanted = {k["name"]: (len(k["arguments"]), k["block"]) for k in manifest["kernels"]}
    done = subprocess.run([ptxas, f"-arch={architecture}", "-v", ptx, "-o",
                           folder / "kernels.cubin"], capture_output=True, text=True)
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", done.stderr)]
    spills = re.findall(r"[1-9]\d* bytes spill stores", done.stderr)
    if done.returncode or entries != wanted or len(registers) != count or spills:
        sys.exit(f"{what}: {count} kernels, {len(entries)} entry points, {len(wanted)} in the "
                 f"manifest, spills {spills}; ptxas: {done.stderr[:2000]}")
    size = (folder / "kernels.cubin").stat().st_size
    tiles = sum(k["shared"] > 0 for k in manifest["kernels"])
    print(f"{what}: {count} kernels, {tiles} by tiles, at most {max(registers, default=0)} "
          f"registers, 0 spills, {size} B of cubin", flush=True)
    return count


def check(args, ptxas, model, mesh):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        count = lower(args, model, mesh, folder)
        return assemble(ptxas, args.architecture, folder, count, f"{model} on '{mesh}'")


def check_tiles(args, ptxas, architecture):
    """Large products and attentions, whose tiles are the largest."""
    bin = args.partita.parent
    with tempfile.TemporaryDirectory() as name:
        work = argparse.Namespace(bin=bin, out=pathlib.Path(name), architecture=architecture)
        folder = work.out / "products"
        folder.mkdir()
        subprocess.run([bin / "record-kernels", "products", *PRODUCTS, "--record", folder,
                        "--timed", "--architecture", architecture], check=True,
                       stdout=subprocess.DEVNULL)
        total = assemble(ptxas, architecture, folder, len(PRODUCTS), f"products, {architecture}")
        for case in itertools.product(("f32", "bf16"), ((16, 2048, 64), (16, 4096, 128)),
                                      (False, True)):
            kind, shape, is_causal = case
            name = "-".join(map(str, ("attention", kind, *shape)))
            name += "-causal" if is_causal else ""
            prepare_cases.emit(work, name, lambda path: prepare_cases.large_attention(
                path, kind, *shape, is_causal))
            total += assemble(ptxas, architecture, work.out / name, 1 + is_causal,
                              f"{name}, {architecture}")
        return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita", type=pathlib.Path)
    parser.add_argument("partita_opt", type=pathlib.Path)
    parser.add_argument("zoo", type=pathlib.Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--meshes", nargs="+", default=["", "tp=2"])
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--tiles", nargs="*", default=[])
    args = parser.parse_args()
    ptxas = assembler()
    total = sum(check(args, ptxas, model, mesh)
                for model in args.models for mesh in args.meshes)
    total += sum(check_tiles(args, ptxas, architecture) for architecture in args.tiles)
    print(f"{total} kernels assembled, 0 refused")


if __name__ == "__main__":
    main()
