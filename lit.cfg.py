# Configuration of the lit suite. Run it from here with `.venv/bin/lit test`, or with one
# of the test's folders or files; PARTITA_BUILD names the build folder (default: build/dev).
import os
import subprocess
import lit.formats
import lit.util

config.name = "Partita"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
root = os.path.dirname(os.path.abspath(__file__))
config.test_source_root = root
build = os.path.abspath(os.environ.get("PARTITA_BUILD", os.path.join(root, "build", "dev")))
config.test_exec_root = os.path.join(build, "lit")
# The suites of ctest, and what is no source, in case the whole tree is asked for.
config.excludes = ["Inputs", "Unit", "E2E", "Spmd", "build", ".venv"]

llvm = os.environ.get("PARTITA_LLVM", "/usr/lib/llvm-22/bin")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(build, "bin"), llvm, os.environ.get("PATH", "")])
config.environment["HOME"] = os.environ.get("HOME", "/tmp")
# What the user has measured of this machine is not what the tests expect.
config.environment["XDG_CONFIG_HOME"] = os.path.join(build, "lit", "config")
# The tier of the run, where sweeps say what they had, and the CPU of the full tier's second
# round (docs/checks.md).
for name in ("PARTITA_TIER", "PARTITA_SEED", "PARTITA_SWEEPS", "PARTITA_TARGET_CPU",
             "ONEDNN_MAX_CPU_ISA"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
# Undefined variables and typos in CHECK lines are errors.
config.environment["FILECHECK_OPTS"] = "--enable-var-scope --dump-input=fail"

python = os.path.join(root, ".venv", "bin", "python")
config.substitutions.append(("%root", root))
config.substitutions.append(("%build", build))
config.substitutions.append(("%zoo", os.path.join(build, "zoo")))
config.substitutions.append(("%python", python if os.path.exists(python) else "python3"))
config.substitutions.append(
    ("%plugin", os.path.join(build, "lib", "libPartitaPlugin.so")))

if os.path.exists(os.path.join(build, "zoo")):
    config.available_features.add("zoo")
# What needs root, or a system that lets users have namespaces of mounts.
if lit.util.which("unshare") and not subprocess.run(
        ["unshare", "-m", "true"], capture_output=True).returncode:
    config.available_features.add("mount-namespaces")
