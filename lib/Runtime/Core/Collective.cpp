//===- Collective.cpp - Collectives as lists of pieces --------------------===//
#include "partita/Base/Layout/Transfer.h"
#include "partita/Runtime/Transport.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::runtime;

static std::vector<int32_t> membersOf(const Mesh &mesh, int64_t rank,
                                      const AxisList &axes) {
  std::vector<int32_t> out;
  for (int64_t r : mesh.group(rank, axes))
    out.push_back(static_cast<int32_t>(r));
  return out;
}

/// A pull for every box that is a product of runs, one per dim, from `dim` on.
static void appendBoxes(const std::vector<std::vector<ExchangeRun>> &common,
                        const std::vector<int64_t> &source,
                        const std::vector<int64_t> &target, int64_t width, size_t dim,
                        const Pull &pull, std::vector<Pull> &out) {
  if (dim == common.size()) {
    out.push_back(pull);
    return;
  }
  int64_t sourceStride = width, targetStride = width;
  for (size_t d = dim + 1; d < common.size(); ++d) {
    sourceStride *= source[d];
    targetStride *= target[d];
  }
  for (const ExchangeRun &run : common[dim]) {
    Pull next = pull;
    next.sourceOffset += run.before * sourceStride;
    next.targetOffset += run.after * targetStride;
    if (dim + 1 == common.size())
      next.run = run.length * width;
    else
      next.dims.push_back({run.length, sourceStride, targetStride});
    appendBoxes(common, source, target, width, dim + 1, next, out);
  }
}

namespace {

/// Fills a Collective from one kind of parameters.
struct Describer {
  const TaskTable &table;
  int64_t rank;
  Collective out;

  const Mesh &mesh() const { return table.mesh(); }
  CollectiveItem &item() { return out.items.back(); }
  int64_t width() const { return out.items.back().width(); }
  int64_t parts() const { return static_cast<int64_t>(out.members.size()); }

  void group(const AxisList &axes) {
    out.members = membersOf(mesh(), rank, axes);
    out.me = static_cast<int32_t>(mesh().coordinate(rank, axes));
  }
  /// With one item.
  void group(uint8_t dtype, const AxisList &axes) {
    group(axes);
    out.items.emplace_back().type = static_cast<DType>(dtype);
  }

  template <typename P> void describeItems(const P &p) {
    group(p.group);
    for (size_t i = 0; i <= p.more.size(); ++i) {
      const task::Item from = task::itemOf(p, i);
      CollectiveItem &to = out.items.emplace_back();
      to.type = static_cast<DType>(from.dtype);
      to.outer = from.outer, to.block = from.block;
    }
    if constexpr (requires { p.reduce; })
      out.reduce = static_cast<ReduceKind>(p.reduce);
  }
  void describe(const task::AllReduce &p) { describeItems(p); }
  void describe(const task::ReduceScatter &p) { describeItems(p); }

  void describe(const task::AllGather &p) {
    describeItems(p);
    for (CollectiveItem &it : out.items)
      for (int64_t i = 0, run = it.block * it.width(); i < parts(); ++i)
        it.pulls.push_back({out.members[static_cast<size_t>(i)],
                            0,
                            i * run,
                            {{it.outer, run, run * parts()}},
                            run});
  }

  void describe(const task::AllToAll &p) {
    group(p.dtype, p.group);
    int64_t n = parts();
    // Extents of [outer, split, middle, join·inner] or [outer, join, middle,
    // split·inner]; the p that belongs to the source or the target multiplies the dims
    // above it.
    if (p.split_first) {
      int64_t run = p.join * p.inner * width();
      int64_t sourcePiece = p.split * p.middle * run, targetRow = n * run;
      for (int64_t i = 0; i < n; ++i)
        item().pulls.push_back({out.members[static_cast<size_t>(i)],
                                out.me * sourcePiece,
                                i * run,
                                {{p.outer, n * sourcePiece, n * sourcePiece},
                                 {p.split * p.middle, run, targetRow}},
                                run});
      return;
    }
    int64_t run = p.split * p.inner * width();
    int64_t targetPiece = p.join * p.middle * run;
    for (int64_t i = 0; i < n; ++i)
      item().pulls.push_back({out.members[static_cast<size_t>(i)],
                              out.me * run,
                              i * targetPiece,
                              {{p.outer, n * targetPiece, n * targetPiece},
                               {p.join * p.middle, n * run, run}},
                              run});
  }

  void describe(const task::AllToAllV &p) {
    group(p.dtype, p.group);
    out.rowBytes = p.inner * width();
    out.rows = p.rows;
    out.toRows = p.to_rows;
  }

  void describe(const task::Permute &p) {
    group(p.dtype, canonical(sorted(p.from)));
    int64_t wanted = mesh().coordinate(rank, p.to);
    for (int32_t member : out.members)
      if (mesh().coordinate(member, p.from) == wanted)
        item().pulls.push_back({member, 0, 0, {}, p.count * width()});
  }

  static AxisList sorted(AxisList axes) {
    std::sort(axes.begin(), axes.end());
    return axes;
  }

  void describe(const task::Exchange &p) {
    const Layout &before = table.layout(p.before), &after = table.layout(p.after);
    if (!p.pieces.empty())
      return describe(p.dtype, table.pieces(p), before);
    group(p.dtype, mesh().all());
    pullAll(exchangeBlocks(mesh(), before, after, rank), before, after.localShape());
  }

  void describe(uint8_t dtype, const Pieces &pieces, const Layout &before) {
    group(dtype, pieces.axes(mesh()));
    pullAll(pieceBlocks(pieces, rank), before, pieces.after);
    for (const EmptyBox &box : emptyBoxes(pieces, rank)) {
      Fill fill{0, {}, width()};
      for (size_t d = 0, n = box.begin.size(); d < n; ++d) {
        int64_t stride = width();
        for (size_t inner = d + 1; inner < n; ++inner)
          stride *= pieces.after[inner];
        fill.targetOffset += box.begin[d] * stride;
        if (d + 1 == n)
          fill.run *= box.length[d];
        else
          fill.dims.push_back({box.length[d], 0, stride});
      }
      item().fills.push_back(std::move(fill));
    }
  }

  void describe(const task::Halo &p) {
    Halo halo = table.halo(p);
    group(p.dtype, halo.axes(mesh()));
    item().fillBits = p.bits;
    pullAll(haloBlocks(mesh(), halo, rank), halo.before, halo.shape());
    Wanted wanted{halo.shape(), {}};
    for (size_t d = 0; d < wanted.shape.size(); ++d)
      wanted.runs.push_back(haloRuns(mesh(), halo, d, rank));
    fillRest(wanted, 0, {0, {}, width()});
  }

  /// A target: per dim the runs that it takes.
  struct Wanted {
    std::vector<int64_t> shape;
    std::vector<std::vector<DimRun>> runs;

    int64_t stride(size_t dim, int64_t width) const {
      for (size_t d = dim + 1; d < shape.size(); ++d)
        width *= shape[d];
      return width;
    }
  };

  void pullAll(const std::vector<ExchangeBlock> &blocks, const Layout &before,
               const std::vector<int64_t> &target) {
    for (const ExchangeBlock &block : blocks) {
      Pull pull{static_cast<int32_t>(block.peer), 0, 0, {}, width()};
      appendBoxes(block.dims, before.localShape(), target, width(), 0, pull,
                  item().pulls);
    }
  }

  /// What the runs leave out, as disjoint boxes: in dim `dim` a gap and everything of the
  /// later dims; or a run, and gaps in those.
  void fillRest(const Wanted &wanted, size_t dim, const Fill &box) {
    if (dim == wanted.shape.size())
      return;
    int64_t stride = wanted.stride(dim, width()), at = 0;
    auto gap = [&](int64_t end) {
      Fill rest = box;
      rest.targetOffset += at * stride;
      rest.run = (end - at) * stride;
      if (end > at)
        item().fills.push_back(std::move(rest));
    };
    for (const DimRun &run : wanted.runs[dim]) {
      gap(run.local);
      at = run.local + run.length;
      Fill inside = box;
      inside.targetOffset += run.local * stride;
      inside.dims.push_back({run.length, 0, stride});
      fillRest(wanted, dim + 1, inside);
    }
    gap(wanted.shape[dim]);
  }
};

/// Drops dims of one element and folds inner dims that continue the run.
void simplify(Pull &pull) {
  std::erase_if(pull.dims, [](const PullDim &d) { return d.count == 1; });
  while (!pull.dims.empty() && pull.dims.back().source == pull.run &&
         pull.dims.back().target == pull.run) {
    pull.run *= pull.dims.back().count;
    pull.dims.pop_back();
  }
}

} // namespace

static int64_t bytesOf(const Pull &pull) {
  int64_t bytes = pull.run;
  for (const PullDim &dim : pull.dims)
    bytes *= dim.count;
  return bytes;
}

/// From places in the table's mesh to ranks of the run; pulls as they are best run.
static void finish(Collective &c) {
  for (CollectiveItem &item : c.items) {
    for (Pull &pull : item.pulls)
      simplify(pull);
    std::erase_if(item.pulls, [](const Pull &pull) { return bytesOf(pull) == 0; });
  }
}

Collective runtime::describeTransfer(const TaskTable &table, size_t transfer,
                                     int64_t rank) {
  const TransferView &t = table.transfers()[transfer];
  TransferEnd own{table.mesh(), table.layout(t.layout)};
  TransferEnd peer{t.peerMesh, t.peerLayout};
  auto ownRank = [&](int64_t place) {
    return static_cast<int32_t>(table.worldRank(place));
  };
  auto peerRank = [&](int64_t place) { return t.peerRanks[static_cast<size_t>(place)]; };
  Collective c;
  c.kind = TaskKind::Exchange;
  CollectiveItem &item = c.items.emplace_back();
  item.type = t.type;
  c.members = t.peerRanks;
  for (int64_t place = 0; place < own.mesh.numRanks(); ++place)
    c.members.push_back(ownRank(place));
  std::sort(c.members.begin(), c.members.end());
  c.me = static_cast<int32_t>(std::find(c.members.begin(), c.members.end(), rank) -
                              c.members.begin());
  // The rank's place at the receiving end, if it is there.
  const TransferEnd &from = t.sends ? own : peer, &to = t.sends ? peer : own;
  int64_t place = t.sends ? std::find(t.peerRanks.begin(), t.peerRanks.end(), rank) -
                                t.peerRanks.begin()
                          : table.placeOf(rank);
  if (place < 0 || place >= to.mesh.numRanks())
    return c;
  auto width = static_cast<int64_t>(byteWidth(t.type));
  for (const ExchangeBlock &block : transferBlocks(from, to, place)) {
    Pull pull{t.sends ? ownRank(block.peer) : peerRank(block.peer), 0, 0, {}, width};
    appendBoxes(block.dims, from.layout.localShape(), to.layout.localShape(), width, 0,
                pull, item.pulls);
  }
  finish(c);
  return c;
}

Collective runtime::describeCollective(const TaskTable &table, const TaskView &task,
                                       int64_t rank) {
  Describer d{table, table.placeOf(rank), {}};
  d.out.kind = task.kind();
  std::visit(
      [&](const auto &p) {
        if constexpr (requires { d.describe(p); })
          d.describe(p);
      },
      task.params);
  for (int32_t &member : d.out.members)
    member = static_cast<int32_t>(table.worldRank(member));
  for (CollectiveItem &item : d.out.items)
    for (Pull &pull : item.pulls)
      pull.peer = static_cast<int32_t>(table.worldRank(pull.peer));
  finish(d.out);
  return std::move(d.out);
}

uint64_t runtime::receivedBytes(const Collective &c, int64_t rank) {
  auto members = static_cast<int64_t>(c.members.size());
  int64_t bytes = 0;
  for (const CollectiveItem &item : c.items) {
    if (c.kind == TaskKind::AllReduce)
      bytes += (2 * (members - 1) * item.block + members - 1) / members * item.width();
    else if (c.kind == TaskKind::ReduceScatter)
      bytes += (members - 1) * item.outer * item.block * item.width();
    for (const Pull &pull : item.pulls)
      bytes += pull.peer == rank ? 0 : bytesOf(pull);
  }
  return static_cast<uint64_t>(bytes);
}

std::string runtime::collectiveKey(const TaskTable &table, const TaskView &task) {
  const Mesh &mesh = table.mesh();
  std::string layouts;
  if (auto *p = std::get_if<task::Exchange>(&task.params))
    layouts = table.layout(p->before).str(mesh) + table.layout(p->after).str(mesh);
  if (auto *p = std::get_if<task::Halo>(&task.params))
    layouts = table.layout(p->before).str(mesh) + table.layout(p->positions).str(mesh);
  return mesh.str() + "\n" + layouts + "\n" + task::bytesOf(task.params);
}

std::string runtime::transferKey(const TaskTable &table) {
  // A table stays where it is while its programs are loaded.
  return std::to_string(reinterpret_cast<uintptr_t>(&table));
}

uint64_t runtime::transferHandle(const TaskTable &table, size_t transfer,
                                 int64_t microBatch) {
  return (uint64_t(table.transfers()[transfer].number) + 1) << 32 |
         static_cast<uint64_t>(microBatch);
}

RaggedPart runtime::raggedPart(const Collective &c, const int64_t *counts, size_t from,
                               size_t to) {
  size_t n = c.members.size();
  RaggedPart part{0, 0, counts[from * n + to]};
  for (size_t j = 0; j < to; ++j)
    part.source += counts[from * n + j] * c.rowBytes;
  for (size_t i = 0; i < from; ++i)
    part.target += counts[i * n + to] * c.rowBytes;
  return part;
}

std::optional<RaggedMisfit> runtime::raggedMisfit(const Collective &c,
                                                  const int64_t *counts) {
  size_t n = c.members.size();
  for (size_t m = 0; m < n; ++m) {
    int64_t sent = 0, received = 0;
    for (size_t k = 0; k < n; ++k) {
      sent += counts[m * n + k];
      received += counts[k * n + m];
    }
    if (sent > c.rows)
      return RaggedMisfit{m, true, sent};
    if (received > c.toRows)
      return RaggedMisfit{m, false, received};
  }
  return std::nullopt;
}

static void copyDims(const PullDim *dim, const PullDim *end, int64_t run,
                     const std::byte *source, std::byte *target) {
  if (dim == end) {
    // A permute to itself, in place.
    if (source != target)
      std::memcpy(target, source, static_cast<size_t>(run));
    return;
  }
  for (int64_t i = 0; i < dim->count; ++i)
    copyDims(dim + 1, end, run, source + i * dim->source, target + i * dim->target);
}

void runtime::copyPull(const Pull &pull, const std::byte *source, std::byte *target) {
  copyDims(pull.dims.data(), pull.dims.data() + pull.dims.size(), pull.run,
           source + pull.sourceOffset, target + pull.targetOffset);
}

/// `pattern`: one element over and over. What is longer is filled from its own begin.
static void fillRun(std::byte *target, int64_t run, const std::byte *pattern,
                    int64_t patternBytes) {
  std::memcpy(target, pattern, static_cast<size_t>(std::min(run, patternBytes)));
  for (int64_t done = patternBytes; done < run; done *= 2)
    std::memcpy(target + done, target, static_cast<size_t>(std::min(done, run - done)));
}

static void fillDims(const PullDim *dim, const PullDim *end, int64_t run,
                     std::byte *target, const std::byte *pattern, int64_t bytes) {
  if (dim == end)
    return fillRun(target, run, pattern, bytes);
  for (int64_t i = 0; i < dim->count; ++i)
    fillDims(dim + 1, end, run, target + i * dim->target, pattern, bytes);
}

void runtime::fillRest(const CollectiveItem &item, std::byte *target) {
  if (item.fills.empty())
    return;
  // The widths of elements divide the pattern's.
  std::byte pattern[256];
  const int64_t width = item.width();
  for (size_t at = 0; at < sizeof(pattern); at += static_cast<size_t>(width))
    std::memcpy(pattern + at, &item.fillBits, static_cast<size_t>(width));
  for (const Fill &fill : item.fills)
    fillDims(fill.dims.data(), fill.dims.data() + fill.dims.size(), fill.run,
             target + fill.targetOffset, pattern, sizeof(pattern));
}
