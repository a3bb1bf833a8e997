//===- TargetModel.h - What code is generated for ---------------*- C++ -*-===//
//
// A target has two layers. Plain data (kernels::Target) says which ops share a kernel or
// a call, and what calls and kernels are like: prices read it, too. A model adds what
// only code generation asks: what a call needs, how attention is divided, how the kernels
// of a stage become code. Forming tasks asks the model and knows no target.
//
//   program ──► tasks, kernels ──► places, table ──► stage
//               kernels, calls                       writeStage
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_TARGETMODEL_H
#define PARTITA_PASSES_CODEGEN_COMMON_TARGETMODEL_H

#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Base/Error.h"
#include "partita/Kernels/Target.h"
#include "passes/Codegen/Common/View.h"

#include <memory>
#include <string>

namespace partita {
struct Bundle;
}

namespace partita::codegen {

struct KernelSpec;

class TargetModel {
public:
  virtual ~TargetModel() = default;

  const kernels::Target kernels;

  // Images, by kernels.images.

  /// An image of this shape in the order in memory in which calls are fastest.
  View image(const Shape &shape) const;
  /// Whether the view is one.
  bool isImage(const View &view) const;
  /// Whether calls read an image where it lies so; others are copied first.
  bool readsImage(const View &view) const;
  /// The name in the table of a view that is an image or row-major (partita_format).
  int64_t formatOf(const View &view) const;
  /// Dims of such a view from outer to inner in memory.
  std::vector<size_t> orderOf(const View &view) const;

  // Calls.

  struct CallNeeds {
    uint64_t scratch = 0; ///< bytes
    /// Bytes of the weight in the form in which the call reads it; 0: as it is stored.
    uint64_t packed = 0;
    std::string form;    ///< calls of equal forms share what was packed
    bool isSlow = false; ///< the engine has nothing but plain loops for it
  };
  /// The calls of a bundle.
  class Calls {
  public:
    virtual ~Calls() = default;
    /// Needs of a call on so many threads. Programs of one name run in the same ranks,
    /// for several entries of a bundle: what `weight` names, among all that is asked for
    /// there, is packed in one form for all of them. An error says what the target's
    /// calls cannot do.
    virtual Expected<CallNeeds> needsOf(const std::string &program,
                                        const task::Params &params,
                                        const std::string &weight, int threads) = 0;
  };
  virtual std::unique_ptr<Calls> calls() const = 0;

  // Kernels.

  /// The threads that a rank has where so many ranks share a machine; at least 1.
  virtual int threadsPerRank(int64_t ranks) const { return 1; }
  /// Divides a kernel of attention among so many threads: its blocks, and the scratch of
  /// a thread. Targets without such kernels are not asked.
  virtual void divideAttention(KernelSpec &spec, int threads) const {}

  /// Says in the bundle who runs it.
  virtual void describe(Bundle &bundle) const = 0;
  /// Facts of the code of a stage.
  struct StageCode {
    bool wantsText = false;
    std::string text; ///< in a form for people, of what fails too, if it is wanted
    /// Kernels that have a loop without vector code, by number; a shorter list: false.
    std::vector<bool> isScalar;
  };
  /// Writes the code of kernels, with the table that calls them, as a stage of a bundle.
  virtual Expected<void> writeStage(const std::vector<KernelSpec> &kernels,
                                    const std::string &table, const std::string &path,
                                    StageCode &code) const = 0;

protected:
  explicit TargetModel(const kernels::Target &kernels) : kernels(kernels) {}
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_TARGETMODEL_H
