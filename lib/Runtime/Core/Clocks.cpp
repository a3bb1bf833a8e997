//===- Clocks.cpp - Clocks of ranks on several machines -------------------===//
#include "partita/Runtime/Clocks.h"

#include <algorithm>
#include <array>
#include <limits>

using namespace partita;
using namespace partita::runtime;

double runtime::clockLead(std::span<const Meeting> root, std::span<const Meeting> other) {
  double least = -std::numeric_limits<double>::infinity(), most = -least;
  for (size_t i = 0; i < root.size(); ++i) {
    least = std::max(least, other[i].came - root[i].left);
    most = std::min(most, other[i].left - root[i].came);
  }
  return least <= 0 && most >= 0 ? 0 : (least + most) / 2;
}

bool runtime::compareClocks(Transport &transport, double (*clock)(),
                            std::vector<double> &leads) {
  // One may come late to a meeting because its machine is busy: the best of several.
  std::array<Meeting, 16> mine;
  for (Meeting &meeting : mine) {
    meeting.came = clock();
    if (!transport.barrier())
      return false;
    meeting.left = clock();
  }
  if (transport.rank() != 0)
    return transport.sendToRoot(mine.data(), sizeof mine);
  leads.assign(static_cast<size_t>(transport.size()), 0);
  for (int r = 1; r < transport.size(); ++r) {
    std::array<Meeting, 16> other;
    if (!transport.receiveFrom(r, other.data(), sizeof other))
      return false;
    leads[static_cast<size_t>(r)] = clockLead(mine, other);
  }
  return true;
}

bool runtime::exchangeSpans(Transport &transport, const std::vector<RunSpan> &mine,
                            std::vector<std::vector<RunSpan>> &all, double (*clock)()) {
  std::vector<double> leads;
  if (!compareClocks(transport, clock, leads))
    return false;
  uint64_t count = mine.size();
  auto bytes = [&] { return static_cast<int64_t>(count * sizeof(RunSpan)); };
  if (transport.rank() != 0)
    return transport.sendToRoot(&count, sizeof count) &&
           (count == 0 || transport.sendToRoot(mine.data(), bytes()));
  for (int r = 1; r < transport.size(); ++r) {
    if (!transport.receiveFrom(r, &count, sizeof count))
      return false;
    auto &spans = all[static_cast<size_t>(r)];
    spans.resize(count);
    if (count != 0 && !transport.receiveFrom(r, spans.data(), bytes()))
      return false;
    for (RunSpan &span : spans) {
      span.begin -= leads[static_cast<size_t>(r)];
      span.end -= leads[static_cast<size_t>(r)];
    }
  }
  return true;
}
