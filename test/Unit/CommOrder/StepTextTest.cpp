//===- StepTextTest.cpp - Schedules as torch.distributed writes them ------===//
#include "partita/Comm/StepText.h"

#include <catch2/catch.hpp>

using namespace partita;

TEST_CASE("Schedules are written and read again", "[step]") {
  for (auto schedule : {StepSchedule::Gpipe, StepSchedule::OneForwardOneBackward,
                        StepSchedule::ZeroBubbleH1})
    for (int64_t stages : {1, 2, 4})
      for (int64_t count : {1, 3, 8}) {
        const PipelineStep step{schedule, stages, count};
        const std::string text = stepText(step);
        auto read = readStepText(text, "f");
        REQUIRE(read);
        CHECK(read->stages == stages);
        CHECK(read->microBatches == count);
        CHECK(read->partsWeights() == step.partsWeights());
        for (int64_t s = 0; s < stages; ++s)
          CHECK(turnsOf(*read, s) == turnsOf(step, s));
        CHECK(stepText(*read) == text);
      }
}

TEST_CASE("Kinds and pauses are those of torch", "[step]") {
  CHECK(stepText({StepSchedule::OneForwardOneBackward, 2, 2}) ==
        "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  CHECK(stepText({StepSchedule::ZeroBubbleH1, 2, 1}) == "0F0,0I0,0W0\n1F0,1I0,1W0\n");
  // Pauses, blanks, quotes; a whole backward part beside one that is parted.
  auto read = readStepText("0F0, ,0F1,\"0B0\",0I1,0W1\r\n,1F0,1B0,1F1,1B1", "f");
  REQUIRE(read);
  CHECK(read->partsWeights());
  CHECK(read->given[0] == std::vector<StepTurn>{{StepPart::Forward, 0},
                                                {StepPart::Forward, 1},
                                                {StepPart::Backward, 0},
                                                {StepPart::Weight, 0},
                                                {StepPart::Backward, 1},
                                                {StepPart::Weight, 1}});
  // Two stages on each of two ranks.
  const PipelineStep four{StepSchedule::Interleaved, 4, 2, 2};
  CHECK(stepText(four) == "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n"
                          "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n");
  auto again = readStepText(stepText(four), "f");
  REQUIRE(again);
  CHECK(again->stages == 4);
  CHECK(again->groups == 2);
  CHECK(turnsOf(*again, 1) == turnsOf(four, 1));
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
        "s.csv: line 2 has stage 0: stages are dealt to the 2 ranks in turn");
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
