#!/usr/bin/env python3
"""Runs kernels on a GPU and compares them with what a CPU made (prepare_cases.py).

usage: run_cases.py CASES… [--repeat 20]

CASES are folders, each with kernels.ptx and manifest.json. With cases.json, every kernel
that it names is run on the arguments of data.bin and compared: by `verify`'s tolerances
(rtol 1e-4, atol 1e-5; floats of two bytes one rounding more, of tile programs, which have
shared memory, 4 units of the tensor's scale; all else equal), over all the bytes that it
may touch. Without, kernels are timed on arguments of random bits' size.
Needs the driver's libcuda.so.1 and numpy, nothing else.
"""
import argparse
import ctypes
import json
import pathlib
import sys
import time

import numpy as np

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16,
         "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
         "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.uint8}
RTOL, ATOL = 1e-4, 1e-5
#: Twice the unit roundoff: two numbers within it are neighbours.
ROUNDING = {"f16": 2.0 ** -10, "bf16": 2.0 ** -7}
#: Of tile programs' halves: what is rounded on the way (the weights of an attention) is
#: no rounding of each result, so that the tensor's scale counts (test/E2E/equality.py).
HALF_UNITS = 4
STATUS_BYTES = 32


class Cuda:
    """Calls of the driver, each of which must succeed."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.device = device.value
        name = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", name, 100, device)
        self.name = name.value.decode()
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.functions = {}

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'?').decode()} ({status})")

    def load(self, ptx):
        """A module; the driver assembles the PTX for its own architecture."""
        module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(1 << 14)
        keys = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, its size
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), len(log))
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(module), ptx + b"\0", 2, keys,
                      values)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {log.value.decode()}") from None
        return module

    def function(self, module, kernel):
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module,
                  kernel["name"].encode())
        if kernel["shared"] > 48 << 10:  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call("cuFuncSetAttribute", function, 8, kernel["shared"])
        return function

    def memory(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address, data):
        if len(data):
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), bytes(data),
                      ctypes.c_size_t(len(data)))

    def download(self, address, size):
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def zero(self, address, size):
        self.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(0),
                  ctypes.c_size_t(size))

    def launch(self, function, kernel, addresses):
        values = [ctypes.c_uint64(a) for a in addresses]
        pointers = (ctypes.c_void_p * len(values))(
            *[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values])
        self.call("cuLaunchKernel", function, kernel["grid"], 1, 1, kernel["block"], 1, 1,
                  kernel["shared"], None, pointers, None)

    def finish(self):
        self.call("cuCtxSynchronize")

    def seconds(self, work, repeat, rounds=5):
        """The median, over rounds, of the time of a piece of work that is given `repeat`
        times in a row, so that the device does not wait for the host."""
        times, begin, end = [], ctypes.c_void_p(), ctypes.c_void_p()
        for event in (begin, end):
            self.call("cuEventCreate", ctypes.byref(event), 0)
        for _ in range(rounds + 1):
            self.call("cuEventRecord", begin, None)
            for _ in range(repeat):
                work()
            self.call("cuEventRecord", end, None)
            self.finish()
            took = ctypes.c_float()
            self.call("cuEventElapsedTime", ctypes.byref(took), begin, end)
            times.append(took.value * 1e-3 / repeat)
        return sorted(times[1:])[rounds // 2]


def wide(data, kind):
    """The elements of a tensor's bytes as f64, or as they are where they are no floats."""
    elements = np.frombuffer(data, TYPES.get(kind, np.uint8))
    if kind == "bf16":
        return (elements.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return elements.astype(np.float64) if kind in ("f32", "f64", "f16") else elements


def compare(actual, expected, kind, is_sum):
    """Nothing, or a sentence; and the largest difference in units of the tolerance."""
    a, e = wide(actual, kind), wide(expected, kind)
    atol = ATOL
    if is_sum and kind in ROUNDING:
        finite = e[np.isfinite(e)]
        atol += HALF_UNITS * ROUNDING[kind] * np.sqrt(np.mean(finite ** 2)) if len(finite) else 0
    if kind not in ("f32", "f64", "f16", "bf16"):
        wrong = np.flatnonzero(a != e)
        return (f"element {wrong[0]} is {a[wrong[0]]}, expected {e[wrong[0]]}, of "
                f"{len(wrong)} that differ" if len(wrong) else ""), 0
    same = (a == e) | (np.isnan(a) & np.isnan(e))
    with np.errstate(invalid="ignore", over="ignore"):
        excess = np.where(same, 0, np.abs(a - e) /
                          (atol + (RTOL + ROUNDING.get(kind, 0)) * np.abs(e)))
    excess = np.where(np.isnan(excess), np.inf, excess)
    worst = int(np.argmax(excess)) if len(excess) else 0
    largest = float(excess[worst]) if len(excess) else 0
    if largest <= 1:
        return "", largest
    return (f"element {worst} is {a[worst]:.9g}, expected {e[worst]:.9g} ({largest:.3g} "
            f"times the tolerance), of {int((excess > 1).sum())} that differ"), largest


class Buffers:
    """Memory of one launch, given back together."""

    def __init__(self, cuda):
        self.cuda, self.all = cuda, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for address in self.all:
            self.cuda.free(address)

    def make(self, data=None, size=0):
        address = self.cuda.memory(len(data) if data is not None else size)
        self.all.append(address)
        if data is None:
            self.cuda.zero(address, max(size, 1))
        else:
            self.cuda.upload(address, data)
        return address


def bind(buffers, kernel, tensors, scalars):
    """The address of each argument. `tensors` are the bytes of each in and out."""
    addresses, places = [], iter(tensors)
    for argument in kernel["arguments"]:
        kind = argument["kind"]
        if kind in ("in", "out"):
            addresses.append(buffers.make(data=next(places)))
        elif kind == "scratch":
            addresses.append(buffers.make(size=argument["bytes"]))
        elif kind == "scalars":
            addresses.append(buffers.make(data=np.array(scalars, np.int64).tobytes()))
        else:
            addresses.append(buffers.make(size=STATUS_BYTES))
    outs = [a for a, b in zip(addresses, kernel["arguments"]) if b["kind"] == "out"]
    for k, argument in enumerate(kernel["arguments"]):
        if "output" in argument:
            addresses[k] = outs[argument["output"]]
    return addresses


def run_case(cuda, module, kernel, case, data):
    """Sentences on what differs; the largest difference by its tolerance."""
    tensors, at = [], case["begin"]
    for size in case["before"] + case["after"]:
        tensors.append(data[at:at + size])
        at += size
    before, after = tensors[:len(case["before"])], tensors[len(case["before"]):]
    with Buffers(cuda) as buffers:
        addresses = bind(buffers, kernel, before, case["scalars"])
        cuda.launch(cuda.function(module, kernel), kernel, addresses)
        cuda.finish()
        words, largest = [], 0.0
        outs = [(a, b) for a, b in zip(addresses, kernel["arguments"]) if b["kind"] == "out"]
        for k, ((address, argument), expected) in enumerate(zip(outs, after)):
            actual = cuda.download(address, len(expected))
            word, excess = compare(actual, expected, argument["type"],
                                   kernel["shared"] > 0)
            largest = max(largest, excess)
            if word:
                words.append(f"output {k} ({argument['type']}): {word}")
        for address, argument in zip(addresses, kernel["arguments"]):
            if argument["kind"] == "status":
                status = np.frombuffer(cuda.download(address, STATUS_BYTES), np.int64)
                if status[0]:
                    words.append(f"status {list(status)}")
    return words, largest


def run_folder(cuda, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    cases = json.loads((folder / "cases.json").read_text())
    data = (folder / "data.bin").read_bytes()
    begin = time.time()
    module = cuda.load((folder / "kernels.ptx").read_bytes())
    loaded = time.time() - begin
    wrong, largest = [], 0.0
    for case in cases:
        kernel = manifest["kernels"][case["kernel"]]
        words, excess = run_case(cuda, module, kernel, case, data)
        largest = max(largest, 0 if words else excess)
        wrong += [f"  {kernel['name']} of {', '.join(kernel['sources'][:3])}: {word}"
                  for word in words]
    count = len({word.split()[0] for word in wrong})
    print(f"{folder.name}: {len(cases) - count} of {len(cases)} kernels equal, largest "
          f"difference {largest:.2g} of the tolerance, assembled in {loaded:.2f} s")
    print("\n".join(wrong), end="\n" if wrong else "", flush=True)
    return count


def time_folder(cuda, folder, repeat):
    manifest = json.loads((folder / "manifest.json").read_text())
    module = cuda.load((folder / "kernels.ptx").read_bytes())
    random = np.random.default_rng(1)
    for kernel in manifest["kernels"]:
        tensors = []
        for argument in kernel["arguments"]:
            if argument["kind"] not in ("in", "out"):
                continue
            kind = np.dtype(TYPES[argument["type"]])
            block = random.normal(0, 1, 1 << 20).astype(kind) \
                if argument["type"] in ("f32", "f64", "f16") else np.zeros(1 << 20, kind)
            if argument["type"] == "bf16":
                block = (random.normal(0, 1, 1 << 20).astype(np.float32).view(np.uint32)
                         >> 16).astype(np.uint16)
            tensors.append(np.resize(block, argument["elements"]).tobytes())
        with Buffers(cuda) as buffers:
            addresses = bind(buffers, kernel, tensors, [0] * 8)
            function = cuda.function(module, kernel)
            took = cuda.seconds(lambda: cuda.launch(function, kernel, addresses), repeat)
        print(f"{folder.name}: {', '.join(kernel['sources'][:3])}: {took * 1e6:.1f} us, "
              f"{kernel['bytes'] / took * 1e-9:.0f} GB/s, "
              f"{kernel['flops'] / took * 1e-12:.2f} TFLOP/s, grid {kernel['grid']}",
              flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+", type=pathlib.Path)
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    cuda = Cuda()
    print(f"{cuda.name}")
    wrong = 0
    for folder in args.cases:
        try:
            if (folder / "cases.json").exists():
                wrong += run_folder(cuda, folder)
            else:
                time_folder(cuda, folder, args.repeat)
        except RuntimeError as error:
            wrong += 1
            print(f"{folder.name}: {error}", flush=True)
            if "illegal" in str(error) or "(7" in str(error):
                break  # the context is lost
    sys.exit(f"{wrong} kernels differ" if wrong else 0)


if __name__ == "__main__":
    main()
