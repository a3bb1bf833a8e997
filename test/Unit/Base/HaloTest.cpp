//===- HaloTest.cpp - Window buffers against their definition -------------===//
#include "partita/Base/Layout/Halo.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <limits>

using namespace partita;

namespace {
/// One spatial dim between two others, in the layout of the source and of the positions.
struct HaloCase {
  int64_t input;
  HaloWindow window;
  int64_t positions;
};

std::vector<HaloCase> haloCases() {
  std::vector<HaloCase> cases;
  for (int64_t input : {1, 5, 13, 16})
    for (int64_t kernel : {1, 2, 3, 7})
      for (int64_t stride : {1, 2, 3})
        for (int64_t dilation : {1, 2})
          for (auto [low, high] :
               {std::pair<int64_t, int64_t>{0, 0}, {1, 1}, {2, 0}, {0, 3}, {-1, 1}}) {
            int64_t kernelExtent = (kernel - 1) * dilation + 1, span = input + low + high;
            if (span >= kernelExtent)
              cases.push_back({input,
                               {1, stride, kernelExtent, low},
                               (span - kernelExtent) / stride + 1});
          }
  return cases;
}

DimLayout split(int64_t size, const AxisList &axes, int64_t unit) {
  return {{{size, (size + unit - 1) / unit * unit, axes}}};
}

/// Expected element of the buffer of `rank` at local index (i, j, k), nothing if fill.
std::optional<int32_t> expectedAt(const Mesh &mesh, const Halo &halo, int64_t rank,
                                  int64_t i, int64_t j, int64_t k) {
  const DimFactor &rows = halo.positions.dims[1].factors[0];
  const DimFactor &outer = halo.positions.dims[0].factors[0];
  const HaloWindow &window = halo.windows[0];
  int64_t row =
      mesh.coordinate(rank, rows.axes) * rows.local() * window.stride - window.low + j;
  int64_t first = mesh.coordinate(rank, outer.axes) * outer.local() + i;
  if (row < 0 || row >= halo.before.dims[1].size() || first >= outer.size)
    return std::nullopt;
  return static_cast<int32_t>((first * halo.before.dims[1].size() + row) * 2 + k);
}
} // namespace

/// Source, positions: the source split like the positions, whole, or along the outer dim.
static std::vector<std::pair<Layout, Layout>> layoutPairs(const Mesh &mesh,
                                                          const HaloCase &c) {
  int64_t n = mesh.numRanks();
  AxisList first{mesh.whole(0)}, all = mesh.all(), none;
  auto layout = [](DimLayout outer, DimLayout rows) {
    return Layout{{std::move(outer), std::move(rows), split(2, {}, 1)}, {}};
  };
  return {{layout(split(3, none, 1), split(c.input, all, n)),
           layout(split(3, none, 1), split(c.positions, all, n))},
          {layout(split(3, none, 1), split(c.input, none, 1)),
           layout(split(3, none, 1), split(c.positions, first, n))},
          {layout(split(3, first, first[0].size), split(c.input, none, 1)),
           layout(split(3, none, 1), split(c.positions, all, 2 * n))}};
}

/// Every rank's part of 0, 1, 2 …, with -1 in the padding.
static std::vector<HostTensor> numberedLocals(const Mesh &mesh, const Layout &layout) {
  HostTensor global = HostTensor::zeros(DType::I32, layout.globalShape());
  HostTensor ones = global;
  for (int64_t i = 0; i < global.size(); ++i) {
    global.data<int32_t>()[i] = static_cast<int32_t>(i);
    ones.data<int32_t>()[i] = 1;
  }
  std::vector<HostTensor> locals;
  for (int64_t r = 0; r < mesh.numRanks(); ++r) {
    locals.push_back(extractLocal(mesh, layout, r, global));
    HostTensor valid = extractLocal(mesh, layout, r, ones);
    for (int64_t i = 0; i < valid.size(); ++i)
      if (valid.data<int32_t>()[i] == 0)
        locals.back().data<int32_t>()[i] = -1;
  }
  return locals;
}

/// Counts wrong elements of the buffer of one rank, and those that it does not own.
static void countBuffer(const Mesh &mesh, const Halo &halo, int64_t rank,
                        const HostTensor &buffer, const HostTensor &own, int64_t &wrong,
                        int64_t &lacking) {
  std::vector<int64_t> shape = halo.shape();
  const int32_t *mine = own.data<int32_t>(), *end = mine + own.size();
  for (int64_t at = 0; at < buffer.size(); ++at) {
    auto expected = expectedAt(mesh, halo, rank, at / (shape[1] * shape[2]),
                               at / shape[2] % shape[1], at % shape[2]);
    wrong += buffer.data<int32_t>()[at] !=
             expected.value_or(std::numeric_limits<int32_t>::lowest());
    lacking += expected && std::find(mine, end, *expected) == end;
  }
}

/// Elements of what a rank holds that are not in its buffer from row `begin` on.
static int64_t misplaced(const HostTensor &own, const HostTensor &buffer, int64_t begin) {
  int64_t rows = own.shape[1], inner = own.shape[2], wrong = 0;
  for (int64_t at = 0; at < own.size(); ++at) {
    int64_t row = at / inner % rows, outer = at / inner / rows;
    int64_t there = (outer * buffer.shape[1] + row + begin) * inner + at % inner;
    int32_t value = own.data<int32_t>()[at];
    wrong += value != -1 && buffer.data<int32_t>()[there] != value;
  }
  return wrong;
}

TEST_CASE("a window buffer holds the rows its windows cover, and the fill elsewhere") {
  size_t buffers = 0, inPlace = 0;
  for (const char *text : {"a=2", "a=3", "a=8", "a=2,b=2", "a=2,b=3"}) {
    Mesh mesh = *Mesh::parse(text);
    for (const HaloCase &c : haloCases())
      for (auto &[before, positions] : layoutPairs(mesh, c)) {
        Halo halo{before, positions, {c.window}, ReduceKind::Max};
        INFO(mesh.str() << ": " << before.str(mesh) << " to " << positions.str(mesh)
                        << " stride " << c.window.stride << " kernel_extent "
                        << c.window.kernelExtent << " low " << c.window.low);
        REQUIRE(halo.verify(mesh));
        auto locals = numberedLocals(mesh, before);
        auto results = executeHalo(mesh, halo, locals);
        int64_t wrong = 0, most = 0;
        for (size_t r = 0; r < results.size(); ++r, ++buffers) {
          int64_t lacking = 0;
          countBuffer(mesh, halo, static_cast<int64_t>(r), results[r], locals[r], wrong,
                      lacking);
          most = std::max(most, lacking);
        }
        if (auto begin = ownBegin(halo)) {
          ++inPlace;
          REQUIRE(*begin + before.dims[1].local() <= halo.shape()[1]);
          for (size_t r = 0; r < results.size(); ++r)
            wrong += misplaced(locals[r], results[r], *begin);
        }
        CHECK(wrong == 0);
        CHECK(haloElements(mesh, halo) == most);
      }
  }
  std::printf("halo: %zu window buffers equal, in %zu cases around the rank's own rows\n",
              buffers, inPlace);
  CHECK(inPlace > 100);
}

TEST_CASE("the rank's own rows have one place in all buffers, or none") {
  Mesh mesh = *Mesh::parse("a=2,b=2");
  auto beginOf = [&](const char *before, const char *positions, HaloWindow window) {
    Halo halo{*Layout::parse(before, mesh), *Layout::parse(positions, mesh), {window}};
    REQUIRE(halo.verify(mesh));
    return ownBegin(halo);
  };
  CHECK(beginOf("[{14: a}, {5}]", "[{14: a}, {5}]", {0, 1, 3, 1}) == 1);
  CHECK(beginOf("[{7/8: a}, {5}]", "[{7/8: a}, {5}]", {0, 1, 3, 1}) == 1);
  CHECK(beginOf("[{28: a}, {5}]", "[{14: a}, {5}]", {0, 2, 3, 1}) == 1);
  CHECK(beginOf("[{4=4+0: a}, {5}]", "[{4=4+0: a}, {5}]", {0, 1, 3, 1}) == 1);
  // The second rank's windows begin at row 8, a row behind what it has.
  CHECK(beginOf("[{14: a}, {5}]", "[{7/8: a}, {5}]", {0, 2, 3, 0}) == std::nullopt);
  // Rows that no window of the rank reads have no place.
  CHECK(beginOf("[{14: a}, {5}]", "[{8: a}, {5}]", {0, 1, 3, -2}) == std::nullopt);
  CHECK(beginOf("[{14}, {5}]", "[{14: a}, {5}]", {0, 1, 3, 1}) == std::nullopt);
  CHECK(beginOf("[{14: a}, {6: b}]", "[{14: a}, {6}]", {0, 1, 3, 1}) == std::nullopt);
}

TEST_CASE("a halo of two dims fetches the corners") {
  Mesh mesh = *Mesh::parse("h=2,w=2");
  AxisList h{mesh.whole(0)}, w{mesh.whole(1)};
  Halo halo;
  halo.before = {{split(4, h, 2), split(4, w, 2)}, {}};
  halo.positions = {{split(4, h, 2), split(4, w, 2)}, {}};
  halo.windows = {{0, 1, 3, 1}, {1, 1, 3, 1}};
  REQUIRE(halo.verify(mesh));
  CHECK(halo.shape() == std::vector<int64_t>{4, 4});
  // Of 4 × 4 a rank has a border of zeros, 2 × 2 of its own and 5 of three others.
  CHECK(haloElements(mesh, halo) == 5);
  CHECK(haloBlocks(mesh, halo, 0).size() == 4);
  CHECK(halo.axes(mesh) == mesh.all());
  HostTensor global = HostTensor::zeros(DType::F32, {4, 4});
  for (int64_t i = 0; i < 16; ++i)
    global.data<float>()[i] = static_cast<float>(i + 1);
  std::vector<HostTensor> locals;
  for (int64_t r = 0; r < 4; ++r)
    locals.push_back(extractLocal(mesh, halo.before, r, global));
  auto results = executeHalo(mesh, halo, locals);
  const float expected[] = {6, 7, 8, 0, 10, 11, 12, 0, 14, 15, 16, 0, 0, 0, 0, 0};
  CHECK(std::equal(expected, expected + 16, results[3].data<float>()));
}

TEST_CASE("a halo of given blocks begins where they do") {
  Mesh mesh = *Mesh::parse("a=3");
  Halo halo;
  halo.before = *Layout::parse("[{13=9+0+4: a}]", mesh);
  halo.positions = *Layout::parse("[{7=1+4+2: a}]", mesh);
  halo.windows = {{0, 2, 3, 1}};
  halo.fill = ReduceKind::Max;
  REQUIRE(halo.verify(mesh));
  HostTensor global = HostTensor::zeros(DType::I8, {13});
  for (int8_t i = 0; i < 13; ++i)
    global.data<int8_t>()[i] = i;
  std::vector<HostTensor> locals;
  for (int64_t r = 0; r < 3; ++r)
    locals.push_back(extractLocal(mesh, halo.before, r, global));
  auto results = executeHalo(mesh, halo, locals);
  // Positions 0, 1 and 5 first; four windows of stride 2 are 9 elements.
  for (int64_t r = 0; r < 3; ++r) {
    int64_t begin = std::vector<int64_t>{-1, 1, 9}[static_cast<size_t>(r)];
    REQUIRE(results[r].size() == 9);
    for (int64_t i = 0; i < 9; ++i)
      CHECK(results[r].data<int8_t>()[i] ==
            (begin + i < 0 || begin + i > 12 ? -128 : begin + i));
  }
  CHECK(haloElements(mesh, halo) == 9); // rank 1 owns nothing
}

TEST_CASE("ranks along partial axes fetch from their own copy") {
  Mesh mesh = *Mesh::parse("a=2,p=2");
  AxisList a{mesh.whole(0)};
  Halo halo;
  halo.before = {{split(4, a, 2)}, {{ReduceKind::Sum, {mesh.whole(1)}}}};
  halo.positions = halo.before;
  halo.windows = {{0, 1, 3, 1}};
  REQUIRE(halo.verify(mesh));
  std::vector<HostTensor> locals;
  for (float r = 0; r < 4; ++r) {
    locals.push_back(HostTensor::zeros(DType::F32, {2}));
    std::fill_n(locals.back().data<float>(), 2, 10 + r);
  }
  auto results = executeHalo(mesh, halo, locals);
  const float expected[] = {13, 13, 0};
  CHECK(results[1].data<float>()[3] == 13); // rank (0, 1) reads from (1, 1)
  CHECK(std::equal(expected, expected + 3, results[3].data<float>() + 1));
}

TEST_CASE("an inconsistent halo is an error") {
  Mesh mesh = *Mesh::parse("a=2");
  auto reason = [&](auto change) {
    Halo halo;
    halo.before = {{split(4, {mesh.whole(0)}, 2), split(3, {}, 1)}, {}};
    halo.positions = halo.before;
    halo.windows = {{0, 1, 3, 1}};
    change(halo);
    auto ok = halo.verify(mesh);
    return ok ? std::string("none") : ok.error().message;
  };
  CHECK(reason([](Halo &) {}) == "none");
  CHECK(reason([](Halo &h) { h.windows.clear(); }) == "there is no window");
  CHECK(reason([](Halo &h) { h.windows[0].dim = 2; }) ==
        "window of dim 2: the tensor has 2 dims");
  CHECK(reason([](Halo &h) { h.windows[0].stride = 0; }) ==
        "window of dim 0: stride 0, kernel_extent 3 and low 1 are out of range");
  CHECK(reason([](Halo &h) { h.windows.push_back(h.windows[0]); }) ==
        "window of dim 0: the dims do not ascend");
  CHECK(reason([](Halo &h) { h.positions.dims.pop_back(); }) ==
        "the source has 2 dims, the positions 1");
  CHECK(reason([](Halo &h) { h.positions.dims[1] = split(5, {}, 1); }) ==
        "dim 1 has size 3 in the source and 5 in the result");
  CHECK(reason([&](Halo &h) {
          h.positions.dims[0] = {{{2, 2, {}}, {2, 2, {mesh.whole(0)}}}};
        }) == "window of dim 0: its positions have 2 factors instead of one");
  CHECK(reason([&](Halo &h) {
          h.before.dims[0] = split(4, {}, 1);
          h.before.partial = {{ReduceKind::Sum, {mesh.whole(0)}}};
        }) == "the source and the positions have different partial axes");
}

TEST_CASE("ranks fetch over the axes of dims that are laid out differently") {
  Mesh mesh = *Mesh::parse("a=6,b=2");
  auto axesOf = [&](const char *before, const char *positions) {
    Halo halo;
    halo.before = *Layout::parse(before, mesh);
    halo.positions = *Layout::parse(positions, mesh);
    halo.windows = {{0, 1, 3, 1}};
    REQUIRE(halo.verify(mesh));
    return mesh.str(halo.axes(mesh));
  };
  CHECK(axesOf("[{12: a}, {4: b}]", "[{12: a}, {4: b}]") == "{a}");
  CHECK(axesOf("[{12: a:(1)2}, {4}]", "[{12: a:(1)2}, {4}]") == "{a:(1)2}");
  CHECK(axesOf("[{12}, {4: b}]", "[{12: b}, {4}]") == "{b}");
  // (1)2 and (2)3 are together the axis; (1)2 and (1)3 do not nest.
  CHECK(axesOf("[{12: a:(2)3}, {4}]", "[{12: a:(1)2}, {4}]") == "{a}");
  CHECK(axesOf("[{12: a:(1)3}, {4}]", "[{12: a:(1)2}, {4}]") == "{a}");
}
