//===- Partial.h - Layouts on the way of a collective -----------*- C++ -*-===//
#ifndef PARTITA_LIB_COMM_PARTIAL_H
#define PARTITA_LIB_COMM_PARTIAL_H

#include "partita/Base/Layout/Reshard.h"

namespace partita {

/// The layout with these axes of a reduction left.
Layout withPartial(Layout layout, ReduceKind kind, AxisList axes);

/// Axes along which the layout is partial by this reduction.
AxisList partialAxesOf(const Layout &layout, ReduceKind kind);

AxisList joined(AxisList first, const AxisList &second);

/// The steps that lead through these layouts; empty: one of them does not exist.
std::vector<Step> stepsThrough(const Mesh &mesh, const std::vector<Layout> &layouts,
                               const std::vector<StepKind> &kinds);

} // namespace partita

#endif // PARTITA_LIB_COMM_PARTIAL_H
