//===- Service.cpp - Conversions for the users of one value ---------------===//
#include "partita/Search/Model.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

namespace {
/// Adds forms one by one, each from wherever it is nearest, in every order.
class Server {
public:
  Server(Timing &timing, int32_t produced, int64_t elementBytes)
      : timing(timing), produced(produced), elementBytes(elementBytes) {}

  Service best(std::vector<int32_t> forms) {
    std::sort(forms.begin(), forms.end());
    Service found;
    do {
      Service next;
      next.possible = true;
      for (int32_t form : forms)
        add(next, form);
      if (next.possible && (!found.possible || next.time < found.time))
        found = std::move(next);
    } while (std::next_permutation(forms.begin(), forms.end()));
    return found;
  }

private:
  void add(Service &service, int32_t form) {
    int32_t nearest = -2;
    Picos least = 0;
    auto offer = [&](int32_t from, int32_t entry) {
      if (timing.forms[from].halo)
        return;
      const Conversion &way = timing.convert(from, form, elementBytes);
      if (!way.possible || (nearest != -2 && way.time >= least))
        return;
      nearest = entry;
      least = way.time;
    };
    offer(produced, -1);
    for (size_t i = 0; i < service.entries.size(); ++i)
      offer(service.entries[i].form, static_cast<int32_t>(i));
    service.possible &= nearest != -2;
    service.time += least;
    service.entries.push_back({form, nearest});
  }

  Timing &timing;
  int32_t produced;
  int64_t elementBytes;
};
} // namespace

Service search::bestService(Timing &timing, int32_t produced,
                            const std::vector<int32_t> &forms, int64_t elementBytes) {
  return Server(timing, produced, elementBytes).best(forms);
}

Service search::bestServiceOfOp(Timing &timing, int32_t produced,
                                const std::vector<int32_t> &forms, int64_t elementBytes) {
  std::vector<int32_t> missing;
  for (int32_t form : forms)
    if (form != produced)
      missing.push_back(form);
  Server server(timing, produced, elementBytes);
  Service best = server.best(missing);
  for (int32_t form : forms) {
    if (!timing.forms[form].halo)
      continue;
    int32_t way = timing.forms.add(timing.forms[form].layout);
    if (way == produced ||
        std::find(missing.begin(), missing.end(), way) != missing.end())
      continue;
    std::vector<int32_t> more = missing;
    more.push_back(way);
    Service next = server.best(std::move(more));
    if (next.possible && (!best.possible || next.time < best.time))
      best = std::move(next);
  }
  return best;
}
