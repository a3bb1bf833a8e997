//===- RunIdentity.cpp - What may differ where a run goes on --------------===//
#include "Checkpoints.h"

#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Files/Json.h"
#include "partita/Base/Files/JsonWriter.h"

#include <algorithm>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

Expected<RunIdentity> runtime::identityOf(const RunParts &parts, const DataFeed &feed) {
  const DataOptions &data = parts.options.data;
  RunIdentity run;
  run.seed = data.seed;
  run.batch = feed.batch(), run.rows = feed.numRows();
  run.padsLast = data.last == LastBatch::Pad;
  auto sample = feed.sampleHash();
  auto origins = parts.session.hashOfOrigins();
  for (const auto *hash : {&sample, &origins})
    if (!*hash)
      return tl::unexpected(hash->error());
  run.data = sample->str(), run.model = origins->str();
  const std::string &bundle = parts.options.bundle;
  if (auto path = planFile(bundle, parts.options.entry))
    if (auto text = readFile(*path))
      run.plan = hashOf(std::as_bytes(std::span(*text))).str();
  // All entries are of one model; a bundle without plan runs too.
  if (auto plan = planFile(bundle, "").and_then(readAnyPlan))
    run.modelFile = absolutePath(findRecorded(bundle, plan->modelRelative, plan->model));
  std::string path = bundle + "/" + completeSpecificationFileName;
  if (::access(path.c_str(), F_OK) != 0) // as older bundles have it
    path = bundle + "/" + specificationFileName;
  if (::access(path.c_str(), F_OK) != 0)
    return run;
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  run.specification = std::move(*text);
  return run;
}

//===----------------------------------------------------------------------===//
// Differences
//===----------------------------------------------------------------------===//

namespace {
struct Difference {
  /// By which --allow-change lets it pass; empty: nothing does.
  std::string allowedBy;
  std::string name, was, is;
};
} // namespace

/// Names the change by which a member of a specification may differ; absent: the member
/// is free, as it says how the step is planned, or what is done about numbers that are
/// not finite.
static std::optional<std::string> allowedBy(std::string_view member) {
  for (std::string_view free :
       {"optimizer_parallel", "recompute", "accumulation", "gradient_norm", "evaluate",
        "comm_fusion", "on_nan", "complete"})
    if (member == free)
      return std::nullopt;
  for (std::string_view how :
       {"optimizer", "clip_norm", "gradients", "loss_scale", "compute"})
    if (member == how)
      return "optimizer";
  if (member == "schedule" || member == "seed")
    return std::string(member);
  return std::string();
}

/// The value as text, in one form: 1.0 and 1 are one number.
static std::string textOf(const JsonValue &value) {
  JsonWriter out(JsonWriter::Style::Compact);
  if (auto text = value.asString())
    out.value(std::string_view(*text));
  else if (auto flag = value.asBool())
    out.value(*flag);
  else if (auto number = value.asNumber())
    out.value(*number);
  else
    out.null();
  return out.take();
}

using Leaves = std::map<std::string, std::string>;

/// "optimizer/lr" and the like.
static void addLeaves(const JsonValue &value, const std::string &path, Leaves &leaves) {
  if (auto members = value.members()) {
    for (const auto &[name, member] : *members)
      addLeaves(member, path.empty() ? name : path + "/" + name, leaves);
  } else if (auto elements = value.elements()) {
    for (size_t i = 0; i < elements->size(); ++i)
      addLeaves((*elements)[i], path + "[" + std::to_string(i) + "]", leaves);
  } else {
    leaves[path] = textOf(value);
  }
}

static Leaves leavesOf(const std::string &specification) {
  Leaves leaves;
  if (auto root = parseJson(specification, "specification"))
    addLeaves(*root, {}, leaves);
  return leaves;
}

static void compareSpecifications(const std::string &was, const std::string &is,
                                  std::vector<Difference> &found) {
  if (was == is)
    return;
  Leaves before = leavesOf(was), after = leavesOf(is);
  // Older bundles have the file as it was given: defaults that it leaves out are not
  // known here, where the other one says them.
  const bool wasFull = before.contains("complete"), isFull = after.contains("complete");
  std::map<std::string, std::pair<std::string, std::string>> both;
  const size_t firstOfFile = found.size();
  for (const auto &[path, text] : before)
    both[path].first = text;
  for (const auto &[path, text] : after)
    both[path].second = text;
  for (auto &[path, values] : both) {
    auto &[old, now] = values;
    auto by = allowedBy(path.substr(0, path.find_first_of("/[")));
    const bool isUnknown =
        (old.empty() && isFull && !wasFull) || (now.empty() && wasFull && !isFull);
    if (old == now || !by || isUnknown)
      continue;
    for (std::string *text : {&old, &now})
      if (text->empty())
        *text = "nothing";
    found.push_back({*by, path, old, now});
  }
  // Another kind has other members, and a scale that is new says more than how it grows.
  std::ranges::stable_partition(found.begin() + static_cast<std::ptrdiff_t>(firstOfFile),
                                found.end(), [](const Difference &it) {
                                  return it.name.ends_with("/kind") ||
                                         it.name.ends_with("/initial");
                                });
}

static std::vector<Difference> differences(const RunIdentity &was,
                                           const RunIdentity &is) {
  std::vector<Difference> found;
  auto compare = [&](const char *by, const char *name, const std::string &old,
                     const std::string &now) {
    if (old != now)
      found.push_back({by, name, old, now});
  };
  auto number = [](auto value) { return std::to_string(value); };
  compare("", "model (hash of its parameters)", was.model, is.model);
  compare("seed", "seed", number(was.seed), number(is.seed));
  compare("batch", "batch", number(was.batch), number(is.batch));
  compare("data", "number of rows", number(was.rows), number(is.rows));
  if (was.rows == is.rows)
    compare("data", "data (hash of a sample)", was.data, is.data);
  compare("data", "--last", was.padsLast ? "pad" : "drop", is.padsLast ? "pad" : "drop");
  compareSpecifications(was.specification, is.specification, found);
  return found;
}

std::string runtime::differenceText(const Manifest &was, const RunIdentity &is) {
  std::vector<Difference> found;
  compareSpecifications(was.run.specification, is.specification, found);
  return found.empty() ? ""
                       : "it was written with " + found.front().name + " " +
                             found.front().was + ", this run has " + found.front().is;
}

Expected<std::vector<AllowedChange>>
runtime::changesOf(const Manifest &was, const std::string &path, const RunIdentity &is,
                   const std::vector<std::string> &allowed) {
  std::vector<AllowedChange> changes;
  for (const Difference &it : differences(was.run, is)) {
    if (!it.allowedBy.empty() &&
        std::ranges::find(allowed, it.allowedBy) != allowed.end()) {
      changes.push_back({was.step, it.name, it.was, it.is});
      continue;
    }
    std::string remedy = it.allowedBy.empty()
                             ? "a run goes on with the same one only"
                             : "--allow-change " + it.allowedBy + " goes on with it";
    return makeError("'" + path + "' was written with " + it.name + " " + it.was +
                     ", this run has " + it.is + "; " + remedy);
  }
  return changes;
}
