//===- FormTable.cpp - Layouts and halos by number ------------------------===//
#include "partita/Search/Timing.h"

using namespace partita;
using namespace partita::search;

namespace {
class Hash {
public:
  void add(int64_t value) {
    state = (state ^ static_cast<size_t>(value)) * 0x9E3779B97F4A7C15u;
    state ^= state >> 29;
  }
  void add(const AxisList &axes) {
    for (const AxisRef &ref : axes) {
      add(ref.axis);
      add(ref.pre);
      add(ref.size);
    }
    add(-1);
  }
  void add(const Layout &layout) {
    for (const DimLayout &dim : layout.dims) {
      for (const DimFactor &factor : dim.factors) {
        add(factor.size);
        add(factor.padded);
        add(factor.axes);
        for (int64_t block : factor.blocks)
          add(block);
      }
      add(-2);
    }
    for (const PartialAxes &partial : layout.partial) {
      add(static_cast<int64_t>(partial.kind));
      add(partial.axes);
    }
  }
  size_t state = 1469598103934665603u;
};
} // namespace

static size_t hashOf(const Form &form) {
  Hash hash;
  hash.add(form.layout);
  if (form.halo) {
    hash.add(form.halo->positions);
    for (const HaloWindow &window : form.halo->windows) {
      hash.add(window.dim);
      hash.add(window.stride);
      hash.add(window.kernelExtent);
      hash.add(window.low);
    }
  }
  return hash.state;
}

int32_t FormTable::add(Form form) {
  size_t hash = hashOf(form);
  auto [first, last] = known.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (forms[static_cast<size_t>(it->second)] == form)
      return it->second;
  auto number = static_cast<int32_t>(forms.size());
  forms.push_back(std::move(form));
  known.emplace(hash, number);
  return number;
}
