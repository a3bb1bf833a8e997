//===- Spec.cpp - Reading what `--train` asks for -------------------------===//
#include "Read.h"

using namespace partita;
using namespace partita::train;

Expected<std::string> train::readText(const JsonValue &value) {
  auto text = value.asString();
  if (text && text->empty())
    return value.error("expected a name, got an empty string");
  return text;
}

Expected<std::vector<std::string>> train::readGlobs(const JsonValue &value) {
  auto globs = readGlobsOrNone(value);
  if (globs && globs->empty())
    return value.error("expected at least one glob, got an empty list");
  return globs;
}

Expected<std::vector<std::string>> train::readGlobsOrNone(const JsonValue &value) {
  auto elements = value.elements();
  if (!elements)
    return tl::unexpected(elements.error());
  std::vector<std::string> globs;
  for (const JsonValue &element : *elements) {
    auto glob = readText(element);
    if (!glob)
      return tl::unexpected(glob.error());
    globs.push_back(std::move(*glob));
  }
  return globs;
}

Expected<int64_t> train::readCount(const JsonValue &value) {
  return value.asInteger(1, int64_t(1) << 53);
}

Expected<bool> train::readFlag(const JsonValue &value) { return value.asBool(); }

Expected<void> train::allowOfKind(const JsonValue &object,
                                  std::span<const std::string_view> names, size_t kind,
                                  std::span<const KindMember> members) {
  for (const KindMember &member : members) {
    if (!object.has(member.key) || (member.kinds >> kind) & 1)
      continue;
    std::vector<std::string> owners;
    for (size_t i = 0; i < names.size(); ++i)
      if ((member.kinds >> i) & 1)
        owners.emplace_back(names[i]);
    std::string list;
    for (size_t i = 0; i < owners.size(); ++i)
      list += (i == 0 ? "" : i + 1 < owners.size() ? ", " : " and ") + owners[i];
    return object.error("\"" + std::string(member.key) + "\" is of " + list +
                        ", the kind is " + std::string(names[kind]));
  }
  return {};
}

static Expected<void> readParameters(const JsonValue &value, Spec &spec) {
  return value.allowOnly({"train", "freeze"})
      .and_then([&] { return readMember(value, "train", spec.parameters, readGlobs); })
      .and_then(
          [&] { return readMember(value, "freeze", spec.freeze, readGlobsOrNone); });
}

static Expected<Compute> readCompute(const JsonValue &value) {
  // Steps are derived for CPUs, which have no tf32.
  const auto names = std::span(computeNames).first<3>();
  return readName(value, names).map([](size_t i) { return static_cast<Compute>(i); });
}

/// A number, "dynamic", or an object. A dynamic scale begins where PyTorch's GradScaler
/// does.
static Expected<LossScale> readLossScale(const JsonValue &value) {
  constexpr double begin = 65536;
  if (value.isNumber())
    return readPositive(value).map([](double scale) { return LossScale{scale}; });
  if (value.isString()) {
    static constexpr std::string_view names[] = {"dynamic"};
    return readName(value, names).map([](size_t) { return LossScale{begin, true}; });
  }
  if (!value.isObject())
    return value.error("expected a number, \"dynamic\" or an object");
  LossScale read;
  auto ok =
      value.allowOnly({"initial", "dynamic", "grow_every"})
          .and_then([&] { return readMember(value, "dynamic", read.dynamic, readFlag); })
          .and_then([&] {
            read.initial = read.dynamic ? begin : 1;
            return readMember(value, "initial", read.initial, readPositive);
          })
          .and_then(
              [&] { return readMember(value, "grow_every", read.growEvery, readCount); });
  if (!ok)
    return tl::unexpected(ok.error());
  if (value.has("grow_every") && !read.dynamic)
    return value.error("\"grow_every\" is of a scale that is \"dynamic\"");
  if (!value.has("initial") && !read.dynamic)
    return value.error("expected \"initial\" or \"dynamic\": true");
  return read;
}

static Expected<OptimizerParallel> readParallel(const JsonValue &value) {
  OptimizerParallel read;
  if (auto ok = value.allowOnly({"enable", "gradient_accumulation_shard", "threshold_kb",
                                 "shard_size", "level"});
      !ok)
    return tl::unexpected(ok.error());
  if (auto enable = value.at("enable"); !enable)
    return tl::unexpected(enable.error());
  auto bytes = [](const JsonValue &v) {
    return v.asInteger(0, int64_t(1) << 43).map([](int64_t kb) { return kb * 1024; });
  };
  auto ranks = [](const JsonValue &v) -> Expected<int64_t> {
    auto count = v.asInteger();
    if (count && *count != -1 && (*count < 1 || *count > int64_t(1) << 31))
      return v.error("expected a number of ranks, or -1 for all, got " +
                     std::to_string(*count));
    return count;
  };
  auto level = [](const JsonValue &v) {
    return v.asInteger(1, 3).map([](int64_t n) { return static_cast<int>(n); });
  };
  auto ok = readMember(value, "enable", read.enable, readFlag)
                .and_then([&] {
                  return readMember(value, "gradient_accumulation_shard",
                                    read.accumulationShard, readFlag);
                })
                .and_then([&] {
                  return readMember(value, "threshold_kb", read.thresholdBytes, bytes);
                })
                .and_then([&] {
                  return readMember(value, "shard_size", read.shardSize, ranks);
                })
                .and_then([&] { return readMember(value, "level", read.level, level); });
  if (!ok)
    return tl::unexpected(ok.error());
  return read;
}

static constexpr std::string_view gradientSums[] = {"mean", "sum"};
static constexpr std::string_view statistics[] = {"running", "batch"};

/// Reader of one of two words: whether the second stands there.
static auto isSecondOf(std::string_view first, std::string_view second) {
  return [first, second](const JsonValue &value) {
    std::string_view names[] = {first, second};
    return readName(value, names).map([](size_t i) { return i == 1; });
  };
}

static auto isSecondOf(const std::string_view (&names)[2]) {
  return isSecondOf(names[0], names[1]);
}

static Expected<Recompute> readRecompute(const JsonValue &value) {
  Recompute read;
  if (auto ok = value.allowOnly({"nodes", "each", "exactly", "mp_comm_recompute",
                                 "parallel_optimizer_comm_recompute"});
      !ok)
    return tl::unexpected(ok.error());
  if (auto nodes = value.at("nodes"); !nodes)
    return tl::unexpected(nodes.error());
  read.together = value.at("nodes")->isArray();
  auto globs = [](const JsonValue &v) -> Expected<std::vector<std::string>> {
    if (v.isArray())
      return readGlobs(v);
    return readText(v).map(
        [](std::string glob) { return std::vector<std::string>{std::move(glob)}; });
  };
  auto ok =
      readMember(value, "nodes", read.nodes, globs)
          .and_then([&] {
            return readMember(value, "each", read.byLayer, isSecondOf("match", "layer"));
          })
          .and_then([&] { return readMember(value, "exactly", read.exactly, readFlag); })
          .and_then([&] {
            return readMember(value, "mp_comm_recompute", read.modelParallelCommunication,
                              readFlag);
          })
          .and_then([&] {
            return readMember(value, "parallel_optimizer_comm_recompute",
                              read.optimizerParallelCommunication, readFlag);
          });
  if (!ok)
    return tl::unexpected(ok.error());
  return read;
}

static Expected<std::vector<Recompute>> readRecomputes(const JsonValue &value) {
  auto elements = value.elements();
  if (!elements)
    return tl::unexpected(elements.error());
  std::vector<Recompute> result;
  for (const JsonValue &element : *elements) {
    auto read = readRecompute(element);
    if (!read)
      return tl::unexpected(read.error());
    result.push_back(std::move(*read));
  }
  return result;
}

/// A list is all that is computed again; "none", "auto".
static Expected<void> readRecompute(const JsonValue &value, Spec &spec) {
  if (value.isString())
    return isSecondOf("none", "auto")(value).map(
        [&](bool chooses) { spec.choosesRecompute = chooses; });
  spec.choosesRecompute = false;
  return readRecomputes(value).map(
      [&](std::vector<Recompute> list) { spec.recompute = std::move(list); });
}

/// A number, or "auto".
static Expected<void> readAccumulation(const JsonValue &value, Spec &spec) {
  if (value.isString()) {
    static constexpr std::string_view names[] = {"auto"};
    return readName(value, names).map([&](size_t) { spec.choosesAccumulation = true; });
  }
  return readCount(value).map([&](int64_t count) { spec.accumulation = count; });
}

static Expected<OnNan> readOnNan(const JsonValue &value) {
  return isSecondOf("stop", "skip")(value).map(
      [](bool skips) { return skips ? OnNan::Skip : OnNan::Stop; });
}

/// What is chosen must not change the step.
static Expected<void> checkAccumulation(const JsonValue &root, const Spec &spec) {
  if (!spec.choosesAccumulation)
    return {};
  if (spec.sumGradients)
    return root.error("\"gradients\": \"sum\" is of a number of micro-batches, but "
                      "\"accumulation\" is \"auto\"");
  if (spec.loss.kind == LossKind::Output)
    return root.error("\"accumulation\": \"auto\" needs a \"kind\" of loss: whether "
                      "output '" +
                      spec.loss.of + "' is a mean or a sum over the batch is not known");
  return {};
}

/// Members that are numbers or words.
static Expected<void> readScalars(const JsonValue &value, Spec &spec) {
  auto seed = [](const JsonValue &v) {
    return v.asInteger(0, INT64_MAX).map([](int64_t n) {
      return static_cast<uint64_t>(n);
    });
  };
  return readMember(value, "clip_norm", spec.clipNorm, readPositive)
      .and_then(
          [&] { return readMember(value, "gradient_norm", spec.gradientNorm, readFlag); })
      .and_then([&] { return readMember(value, "on_nan", spec.onNan, readOnNan); })
      .and_then([&]() -> Expected<void> {
        auto given = value.at("accumulation");
        return given ? readAccumulation(*given, spec) : Expected<void>();
      })
      .and_then([&] {
        return readMember(value, "gradients", spec.sumGradients,
                          isSecondOf(gradientSums));
      })
      .and_then([&] { return readMember(value, "compute", spec.compute, readCompute); })
      .and_then(
          [&] { return readMember(value, "loss_scale", spec.lossScale, readLossScale); })
      .and_then([&] { return readMember(value, "seed", spec.seed, seed); })
      .and_then([&] {
        return readMember(value, "batch_norm", spec.batchStatistics,
                          isSecondOf(statistics));
      })
      .and_then([&] { return readMember(value, "evaluate", spec.evaluates, readFlag); });
}

static Expected<int64_t> readNumber(const JsonValue &value) {
  return value.asInteger(0, INT32_MAX);
}

static Expected<Spec> readRoot(const JsonValue &root) {
  Spec spec;
  if (root.has("training_info")) {
    auto ok = root.allowOnly({"training_info"}).and_then([&] {
      return readMember(root, "training_info", spec.trainingInfo, readNumber);
    });
    return ok ? Expected<Spec>(spec) : tl::unexpected(ok.error());
  }
  if (auto ok = root.allowOnly(
          {"loss", "parameters", "optimizer", "schedule", "clip_norm", "gradient_norm",
           "on_nan", "accumulation", "gradients", "compute", "loss_scale", "seed",
           "batch_norm", "evaluate", "optimizer_parallel", "recompute", "comm_fusion"});
      !ok)
    return tl::unexpected(ok.error());
  for (const char *key : {"loss", "optimizer"})
    if (auto member = root.at(key); !member)
      return tl::unexpected(member.error());
  auto ok = readMember(root, "loss", spec.loss, readLoss)
                .and_then([&]() -> Expected<void> {
                  if (!root.has("parameters"))
                    return {};
                  return readParameters(*root.at("parameters"), spec);
                })
                .and_then([&] {
                  return readMember(root, "optimizer", spec.optimizer, readOptimizer);
                })
                .and_then([&] {
                  return readMember(root, "schedule", spec.schedule, readSchedule);
                })
                .and_then([&] { return readScalars(root, spec); })
                .and_then([&] {
                  return readMember(root, "optimizer_parallel", spec.optimizerParallel,
                                    readParallel);
                })
                .and_then([&] {
                  return readMember(root, "comm_fusion", spec.commFusion, readFusion);
                })
                .and_then([&]() -> Expected<void> {
                  auto given = root.at("recompute");
                  return given ? readRecompute(*given, spec) : Expected<void>();
                })
                .and_then([&] { return checkAccumulation(root, spec); });
  if (!ok)
    return tl::unexpected(ok.error());
  return spec;
}

Expected<Spec> train::parseSpec(const std::string &text, const std::string &path) {
  return parseJson(text, path).and_then(readRoot);
}

Expected<Spec> train::readSpec(const std::string &path) {
  return readJsonFile(path).and_then(readRoot);
}

std::string train::completeText(const Spec &spec) {
  JsonWriter out(JsonWriter::Style::Compact);
  out.beginObject();
  out.member("complete", true);
  if (spec.trainingInfo) {
    out.member("training_info", *spec.trainingInfo);
    out.endObject();
    return out.take();
  }
  out.key("loss");
  write(out, spec.loss);
  out.key("parameters");
  out.beginObject();
  if (!spec.parameters.empty())
    out.member("train", std::span(spec.parameters));
  out.member("freeze", std::span(spec.freeze));
  out.endObject();
  out.key("optimizer");
  write(out, spec.optimizer);
  out.key("schedule");
  write(out, spec.schedule);
  if (spec.clipNorm)
    out.member("clip_norm", *spec.clipNorm);
  out.member("gradients", gradientSums[spec.sumGradients ? 1 : 0]);
  out.member("compute", name(spec.compute));
  if (const auto &scale = spec.lossScale) {
    out.key("loss_scale");
    out.beginObject();
    out.member("initial", scale->initial);
    out.member("dynamic", scale->dynamic);
    if (scale->dynamic)
      out.member("grow_every", scale->growEvery);
    out.endObject();
  }
  out.member("seed", spec.seed);
  out.member("batch_norm", statistics[spec.batchStatistics ? 1 : 0]);
  out.endObject();
  return out.take();
}
