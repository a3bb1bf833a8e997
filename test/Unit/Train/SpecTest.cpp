//===- SpecTest.cpp - Training specifications, good and bad ---------------===//
#include "partita/Train/Spec.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::train;

static const std::string loss =
    R"("loss": {"kind": "mse", "of": "y", "labels": "target"})";
static const std::string optimizer = R"("optimizer": {"kind": "sgd"})";

static Spec read(const std::string &text) {
  auto spec = parseSpec(text, "s.json");
  INFO((spec ? "" : spec.error().message));
  REQUIRE(spec);
  return *spec;
}

static std::string failure(const std::string &text) {
  auto spec = parseSpec(text, "s.json");
  return spec ? "none" : spec.error().message;
}

/// The specification with the least, and `members`.
static std::string with(const std::string &members) {
  return "{" + loss + ", " + optimizer + ", " + members + "}";
}

static Optimizer readOptimizer(const std::string &members) {
  return read("{" + loss + R"(, "optimizer": {)" + members + "}}").optimizer;
}

static std::string optimizerFailure(const std::string &members) {
  return failure("{" + loss + R"(, "optimizer": {)" + members + "}}");
}

static Loss readLoss(const std::string &members) {
  return read("{" + optimizer + R"(, "loss": {)" + members + "}}").loss;
}

static std::string lossFailure(const std::string &members) {
  return failure("{" + optimizer + R"(, "loss": {)" + members + "}}");
}

TEST_CASE("train: what is not said") {
  Spec spec = read("{" + loss + ", " + optimizer + "}");
  CHECK(spec.loss.kind == LossKind::Mse);
  CHECK(spec.loss.of == "y");
  CHECK(spec.loss.labels == "target");
  CHECK(spec.loss.mean);
  CHECK(!spec.loss.axis);
  CHECK(!spec.loss.ignoreIndex);
  CHECK(spec.loss.labelSmoothing == 0);
  CHECK(spec.parameters.empty());
  CHECK(spec.freeze.empty());
  CHECK(spec.schedule.kind == ScheduleKind::Constant);
  CHECK(spec.schedule.warmup == 0);
  CHECK(!spec.clipNorm);
  CHECK(spec.accumulation == 1);
  CHECK(!spec.sumGradients);
  CHECK(spec.compute == Compute::F32);
  CHECK(!spec.lossScale);
  CHECK(spec.seed == 0);
  CHECK(spec.batchStatistics);
  CHECK(!spec.optimizerParallel.enable);
  CHECK(spec.recompute.empty());
  CHECK(!spec.choosesAccumulation);
}

TEST_CASE("train: what a step computes, in full") {
  const std::string least = completeText(read("{" + loss + ", " + optimizer + "}"));
  CHECK(least == R"({"complete":true,"loss":{"kind":"mse","of":"y","labels":"target",)"
                 R"("reduction":"mean"},"parameters":{"freeze":[]},)"
                 R"("optimizer":{"kind":"sgd","lr":0.001,"momentum":0,"dampening":0,)"
                 R"("nesterov":false,"weight_decay":0,"no_decay":[]},)"
                 R"("schedule":{"kind":"constant","warmup_steps":0},"gradients":"mean",)"
                 R"("compute":"f32","seed":0,"batch_norm":"batch"})");
  // Defaults that are written, and how the step is planned.
  CHECK(completeText(read(with(
            R"("schedule": {"kind": "constant"}, "seed": 0, "compute": "f32",
               "batch_norm": "batch", "gradients": "mean", "on_nan": "stop",
               "evaluate": true, "gradient_norm": true, "recompute": "none",
               "accumulation": 2, "optimizer_parallel": {"enable": true, "level": 3},
               "comm_fusion": {"openstate": false}, "parameters": {"freeze": []})"))) ==
        least);
  for (const char *other :
       {R"("clip_norm": 1)", R"("seed": 1)", R"("gradients": "sum")",
        R"("compute": "bf16")", R"("batch_norm": "running")",
        R"("loss_scale": {"initial": 65536, "dynamic": true, "grow_every": 7})",
        R"("schedule": {"kind": "cosine", "total_steps": 9, "end_factor": 0.1})",
        R"("schedule": {"kind": "step", "step_size": 3})",
        R"("parameters": {"train": ["w*"], "freeze": ["w1"]})"}) {
    std::string text = completeText(read(with(other)));
    CHECK(text != least);
    // A text in full asks for the same.
    const std::string complete = R"("complete":true,)";
    CHECK(completeText(read(text.erase(1, complete.size()))) ==
          completeText(read(with(other))));
  }
  const std::string adam = R"({"optimizer": {"kind": "adam", "betas": [0.5, 0.75]},
    "loss": {"kind": "softmax_cross_entropy", "of": "y", "labels": "t", "axis": 1,
             "ignore_index": -1, "label_smoothing": 0.5, "reduction": "sum"}})";
  const std::string text = completeText(read(adam));
  CHECK_THAT(text, Catch::Matchers::Contains(R"("betas":[0.5,0.75],"eps":1e-08)"));
  CHECK_THAT(
      text, Catch::Matchers::Contains(
                R"("axis":1,"ignore_index":-1,"label_smoothing":0.5,"reduction":"sum")"));
  CHECK(completeText(read(R"({"training_info": 1})")) ==
        R"({"complete":true,"training_info":1})");
}

TEST_CASE("train: a number of micro-batches that is chosen") {
  Spec spec = read(with(R"("accumulation": "auto", "gradients": "mean")"));
  CHECK(spec.accumulation == 1);
  CHECK(spec.choosesAccumulation);
  CHECK(failure(with(R"("accumulation": "many")")) ==
        "s.json: accumulation: expected \"auto\", got \"many\"");
  // What would not be the same step for every number.
  CHECK(failure(with(R"("accumulation": "auto", "gradients": "sum")")) ==
        "s.json: \"gradients\": \"sum\" is of a number of micro-batches, but "
        "\"accumulation\" is \"auto\"");
  CHECK(failure("{" + optimizer +
                R"(, "accumulation": "auto", "loss": {"output": "l"}})") ==
        "s.json: \"accumulation\": \"auto\" needs a \"kind\" of loss: whether output 'l' "
        "is "
        "a mean or a sum over the batch is not known");
}

TEST_CASE("train: losses") {
  Loss all = readLoss(R"("kind": "softmax_cross_entropy", "of": "logits", "labels": "c",
      "axis": -1, "ignore_index": -100, "label_smoothing": 0.1, "reduction": "sum")");
  CHECK(all.kind == LossKind::SoftmaxCrossEntropy);
  CHECK(all.axis == -1);
  CHECK(all.ignoreIndex == -100);
  CHECK(all.labelSmoothing == 0.1);
  CHECK(!all.mean);
  std::pair<const char *, LossKind> kinds[] = {
      {"nll", LossKind::Nll},
      {"l1", LossKind::L1},
      {"bce_with_logits", LossKind::BceWithLogits}};
  for (auto [name, kind] : kinds)
    CHECK(readLoss(R"("of": "y", "labels": "t", "reduction": "mean", "kind": ")" +
                   std::string(name) + '"')
              .kind == kind);
  Loss given = readLoss(R"("output": "loss")");
  CHECK(given.kind == LossKind::Output);
  CHECK(given.of == "loss");
  CHECK(given.labels.empty());
}

TEST_CASE("train: losses that are none") {
  CHECK(failure("{" + optimizer + "}") == "s.json: the member \"loss\" is missing");
  CHECK(failure(R"({"loss": "mse", )" + optimizer + "}") ==
        "s.json: loss: expected an object, got a string");
  CHECK(lossFailure(R"("of": "y", "labels": "t")") ==
        "s.json: loss: the member \"kind\" is missing");
  CHECK(lossFailure(R"("kind": "mse", "labels": "t")") ==
        "s.json: loss: the member \"of\" is missing");
  CHECK(lossFailure(R"("kind": "mse", "of": "y")") ==
        "s.json: loss: the member \"labels\" is missing");
  CHECK(lossFailure(R"("kind": "hinge", "of": "y", "labels": "t")") ==
        "s.json: loss/kind: expected \"softmax_cross_entropy\", \"nll\", \"mse\", \"l1\" "
        "or \"bce_with_logits\", got \"hinge\"");
  CHECK(lossFailure(R"("kind": "mse", "of": "y", "labels": "t", "target": "t")")
            .starts_with("s.json: loss: unknown member \"target\"; known are output, "));
  CHECK(lossFailure(R"("kind": "mse", "of": "", "labels": "t")") ==
        "s.json: loss/of: expected a name, got an empty string");
  CHECK(lossFailure(R"("kind": "mse", "of": "y", "labels": "y")") ==
        "s.json: loss: \"labels\" names a new input of the training step, but \"y\" is "
        "the output that the loss is of");
  CHECK(lossFailure(R"("kind": "l1", "of": "y", "labels": "t", "ignore_index": 3)") ==
        "s.json: loss: \"ignore_index\" is of softmax_cross_entropy and nll, the kind is "
        "l1");
  CHECK(lossFailure(R"("kind": "nll", "of": "y", "labels": "t", "label_smoothing": 0)") ==
        "s.json: loss: \"label_smoothing\" is of softmax_cross_entropy, the kind is nll");
  CHECK(lossFailure(R"("kind": "mse", "of": "y", "labels": "t", "axis": 1)") ==
        "s.json: loss: \"axis\" is of softmax_cross_entropy and nll, the kind is mse");
  std::string classes = R"("kind": "softmax_cross_entropy", "of": "y", "labels": "t", )";
  CHECK(lossFailure(classes + R"("label_smoothing": 1)") ==
        "s.json: loss/label_smoothing: expected a number of at least 0 and below 1, got "
        "1");
  CHECK(lossFailure(classes + R"("ignore_index": 1.5)") ==
        "s.json: loss/ignore_index: expected an integer, got a number");
  CHECK(lossFailure(classes + R"("axis": 64)") ==
        "s.json: loss/axis: expected an integer from -64 to 63, got 64");
  CHECK(lossFailure(classes + R"("reduction": "none")") ==
        "s.json: loss/reduction: expected \"mean\" or \"sum\", got \"none\"");
  CHECK(lossFailure(R"("output": "loss", "labels": "t")") ==
        "s.json: loss: \"output\" says that the model computes the loss, so \"labels\" "
        "has no meaning");
  CHECK(lossFailure(R"("output": "loss", "scale": 1)") ==
        "s.json: loss: unknown member \"scale\"; known are output");
  CHECK(lossFailure(R"("output": 3)") ==
        "s.json: loss/output: expected a string, got an integer");
}

TEST_CASE("train: defaults of optimizers") {
  Optimizer sgd = readOptimizer(R"("kind": "sgd")");
  CHECK(sgd.kind == OptimizerKind::Sgd);
  CHECK(sgd.rate == 1e-3);
  CHECK(sgd.momentum == 0);
  CHECK(sgd.dampening == 0);
  CHECK(!sgd.nesterov);
  CHECK(sgd.weightDecay == 0);
  struct {
    const char *name;
    OptimizerKind kind;
    double rate, epsilon, decay;
  } cases[] = {{"adam", OptimizerKind::Adam, 1e-3, 1e-8, 0},
               {"adamw", OptimizerKind::AdamW, 1e-3, 1e-8, 1e-2},
               {"lamb", OptimizerKind::Lamb, 1e-3, 1e-6, 1e-2},
               {"adagrad", OptimizerKind::Adagrad, 1e-2, 1e-10, 0}};
  for (const auto &c : cases) {
    Optimizer read = readOptimizer("\"kind\": \"" + std::string(c.name) + '"');
    CHECK(read.kind == c.kind);
    CHECK(read.rate == c.rate);
    CHECK(read.beta1 == 0.9);
    CHECK(read.beta2 == 0.999);
    CHECK(read.epsilon == c.epsilon);
    CHECK(read.rateDecay == 0);
    CHECK(read.weightDecay == c.decay);
    CHECK(read.noDecay.empty());
  }
}

TEST_CASE("train: members of optimizers") {
  Optimizer sgd = readOptimizer(R"("kind": "sgd", "lr": 0.1, "momentum": 0.9,
      "nesterov": true, "weight_decay": 5e-4, "no_decay": ["*.bias", "norm.*"])");
  CHECK(sgd.rate == 0.1);
  CHECK(sgd.momentum == 0.9);
  CHECK(sgd.nesterov);
  CHECK(sgd.weightDecay == 5e-4);
  CHECK(sgd.noDecay == std::vector<std::string>{"*.bias", "norm.*"});
  CHECK(readOptimizer(R"("kind": "sgd", "momentum": 0.9, "dampening": 1)").dampening ==
        1);
  Optimizer adam = readOptimizer(
      R"("kind": "adamw", "betas": [0.8, 0], "eps": 1e-7, "no_decay": ["*.bias"])");
  CHECK(adam.beta1 == 0.8);
  CHECK(adam.beta2 == 0);
  CHECK(adam.epsilon == 1e-7);
  CHECK(readOptimizer(R"("kind": "adagrad", "lr_decay": 0.5)").rateDecay == 0.5);
  CHECK(readOptimizer(R"("kind": "adam", "weight_decay": 0, "no_decay": ["*"])")
            .noDecay.size() == 1);
}

TEST_CASE("train: optimizers that are none") {
  CHECK(failure("{" + loss + "}") == "s.json: the member \"optimizer\" is missing");
  CHECK(optimizerFailure(R"("lr": 0.1)") ==
        "s.json: optimizer: the member \"kind\" is missing");
  CHECK(optimizerFailure(R"("kind": "lion")") ==
        "s.json: optimizer/kind: expected \"sgd\", \"adam\", \"adamw\", \"lamb\" or "
        "\"adagrad\", got \"lion\"");
  CHECK(optimizerFailure(R"("kind": "sgd", "rate": 0.1)")
            .starts_with("s.json: optimizer: unknown member \"rate\"; known are kind, "));
  CHECK(optimizerFailure(R"("kind": "sgd", "betas": [0.9, 0.9])") ==
        "s.json: optimizer: \"betas\" is of adam, adamw and lamb, the kind is sgd");
  CHECK(optimizerFailure(R"("kind": "sgd", "eps": 1e-8)") ==
        "s.json: optimizer: \"eps\" is of adam, adamw, lamb and adagrad, the kind is "
        "sgd");
  CHECK(optimizerFailure(R"("kind": "adam", "lr_decay": 0.1)") ==
        "s.json: optimizer: \"lr_decay\" is of adagrad, the kind is adam");
  for (const char *member :
       {R"("momentum": 0.9)", R"("dampening": 0.9)", R"("nesterov": true)"}) {
    std::string key = std::string(member).substr(0, std::string(member).find(':'));
    CHECK(optimizerFailure("\"kind\": \"lamb\", " + std::string(member)) ==
          "s.json: optimizer: " + key + " is of sgd, the kind is lamb");
  }
  CHECK(optimizerFailure(R"("kind": "sgd", "lr": -1)") ==
        "s.json: optimizer/lr: expected a number of at least 0, got -1");
  CHECK(optimizerFailure(R"("kind": "sgd", "lr": "0.1")") ==
        "s.json: optimizer/lr: expected a number, got a string");
  CHECK(optimizerFailure(R"("kind": "sgd", "momentum": 1)") ==
        "s.json: optimizer/momentum: expected a number of at least 0 and below 1, got 1");
  CHECK(optimizerFailure(R"("kind": "sgd", "momentum": 0.5, "dampening": 2)") ==
        "s.json: optimizer/dampening: expected a number from 0 to 1, got 2");
  CHECK(optimizerFailure(R"("kind": "sgd", "nesterov": 1)") ==
        "s.json: optimizer/nesterov: expected a boolean, got an integer");
  CHECK(optimizerFailure(R"("kind": "sgd", "nesterov": true)") ==
        "s.json: optimizer: \"nesterov\" needs a momentum above 0");
  CHECK(optimizerFailure(
            R"("kind": "sgd", "nesterov": true, "momentum": 0.9, "dampening": 0.1)") ==
        "s.json: optimizer: \"nesterov\" needs a dampening of 0");
  CHECK(optimizerFailure(R"("kind": "sgd", "dampening": 0.1)") ==
        "s.json: optimizer: \"dampening\" needs a momentum above 0");
  CHECK(optimizerFailure(R"("kind": "adam", "betas": 0.9)") ==
        "s.json: optimizer/betas: expected an array, got a number");
  CHECK(optimizerFailure(R"("kind": "adam", "betas": [0.9])") ==
        "s.json: optimizer/betas: expected two numbers, got 1");
  CHECK(optimizerFailure(R"("kind": "adam", "betas": [0.9, 1])") ==
        "s.json: optimizer/betas[1]: expected a number of at least 0 and below 1, got 1");
  CHECK(optimizerFailure(R"("kind": "adam", "eps": 0)") ==
        "s.json: optimizer/eps: expected a number above 0, got 0");
  CHECK(optimizerFailure(R"("kind": "adagrad", "lr_decay": -0.5)") ==
        "s.json: optimizer/lr_decay: expected a number of at least 0, got -0.5");
  CHECK(optimizerFailure(R"("kind": "sgd", "weight_decay": -0.5)") ==
        "s.json: optimizer/weight_decay: expected a number of at least 0, got -0.5");
  CHECK(optimizerFailure(R"("kind": "adamw", "no_decay": "*.bias")") ==
        "s.json: optimizer/no_decay: expected an array, got a string");
  CHECK(optimizerFailure(R"("kind": "adam", "no_decay": ["*.bias"])") ==
        "s.json: optimizer: \"no_decay\" excludes parameters from a weight decay, but "
        "there is no \"weight_decay\"");
}

TEST_CASE("train: schedules") {
  Schedule cosine = read(with(R"("schedule": {"kind": "cosine", "warmup_steps": 10,
      "total_steps": 100, "end_factor": 0.1})"))
                        .schedule;
  CHECK(cosine.kind == ScheduleKind::Cosine);
  CHECK(cosine.warmup == 10);
  CHECK(cosine.total == 100);
  CHECK(cosine.final == 0.1);
  Schedule linear =
      read(with(R"("schedule": {"kind": "linear", "total_steps": 1})")).schedule;
  CHECK(linear.kind == ScheduleKind::Linear);
  CHECK(linear.warmup == 0);
  CHECK(linear.final == 0);
  Schedule step = read(with(R"("schedule": {"kind": "step", "step_size": 30})")).schedule;
  CHECK(step.kind == ScheduleKind::Step);
  CHECK(step.every == 30);
  CHECK(step.gamma == 0.1);
  CHECK(read(with(R"("schedule": {"kind": "step", "step_size": 1, "gamma": 0.5})"))
            .schedule.gamma == 0.5);
  CHECK(read(with(R"("schedule": {"kind": "constant", "warmup_steps": 5})"))
            .schedule.warmup == 5);
}

TEST_CASE("train: schedules that are none") {
  auto schedule = [](const std::string &members) {
    return failure(with(R"("schedule": {)" + members + "}"));
  };
  CHECK(schedule(R"("warmup_steps": 3)") ==
        "s.json: schedule: the member \"kind\" is missing");
  CHECK(schedule(R"("kind": "exponential")") ==
        "s.json: schedule/kind: expected \"constant\", \"linear\", \"cosine\" or "
        "\"step\", got \"exponential\"");
  CHECK(
      schedule(R"("kind": "cosine", "warmup": 3)")
          .starts_with("s.json: schedule: unknown member \"warmup\"; known are kind, "));
  CHECK(schedule(R"("kind": "cosine")") ==
        "s.json: schedule: the member \"total_steps\" is missing");
  CHECK(schedule(R"("kind": "step")") ==
        "s.json: schedule: the member \"step_size\" is missing");
  CHECK(schedule(R"("kind": "constant", "total_steps": 9)") ==
        "s.json: schedule: \"total_steps\" is of linear and cosine, the kind is "
        "constant");
  CHECK(schedule(R"("kind": "step", "step_size": 9, "end_factor": 0)") ==
        "s.json: schedule: \"end_factor\" is of linear and cosine, the kind is step");
  CHECK(schedule(R"("kind": "linear", "total_steps": 9, "gamma": 0.1)") ==
        "s.json: schedule: \"gamma\" is of step, the kind is linear");
  CHECK(schedule(R"("kind": "cosine", "total_steps": 9, "step_size": 1)") ==
        "s.json: schedule: \"step_size\" is of step, the kind is cosine");
  CHECK(schedule(R"("kind": "linear", "total_steps": 10, "warmup_steps": 10)") ==
        "s.json: schedule: the warm-up of 10 steps leaves nothing of 10 steps in all");
  CHECK(schedule(R"("kind": "linear", "total_steps": 0)") ==
        "s.json: schedule/total_steps: expected an integer from 1 to 9007199254740992, "
        "got 0");
  CHECK(schedule(R"("kind": "constant", "warmup_steps": -1)") ==
        "s.json: schedule/warmup_steps: expected an integer from 0 to 9007199254740992, "
        "got -1");
  CHECK(schedule(R"("kind": "step", "step_size": 0)") ==
        "s.json: schedule/step_size: expected an integer from 1 to 9007199254740992, got "
        "0");
  CHECK(schedule(R"("kind": "step", "step_size": 3, "gamma": 0)") ==
        "s.json: schedule/gamma: expected a number above 0, got 0");
  CHECK(schedule(R"("kind": "cosine", "total_steps": 9, "end_factor": 2)") ==
        "s.json: schedule/end_factor: expected a number from 0 to 1, got 2");
}

TEST_CASE("train: what remains") {
  Spec spec = read(with(R"("parameters": {"train": ["fc.*"], "freeze": ["fc.bias"]},
      "clip_norm": 1, "accumulation": 4, "gradients": "sum", "compute": "bf16",
      "loss_scale": 1024, "seed": 7, "gradient_norm": true, "on_nan": "skip", "batch_norm": "running",
      "evaluate": true,
      "optimizer_parallel": {"enable": true, "gradient_accumulation_shard": true,
        "threshold_kb": 0, "shard_size": 4, "level": 3},
      "recompute": [{"nodes": "h.*", "exactly": true}, {"nodes": "fc", "mp_comm_recompute": false,
        "parallel_optimizer_comm_recompute": true}])"));
  CHECK(spec.parameters == std::vector<std::string>{"fc.*"});
  CHECK(spec.freeze == std::vector<std::string>{"fc.bias"});
  CHECK(spec.clipNorm == 1);
  CHECK(spec.gradientNorm);
  CHECK(spec.evaluates);
  CHECK(!read(with(R"("seed": 7)")).evaluates);
  CHECK(spec.onNan == OnNan::Skip);
  CHECK(read(with(R"("on_nan": "stop")")).onNan == OnNan::Stop);
  CHECK(read(with(R"("seed": 7)")).onNan == OnNan::GoOn);
  CHECK(spec.accumulation == 4);
  CHECK(spec.sumGradients);
  CHECK(spec.compute == Compute::BF16);
  REQUIRE(spec.lossScale);
  CHECK(spec.lossScale->initial == 1024);
  CHECK(!spec.lossScale->dynamic);
  CHECK(spec.seed == 7);
  CHECK(!spec.batchStatistics);
  CHECK(spec.optimizerParallel.enable);
  CHECK(spec.optimizerParallel.accumulationShard);
  CHECK(spec.optimizerParallel.thresholdBytes == 0);
  CHECK(spec.optimizerParallel.shardSize == 4);
  CHECK(spec.optimizerParallel.level == 3);
  REQUIRE(spec.recompute.size() == 2);
  CHECK(spec.recompute[0].nodes == std::vector<std::string>{"h.*"});
  CHECK(!spec.recompute[0].together);
  CHECK(spec.recompute[0].exactly);
  CHECK(!spec.recompute[1].exactly);
  CHECK(spec.recompute[0].modelParallelCommunication);
  CHECK(!spec.recompute[0].optimizerParallelCommunication);
  CHECK(!spec.recompute[1].modelParallelCommunication);
  CHECK(spec.recompute[1].optimizerParallelCommunication);

  OptimizerParallel parallel =
      read(with(R"("optimizer_parallel": {"enable": true})")).optimizerParallel;
  CHECK(!parallel.accumulationShard);
  CHECK(parallel.thresholdBytes == 65536);
  CHECK(parallel.shardSize == -1);
  CHECK(parallel.level == 1);

  CHECK(read(with(R"("compute": "f16", "batch_norm": "batch", "gradients": "mean")"))
            .compute == Compute::F16);
  LossScale dynamic = *read(with(R"("loss_scale": "dynamic")")).lossScale;
  CHECK(dynamic.dynamic);
  CHECK(dynamic.initial == 65536);
  CHECK(dynamic.growEvery == 2000);
  LossScale both = *read(with(R"("loss_scale": {"dynamic": true, "initial": 8,
      "grow_every": 10})"))
                        .lossScale;
  CHECK(both.dynamic);
  CHECK(both.initial == 8);
  CHECK(both.growEvery == 10);
  CHECK(read(with(R"("loss_scale": {"initial": 8})")).lossScale->initial == 8);
}

TEST_CASE("train: which collectives are one call") {
  using buckets::Fusion;
  auto kinds = [](const std::string &text) {
    CommFusion read = ::read(with(R"("comm_fusion": )" + text)).commFusion;
    return std::vector(std::begin(read.kinds), std::end(read.kinds));
  };
  auto some = kinds(R"({"allreduce": {"mode": "size", "config": 1000},
      "reducescatter": {"mode": "index", "config": [20, 35], "groups": [["a.*", "b"]]}})");
  CHECK(some[0].fusion.mode == Fusion::Mode::Size);
  CHECK(some[0].fusion.bytes == 1000);
  CHECK(some[1].fusion.mode == Fusion::Mode::Auto);
  CHECK(some[2].fusion.mode == Fusion::Mode::Index);
  CHECK(some[2].fusion.index == std::vector<int32_t>{20, 35});
  CHECK(some[2].groups == std::vector<std::vector<std::string>>{{"a.*", "b"}});
  for (const CommFusion::Kind &kind :
       kinds(R"({"openstate": false, "allreduce": {"mode": "size", "config": 9}})"))
    CHECK(kind.fusion.mode == Fusion::Mode::Alone);

  auto wrong = [](const std::string &text) {
    return failure(with(R"("comm_fusion": )" + text));
  };
  const std::string at = "s.json: comm_fusion";
  CHECK(wrong("3") == at + ": expected an object, got an integer");
  CHECK(wrong(R"({"alltoall": {}})") ==
        at + ": unknown member \"alltoall\"; known are openstate, allreduce, allgather, "
             "reducescatter");
  CHECK(wrong(R"({"openstate": 1})") ==
        at + "/openstate: expected a boolean, got an integer");
  CHECK(wrong(R"({"allreduce": {}})").starts_with(at + "/allreduce: "));
  CHECK(wrong(R"({"allreduce": {"mode": "all"}})") ==
        at + "/allreduce/mode: expected \"auto\", \"size\" or \"index\", got \"all\"");
  CHECK(wrong(R"({"allreduce": {"mode": "auto", "config": 1}})") ==
        at + "/allreduce: \"config\" is of size and index, the mode is auto");
  CHECK(wrong(R"({"allgather": {"mode": "size"}})").starts_with(at + "/allgather: "));
  CHECK(wrong(R"({"allgather": {"mode": "size", "config": 0}})") ==
        at + "/allgather/config: expected an integer from 1 to 9007199254740992, got 0");
  CHECK(wrong(R"({"allreduce": {"mode": "index", "config": [35, 20]}})") ==
        at + "/allreduce/config[1]: expected more than 35, as numbers of parameters "
             "ascend, got 20");
  CHECK(wrong(R"({"allreduce": {"mode": "index", "config": []}})") ==
        at + "/allreduce/config: expected at least one number of a parameter, got an "
             "empty list");
  CHECK(wrong(R"({"allreduce": {"mode": "index", "config": ["30.12"]}})") ==
        at + "/allreduce/config[0]: expected an integer, got a string");
  CHECK(wrong(R"({"allreduce": {"mode": "auto", "groups": [[]]}})") ==
        at + "/allreduce/groups[0]: expected at least one glob, got an empty list");
}

TEST_CASE("train: a step that the file has") {
  CHECK(read(R"({"training_info": 1})").trainingInfo == 1);
  CHECK(!read("{" + loss + ", " + optimizer + "}").trainingInfo);
  CHECK(failure(R"({"training_info": -1})") ==
        "s.json: training_info: expected an integer from 0 to 2147483647, got -1");
  CHECK(failure(R"({"training_info": 0, "seed": 1})") ==
        "s.json: unknown member \"seed\"; known are training_info");
}

TEST_CASE("train: what remains, wrong") {
  CHECK(failure("[]") == "s.json: expected an object, got an array");
  CHECK(failure("{").starts_with("s.json: not valid JSON: "));
  CHECK(failure(with(R"("optimiser": 1)"))
            .starts_with("s.json: unknown member \"optimiser\"; known are loss, "));
  CHECK(failure(with(R"("parameters": ["fc.*"])")) ==
        "s.json: parameters: expected an object, got an array");
  CHECK(failure(with(R"("parameters": {"except": ["fc.*"]})")) ==
        "s.json: parameters: unknown member \"except\"; known are train, freeze");
  CHECK(failure(with(R"("parameters": {"train": []})")) ==
        "s.json: parameters/train: expected at least one glob, got an empty list");
  CHECK(failure(with(R"("parameters": {"freeze": []})")) == "none"); // the default
  CHECK(failure(with(R"("parameters": {"freeze": ["a", 3]})")) ==
        "s.json: parameters/freeze[1]: expected a string, got an integer");
  CHECK(failure(with(R"("parameters": {"freeze": [""]})")) ==
        "s.json: parameters/freeze[0]: expected a name, got an empty string");
  CHECK(failure(with(R"("clip_norm": 0)")) ==
        "s.json: clip_norm: expected a number above 0, got 0");
  CHECK(failure(with(R"("gradient_norm": 1)")) ==
        "s.json: gradient_norm: expected a boolean, got an integer");
  CHECK(failure(with(R"("on_nan": "ignore")")) ==
        "s.json: on_nan: expected \"stop\" or \"skip\", got \"ignore\"");
  CHECK(failure(with(R"("accumulation": 0)")) ==
        "s.json: accumulation: expected an integer from 1 to 9007199254740992, got 0");
  CHECK(failure(with(R"("gradients": "max")")) ==
        "s.json: gradients: expected \"mean\" or \"sum\", got \"max\"");
  CHECK(failure(with(R"("compute": "f64")")) ==
        "s.json: compute: expected \"f32\", \"bf16\" or \"f16\", got \"f64\"");
  CHECK(failure(with(R"("loss_scale": 0)")) ==
        "s.json: loss_scale: expected a number above 0, got 0");
  CHECK(failure(with(R"("loss_scale": "static")")) ==
        "s.json: loss_scale: expected \"dynamic\", got \"static\"");
  CHECK(failure(with(R"("loss_scale": true)")) ==
        "s.json: loss_scale: expected a number, \"dynamic\" or an object");
  CHECK(failure(with(R"("loss_scale": {})")) ==
        "s.json: loss_scale: expected \"initial\" or \"dynamic\": true");
  CHECK(failure(with(R"("loss_scale": {"initial": 8, "grow_every": 3})")) ==
        "s.json: loss_scale: \"grow_every\" is of a scale that is \"dynamic\"");
  CHECK(failure(with(R"("loss_scale": {"scale": 8})")) ==
        "s.json: loss_scale: unknown member \"scale\"; known are initial, dynamic, "
        "grow_every");
  CHECK(failure(with(R"("seed": -1)")) ==
        "s.json: seed: expected an integer from 0 to 9223372036854775807, got -1");
  CHECK(failure(with(R"("evaluate": 1)")) ==
        "s.json: evaluate: expected a boolean, got an integer");
  CHECK(failure(with(R"("batch_norm": true)")) ==
        "s.json: batch_norm: expected a string, got a boolean");
  CHECK(failure(with(R"("batch_norm": "sync")")) ==
        "s.json: batch_norm: expected \"running\" or \"batch\", got \"sync\"");
  CHECK(failure(with(R"("optimizer_parallel": {"level": 2})")) ==
        "s.json: optimizer_parallel: the member \"enable\" is missing");
  CHECK(failure(with(R"("optimizer_parallel": {"enable": true, "level": 4})")) ==
        "s.json: optimizer_parallel/level: expected an integer from 1 to 3, got 4");
  CHECK(failure(with(R"("optimizer_parallel": {"enable": true, "shard_size": 0})")) ==
        "s.json: optimizer_parallel/shard_size: expected a number of ranks, or -1 for "
        "all, got 0");
  CHECK(failure(with(R"("optimizer_parallel": {"enable": true, "threshold_kb": -1})")) ==
        "s.json: optimizer_parallel/threshold_kb: expected an integer from 0 to "
        "8796093022208, got -1");
  CHECK(failure(with(R"("optimizer_parallel": {"enable": true, "threshold": 1})"))
            .starts_with("s.json: optimizer_parallel: unknown member \"threshold\"; "));
  CHECK(failure(with(R"("recompute": "some")")) ==
        "s.json: recompute: expected \"none\" or \"auto\", got \"some\"");
  CHECK(failure(with(R"("recompute": {"nodes": "h.*"})")) ==
        "s.json: recompute: expected an array, got an object");
  CHECK(failure(with(R"("recompute": [{"mp_comm_recompute": true}])")) ==
        "s.json: recompute[0]: the member \"nodes\" is missing");
  CHECK(failure(with(R"("recompute": [{"nodes": "h", "mp": true}])")) ==
        "s.json: recompute[0]: unknown member \"mp\"; known are nodes, "
        "each, exactly, mp_comm_recompute, parallel_optimizer_comm_recompute");
}

TEST_CASE("train: a file that is not there") {
  auto spec = readSpec("/nonexistent/spec.json");
  REQUIRE(!spec);
  CHECK(spec.error().message.find("/nonexistent/spec.json") != std::string::npos);
}
