//===- ReadUpdate.cpp - "optimizer" and "schedule" of a specification -----===//
#include "Read.h"

using namespace partita;
using namespace partita::train;

// In the order of OptimizerKind.
static constexpr std::string_view optimizers[] = {"sgd", "adam", "adamw", "lamb",
                                                  "adagrad"};
static constexpr uint32_t sgd = 0b00001, moments = 0b01110, adagrad = 0b10000;

static constexpr KindMember optimizerMembers[] = {
    {"momentum", sgd},  {"dampening", sgd},         {"nesterov", sgd},
    {"betas", moments}, {"eps", moments | adagrad}, {"lr_decay", adagrad}};

/// torch.optim's of version 2; of LAMB, which it lacks, those of NVIDIA's Apex, with
/// the weight decay of the paper's BERT (You et al. 2020).
static Optimizer defaultsOf(OptimizerKind kind) {
  Optimizer result;
  result.kind = kind;
  if (kind == OptimizerKind::AdamW)
    result.weightDecay = 1e-2;
  if (kind == OptimizerKind::Lamb) {
    result.weightDecay = 1e-2;
    result.epsilon = 1e-6;
  }
  if (kind == OptimizerKind::Adagrad) {
    result.rate = 1e-2;
    result.epsilon = 1e-10;
  }
  return result;
}

static Expected<void> readBetas(const JsonValue &value, Optimizer &into) {
  if (!value.has("betas"))
    return {};
  auto betas = value.at("betas")->elements();
  if (!betas)
    return tl::unexpected(betas.error());
  if (betas->size() != 2)
    return value.at("betas")->error("expected two numbers, got " +
                                    std::to_string(betas->size()));
  auto first = readBelowOne((*betas)[0]), second = readBelowOne((*betas)[1]);
  if (!first || !second)
    return tl::unexpected(!first ? first.error() : second.error());
  into.beta1 = *first;
  into.beta2 = *second;
  return {};
}

/// What each number is alone, and is not with the others.
static Expected<void> checkOptimizer(const JsonValue &value, const Optimizer &read) {
  if (read.nesterov && read.momentum == 0)
    return value.error("\"nesterov\" needs a momentum above 0");
  if (read.nesterov && read.dampening != 0)
    return value.error("\"nesterov\" needs a dampening of 0");
  if (read.dampening != 0 && read.momentum == 0)
    return value.error("\"dampening\" needs a momentum above 0");
  if (!read.noDecay.empty() && read.weightDecay == 0 && !value.has("weight_decay"))
    return value.error("\"no_decay\" excludes parameters from a weight decay, but there "
                       "is no \"weight_decay\"");
  return {};
}

Expected<Optimizer> train::readOptimizer(const JsonValue &value) {
  if (auto ok = value.allowOnly({"kind", "lr", "momentum", "dampening", "nesterov",
                                 "betas", "eps", "lr_decay", "weight_decay", "no_decay"});
      !ok)
    return tl::unexpected(ok.error());
  auto member = value.at("kind");
  auto kind = member.and_then([](auto &v) { return readName(v, optimizers); });
  if (!kind)
    return tl::unexpected(kind.error());
  Optimizer read = defaultsOf(static_cast<OptimizerKind>(*kind));
  auto ok =
      allowOfKind(value, optimizers, *kind, optimizerMembers)
          .and_then([&] { return readMember(value, "lr", read.rate, readNonNegative); })
          .and_then(
              [&] { return readMember(value, "momentum", read.momentum, readBelowOne); })
          .and_then(
              [&] { return readMember(value, "dampening", read.dampening, readUpToOne); })
          .and_then(
              [&] { return readMember(value, "nesterov", read.nesterov, readFlag); })
          .and_then([&] { return readBetas(value, read); })
          .and_then([&] { return readMember(value, "eps", read.epsilon, readPositive); })
          .and_then([&] {
            return readMember(value, "lr_decay", read.rateDecay, readNonNegative);
          })
          .and_then([&] {
            return readMember(value, "weight_decay", read.weightDecay, readNonNegative);
          })
          .and_then([&] {
            return readMember(value, "no_decay", read.noDecay, readGlobsOrNone);
          })
          .and_then([&] { return checkOptimizer(value, read); });
  if (!ok)
    return tl::unexpected(ok.error());
  return read;
}

// In the order of ScheduleKind.
static constexpr std::string_view schedules[] = {"constant", "linear", "cosine", "step"};
static constexpr uint32_t towardsEnd = 0b0110, inSteps = 0b1000;

static constexpr KindMember scheduleMembers[] = {{"total_steps", towardsEnd},
                                                 {"end_factor", towardsEnd},
                                                 {"step_size", inSteps},
                                                 {"gamma", inSteps}};

static Expected<void> checkSchedule(const JsonValue &value, const Schedule &read) {
  bool ends = read.kind == ScheduleKind::Linear || read.kind == ScheduleKind::Cosine;
  if (ends && read.total <= read.warmup)
    return value.error("the warm-up of " + std::to_string(read.warmup) +
                       " steps leaves nothing of " + std::to_string(read.total) +
                       " steps in all");
  return {};
}

Expected<Schedule> train::readSchedule(const JsonValue &value) {
  if (auto ok = value.allowOnly(
          {"kind", "warmup_steps", "total_steps", "end_factor", "step_size", "gamma"});
      !ok)
    return tl::unexpected(ok.error());
  auto member = value.at("kind");
  auto kind = member.and_then([](auto &v) { return readName(v, schedules); });
  if (!kind)
    return tl::unexpected(kind.error());
  Schedule read;
  read.kind = static_cast<ScheduleKind>(*kind);
  if (auto ok = allowOfKind(value, schedules, *kind, scheduleMembers); !ok)
    return tl::unexpected(ok.error());
  // Without them the rate would fall at once, or never.
  const char *needed = (1u << *kind) & towardsEnd ? "total_steps"
                       : (1u << *kind) & inSteps  ? "step_size"
                                                  : "kind";
  if (auto there = value.at(needed); !there)
    return tl::unexpected(there.error());
  auto steps = [](const JsonValue &v) { return v.asInteger(0, int64_t(1) << 53); };
  auto ok =
      readMember(value, "warmup_steps", read.warmup, steps)
          .and_then(
              [&] { return readMember(value, "total_steps", read.total, readCount); })
          .and_then(
              [&] { return readMember(value, "end_factor", read.final, readUpToOne); })
          .and_then([&] { return readMember(value, "step_size", read.every, readCount); })
          .and_then([&] { return readMember(value, "gamma", read.gamma, readPositive); })
          .and_then([&] { return checkSchedule(value, read); });
  if (!ok)
    return tl::unexpected(ok.error());
  return read;
}

void train::write(JsonWriter &out, const Optimizer &optimizer) {
  const auto kind = static_cast<size_t>(optimizer.kind);
  auto isOf = [kind](uint32_t kinds) { return ((kinds >> kind) & 1) != 0; };
  out.beginObject();
  out.member("kind", optimizers[kind]);
  out.member("lr", optimizer.rate);
  if (isOf(sgd)) {
    out.member("momentum", optimizer.momentum);
    out.member("dampening", optimizer.dampening);
    out.member("nesterov", optimizer.nesterov);
  }
  if (isOf(moments)) {
    const double betas[] = {optimizer.beta1, optimizer.beta2};
    out.member("betas", std::span<const double>(betas));
  }
  if (isOf(moments | adagrad))
    out.member("eps", optimizer.epsilon);
  if (isOf(adagrad))
    out.member("lr_decay", optimizer.rateDecay);
  out.member("weight_decay", optimizer.weightDecay);
  out.member("no_decay", std::span(optimizer.noDecay));
  out.endObject();
}

void train::write(JsonWriter &out, const Schedule &schedule) {
  const auto kind = static_cast<size_t>(schedule.kind);
  out.beginObject();
  out.member("kind", schedules[kind]);
  out.member("warmup_steps", schedule.warmup);
  if ((towardsEnd >> kind) & 1) {
    out.member("total_steps", schedule.total);
    out.member("end_factor", schedule.final);
  }
  if ((inSteps >> kind) & 1) {
    out.member("step_size", schedule.every);
    out.member("gamma", schedule.gamma);
  }
  out.endObject();
}
