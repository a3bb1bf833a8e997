//===- BestPlan.cpp - The fastest plan of a program on a cluster ----------===//
#include "partita/Search/BestPlan.h"

#include "partita/Search/KernelPrice.h"

#include "partita/Base/Units.h"
#include "partita/Search/OverlapBound.h"

#include <algorithm>
#include <chrono>
#include <map>

using namespace partita;
using namespace partita::search;

Bound search::boundOf(const std::vector<NodeResult> &nodes) {
  std::optional<Bound> bound;
  for (const NodeResult &it : nodes)
    if (it.bound)
      bound = bound ? leastOf(*bound, *it.bound) : *it.bound;
  return bound.value_or(Bound());
}

static double secondsOf(Picos time) { return static_cast<double>(time) * 1e-12; }

static double secondsOf(const Found &found) { return secondsOf(found.cost.total()); }

namespace {
class NodeSearch {
public:
  NodeSearch(StepSource &source, const Wanted &wanted) : source(source), wanted(wanted) {}

  Expected<PlanResult> run();

private:
  using ProgramPtr = std::shared_ptr<const StepProgram>;
  using Outcome = tl::expected<Found, NotFound>;
  /// Limits and pins of a search, with one of `parts` equal parts of the time or work.
  SearchOptions optionsOf(const StepProgram &step, int parts) const;
  /// An error where sums over the program say that nothing fits.
  Expected<void> checkNecessary();
  Expected<std::vector<NodeResult>> searchOn(const std::vector<Mesh> &meshes,
                                             const StepForm &form, int parts = 1);
  /// Searches again with states in parts for ranks that hold the same, where that is
  /// asked; `notes` say of each candidate what stays whole.
  void withParts(const std::vector<ProgramPtr> &steps, std::vector<Candidate> &candidates,
                 std::vector<Outcome> &all, std::vector<std::vector<std::string>> &notes,
                 int parts);
  /// The plan of a mesh that is the fastest with overlap, if there is one.
  Expected<void> overlap(const Candidate &candidate, NodeResult &node);
  /// Takes the fastest of the plans of the program as it stands.
  void takeFastest();
  /// Looks for what is faster than the best plan under a limit in the forms that are
  /// left open. The bound of a node then is one for any such form.
  Expected<void> searchForms();
  /// Says whether a node's plans under the limit are slower than the best one could be,
  /// so that another form may pay.
  bool isLimitFelt(const NodeResult &node) const;
  /// Makes the bounds of such nodes those of steps with any recompute.
  Expected<void> boundAnyRecompute();
  /// Nodes of which forms are worth a try, those first that may have the fastest.
  std::vector<size_t> nodesToForm() const;
  /// Makes the node's plan that of the form that fits and is faster than the best plan,
  /// if there is one.
  Expected<void> searchFormsOf(size_t node);
  void takeForm(size_t node, const StepFitter &fitter, NodeResult made);
  void tellForms();
  /// Keeps what comes nearest to a limit that nothing meets.
  void note(const Mesh &mesh, const NotFound &reason);
  Error infeasible();
  double bestSeconds() const { return secondsOf(*result.nodes[*best].found); }
  class Forms;

  StepSource &source;
  const Wanted &wanted;
  PlanResult result;
  std::optional<size_t> best;
  std::string device;  ///< of the cluster
  std::string refused; ///< as StepFitter::refused
  /// Mesh that comes nearest to the limit where nothing fits.
  std::optional<std::pair<Mesh, NotFound>> tightest;
  int searches = 0;
};
} // namespace

SearchOptions NodeSearch::optionsOf(const StepProgram &step, int parts) const {
  SearchOptions search = wanted.search;
  search.timeLimit /= parts;
  if (search.workLimit)
    search.workLimit = std::max<int64_t>(1, *search.workLimit / parts);
  search.pins = step.pins;
  return search;
}

Expected<void> NodeSearch::checkNecessary() {
  const Mesh &mesh = wanted.meshes.front();
  auto step = source.step(mesh, {});
  if (!step)
    return tl::unexpected(step.error());
  device = (*step)->placement.topology().device.name;
  if (!wanted.search.memoryLimit)
    return {};
  return search::checkNecessary((*step)->graph, (*step)->placement,
                                *wanted.search.memoryLimit, !wanted.choosesMicroBatches);
}

Expected<std::vector<NodeResult>> NodeSearch::searchOn(const std::vector<Mesh> &meshes,
                                                       const StepForm &form, int parts) {
  ++searches;
  std::vector<ProgramPtr> steps;
  std::vector<Candidate> candidates;
  for (const Mesh &mesh : meshes) {
    auto step = source.step(mesh, form);
    if (!step)
      return tl::unexpected(step.error());
    const StepProgram &it = *steps.emplace_back(std::move(*step));
    candidates.push_back({it.graph, it.placement, it.pins, it.parameters});
  }
  auto all = searchAll(candidates, optionsOf(*steps.front(), parts));
  std::vector<std::vector<std::string>> notes(all.size());
  withParts(steps, candidates, all, notes, parts);
  // A bound of the search speaks of steps of the form alone.
  const unsigned ofForm = (wanted.choosesRecompute ? Bound::SameRecompute : 0U) |
                          (wanted.choosesMicroBatches ? Bound::SameMicroBatches : 0U);
  std::vector<NodeResult> nodes;
  for (size_t i = 0; i < meshes.size(); ++i) {
    NodeResult node{meshes[i], std::nullopt, {}, std::nullopt, std::move(notes[i])};
    if (all[i]) {
      node.bound = all[i]->bound;
      node.found = std::move(*all[i]);
    } else {
      node.reason = std::move(all[i].error());
      if (!node.reason.proved || node.reason.isSlower)
        node.bound = node.reason.bound;
    }
    if (node.bound)
      node.bound->within |= ofForm;
    if (wanted.overlap)
      if (auto ok = overlap(candidates[i], node); !ok)
        return tl::unexpected(ok.error());
    nodes.push_back(std::move(node));
  }
  return nodes;
}

void NodeSearch::withParts(const std::vector<ProgramPtr> &steps,
                           std::vector<Candidate> &candidates, std::vector<Outcome> &all,
                           std::vector<std::vector<std::string>> &notes, int parts) {
  std::vector<Candidate> again;
  std::vector<size_t> which;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i])
      continue;
    auto pins = source.statesInParts(*steps[i], all[i]->plan.strategies, notes[i]);
    if (!pins)
      return;
    for (auto &[atom, axes] : *pins)
      candidates[i].pins.insert_or_assign(atom, axes);
    again.push_back(candidates[i]);
    which.push_back(i);
  }
  SearchOptions whole = optionsOf(*steps.front(), parts);
  whole.enough = {}; // there is no plan without
  auto found = searchAll(again, whole);
  for (size_t i = 0; i < which.size(); ++i)
    all[which[i]] = std::move(found[i]);
}

Expected<void> NodeSearch::overlap(const Candidate &candidate, NodeResult &node) {
  // A mesh whose plans are slower when work takes turns may have the fastest now.
  if (!node.found && node.reason.proved && !node.reason.isSlower)
    return {};
  const auto begin = std::chrono::steady_clock::now();
  Timing timing(candidate.graph, candidate.placement);
  SearchOptions search = wanted.search;
  search.pins = candidate.pins;
  size_t tiedLayers = 0;
  auto model = modelOf(timing, search, Rows::Most, &tiedLayers);
  if (!model)
    return tl::unexpected(model.error());
  std::vector<Decided> known;
  if (node.found)
    known.push_back(node.found->plan);
  if (search.pins.empty())
    for (KnownPlan &plan :
         knownPlans(candidate.graph, candidate.placement, candidate.parameters))
      if (plan.plan && (!search.memoryLimit || plan.memory <= *search.memoryLimit))
        known.push_back(std::move(*plan.plan));
  auto fastest = planOverlapped(timing, *model, known, search);
  if (!fastest)
    return tl::unexpected(fastest.error());
  node.overlap = OverlapTime{fastest->time,
                             {fastest->lowerBound,
                              spaceOf(candidate.graph, tiedLayers) |
                                  (search.memoryLimit ? Bound::CountedBytes : 0U),
                              0}};
  if (!fastest->plan)
    return {};
  if (!node.found) {
    node.found.emplace();
    node.found->bound = node.reason.bound;
    node.found->variables = model->problem.variables.size();
    node.found->edges = model->problem.edges.size();
    node.found->tiedLayers = tiedLayers;
  }
  Found &found = *node.found;
  found.plan = std::move(*fastest->plan);
  found.cost = evaluate(timing, found.plan);
  found.memory = memoryOf(timing, found.plan);
  found.proved = found.proved && found.cost.total() == found.bound.time;
  found.solveSeconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {};
}

/// Forms of the step on one mesh, planned by a search.
class NodeSearch::Forms : public FormSource {
public:
  Forms(NodeSearch &nodes, const NodeResult &node) : nodes(nodes), node(node) {}

  Expected<FormedStep> formed(const StepForm &form) override {
    if (form == StepForm()) {
      keepPlain(node, 1);
      return stepOf(node);
    }
    nodes.result.isFormChosen = true;
    auto all = nodes.searchOn({node.mesh}, form, nodes.wanted.most.parts);
    if (!all)
      return tl::unexpected(all.error());
    NodeResult &now = all->front();
    if (!now.found)
      nodes.note(now.mesh, now.reason);
    auto step = stepOf(now);
    if (form.recompute.nodes.empty())
      keepPlain(now, form.microBatches);
    if (step)
      made.emplace_back(form, std::move(now));
    return step;
  }

  Expected<FreeStep> unlimited(int64_t microBatches) override {
    ++nodes.searches;
    auto step = nodes.source.step(node.mesh, {microBatches});
    if (!step)
      return tl::unexpected(step.error());
    SearchOptions search = nodes.optionsOf(**step, nodes.wanted.most.parts);
    search.memoryLimit.reset();
    auto found =
        search::search((*step)->graph, (*step)->placement, search, (*step)->parameters);
    if (!found)
      return makeError("no plan: " + found.error().message);
    plans[{Of::FreePlan, microBatches}] = std::move(found->plan.strategies);
    found->bound.within |= nodes.wanted.choosesRecompute ? Bound::SameRecompute : 0U;
    found->bound.ignores |= Bound::Memory;
    return FreeStep{found->memory.peak(), secondsOf(*found), found->bound,
                    nodes.source.rows()};
  }

  Expected<std::optional<RecomputeChoice>> propose(int64_t microBatches, int64_t bytes,
                                                   ProposalSpace space) override {
    auto step = nodes.source.step(node.mesh, {microBatches});
    if (!step)
      return tl::unexpected(step.error());
    SearchOptions search = nodes.optionsOf(**step, nodes.wanted.most.parts);
    search.model.repeatsNecks = space.repeatsNecks;
    search.model.choosesBirths = space.choosesBirths;
    if (space.of != Of::AnyPlan)
      search.model.given = &plans.at({space.of, microBatches});
    search.memoryLimit = bytes;
    return proposeRecompute((*step)->graph, (*step)->placement, search);
  }

  /// The plan of a form that was planned; absent: that is the node's own.
  std::optional<NodeResult> take(const StepForm &form) {
    for (auto &[other, plan] : made)
      if (other == form)
        return std::move(plan);
    return std::nullopt;
  }

private:
  using Of = ProposalSpace::Of;
  void keepPlain(const NodeResult &it, int64_t microBatches) {
    if (it.found)
      plans[{Of::PlainPlan, microBatches}] = it.found->plan.strategies;
  }
  static Expected<FormedStep> stepOf(const NodeResult &it) {
    if (!it.found)
      return makeError(it.reason.message);
    return FormedStep{
        it.found->memory.peak(), secondsOf(*it.found), {}, it.found->freeBound};
  }

  NodeSearch &nodes;
  const NodeResult &node;
  std::vector<std::pair<StepForm, NodeResult>> made;
  /// Strategies of steps with nothing computed again, by number of micro-batches.
  std::map<std::pair<Of, int64_t>, std::vector<Strategy>> plans;
};

void NodeSearch::takeForm(size_t node, const StepFitter &fitter, NodeResult made) {
  const StepFitter::Outcome &fastest = *fitter.best;
  NodeResult &before = result.nodes[node];
  if (before.bound)
    made.bound = before.bound;
  before = std::move(made);
  best = node;
  result.form = fastest.form;
  result.notes.clear();
  if (fastest.form.recompute.nodes.empty())
    return;
  result.savedBytes =
      fitter.withoutLimit.at(fastest.form.microBatches) - fastest.step.bytes;
  result.notes.push_back(
      "recompute: " + textOf(fastest.form.recompute, fitter.freeSeconds) +
      "; the bound is of steps with any recompute or none");
}

Expected<void> NodeSearch::searchFormsOf(size_t node) {
  const std::optional<double> known = best ? std::optional(bestSeconds()) : std::nullopt;
  const SearchOptions &search = wanted.search;
  Forms forms(*this, result.nodes[node]);
  StepFitter::Wanted fits{wanted.choosesMicroBatches, wanted.choosesRecompute,
                          *search.memoryLimit};
  fits.progress = wanted.progress;
  fits.log = search.log;
  fits.enough = search.enough;
  if (!search.workLimit)
    fits.timeLimit = search.timeLimit;
  StepFitter fitter(forms, fits);
  if (auto ok = fitter.run(known); !ok)
    return tl::unexpected(ok.error());
  if (refused.empty())
    refused = fitter.refused;
  // No number of micro-batches is faster than that.
  if (wanted.choosesMicroBatches && fitter.bound)
    result.nodes[node].bound = fitter.bound;
  if (!fitter.best || (known && *known <= fitter.best->seconds))
    return {};
  if (auto made = forms.take(fitter.best->form))
    takeForm(node, fitter, std::move(*made));
  return {};
}

void NodeSearch::note(const Mesh &mesh, const NotFound &reason) {
  if (reason.least &&
      (!tightest || reason.least->peak() < tightest->second.least->peak()))
    tightest.emplace(mesh, reason);
}

bool NodeSearch::isLimitFelt(const NodeResult &node) const {
  const Picos free = node.found ? node.found->freeBound.time : node.reason.freeBound.time;
  if (node.found ? !node.found->isLimitFelt : free == 0)
    return false;
  return !best || static_cast<double>(result.nodes[*best].found->cost.total()) >
                      (1 + goodEnough) * static_cast<double>(free);
}

Expected<void> NodeSearch::boundAnyRecompute() {
  for (size_t i = 0; i < result.nodes.size(); ++i) {
    NodeResult &node = result.nodes[i];
    // The best node has a bound of the same kind.
    if (!isLimitFelt(node) && best != i)
      continue;
    wanted.progress("bounding steps with any recompute on mesh " + node.mesh.str());
    auto step = source.step(node.mesh, {});
    if (!step)
      return tl::unexpected(step.error());
    // The bound of the only mesh has the time of its search.
    const int parts = result.nodes.size() > 1 ? wanted.most.parts : 1;
    auto bound =
        boundOfAnyRecompute((*step)->graph, (*step)->placement, optionsOf(**step, parts));
    if (!bound)
      return tl::unexpected(bound.error());
    node.bound = *bound;
    if (!*bound && !node.found) {
      node.reason.isSlower = false;
      node.reason.proved = true;
      node.reason.message = "no step fits, whatever it computes again";
    }
  }
  return {};
}

std::vector<size_t> NodeSearch::nodesToForm() const {
  const std::vector<NodeResult> &nodes = result.nodes;
  std::vector<size_t> order;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (!result.isAnyBounded || (nodes[i].bound && isLimitFelt(nodes[i])))
      order.push_back(i);
  if (result.isAnyBounded)
    std::ranges::stable_sort(order, {}, [&](size_t i) { return nodes[i].bound->time; });
  order.resize(std::min(order.size(), wanted.most.meshes));
  return order;
}

Expected<void> NodeSearch::searchForms() {
  const SearchOptions &search = wanted.search;
  if (!search.memoryLimit || search.enough.isRaised() ||
      !(wanted.choosesRecompute || wanted.choosesMicroBatches))
    return {};
  const auto begin = std::chrono::steady_clock::now();
  const int before = searches;
  result.isAnyBounded =
      wanted.choosesRecompute && !wanted.choosesMicroBatches &&
      std::ranges::any_of(result.nodes, [&](auto &it) { return isLimitFelt(it); });
  if (result.isAnyBounded)
    if (auto ok = boundAnyRecompute(); !ok)
      return ok;
  if (!result.isAnyBounded && !wanted.choosesMicroBatches)
    return {};
  for (size_t i : nodesToForm()) {
    // Meshes that are left may still be the only ones that fit.
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    if (best && (search.workLimit ? searches - before >= wanted.most.searches
                                  : spent.count() > search.timeLimit))
      break;
    if (result.isAnyBounded && best &&
        picosOf(bestSeconds() / (1 + goodEnough)) <= result.nodes[i].bound->time)
      break;
    if (auto ok = searchFormsOf(i); !ok)
      return ok;
  }
  return {};
}

void NodeSearch::tellForms() {
  if (result.isAnyBounded && result.form.recompute.nodes.empty())
    result.notes.push_back(
        "recompute: none; the bound is of steps with any recompute or none");
  if (auto rows = source.rows())
    result.notes.insert(result.notes.begin(),
                        textOf(result.form.microBatches, *rows) +
                            "; the bound is of steps with any number of micro-batches" +
                            (refused.empty() ? "" : "; " + refused));
  if (wanted.search.enough.isRaised())
    result.notes.push_back(
        "interrupted: the best plan of those that were found until then");
}

Error NodeSearch::infeasible() {
  for (const NodeResult &it : result.nodes)
    note(it.mesh, it.reason);
  const auto &[mesh, reason] =
      tightest ? *tightest
               : std::pair(result.nodes.front().mesh, result.nodes.front().reason);
  std::string message = "no plan on mesh " + mesh.str() + ": " + reason.message;
  if (reason.least && wanted.search.memoryLimit) {
    const std::string needed = bytesText(reason.least->peak());
    message += "; every device (" + device + ") has " +
               bytesText(*wanted.search.memoryLimit) + ", and the plan of least memory" +
               (result.isFormChosen   ? " that was found, whatever is chosen,"
                : result.isAnyBounded ? " that computes nothing again"
                                      : "") +
               " needs " + needed + ": " + kindsText(*reason.least) + "; largest: ";
    std::string list;
    for (const MemoryShare &share : reason.least->largest)
      list += (list.empty() ? "'" : ", '") + share.name + "' " + bytesText(share.bytes);
    message += list + "; a memory of " + needed + " per device would do";
  }
  return {message + (refused.empty() ? "" : "; " + refused) +
          (wanted.search.enough.isRaised() ? "; the search was interrupted" : "")};
}

void NodeSearch::takeFastest() {
  auto timeOf = [&](const NodeResult &it) {
    return wanted.overlap ? it.overlap->time : it.found->cost.total();
  };
  for (size_t i = 0; i < result.nodes.size(); ++i)
    if (result.nodes[i].found &&
        (!best || timeOf(result.nodes[i]) < timeOf(result.nodes[*best])))
      best = i;
}

Expected<PlanResult> NodeSearch::run() {
  if (auto ok = checkNecessary(); !ok)
    return tl::unexpected(ok.error());
  for (const Mesh &mesh : wanted.meshes)
    wanted.progress("searching mesh " + mesh.str());
  auto all = searchOn(wanted.meshes, {});
  if (!all)
    return tl::unexpected(all.error());
  result.nodes = std::move(*all);
  takeFastest();
  if (auto ok = searchForms(); !ok)
    return tl::unexpected(ok.error());
  if (!best)
    return tl::unexpected(infeasible());
  tellForms();
  result.best = *best;
  return std::move(result);
}

Expected<PlanResult> search::bestPlan(StepSource &source, const Wanted &wanted) {
  return NodeSearch(source, wanted).run();
}

PlanResult search::pricedPlan(Timing &timing, Decided plan) {
  Found found;
  found.plan = std::move(plan);
  const Topology &topology = timing.placement.topology();
  found.cost =
      priceKernels(timing, found.plan, kernelTarget(topology.device, topology.stack));
  found.memory = memoryOf(timing, found.plan);
  PlanResult result;
  result.isGiven = true;
  result.nodes.push_back({timing.graph.mesh, std::move(found), {}, std::nullopt});
  return result;
}

Expected<OverlapTime> search::overlapOf(const PlanResult &result, Timing &timing,
                                        const Model &model, size_t tiedLayers) {
  const NodeResult &chosen = result.nodes[result.best];
  if (chosen.overlap) {
    OverlapTime overlap = *chosen.overlap;
    for (const NodeResult &it : result.nodes)
      if (it.overlap && !result.isFormChosen) // else of other forms of the step
        overlap.bound = leastOf(overlap.bound, it.overlap->bound);
    return overlap;
  }
  auto bound = overlapBound(timing, model);
  if (!bound)
    return tl::unexpected(bound.error());
  const unsigned ofMesh = result.nodes.size() > 1 ? Bound::OneMesh : 0U;
  return OverlapTime{simulate(timing, chosen.found->plan).time,
                     {*bound, spaceOf(timing.graph, tiedLayers) | ofMesh,
                      chosen.found->freeBound.ignores}};
}
