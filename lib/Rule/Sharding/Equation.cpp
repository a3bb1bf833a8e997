//===- Equation.cpp - The loops of a sum of products, by name -------------===//
#include "partita/Rule/Sharding/Equation.h"

#include <map>

using namespace partita;

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

} // namespace

Expected<Equation> Equation::parse(std::string_view text) {
  Equation equation;
  std::vector<Tensor> *side = &equation.operands;
  side->emplace_back();
  bool grouped = false;
  auto error = [&](const char *what) {
    return makeError("'" + std::string(text) + "' " + what);
  };
  for (std::string_view token : tokenize(text)) {
    if (grouped && (token == "->" || token == "," || token == "("))
      return error("has a '(' without its ')'");
    if (token == "->") {
      if (side == &equation.results)
        return error("has two '->'");
      side = &equation.results;
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
        side->back().back().emplace_back(token);
    }
  }
  if (grouped)
    return error("has a '(' without its ')'");
  if (side == &equation.operands)
    return error("has no '->'");
  return equation;
}

std::string Equation::str() const {
  auto text = [](const Tensor &tensor) {
    std::string words;
    for (const auto &dim : tensor) {
      words += words.empty() ? "" : " ";
      words += dim.size() > 1 ? "(" : dim.empty() ? "1" : "";
      for (size_t i = 0; i < dim.size(); ++i)
        words += (i ? " " : "") + dim[i];
      words += dim.size() > 1 ? ")" : "";
    }
    return words;
  };
  auto list = [&](const std::vector<Tensor> &tensors) {
    std::string texts;
    for (size_t i = 0; i < tensors.size(); ++i)
      texts += (i ? ", " : "") + text(tensors[i]);
    return texts;
  };
  std::string right = list(results);
  return list(operands) + (right.empty() ? " ->" : " -> ") + right;
}

Equation Equation::withTransposed(size_t index,
                                  std::span<const int64_t> permutation) const {
  Equation result = *this;
  for (size_t d = 0; d < permutation.size(); ++d)
    result.operands[index][static_cast<size_t>(permutation[d])] = operands[index][d];
  return result;
}

/// Binds single-factor dims first, then compound dims with at most one unknown.
static Expected<std::map<std::string_view, int64_t>>
bindSizes(const Equation &named, const std::vector<std::vector<int64_t>> &shapes) {
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
        for (const std::string &factor : named.operands[o][d]) {
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
  for (const Equation::Tensor &tensor : named.operands)
    for (const auto &dim : tensor)
      for (const std::string &factor : dim)
        if (sizes.count(factor) == 0)
          return makeError("the size of '" + factor +
                           "' does not follow from the operands' shapes");
  return sizes;
}

Expected<ShardingRule>
Equation::rule(const std::vector<std::vector<int64_t>> &shapes) const {
  auto sizes = bindSizes(*this, shapes);
  if (!sizes)
    return tl::unexpected(sizes.error());
  for (const Tensor &tensor : results)
    for (const auto &dim : tensor)
      for (const std::string &factor : dim)
        if (sizes->count(factor) == 0)
          return makeError("'" + factor + "' of the result is in no operand");
  ShardingRule rule;
  std::map<std::string_view, int32_t> index;
  auto convert = [&](const Tensor &tensor) {
    TensorFactors result;
    for (const auto &dim : tensor) {
      result.emplace_back();
      for (const std::string &factor : dim) {
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
  for (const Tensor &t : operands)
    rule.operands.push_back(convert(t));
  for (const Tensor &t : results)
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
