//===- Shares.cpp - What a rank does of a shared call ---------------------===//
#include "partita/Runtime/SharedCalls.h"

#include <algorithm>

#include <cstring>

using namespace partita;
using namespace partita::runtime;

static void takeRows(SharedCall &p, std::byte *target) {
  const Collective &c = p.collective;
  for (size_t m = 0; m < c.members.size(); ++m) {
    RaggedPart part = raggedPart(c, p.counts, m, static_cast<size_t>(c.me));
    if (part.rows != 0)
      std::memcpy(target + part.target, p.source(m, 0) + part.source,
                  static_cast<size_t>(part.rows * c.rowBytes));
  }
}

static void allReduce(SharedCall &p, size_t i) {
  const Collective &c = p.collective;
  const CollectiveItem &item = c.items[i];
  size_t n = c.members.size(), width = byteWidth(item.type);
  // Parts end at cache lines, so that no two members write to one.
  int64_t line = static_cast<int64_t>(64 / width);
  int64_t part = (item.block + static_cast<int64_t>(n) * line - 1) /
                 (static_cast<int64_t>(n) * line) * line;
  int64_t first = std::min(item.block, part * c.me);
  int64_t count = std::min(item.block - first, part);
  if (count == 0)
    return;
  for (size_t m = 0; m < n; ++m) {
    p.sources[m] = p.source(m, i) + static_cast<size_t>(first) * width;
    p.targets[m] = p.target(m, i) + static_cast<size_t>(first) * width;
  }
  reduceElements(item.type, c.reduce, p.sources.data(), n, p.targets.data(), n, count);
}

static void reduceScatter(SharedCall &p, size_t i) {
  const Collective &c = p.collective;
  const CollectiveItem &item = c.items[i];
  size_t n = c.members.size();
  auto bytes = static_cast<size_t>(item.block * item.width());
  std::byte *target = p.target(static_cast<size_t>(c.me), i);
  for (int64_t o = 0; o < item.outer; ++o) {
    size_t at = (static_cast<size_t>(o) * n + static_cast<size_t>(c.me)) * bytes;
    for (size_t m = 0; m < n; ++m)
      p.sources[m] = p.source(m, i) + at;
    p.targets[0] = target + static_cast<size_t>(o) * bytes;
    reduceElements(item.type, c.reduce, p.sources.data(), n, p.targets.data(), 1,
                   item.block);
  }
}

static void shareItem(SharedCall &p, size_t i) {
  const CollectiveItem &item = p.collective.items[i];
  std::byte *target = p.target(static_cast<size_t>(p.collective.me), i);
  if (p.collective.kind == TaskKind::AllReduce)
    allReduce(p, i);
  else if (p.collective.kind == TaskKind::ReduceScatter)
    reduceScatter(p, i);
  else if (p.collective.kind == TaskKind::AllToAllV)
    takeRows(p, target);
  else
    for (const Pull &pull : item.pulls)
      copyPull(pull, p.source(p.place[static_cast<size_t>(pull.peer)], i), target);
  fillRest(item, target);
}

/// Finds the members' places in what they have published.
static void look(SharedCall &p) {
  const size_t places = 2 * p.collective.items.size();
  for (size_t m = 0; m < p.bases.size(); ++m) {
    const uintptr_t base = p.bases[m];
    const auto *list =
        reinterpret_cast<const uint64_t *>(base + p.meeting->slots[m].list);
    for (size_t k = 0; k < places; ++k)
      p.seen[m * places + k] =
          list[k] == 0 ? nullptr : reinterpret_cast<std::byte *>(base + list[k]);
  }
}

void runtime::share(SharedCall &p) {
  look(p);
  for (size_t i = 0; i < p.collective.items.size(); ++i)
    shareItem(p, i);
}
