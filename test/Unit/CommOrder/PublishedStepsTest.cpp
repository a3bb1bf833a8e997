//===- PublishedStepsTest.cpp - Simulated against printed steps -----------===//
//
// The Zero Bubble paper (Qi et al., ICLR 2024, tables 3 to 6) prints, for five settings
// on A100, the milliseconds of a stage's parts and of a transfer, and what four schedules
// reached. 1F1B-I has several chunks on each rank, each a share of the stage. The paper's
// zero-bubble schedules are automatic, with room for one and two times what 1F1B keeps,
// and its groups go on with the next step at once.
//
//===----------------------------------------------------------------------===//
#include "partita/Comm/StepTimeline.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>

using namespace partita;

namespace {
struct Setting {
  int64_t stages, microBatches, chunks; ///< chunks of 1F1B-I
  double samples;                       ///< of a micro-batch
  StepTimes milliseconds;
  std::array<double, 4> printed; ///< samples/GPU/s of 1F1B, 1F1B-I, ZB-1p, ZB-2p
};
} // namespace

static const Setting settings[] = {
    {8, 32, 3, 6, {18.513, 18.086, 9.331, 0.626}, {12.5, 13.4, 13.4, 14.8}},
    {8, 64, 3, 6, {18.546, 18.097, 9.321, 0.762}, {13.6, 13.9, 14.2, 14.9}},
    {8, 64, 4, 3, {29.935, 29.621, 19.388, 0.535}, {4.03, 4.19, 4.20, 4.39}},
    {16, 64, 3, 1, {11.307, 11.254, 8.101, 0.379}, {1.49, 1.59, 1.67, 1.83}},
    {32, 256, 2, 1, {10.402, 10.248, 7.698, 0.46}, {0.88, 0.90, 0.96, 1.00}},
};

static double simulated(const Setting &setting, const char *schedule, int64_t chunks) {
  StepTimes times = setting.milliseconds;
  for (double *part : {&times.forward, &times.backward, &times.weight})
    *part /= static_cast<double>(chunks);
  auto known = *stepScheduleOf(schedule);
  auto placed = placedStages(known, setting.stages * chunks, setting.stages);
  REQUIRE(placed);
  auto step = makeStep(known, *placed, setting.microBatches, {times});
  REQUIRE(step);
  const StepTimeline line = simulate(*step, {times}, SendRule::Occupies);
  const double seconds = 1e-3 * (step->partsWeights ? line.longestSpan() : line.seconds);
  return setting.samples * static_cast<double>(setting.microBatches) / seconds /
         static_cast<double>(setting.stages);
}

// Simulated here: 2.6% on average, the worst 6%. Plain and interleaved 1F1B lie within 1
// to 5% of each other in print, and change places in two settings, where the simulation
// has transfers wait that Megatron's interleaving runs beside its work.
TEST_CASE("Simulated steps are those that were printed", "[step]") {
  double error = 0, worst = 0;
  int rightOrders = 0;
  for (const Setting &setting : settings) {
    std::array<double, 4> found = {
        simulated(setting, "1f1b", 1), simulated(setting, "interleaved", setting.chunks),
        simulated(setting, "zb-auto:1", 1), simulated(setting, "zb-auto:2", 1)};
    for (size_t i = 0; i < found.size(); ++i) {
      const double own = std::abs(found[i] / setting.printed[i] - 1);
      INFO(setting.stages << " stages, " << setting.microBatches
                          << " micro-batches, schedule " << i << ": " << found[i]
                          << ", printed " << setting.printed[i]);
      CHECK(own < 0.07);
      error += own / 20;
      worst = std::max(worst, own);
    }
    rightOrders += std::ranges::is_sorted(found);
    CHECK(found[3] > found[2]);
    CHECK(found[2] > std::max(found[0], found[1]));
  }
  INFO("mean " << error << ", worst " << worst << ", right orders " << rightOrders);
  CHECK(error < 0.035);
  CHECK(rightOrders >= 3);
}
