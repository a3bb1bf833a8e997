//===- ReshardVolumeTest.cpp - The closed form against the planner --------===//
//
// All layouts of small even tensors on small meshes, with sub-axes cut both ways, dim
// factors and partial axes of several kinds; all ordered pairs. Where the closed form
// answers, it answers what the planner plans; without partial axes and with cuts that
// nest it must answer.
//
//===----------------------------------------------------------------------===//
#include "partita/Cost/ReshardVolume.h"
#include "partita/Base/Layout/Reshard.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <map>

using namespace partita;

namespace {
struct Config {
  std::string mesh;
  std::vector<std::vector<std::string>> digitSets;     ///< that one layout may place
  std::vector<std::vector<std::vector<int64_t>>> dims; ///< per dim its factor structures
  std::vector<ReduceKind> kinds;
};

struct Tally {
  int64_t pairs = 0, closed = 0, wrong = 0;
  int64_t moves = 0, movesClosed = 0;         ///< without partial axes
  int64_t exchanges = 0, exchangesClosed = 0; ///< of them, planned as one exchange
};
} // namespace

/// Adds to `all` every way to place digits[at…] into `layout`.
static void placeDigits(const Mesh &mesh, const AxisList &digits, size_t at,
                        const Layout &layout, const std::vector<ReduceKind> &kinds,
                        std::map<std::string, Layout> &all) {
  if (at == digits.size()) {
    Layout canonical = layout.canonicalized();
    if (canonical.verify(mesh))
      all.emplace(canonical.str(mesh), canonical);
    return;
  }
  placeDigits(mesh, digits, at + 1, layout, kinds, all);
  for (ReduceKind kind : kinds) {
    Layout next = layout;
    next.partial.push_back({kind, {digits[at]}});
    placeDigits(mesh, digits, at + 1, next, kinds, all);
  }
  for (size_t d = 0; d < layout.dims.size(); ++d)
    for (size_t f = 0; f < layout.dims[d].factors.size(); ++f) {
      const DimFactor &factor = layout.dims[d].factors[f];
      if (factor.padded % (product(factor.axes) * digits[at].size))
        continue;
      for (size_t i = 0; i <= factor.axes.size(); ++i) {
        Layout next = layout;
        AxisList &axes = next.dims[d].factors[f].axes;
        axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(i), digits[at]);
        placeDigits(mesh, digits, at + 1, next, kinds, all);
      }
    }
}

static std::vector<Layout> enumerate(const Config &config, const Mesh &mesh) {
  std::vector<Layout> bases{Layout{}};
  for (const auto &structures : config.dims) {
    std::vector<Layout> next;
    for (const Layout &base : bases)
      for (const std::vector<int64_t> &sizes : structures) {
        next.push_back(base);
        DimLayout &dim = next.back().dims.emplace_back();
        for (int64_t size : sizes)
          dim.factors.push_back({size, size, {}});
      }
    bases = next;
  }
  std::map<std::string, Layout> all;
  for (const Layout &base : bases)
    for (const std::vector<std::string> &set : config.digitSets) {
      AxisList digits;
      for (const std::string &text : set)
        digits.push_back(*mesh.parseAxis(text));
      placeDigits(mesh, digits, 0, base, config.kinds, all);
    }
  std::vector<Layout> layouts;
  for (auto &[text, layout] : all)
    layouts.push_back(std::move(layout));
  return layouts;
}

static void checkPair(const Mesh &mesh, const Layout &source, const Layout &target,
                      Tally &tally) {
  auto plan = planReshard(mesh, source, target);
  REQUIRE(plan);
  std::optional<int64_t> volume = reshardVolume(mesh, source, target);
  ++tally.pairs;
  tally.closed += volume.has_value();
  if (volume && *volume != plan->receivedElements && ++tally.wrong <= 10)
    UNSCOPED_INFO(mesh.str() << " " << source.str(mesh) << " -> " << target.str(mesh)
                             << ": planned " << plan->receivedElements << ", closed form "
                             << *volume);
  if (!source.partial.empty() || !target.partial.empty())
    return;
  bool exchange = false;
  for (const Step &step : plan->steps)
    exchange |= step.kind == StepKind::Exchange;
  (exchange ? tally.exchanges : tally.moves) += 1;
  (exchange ? tally.exchangesClosed : tally.movesClosed) += volume.has_value();
}

static std::vector<Config> configs() {
  constexpr ReduceKind sum = ReduceKind::Sum, maximum = ReduceKind::Max,
                       minimum = ReduceKind::Min, prod = ReduceKind::Prod;
  std::vector<ReduceKind> kinds{sum, maximum, minimum, prod};
  using Sets = std::vector<std::vector<std::string>>;
  Sets six{{"a"}, {"a:(1)2", "a:(2)3"}, {"a:(1)3", "a:(3)2"}};
  Sets four{{"a"}, {"a:(1)2", "a:(2)2"}};
  Sets twoFour{{"a", "b"}, {"a", "b:(1)2", "b:(2)2"}};
  std::vector<Config> all{
      {"a=2", {{"a"}}, {{{6}, {3, 2}}}, kinds},
      {"a=3", {{"a"}}, {{{6}, {2, 3}}}, kinds},
      {"a=4", four, {{{8}, {2, 4}, {4, 2}}}, kinds},
      {"a=6", six, {{{12}, {2, 6}, {3, 4}, {6, 2}}}, {sum, prod}},
      {"a=6", six, {{{12}}, {{6}}}, {sum}},
      {"a=4,b=6", {{"a", "b"}, {"a:(1)2", "a:(2)2", "b"}}, {{{24}}, {{24}}}, {sum}},
      {"a=2,b=6",
       {{"a", "b:(1)2", "b:(2)3"}, {"a", "b:(1)3", "b:(3)2"}},
       {{{12}}, {{12}}},
       {sum}},
      {"a=2,b=4", twoFour, {{{16}}, {{2, 8}, {8, 2}}}, {sum, maximum}},
      {"a=2,b=3,c=4", {{"a", "b", "c"}}, {{{24}}, {{24}}}, {sum}},
      {"a=2,b=2,c=2", {{"a", "b", "c"}}, {{{2, 8}, {4, 4}}, {{8}}}, {sum}},
      {"a=2,b=2,c=2", {{"a", "b", "c"}}, {{{8}}, {{8}}, {{8}}}, {sum}},
      {"a=2,b=4", twoFour, {{{8}}, {{8}}, {{8}}}, {sum}},
      {"a=2,b=3", {{"a", "b"}}, {{{6}}, {{6}}, {{6}}}, {sum, prod}},
      {"a=2,b=3,c=2", {{"a", "b", "c"}}, {{{12}}, {{12}}, {{12}}}, {}},
      // Chains of digits that make room for each other.
      {"a=2,b=2,c=2,d=2", {{"a", "b", "c", "d"}}, {{{2}}, {{2}}, {{2}}}, {sum}},
      {"a=2,b=3,c=2,d=3", {{"a", "b", "c", "d"}}, {{{3}}, {{2}}, {{6}}}, {sum}},
  };
  for (std::string mesh : {"a=2,b=2", "a=2,b=3", "a=2,b=4", "a=3,b=4", "a=2,b=6"})
    all.push_back({mesh, {{"a", "b"}}, {{{12}, {2, 6}}, {{24}}}, {sum, maximum}});
  for (std::string mesh : {"a=2", "a=3", "a=4", "a=6"})
    all.push_back({mesh, {{"a"}}, {{{12}}, {{12}}, {{12}}}, kinds});
  return all;
}

TEST_CASE("reshard volume: equal to the planner on all even pairs") {
  Tally tally;
  for (const Config &config : configs()) {
    Mesh mesh = *Mesh::parse(config.mesh);
    std::vector<Layout> layouts = enumerate(config, mesh);
    for (const Layout &source : layouts)
      for (const Layout &target : layouts)
        checkPair(mesh, source, target, tally);
  }
  std::printf(
      "reshard volume: %lld pairs, %lld closed form (%.1f%%), %lld wrong; without "
      "partial axes %lld of %lld by steps, %lld of %lld by exchange\n",
      static_cast<long long>(tally.pairs), static_cast<long long>(tally.closed),
      100.0 * static_cast<double>(tally.closed) / static_cast<double>(tally.pairs),
      static_cast<long long>(tally.wrong), static_cast<long long>(tally.movesClosed),
      static_cast<long long>(tally.moves), static_cast<long long>(tally.exchangesClosed),
      static_cast<long long>(tally.exchanges));
  CHECK(tally.wrong == 0);
  // Steps mean that the cuts nest.
  CHECK(tally.movesClosed == tally.moves);
  CHECK(tally.closed * 100 > tally.pairs * 70);
}

TEST_CASE("reshard volume: not applicable") {
  Mesh mesh = *Mesh::parse("a=6");
  auto volume = [&](const char *source, const char *target) {
    return reshardVolume(mesh, *Layout::parse(source, mesh),
                         *Layout::parse(target, mesh));
  };
  CHECK(volume("[{12: a}]", "[{12}]") == 10);
  CHECK_FALSE(volume("[{11/12: a}]", "[{11/12}]"));
  CHECK_FALSE(volume("[{12=1+2+3+3+2+1: a}]", "[{12}]"));
  CHECK_FALSE(volume("[{12: a:(1)2}]", "[{12: a:(1)3}]"));
  CHECK_FALSE(volume("[{0}, {12: a}]", "[{0}, {12}]"));
}
