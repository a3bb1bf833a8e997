//===- Manifest.h - How kernels of PTX are called ---------------*- C++ -*-===//
//
// Facts that a loader needs beside the PTX: which entry point is whose, its grid, and its
// parameters in order. Written as JSON:
//
//   {"architecture": "sm_90",
//    "kernels": [{"name": "kernel_0", "sources": ["ln_1"], "grid": 96, "block": 256,
//                 "shared": 0, "flops": 1.2e6, "bytes": 98304.0,
//                 "arguments": [{"kind": "in", "type": "f32", "elements": 3072,
//                                "shape": [96, 32], "strides": [32, 1], "offset": 0},
//                               {"kind": "out", …},
//                               {"kind": "scratch", "bytes": 12288},
//                               {"kind": "scalars", "count": 1},
//                               {"kind": "status"}]}]}
//
// Every argument is an address of the device's memory, aligned to 64 bytes. `elements`
// is the room behind it that the kernel may touch; element (i0, i1, …) of `shape`, the
// kernel's domain, is at offset + Σ i·stride. A read at computed places has `shape` of
// the tensor and no strides. "output": number of the out that lies in the same place.
// `shared` is the
// dynamic shared memory of a block in bytes. Scratch is for the whole grid, scalars are
// i64, status is a partita_status.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_NVPTX_MANIFEST_H
#define PARTITA_PASSES_CODEGEN_NVPTX_MANIFEST_H

#include "passes/Codegen/Nvptx/NvptxCompiler.h"

namespace partita::codegen {

/// Elements behind an operand's address up to the last that the kernel touches.
int64_t roomOf(const KernelSpec &kernel, const KernelOperand &operand);

/// Blocks of a launch: one per row or per block of points, fewer where the scratch of all
/// would take more than 64 MiB. Blocks go on to further rows, so any number is right.
int64_t gridOf(const KernelSpec &kernel);

/// The manifest of the kernels of one text of PTX; `sources` names the nodes of each.
std::string manifestOf(const GpuKernels &kernels,
                       const std::vector<std::vector<std::string>> &sources,
                       const std::string &architecture);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_NVPTX_MANIFEST_H
