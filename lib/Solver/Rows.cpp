//===- Rows.cpp - Keeping only the memory rows that matter ----------------===//
#include "Core.h"

#include <algorithm>
#include <map>

using namespace partita;
using namespace partita::solver;

/// The rows that can be exceeded and that no other is known to imply, in order. The
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
  dropRepeated(result);
  return result;
}

namespace {
/// A sum of random numbers of 128 bits, one for each that is in the sum: equal sums are
/// taken for equal sets.
struct Fingerprint {
  uint64_t low = 0, high = 0;
  void add(const Fingerprint &other) {
    low += other.low;
    high += other.high;
  }
  void remove(const Fingerprint &other) {
    low -= other.low;
    high -= other.high;
  }
  bool operator<(const Fingerprint &other) const {
    return std::pair(low, high) < std::pair(other.low, other.high);
  }
};
} // namespace

static Fingerprint fingerprint(size_t var, const std::vector<int64_t> &bytes) {
  Fingerprint f{var * 2 + 1, ~var};
  for (int64_t b : bytes) {
    uint64_t word = static_cast<uint64_t>(b);
    f.low = (f.low ^ word ^ (f.low >> 29)) * 0xbf58476d1ce4e5b9ull;
    f.high = (f.high + word + (f.high >> 31)) * 0x94d049bb133111ebull;
  }
  f.low ^= f.low >> 32;
  f.high ^= f.high >> 29;
  return f;
}

/// Of rows in which the same variables use the same, the one with the least room stays:
/// where the copies of a layer are one, so are their time steps.
void Core::dropRepeated(std::vector<size_t> &kept) {
  std::vector<Fingerprint> change(slack.size() + 1);
  for (size_t v = 0; v < vars.size(); ++v)
    if (vars[v].alive)
      for (const Member &m : vars[v].members) {
        Fingerprint f = fingerprint(v, m.bytes);
        change[m.begin].add(f);
        change[m.end].remove(f);
      }
  std::map<Fingerprint, size_t> tightest;
  Fingerprint now;
  size_t from = 0;
  std::vector<Fingerprint> of(kept.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    for (; from <= kept[i]; ++from)
      now.add(change[from]);
    of[i] = now;
    auto [it, isNew] = tightest.emplace(now, kept[i]);
    if (!isNew && slack[kept[i]] < slack[it->second])
      it->second = kept[i];
  }
  size_t out = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    size_t row = tightest.at(of[i]);
    if (row == kept[i])
      kept[out++] = row;
    else {
      lambda[row] += lambda[kept[i]];
      if (!origin.empty() && slack[row] == slack[kept[i]])
        origin[row].insert(origin[row].end(), origin[kept[i]].begin(),
                           origin[kept[i]].end());
    }
  }
  kept.resize(out);
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
    if (!origin.empty() && i != kept[i])
      origin[i] = std::move(origin[kept[i]]);
  }
  if (!origin.empty())
    origin.resize(kept.size());
  slack.resize(kept.size());
  lambda.resize(kept.size());
}
