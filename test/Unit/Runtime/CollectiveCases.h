//===- CollectiveCases.h - Every collective against naive loops -*- C++ -*-===//
//
// Used by the unit test of the thread transport and, under mpirun, by that of MPI. Each
// rank makes the sources of all ranks from a formula, so it can compute what it should
// receive by the words of the Abi header alone.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TEST_UNIT_RUNTIME_COLLECTIVECASES_H
#define PARTITA_TEST_UNIT_RUNTIME_COLLECTIVECASES_H

#include "partita/Base/Layout/Layout.h"
#include "partita/Base/Scalar.h"
#include "partita/Runtime/Transport.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace collectives {
using namespace partita;
/// Buffer of the default memory resource, so that it may lie in a transport's memory.
using Bytes = std::pmr::vector<std::byte>;

inline const char *const meshes[] = {"a=1",     "a=2",     "a=3", "a=4",
                                     "a=2,b=2", "a=3,b=2", "a=8", "a=2,b=4"};

/// A small value for element i of a rank's source: exact in every type, reductions of
/// up to 8 of them too (products need 1 and 2 only).
inline double valueOf(int64_t rank, int64_t i, ReduceKind kind, DType type) {
  auto mix = static_cast<uint64_t>(rank * 7919 + i * 104729 + 13) * 2654435761u;
  auto small = static_cast<double>(mix >> 16 & 7);
  if (type == DType::Bool)
    return (mix >> 16 & 3) != 0;
  if (kind == ReduceKind::Prod)
    return (mix >> 16 & 7) == 0 ? 2 : 1;
  return small;
}

inline Bytes sourceOf(int64_t rank, int64_t count, ReduceKind kind, DType type) {
  Bytes out(static_cast<size_t>(count) * byteWidth(type));
  visitType(type, [&]<typename T>() {
    auto *data = reinterpret_cast<T *>(out.data());
    for (int64_t i = 0; i < count; ++i)
      data[i] = store<T>(static_cast<Compute<T>>(valueOf(rank, i, kind, type)));
  });
  return out;
}

inline double combine(ReduceKind kind, DType type, double a, double b) {
  if (type == DType::Bool)
    return kind == ReduceKind::Sum || kind == ReduceKind::Max ? a != 0 || b != 0
                                                              : a != 0 && b != 0;
  switch (kind) {
  case ReduceKind::Sum:
    return a + b;
  case ReduceKind::Max:
    return std::max(a, b);
  case ReduceKind::Min:
    return std::min(a, b);
  case ReduceKind::Prod:
    return a * b;
  }
  return 0;
}

/// One call and what it should give: `expected(rank)` are the values of the target, in
/// elements, from the sources of the group's members.
struct Case {
  std::string what;
  DType type;
  ReduceKind reduce = ReduceKind::Sum;
  task::Params params;
  int64_t sourceCount, targetCount;
  bool inPlace = false;
  AxisList group;
  /// Value of target element i, given value(member, j) of the sources.
  std::function<double(const std::vector<int64_t> &members, int64_t me, int64_t i,
                       const std::function<double(int64_t rank, int64_t j)> &value)>
      expected;
  /// For a halo: its layouts, whose numbers in the table the parameters name.
  Layout before = {}, positions = {};
};

inline std::vector<AxisList> groupsOf(const Mesh &mesh) {
  std::vector<AxisList> out;
  AxisList reversed;
  for (size_t a = 0; a < mesh.axes().size(); ++a) {
    AxisRef whole = mesh.whole(static_cast<int32_t>(a));
    out.push_back({whole});
    reversed.insert(reversed.begin(), whole);
    if (whole.size == 4 || whole.size == 8) {
      out.push_back({{whole.axis, 1, 2}});
      out.push_back({{whole.axis, 2, whole.size / 2}});
    }
  }
  if (mesh.axes().size() > 1) {
    out.push_back(mesh.all());
    out.push_back(reversed);
  }
  return out;
}

inline void addReductions(std::vector<Case> &cases, const Mesh &mesh, DType type) {
  for (const AxisList &group : groupsOf(mesh))
    for (ReduceKind kind :
         {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod}) {
      int64_t n = product(group);
      for (int64_t count : {int64_t(1), int64_t(77), int64_t(5000)})
        for (bool inPlace : {false, true}) {
          task::AllReduce p;
          p.dtype = static_cast<int64_t>(type), p.reduce = static_cast<int64_t>(kind);
          p.count = count, p.group = group;
          cases.push_back(
              {"all-reduce", type, kind, p, count, count, inPlace, group,
               [=](const auto &members, int64_t, int64_t i, const auto &value) {
                 double x = value(members[0], i);
                 for (size_t m = 1; m < members.size(); ++m)
                   x = combine(kind, type, x, value(members[m], i));
                 return x;
               }});
        }
      for (int64_t outer : {int64_t(1), int64_t(3)}) {
        int64_t block = 37;
        task::ReduceScatter p;
        p.dtype = static_cast<int64_t>(type), p.reduce = static_cast<int64_t>(kind);
        p.outer = outer, p.block = block, p.group = group;
        cases.push_back(
            {"reduce-scatter", type, kind, p, outer * n * block, outer * block, false,
             group, [=](const auto &members, int64_t me, int64_t i, const auto &value) {
               int64_t at = (i / block * n + me) * block + i % block;
               double x = value(members[0], at);
               for (size_t m = 1; m < members.size(); ++m)
                 x = combine(kind, type, x, value(members[m], at));
               return x;
             }});
      }
    }
}

inline void addMoves(std::vector<Case> &cases, const Mesh &mesh, DType type) {
  auto dtype = static_cast<int64_t>(type);
  for (const AxisList &group : groupsOf(mesh)) {
    int64_t n = product(group);
    for (int64_t outer : {int64_t(1), int64_t(5)}) {
      task::AllGather p;
      p.dtype = dtype, p.outer = outer, p.block = 11, p.group = group;
      cases.push_back({"all-gather", type, ReduceKind::Sum, p, outer * 11, outer * n * 11,
                       false, group,
                       [=](const auto &members, int64_t, int64_t i, const auto &value) {
                         int64_t o = i / (n * 11), m = i / 11 % n;
                         return value(members[static_cast<size_t>(m)], o * 11 + i % 11);
                       }});
    }
    for (bool splitFirst : {true, false}) {
      task::AllToAll p;
      p.dtype = dtype, p.split_first = splitFirst;
      p.outer = 2, p.split = 3, p.middle = 2, p.join = 5, p.inner = 2, p.group = group;
      int64_t O = 2, S = 3, M = 2, J = 5, I = 2, count = O * S * M * J * I * n;
      auto expected = [=](const auto &members, int64_t me, int64_t i, const auto &value) {
        int64_t inner = i % I;
        i /= I;
        if (splitFirst) { // target [O, S, M, p, J, I], source [O, p, S, M, J, I]
          int64_t j = i % J, q = i / J % n, m = i / J / n % M, s = i / J / n / M % S;
          int64_t o = i / J / n / M / S;
          return value(members[static_cast<size_t>(q)],
                       ((((o * n + me) * S + s) * M + m) * J + j) * I + inner);
        }
        // target [O, p, J, M, S, I], source [O, J, M, p, S, I]
        int64_t s = i % S, m = i / S % M, j = i / S / M % J, q = i / S / M / J % n;
        int64_t o = i / S / M / J / n;
        return value(members[static_cast<size_t>(q)],
                     ((((o * J + j) * M + m) * n + me) * S + s) * I + inner);
      };
      cases.push_back({splitFirst ? "all-to-all, split first" : "all-to-all, join first",
                       type, ReduceKind::Sum, p, count, count, false, group, expected});
    }
  }
}

/// Reordering {a, b} to {b, a}: the rank (x, y) gets what the rank whose (a, b) number is
/// y·|a| + x holds.
inline void addPermutes(std::vector<Case> &cases, const Mesh &mesh, DType type) {
  if (mesh.axes().size() < 2)
    return;
  task::Permute p;
  p.dtype = static_cast<int64_t>(type), p.count = 9;
  p.from = {mesh.whole(0), mesh.whole(1)};
  p.to = {mesh.whole(1), mesh.whole(0)};
  int64_t a = mesh.axes()[0].size, b = mesh.axes()[1].size;
  cases.push_back({"permute", type, ReduceKind::Sum, p, 9, 9, false, mesh.all(),
                   [=](const auto &, int64_t me, int64_t i, const auto &value) {
                     return value(me % b * a + me / b, i);
                   }});
}

/// Rows of [2, rows, 3] split over the group and read through windows: the buffer's row j
/// is global row me·block·stride − low + j, of the member that owns it or the fill.
inline void addHalos(std::vector<Case> &cases, const Mesh &mesh, DType type) {
  struct Sizes {
    int64_t rows, positions, stride, kernelExtent, low;
  };
  for (const AxisList &group : groupsOf(mesh))
    for (Sizes s : {Sizes{16, 16, 1, 3, 1},
                    {13, 7, 2, 3, 1},
                    {9, 9, 1, 9, 4},
                    {11, 9, 1, 5, 2},
                    {5, 3, 2, 1, 0},
                    {6, 12, 1, 3, 4}}) {
      int64_t n = product(group), rowBlock = (s.rows + n - 1) / n;
      int64_t block = (s.positions + n - 1) / n;
      int64_t extent = (block - 1) * s.stride + s.kernelExtent;
      Layout before = Layout::replicated({2, s.rows, 3}), positions = before;
      before.dims[1] = {{{s.rows, rowBlock * n, group}}};
      positions.dims[1] = {{{s.positions, block * n, group}}};
      task::Halo p;
      p.dtype = static_cast<int64_t>(type), p.bits = task::elementBits(type, 5);
      p.windows = {{1, s.stride, s.kernelExtent, s.low}};
      cases.push_back(
          {"halo", type, ReduceKind::Sum, p, 2 * rowBlock * 3, 2 * extent * 3, false,
           group,
           [=](const auto &members, int64_t me, int64_t i, const auto &value) -> double {
             int64_t row = me * block * s.stride - s.low + i / 3 % extent;
             if (row < 0 || row >= s.rows)
               return 5;
             int64_t at = (i / 3 / extent * rowBlock + row % rowBlock) * 3 + i % 3;
             return value(members[static_cast<size_t>(row / rowBlock)], at);
           },
           before, positions});
    }
}

/// Blocks [2, 3, 5] of the group go one member further, and there lie behind two elements
/// of each row; nobody has what the first member would get. Each keeps a corner of its
/// own.
inline void addPieces(std::vector<Case> &cases, const Mesh &mesh, DType type) {
  for (const AxisList &group : groupsOf(mesh)) {
    task::Exchange p;
    p.dtype = static_cast<uint8_t>(type);
    auto add = [&](int64_t from, int64_t to, std::vector<ExchangeRun> runs) {
      p.pieces.emplace_back(static_cast<int32_t>(from), static_cast<int32_t>(to));
      p.runs.insert(p.runs.end(), runs.begin(), runs.end());
    };
    Pieces pieces{{2, 3, 5}, {2, 4, 7}, {}};
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
      pieces.list.push_back({rank, rank, {{1, 0, 1}, {0, 3, 1}, {3, 0, 2}}});
      auto members = mesh.group(rank, group);
      if (int64_t me = mesh.coordinate(rank, group); me > 0)
        pieces.list.push_back({members[static_cast<size_t>(me - 1)],
                               rank,
                               {{0, 0, 2}, {0, 0, 3}, {0, 2, 5}}});
    }
    pieces.sort();
    for (const Piece &piece : pieces.list)
      add(piece.from, piece.to, piece.runs);
    cases.push_back(
        {"pieces", type, ReduceKind::Sum, p, 2 * 3 * 5, 2 * 4 * 7, false, group,
         [](const auto &members, int64_t me, int64_t i, const auto &value) -> double {
           int64_t plane = i / 28, row = i / 7 % 4, column = i % 7;
           if (plane == 0 && row == 3 && column < 2)
             return value(members[static_cast<size_t>(me)], 15 + 3 + column);
           if (me == 0 || row == 3 || column < 2)
             return 0;
           return value(members[static_cast<size_t>(me - 1)],
                        plane * 15 + row * 5 + column - 2);
         },
         Layout::replicated(pieces.before), Layout::replicated(pieces.after)});
  }
}

/// Says the numbers that the layouts of a case get.
inline void addLayouts(TaskTableBuilder &builder, const Case &c, task::Params &params) {
  if (auto *halo = std::get_if<task::Halo>(&params)) {
    halo->before = builder.addLayout(c.before);
    halo->positions = builder.addLayout(c.positions);
  }
  if (auto *exchange = std::get_if<task::Exchange>(&params)) {
    exchange->before = builder.addLayout(c.before);
    exchange->after = builder.addLayout(c.positions);
  }
}

inline std::vector<Case> casesFor(const Mesh &mesh) {
  std::vector<Case> cases;
  for (int t = 0; t <= PARTITA_DTYPE_BOOL; ++t)
    addReductions(cases, mesh, static_cast<DType>(t));
  for (DType type : {DType::F32, DType::F64, DType::BF16, DType::I8}) {
    addMoves(cases, mesh, type);
    addPermutes(cases, mesh, type);
    addHalos(cases, mesh, type);
    addPieces(cases, mesh, type);
  }
  return cases;
}

/// All cases in one table, so that prepare sees them as it would in a stage.
inline TaskTable tableOf(const Mesh &mesh, const std::vector<Case> &cases) {
  TaskTableBuilder builder(mesh);
  constexpr uint64_t bytes = 1 << 20;
  builder.setMemory(2 * bytes, 0, 0);
  uint32_t source = builder.addBuffer(Space::Arena, 0, bytes);
  uint32_t target = builder.addBuffer(Space::Arena, bytes, bytes);
  for (const Case &c : cases) {
    task::Params params = c.params;
    addLayouts(builder, c, params);
    builder.addTask({.source = c.what,
                     .operands = {source, c.inPlace ? source : target},
                     .params = params});
  }
  std::string blob = builder.finish();
  return *TaskTable::read(std::as_bytes(std::span(blob.data(), blob.size())));
}

/// What the target of a case should hold on `rank`.
inline Bytes expectedOf(const Case &c, const Mesh &mesh, int64_t rank) {
  auto members = mesh.group(rank, c.group);
  int64_t me = mesh.coordinate(rank, c.group);
  Bytes expected(static_cast<size_t>(c.targetCount) * byteWidth(c.type));
  auto value = [&](int64_t r, int64_t j) { return valueOf(r, j, c.reduce, c.type); };
  visitType(c.type, [&]<typename T>() {
    auto *data = reinterpret_cast<T *>(expected.data());
    for (int64_t i = 0; i < c.targetCount; ++i)
      data[i] = store<T>(static_cast<Compute<T>>(c.expected(members, me, i, value)));
  });
  return expected;
}

inline Bytes emptyTarget(const Case &c) {
  return Bytes(static_cast<size_t>(c.targetCount) * byteWidth(c.type), std::byte{0x5a});
}

/// Runs every case on this rank; returns descriptions of the wrong ones.
inline std::vector<std::string> runCases(runtime::Transport &transport, const Mesh &mesh,
                                         const std::vector<Case> &cases,
                                         const TaskTable &table) {
  std::vector<std::string> wrong;
  std::vector<int> handles;
  for (size_t k = 0; k < cases.size(); ++k)
    handles.push_back(*transport.prepare(table, table.task(k)));
  int64_t rank = transport.rank();
  for (size_t k = 0; k < cases.size(); ++k) {
    const Case &c = cases[k];
    Bytes source = sourceOf(rank, c.sourceCount, c.reduce, c.type);
    Bytes target = emptyTarget(c);
    Bytes &result = c.inPlace ? source : target;
    bool ok = transport.run(handles[k], source.data(), result.data());
    if (!ok || expectedOf(c, mesh, rank) != result)
      wrong.push_back("rank " + std::to_string(rank) + ": " + c.what + " of " +
                      std::string(name(c.type)) + " over " + mesh.str(c.group) + " of " +
                      mesh.str());
    transport.barrier();
  }
  return wrong;
}

/// Numbers of which sums are rounded.
inline Bytes roundedSource(int64_t rank, const Case &c) {
  Bytes out(static_cast<size_t>(c.sourceCount) * byteWidth(c.type));
  visitType(c.type, [&]<typename T>() {
    auto *data = reinterpret_cast<T *>(out.data());
    for (int64_t i = 0; i < c.sourceCount; ++i)
      data[i] = store<T>(
          static_cast<Compute<T>>(valueOf(rank, i, c.reduce, c.type) * 0.37 + 1.0 / 3));
  });
  return out;
}

/// Results of threads on this rank: every case once more, with numbers of which sums are
/// rounded.
inline std::vector<std::vector<std::byte>> bitsOfThreads(const Mesh &mesh, int64_t rank,
                                                         const std::vector<Case> &cases,
                                                         const TaskTable &table) {
  std::vector<std::vector<std::byte>> bits;
  std::mutex lock; // the default memory resource is for one thread at a time
  runtime::LocalTeam team(static_cast<int>(mesh.numRanks()));
  std::vector<std::thread> threads;
  for (int r = 0; r < mesh.numRanks(); ++r)
    threads.emplace_back([&, r] {
      auto transport = team.connect(r);
      for (size_t k = 0; k < cases.size(); ++k) {
        const Case &c = cases[k];
        std::vector<std::byte> source,
            target(static_cast<size_t>(c.targetCount) * byteWidth(c.type),
                   std::byte{0x5a});
        {
          std::lock_guard guard(lock);
          Bytes made = roundedSource(r, c);
          source.assign(made.begin(), made.end());
        }
        auto &result = c.inPlace ? source : target;
        transport->run(*transport->prepare(table, table.task(k)), source.data(),
                       result.data());
        if (r == rank)
          bits.push_back(result);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return bits;
}

/// Every case against what threads give, bit by bit; returns how many differ.
inline int runBits(runtime::Transport &transport, const Mesh &mesh,
                   const std::vector<Case> &cases, const TaskTable &table) {
  const auto expected = bitsOfThreads(mesh, transport.rank(), cases, table);
  int wrong = 0;
  for (size_t k = 0; k < cases.size(); ++k) {
    Bytes source = roundedSource(transport.rank(), cases[k]),
          target = emptyTarget(cases[k]);
    Bytes &result = cases[k].inPlace ? source : target;
    wrong += !transport.run(*transport.prepare(table, table.task(k)), source.data(),
                            result.data()) ||
             !std::ranges::equal(result, expected[k]);
  }
  return wrong + !transport.barrier();
}

//===----------------------------------------------------------------------===//
// Many in flight
//===----------------------------------------------------------------------===//

inline const char *const flightMeshes[] = {"a=2",     "a=3", "a=4", "a=2,b=2", "a=5",
                                           "a=3,b=2", "a=7", "a=8", "a=2,b=4"};
constexpr size_t numFlights = 50, numFlightCalls = 3 * numFlights;

/// The cases that a seed chooses; call k has handle k mod 50 + 1, memory of its own, and
/// a place in a table that keeps the rules.
struct Flights {
  std::vector<const Case *> calls;
  std::vector<TaskTable> tables; ///< of 50 calls each

  Flights(const Mesh &mesh, const std::vector<Case> &cases, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (size_t k = 0; k < numFlightCalls; ++k)
      calls.push_back(&cases[random() % cases.size()]);
    for (size_t first = 0; first < numFlightCalls; first += numFlights)
      tables.push_back(table(mesh, first));
  }

  TaskTable table(const Mesh &mesh, size_t first) const {
    TaskTableBuilder builder(mesh);
    constexpr uint64_t bytes = 1 << 20;
    builder.setMemory(2 * numFlights * bytes, 0, 0);
    std::vector<TaskSpec> waits;
    for (size_t k = 0; k < numFlights; ++k) {
      const Case &c = *calls[first + k];
      uint32_t source = builder.addBuffer(Space::Arena, 2 * k * bytes, bytes),
               target = source;
      if (!c.inPlace)
        target = builder.addBuffer(Space::Arena, (2 * k + 1) * bytes, bytes);
      TaskSpec spec{.source = c.what, .operands = {source, target}, .params = c.params};
      addLayouts(builder, c, spec.params);
      spec.handle = static_cast<uint32_t>(k + 1);
      task::Wait wait;
      wait.handle = spec.handle;
      waits.push_back({.source = c.what, .operands = spec.operands, .params = wait});
      builder.addTask(std::move(spec));
    }
    for (TaskSpec &wait : waits)
      builder.addTask(std::move(wait));
    std::string blob = builder.finish();
    return *TaskTable::read(std::as_bytes(std::span(blob.data(), blob.size())));
  }
};

/// Runs the calls of a seed on this rank: starts in order, waits in an order of the
/// rank's own, moments of work and polls in between. Returns the number of wrong results.
inline int runFlights(runtime::Transport &transport, const Mesh &mesh,
                      const Flights &flights, uint64_t seed) {
  int64_t rank = transport.rank();
  std::mt19937_64 random(seed * 1000 + static_cast<uint64_t>(rank));
  std::vector<int> handles;
  for (size_t k = 0; k < numFlightCalls; ++k)
    handles.push_back(
        *transport.prepare(flights.tables[k / numFlights],
                           flights.tables[k / numFlights].task(k % numFlights)));
  std::vector<Bytes> sources(numFlightCalls), targets(numFlightCalls);
  std::vector<std::array<void *, 2>> places(numFlightCalls);
  std::vector<size_t> flying;
  int wrong = 0;
  auto waitFor = [&](size_t at) {
    size_t k = flying[at];
    flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(at));
    const Case &c = *flights.calls[k];
    wrong += !transport.wait(handles[k]) ||
             expectedOf(c, mesh, rank) != (c.inPlace ? sources[k] : targets[k]);
  };
  for (size_t k = 0; k < numFlightCalls || !flying.empty();) {
    if (random() % 8 == 0)
      wrong += !transport.progress();
    if (random() % 16 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    // The handle's last call, if it is still in flight.
    auto last = std::find(flying.begin(), flying.end(), k - numFlights);
    bool mayStart = k < numFlightCalls && (k < numFlights || last == flying.end());
    // Mostly starts at first, so that as many as there are handles are in flight.
    if (!mayStart || (!flying.empty() && random() % 8 == 0)) {
      bool isBlocked = k < numFlightCalls && !mayStart;
      waitFor(isBlocked ? static_cast<size_t>(last - flying.begin())
                        : random() % flying.size());
      continue;
    }
    const Case &c = *flights.calls[k];
    sources[k] = sourceOf(rank, c.sourceCount, c.reduce, c.type);
    targets[k].assign(static_cast<size_t>(c.targetCount) * byteWidth(c.type),
                      std::byte{0x5a});
    places[k] = {sources[k].data(), (c.inPlace ? sources[k] : targets[k]).data()};
    wrong += !transport.start(handles[k], places[k].data());
    flying.push_back(k++);
  }
  return wrong + !transport.barrier();
}

//===----------------------------------------------------------------------===//
// Buckets
//===----------------------------------------------------------------------===//

/// The cases of one kind over one group with one reduction, as one call.
struct Bucket {
  std::vector<const Case *> cases;
  task::Params params;

  static std::vector<Bucket> of(const std::vector<Case> &cases) {
    std::vector<Bucket> buckets;
    for (const Case &c : cases)
      std::visit(
          [&]<typename P>(const P &p) {
            if constexpr (requires { p.more; })
              add(buckets, c, p);
          },
          c.params);
    return buckets;
  }

  template <typename P>
  static void add(std::vector<Bucket> &buckets, const Case &c, const P &p) {
    for (Bucket &bucket : buckets)
      if (auto *first = std::get_if<P>(&bucket.params);
          first && bucket.cases[0]->group == c.group &&
          bucket.cases[0]->reduce == c.reduce) {
        first->more.push_back(task::itemOf(p, 0));
        bucket.cases.push_back(&c);
        return;
      }
    buckets.push_back({{&c}, p});
  }

  TaskTable table(const Mesh &mesh) const {
    TaskTableBuilder builder(mesh);
    constexpr uint64_t bytes = 1 << 20;
    builder.setMemory(2 * cases.size() * bytes, 0, 0);
    TaskSpec spec{.source = "bucket", .params = params, .handle = 1};
    for (size_t k = 0; k < cases.size(); ++k)
      for (size_t side : {0, 1})
        spec.operands.push_back(
            side == 1 && cases[k]->inPlace
                ? spec.operands.back()
                : builder.addBuffer(Space::Arena, (2 * k + side) * bytes, bytes));
    task::Wait wait;
    wait.handle = 1;
    TaskSpec end{.source = "bucket", .operands = spec.operands, .params = wait};
    builder.addTask(std::move(spec));
    builder.addTask(std::move(end));
    std::string blob = builder.finish();
    return *TaskTable::read(std::as_bytes(std::span(blob.data(), blob.size())));
  }
};

/// Every bucket twice, in other memory each time, against each of its cases alone: the
/// bits are the same. The number of wrong results.
inline int runBuckets(runtime::Transport &transport, const Mesh &mesh,
                      const std::vector<Case> &cases, const TaskTable &table) {
  int wrong = 0;
  for (const Bucket &bucket : Bucket::of(cases)) {
    TaskTable own = bucket.table(mesh);
    int call = *transport.prepare(own, own.task(0));
    for (int round = 0; round < 2; ++round) {
      std::vector<Bytes> sources, targets, expected;
      std::vector<void *> places;
      for (const Case *c : bucket.cases) {
        Bytes source = roundedSource(transport.rank(), *c);
        Bytes &target = targets.emplace_back(static_cast<size_t>(c->targetCount) *
                                             byteWidth(c->type));
        sources.push_back(source);
        expected.push_back(target);
        auto number = static_cast<size_t>(c - cases.data());
        Bytes &result = c->inPlace ? source : expected.back();
        wrong += !transport.run(*transport.prepare(table, table.task(number)),
                                source.data(), result.data());
        if (c->inPlace)
          expected.back() = source;
      }
      for (size_t k = 0; k < sources.size(); ++k) {
        places.push_back(sources[k].data());
        places.push_back((bucket.cases[k]->inPlace ? sources : targets)[k].data());
      }
      wrong += !transport.start(call, places.data()) || !transport.wait(call);
      for (size_t k = 0; k < sources.size(); ++k)
        wrong += (bucket.cases[k]->inPlace ? sources : targets)[k] != expected[k];
    }
  }
  return wrong + !transport.barrier();
}

//===----------------------------------------------------------------------===//
// All-to-alls of as many rows as counts say
//===----------------------------------------------------------------------===//

constexpr int64_t raggedRows = 40, raggedInner = 3;

/// One call as a member sees it. Row r that member i sends to member j is made of i, j
/// and r, so each says where it comes from.
struct Ragged {
  std::vector<int64_t> counts; ///< [i][j]: what member i sends to member j
  std::vector<int32_t> source, target, expected;
  int number = 0;
  void *places[2] = {};

  Ragged(size_t n, size_t me, std::mt19937_64 &random) : counts(n * n) {
    draw(n, random);
    source.assign(raggedRows * raggedInner, -1);
    target.assign(static_cast<size_t>(raggedRows * raggedInner) * n, -7);
    expected = target;
    auto fill = [&](std::vector<int32_t> &to, bool sends) {
      size_t at = 0;
      for (size_t other = 0; other < n; ++other) {
        size_t i = sends ? me : other, j = sends ? other : me;
        for (int64_t e = 0; e < counts[i * n + j] * raggedInner; ++e)
          to[at++] = static_cast<int32_t>(static_cast<int64_t>(i * 8 + j) * 1000 + e);
      }
    };
    fill(source, true);
    fill(expected, false);
  }

  /// None at all, few, some, or all rows that there are.
  void draw(size_t n, std::mt19937_64 &random) {
    auto kind = random() % 4;
    for (size_t i = 0; i < n; ++i) {
      int64_t left = kind == 0 ? 0 : raggedRows;
      for (size_t j = 0; j < n; ++j) {
        bool isLast = kind == 3 && j + 1 == n, none = kind == 1 && random() % 2 == 0;
        auto some = static_cast<int64_t>(random() % static_cast<uint64_t>(left / 2 + 1));
        int64_t count = isLast ? left : none ? 0 : some;
        counts[i * n + j] = count;
        left -= count;
      }
    }
  }

  Expected<void> prepare(runtime::Transport &transport, const Mesh &mesh,
                         const AxisList &group, uint32_t handle) {
    TaskTableBuilder builder(mesh);
    builder.setMemory(1 << 17, 0, 0);
    task::AllToAllV p;
    p.dtype = static_cast<uint8_t>(DType::I32), p.group = group, p.inner = raggedInner;
    p.rows = raggedRows, p.to_rows = raggedRows * product(group);
    uint32_t from = builder.addBuffer(Space::Arena, 0, source.size() * 4);
    uint32_t to = builder.addBuffer(Space::Arena, 8192, target.size() * 4);
    uint32_t read = builder.addBuffer(Space::Arena, 65536, counts.size() * 8);
    RankValueSpec list{PARTITA_RANK_READ, raggedRows, 0, {}, {}, DType::I64};
    list.count = static_cast<int64_t>(counts.size());
    builder.addTask({.operands = {from, to, read},
                     .params = p,
                     .rankValues = {builder.addRankValue(list)},
                     .handle = handle});
    task::Wait wait;
    wait.handle = handle;
    builder.addTask({.operands = {from, to}, .params = wait});
    std::string blob = builder.finish();
    auto table = TaskTable::read(std::as_bytes(std::span(blob)));
    if (!table)
      return tl::unexpected(table.error());
    auto call = transport.prepare(*table, table->task(0));
    if (!call)
      return tl::unexpected(call.error());
    number = *call;
    return {};
  }
};

/// Two calls at a time over every group of the mesh. The number of wrong results.
inline int runRagged(runtime::Transport &transport, const Mesh &mesh, uint64_t seed) {
  int wrong = 0;
  std::mt19937_64 random(seed);
  for (const AxisList &group : groupsOf(mesh)) {
    auto n = static_cast<size_t>(product(group));
    auto me = static_cast<size_t>(mesh.coordinate(transport.rank(), group));
    Ragged first(n, me, random), second(n, me, random);
    Expected<void> ok = first.prepare(transport, mesh, group, 1);
    if (ok)
      ok = second.prepare(transport, mesh, group, 2);
    if (!ok) {
      std::fprintf(stderr, "wrong: %s\n", ok.error().message.c_str());
      return 1;
    }
    for (Ragged *call : {&first, &second}) {
      call->places[0] = call->source.data(), call->places[1] = call->target.data();
      wrong += !transport.start(call->number, call->places, call->counts.data());
    }
    for (Ragged *call : {&second, &first})
      wrong += !transport.wait(call->number) || call->target != call->expected;
  }
  return wrong + !transport.barrier();
}

} // namespace collectives

#endif // PARTITA_TEST_UNIT_RUNTIME_COLLECTIVECASES_H
