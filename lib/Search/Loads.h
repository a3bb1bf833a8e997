//===- Loads.h - For how long choices keep resources busy -------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_LOADS_H
#define PARTITA_LIB_SEARCH_LOADS_H

#include "Necks.h"
#include "partita/Search/Model.h"

namespace partita::search {

/// What a plan keeps busy, by the place of the work.
using Loads = std::array<Occupied, numPlaces>;

/// What a picosecond of each load counts.
struct Multipliers {
  struct Of {
    double time = 0, device = 0;
    std::array<double, Topology::maxLevels> links{};
  };
  std::array<Of, numPlaces> of;

  double operator()(Place place, const Occupied &occupied) const;
  double operator()(const Loads &loads) const;
  /// Adds `share` of others.
  void add(const Multipliers &others, double share);
};

/// The extremes of OverlapBound.h on so many levels.
std::vector<Multipliers> extremeMultipliers(size_t levels, double contention);

/// The loads of all choices of a model.
class ModelLoads {
public:
  /// Both must outlive it.
  ModelLoads(Timing &timing, const Model &model);

  /// Of an answer of the model's problem.
  Loads of(const std::vector<uint32_t> &answer) const;
  /// The model's problem whose costs are loads times multipliers, rounded down, with the
  /// memory of the model or without it.
  solver::Problem weighted(const Multipliers &multipliers, bool withMemory) const;

private:
  /// Loads per choice, or per pair of an edge: of (rowOf[first], columnOf[second]).
  struct Table {
    Place place = Place::Anywhere;
    std::vector<uint32_t> rowOf, columnOf; ///< of a variable rows alone
    size_t columns = 1;
    std::vector<Occupied> entries;
    const Occupied &at(size_t row, size_t column) const {
      return entries[rowOf[row] * columns + (columnOf.empty() ? 0 : columnOf[column])];
    }
  };
  using Shared = std::shared_ptr<const Table>;
  /// The table of this place and what its loads follow from (a table of costs, a list of
  /// choices or states), made once.
  template <typename Make> Shared once(const void *id, Place place, Make make);

  Table ofOp(const OpChoices &choices) const;
  Table ofStates(const SharedValue &shared);
  Table ofDirect(int32_t value);
  Table ofReading(const SharedValue &shared, int32_t user);
  Table ofHome(const HomeSource &home);
  Occupied converted(int32_t from, int32_t to, int64_t elementBytes);
  Occupied served(int32_t produced, const Service &service, int64_t elementBytes);

  Timing &timing;
  const FlowGraph &graph;
  const Model &model;
  std::map<std::pair<const void *, Place>, Shared> known;
  std::map<std::tuple<int32_t, int32_t, int64_t>, Occupied> conversions;
  std::vector<Shared> variables, edges; ///< of the problem; null: no time
};

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_LOADS_H
