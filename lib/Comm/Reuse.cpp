//===- Reuse.cpp - Few distinct calls -------------------------------------===//
#include "partita/Comm/Reuse.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

using namespace partita;
using namespace partita::buckets;

static int64_t sum(const std::vector<Order> &orders,
                   const std::function<int64_t(const Order &)> &of) {
  return std::transform_reduce(orders.begin(), orders.end(), int64_t(0), std::plus<>(),
                               of);
}
int64_t Orders::gradientBytes() const {
  return sum(orders, [](const Order &order) { return order.gradientBytes; });
}
int64_t Orders::earlyBytes() const {
  return sum(orders, [](const Order &order) { return order.earlyBytes; });
}
int64_t Orders::calls() const {
  return sum(orders, [](const Order &order) { return int64_t(order.calls); });
}

using Forms = std::set<std::vector<int32_t>>;

static void addForms(const std::vector<Op> &ops, const Order &order, Forms &forms) {
  for (const auto [kind, number] : order.steps) {
    const auto n = static_cast<size_t>(number);
    if (kind == Step::Kind::Run && ops[n].form >= 0)
      forms.insert({ops[n].form});
    if (kind != Step::Kind::Start)
      continue;
    std::vector<int32_t> members;
    for (int32_t member : order.buckets[n])
      members.push_back(ops[static_cast<size_t>(member)].form);
    forms.insert(std::move(members));
  }
}

Orders buckets::ordersOf(const std::vector<Ordered> &functions,
                         const std::set<int32_t> &elsewhere) {
  Orders result;
  Forms forms;
  for (int32_t form : elsewhere)
    forms.insert({form});
  for (const Ordered &function : functions) {
    result.orders.push_back(orderOf(function.ops, function.options));
    addForms(function.ops, result.orders.back(), forms);
  }
  result.distinct = static_cast<int64_t>(forms.size());
  return result;
}

/// Ways in which options that say nothing of a call's size may be followed.
static std::vector<std::function<void(Options &)>> rules(int32_t mostBuckets) {
  std::vector<std::function<void(Options &)>> result;
  for (int32_t buckets = mostBuckets; buckets > 0; --buckets)
    for (bool hasSmallLast : {true, false})
      result.push_back([=](Options &options) {
        options.autoBuckets = buckets;
        if (!hasSmallLast)
          options.minSplit = std::numeric_limits<int64_t>::max();
      });
  result.push_back([](Options &options) {
    for (Fusion &fusion : options.fusion)
      if (fusion.mode == Fusion::Mode::Auto)
        fusion.mode = Fusion::Mode::Alone;
  });
  return result;
}

Orders buckets::ordersWithin(int64_t most, const std::vector<Ordered> &functions,
                             const std::set<int32_t> &elsewhere) {
  Orders best = ordersOf(functions, elsewhere);
  if (best.distinct <= most)
    return best;
  auto rank = [&](const Orders &orders) {
    return std::tuple(std::max(most, orders.distinct), -orders.earlyBytes(),
                      orders.calls());
  };
  int32_t mostBuckets = 1;
  for (const Ordered &function : functions)
    mostBuckets = std::max(mostBuckets, function.options.autoBuckets);
  for (const auto &rule : rules(mostBuckets))
    for (bool meets : {true, false}) {
      std::vector<Ordered> changed = functions;
      for (Ordered &function : changed) {
        rule(function.options);
        if (!meets)
          function.options.joinBytes = 0;
      }
      Orders next = ordersOf(changed, elsewhere);
      if (rank(next) < rank(best))
        best = std::move(next);
    }
  return best;
}
