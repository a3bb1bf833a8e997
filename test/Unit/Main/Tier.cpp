//===- Tier.cpp - Cases of a sweep that a run has -------------------------===//
#include "Tier.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace partita::test;

bool partita::test::isQuickTier() {
  const char *value = std::getenv("PARTITA_TIER");
  std::string_view tier = value ? value : "full";
  if (tier == "quick")
    return true;
  if (tier == "full")
    return false;
  std::fprintf(stderr, "PARTITA_TIER is '%s': neither 'quick' nor 'full'\n", value);
  std::exit(1);
}

TierSample::TierSample(std::string sweep) : sweep(std::move(sweep)) {
  const char *seed = std::getenv("PARTITA_SEED");
  std::string text = (seed ? seed : "1") + (" " + this->sweep);
  std::seed_seq sequence(text.begin(), text.end());
  random.seed(sequence);
}

TierSample::~TierSample() {
  const char *path = std::getenv("PARTITA_SWEEPS");
  std::FILE *file = path ? std::fopen(path, "a") : nullptr;
  if (!file)
    return;
  std::fprintf(file, "%s %zu %zu\n", sweep.c_str(), numTaken, numTotal);
  std::fclose(file);
}

bool TierSample::takes(bool isRequired) {
  ++numTotal;
  // A draw for every case, so that the choice of one does not move those of the others.
  bool isDrawn = random() % 10 == 0;
  if (isQuickTier() && !isRequired && !isDrawn)
    return false;
  ++numTaken;
  return true;
}
