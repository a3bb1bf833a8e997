//===- PiecesTest.cpp - Exchanges whose pieces are named by rank ----------===//
#include "partita/Base/Layout/Pieces.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>

using namespace partita;

static Mesh meshOf(const char *text) { return *Mesh::parse(text); }

/// Boxes that random ranks have, each at another place of what random ranks get: rows of
/// the target are given away from the first on, so that no two boxes meet.
static Pieces randomPieces(const Mesh &mesh, std::mt19937 &random) {
  auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Pieces pieces{{draw(1, 5), draw(1, 7)}, {draw(4, 9), draw(7, 9)}, {}};
  for (int64_t to = 0; to < mesh.numRanks(); ++to)
    for (int64_t row = draw(0, 2); row < pieces.after[0];) {
      int64_t rows = std::min({draw(1, 3), pieces.before[0], pieces.after[0] - row});
      int64_t columns = draw(1, pieces.before[1]);
      pieces.list.push_back({draw(0, mesh.numRanks() - 1),
                             to,
                             {{draw(0, pieces.before[0] - rows), row, rows},
                              {draw(0, pieces.before[1] - columns),
                               draw(0, pieces.after[1] - columns), columns}}});
      row += rows + draw(0, 2);
    }
  pieces.sort();
  return pieces;
}

static std::vector<HostTensor>
randomTensors(const Mesh &mesh, const std::vector<int64_t> &shape, std::mt19937 &random) {
  std::vector<HostTensor> tensors;
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    tensors.push_back(HostTensor::zeros(DType::I64, shape));
    for (int64_t i = 0; i < tensors.back().size(); ++i)
      tensors.back().data<int64_t>()[i] = static_cast<int64_t>(random() % 100) + 1;
  }
  return tensors;
}

static int64_t product(const std::vector<HostTensor> &a,
                       const std::vector<HostTensor> &b) {
  int64_t sum = 0;
  for (size_t rank = 0; rank < a.size(); ++rank)
    sum += std::inner_product(a[rank].data<int64_t>(),
                              a[rank].data<int64_t>() + a[rank].size(),
                              b[rank].data<int64_t>(), int64_t(0));
  return sum;
}

/// The sum of the layers along the first dim.
static std::vector<HostTensor> summed(const std::vector<HostTensor> &tensors,
                                      const std::vector<int64_t> &shape) {
  std::vector<HostTensor> result;
  for (const HostTensor &tensor : tensors) {
    result.push_back(HostTensor::zeros(tensor.type, shape));
    for (int64_t i = 0; i < tensor.size(); ++i)
      result.back().data<int64_t>()[i % result.back().size()] +=
          tensor.data<int64_t>()[i];
  }
  return result;
}

TEST_CASE("the exchange back is the adjoint, and every element is filled once") {
  std::mt19937 random(7);
  for (const char *text : {"", "a=2", "a=3", "a=2,b=3", "a=2,b=2,c=2"})
    for (int trial = 0; trial < 60; ++trial) {
      Mesh mesh = meshOf(text);
      Pieces pieces = randomPieces(mesh, random);
      if (pieces.list.empty())
        continue;
      INFO(text << ", trial " << trial);
      REQUIRE(pieces.verify(mesh));
      Pieces::Back back = pieces.back();
      REQUIRE(back.pieces.verify(mesh));
      auto x = randomTensors(mesh, pieces.before, random);
      auto y = randomTensors(mesh, pieces.after, random);
      auto given = executePieces(mesh, pieces, x);
      auto returned = summed(executePieces(mesh, back.pieces, y), pieces.before);
      CHECK(product(given, y) == product(x, returned));
      // Zeros are where no piece fills: no drawn number is one.
      for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
        HostTensor &tensor = given[static_cast<size_t>(rank)];
        int64_t before = 0, filled = 0;
        for (int64_t i = 0; i < tensor.size(); ++i)
          before += tensor.data<int64_t>()[i] == 0;
        for (const EmptyBox &box : emptyBoxes(pieces, rank))
          for (int64_t i = 0; i < box.length[0]; ++i)
            for (int64_t j = 0; j < box.length[1]; ++j) {
              int64_t at = (box.begin[0] + i) * pieces.after[1] + box.begin[1] + j;
              filled += tensor.data<int64_t>()[at] == 0;
              tensor.data<int64_t>()[at] = 1;
            }
        CHECK(before == filled);
        CHECK(std::count(tensor.data<int64_t>(), tensor.data<int64_t>() + tensor.size(),
                         int64_t(0)) == 0);
      }
    }
}

TEST_CASE(
    "axes of an exchange are those that its pieces cross, or that have other lists") {
  Mesh mesh = meshOf("a=2,b=3");
  auto shift = [&](std::vector<std::pair<int64_t, int64_t>> ends) {
    Pieces pieces{{4}, {4}, {}};
    for (auto [from, to] : ends)
      pieces.list.push_back({from, to, {{0, 0, 4}}});
    pieces.sort();
    REQUIRE(pieces.verify(mesh));
    return std::pair(mesh.str(pieces.axes(mesh)), mesh.str(pieces.differingAxes(mesh)));
  };
  using Texts = std::pair<std::string, std::string>;
  CHECK(shift({{0, 1}, {1, 2}, {3, 4}, {4, 5}}) == Texts("{b}", "{b}"));
  CHECK(shift({{0, 1}, {1, 2}}) == Texts("{b}", "{a, b}"));
  CHECK(shift({{0, 3}, {1, 4}, {2, 5}}) == Texts("{a}", "{a}"));
  CHECK(shift({{0, 0}, {1, 1}, {2, 2}}) == Texts("{}", "{a}"));
  CHECK(shift({{0, 5}}) == Texts("{a, b}", "{a, b}"));
  CHECK(pieceElements({{4}, {4}, {{0, 0, {{0, 0, 2}}}, {1, 0, {{0, 2, 2}}}}}) == 2);
}

TEST_CASE("pieces that do not fit are refused") {
  Mesh mesh = meshOf("a=2");
  auto reason = [&](std::vector<Piece> list) {
    auto ok = Pieces{{4, 3}, {5, 3}, std::move(list)}.verify(mesh);
    return ok ? std::string("none") : ok.error().message;
  };
  auto piece = [](int64_t from, int64_t to, int64_t at, int64_t into, int64_t rows) {
    return Piece{from, to, {{at, into, rows}, {0, 0, 3}}};
  };
  CHECK(reason({piece(0, 1, 0, 1, 4)}) == "none");
  CHECK(reason({}) == "there is no piece");
  CHECK(reason({piece(0, 2, 0, 1, 4)}) ==
        "the piece from rank 0 to rank 2: the mesh has 2 ranks");
  CHECK(reason({piece(-1, 0, 0, 1, 4)}) ==
        "the piece from rank -1 to rank 0: the mesh has 2 ranks");
  CHECK(reason({{0, 1, {{0, 0, 1}}}}) ==
        "the piece from rank 0 to rank 1 has 1 dims, the tensors have 2");
  for (Piece wrong : {piece(0, 1, 0, 2, 4), piece(0, 1, 1, 0, 4), piece(0, 1, -1, 0, 1),
                      piece(0, 1, 0, 0, 0), piece(0, 1, INT64_MAX, 0, 2)})
    CHECK(reason({wrong}).find("are not in dim 0 of sizes 4 and 5") != std::string::npos);
  CHECK(reason({piece(0, 1, 0, 0, 2), piece(1, 1, 0, 1, 2)}) ==
        "the piece from rank 1 to rank 1 and the piece from rank 0 to rank 1 fill the "
        "same elements");
  CHECK(reason({piece(1, 1, 0, 0, 2), piece(0, 1, 0, 2, 2)}) ==
        "the piece from rank 0 to rank 1 is not in the order of receivers");
}
