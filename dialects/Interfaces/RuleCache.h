//===- RuleCache.h - The rule of an op, once per form -----------*- C++ -*-===//
//
// Verifiers, gates, prices and lowerings ask every op for its rule, and a model has few
// distinct ops: 96 equal layers have the rules of one. A dialect whose rules follow from
// an op's name, inherent attributes, operand types and result types alone gets a cache by
// `addInterfaces<RuleCache>()`. Rules of other dialects' ops are inferred each time.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_INTERFACES_RULECACHE_H
#define PARTITA_DIALECTS_INTERFACES_RULECACHE_H

#include "partita/Rule/Sharding/ShardingRule.h"

#include "mlir/IR/DialectInterface.h"

#include "llvm/ADT/StringMap.h"

#include <memory>
#include <mutex>

namespace partita {

struct RuleFacts {
  Expected<ShardingRule> rule;
  /// What the op's verifier says about a rule that is inconsistent or leads to other
  /// results than the op has; empty if it fits.
  std::string misfit;
  /// The facts are those of a cache: they live as long as the context.
  bool kept = false;
};

/// Never null.
using RuleRef = std::shared_ptr<const RuleFacts>;

/// The rule that a ShardingRuleOpInterface op states about itself.
RuleRef ruleOf(mlir::Operation *op);

class RuleCache : public mlir::DialectInterface::Base<RuleCache> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RuleCache)

  explicit RuleCache(mlir::Dialect *dialect) : Base(dialect) {}

  RuleRef of(mlir::Operation *op) const;

private:
  mutable std::mutex mutex;
  /// By the addresses of what the rule follows from, as bytes.
  mutable llvm::StringMap<RuleRef> known;
};

} // namespace partita

#endif // PARTITA_DIALECTS_INTERFACES_RULECACHE_H
