//===- NvptxCompiler.h - Kernels as PTX -------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_NVPTX_NVPTXCOMPILER_H
#define PARTITA_PASSES_CODEGEN_NVPTX_NVPTXCOMPILER_H

#include "partita/Base/Error.h"
#include "passes/Codegen/Common/Program.h"

#include "mlir/IR/BuiltinOps.h"

namespace partita::codegen {

/// Plain data of programs whose kernels are for GPUs. Products apply no post-ops: what
/// follows one is a kernel.
inline constexpr kernels::Target nvptxKernels = {
    .posts = 0,
    .calls = {.addsToResult = false, .packsWeights = false},
};

/// PTX for one GPU architecture ("sm_90"): an entry point per kernel. An error if a
/// kernel calls what no GPU has.
Expected<std::string> compileToPtx(const std::vector<KernelSpec> &kernels,
                                   const std::string &architecture);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_NVPTX_NVPTXCOMPILER_H
