//===- RunReport.cpp - A run as text and JSON -----------------------------===//
#include "partita/Report/RunReport.h"

#include "partita/Base/Files/JsonWriter.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>

using namespace partita;
using namespace partita::report;

namespace {
/// What one rank spends on a node in one request.
struct Spent {
  double seconds = 0, waited = 0;
  uint64_t received = 0;
  /// Of the tasks that compute or copy.
  double working = 0, flops = 0, bytes = 0;
};

/// By request, then by the ranks that run the node.
struct Node {
  NodeTimes times;
  std::vector<std::map<size_t, Spent>> requests;
};

class Nodes {
public:
  explicit Nodes(const RunProfile &profile)
      : numRequests(static_cast<size_t>(profiledRequests(profile))) {
    for (size_t r = 0; r < profile.ranks.size(); ++r) {
      const RankRecord &rank = profile.ranks[r];
      const RunProgram &program = profile.programs[rank.program];
      for (const RunProgram::Task &task : program.tasks)
        add(task.node, task.kind, r);
      rooflines.push_back(rank.roofline);
      for (const std::string &transfer : program.transfers)
        add(transfer, "transfer", r);
      for (const RunSpan &span : rank.spans)
        count(program, span, r);
    }
  }

  std::vector<NodeTimes> finish() {
    std::vector<NodeTimes> times;
    for (Node &node : nodes)
      if (numRequests != 0)
        times.push_back(summary(node));
    std::sort(times.begin(), times.end(), [](const auto &a, const auto &b) {
      return a.medianSeconds != b.medianSeconds ? a.medianSeconds > b.medianSeconds
                                                : a.node < b.node;
    });
    return times;
  }

private:
  /// A rank that runs a node takes part in every request, if only with no time at all.
  void add(const std::string &name, const std::string &kind, size_t rank) {
    auto [it, fresh] = places.emplace(name, nodes.size());
    if (fresh)
      nodes.push_back({{name, ""}, std::vector<std::map<size_t, Spent>>(numRequests)});
    Node &node = nodes[it->second];
    std::string &kinds = node.times.kinds;
    if ((", " + kinds + ",").find(", " + kind + ",") == std::string::npos)
      kinds += (kinds.empty() ? "" : ", ") + kind;
    for (auto &ranks : node.requests)
      ranks[rank];
  }

  void count(const RunProgram &program, const RunSpan &span, size_t rank) {
    if (span.what != RunSpan::Task && span.what != RunSpan::Transfer)
      return;
    const std::string &name = span.what == RunSpan::Task ? program.tasks[span.index].node
                                                         : program.transfers[span.index];
    Spent &spent = nodes[places.at(name)].requests[span.request][rank];
    spent.seconds += span.end - span.begin;
    spent.waited += span.waited;
    spent.received += span.received;
    if (span.what == RunSpan::Transfer)
      return;
    const RunProgram::Task &task = program.tasks[span.index];
    if (task.flops == 0 && task.bytes == 0)
      return;
    spent.working += span.end - span.begin;
    spent.flops += task.flops, spent.bytes += task.bytes;
  }

  /// Sorts the values.
  static double median(std::vector<double> &values) {
    std::sort(values.begin(), values.end());
    size_t half = values.size() / 2;
    return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
  }

  /// Of the rank that works longest in each request.
  void addShares(Node &node) const {
    std::vector<double> peak, memory;
    NodeTimes &times = node.times;
    auto share = [](double work, double seconds, double most) {
      return seconds > 0 && most > 0 ? work / (seconds * most) : 0;
    };
    for (const auto &ranks : node.requests) {
      const auto &[rank, spent] =
          *std::max_element(ranks.begin(), ranks.end(), [](const auto &a, const auto &b) {
            return a.second.working < b.second.working;
          });
      for (const auto &[other, work] : ranks)
        times.flops = std::max(times.flops, work.flops),
        times.bytes = std::max(times.bytes, work.bytes);
      peak.push_back(share(spent.flops, spent.working, rooflines[rank].flops));
      memory.push_back(share(spent.bytes, spent.working, rooflines[rank].bytes));
    }
    times.peakShare = median(peak), times.memoryShare = median(memory);
  }

  NodeTimes summary(Node &node) const {
    std::vector<double> slowest, spread, waiting;
    for (const auto &ranks : node.requests) {
      double most = 0, least = std::numeric_limits<double>::infinity(), waited = 0;
      for (const auto &[rank, spent] : ranks) {
        most = std::max(most, spent.seconds);
        least = std::min(least, spent.seconds);
        waited = std::max(waited, spent.waited);
        node.times.receivedBytes = std::max(node.times.receivedBytes, spent.received);
      }
      slowest.push_back(most), spread.push_back(most - least), waiting.push_back(waited);
    }
    NodeTimes &times = node.times;
    times.ranks = static_cast<int64_t>(node.requests[0].size());
    times.medianSeconds = median(slowest);
    times.minSeconds = slowest[0];
    times.spreadSeconds = median(spread);
    times.waitingSeconds = median(waiting);
    addShares(node);
    return std::move(times);
  }

  size_t numRequests;
  std::vector<Roofline> rooflines; ///< by rank
  std::vector<Node> nodes;
  std::map<std::string, size_t> places;
};
} // namespace

std::vector<NodeTimes> report::timesByNode(const RunProfile &profile) {
  return Nodes(profile).finish();
}

int64_t report::profiledRequests(const RunProfile &profile) {
  int64_t requests = 0;
  for (const RankRecord &rank : profile.ranks)
    for (const RunSpan &span : rank.spans)
      requests = std::max<int64_t>(requests, span.request + 1);
  return requests;
}

/// The least of all ranks, each figure by itself.
static Roofline rooflineOf(const RunProfile &profile) {
  Roofline least = profile.ranks.empty() ? Roofline() : profile.ranks[0].roofline;
  for (const RankRecord &rank : profile.ranks)
    least = {std::min(least.flops, rank.roofline.flops),
             std::min(least.bytes, rank.roofline.bytes)};
  return least;
}

/// "  73%", or a dash where there is nothing to share in.
static std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%5.0f%%", 100 * std::min(share, 9.99));
  return share == 0 ? "     -" : text;
}

static std::string rooflineText(const Roofline &roofline) {
  char text[256];
  std::snprintf(
      text, sizeof text,
      "peak, memory: share of the %.1f GFLOP/s and %.1f GB/s that a rank reached "
      "here\nwhen all did nothing else (f32; more than 100%% of memory: from "
      "caches)\n",
      roofline.flops * 1e-9, roofline.bytes * 1e-9);
  return text;
}

/// Nodes that take at least three times what their operations or bytes, whichever are
/// more, take at the roofline, and at least 5% of a request; what takes less than 10
/// microseconds is mostly starting it.
static std::string slowText(const std::vector<NodeTimes> &nodes, double request) {
  constexpr double leastTimes = 3, leastShare = 0.05, leastSeconds = 1e-5;
  std::string text;
  for (const NodeTimes &node : nodes) {
    double own = node.medianSeconds - node.waitingSeconds;
    double share = std::max(node.peakShare, node.memoryShare);
    if (share == 0 || share * leastTimes > 1 || own < leastShare * request ||
        own < leastSeconds)
      continue;
    char line[64];
    std::snprintf(line, sizeof line, "  %.1f times, %.0f%% of a request: ", 1 / share,
                  100 * own / request);
    text += line + node.node + "\n";
  }
  return text.empty()
             ? text
             : "slow, by what this host takes for as many operations or bytes:\n" + text;
}

std::string report::profileText(const RunRecord &record) {
  int64_t profiled = profiledRequests(*record.profile);
  auto requests = static_cast<int64_t>(record.requests.size());
  std::string of = std::to_string(profiled) + (profiled == 1 ? " request" : " requests");
  if (profiled < requests)
    of = "the first " + of + " of " + std::to_string(requests);
  std::string text =
      "seconds by source node in a request, of the slowest rank (median and minimum of " +
      of +
      ");\nspread: the slowest rank's less the fastest's; waiting: for other ranks; "
      "received: bytes from them;\n" +
      rooflineText(rooflineOf(*record.profile)) +
      "    median   minimum    spread   waiting    received    peak  memory  node\n";
  const std::vector<NodeTimes> nodes = timesByNode(*record.profile);
  for (const NodeTimes &node : nodes) {
    char line[96];
    std::snprintf(line, sizeof line, "  %.6f  %.6f  %.6f  %.6f  %10llu  ",
                  node.medianSeconds, node.minSeconds, node.spreadSeconds,
                  node.waitingSeconds,
                  static_cast<unsigned long long>(node.receivedBytes));
    text += line + percent(node.peakShare) + "  " + percent(node.memoryShare) + "  " +
            node.node + " (" + node.kinds + ")\n";
  }
  std::vector<double> seconds = record.requests;
  std::sort(seconds.begin(), seconds.end());
  return text + (seconds.empty() ? "" : slowText(nodes, seconds[seconds.size() / 2]));
}

static void writeProfile(JsonWriter &out, const RunProfile &profile) {
  out.key("profile");
  out.beginObject();
  out.member("requests", profiledRequests(profile));
  out.member("ranks", static_cast<int64_t>(profile.ranks.size()));
  out.key("roofline");
  out.beginObject();
  Roofline roofline = rooflineOf(profile);
  out.member("flops_per_second", roofline.flops);
  out.member("bytes_per_second", roofline.bytes);
  out.endObject();
  out.key("nodes");
  out.beginArray();
  for (const NodeTimes &node : timesByNode(profile)) {
    out.beginObject();
    out.member("node", std::string_view(node.node));
    out.member("kinds", std::string_view(node.kinds));
    out.member("ranks", node.ranks);
    out.member("median_seconds", node.medianSeconds);
    out.member("min_seconds", node.minSeconds);
    out.member("spread_seconds", node.spreadSeconds);
    out.member("waiting_seconds", node.waitingSeconds);
    out.member("received_bytes", node.receivedBytes);
    out.member("flops", node.flops);
    out.member("bytes", node.bytes);
    out.member("peak_share", node.peakShare);
    out.member("memory_share", node.memoryShare);
    out.endObject();
  }
  out.endArray();
  out.endObject();
}

std::string report::runJson(const RunRecord &record) {
  JsonWriter out(JsonWriter::Style::Lines);
  out.beginObject();
  out.member("bundle", std::string_view(record.bundle));
  out.member("request_seconds", std::span<const double>(record.requests));
  out.member("checked_bytes", record.checkedBytes);
  out.member("check_seconds", record.checkSeconds);
  out.key("outputs");
  out.beginArray();
  for (const RunRecord::Tensor &tensor : record.outputs) {
    out.beginObject();
    out.member("name", std::string_view(tensor.name));
    out.member("type", std::string_view(tensor.type));
    out.member("shape", std::span<const int64_t>(tensor.shape));
    out.endObject();
  }
  out.endArray();
  if (record.profile)
    writeProfile(out, *record.profile);
  out.endObject();
  return out.take() + "\n";
}
