//===- Collectives.h - Steps and what they give -----------------*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_COMMORDER_COLLECTIVES_H
#define PARTITA_TEST_UNIT_COMMORDER_COLLECTIVES_H

#include "partita/Base/Layout/Reshard.h"

#include <catch2/catch.hpp>

#include <random>
#include <string>
#include <vector>

namespace partita {

/// Values of each rank: numbers, as sums of integers are equal in any order.
inline std::vector<HostTensor> values(const Mesh &mesh, const Layout &layout) {
  std::mt19937_64 random(1);
  std::vector<HostTensor> locals;
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    HostTensor &local =
        locals.emplace_back(HostTensor::zeros(DType::I64, layout.localShape()));
    for (int64_t i = 0; i < local.size(); ++i)
      local.data<int64_t>()[i] = static_cast<int64_t>(random() % 1000);
  }
  // Ranks that hold the same elements hold the same values.
  HostTensor whole = HostTensor::zeros(DType::I64, layout.globalShape());
  for (int64_t i = 0; i < whole.size(); ++i)
    whole.data<int64_t>()[i] = static_cast<int64_t>(random() % 1000);
  if (layout.partial.empty())
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
      locals[static_cast<size_t>(rank)] = extractLocal(mesh, layout, rank, whole);
  return locals;
}

inline bool areEqual(const Mesh &mesh, const Step &step, const std::vector<Step> &steps) {
  const std::vector<HostTensor> locals = values(mesh, step.before);
  const auto one = executeReshard(mesh, {{step}}, locals);
  const auto several = executeReshard(mesh, {steps}, locals);
  for (size_t rank = 0; rank < locals.size(); ++rank)
    if (one[rank].bytes != several[rank].bytes)
      return false;
  return true;
}

inline Step stepOf(const Mesh &mesh, StepKind kind, const std::string &before,
                   const std::string &after) {
  auto step =
      stepBetween(mesh, kind, *Layout::parse(before, mesh), *Layout::parse(after, mesh));
  INFO((step ? "" : step.error().message));
  REQUIRE(step);
  return *step;
}

} // namespace partita

#endif // PARTITA_TEST_UNIT_COMMORDER_COLLECTIVES_H
