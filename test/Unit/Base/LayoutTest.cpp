//===- LayoutTest.cpp - Layouts: text, canonical form, slices -------------===//
#include "partita/Base/Layout/Layout.h"

#include <catch2/catch.hpp>
#include <numeric>

using namespace partita;

static Layout parsed(const Mesh &mesh, std::string_view text) {
  auto layout = Layout::parse(text, mesh);
  INFO(text << ": " << (layout ? "" : layout.error().message));
  REQUIRE(layout);
  return *layout;
}

static std::string canonicalText(const Mesh &mesh, std::string_view text) {
  return parsed(mesh, text).canonicalized().str(mesh);
}

TEST_CASE("layouts print what they parse") {
  Mesh mesh = *Mesh::parse("dp=2,tp=4,sp=2");
  for (std::string_view text :
       {"[]", "[{5}]", "[{2: dp}*{128: sp}, {768}] partial sum {tp}", "[{13/16: dp, tp}]",
        "[{3}*{768: tp:(1)2}, {8: tp:(2)2}] partial sum {dp}, max {sp}", "[{0}]",
        "[{13=4+9: dp}, {6=0+6+0+0: tp}*{2}]"})
    CHECK(parsed(mesh, text).str(mesh) == text);
  Layout layout = parsed(mesh, "[{13/16: dp, tp}, {3}*{8: sp}]");
  CHECK(layout.globalShape() == std::vector<int64_t>{13, 24});
  CHECK(layout.localShape() == std::vector<int64_t>{2, 12});
  CHECK(layout.localElements() == 24);
  CHECK(!layout.isReplicated());
  CHECK(layout.shardingAxes() == AxisList{{0, 1, 2}, {1, 1, 4}, {2, 1, 2}});
}

TEST_CASE("bad layouts are refused with the dim and the axis") {
  Mesh mesh = *Mesh::parse("dp=2,tp=4");
  auto message = [&](std::string_view text) {
    auto layout = Layout::parse(text, mesh);
    return layout ? std::string("accepted") : layout.error().message;
  };
  CHECK(message("[{8: dp}, {8: dp}]") ==
        "in the layout \"[{8: dp}, {8: dp}]\": dim 1: axis dp is used twice");
  CHECK(message("[{8: tp}] partial sum {tp:(2)2}") ==
        "in the layout \"[{8: tp}] partial sum {tp:(2)2}\": partial sum: axis tp:(2)2 is "
        "used twice: it overlaps tp");
  CHECK(message("[{13: tp}]") == "in the layout \"[{13: tp}]\": dim 0: the extent 13 is "
                                 "not a multiple of its 4 shards");
  CHECK(message("[{2}*{13/16: tp}]") ==
        "in the layout \"[{2}*{13/16: tp}]\": dim 0: only the major-most factor may be "
        "padded, got 13/16");
  CHECK(message("[{16/13}]") == "in the layout \"[{16/13}]\": dim 0: the padded size 13 "
                                "is below the size 16");
  CHECK(message("[{8: pp}]") ==
        "in the layout \"[{8: pp}]\": the mesh \"dp=2,tp=4\" has no axis \"pp\"");
  CHECK(message("[{8: tp") == "in the layout \"[{8: tp\": expected } at column 6");
  CHECK(message("[{8}] partial mean {tp}") ==
        "in the layout \"[{8}] partial mean {tp}\": expected sum, max, min or prod at "
        "column 15");
  CHECK(message("[{8}] x") == "in the layout \"[{8}] x\": unexpected text at column 7");
  CHECK(message("[{1152921504606846976}, {2}]") ==
        "in the layout \"[{1152921504606846976}, {2}]\": dim 1: the tensor has more than "
        "2^60 elements");
  CHECK(message("[{13=4+9: tp}]") == "in the layout \"[{13=4+9: tp}]\": dim 0: 2 blocks "
                                     "are given for 4 shards");
  CHECK(message("[{13=4+8: dp}]") == "in the layout \"[{13=4+8: dp}]\": dim 0: the given "
                                     "blocks do not sum to the size 13");
  CHECK(
      message("[{2}*{13=4+9: dp}]") ==
      "in the layout \"[{2}*{13=4+9: dp}]\": dim 0: only the major-most factor may have "
      "given blocks");
  CHECK(message("[{13=-4+17: dp}]") == "in the layout \"[{13=-4+17: dp}]\": dim 0: a "
                                       "block of length -4 is given for the size 13");
  for (std::string_view text :
       {"", "[", "[{", "[{}]", "[{8=: dp}]", "[{8=4+: dp}]",
        "[{8=9223372036854775807+4: dp}]", "[{8:}]", "[{8},]", "[{8}] partial",
        "[{8}] partial sum", "[{8}] partial sum {", "[{-1}]"})
    CHECK(message(text) != "accepted");
}

TEST_CASE("the canonical form merges what says the same") {
  Mesh mesh = *Mesh::parse("dp=2,tp=4,sp=2");
  CHECK(canonicalText(mesh, "[{4: tp}*{6}]") == "[{24: tp}]");
  CHECK(canonicalText(mesh, "[{2: dp}*{128: sp}]") == "[{256: dp, sp}]");
  CHECK(canonicalText(mesh, "[{4: dp}*{128: sp}]") == "[{4: dp}*{128: sp}]");
  CHECK(canonicalText(mesh, "[{1}*{768: tp}]") == "[{768: tp}]");
  CHECK(canonicalText(mesh, "[{3}*{768: tp}]") == "[{3}*{768: tp}]");
  CHECK(canonicalText(mesh, "[{3}*{2}*{4: tp}*{5}]") == "[{6}*{20: tp}]");
  CHECK(canonicalText(mesh, "[{13/16: tp}*{4}]") == "[{52/64: tp}]");
  CHECK(canonicalText(mesh, "[{13=4+9: dp}*{4}]") == "[{52=16+36: dp}]");
  CHECK(canonicalText(mesh, "[{13=7+6: dp}]") == "[{13/14: dp}]");
  CHECK(canonicalText(mesh, "[{2=2+0: dp}*{4: tp}]") == "[{2/4: dp}*{4: tp}]");
  CHECK(canonicalText(mesh, "[{8: tp:(1)2, tp:(2)2}]") == "[{8: tp}]");
  CHECK(canonicalText(mesh, "[{8}] partial sum {tp:(2)2, tp:(1)2, dp}") ==
        "[{8}] partial sum {dp, tp}");
}

TEST_CASE("equal canonical forms and equal placement are the same thing") {
  Mesh mesh = *Mesh::parse("a=2,b=4");
  std::vector<std::string> texts;
  std::vector<std::string> axes{"",       ": a",      ": b",      ": a, b",
                                ": b, a", ": b:(1)2", ": b:(2)2", ": b:(2)2, b:(1)2"};
  for (const std::string &x : axes)
    for (const std::string &y : axes) {
      for (int64_t cut : {1, 2, 4, 8, 16}) {
        std::string text =
            "[{" + std::to_string(cut) + x + "}*{" + std::to_string(16 / cut) + y + "}]";
        if (Layout::parse(text, mesh))
          texts.push_back(text);
      }
    }
  REQUIRE(texts.size() > 60);
  auto placement = [&](const std::string &text) {
    Layout layout = parsed(mesh, text);
    std::vector<int64_t> where;
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
      for (const DimRun &run : dimRuns(mesh, layout.dims[0], rank))
        for (int64_t i = 0; i < run.length; ++i)
          where.insert(where.end(), {rank, run.local + i, run.global + i});
    return where;
  };
  for (const std::string &x : texts)
    for (const std::string &y : texts) {
      INFO(x << " and " << y);
      CHECK((canonicalText(mesh, x) == canonicalText(mesh, y)) ==
            (placement(x) == placement(y)));
    }
}

TEST_CASE("runs of strided, padded and empty slices") {
  Mesh mesh = *Mesh::parse("dp=2,tp=4");
  using Runs = std::vector<DimRun>;
  DimLayout qkv = parsed(mesh, "[{3}*{8: tp}]").dims[0];
  CHECK(dimRuns(mesh, qkv, 1) == Runs{{2, 0, 2}, {10, 2, 2}, {18, 4, 2}});
  DimLayout uneven = parsed(mesh, "[{13/16: dp, tp}]").dims[0];
  CHECK(dimRuns(mesh, uneven, 5) == Runs{{10, 0, 2}});
  CHECK(dimRuns(mesh, uneven, 6) == Runs{{12, 0, 1}});
  CHECK(dimRuns(mesh, uneven, 7).empty());
  CHECK(validExtent(mesh, uneven.factors[0], 6) == 1);
  CHECK(validExtent(mesh, uneven.factors[0], 7) == 0);
  DimLayout rows = parsed(mesh, "[{3/4: dp}*{8: tp}]").dims[0];
  CHECK(dimRuns(mesh, rows, 7) == Runs{{22, 0, 2}});
  DimLayout given = parsed(mesh, "[{6=1+0+3+2: tp}*{2}]").dims[0];
  CHECK(dimRuns(mesh, given, 0) == Runs{{0, 0, 2}});
  CHECK(dimRuns(mesh, given, 1).empty());
  CHECK(dimRuns(mesh, given, 3) == Runs{{8, 0, 4}});
  CHECK(validExtent(mesh, given.factors[0], 2) == 3);
  CHECK(dimRuns(mesh, parsed(mesh, "[{0}]").dims[0], 0).empty());
}

TEST_CASE("slices of all ranks rebuild the tensor") {
  Mesh mesh = *Mesh::parse("a=2,b=3,c=2");
  for (std::string_view text :
       {"[{5/6: b}, {3}*{4: c}, {2: a}]", "[{5/8: c, a}, {12}, {2}]",
        "[{5/12: a, b, c}, {12}, {2}]", "[{5}, {2: a}*{6: b}, {2: c}]"}) {
    Layout layout = parsed(mesh, text);
    std::vector<int32_t> global(5 * 12 * 2), rebuilt(global.size(), -1);
    std::iota(global.begin(), global.end(), 1);
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
      std::vector<int32_t> local(layout.localElements(), -7);
      extractLocal(mesh, layout, rank, 4, reinterpret_cast<std::byte *>(global.data()),
                   reinterpret_cast<std::byte *>(local.data()));
      CHECK(std::count(local.begin(), local.end(), -7) == 0);
      insertLocal(mesh, layout, rank, 4, reinterpret_cast<std::byte *>(local.data()),
                  reinterpret_cast<std::byte *>(rebuilt.data()));
    }
    CHECK(rebuilt == global);
  }
  // One value by hand: rank (a=1, b=2, c=0) holds rows 4 (and padding), columns 0,1 of
  // each third, and the second of the last dim.
  Layout layout = parsed(mesh, "[{5/6: b}, {3}*{4: c}, {2: a}]");
  std::vector<int32_t> global(120), local(12);
  std::iota(global.begin(), global.end(), 0);
  extractLocal(mesh, layout, 10, 4, reinterpret_cast<std::byte *>(global.data()),
               reinterpret_cast<std::byte *>(local.data()));
  CHECK(local == std::vector<int32_t>{97, 99, 105, 107, 113, 115, 0, 0, 0, 0, 0, 0});
}
