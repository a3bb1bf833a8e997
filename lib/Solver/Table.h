//===- Table.h - Shared cost tables and remembered results ------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_TABLE_H
#define PARTITA_LIB_SOLVER_TABLE_H

#include <bit>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace partita::solver {

/// A cost table that many edges, and copies of a core, may share until one changes it.
class Table {
public:
  Table() = default;
  Table(std::vector<double> values)
      : values(std::make_shared<std::vector<double>>(std::move(values))) {}

  size_t size() const { return values ? values->size() : 0; }
  double operator[](size_t i) const { return (*values)[i]; }
  const double *data() const { return values->data(); }
  const double *begin() const { return values ? values->data() : nullptr; }
  const double *end() const { return begin() + size(); }
  void clear() { values.reset(); }
  /// Equal for tables that share their numbers.
  uint64_t id() const { return reinterpret_cast<uintptr_t>(values.get()); }
  bool isShared() const { return values.use_count() > 1; }
  /// The numbers, to be changed for this table alone.
  std::vector<double> &edit() {
    if (isShared())
      values = std::make_shared<std::vector<double>>(*values);
    return *values;
  }

private:
  std::shared_ptr<std::vector<double>> values;
};

/// What operations on tables gave, so that the equal layers of a model are worked on
/// once. A key spells the operation and all that its result depends on; tables stand in
/// it by their ids and are kept alive here, so that no other table can take their place.
class Memo {
public:
  using Key = std::vector<uint64_t>;
  struct Result {
    Table table;
    std::vector<uint32_t> map;
    bool holds = false;
  };

  static void append(Key &key, const std::vector<double> &values) {
    key.push_back(values.size());
    for (double v : values)
      key.push_back(std::bit_cast<uint64_t>(v));
  }
  const Result *find(const Key &key) const {
    auto it = results.find(key);
    return it == results.end() ? nullptr : &it->second;
  }
  const Result &put(Key &&key, Result &&result, const std::vector<Table> &inputs) {
    kept.insert(kept.end(), inputs.begin(), inputs.end());
    return results.insert_or_assign(std::move(key), std::move(result)).first->second;
  }

private:
  struct Hash {
    size_t operator()(const Key &key) const {
      uint64_t h = key.size();
      for (uint64_t word : key)
        h = (h ^ word ^ (h >> 31)) * 0x9e3779b97f4a7c15ull;
      return h ^ (h >> 32);
    }
  };
  std::unordered_map<Key, Result, Hash> results;
  std::vector<Table> kept;
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_TABLE_H
