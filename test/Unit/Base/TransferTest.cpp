//===- TransferTest.cpp - Transfers between meshes move every element once ===//
#include "partita/Base/Layout/Transfer.h"

#include <catch2/catch.hpp>

#include <functional>

using namespace partita;

/// Every element of the block, by its local index at both ends.
static void walk(const ExchangeBlock &block, const Layout &from, const Layout &to,
                 const std::function<void(int64_t, int64_t)> &visit) {
  auto source = from.localShape(), target = to.localShape();
  std::function<void(size_t, int64_t, int64_t)> dim = [&](size_t d, int64_t s,
                                                          int64_t t) {
    if (d == block.dims.size())
      return visit(s, t);
    for (const ExchangeRun &run : block.dims[d])
      for (int64_t i = 0; i < run.length; ++i)
        dim(d + 1, s * source[d] + run.before + i, t * target[d] + run.after + i);
  };
  dim(0, 0, 0);
}

TEST_CASE("a transfer leads from any layout on one mesh to any on another") {
  const char *meshes[] = {"", "a=2", "a=3", "a=2,b=2", "a=2,b=3"};
  const char *layouts[] = {"[{13}, {6}]",          "[{13/18: a}, {6}]",
                           "[{13/14: a}, {6: b}]", "[{13}, {2}*{3: b}]",
                           "[{13/18: a, b}, {6}]", "[{13=4+9: a}, {6}]",
                           "[{13}, {6: a}]",       "[{13/15: b}, {2: a}*{3}]"};
  int pairs = 0;
  for (const char *fromMesh : meshes)
    for (const char *toMesh : meshes)
      for (const char *before : layouts)
        for (const char *after : layouts) {
          Mesh a = *Mesh::parse(fromMesh), b = *Mesh::parse(toMesh);
          auto from = Layout::parse(before, a), to = Layout::parse(after, b);
          if (!from || !to)
            continue;
          INFO(before << " on " << fromMesh << " to " << after << " on " << toMesh);
          REQUIRE(verifyTransfer({a, *from}, {b, *to}));
          HostTensor global = HostTensor::zeros(DType::I32, {13, 6});
          for (int64_t i = 0; i < global.size(); ++i)
            global.data<int32_t>()[i] = static_cast<int32_t>(i + 1);
          for (int64_t rank = 0; rank < b.numRanks(); ++rank) {
            HostTensor expected = extractLocal(b, *to, rank, global);
            HostTensor target = HostTensor::zeros(DType::I32, to->localShape());
            for (const ExchangeBlock &block :
                 transferBlocks({a, *from}, {b, *to}, rank)) {
              HostTensor source = extractLocal(a, *from, block.peer, global);
              // Twice the same element would be seen: it is added.
              walk(block, *from, *to, [&](int64_t s, int64_t t) {
                target.data<int32_t>()[t] += source.data<int32_t>()[s];
              });
            }
            CHECK(target.bytes == expected.bytes);
          }
          ++pairs;
        }
  CHECK(pairs > 250);
}

TEST_CASE("receivers take turns among ranks that hold the same") {
  Mesh a = *Mesh::parse("a=4"), b = *Mesh::parse("b=4");
  Layout whole = Layout::replicated({8});
  for (int64_t rank = 0; rank < 4; ++rank) {
    auto blocks = transferBlocks({a, whole}, {b, whole}, rank);
    REQUIRE(blocks.size() == 1);
    CHECK(blocks[0].peer == rank);
  }
}

TEST_CASE("a partial value and another shape are refused") {
  Mesh a = *Mesh::parse("a=2"), b;
  Layout partial = *Layout::parse("[{8}] partial sum {a}", a);
  CHECK(verifyTransfer({a, partial}, {b, Layout::replicated({8})}).error().message ==
        "a partial value has to be reduced before it is transferred");
  CHECK(verifyTransfer({b, Layout::replicated({9})}, {b, Layout::replicated({8})})
            .error()
            .message == "the two layouts have different shapes");
}
