//===- Notes.h - What a decision tells the user -----------------*- C++ -*-===//
#ifndef PARTITA_LIB_RULE_DECIDE_NOTES_H
#define PARTITA_LIB_RULE_DECIDE_NOTES_H

#include "partita/Rule/Decide/Decide.h"

namespace partita {

/// The first conflicts in full, the rest counted: one wrong hint meets many ops. Hints
/// that a ready rule has found meet each other as the rule intends: where
/// `hintsAreFound`, conflicts among them are not told.
void noteConflicts(const FlowGraph &graph, bool hintsAreFound, Decision &decision);

/// Inputs that do not get the layout of their hint, and weights that no op reads in that
/// of theirs: what reads them decides.
void noteLostHints(const FlowGraph &graph, const std::vector<Seed> &seeds,
                   Decision &decision);

} // namespace partita

#endif // PARTITA_LIB_RULE_DECIDE_NOTES_H
