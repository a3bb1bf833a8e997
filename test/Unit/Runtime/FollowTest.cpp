//===- FollowTest.cpp - Requests that follow each other -------------------===//
//
// Two programs of one rank: the first adds one, and sends; the last doubles. The last may
// wait until the first is at the next request, which it is only where requests follow
// each other.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Session.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <thread>

using namespace partita;
using namespace partita::runtime;

namespace {
constexpr int64_t width = 16;
constexpr uint64_t bytes = width * 4;

/// Requests that each program has begun; requests ahead that the last one waits for, and
/// how often it waited in vain.
std::atomic<int> firsts, lasts, wanted, missed;

void first(void *const *buffers, const int64_t *, partita_status *status, int64_t,
           int64_t, int64_t) {
  ++firsts;
  const auto *x = static_cast<const float *>(buffers[0]);
  if (x[0] < 0)
    *status = {PARTITA_STATUS_INDEX, -1, width, 0};
  for (int64_t i = 0; i < width; ++i)
    static_cast<float *>(buffers[1])[i] = x[i] + 1;
}

void last(void *const *buffers, const int64_t *, partita_status *, int64_t, int64_t,
          int64_t) {
  using Clock = std::chrono::steady_clock;
  const int own = ++lasts;
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (firsts < own + wanted && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  missed += firsts < own + wanted;
  for (int64_t i = 0; i < width; ++i)
    static_cast<float *>(buffers[1])[i] = 2 * static_cast<const float *>(buffers[0])[i];
}

/// A program of rank `rank` with one segment, which reads a buffer and writes another.
std::shared_ptr<const Stage> programOf(int32_t rank) {
  const bool isFirst = rank == 0;
  const Mesh mesh = *Mesh::parse("a=1");
  const Layout whole = Layout::replicated({width});
  TaskTableBuilder table(mesh);
  uint32_t outer = table.addBuffer(Space::Io, 0, bytes);
  uint32_t inner = table.addBuffer(Space::Arena, 0, bytes);
  table.addTensor({isFirst ? Role::Input : Role::Output, DType::F32, isFirst ? "x" : "y",
                   whole, outer});
  const auto operands = isFirst ? std::array{outer, inner} : std::array{inner, outer};
  table.setProgram({isFirst ? "first" : "last", 1, {rank}});
  table.addSegment({"work", false, {operands[0]}, {operands[1]}});
  task::Kernel kernel;
  kernel.kernel = table.addKernel(isFirst ? "first" : "last");
  kernel.inputs = 1;
  kernel.checks = {"looked up"};
  table.addTask(
      {.source = "work", .operands = {operands[0], operands[1]}, .params = kernel});
  TransferSpec transfer;
  transfer.name = "h", transfer.sends = isFirst, transfer.buffer = inner;
  transfer.layout = transfer.peerLayout = whole;
  transfer.peerMesh = mesh, transfer.peerRanks = {1 - rank};
  table.addTransfer(transfer);
  if (isFirst)
    table.addSchedule({{}, {{0, 0, {}, {{0, 0}}}, {-1, 0, {{0, 0}}, {}}}});
  else
    table.addSchedule({{}, {{-1, 0, {}, {{0, 0}}}, {0, 0, {{0, 0}}, {}}}});
  table.setMemory(bytes, 0, 0);
  table.setRegion(Space::Io, bytes);
  std::string blob = table.finish();
  auto read = TaskTable::read(std::as_bytes(std::span(blob)));
  if (!read)
    FAIL(read.error().message);
  return Stage::fromParts(std::move(*read), {isFirst ? first : last});
}

std::unique_ptr<Session> makeSession(int ahead = 0) {
  firsts = lasts = missed = 0, wanted = ahead;
  auto store = std::make_shared<WeightStore>(
      std::vector<std::shared_ptr<const InputFile>>(), *engineOf("plain"));
  SessionOptions how;
  how.threads = 1;
  auto session = Session::start({programOf(0), programOf(1)}, store, how);
  if (!session)
    FAIL(session.error().message);
  return std::move(*session);
}

/// Inputs that are `x` everywhere.
std::vector<std::optional<StoredTensor>> rowOf(float x) {
  auto tensor = std::make_shared<HostTensor>(HostTensor::zeros(DType::F32, {width}));
  std::fill_n(tensor->data<float>(), width, x);
  return {StoredTensor{DType::F32, {width}, nullptr, 0, tensor}};
}

struct Request {
  std::vector<float> y = std::vector<float>(width);

  Expected<void> begin(Session &session, float x) {
    return session.begin(rowOf(x), {{reinterpret_cast<std::byte *>(y.data())}});
  }
  void isOf(float x) const { CHECK(y == std::vector<float>(width, 2 * (x + 1))); }
};
} // namespace

TEST_CASE("a rank begins the next request while another one ends this one") {
  for (size_t most : {2, 4}) {
    // No further, as what the first sends next has no room before the last reads it.
    std::vector<Request> requests(40);
    auto session = makeSession(/*ahead=*/1);
    session->follow(most);
    for (size_t i = 0, ended = 0; ended < requests.size();) {
      // The last ones have none behind them.
      if (i == requests.size())
        wanted = 0;
      if (i < requests.size() && session->begun() < most) {
        REQUIRE(requests[i].begin(*session, static_cast<float>(i)).has_value());
        ++i;
        continue;
      }
      auto wish = session->end();
      REQUIRE(wish.has_value());
      CHECK_FALSE(*wish);
      requests[ended].isOf(static_cast<float>(ended));
      ++ended;
    }
    CHECK(missed == 0);
    CHECK(session->overlap().requests >= 30);
    CHECK(session->overlap().seconds >= 0);
  }
}

TEST_CASE(
    "requests that follow are refused where they cannot be, and end before others") {
  auto session = makeSession();
  session->follow(2, [] { return lasts == 2; });
  CHECK(session->mostBegun() == 2);
  auto early = session->end();
  REQUIRE_FALSE(early);
  CHECK(early.error().message == "no request was begun");
  Request a, b, c;
  auto none = session->begin({}, {});
  REQUIRE_FALSE(none);
  CHECK(none.error().message == "expected 1 inputs and 1 outputs");
  auto open = session->begin({std::nullopt}, {{nullptr}});
  REQUIRE_FALSE(open);
  CHECK(open.error().message == "input 'x' is not read from a file");
  REQUIRE(a.begin(*session, 1));
  REQUIRE(b.begin(*session, 2));
  auto third = c.begin(*session, 3);
  REQUIRE_FALSE(third);
  CHECK(third.error().message == "2 requests were begun, and none of them is ended");
  auto other = session->resetStates();
  REQUIRE_FALSE(other);
  CHECK(other.error().message == "requests that follow each other are not ended");
  REQUIRE(session->end());
  auto wish = session->end();
  REQUIRE(wish);
  CHECK(*wish);
  a.isOf(1), b.isOf(2);
  CHECK(session->begun() == 0);
  CHECK(session->resetStates());
  // Another kind of request between them.
  std::vector<float> x(width, 5), y(width);
  REQUIRE(session->run({{reinterpret_cast<const std::byte *>(x.data())}},
                       {{reinterpret_cast<std::byte *>(y.data())}}));
  CHECK(y == std::vector<float>(width, 12));
  REQUIRE(c.begin(*session, 3));
  REQUIRE(session->end());
  c.isOf(3);
}

TEST_CASE("a request that fails leaves the one before it, and ends those behind it") {
  Request a, b, c; // outlive a session that writes what was begun
  auto session = makeSession(1);
  session->follow(3);
  REQUIRE(a.begin(*session, 1));
  REQUIRE(b.begin(*session, -1));
  (void)c.begin(*session, 3); // is refused where rank 0 has failed by now
  // Rank 0 fails in the second one as soon as the last program lets the first one end.
  auto ended = session->end();
  auto failed = ended ? session->end() : std::move(ended);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message ==
        "rank 0, node 'looked up': index -1 is outside a dim of 16 elements");
  CHECK(lasts <= 1);
  CHECK(firsts == 2);
  Request d;
  auto after = d.begin(*session, 4);
  REQUIRE_FALSE(after);
}

TEST_CASE("a session goes while requests are under way") {
  Request a, b;
  auto session = makeSession(1);
  session->follow(2);
  REQUIRE(a.begin(*session, 1));
  wanted = 0;
  REQUIRE(b.begin(*session, 2));
  session.reset();
  CHECK(lasts <= 2);
}
