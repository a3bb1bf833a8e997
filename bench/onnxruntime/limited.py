"""ONNX Runtime as on a CPU without 512-bit vectors.

It asks the CPU what it has by the instruction CPUID, which no setting masks. Here a copy of
its library has a trap in the place of each CPUID, and a signal handler answers without
AVX-512 and AMX. Nothing else of the library changes, so it takes the kernels that it takes
on a CPU with AVX2 alone.
"""
import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys

HANDLER = r"""
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

static void answer(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *at = (const unsigned char *)registers[REG_RIP];
  if (at[0] != 0x0f || at[1] != 0x0b) { /* not ours: as if there were no handler */
    signal(number, SIG_DFL);
    return;
  }
  unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX];
  unsigned a, b, c, d;
  __cpuid_count(leaf, part, a, b, c, d);
  if (leaf == 7 && part == 0) {
    b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);
    c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);
    d &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25);
  } else if (leaf == 7 && part == 1) {
    a &= ~(1u << 5 | 1u << 21);
    d &= ~(1u << 19);
  }
  registers[REG_RAX] = a;
  registers[REG_RBX] = b;
  registers[REG_RCX] = c;
  registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void install(void) {
  struct sigaction action = {0};
  action.sa_sigaction = answer;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGILL, &action, 0);
}
"""


def trap_cpuid(library):
    """Replaces each CPUID of a shared library by a trap of the same length."""
    def objdump(*options):
        return subprocess.run(["objdump", *options, library], capture_output=True,
                              text=True, check=True).stdout
    sections = [tuple(int(field, 16) for field in fields) for fields in re.findall(
        r"^ *\d+ \S+ +([0-9a-f]{8,}) +([0-9a-f]{8,}) +[0-9a-f]{8,} +([0-9a-f]{8,}) ",
        objdump("-h"), re.MULTILINE)]
    places = [int(at, 16) for at in re.findall(
        r"^ *([0-9a-f]+):\s+cpuid\b", objdump("-d", "--no-show-raw-insn"), re.MULTILINE)]
    if not places:
        raise RuntimeError(f"{library} has no CPUID")
    with open(library, "r+b") as file:
        for place in places:
            size, start, offset = next(s for s in sections if s[1] <= place < s[1] + s[0])
            file.seek(offset + place - start)
            if file.read(2) != b"\x0f\xa2":
                raise RuntimeError(f"{library}: no CPUID at {place:x}")
            file.seek(-2, os.SEEK_CUR)
            file.write(b"\x0f\x0b")


def import_limited(folder):
    """The package onnxruntime, limited; its copy is in a folder that must stay."""
    package = os.path.dirname(importlib.util.find_spec("onnxruntime").origin)
    copy = shutil.copytree(package, os.path.join(folder, "onnxruntime"))
    capi = os.path.join(copy, "capi")
    for name in os.listdir(capi):
        if name.startswith("onnxruntime_pybind11_state"):
            trap_cpuid(os.path.join(capi, name))
    source = os.path.join(folder, "cpuid.c")
    with open(source, "w") as file:
        file.write(HANDLER)
    library = os.path.join(folder, "cpuid.so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    ctypes.CDLL(library)
    sys.path.insert(0, folder)
    import onnxruntime
    return onnxruntime
