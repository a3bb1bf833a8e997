//===- RankFiles.h - A bundle as an ONNX file per rank ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_RANKFILES_H
#define PARTITA_PASSES_PIPELINES_RANKFILES_H

#include "passes/Pipelines/BundleRequest.h"
#include "passes/RankFiles/RankFiles.h"

namespace partita {

/// Figures of the files that were written.
struct RankFiles {
  int64_t files = 0;
  int64_t stages = 0;      ///< that have files of their own
  int64_t nodes = 0;       ///< of a file; of several stages of one file of each
  int64_t collectives = 0; ///< of these, those that exchange data
  int64_t bytes = 0;       ///< of all files
};

/// Writes FOLDER/rank-0.onnx, …, what each rank of a bundle computes
/// (docs/rank-files.md). The program is that of L3, which the bundle's plan makes of its
/// model again. Numbers have as many digits as the last one, so that the order of names
/// is that of ranks. A rank of a pipeline that has several stages has a file for each,
/// rank-0-stage-2.onnx. Of a training step state.safetensors has what states begin with.
///
/// An error, and nothing is written, if the folder is there already, or cannot be made,
/// or if the dialect or ONNX cannot say an op, which the error names.
Expected<RankFiles> writeRankFiles(const std::string &bundle, const BundleSource &source,
                                   RankDialect dialect, const std::string &folder);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_RANKFILES_H
