//===- KernelSplit.cpp - What threads may compute apart -------------------===//
#include "partita/Abi/TaskTable.h"
#include "passes/Codegen/Common/Interfaces.h"
#include "passes/Codegen/Common/Program.h"

#include "dialects/Graph/Graph.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Enough that the threads of any machine get about equally many.
static constexpr int64_t enoughUnits = 64;
/// A chunk of the innermost dim is a multiple of this: whole vectors, whole cache lines.
static constexpr int64_t chunkStep = 64;
int64_t KernelSpec::work() const {
  int64_t steps = 0;
  for (const KernelNode &node : nodes) {
    switch (node.kind) {
    case KernelNode::Constant:
    case KernelNode::Result:
      break;
    case KernelNode::Load:
      steps += 1;
      break;
    case KernelNode::Payload:
      steps += cast<PayloadOpInterface>(node.op).getPayload().flops();
      break;
    case KernelNode::Row: // a pass or three
    case KernelNode::Indexed:
      steps += 8;
      break;
    }
  }
  for (int64_t size : domain)
    steps *= size;
  return steps;
}

KernelSplit KernelSpec::split() const {
  KernelSplit split;
  if (llvm::is_contained(domain, 0))
    return split;
  // The innermost loop stays whole: it runs in vectors.
  size_t splittable = rowDims == 0 && numOuter() != 0 ? numOuter() - 1 : numOuter();
  while (split.dims < splittable && split.units < enoughUnits)
    split.units *= domain[split.dims++];
  if (split.units < enoughUnits && splittable < numOuter()) {
    int64_t wanted = (enoughUnits + split.units - 1) / split.units;
    int64_t size = domain[splittable], chunk = (size + wanted - 1) / wanted;
    chunk = (chunk + chunkStep - 1) / chunkStep * chunkStep;
    if (chunk < size) {
      split.chunk = chunk;
      split.units *= (size + chunk - 1) / chunk;
    }
  }
  return split;
}
