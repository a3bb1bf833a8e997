//===- HintLoops.cpp - What hints decide for the loops of a node ----------===//
#include "HintLoops.h"

#include <algorithm>

using namespace partita;

/// An error about the dim of a hint, which it names.
static tl::unexpected<Error> errorAt(const FlowGraph &graph, const HintDim &dim,
                                     const std::string &message) {
  return tl::unexpected<Error>({.message = dim.where + ": " + message,
                                .node = graph.ops[dim.place.op].name,
                                .dim = static_cast<int64_t>(dim.dim),
                                .hint = dim.where});
}

//===-- Which loops are one -----------------------------------------------===//

HintLoops::HintLoops(const FlowGraph &graph, const HintGroup &group,
                     Detachments &detached)
    : graph(graph), group(group), detached(&detached) {
  for (int32_t op : group.ops)
    for (size_t r = 0; r < graph.ops[op].results.size(); ++r)
      for (const FlowUse &use : graph.values[graph.ops[op].results[r]].uses)
        if (std::binary_search(group.ops.begin(), group.ops.end(), use.op))
          link({op, false, static_cast<int32_t>(r)}, {use.op, true, use.operand});
  for (const HintTarget &target : group.targets)
    for (const HintPlace &place : target.places)
      link(target.places[0], place);
}

void HintLoops::link(const HintPlace &a, const HintPlace &b) {
  const TensorFactors &left = a.factors(graph), &right = b.factors(graph);
  for (size_t d = 0; d < left.size(); ++d) {
    if (left[d].size() != 1 || right[d].size() != 1)
      continue;
    Loop from = find({a.op, left[d][0]}), to = find({b.op, right[d][0]});
    if (from != to)
      parent[from] = to;
  }
}

Loop HintLoops::find(Loop loop) const {
  for (auto it = parent.find(loop); it != parent.end(); it = parent.find(loop))
    loop = it->second;
  return loop;
}

std::vector<Loop> HintLoops::members(Loop loop) const {
  Loop root = find(loop);
  std::vector<Loop> result{root};
  for (const auto &entry : parent)
    if (find(entry.first) == root)
      result.push_back(entry.first);
  return result;
}

//===-- Claims ------------------------------------------------------------===//

AxisList HintLoops::Claim::axes() const {
  AxisList all;
  for (const AxisList &piece : pieces)
    all.insert(all.end(), piece.begin(), piece.end());
  return canonical(all);
}

const HintLoops::Claim *HintLoops::claimOf(Loop loop) const {
  auto it = claims.find(find(loop));
  return it == claims.end() ? nullptr : &it->second;
}

void HintLoops::set(Loop loop, std::vector<AxisList> pieces, const HintDim &dim,
                    std::vector<int64_t> blocks) {
  claims.try_emplace(find(loop), Claim{std::move(pieces), dim.where, std::move(blocks)});
  if (named.insert(loop).second)
    namedInOrder.push_back(loop);
}

Expected<std::vector<AxisList>> HintLoops::share(Loop loop, const Claim &claim) const {
  const std::vector<int32_t> &atoms = graph.atomsOf(loop.first, loop.second);
  bool same = atoms.size() == claim.pieces.size();
  for (size_t i = 0; same && i < atoms.size(); ++i)
    same = canShard(graph, graph.atoms[atoms[i]], claim.pieces[i]);
  if (same)
    return claim.pieces;
  return distribute(graph, atoms, claim.axes());
}

std::string HintLoops::text(const AxisList &axes) const {
  int64_t shards = product(axes);
  return axes.empty() ? "no split"
                      : graph.mesh.str(axes) + " (" + std::to_string(shards) + " shards)";
}

tl::unexpected<Error> HintLoops::unequal(const HintDim &dim, const std::string &asked,
                                         const Claim &claim) const {
  return errorAt(graph, dim,
                 asked + " asked, but " + text(claim.axes()) + " by " + claim.what +
                     ", which is the same loop");
}

std::vector<int32_t> HintLoops::openAtoms(const HintDim &dim) const {
  std::vector<int32_t> loops;
  for (int32_t f : dim.place.loops(graph, dim.dim))
    if (!claimOf({dim.place.op, f}))
      loops.push_back(f);
  return graph.dimAtoms(dim.place.op, loops);
}

std::vector<int> HintLoops::beginnings(const HintDim &dim, const AxisList &axes) const {
  std::vector<int32_t> open = openAtoms(dim);
  std::vector<int> result{-1};
  if (std::none_of(open.begin(), open.end(),
                   [&](int32_t a) { return graph.atoms[a].refused; }))
    return result;
  auto usual = distribute(graph, open, axes);
  for (size_t first = 0; first < open.size(); ++first) {
    auto lists = distribute(graph, open, axes, static_cast<int>(first));
    if (usual && lists && *lists != *usual)
      result.push_back(static_cast<int>(first));
  }
  return result;
}

Expected<bool> HintLoops::claim(const HintDim &dim, const AxisList &axes, int first) {
  AxisList rest = primes(axes);
  for (int32_t f : dim.place.loops(graph, dim.dim)) {
    const Claim *other = claimOf({dim.place.op, f});
    if (!other)
      continue;
    for (const AxisRef &digit : primes(other->axes())) {
      auto it = std::find(rest.begin(), rest.end(), digit);
      if (it == rest.end())
        return unequal(dim, text(axes), *other);
      rest.erase(it);
    }
    if (dim.place.loops(graph, dim.dim).size() == 1 && !rest.empty())
      return unequal(dim, text(axes), *other);
  }
  auto done = claimOpen(dim, canonical(rest), first);
  if (done && *done && axesOf(dim) != canonical(axes))
    return errorAt(graph, dim,
                   text(axes) + " asked, but its loops are split by " +
                       text(axesOf(dim)) +
                       ", major first, for other tensors of the node");
  return done;
}

Expected<bool> HintLoops::claimOpen(const HintDim &dim, const AxisList &axes, int start) {
  std::vector<int32_t> open = openAtoms(dim);
  if (open.empty() && !axes.empty())
    return errorAt(graph, dim,
                   "a dim of size 1 cannot be split by " + graph.mesh.str(axes));
  auto lists = distribute(graph, open, axes, start);
  if (!lists)
    return detach(dim, lists.error().message);
  size_t next = 0;
  for (int32_t f : dim.place.loops(graph, dim.dim)) {
    Loop loop{dim.place.op, f};
    if (const Claim *other = claimOf(loop)) {
      if (auto pieces = share(loop, *other); !pieces)
        return detach(dim, pieces.error().message);
      set(loop, {}, dim);
      continue;
    }
    auto first = lists->begin() + static_cast<int64_t>(next);
    next += graph.atomsOf(loop.first, f).size();
    set(loop, {first, lists->begin() + static_cast<int64_t>(next)}, dim);
  }
  return true;
}

Expected<bool> HintLoops::claimBlocks(const HintDim &dim, const AxisList &axes,
                                      const std::vector<int64_t> &blocks) {
  const std::vector<int32_t> &loops = dim.place.loops(graph, dim.dim);
  if (loops.size() != 1)
    return errorAt(graph, dim,
                   std::string("blocks cannot be given for a dim ") +
                       (loops.empty() ? "of size 1" : "that the node cuts into factors"));
  Loop loop{dim.place.op, loops[0]};
  const std::vector<int32_t> &atoms = graph.atomsOf(loop.first, loop.second);
  if (atoms.size() != 1)
    return detach(dim, "blocks cannot be given for a dim that other ops cut");
  if (static_cast<int64_t>(blocks.size()) != product(axes))
    return errorAt(graph, dim,
                   std::to_string(blocks.size()) + " blocks are given for " +
                       std::to_string(product(axes)) + " shards");
  const Atom &atom = graph.atoms[atoms[0]];
  if (int64_t extent = graph.extent(atom, dim.place.operand()); extent != atom.size)
    return errorAt(graph, dim,
                   "blocks cannot be given for a dim of size " + std::to_string(extent) +
                       " that is read through " + std::to_string(atom.size) +
                       " windows; give them for the output");
  DimFactor factor{atom.size, 0, axes, blocks};
  factor.padded = factor.shards() * *std::max_element(blocks.begin(), blocks.end());
  Layout layout;
  layout.dims = {{{factor}}};
  if (auto ok = layout.verify(graph.mesh); !ok)
    return makeError(dim.where + ok.error().message.substr(std::string("dim 0").size()));
  if (const Claim *other = claimOf(loop);
      other && (other->axes() != canonical(axes) ||
                (!other->blocks.empty() && other->blocks != blocks)))
    return unequal(dim, text(axes) + " in blocks", *other);
  claims.erase(find(loop));
  set(loop, {axes}, dim, blocks);
  return true;
}

/// The factors that make up each loop of a dim, major first. An error if one falls across
/// two loops, or if they are not the size of the dim.
static Expected<std::vector<std::vector<int64_t>>>
piecesOf(const FlowGraph &graph, const HintDim &dim,
         const std::vector<int64_t> &factors) {
  std::vector<std::vector<int64_t>> result;
  size_t next = 0;
  for (int32_t f : dim.place.loops(graph, dim.dim)) {
    const Factor &factor = graph.ops[dim.place.op].rule.factors[f];
    int64_t extent = factor.extent(dim.place.operand()), size = 1;
    size_t first = next;
    result.emplace_back();
    for (; size < extent && next < factors.size(); ++next) {
      size *= factors[next];
      if (factors[next] > 1)
        result.back().push_back(factors[next]);
    }
    if (size != extent || (factor.window() && result.back().size() > 1))
      return errorAt(
          graph, dim,
          "the factor " + std::to_string(factors[std::min(first, factors.size() - 1)]) +
              " does not fall on the dim's own cuts: '" + graph.ops[dim.place.op].name +
              "' has a loop of " + std::to_string(extent) + " there");
    if (factor.window())
      result.back().clear();
  }
  if (std::any_of(factors.begin() + static_cast<int64_t>(next), factors.end(),
                  [](int64_t factor) { return factor != 1; }))
    return errorAt(graph, dim, "the factors do not make up its size");
  return result;
}

Expected<bool> HintLoops::claimWritten(const HintDim &dim,
                                       const std::vector<int64_t> &factors,
                                       const std::vector<AxisList> &axes) {
  std::vector<int32_t> atoms =
      graph.dimAtoms(dim.place.op, dim.place.loops(graph, dim.dim));
  std::vector<AxisList> lists;
  std::string why;
  for (size_t f = 0; f < factors.size() && why.empty(); ++f) {
    // A written factor must be a run of atoms.
    std::vector<int32_t> run;
    int64_t size = 1;
    while (size < factors[f] && lists.size() + run.size() < atoms.size()) {
      run.push_back(atoms[lists.size() + run.size()]);
      size *= graph.extent(graph.atoms[run.back()], dim.place.operand());
    }
    if (run.empty() && !axes[f].empty())
      return errorAt(graph, dim, "a factor of size 1 cannot be split");
    auto part = distribute(graph, run, axes[f], axes[f].empty() ? 0 : -1);
    if (size != factors[f])
      why = "the factor " + std::to_string(factors[f]) +
            " does not fall on the dim's own cuts";
    else if (!part)
      why = part.error().message;
    else
      lists.insert(lists.end(), part->begin(), part->end());
  }
  if (!why.empty() || lists.size() != atoms.size()) {
    auto pieces = piecesOf(graph, dim, factors);
    if (!pieces)
      return tl::unexpected(pieces.error());
    return detach(dim, why, *pieces);
  }
  size_t next = 0;
  for (int32_t f : dim.place.loops(graph, dim.dim)) {
    size_t count = graph.atomsOf(dim.place.op, f).size();
    std::vector<AxisList> pieces(lists.begin() + static_cast<int64_t>(next),
                                 lists.begin() + static_cast<int64_t>(next + count));
    next += count;
    if (const Claim *other = claimOf({dim.place.op, f});
        other && other->axes() != Claim{pieces, "", {}}.axes())
      return unequal(dim, text(Claim{pieces, "", {}}.axes()), *other);
    set({dim.place.op, f}, std::move(pieces), dim);
  }
  return true;
}

Expected<bool> HintLoops::detach(const HintDim &dim, const std::string &why,
                                 const std::vector<std::vector<int64_t>> &pieces) {
  const std::vector<int32_t> &loops = dim.place.loops(graph, dim.dim);
  bool again = false;
  for (size_t i = 0; i < loops.size(); ++i)
    for (const Loop &loop : members({dim.place.op, loops[i]})) {
      if (graph.ops[loop.first].rule.factors[loop.second].kind() == FactorKind::Replicate)
        continue;
      auto [it, isNew] = detached->try_emplace(loop);
      // An earlier hint of this round may have asked for the same: not tried yet.
      const std::vector<int32_t> &atoms = graph.atomsOf(loop.first, loop.second);
      again |= isNew || (!atoms.empty() && !graph.atoms[atoms[0]].detached);
      if (!pieces.empty() && it->second.empty() && pieces[i].size() > 1) {
        it->second = pieces[i];
        again = true;
      }
    }
  if (!again)
    return errorAt(graph, dim, why);
  return false;
}

//===-- Counts ------------------------------------------------------------===//

void HintLoops::adopt(const HintDim &dim, const SeedList &seeds, int64_t count) {
  const std::vector<int32_t> &loops = dim.place.loops(graph, dim.dim);
  std::vector<int32_t> atoms = graph.dimAtoms(dim.place.op, loops);
  std::vector<const Seed *> found, known = seeds.at(dim.place.op);
  int64_t shards = 1;
  for (int32_t a : atoms) {
    auto it = std::find_if(known.begin(), known.end(),
                           [&](const Seed *seed) { return seed->atom == a; });
    if (it == known.end())
      return;
    found.push_back(*it);
    shards *= product((*it)->axes);
  }
  if (atoms.empty() || shards != count || openAtoms(dim).size() != atoms.size())
    return;
  size_t next = 0;
  for (int32_t f : loops) {
    std::vector<AxisList> pieces;
    for (size_t i = 0; i < graph.atomsOf(dim.place.op, f).size(); ++i)
      pieces.push_back(found[next++]->axes);
    set({dim.place.op, f}, std::move(pieces), {dim.place, dim.dim, found[0]->origin});
  }
}

Expected<int64_t> HintLoops::openShards(const HintDim &dim, int64_t count) const {
  int64_t rest = count;
  bool allClaimed = true;
  const Claim *last = nullptr;
  for (int32_t f : dim.place.loops(graph, dim.dim)) {
    const Claim *claim = claimOf({dim.place.op, f});
    allClaimed &= claim != nullptr;
    if (!claim)
      continue;
    last = claim;
    if (int64_t shards = product(claim->axes()); rest % shards == 0)
      rest /= shards;
    else
      return unequal(dim, std::to_string(count) + " shards", *claim);
  }
  if (last && allClaimed && rest != 1)
    return unequal(dim, std::to_string(count) + " shards", *last);
  return rest;
}

bool HintLoops::fits(const HintDim &dim, const AxisList &axes) const {
  return distribute(graph, openAtoms(dim), axes).has_value();
}

AxisList HintLoops::axesOf(const HintDim &dim) const {
  AxisList all;
  for (int32_t f : dim.place.loops(graph, dim.dim))
    if (const Claim *claim = claimOf({dim.place.op, f}))
      for (const AxisRef &axis : claim->axes())
        all.push_back(axis);
  return canonical(all);
}

AxisList HintLoops::axesAt(const std::vector<HintPlace> &places) const {
  AxisList all;
  for (const HintPlace &place : places)
    for (size_t f = 0; f < graph.ops[place.op].rule.factors.size(); ++f) {
      Loop loop{place.op, static_cast<int32_t>(f)};
      if (const Claim *claim = claimOf(loop);
          claim && (named.count(loop) || detached->count(loop)))
        for (const AxisRef &axis : claim->axes())
          all.push_back(axis);
    }
  return all;
}

AxisList HintLoops::axesOfNode() const {
  AxisList all;
  for (const auto &entry : claims)
    for (const AxisRef &axis : entry.second.axes())
      all.push_back(axis);
  return all;
}

//===-- Seeds -------------------------------------------------------------===//

std::vector<Seed> HintLoops::seeds() const {
  std::vector<Seed> result;
  auto add = [&](Loop loop, const std::vector<AxisList> &pieces, const Claim &claim) {
    const std::vector<int32_t> &atoms = graph.atomsOf(loop.first, loop.second);
    for (size_t i = 0; i < atoms.size(); ++i)
      result.push_back({atoms[i], pieces[i], group.origin, group.priority,
                        atoms.size() == 1 ? claim.blocks : std::vector<int64_t>()});
  };
  for (const Loop &loop : namedInOrder) {
    const Claim *claim = claimOf(loop);
    if (auto pieces = share(loop, *claim))
      add(loop, *pieces, *claim);
  }
  for (const auto &[root, claim] : claims)
    for (const Loop &loop : members(root)) {
      if (!detached->count(loop) || named.count(loop))
        continue;
      auto pieces = share(loop, claim);
      AxisList others;
      for (const Loop &other : namedInOrder)
        if (other.first == loop.first)
          for (const AxisRef &axis : claimOf(other)->axes())
            others.push_back(axis);
      if (pieces && !overlap(others, claim.axes()))
        add(loop, *pieces, claim);
    }
  return result;
}
