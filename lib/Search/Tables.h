//===- Tables.h - Costs between ops, shared by equal ones -------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_TABLES_H
#define PARTITA_LIB_SEARCH_TABLES_H

#include "partita/Search/Model.h"

namespace partita::search {

/// One end of a value: the op's choices and which result or operands it is.
struct End {
  const OpChoices *choices = nullptr;
  std::vector<int32_t> places; ///< one result, or all operands that are the value
  bool operator<(const End &other) const {
    return std::tie(choices, places) < std::tie(other.choices, other.places);
  }
};

/// A value between its producer and its only user.
struct DirectTable {
  solver::CostTable costs; ///< [producer choice][user choice]
  /// Bytes alive while it is made, while it is converted, and until it is used.
  solver::CostTable making, converting, waiting;
  /// Of these the bytes beside what was made.
  solver::CostTable besideConverting, besideWaiting;
};

/// What a user has gathered for itself alone, [state][user choice].
struct ReadingTable {
  solver::CostTable converting, gathered; ///< bytes; empty where no state is read anew
};

/// A value between its producer and several users.
struct SharedTable {
  std::shared_ptr<const std::vector<ValueState>> states;
  std::vector<int64_t> times;           ///< per state, of its conversions
  solver::CostTable producer;           ///< [producer choice][state]: allowed or not
  std::vector<solver::CostTable> users; ///< per user [state][user choice]: the same
  /// Bytes per state as the value is made, and of it and all its copies.
  solver::CostTable making, all;
  /// Bytes per state of the copies alone.
  solver::CostTable copies;
  std::vector<ReadingTable> readings; ///< per user
};

/// A source between the forms in which it may be kept and its only user.
struct HomeTable {
  std::vector<int32_t> forms;
  solver::CostTable costs;                ///< [form][user choice]
  solver::CostTable kept;                 ///< bytes per form
  solver::CostTable converting, gathered; ///< bytes beside the kept ones, per pair
};

/// Builds each table once.
class Tables {
public:
  Tables(Timing &timing, const ModelOptions &options)
      : timing(timing), options(options) {}

  const DirectTable &direct(int32_t value, const End &producer, const End &user);
  const SharedTable &shared(int32_t value, const End &producer,
                            const std::vector<End> &users);
  const HomeTable &home(const End &user, int64_t elementBytes);

private:
  DirectTable makeDirect(int32_t value, const End &producer, const End &user);
  SharedTable makeShared(int32_t value, const End &producer,
                         const std::vector<End> &users);
  bool mayBeReadAnew(int32_t value) const;

  HomeTable makeHome(const End &user, int64_t elementBytes);

  Timing &timing;
  const ModelOptions &options;
  std::map<std::pair<End, int64_t>, HomeTable> homes;
  /// How often a value is made, and so converted, in a run.
  int64_t tripsOf(int32_t value) const;

  /// With the bytes of an element, whether the value is internal, and its trips.
  std::map<std::tuple<End, std::vector<End>, int64_t, int, int64_t>, DirectTable> directs;
  std::map<std::tuple<End, std::vector<End>, int64_t, int64_t>, SharedTable> shareds;
};

/// The distinct forms that a choice of the user wants, in the order of its operands.
std::vector<int32_t> wantedBy(const End &user, size_t choice);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_TABLES_H
