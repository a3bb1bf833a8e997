//===- ShardingRule.cpp - How an op's dims relate -------------------------===//
#include "partita/Rule/Sharding/ShardingRule.h"

#include <algorithm>
#include <map>

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

std::vector<int64_t> ShardingRule::shape(const TensorFactors &result) const {
  std::vector<int64_t> sizes;
  for (const std::vector<int32_t> &dim : result) {
    sizes.push_back(1);
    for (int32_t f : dim)
      sizes.back() *= factors[f].size;
  }
  return sizes;
}

namespace {
/// Splits the rule text into tokens: words, '(' ')' ',' and "->".
std::vector<std::string_view> tokenize(std::string_view text) {
  std::vector<std::string_view> tokens;
  for (size_t i = 0; i < text.size();) {
    char c = text[i];
    if (c == ' ') {
      ++i;
    } else if (c == '-' && i + 1 < text.size() && text[i + 1] == '>') {
      tokens.push_back(text.substr(i, 2));
      i += 2;
    } else if (c == '(' || c == ')' || c == ',') {
      tokens.push_back(text.substr(i, 1));
      ++i;
    } else {
      size_t end = text.find_first_of(" (),-", i + 1);
      end = end == std::string_view::npos ? text.size() : end;
      tokens.push_back(text.substr(i, end - i));
      i = end;
    }
  }
  return tokens;
}

/// The text as names, which are parts of it: tensors → dims → factor names.
using NamedTensor = std::vector<std::vector<std::string_view>>;
struct NamedRule {
  std::vector<NamedTensor> operands, results;
};

Expected<NamedRule> parseNames(std::string_view text) {
  NamedRule rule;
  std::vector<NamedTensor> *side = &rule.operands;
  side->emplace_back();
  bool grouped = false;
  auto error = [&](const char *what) {
    return makeError("'" + std::string(text) + "' " + what);
  };
  for (std::string_view token : tokenize(text)) {
    if (grouped && (token == "->" || token == "," || token == "("))
      return error("has a '(' without its ')'");
    if (token == "->") {
      if (side == &rule.results)
        return error("has two '->'");
      side = &rule.results;
      side->emplace_back();
    } else if (token == ",") {
      side->emplace_back();
    } else if (token == "(") {
      grouped = true;
      side->back().emplace_back();
    } else if (token == ")") {
      if (!grouped)
        return error("has a ')' without its '('");
      grouped = false;
    } else {
      if (!grouped)
        side->back().emplace_back();
      if (token != "1")
        side->back().back().push_back(token);
    }
  }
  if (grouped)
    return error("has a '(' without its ')'");
  if (side == &rule.operands)
    return error("has no '->'");
  return rule;
}
} // namespace

/// Binds single-factor dims first, then compound dims with at most one unknown.
static Expected<std::map<std::string_view, int64_t>>
bindSizes(const NamedRule &named, const std::vector<std::vector<int64_t>> &shapes) {
  std::map<std::string_view, int64_t> sizes;
  auto where = [](size_t o, size_t d) {
    return "operand " + std::to_string(o) + " dim " + std::to_string(d);
  };
  if (named.operands.size() != shapes.size())
    return makeError("expected " + std::to_string(named.operands.size()) +
                     " operands, got " + std::to_string(shapes.size()));
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t o = 0; o < shapes.size(); ++o) {
      if (named.operands[o].size() != shapes[o].size())
        return makeError("operand " + std::to_string(o) + " has rank " +
                         std::to_string(shapes[o].size()) + ", expected " +
                         std::to_string(named.operands[o].size()));
      for (size_t d = 0; d < shapes[o].size(); ++d) {
        int64_t known = 1;
        std::string_view unknown;
        size_t unknowns = 0;
        for (std::string_view factor : named.operands[o][d]) {
          auto it = sizes.find(factor);
          if (it != sizes.end()) {
            known *= it->second;
          } else {
            unknown = factor;
            ++unknowns;
          }
        }
        if (unknowns > 1)
          continue;
        if (unknowns == 1 && known != 0 && shapes[o][d] % known == 0)
          sizes[unknown] = shapes[o][d] / known;
        else if (unknowns != 0 || known != shapes[o][d])
          return makeError(where(o, d) + " has size " + std::to_string(shapes[o][d]) +
                           ", expected " + std::to_string(known));
      }
    }
  }
  for (const NamedTensor &tensor : named.operands)
    for (const auto &dim : tensor)
      for (std::string_view factor : dim)
        if (sizes.count(factor) == 0)
          return makeError("the size of '" + std::string(factor) +
                           "' does not follow from the operands' shapes");
  return sizes;
}

Expected<ShardingRule>
ShardingRule::parse(std::string_view text,
                    const std::vector<std::vector<int64_t>> &shapes) {
  auto named = parseNames(text);
  if (!named)
    return tl::unexpected(named.error());
  auto sizes = bindSizes(*named, shapes);
  if (!sizes)
    return tl::unexpected(sizes.error());
  for (const NamedTensor &tensor : named->results)
    for (const auto &dim : tensor)
      for (std::string_view factor : dim)
        if (sizes->count(factor) == 0)
          return makeError("'" + std::string(factor) +
                           "' of the result is in no operand");
  ShardingRule rule;
  std::map<std::string_view, int32_t> index;
  auto convert = [&](const NamedTensor &tensor) {
    TensorFactors result;
    for (const auto &dim : tensor) {
      result.emplace_back();
      for (std::string_view factor : dim) {
        // A loop of one iteration is none: dims of size 1 belong to no factor.
        if ((*sizes)[factor] == 1)
          continue;
        auto [it, added] = index.try_emplace(factor, -1);
        if (added) {
          it->second = rule.addFactor((*sizes)[factor]);
          rule.factors.back().name = factor;
        }
        result.back().push_back(it->second);
      }
    }
    return result;
  };
  for (const NamedTensor &t : named->operands)
    rule.operands.push_back(convert(t));
  for (const NamedTensor &t : named->results)
    rule.results.push_back(convert(t));
  std::vector<bool> inResult(rule.factors.size(), false);
  for (const TensorFactors &t : rule.results)
    for (const auto &dim : t)
      for (int32_t f : dim)
        inResult[f] = true;
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (!inResult[f])
      rule.factors[f].what = loop::Reduction{};
  return rule;
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
          if (factors[f].window() && dim.size() != 1)
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
  for (const LinearSet &set : linear)
    for (int32_t o : set.operands)
      if (o < 0 || o >= static_cast<int32_t>(operands.size()))
        return makeError("a linear set names operand " + std::to_string(o));
  return {};
}
