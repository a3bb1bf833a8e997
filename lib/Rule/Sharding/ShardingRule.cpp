//===- ShardingRule.cpp - How an op's dims relate -------------------------===//
#include "partita/Rule/Sharding/ShardingRule.h"

#include "partita/Rule/Sharding/Equation.h"

#include <algorithm>

using namespace partita;

std::string_view partita::name(FactorKind kind) {
  static constexpr std::string_view names[] = {"parallel", "reduction", "window",
                                               "replicate"};
  return names[static_cast<int>(kind)];
}

int32_t ShardingRule::addFactor(int64_t size, loop::Kind what) {
  factors.push_back({.size = size, .what = std::move(what)});
  return static_cast<int32_t>(factors.size()) - 1;
}

std::vector<int32_t> ShardingRule::addLoop(int64_t size, loop::Kind what) {
  if (Factor loop{.size = size, .what = std::move(what)}; size != 1 || loop.localized()) {
    factors.push_back(std::move(loop));
    return {static_cast<int32_t>(factors.size()) - 1};
  }
  return {};
}

std::vector<int64_t> ShardingRule::shape(const TensorFactors &result) const {
  std::vector<int64_t> sizes;
  for (const std::vector<int32_t> &dim : result) {
    sizes.push_back(1);
    for (int32_t f : dim)
      sizes.back() *= factors[f].size;
  }
  return sizes;
}

Expected<ShardingRule>
ShardingRule::parse(std::string_view text,
                    const std::vector<std::vector<int64_t>> &shapes) {
  auto equation = Equation::parse(text);
  if (!equation)
    return tl::unexpected(equation.error());
  return equation->rule(shapes);
}

Expected<void> ShardingRule::verify() const {
  auto checkTensors = [&](const std::vector<TensorFactors> &tensors,
                          const char *what) -> Expected<void> {
    for (size_t t = 0; t < tensors.size(); ++t) {
      std::vector<bool> seen(factors.size(), false);
      for (const auto &dim : tensors[t]) {
        for (int32_t f : dim) {
          if (f < 0 || f >= static_cast<int32_t>(factors.size()))
            return makeError(std::string(what) + " " + std::to_string(t) +
                             " names factor " + std::to_string(f) + ", of " +
                             std::to_string(factors.size()));
          if (seen[f])
            return makeError(std::string(what) + " " + std::to_string(t) +
                             " has factor " + std::to_string(f) + " twice");
          seen[f] = true;
          if (factors[f].reduction() && what[0] == 'r')
            return makeError("result " + std::to_string(t) + " has reduction factor " +
                             std::to_string(f));
          if (what[0] == 'o' && factors[f].windowOf(static_cast<int32_t>(t)) &&
              dim.size() != 1)
            return makeError(std::string(what) + " " + std::to_string(t) +
                             " has window factor " + std::to_string(f) +
                             " in a dim with others");
        }
      }
    }
    return {};
  };
  if (auto ok = checkTensors(operands, "operand"); !ok)
    return ok;
  if (auto ok = checkTensors(results, "result"); !ok)
    return ok;
  for (size_t f = 0; f < factors.size(); ++f)
    if (const loop::Window *window = factors[f].window();
        window &&
        (window->operand < 0 || window->operands < 1 ||
         window->operand + window->operands > static_cast<int32_t>(operands.size())))
      return makeError("factor " + std::to_string(f) + " reads windows of operand " +
                       std::to_string(window->operand + window->operands - 1));
  for (const LinearSet &set : linear)
    for (int32_t o : set.operands)
      if (o < 0 || o >= static_cast<int32_t>(operands.size()))
        return makeError("a linear set names operand " + std::to_string(o));
  return {};
}
