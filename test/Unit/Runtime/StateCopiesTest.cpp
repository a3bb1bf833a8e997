//===- StateCopiesTest.cpp - States copied while requests run -------------===//
#include "partita/Runtime/Session.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <thread>

using namespace partita;
using namespace partita::runtime;

namespace {
constexpr int64_t numRanks = 2, width = 4096;

float &at(void *buffer, int64_t i) { return static_cast<float *>(buffer)[i]; }

/// Copies that were made, of all ranks, and of rank 0 when its kernels last ran.
std::atomic<int> made, madeOfFirst, madeAtRead, madeAtWrite;

/// y = w + x
void readWeight(void *const *buffers, const int64_t *scalars, partita_status *, int64_t,
                int64_t, int64_t) {
  if (scalars[0] == 0)
    madeAtRead = madeOfFirst.load();
  for (int64_t i = 0; i < width; ++i)
    at(buffers[2], i) = at(buffers[0], i) + at(buffers[1], i);
}
/// w += x
void update(void *const *buffers, const int64_t *scalars, partita_status *, int64_t,
            int64_t, int64_t) {
  if (scalars[0] == 0)
    madeAtWrite = madeOfFirst.load();
  for (int64_t i = 0; i < width; ++i)
    at(buffers[2], i) = at(buffers[0], i) + at(buffers[1], i);
}

enum State : size_t { Weight, Sum, Last, numStates };

struct Options {
  bool saysInputs = true; ///< tables tell what kernels only read
  bool rolls = false;     ///< one of the states
};

/// A session of two ranks: a kernel that reads a state; one that updates it, an
/// all-reduce and a copy that write the others.
std::unique_ptr<Session> makeSession(const Options &options = {}) {
  Mesh mesh = *Mesh::parse("a=2");
  TaskTableBuilder table(mesh);
  uint64_t used[numSpaces] = {};
  auto place = [&](Space space, uint64_t bytes) {
    uint64_t &end = used[static_cast<size_t>(space)];
    uint32_t buffer = table.addBuffer(space, end, bytes);
    end += (bytes + 63) / 64 * 64;
    return buffer;
  };
  constexpr uint64_t row = width * 4;
  uint32_t x = place(Space::Io, row), y = place(Space::Io, row);
  uint32_t w = place(Space::State, row), sum = place(Space::State, row),
           last = place(Space::State, row);
  auto tensor = [&](Role role, const char *name, uint32_t buffer) {
    table.addTensor({role, DType::F32, name, Layout::replicated({width}), buffer});
  };
  tensor(Role::Input, "x", x), tensor(Role::Output, "y", y);
  tensor(Role::State, "w", w), tensor(Role::State, "sum", sum);
  tensor(Role::State, "last", last);
  if (options.rolls) {
    uint32_t rolling = place(Space::State, 4 * 64);
    TensorSpec spec{Role::State, DType::F32, "rolling", Layout::replicated({2, 16}),
                    rolling};
    spec.roll = {0, 4, 1};
    table.addTensor(spec);
  }
  RankValueSpec rank;
  rank.size = numRanks, rank.block = 1;
  rank.axes = {mesh.whole(0)};
  auto kernel = [&](const char *name, std::vector<int64_t> operands) {
    task::Kernel call;
    call.kernel = table.addKernel(name);
    call.inputs = options.saysInputs ? 2 : 0;
    table.addTask({.source = name,
                   .operands = std::move(operands),
                   .params = call,
                   .rankValues = {table.addRankValue(rank)}});
  };
  kernel("readWeight", {w, x, y});
  kernel("update", {w, x, w});
  task::AllReduce reduce;
  reduce.dtype = static_cast<uint8_t>(DType::F32), reduce.count = width;
  reduce.group = {mesh.whole(0)};
  table.addTask({.source = "sum", .operands = {y, sum}, .params = reduce});
  task::Copy copy;
  copy.dtype = static_cast<uint8_t>(DType::F32), copy.count = width;
  table.addTask({.source = "last", .operands = {y, last}, .params = copy});
  table.setMemory(0, 0, 0);
  table.setRegion(Space::State, used[static_cast<size_t>(Space::State)]);
  table.setRegion(Space::Io, used[static_cast<size_t>(Space::Io)]);
  std::string blob = table.finish();
  auto read = TaskTable::read(std::as_bytes(std::span(blob)));
  if (!read)
    FAIL(read.error().message);
  auto store = std::make_shared<WeightStore>(
      std::vector<std::shared_ptr<const InputFile>>(), *engineOf("cpu"));
  SessionOptions how;
  how.threads = 1;
  auto session = Session::start(
      {Stage::fromParts(std::move(*read), {readWeight, update})}, store, how);
  if (!session)
    FAIL(session.error().message);
  made = madeOfFirst = madeAtRead = madeAtWrite = 0;
  return std::move(*session);
}

void request(Session &session, float x) {
  std::vector<float> input(width, x), output(width);
  const std::byte *from = reinterpret_cast<const std::byte *>(input.data());
  auto *to = reinterpret_cast<std::byte *>(output.data());
  REQUIRE(session.run({{from}}, {{to}}).has_value());
}

std::vector<float> valuesOf(Session &session, size_t state) {
  std::vector<float> values(width);
  REQUIRE(session.readState(state, reinterpret_cast<std::byte *>(values.data())));
  return values;
}

/// The states of both ranks, as they were copied.
struct Taken {
  std::vector<float> values[numRanks][numStates];

  Session::StateReader reader() {
    return [this](int rank, size_t state, uint32_t, const std::byte *local) {
      if (state < numStates) {
        values[rank][state].resize(width);
        std::memcpy(values[rank][state].data(), local, width * 4);
      }
      ++made;
      madeOfFirst += rank == 0;
    };
  }
  void isLike(const std::vector<float> (&expected)[numStates]) const {
    for (const auto &rank : values)
      for (size_t state = 0; state < numStates; ++state)
        CHECK(rank[state] == expected[state]);
  }
};

std::shared_ptr<const StateCopies> begin(Session &session, Taken &taken) {
  auto copies = session.copyStates(taken.reader());
  REQUIRE(copies.has_value());
  return *copies;
}
} // namespace

TEST_CASE("state copies: a rank copies what it is about to write, and no sooner") {
  auto session = makeSession();
  request(*session, 2);
  std::vector<float> before[] = {valuesOf(*session, Weight), valuesOf(*session, Sum),
                                 valuesOf(*session, Last)};
  CHECK(before[Weight][7] == 2);
  CHECK(before[Sum][7] == 4);
  Taken taken;
  auto copies = begin(*session, taken);
  CHECK(made == 0);
  request(*session, 3);
  CHECK(madeAtRead == 0);
  CHECK(madeAtWrite == 1);
  CHECK(made == numRanks * int(numStates));
  CHECK(valuesOf(*session, Weight)[7] == 5);
  copies->make();
  CHECK(made == numRanks * int(numStates));
  CHECK(copies->waited() > 0);
  taken.isLike(before);
}

TEST_CASE("state copies: where a table does not say what kernels write, they wait") {
  auto session = makeSession({.saysInputs = false});
  Taken taken;
  auto copies = begin(*session, taken);
  request(*session, 3);
  CHECK(madeAtRead == 1);
  taken.isLike(
      {std::vector<float>(width), std::vector<float>(width), std::vector<float>(width)});
}

TEST_CASE("state copies: nobody waits for copies that are made") {
  auto session = makeSession();
  request(*session, 2);
  Taken taken;
  auto copies = begin(*session, taken);
  copies->make();
  CHECK(made == numRanks * int(numStates));
  request(*session, 3);
  CHECK(copies->waited() == 0);
  CHECK(taken.values[1][Weight][7] == 2);
}

TEST_CASE("state copies: a thread makes them while requests run") {
  auto session = makeSession();
  std::mt19937 random(5);
  for (int step = 0; step < 200; ++step) {
    std::vector<float> before[] = {valuesOf(*session, Weight), valuesOf(*session, Sum),
                                   valuesOf(*session, Last)};
    Taken taken;
    auto copies = begin(*session, taken);
    std::chrono::microseconds later(random() % 200);
    std::thread maker([&] {
      std::this_thread::sleep_for(later);
      copies->make();
    });
    request(*session, static_cast<float>(step % 3));
    maker.join();
    taken.isLike(before);
  }
  CHECK(made == 200 * numRanks * int(numStates));
}

TEST_CASE("state copies: who sets states waits for them, too") {
  auto session = makeSession();
  request(*session, 2);
  std::vector<float> before[] = {valuesOf(*session, Weight), valuesOf(*session, Sum),
                                 valuesOf(*session, Last)};
  Taken taken;
  auto copies = begin(*session, taken);
  SECTION("one by one") {
    std::vector<float> values(width, 9);
    for (size_t state = 0; state < numStates; ++state)
      REQUIRE(session->writeState(state, reinterpret_cast<std::byte *>(values.data())));
    CHECK(valuesOf(*session, Sum)[3] == 9);
  }
  SECTION("all to what they begin as") {
    REQUIRE(session->resetStates());
    CHECK(valuesOf(*session, Sum)[3] == 0);
  }
  SECTION("all to something else") {
    REQUIRE(session->fillStates([](int, size_t, uint32_t, std::byte *local) {
      std::memset(local, 0, width * 4);
      return Expected<void>();
    }));
    CHECK(valuesOf(*session, Sum)[3] == 0);
  }
  taken.isLike(before);
}

TEST_CASE("state copies: where a state moves, all are copied at once") {
  auto session = makeSession({.rolls = true});
  request(*session, 2);
  Taken taken;
  auto copies = begin(*session, taken);
  CHECK(made == numRanks * (int(numStates) + 1));
  request(*session, 3);
  copies->make();
  CHECK(copies->waited() == 0);
  CHECK(taken.values[0][Weight][7] == 2);
}

TEST_CASE("state copies: a session that has ended has none") {
  auto session = makeSession();
  session->abort();
  std::vector<float> input(width, 1), output(width);
  const auto *from = reinterpret_cast<const std::byte *>(input.data());
  auto *to = reinterpret_cast<std::byte *>(output.data());
  REQUIRE(!session->run({{from}}, {{to}}).has_value());
  Taken taken;
  auto copies = session->copyStates(taken.reader());
  REQUIRE(!copies.has_value());
  CHECK_THAT(copies.error().message,
             Catch::StartsWith("the session ended with an earlier error: "));
  CHECK(made == 0);
}

TEST_CASE("state copies: those that nobody waited for are made before the next") {
  auto session = makeSession();
  request(*session, 2);
  std::vector<float> before[] = {valuesOf(*session, Weight), valuesOf(*session, Sum),
                                 valuesOf(*session, Last)};
  Taken first, second;
  auto copies = begin(*session, first);
  auto others = begin(*session, second);
  request(*session, 3);
  first.isLike(before);
  second.isLike(before);
}

TEST_CASE("state copies: they outlive a session") {
  Taken taken;
  std::shared_ptr<const StateCopies> copies;
  {
    auto session = makeSession();
    request(*session, 2);
    copies = begin(*session, taken);
  }
  copies->make();
  CHECK(taken.values[0][Weight][7] == 2);
}
