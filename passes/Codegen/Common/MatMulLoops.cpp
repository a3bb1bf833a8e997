//===- MatMulLoops.cpp - A contraction as strided loops -------------------===//
#include "passes/Codegen/Common/MatMulLoops.h"

#include <algorithm>

using namespace partita;
using namespace partita::codegen;

static bool has(const TensorFactors &tensor, int32_t factor) {
  return std::any_of(tensor.begin(), tensor.end(), [&](const auto &dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

/// Cuts the parts of one factor, as all tensors have it, into loops; false if the cuts do
/// not nest.
static bool cutFactor(std::vector<Parts> perTensor, Loop kind, std::vector<Loop> &loops) {
  std::vector<Loop> cut;
  while (true) {
    // The smallest minor part of those tensors that have more than one left.
    int64_t size = 0;
    for (const Parts &parts : perTensor)
      if (!parts.empty() && (size == 0 || parts.back().size < size))
        size = parts.back().size;
    if (size == 0)
      break;
    Loop loop = kind;
    loop.size = size;
    for (Parts &parts : perTensor) {
      loop.strides.push_back(parts.empty() ? 0 : parts.back().stride);
      if (parts.empty())
        continue;
      Part &last = parts.back();
      if (last.size % size != 0)
        return false;
      last = {last.size / size, last.stride * size};
      if (last.size == 1)
        parts.pop_back();
    }
    cut.push_back(std::move(loop));
  }
  loops.insert(loops.end(), cut.rbegin(), cut.rend());
  return true;
}

std::optional<std::vector<Loop>> codegen::contractLoops(const ShardingRule &rule,
                                                        const std::vector<View> &views) {
  std::vector<int64_t> sizes;
  for (const Factor &factor : rule.factors)
    sizes.push_back(factor.size);
  std::vector<std::vector<Parts>> parts;
  for (size_t t = 0; t < views.size(); ++t) {
    const TensorFactors &factors = t < Result ? rule.operands[t] : rule.results[0];
    auto found = kernels::partsOfLoops(factors, sizes, views[t]);
    if (!found)
      return std::nullopt;
    parts.push_back(std::move(*found));
  }
  std::vector<int32_t> order;
  for (const auto &dim : rule.results[0])
    order.insert(order.end(), dim.begin(), dim.end());
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (!has(rule.results[0], static_cast<int32_t>(f)))
      order.push_back(static_cast<int32_t>(f));
  std::vector<Loop> loops;
  for (int32_t f : order) {
    Loop kind;
    kind.inLeft = has(rule.operands[0], f);
    kind.inRight = has(rule.operands[1], f);
    kind.inResult = has(rule.results[0], f);
    std::vector<Parts> perTensor;
    for (const auto &tensor : parts)
      perTensor.push_back(tensor[static_cast<size_t>(f)]);
    if (!cutFactor(std::move(perTensor), kind, loops))
      return std::nullopt;
  }
  return loops;
}

std::vector<Loop> codegen::mergedLoops(std::vector<Loop> loops, Side reductionOrder) {
  std::stable_sort(loops.begin(), loops.end(), [&](const Loop &a, const Loop &b) {
    if (a.inResult != b.inResult)
      return a.inResult;
    size_t tensor = a.inResult ? static_cast<size_t>(Result) : reductionOrder;
    return a.strides[tensor] > b.strides[tensor];
  });
  // Loops of one kind may have others between them: merge each with the last of its kind.
  std::vector<Loop> merged;
  for (Loop &loop : loops) {
    Loop *last = nullptr;
    for (Loop &other : merged)
      if (other.inLeft == loop.inLeft && other.inRight == loop.inRight &&
          other.inResult == loop.inResult)
        last = &other;
    bool together = last != nullptr;
    for (size_t t = 0; together && t < loop.strides.size(); ++t)
      together = last->strides[t] == loop.size * loop.strides[t];
    if (!together) {
      merged.push_back(std::move(loop));
      continue;
    }
    last->size *= loop.size;
    last->strides = loop.strides;
  }
  return merged;
}
