//===- RuleCache.cpp - The rule of an op, once per form -------------------===//
#include "dialects/Interfaces/RuleCache.h"

#include "dialects/Interfaces/OpInterfaces.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace partita;

/// What is wrong with the op if the rule is right; empty: nothing.
static std::string misfitOf(Operation *op, const ShardingRule &rule) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (auto ok = rule.verify(); !ok) {
    out << "has an inconsistent sharding rule: " << ok.error().message;
    return text;
  }
  if (rule.results.size() != op->getNumResults()) {
    out << "expected " << rule.results.size() << " results, got " << op->getNumResults();
    return text;
  }
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    std::vector<int64_t> expected = rule.shape(rule.results[i]);
    if (shapeOf(result) == expected)
      continue;
    out << "expected result " << i << " of shape [";
    llvm::interleaveComma(expected, out);
    out << "], got " << result.getType();
    break;
  }
  return text;
}

static std::shared_ptr<RuleFacts> infer(Operation *op) {
  auto facts = std::make_shared<RuleFacts>(RuleFacts{
      .rule = cast<ShardingRuleOpInterface>(op).inferShardingRule(), .misfit = {}});
  if (facts->rule)
    facts->misfit = misfitOf(op, *facts->rule);
  return facts;
}

RuleRef RuleCache::of(Operation *op) const {
  SmallVector<const void *, 12> key{op->getName().getAsOpaquePointer(),
                                    op->getPropertiesAsAttribute().getAsOpaquePointer()};
  for (Type type : op->getOperandTypes())
    key.push_back(type.getAsOpaquePointer());
  for (Type type : op->getResultTypes())
    key.push_back(type.getAsOpaquePointer());
  StringRef bytes(reinterpret_cast<const char *>(key.data()), key.size_in_bytes());
  {
    std::lock_guard lock(mutex);
    if (auto found = known.find(bytes); found != known.end())
      return found->second;
  }
  std::shared_ptr<RuleFacts> facts = infer(op);
  facts->kept = true;
  // Another thread may have been faster; its facts are the ones that others hold.
  std::lock_guard lock(mutex);
  return known.try_emplace(bytes, std::move(facts)).first->second;
}

RuleRef partita::ruleOf(Operation *op) {
  // Each weight has a name of its own, and a source's rule is its shape.
  if (op->getNumOperands() == 0)
    return infer(op);
  Dialect *dialect = op->getDialect();
  auto *cache = dialect ? dialect->getRegisteredInterface<RuleCache>() : nullptr;
  return cache ? cache->of(op) : infer(op);
}
