//===- StepTextTest.cpp - Schedules as torch.distributed writes them ------===//
#include "partita/Comm/StepText.h"

#include <catch2/catch.hpp>

using namespace partita;

static PipelineStep made(const char *schedule, int64_t stages, int64_t count,
                         int64_t groups = 0) {
  auto placed = placedStages(*stepScheduleOf(schedule), stages, groups);
  REQUIRE(placed);
  auto step = makeStep(*stepScheduleOf(schedule), *placed, count);
  REQUIRE(step);
  return *step;
}

TEST_CASE("Schedules are written and read again", "[step]") {
  for (const char *schedule :
       {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-auto:1.5", "zb-v", "v-half", "v-min"})
    for (int64_t stages : {2, 4, 6})
      for (int64_t count : {1, 3, 8}) {
        const PipelineStep step = made(schedule, stages, count);
        const std::string text = stepText(step);
        auto read = readStepText(text, "f");
        REQUIRE(read);
        CHECK(read->groupOf == step.groupOf);
        CHECK(read->microBatches == count);
        CHECK(read->partsWeights == step.partsWeights);
        CHECK(read->turns == step.turns);
        CHECK(stepText(*read) == text);
      }
}

TEST_CASE("Kinds and pauses are those of torch", "[step]") {
  CHECK(stepText(made("1f1b", 2, 2)) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  CHECK(stepText(made("zb-h1", 2, 1)) == "0F0,0I0,0W0\n1F0,1I0,1W0\n");
  // Pauses, blanks, quotes; a whole backward part beside one that is parted.
  auto read = readStepText("0F0, ,0F1,\"0B0\",0I1,0W1\r\n,1F0,1B0,1F1,1B1", "f");
  REQUIRE(read);
  CHECK(read->partsWeights);
  CHECK(read->turns[0] == std::vector<StepTurn>{{StepPart::Forward, 0},
                                                {StepPart::Forward, 1},
                                                {StepPart::Backward, 0},
                                                {StepPart::Weight, 0},
                                                {StepPart::Backward, 1},
                                                {StepPart::Weight, 1}});
  // Two stages on each of two ranks, dealt in turn and as a V.
  CHECK(stepText(made("interleaved", 4, 2, 2)) == "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n"
                                                  "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n");
  CHECK(stepText(made("zb-v", 4, 1)) == "0F0,3F0,3I0,3W0,0I0,0W0\n"
                                        "1F0,2F0,2I0,1I0,2W0,1W0\n");
}

TEST_CASE("What is no schedule is an error that says where", "[step]") {
  auto error = [](const std::string &text) {
    auto read = readStepText(text, "s.csv");
    return read ? std::string() : read.error().message;
  };
  CHECK(error("") == "s.csv: has no line");
  CHECK(error("0F0,0X0").starts_with("s.csv: line 1, cell 2: '0X0' is no stage"));
  CHECK(error("0F0,0SEND_F0").starts_with("s.csv: line 1, cell 2: '0SEND_F0'"));
  CHECK(error("0F,0B0").starts_with("s.csv: line 1, cell 1: '0F'"));
  CHECK(error("0F0,0B0\n0F0") ==
        "s.csv: line 2 has stage 0, which is on the rank of line 1");
  CHECK(error("0F0,0B0\n2F0,2B0") == "s.csv: has stage 2, but no stage 1");
  CHECK(error("0F0,0B0\n\n") == "s.csv: line 2, cell 1: the line has no stage");
  CHECK(error("0F0,0B0,0F0") ==
        "s.csv: stage 0: the forward part of micro-batch 0 is there twice");
  CHECK(error("0B0,0F0") ==
        "s.csv: stage 0: the backward part of micro-batch 0 comes before what it reads");
  CHECK(error("0F0,0F1,0B0") ==
        "s.csv: stage 0: the backward part of micro-batch 1 is missing");
  CHECK(error("0F0,0F1,0B1,0B0") == "s.csv: stage 0: the backward part of micro-batch 1 "
                                    "comes before that of micro-batch 0");
  CHECK(error("0F0,0I0") ==
        "s.csv: stage 0: the weight part of micro-batch 0 is missing");
  CHECK(error("0F99999999999999999999").starts_with("s.csv: line 1, cell 1"));
}
