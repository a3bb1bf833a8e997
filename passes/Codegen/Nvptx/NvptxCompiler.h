//===- NvptxCompiler.h - Kernels as PTX -------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_NVPTX_NVPTXCOMPILER_H
#define PARTITA_PASSES_CODEGEN_NVPTX_NVPTXCOMPILER_H

#include "partita/Base/Error.h"
#include "passes/Codegen/Nvptx/TileProgram.h"

#include "mlir/IR/BuiltinOps.h"

namespace partita::codegen {

/// Plain data of programs whose kernels are for GPUs. Products apply no post-ops: what
/// follows one is a kernel. Attention of fewer queries or keys would leave most of a tile
/// empty.
inline constexpr kernels::Target nvptxKernels = {
    .posts = 0,
    .calls = {.addsToResult = false, .packsWeights = false},
    .streamsAttention = true,
    .fewestQueries = 32,
    .fewestKeys = 32,
    .streamsGradients = false,
    .widestHead = widestTileHead,
};

/// Kernels of one text of PTX: those of programs, of which attentions are tile programs,
/// and products.
struct GpuKernels {
  std::vector<KernelSpec> kernels;
  std::vector<TileKernel> products;
  /// The tile program of a kernel that has one: products come behind the kernels.
  std::optional<TileKernel> tiles(size_t number) const;
  size_t size() const { return kernels.size() + products.size(); }
};

/// PTX for one GPU architecture ("sm_90"): an entry point per kernel. An error if a
/// kernel calls what no GPU has, or is an attention that tile programs do not have.
Expected<std::string> compileToPtx(const GpuKernels &kernels,
                                   const std::string &architecture);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_NVPTX_NVPTXCOMPILER_H
