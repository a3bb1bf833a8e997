//===- KernelSplit.cpp - What threads may compute apart -------------------===//
#include "partita/Abi/TaskTable.h"
#include "passes/Codegen/Common/Interfaces.h"
#include "passes/Codegen/Common/Program.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Whether the operand's neighbours along `dim` are neighbours in memory, and those along
/// the row are not; or it does not vary along `dim`.
static std::optional<bool> isAcross(const KernelOperand &operand, size_t dim,
                                    size_t rowDims) {
  llvm::ArrayRef<int64_t> row = llvm::ArrayRef(operand.strides).take_back(rowDims);
  bool varies = llvm::any_of(row, [](int64_t stride) { return stride != 0; });
  if (operand.strides[dim] == 1)
    return varies;
  return operand.strides[dim] == 0 ? std::optional(false) : std::nullopt;
}

/// KernelSplit::lanes: `lanes` or 1.
static int64_t lanesOf(const KernelSpec &kernel, int64_t lanes) {
  size_t outer = kernel.numOuter();
  if (kernel.attention || kernel.rowDims == 0 || outer == 0 ||
      kernel.domain[outer - 1] < lanes)
    return 1;
  for (size_t n = 0; n < kernel.nodes.size(); ++n) {
    const KernelNode &node = kernel.nodes[n];
    bool fits = node.kind == KernelNode::Load || node.kind == KernelNode::Constant ||
                node.kind == KernelNode::Payload;
    if (node.kind == KernelNode::Row)
      fits = cast<RowOpInterface>(node.op).takesLanes();
    // Scratch has one row, and only what changes a row in its place needs none.
    if (!fits || !(node.reads.empty() || kernel.changesInPlace(static_cast<int>(n))))
      return 1;
  }
  bool isFaster = false;
  for (const auto &list : {kernel.operands, kernel.outputs})
    for (const KernelOperand &operand : list) {
      auto across = isAcross(operand, outer - 1, static_cast<size_t>(kernel.rowDims));
      if (!across)
        return 1;
      isFaster |= *across;
    }
  return isFaster ? lanes : 1;
}

KernelSplit KernelSpec::splitBy(const kernels::Division &division) const {
  KernelSplit split;
  split.lanes = lanesOf(*this, division.lanes);
  if (llvm::is_contained(domain, 0))
    return split;
  if (attention) {
    // Blocks of queries; of gradients by keys blocks of keys, or all that a head has.
    const bool isByKeys = attention->ofKeys, isWhole = isByKeys && attention->ofQueries;
    split.dims = numOuter();
    split.chunk = isByKeys ? attention->keyBlock : attention->queryBlock;
    int64_t rows = domain[domain.size() - (isByKeys ? 1 : 2)];
    split.units = isWhole ? 1 : (rows + split.chunk - 1) / split.chunk;
    for (size_t d = 0; d < numOuter(); ++d)
      split.units *= isGroup(d) ? 1 : domain[d];
    return split;
  }
  // The innermost loop stays whole: it runs in vectors.
  int64_t step = rowDims == 0 ? division.chunk : split.lanes;
  size_t splittable = step != 1 && numOuter() != 0 ? numOuter() - 1 : numOuter();
  while (split.dims < splittable && split.units < division.units)
    split.units *= domain[split.dims++];
  if (split.units < division.units && splittable < numOuter()) {
    int64_t wanted = (division.units + split.units - 1) / split.units;
    int64_t size = domain[splittable], chunk = (size + wanted - 1) / wanted;
    chunk = (chunk + step - 1) / step * step;
    if (chunk < size) {
      split.chunk = chunk;
      split.units *= (size + chunk - 1) / chunk;
    }
  }
  return split;
}
