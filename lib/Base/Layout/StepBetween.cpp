//===- StepBetween.cpp - What a collective between two layouts must be ----===//
#include "ReshardRefine.h"

#include <algorithm>

using namespace partita;
using namespace partita::reshard;

std::optional<AxisList> reshard::behind(const AxisList &list, const AxisList &prefix) {
  AxisList rest = list;
  for (const AxisRef &ref : prefix) {
    if (rest.empty() || rest[0].axis != ref.axis || rest[0].pre != ref.pre ||
        rest[0].size % ref.size != 0)
      return std::nullopt;
    rest[0] = {ref.axis, ref.pre * ref.size, rest[0].size / ref.size};
    if (rest[0].size == 1)
      rest.erase(rest.begin());
  }
  return rest;
}

int64_t reshard::elementsReceived(StepKind kind, int64_t local, int64_t count) {
  switch (kind) {
  case StepKind::AllGather:
    return (count - 1) * local;
  case StepKind::AllToAll:
  case StepKind::ReduceScatter:
    return (count - 1) * (local / count);
  case StepKind::AllReduce:
    // 2·(count-1)/count·local, rounded up, without leaving 64 bits.
    return 2 * (count - 1) * (local / count) +
           (2 * (count - 1) * (local % count) + count - 1) / count;
  case StepKind::Permute:
    return local;
  default:
    return 0;
  }
}

namespace {
/// A place whose axes differ before and after, at the minor end.
struct Change {
  int32_t dim, factor;
  AxisList gained, lost;
};

class Deriver {
public:
  Deriver(const Mesh &mesh, Step step, bool counts)
      : mesh(mesh), step(std::move(step)), counts(counts) {}

  Expected<Step> run() {
    if (auto ok = checkEnds(); !ok)
      return tl::unexpected(ok.error());
    switch (step.kind) {
    case StepKind::View:
      return view();
    case StepKind::Repad:
      return repad();
    case StepKind::Exchange:
      return exchange();
    default:
      break;
    }
    if (auto ok = compareFactors(); !ok)
      return tl::unexpected(ok.error());
    if (step.kind == StepKind::Permute)
      return permute();
    if (auto ok = comparePlaces(); !ok)
      return tl::unexpected(ok.error());
    auto ok = comparePartial();
    ok = ok ? claimPlaces() : ok;
    if (!ok)
      return tl::unexpected(ok.error());
    step.receivedElements =
        elementsReceived(step.kind, step.before.localElements(), product(step.axes));
    return std::move(step);
  }

private:
  tl::unexpected<Error> fail(const std::string &what) const {
    return makeError("no " + std::string(name(step.kind)) + " leads from " +
                     step.before.str(mesh) + " to " + step.after.str(mesh) + ": " + what);
  }

  Expected<void> checkEnds() const {
    for (const Layout *layout : {&step.before, &step.after})
      if (auto ok = layout->verify(mesh); !ok)
        return ok;
    if (step.before.globalShape() != step.after.globalShape())
      return fail("the global shapes differ");
    return {};
  }

  Expected<Step> view() {
    if (step.before.canonicalized() != step.after.canonicalized())
      return fail("they place elements differently");
    return std::move(step);
  }

  Expected<Step> exchange() {
    if (step.before.partial != step.after.partial)
      return fail("the partial axes differ");
    // The only volume that is not a product: ranks may lack different amounts.
    if (counts)
      step.receivedElements = exchangeElements(mesh, step.before, step.after);
    return std::move(step);
  }

  Expected<Step> repad() {
    if (step.before.partial != step.after.partial)
      return fail("the partial axes differ");
    for (size_t d = 0; d < step.before.dims.size(); ++d) {
      if (step.before.dims[d] == step.after.dims[d])
        continue;
      if (step.dim >= 0)
        return fail("more than one dim changes");
      step.dim = static_cast<int32_t>(d);
      step.factor = 0;
      DimLayout same = step.before.dims[d];
      same.factors[0].padded = step.after.dims[d].factors[0].padded;
      if (same != step.after.dims[d] || !same.factors[0].axes.empty() ||
          !same.factors[0].blocks.empty())
        return fail("dim " + std::to_string(d) +
                    " changes in more than the padding of an unsharded major factor");
    }
    if (step.dim < 0)
      return fail("nothing changes");
    return std::move(step);
  }

  /// Same dims, factors, sizes and padding on both sides.
  Expected<void> compareFactors() const {
    for (size_t d = 0; d < step.before.dims.size(); ++d) {
      const auto &before = step.before.dims[d].factors,
                 &after = step.after.dims[d].factors;
      bool same = before.size() == after.size();
      for (size_t f = 0; same && f < before.size(); ++f)
        same = before[f].size == after[f].size && before[f].padded == after[f].padded &&
               before[f].blocks == after[f].blocks;
      if (!same)
        return fail("dim " + std::to_string(d) + " has other factors");
    }
    return {};
  }

  /// Places may swap, reorder or replace axes, each by as many ranks.
  Expected<Step> permute() {
    if (step.before.partial != step.after.partial)
      return fail("the partial axes differ");
    for (size_t d = 0; d < step.before.dims.size(); ++d)
      for (size_t f = 0; f < step.before.dims[d].factors.size(); ++f) {
        const AxisList &before = step.before.dims[d].factors[f].axes;
        const AxisList &after = step.after.dims[d].factors[f].axes;
        if (before == after)
          continue;
        if (product(before) != product(after))
          return fail("dim " + std::to_string(d) + " is split " +
                      std::to_string(product(before)) + " ways before and " +
                      std::to_string(product(after)) + " after");
        if (step.dim < 0) {
          step.dim = static_cast<int32_t>(d);
          step.factor = static_cast<int32_t>(f);
        }
        AxisList fresh = without(before, step.axes);
        step.axes.insert(step.axes.end(), fresh.begin(), fresh.end());
      }
    if (step.dim < 0)
      return fail("nothing changes");
    step.receivedElements = step.before.localElements();
    return std::move(step);
  }

  Expected<void> comparePlaces() {
    for (size_t d = 0; d < step.before.dims.size(); ++d)
      for (size_t f = 0; f < step.before.dims[d].factors.size(); ++f) {
        AxisList before = canonical(step.before.dims[d].factors[f].axes);
        AxisList after = canonical(step.after.dims[d].factors[f].axes);
        if (before == after)
          continue;
        Change change{static_cast<int32_t>(d), static_cast<int32_t>(f), {}, {}};
        if (auto gained = behind(after, before))
          change.gained = std::move(*gained);
        else if (auto lost = behind(before, after))
          change.lost = std::move(*lost);
        else
          return fail("dim " + std::to_string(d) + " changes from " + mesh.str(before) +
                      " to " + mesh.str(after) + " other than at the minor end");
        changes.push_back(std::move(change));
      }
    return {};
  }

  /// Partial axes of one kind go (reductions), come (to-partial) or stay (all others).
  Expected<void> comparePartial() {
    Layout before = step.before.canonicalized(), after = step.after.canonicalized();
    if (before.partial == after.partial)
      return {};
    bool comes = step.kind == StepKind::ToPartial;
    if (comes)
      std::swap(before, after);
    // The first entry that differs must be the only one, and of the last kind that is
    // there: a later kind is reduced before an earlier one.
    for (const PartialAxes &entry : before.partial) {
      auto same =
          std::find_if(after.partial.begin(), after.partial.end(),
                       [&](const PartialAxes &p) { return p.kind == entry.kind; });
      AxisList left = same == after.partial.end() ? AxisList{} : same->axes;
      AxisList moved = canonical(without(entry.axes, left));
      if (!canonical(without(left, entry.axes)).empty())
        return fail(std::string(name(entry.kind)) + " changes its axes");
      if (moved.empty())
        continue;
      if (!partial.empty())
        return fail("partial axes of two kinds change");
      if (!comes && entry.kind != before.partial.back().kind)
        return fail(std::string(name(entry.kind)) + " is reduced before " +
                    std::string(name(before.partial.back().kind)) +
                    ", which nests in it");
      partial = std::move(moved);
      step.reduce = entry.kind;
    }
    if (after.partial.size() > before.partial.size() || partial.empty())
      return fail("the partial axes change the other way");
    return {};
  }

  /// Which changes the kind makes, and no others.
  Expected<void> claimPlaces() {
    bool reduces =
        step.kind == StepKind::AllReduce || step.kind == StepKind::ReduceScatter;
    bool wantsPartial = reduces || step.kind == StepKind::ToPartial;
    if (wantsPartial == partial.empty())
      return fail(partial.empty() ? "no partial axes change" : "partial axes change");
    const Change *gains = nullptr, *loses = nullptr;
    for (const Change &change : changes) {
      const Change *&place = change.gained.empty() ? loses : gains;
      if (place)
        return fail("more than one place changes");
      place = &change;
    }
    bool wantsGain = step.kind == StepKind::Slice || step.kind == StepKind::AllToAll ||
                     step.kind == StepKind::ReduceScatter;
    bool wantsLoss = step.kind == StepKind::AllGather || step.kind == StepKind::AllToAll;
    if (wantsGain != (gains != nullptr))
      return fail(gains ? "a place gains axes" : "no place gains axes");
    if (wantsLoss != (loses != nullptr))
      return fail(loses ? "a place loses axes" : "no place loses axes");
    if (gains && loses && gains->gained != loses->lost)
      return fail("one place loses " + mesh.str(loses->lost) + ", the other gains " +
                  mesh.str(gains->gained));
    if (gains && reduces &&
        without(gains->gained, partial).size() + without(partial, gains->gained).size() !=
            0)
      return fail("the sum is over " + mesh.str(partial) + ", the place gains " +
                  mesh.str(gains->gained));
    step.axes = gains ? gains->gained : loses ? loses->lost : partial;
    const Change *first = loses ? loses : gains;
    if (first) {
      step.dim = first->dim;
      step.factor = first->factor;
    }
    if (gains && loses) {
      step.toDim = gains->dim;
      step.toFactor = gains->factor;
    }
    return {};
  }

  const Mesh &mesh;
  Step step;
  bool counts; ///< whether the volume of an exchange is wanted
  std::vector<Change> changes;
  AxisList partial;
};
} // namespace

Expected<Step> partita::stepBetween(const Mesh &mesh, StepKind kind, const Layout &before,
                                    const Layout &after) {
  return Deriver(mesh, makeStep(kind, before, after), /*counts=*/true).run();
}

Expected<void> partita::verifyStep(const Mesh &mesh, StepKind kind, const Layout &before,
                                   const Layout &after) {
  auto step = Deriver(mesh, makeStep(kind, before, after), /*counts=*/false).run();
  return step ? Expected<void>() : tl::unexpected(step.error());
}
