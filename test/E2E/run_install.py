#!/usr/bin/env python3
"""What `ninja install` and `pip install .` give, used from outside the source tree: a CMake
project that runs our pipeline from C++ (examples/embed), a C program by the compile line
that it states (examples/c), and the Python package with its commands.

usage: run_install.py PARTITA_BUILD SOURCE
"""
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


def call(arguments, **options):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=500, **options)
    if done.returncode != 0:
        sys.exit(f"FAILED  {' '.join(map(str, arguments))}\n{done.stdout[-2000:]}"
                 f"{done.stderr[-2000:]}")
    return done.stdout


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED  {what}")


def check_partial(folder, work):
    """A build of some targets installs nothing, and says what is missing: by the build's own
    install scripts, on a folder that has all but one of the files they begin by looking for."""
    partial, prefix = work / "partial", work / "partial-prefix"
    for script in folder.glob("**/cmake_install.cmake"):
        if "sanitized" in script.parts or "lit" in script.parts:
            continue
        copy = partial / script.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(script.read_text().replace(str(folder), str(partial)))
    for part in ("bin", "lib"):
        (partial / part).mkdir(exist_ok=True)
        for file in (folder / part).iterdir():
            if file.is_file() and file.name != "libpartita_compiler.so":
                (partial / part / file.name).touch()
    done = subprocess.run(["cmake", "--install", partial, "--prefix", prefix],
                          capture_output=True, text=True)
    said = " ".join(done.stderr.split())
    expect(done.returncode != 0 and "libpartita_compiler.so is not built, nothing was "
           f"installed; run: ninja -C {partial}" in said, f"half a build installed: {said}")
    expect(not prefix.exists(), "half a build left something")
    print("ok      a build of some targets", flush=True)


def check_commands(prefix, work):
    weights = np.random.Generator(np.random.PCG64(1)).standard_normal((8, 6), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 6])],
        [onnx.numpy_helper.from_array(weights, "w")])
    model, bundle = work / "fc.onnx", work / "bundle"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                ir_version=8), model)
    call([prefix / "bin/partita", "compile", model, "-o", bundle, "--mesh", "tp=2",
          "--mode", "data-parallel"])
    for tool in ("partita", "partita-run", "partita-solve"):
        expect(re.fullmatch(tool + r" \d+\.\d+\.\d+\n",
                            call([prefix / "bin" / tool, "--version"])), tool)
    return bundle, weights


def check_c(source, prefix, work, bundle):
    """By the compile line that the example states."""
    text = (source / "examples/c/run.c").read_text()
    line = re.search(r"^ \*   (cc .*)$", text, re.MULTILINE).group(1)
    shutil.copy(source / "examples/c/run.c", work)
    environment = os.environ | {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"),
                                "LD_LIBRARY_PATH": str(prefix / "lib")}
    if not shutil.which("pkg-config"):
        line = line.replace("$(pkg-config --cflags --libs partita-runtime)",
                            f"-I{prefix}/include -L{prefix}/lib -lpartita_runtime")
    if not shutil.which("cc"):
        line = line.replace("cc ", "clang-22 ", 1)
    call(["bash", "-c", line], cwd=work, env=environment)
    out = call([work / "run", bundle], env=environment)
    expect(out == "y: f32, 96 bytes\n", f"the C example printed {out!r}")
    print("ok      examples/c", flush=True)


def check_embed(source, prefix, work):
    build = work / "embed"
    shutil.copytree(source / "examples/embed", work / "embed-source")
    call(["cmake", "-G", "Ninja", "-S", work / "embed-source", "-B", build,
          f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_COMPILER=clang++-22",
          "-DCMAKE_C_COMPILER=clang-22", "-DCMAKE_BUILD_TYPE=Debug"])
    call(["cmake", "--build", build])
    out = call([build / "embed", "tp=2", work / "embed-source/hints.json"])
    expect(out.count("comm.all_reduce") == 1 and "tensor<8x8xf32>" in out,
           "the embedded pipeline printed\n" + out)
    print("ok      examples/embed", flush=True)


def check_python(source, folder, work, bundle, weights):
    target = work / "site"
    # A copy: setuptools writes into the source tree. Nothing is downloaded.
    copy = work / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "CMakeLists.txt"):
        shutil.copy(source / name, copy)
    shutil.copytree(source / "python", copy / "python")
    call([sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps",
          "--no-index", "--target", target, copy],
         env=os.environ | {"PARTITA_BUILD": str(folder)})
    script = ("import json, sys, numpy, partita\n"
              "x = numpy.ones((4, 8), 'f4')\n"
              "with partita.Session(sys.argv[1]) as s: y = s.run({'x': x})['y']\n"
              "assert partita.report(sys.argv[1])['stages'][0]['mesh'] == 'tp=2'\n"
              "print(json.dumps([partita.__file__, y.tolist()]))\n")
    out = call([sys.executable, "-c", script, bundle], cwd=work,
               env=os.environ | {"PYTHONPATH": str(target)})
    path, y = json.loads(out)
    expect(path.startswith(str(target)), f"another package was used: {path}")
    np.testing.assert_allclose(y, np.ones((4, 8), "f4") @ weights, rtol=1e-5, atol=1e-5)
    out = call([target / "bin/partita", "--version"],
               env=os.environ | {"PYTHONPATH": str(target)})
    expect(out.startswith("partita "), f"the installed command printed {out!r}")
    print("ok      pip install", flush=True)


def main():
    folder, source = (pathlib.Path(path).resolve() for path in sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="partita-install-") as name:
        work = pathlib.Path(name)
        prefix = work / "prefix"
        check_partial(folder, work)
        call(["cmake", "--install", folder, "--prefix", prefix])
        bundle, weights = check_commands(prefix, work)
        check_c(source, prefix, work, bundle)
        check_embed(source, prefix, work)
        check_python(source, folder, work, bundle, weights)


main()
