//===- Rows.cpp - Keeping only the memory rows that matter ----------------===//
#include "Core.h"

#include <algorithm>

using namespace partita;
using namespace partita::solver;

/// The rows that can be exceeded and that no neighbour in time implies, in order. The
/// multiplier of an implied row moves to the one that implies it.
std::vector<size_t> Core::bindingRows() {
  size_t rows = slack.size();
  std::vector<Wide> most(rows + 1);
  std::vector<int> begins(rows + 1), ends(rows + 1);
  for (const CoreVar &v : vars)
    if (v.alive)
      for (const Member &m : v.members) {
        int64_t high = *std::max_element(m.bytes.begin(), m.bytes.end());
        most[m.begin] += high;
        most[m.end] -= high;
        ++begins[m.begin];
        ++ends[m.end];
      }
  // A row stays while no later one contains its live set with no more room.
  struct Kept {
    size_t row;
    int begins, ends;
  };
  std::vector<Kept> kept;
  Wide now = 0;
  int begun = 0, ended = 0;
  for (size_t r = 0; r < rows; ++r) {
    now += most[r];
    begun += begins[r];
    ended += ends[r];
    if (now <= slack[r])
      continue;
    while (!kept.empty() && ended == 0 && slack[kept.back().row] >= slack[r]) {
      begun += kept.back().begins;
      ended += kept.back().ends;
      lambda[r] += lambda[kept.back().row];
      kept.pop_back();
    }
    if (!kept.empty() && begun == 0 && slack[r] >= slack[kept.back().row]) {
      lambda[kept.back().row] += lambda[r];
      continue;
    }
    kept.push_back({r, begun, ended});
    begun = ended = 0;
  }
  std::vector<size_t> result;
  for (const Kept &k : kept)
    result.push_back(k.row);
  return result;
}

/// Drops empty members and adds up those of the same rows.
static void mergeMembers(std::vector<Member> &members) {
  std::erase_if(members, [](const Member &m) { return m.begin == m.end; });
  std::sort(members.begin(), members.end(), [](const Member &a, const Member &b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  size_t out = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    Member &m = members[i];
    if (out != 0 && members[out - 1].begin == m.begin && members[out - 1].end == m.end) {
      for (size_t s = 0; s < m.bytes.size(); ++s)
        members[out - 1].bytes[s] =
            std::min(maxBytes * 2, members[out - 1].bytes[s] + m.bytes[s]);
      continue;
    }
    if (out != i)
      members[out] = std::move(m);
    ++out;
  }
  members.resize(out);
}

void Core::compressRows() {
  std::vector<size_t> kept = bindingRows();
  if (kept.size() != slack.size())
    keepRows(kept);
}

void Core::dropRows(const std::vector<bool> &dropped) {
  std::vector<size_t> kept;
  for (size_t r = 0; r < dropped.size(); ++r)
    if (!dropped[r])
      kept.push_back(r);
  if (kept.size() != slack.size())
    keepRows(kept);
}

void Core::keepRows(const std::vector<size_t> &kept) {
  std::vector<int> before(slack.size() + 1);
  for (size_t row : kept)
    ++before[row + 1];
  for (size_t r = 1; r < before.size(); ++r)
    before[r] += before[r - 1];
  for (CoreVar &v : vars) {
    for (Member &m : v.members) {
      m.begin = before[m.begin];
      m.end = before[m.end];
    }
    mergeMembers(v.members);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    slack[i] = slack[kept[i]];
    lambda[i] = lambda[kept[i]];
  }
  slack.resize(kept.size());
  lambda.resize(kept.size());
}
