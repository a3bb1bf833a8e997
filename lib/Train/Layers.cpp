//===- Layers.cpp - The layers of a program by their structure ------------===//
#include "partita/Train/Layers.h"

#include <algorithm>
#include <limits>

using namespace partita;

namespace {
/// Places [begin, end) of which each but the last `period` is of the kind of the one a
/// period on.
struct Stack {
  size_t begin = 0, end = 0, period = 0;
  size_t size() const { return end - begin; }
};

class LayerFinder {
public:
  LayerFinder(std::span<const size_t> kinds, std::span<const int64_t> crossing)
      : kinds(kinds), crossing(crossing), layers(kinds.size(), -1) {}

  std::vector<int32_t> run() {
    find(0, kinds.size());
    return std::move(layers);
  }

private:
  /// Stacks in program order: what is before the longest, itself, what is behind it.
  void find(size_t from, size_t to) {
    Stack longest = longestIn(from, to);
    if (longest.period == 0)
      return;
    find(from, longest.begin);
    number(longest);
    find(longest.end, to);
  }

  /// The stack of most places; of equals the one of the shortest layers.
  Stack longestIn(size_t from, size_t to) const {
    Stack best;
    for (size_t period = 1; 2 * period <= to - from; ++period) {
      size_t equal = 0; // places up to here that are as those a period on
      for (size_t i = from; i + period < to; ++i) {
        equal = kinds[i] == kinds[i + period] ? equal + 1 : 0;
        Stack stack{i + 1 - equal, i + 1 + period, period};
        if (equal >= period && stack.size() > best.size())
          best = stack;
      }
    }
    return best;
  }

  void number(const Stack &stack) {
    const size_t first = firstOf(stack);
    const size_t copies = (stack.end - first) / stack.period;
    for (size_t i = 0; i < copies * stack.period; ++i)
      layers[first + i] = count + static_cast<int32_t>(i / stack.period);
    count += static_cast<int32_t>(copies);
  }

  /// The place where the first layer begins: where the least crosses from layer to layer;
  /// of equals the one that leaves most layers, then the first.
  size_t firstOf(const Stack &stack) const {
    size_t best = stack.begin, most = 0;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t first = stack.begin; first < stack.begin + stack.period; ++first) {
      const size_t copies = (stack.end - first) / stack.period;
      int64_t bytes = 0;
      for (size_t c = 1; c < copies; ++c)
        bytes = std::max(bytes, crossing[first + c * stack.period]);
      if (copies >= 2 && (bytes < least || (bytes == least && copies > most)))
        best = first, least = bytes, most = copies;
    }
    return best;
  }

  std::span<const size_t> kinds;
  std::span<const int64_t> crossing;
  std::vector<int32_t> layers;
  int32_t count = 0;
};
} // namespace

std::vector<int32_t> train::layersOf(std::span<const size_t> kinds,
                                     std::span<const int64_t> crossing) {
  return LayerFinder(kinds, crossing).run();
}
