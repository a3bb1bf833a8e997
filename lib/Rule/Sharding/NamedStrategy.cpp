//===- NamedStrategy.cpp - Strategies with loops by name ------------------===//
#include "partita/Rule/Sharding/NamedStrategy.h"

#include "partita/Base/Layout/LayoutText.h"

#include <algorithm>

using namespace partita;

/// The dim in the form in which equal splits are equal.
static DimLayout canonicalDim(const DimLayout &dim) {
  Layout layout;
  layout.dims = {dim};
  return layout.canonicalized().dims[0];
}

NamedStrategy NamedStrategy::of(const ShardingRule &rule, const Strategy &strategy) {
  NamedStrategy named;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    DimLayout split = canonicalDim(strategy.factors[f]);
    DimFactor &only = split.factors[0];
    if (split.factors.size() == 1 && only.padded == only.size && only.blocks.empty()) {
      if (only.axes.empty())
        continue;
      only.size = only.padded = 0;
    }
    named.loops.push_back({rule.loopName(f), std::move(split)});
  }
  for (const Passing &pass : strategy.passing)
    named.passes.push_back({rule.linear[static_cast<size_t>(pass.set)], pass.axes});
  return named;
}

Expected<Strategy> NamedStrategy::resolve(const ShardingRule &rule) const {
  Strategy strategy = Strategy::replicated(rule);
  std::vector<bool> named(rule.factors.size());
  for (const Loop &loop : loops) {
    size_t f = 0;
    while (f < rule.factors.size() && rule.loopName(f) != loop.name)
      ++f;
    if (f == rule.factors.size())
      return makeError("the op has no loop '" + loop.name + "' (its rule is " +
                       rule.str() + ")");
    if (named[f])
      return makeError("loop '" + loop.name + "' is there twice");
    named[f] = true;
    strategy.factors[f] = loop.split;
    if (DimFactor &only = strategy.factors[f].factors[0]; only.size == 0)
      only.size = only.padded = rule.factors[f].size;
  }
  for (const Pass &pass : passes) {
    auto set = std::find(rule.linear.begin(), rule.linear.end(), pass.set);
    if (set == rule.linear.end())
      return makeError("the op lets no partial " + std::string(name(pass.set.kind)) +
                       " pass by these operands (its rule is " + rule.str() + ")");
    strategy.passing.push_back(
        {static_cast<int32_t>(set - rule.linear.begin()), pass.axes});
  }
  return strategy;
}

std::string NamedStrategy::str(const Mesh &mesh) const {
  std::string text = "{";
  for (const Loop &loop : loops) {
    text += (text.size() > 1 ? ", " : "") + loop.name + ": ";
    const DimFactor &only = loop.split.factors[0];
    if (only.size != 0)
      text += dimText(mesh, loop.split);
    else
      text += only.axes.size() == 1 ? mesh.str(only.axes[0]) : mesh.str(only.axes);
  }
  text += "}";
  for (const Pass &pass : passes) {
    text += " pass " + std::string(name(pass.set.kind)) + "(";
    for (size_t i = 0; i < pass.set.operands.size(); ++i)
      text += (i ? ", " : "") + std::to_string(pass.set.operands[i]);
    text += ") " + mesh.str(pass.axes);
  }
  return text;
}

namespace {
class Reader {
public:
  Reader(std::string_view text, const Mesh &mesh) : in(text, mesh, "strategy") {}

  Expected<NamedStrategy> run() {
    auto ok = loops();
    while (ok && in.eat("pass"))
      ok = pass();
    if (!ok)
      return tl::unexpected(ok.error());
    if (!in.atEnd())
      return in.fail("unexpected text");
    return std::move(strategy);
  }

private:
  Expected<void> loops() {
    if (!in.eat("{"))
      return in.fail("expected {");
    if (in.eat("}"))
      return {};
    do {
      auto name = in.identifier();
      if (!name)
        return tl::unexpected(name.error());
      if (!in.eat(":"))
        return in.fail("expected :");
      auto split = this->split();
      if (!split)
        return tl::unexpected(split.error());
      strategy.loops.push_back({std::move(*name), std::move(*split)});
    } while (in.eat(","));
    return in.eat("}") ? Expected<void>() : in.fail("expected }");
  }

  Expected<DimLayout> split() {
    if (in.atSizedFactor())
      return in.dim();
    DimFactor whole{0, 0, {}};
    if (in.atBrace()) {
      auto axes = in.axisSet();
      if (!axes)
        return tl::unexpected(axes.error());
      whole.axes = std::move(*axes);
    } else {
      auto axis = in.axis();
      if (!axis)
        return tl::unexpected(axis.error());
      whole.axes = {*axis};
    }
    return DimLayout{{std::move(whole)}};
  }

  Expected<void> pass() {
    NamedStrategy::Pass pass;
    auto kind = in.kind();
    if (!kind)
      return tl::unexpected(kind.error());
    pass.set.kind = *kind;
    if (!in.eat("("))
      return in.fail("expected (");
    do {
      auto operand = in.integer();
      if (!operand)
        return tl::unexpected(operand.error());
      pass.set.operands.push_back(static_cast<int32_t>(*operand));
    } while (in.eat(","));
    if (!in.eat(")"))
      return in.fail("expected )");
    auto axes = in.axisSet();
    if (!axes)
      return tl::unexpected(axes.error());
    pass.axes = std::move(*axes);
    strategy.passes.push_back(std::move(pass));
    return {};
  }

  LayoutReader in;
  NamedStrategy strategy;
};
} // namespace

Expected<NamedStrategy> NamedStrategy::parse(std::string_view text, const Mesh &mesh) {
  return Reader(text, mesh).run();
}

std::string Strategy::str(const Mesh &mesh, const ShardingRule &rule) const {
  return NamedStrategy::of(rule, *this).str(mesh);
}

Expected<Strategy> Strategy::parse(std::string_view text, const Mesh &mesh,
                                   const ShardingRule &rule) {
  auto named = NamedStrategy::parse(text, mesh);
  return named ? named->resolve(rule) : tl::unexpected(named.error());
}
