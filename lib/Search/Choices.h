//===- Choices.h - The choices of every op, shared by equal ops -*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_CHOICES_H
#define PARTITA_LIB_SEARCH_CHOICES_H

#include "partita/Search/Model.h"

namespace partita::search {

/// Per op its choices; null for sources. Strategies that want and give the same forms are
/// one, the fastest. `given` as in ModelOptions. An error names an op that pins leave
/// without a strategy.
Expected<std::vector<std::shared_ptr<const OpChoices>>>
choicesOf(Timing &timing, const Pins &pins, const std::vector<Strategy> *given = nullptr);

/// Form numbers of the operands under a strategy, then of the results.
std::vector<int32_t> formsOf(FormTable &forms, const ShardingRule &rule,
                             const Strategy &strategy);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_CHOICES_H
