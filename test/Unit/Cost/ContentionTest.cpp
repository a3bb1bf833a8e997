//===- ContentionTest.cpp - Resources that work at once, as measured ------===//
#include "partita/Base/Files/File.h"
#include "partita/Cost/Overlap.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

using namespace partita;

TEST_CASE("resources at once: a shared second is divided, and never longer than turns") {
  Contention free(1), shared(2), more(5);
  CHECK(secondsTogether({0, 0, 0, 0}, shared) == 0);
  CHECK(secondsTogether({3, 0, 0, 0}, more) == Approx(3));
  CHECK(secondsTogether({3, 2, 1, 4}, free) == Approx(4));
  // Two that halve each other take turns; a factor above that changes nothing.
  CHECK(secondsTogether({3, 2, 0, 0}, shared) == Approx(5));
  CHECK(secondsTogether({3, 2, 0, 0}, more) == Approx(5));
  CHECK(secondsTogether({3, 2, 1, 4}, more) == Approx(10));
  // Three of 1.2 by pairs are at 1/1.4 while all work, two then at 1/1.2.
  Contention usual(1.2);
  CHECK(secondsTogether({1, 1, 1, 0}, usual) == Approx(1.4));
  CHECK(secondsTogether({2, 2, 1, 0}, usual) == Approx(1.4 + 1.2));
  CHECK(secondsTogether({2, 3, 0, 0}, usual) == Approx(1.2 * 2 + 1));
  // Other pairs keep theirs where one is named alone.
  Contention one(1);
  one.set(Resource::Links, Resource::HostOut, 1.5);
  CHECK(one.of(Resource::HostOut, Resource::Links) == 1.5);
  CHECK(secondsTogether({0, 2, 0, 2}, one) == Approx(3));
  CHECK(secondsTogether({2, 2, 2, 0}, one) == Approx(2));
}

namespace {
struct Row {
  bool isFitted = false;
  std::string gpu;
  std::array<double, numResources> alone = {};
  double together = 0;
};
} // namespace

/// Rows of bench/published/overlap.csv.
static std::vector<Row> measuredRows() {
  auto text = readFile(PARTITA_SOURCE_DIR "/bench/published/overlap.csv");
  REQUIRE(text);
  std::istringstream lines(*text);
  std::string line;
  std::getline(lines, line);
  REQUIRE(line == "part,gpu,world,intra_group,inter_group,device_ms,links_ms,host_in_ms,"
                  "host_out_ms,together_ms");
  std::vector<Row> rows;
  while (std::getline(lines, line)) {
    std::istringstream cells(line);
    std::vector<std::string> words;
    for (std::string word; std::getline(cells, word, ',');)
      words.push_back(word);
    REQUIRE(words.size() == 10);
    Row row{words[0] == "fit", words[1], {}, std::stod(words[9])};
    for (size_t r = 0; r < numResources; ++r)
      row.alone[r] = std::stod(words[5 + r]);
    rows.push_back(row);
  }
  return rows;
}

/// Median and 90th percentile.
static std::pair<double, double> spread(std::vector<double> errors) {
  std::ranges::sort(errors);
  return {errors[errors.size() / 2], errors[errors.size() * 9 / 10]};
}

TEST_CASE("the rule of contention errs by 15% and 35% at most where nothing was fitted") {
  const std::map<std::string, Contention> known = {
      {"a100-sxm4-40gb", devicePreset("A100-80GB")->contention},
      {"v100-sxm2-16gb", devicePreset("V100-16GB")->contention},
      {"v100-sxm2-32gb", devicePreset("V100-32GB")->contention},
      // Devices without a preset.
      {"a10g", Contention({3.24, 1.00, 1.01, 3.24, 2.92, 1.70})},
      {"l4", Contention({1.52, 1.96, 2.00, 1.08, 1.08, 2.69})}};
  std::vector<double> errors, longest, turns;
  for (const Row &row : measuredRows()) {
    if (row.isFitted)
      continue;
    auto error = [&](double seconds) { return std::abs(seconds / row.together - 1); };
    errors.push_back(error(secondsTogether(row.alone, known.at(row.gpu))));
    longest.push_back(error(*std::ranges::max_element(row.alone)));
    turns.push_back(error(std::accumulate(row.alone.begin(), row.alone.end(), 0.0)));
  }
  REQUIRE(errors.size() == 916);
  auto [median, most] = spread(errors);
  INFO("median " << 100 * median << "%, 90th percentile " << 100 * most << "%");
  CHECK(median <= 0.15);
  CHECK(most <= 0.35);
  // The rows tell rules apart.
  CHECK(spread(longest).first > 4 * median);
  CHECK(spread(turns).first > 4 * median);
}
