//===- Elastic.cpp - Runs whose number of ranks changes -------------------===//
//
// Three things are decided here: on which places ranks are, which world of the bundle has
// so many of them, and when a run that could be larger stops for that. How often, and
// behind which pauses, is decided by Restarts. docs/elastic.md has the reasons.
//
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include "Places.h"
#include "RunFolder.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/Aside.h"
#include "partita/Base/Files/File.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

using namespace partita;
using namespace partita::runtime;

Expected<ElasticRanks> runtime::parseElastic(const std::string &text) {
  const size_t dots = text.find("..");
  auto number = [](std::string_view part) -> int64_t {
    int64_t value = 0;
    auto [end, failed] = std::from_chars(part.data(), part.data() + part.size(), value);
    return failed == std::errc() && end == part.data() + part.size() ? value : -1;
  };
  const std::string_view whole = text;
  ElasticRanks ranks{number(whole.substr(0, dots)),
                     number(dots == std::string::npos ? whole : whole.substr(dots + 2))};
  constexpr int64_t most = 1 << 20;
  if (ranks.least >= 1 && ranks.least <= ranks.most && ranks.most <= most)
    return ranks;
  return makeError("expected numbers of ranks as in 2..8, got '" + text + "'");
}

static std::string ranksText(int64_t ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

/// Worlds in the range, by their number of ranks.
static Expected<std::vector<World>> worldsOf(const std::string &folder,
                                             const ElasticRanks &range, bool mayPlan) {
  auto read = readWorlds(folder);
  if (!read)
    return tl::unexpected(read.error());
  std::vector<World> all = std::move(*read);
  std::string numbers;
  for (const World &world : all)
    numbers += (numbers.empty() ? "" : ", ") + std::to_string(world.ranks);
  std::erase_if(all, [&](const World &world) {
    return world.ranks < range.least || world.ranks > range.most;
  });
  if (!all.empty() || mayPlan)
    return all;
  return makeError("--elastic " + std::to_string(range.least) + ".." +
                   std::to_string(range.most) + ": '" + folder + "' has no world of so " +
                   "many ranks; it has " + numbers +
                   " (compile with a --mesh for each number, or run with --replan)");
}

namespace {
class ElasticRun {
public:
  ElasticRun(RunOptions options, std::vector<World> worlds, Places places,
             const Print &print)
      : options(std::move(options)), worlds(std::move(worlds)), places(std::move(places)),
        print(print), restarts(checkpoints().folder, checkpoints().restarts.value_or(3)) {
  }

  Expected<RunEnd> run() {
    std::error_code told; // by who writes there
    std::filesystem::create_directories(checkpoints().folder, told);
    for (;;) {
      auto told = places.look();
      if (!told)
        return tl::unexpected(told.error());
      if (!told->empty())
        print(*told);
      const World *world = choose();
      if (!world && worlds.empty() && !refusal.empty())
        return makeError(refusal);
      if (!world) {
        RunEnd end = RunEnd::lost(shortage());
        if (!restarts.wait(end, print))
          return end;
        continue;
      }
      auto end = runIn(*world);
      if (!end)
        return end;
      checkpoints().resume = true;
      if (end->isGrowing) {
        places.forgive();
        continue;
      }
      if (!end->isLost || end->signal != 0)
        return end;
      places.lose(end->lostRank);
      if (!restarts.again(*end, print))
        return end;
    }
  }

private:
  CheckpointOptions &checkpoints() { return options.data.checkpoints; }

  /// The largest world for so many places; null: none is small enough.
  const World *fitting(int64_t count) const {
    auto fits = [&](const World &world) { return world.ranks <= count; };
    auto it = std::find_if(worlds.rbegin(), worlds.rend(), fits);
    return it == worlds.rend() ? nullptr : &*it;
  }

  /// The world that goes on. Where too few places are left since ranks were lost, these
  /// places are tried again: the pause behind the loss is over. Null: none is small
  /// enough.
  const World *choose() {
    plan(places.usable());
    if (const World *world = fitting(places.usable()))
      return world;
    places.forgive();
    return fitting(places.usable());
  }

  /// The number of ranks that is wanted on so many places, if no world has it and one can
  /// be made; else 0.
  int64_t missing(int64_t count) const {
    const ElasticRanks &range = *options.elastic;
    const int64_t wanted = std::min(count, range.most);
    const World *known = fitting(count);
    bool isMissing = wanted >= range.least && (!known || known->ranks < wanted);
    return options.planWorld && isMissing && !refused.contains(wanted) ? wanted : 0;
  }

  /// Makes that world. Where it cannot be made, smaller ones are taken, and nobody tries
  /// again.
  void plan(int64_t count) {
    const int64_t ranks = missing(count);
    if (ranks == 0)
      return;
    print("plans anew for " + ranksText(ranks));
    auto folder = options.planWorld(ranks);
    auto made = folder.and_then([](const std::string &it) { return readBundle(it); });
    if (!made) {
      refusal = "no world of " + ranksText(ranks) + ": " + made.error().message;
      print(refusal);
      refused.insert(ranks);
      return;
    }
    worlds.push_back({ranks, *folder, made->mesh.str()});
    std::ranges::sort(worlds, {}, &World::ranks);
  }

  std::string shortage() const {
    const int64_t least = worlds.empty() ? options.elastic->least : worlds[0].ranks;
    return std::to_string(places.usable()) + " of " + std::to_string(places.count()) +
           " places can be used, the smallest world has " + ranksText(least);
  }

  Expected<RunEnd> runIn(const World &world) {
    const std::vector<HostSlots> hosts = places.hosts(world.ranks);
    options.bundle = world.folder;
    Aside file;
    if (places.areHosts()) {
      auto made = writeHosts(hosts);
      if (!made)
        return tl::unexpected(made.error());
      file = std::move(*made);
      options.hostfile = file.path();
    }
    const std::string idle = places.idle();
    print("world of " + ranksText(world.ranks) +
          (world.mesh.empty() ? "" : ", " + world.mesh) +
          (idle.empty() ? "" : "; idle: " + idle));
    saved = newestStep(checkpoints().folder);
    restarts.begin();
    return runMpi(options, print, [&] { return grows(world); });
  }

  /// A temporary file. Not beside the checkpoints: a disk that is full or read-only is a
  /// matter of the saves alone.
  static Expected<Aside> writeHosts(const std::vector<HostSlots> &hosts) {
    std::string text;
    for (const HostSlots &host : hosts)
      text += host.name + " slots=" + std::to_string(host.slots) + "\n";
    std::string problem;
    for (const std::string &place : temporaryPlaces()) {
      auto file = Aside::file(place + "/partita-hosts");
      auto ok = file ? writeFile(file->path(), text) : tl::unexpected(file.error());
      if (ok)
        return file;
      problem = ok.error().message;
    }
    return makeError(problem);
  }

  /// Says whether the run is to stop, as it could go on with more ranks: not before it
  /// has saved a generation, so that a place which is lost again and again costs a step
  /// at most between two of them.
  bool grows(const World &world) {
    const int64_t newest = newestStep(checkpoints().folder);
    if (newest <= saved)
      return false;
    const int64_t count = places.prospect();
    const World *larger = fitting(count);
    const int64_t ranks = std::max(larger ? larger->ranks : 0, missing(count));
    if (ranks <= world.ranks)
      return false;
    print("there are places for " + ranksText(ranks) + " behind step " +
          std::to_string(newest) + ", which is saved: stops behind another one");
    return true;
  }

  RunOptions options;
  std::vector<World> worlds;
  std::set<int64_t> refused; ///< numbers of ranks for which no world can be made
  std::string refusal;       ///< why the last of them cannot
  Places places;
  const Print &print;
  Restarts restarts;
  int64_t saved = -1; ///< newest step when the run began
};
} // namespace

Expected<RunEnd> runtime::runElastic(RunOptions options, const Print &print) {
  if (options.data.checkpoints.folder.empty())
    return makeError("--elastic needs --checkpoint-dir, from which a run goes on");
  const bool mayPlan = options.planWorld != nullptr;
  auto worlds = worldsOf(options.bundle, *options.elastic, mayPlan);
  if (!worlds)
    return tl::unexpected(worlds.error());
  const int64_t slots = mayPlan ? options.elastic->most : worlds->back().ranks;
  auto places = Places::of(options.hostfile, slots);
  if (!places)
    return tl::unexpected(places.error());
  return ElasticRun(std::move(options), std::move(*worlds), std::move(*places), print)
      .run();
}
