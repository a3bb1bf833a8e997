//===- Bound.cpp - A time that no plan is below ---------------------------===//
#include "partita/Search/Bound.h"

#include <algorithm>
#include <utility>

using namespace partita;
using namespace partita::search;

using Text = std::pair<unsigned, const char *>;

static constexpr Text spaces[] = {
    {Bound::EqualLayersAlike, "plan equal layers alike"},
    {Bound::WholeAxes, "split mesh axes as a whole"},
    {Bound::FewCopies, "keep at most two further copies of a value"},
    {Bound::CountedBytes, "fit by bytes that the search counts"},
    {Bound::SameRecompute, "compute again what this step does"},
    {Bound::SameMicroBatches, "have as many micro-batches"},
    {Bound::OneMesh, "are on this mesh"},
};

static constexpr Text relaxations[] = {
    {Bound::Memory, "the memory limit"},
    {Bound::PartOfRecompute, "a part of what is computed again"},
};

Bound search::leastOf(const Bound &a, const Bound &b) {
  return {std::min(a.time, b.time), a.within | b.within, a.ignores | b.ignores};
}

Bound search::largerOf(const Bound &a, const Bound &b) {
  return {std::max(a.time, b.time), a.within | b.within,
          a.time >= b.time ? a.ignores : b.ignores};
}

template <size_t N>
static std::vector<std::string> textsOf(const Text (&all)[N], unsigned flags) {
  std::vector<std::string> texts;
  for (const auto &[flag, text] : all)
    if (flags & flag)
      texts.emplace_back(text);
  return texts;
}

template <size_t N>
static unsigned flagsOf(const Text (&all)[N], const std::vector<std::string> &texts) {
  unsigned flags = 0;
  for (const auto &[flag, text] : all)
    if (std::ranges::find(texts, text) != texts.end())
      flags |= flag;
  return flags;
}

std::vector<std::string> search::withinTexts(const Bound &bound) {
  return textsOf(spaces, bound.within);
}

std::vector<std::string> search::ignoresTexts(const Bound &bound) {
  return textsOf(relaxations, bound.ignores);
}

Bound search::boundOf(Picos time, const std::vector<std::string> &within,
                      const std::vector<std::string> &ignores) {
  return {time, flagsOf(spaces, within), flagsOf(relaxations, ignores)};
}
