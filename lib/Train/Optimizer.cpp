//===- Optimizer.cpp - Update rules as formulas ---------------------------===//
#include "partita/Train/Optimizer.h"

#include <cstdio>

using namespace partita;
using namespace partita::train;

static UpdateRule sgd(const Optimizer &o) {
  UpdateRule rule;
  rule.numbers = {{"momentum", o.momentum}, {"damping", 1 - o.dampening}};
  rule.lines = {{"d", "g + decay * p"}};
  if (o.momentum == 0) {
    rule.lines.push_back({"p", "p - rate * d"});
    return rule;
  }
  rule.states = {"m"};
  // The first step takes the gradient whole, whatever the dampening.
  if (o.dampening == 0) {
    rule.lines.push_back({"m", "momentum * m + d"});
  } else {
    rule.once = {{"fresh", "select(t < 2, 1, " + std::to_string(1 - o.dampening) + ")"}};
    rule.lines.push_back({"m", "momentum * m + fresh * d"});
  }
  rule.lines.push_back(
      {"p", o.nesterov ? "p - rate * (d + momentum * m)" : "p - rate * m"});
  return rule;
}

/// The moments that Adam and its kin share.
static UpdateRule moments(const Optimizer &o) {
  UpdateRule rule;
  rule.states = {"m", "v"};
  rule.numbers = {{"beta1", o.beta1}, {"beta2", o.beta2}, {"epsilon", o.epsilon}};
  rule.once = {{"fix1", "1 - pow(beta1, t)"}, {"fix2", "sqrt(1 - pow(beta2, t))"}};
  return rule;
}

static const Line firstMoment{"m", "beta1 * m + (1 - beta1) * d"};
static const Line secondMoment{"v", "beta2 * v + (1 - beta2) * d * d"};
static constexpr char direction[] = "(m / fix1) / (sqrt(v) / fix2 + epsilon)";

static UpdateRule adam(const Optimizer &o) {
  UpdateRule rule = moments(o);
  rule.lines = {{"d", "g + decay * p"},
                firstMoment,
                secondMoment,
                {"p", std::string("p - rate * ") + direction}};
  return rule;
}

static UpdateRule adamW(const Optimizer &o) {
  UpdateRule rule = moments(o);
  rule.lines = {{"d", "g"},
                firstMoment,
                secondMoment,
                {"p", std::string("p * (1 - rate * decay) - rate * ") + direction}};
  return rule;
}

static UpdateRule lamb(const Optimizer &o) {
  UpdateRule rule = moments(o);
  rule.lines = {
      {"d", "g"},
      firstMoment,
      secondMoment,
      {"u", std::string(direction) + " + decay * p"},
      {"long", "p", /*isNorm=*/true},
      {"far", "u", /*isNorm=*/true},
      {"trust", "select(long > 0 && far > 0, long / select(far > 0, far, 1), 1)"},
      {"p", "p - rate * trust * u"}};
  return rule;
}

static UpdateRule adagrad(const Optimizer &o) {
  UpdateRule rule;
  rule.states = {"v"};
  rule.numbers = {{"slow", o.rateDecay}, {"epsilon", o.epsilon}};
  rule.once = {{"slowed", "1 + (t - 1) * slow"}};
  rule.lines = {{"d", "g + decay * p"},
                {"v", "v + d * d"},
                {"p", "p - rate / slowed * d / (sqrt(v) + epsilon)"}};
  return rule;
}

UpdateRule train::updateRule(const Optimizer &optimizer) {
  switch (optimizer.kind) {
  case OptimizerKind::Sgd:
    return sgd(optimizer);
  case OptimizerKind::Adam:
    return adam(optimizer);
  case OptimizerKind::AdamW:
    return adamW(optimizer);
  case OptimizerKind::Lamb:
    return lamb(optimizer);
  case OptimizerKind::Adagrad:
    return adagrad(optimizer);
  }
  return {};
}

static std::string text(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return value < 0 ? "(" + std::string(buffer) + ")" : buffer;
}

std::string train::rateFormula(double rate, const Schedule &s) {
  std::string warm = text(static_cast<double>(s.warmup));
  std::string factor = "1";
  // The share of the way from the end of the warm-up to `total`.
  std::string along = "min(1, max(0, (t - " + warm + ") / " +
                      text(static_cast<double>(s.total - s.warmup)) + "))";
  switch (s.kind) {
  case ScheduleKind::Constant:
    break;
  case ScheduleKind::Linear:
    factor = "1 - " + text(1 - s.final) + " * " + along;
    break;
  case ScheduleKind::Cosine:
    factor = text(s.final) + " + " + text((1 - s.final) / 2) +
             " * (1 + cos(3.141592653589793 * " + along + "))";
    break;
  case ScheduleKind::Step:
    factor = "pow(" + text(s.gamma) + ", floor(max(0, t - 1 - " + warm + ") / " +
             text(static_cast<double>(s.every)) + "))";
    break;
  }
  if (s.warmup > 0)
    factor = "select(t < " + warm + ", t / " + warm + ", " + factor + ")";
  return text(rate) + " * (" + factor + ")";
}
