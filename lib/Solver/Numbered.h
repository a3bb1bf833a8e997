//===- Numbered.h - Numbers for equal keys ----------------------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_NUMBERED_H
#define PARTITA_LIB_SOLVER_NUMBERED_H

#include <map>
#include <utility>
#include <vector>

namespace partita::solver {

/// Numbers from 0 on for keys, in the order in which they come, equal for equal keys.
template <typename Key> std::vector<int> numbered(std::vector<Key> keys) {
  std::map<Key, int> known;
  std::vector<int> result;
  for (Key &key : keys)
    result.push_back(
        known.emplace(std::move(key), static_cast<int>(known.size())).first->second);
  return result;
}

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_NUMBERED_H
