//===- RuleText.cpp - Printing and reading rules --------------------------===//
#include "partita/Rule/Sharding/ShardingRule.h"

#include "partita/Base/Layout/LayoutText.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace partita;

std::string ShardingRule::loopName(size_t factor) const {
  if (!factors[factor].name.empty())
    return factors[factor].name;
  std::string text(1, static_cast<char>('a' + factor % 26));
  if (factor >= 26)
    text += std::to_string(factor / 26);
  // A letter that an equation uses for another loop is not free.
  for (const Factor &other : factors)
    if (other.name == text)
      return "loop" + std::to_string(factor);
  return text;
}

static std::string listText(const std::vector<int32_t> &numbers) {
  std::string text = "(";
  for (size_t i = 0; i < numbers.size(); ++i)
    text += (i ? ", " : "") + std::to_string(numbers[i]);
  return text + ")";
}

static std::string indexText(int32_t operand, bool localized) {
  return operand < 0 ? "" : (localized ? " local index" : " index") + listText({operand});
}

static std::string windowText(const loop::Window &window) {
  std::string text = " window " + std::string(name(window.outside));
  if (window.operand != 0 || window.operands != 1) {
    std::vector<int32_t> numbers(static_cast<size_t>(window.operands));
    std::iota(numbers.begin(), numbers.end(), window.operand);
    text += listText(numbers);
  }
  text += " of " + std::to_string(window.input);
  auto number = [&](const char *label, int64_t value, int64_t plain) {
    if (value != plain)
      text += std::string(" ") + label + " " + std::to_string(value);
  };
  number("stride", window.stride, 1);
  number("kernel_extent", window.kernelExtent, 0);
  number("low", window.low, 0);
  return text;
}

static std::string kindText(const Factor &factor) {
  std::string text;
  if (const loop::Reduction *reduction = factor.reduction()) {
    text = " " + std::string(name(reduction->reduce));
    if (!reduction->addends.empty())
      text += " addends" + listText(reduction->addends);
    text += indexText(reduction->index, reduction->localized);
    if (reduction->window)
      text += windowText(*reduction->window);
  } else if (const loop::Window *window = factor.window()) {
    text = windowText(*window);
  } else if (const auto *parallel = std::get_if<loop::Parallel>(&factor.what)) {
    text = indexText(parallel->index, parallel->localized);
  } else if (factor.kind() == FactorKind::Replicate) {
    text = " " + std::string(name(factor.kind()));
  }
  return text;
}

std::string ShardingRule::str() const {
  auto tensorText = [&](const TensorFactors &tensor) {
    std::string text;
    for (const auto &dim : tensor) {
      std::string inner;
      for (int32_t f : dim)
        inner += (inner.empty() ? "" : " ") + loopName(static_cast<size_t>(f));
      text += (text.empty() ? "" : " ");
      text += dim.empty() ? "1" : dim.size() == 1 ? inner : "(" + inner + ")";
    }
    return text;
  };
  auto join = [&](const std::vector<TensorFactors> &tensors) {
    // One tensor without dims is not none.
    if (tensors.size() == 1 && tensors[0].empty())
      return std::string("()");
    std::string text;
    for (size_t i = 0; i < tensors.size(); ++i)
      text += (i ? ", " : "") + tensorText(tensors[i]);
    return text;
  };
  std::string text = join(operands);
  text += (text.empty() ? "-> " : " -> ") + join(results);
  text += text.back() == ' ' ? "{" : " {";
  for (size_t f = 0; f < factors.size(); ++f)
    text += (f ? ", " : "") + loopName(f) + "=" + std::to_string(factors[f].size) +
            kindText(factors[f]);
  text += "}";
  for (size_t i = 0; i < linear.size(); ++i)
    text += (i ? ", " : " linear ") + std::string(name(linear[i].kind)) +
            listText(linear[i].operands);
  for (size_t i = 0; i < fills.size(); ++i)
    text += (i ? ", " : " fill ") + std::string(name(fills[i].kind)) +
            listText({fills[i].operand});
  return text;
}

namespace {
/// Reads what str() writes.
class Reader {
public:
  explicit Reader(std::string_view text) : in(text, mesh, "rule") {}

  Expected<ShardingRule> run() {
    auto ok = tensors(operands, "->");
    ok = ok ? tensors(results, "{") : ok;
    ok = ok ? loops() : ok;
    ok = ok && in.eat("linear") ? sets(rule.linear) : ok;
    std::vector<LinearSet> fills;
    ok = ok && in.eat("fill") ? sets(fills) : ok;
    for (const LinearSet &fill : fills)
      for (int32_t operand : fill.operands)
        rule.fills.push_back({fill.kind, operand});
    if (!ok)
      return tl::unexpected(ok.error());
    if (!in.atEnd())
      return in.fail("unexpected text");
    for (auto [names, tensors] :
         {std::pair(&operands, &rule.operands), std::pair(&results, &rule.results)})
      if (ok = bind(*names, *tensors); !ok)
        return tl::unexpected(ok.error());
    if (ok = rule.verify(); !ok)
      return tl::unexpected(ok.error());
    return std::move(rule);
  }

private:
  using Names = std::vector<std::vector<std::string>>;

  /// Tensors separated by commas, up to and with `end`.
  Expected<void> tensors(std::vector<Names> &into, std::string_view end) {
    if (in.eat(end))
      return {};
    into.emplace_back();
    while (!in.eat(end)) {
      if (in.eat(",")) {
        into.emplace_back();
        continue;
      }
      into.back().emplace_back();
      bool grouped = in.eat("(");
      if (grouped && in.eat(")")) { // no dims
        into.back().pop_back();
        continue;
      }
      do {
        if (in.atDigit() && !grouped) {
          if (auto one = in.integer(); !one || *one != 1)
            return in.fail("expected a loop or 1");
          break;
        }
        auto name = in.identifier();
        if (!name)
          return tl::unexpected(name.error());
        into.back().back().push_back(std::move(*name));
      } while (grouped && !in.eat(")"));
    }
    return {};
  }

  Expected<void> loops() {
    if (in.eat("}"))
      return {};
    do {
      auto name = in.identifier();
      if (!name)
        return tl::unexpected(name.error());
      if (!in.eat("="))
        return in.fail("expected =");
      auto size = in.integer();
      if (!size)
        return tl::unexpected(size.error());
      Factor factor;
      factor.size = *size;
      factor.name = *name;
      if (auto ok = kind(factor); !ok)
        return ok;
      if (!numbers.emplace(*name, static_cast<int32_t>(rule.factors.size())).second)
        return in.fail("loop " + *name + " is there twice");
      rule.factors.push_back(std::move(factor));
    } while (in.eat(","));
    return in.eat("}") ? Expected<void>() : in.fail("expected }");
  }

  Expected<void> kind(Factor &factor) {
    if (in.eat(name(FactorKind::Replicate))) {
      factor.what = loop::Replicate{};
      return {};
    }
    if (in.eat("window"))
      return window(factor.what.emplace<loop::Window>());
    for (ReduceKind reduce :
         {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod})
      if (in.eat(name(reduce))) {
        auto &reduction = factor.what.emplace<loop::Reduction>();
        reduction.reduce = reduce;
        auto ok = in.eat("addends") ? list(reduction.addends) : Expected<void>();
        ok = ok ? index(reduction) : ok;
        return ok && in.eat("window") ? window(reduction.window.emplace()) : ok;
      }
    return index(factor.what.emplace<loop::Parallel>());
  }

  /// The operand that an indexed loop may have, behind everything else.
  Expected<void> index(auto &kind) {
    std::vector<int32_t> operands;
    kind.localized = in.eat("local");
    auto ok = in.eat("index") ? list(operands) : Expected<void>();
    kind.index = operands.empty() ? -1 : operands[0];
    return ok;
  }

  Expected<void> window(loop::Window &w) {
    auto outside = in.kind();
    if (!outside)
      return tl::unexpected(outside.error());
    w.outside = *outside;
    if (in.eat("(")) {
      std::vector<int32_t> numbers;
      if (auto ok = listBehind(numbers); !ok)
        return ok;
      w.operand = numbers[0];
      w.operands = static_cast<int32_t>(numbers.size());
      for (size_t i = 0; i < numbers.size(); ++i)
        if (numbers[i] != w.operand + static_cast<int32_t>(i))
          return in.fail("expected operands that follow one another");
    }
    for (auto [label, value] : {std::pair<const char *, int64_t *>("of", &w.input),
                                {"stride", &w.stride},
                                {"kernel_extent", &w.kernelExtent},
                                {"low", &w.low}}) {
      if (!in.eat(label))
        continue;
      auto number = in.integer();
      if (!number)
        return tl::unexpected(number.error());
      *value = *number;
    }
    return {};
  }

  Expected<void> list(std::vector<int32_t> &into) {
    return in.eat("(") ? listBehind(into) : in.fail("expected (");
  }

  /// The numbers behind an open parenthesis, and the closed one.
  Expected<void> listBehind(std::vector<int32_t> &into) {
    do {
      auto number = in.integer();
      if (!number)
        return tl::unexpected(number.error());
      into.push_back(static_cast<int32_t>(*number));
    } while (in.eat(","));
    return in.eat(")") ? Expected<void>() : in.fail("expected )");
  }

  Expected<void> sets(std::vector<LinearSet> &into) {
    do {
      auto kind = in.kind();
      if (!kind)
        return tl::unexpected(kind.error());
      into.push_back({*kind, {}});
      if (auto ok = list(into.back().operands); !ok)
        return ok;
    } while (in.eat(","));
    return {};
  }

  Expected<void> bind(const std::vector<Names> &names,
                      std::vector<TensorFactors> &tensors) {
    for (const Names &tensor : names) {
      tensors.emplace_back();
      for (const auto &dim : tensor) {
        tensors.back().emplace_back();
        for (const std::string &loop : dim) {
          auto found = numbers.find(loop);
          if (found == numbers.end())
            return in.fail("loop " + loop + " has no size");
          tensors.back().back().push_back(found->second);
        }
      }
    }
    return {};
  }

  Mesh mesh;
  LayoutReader in;
  ShardingRule rule;
  std::vector<Names> operands, results;
  std::map<std::string, int32_t> numbers;
};
} // namespace

Expected<ShardingRule> ShardingRule::read(std::string_view text) {
  return Reader(text).run();
}
