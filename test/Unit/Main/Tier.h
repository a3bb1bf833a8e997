//===- Tier.h - Cases of a sweep that a run has ------------------*- C++ -*-===//
//
// The suites run in two tiers (docs/checks.md). The full tier has every case of a sweep;
// the quick tier has one case of every kind and a seeded tenth of the others.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TEST_UNIT_MAIN_TIER_H
#define PARTITA_TEST_UNIT_MAIN_TIER_H

#include <cstddef>
#include <random>
#include <string>

namespace partita::test {

/// Whether PARTITA_TIER is "quick". Absent or "full": false. Any other value ends the
/// program with a sentence.
bool isQuickTier();

/// Chooses the cases of one sweep for this run, in the order in which the sweep makes
/// them. Example: `if (sample.takes(isFirstOfItsKind)) check(c);`. At its end it appends
/// a line "NAME TAKEN TOTAL" to the file that PARTITA_SWEEPS names, by which
/// utils/sum_results.py sees that no case was lost.
class TierSample {
public:
  /// `sweep`: a name without blanks, unique among all suites, listed in test/sweeps.txt.
  /// The tenth follows from this name and PARTITA_SEED (absent: 1).
  explicit TierSample(std::string sweep);
  TierSample(const TierSample &) = delete;
  TierSample &operator=(const TierSample &) = delete;
  ~TierSample();

  /// Whether the next case is run: each in the full tier, and where `isRequired`.
  bool takes(bool isRequired = false);

  size_t taken() const { return numTaken; }
  size_t total() const { return numTotal; }

private:
  std::string sweep;
  std::mt19937_64 random;
  size_t numTaken = 0, numTotal = 0;
};

} // namespace partita::test

#endif // PARTITA_TEST_UNIT_MAIN_TIER_H
