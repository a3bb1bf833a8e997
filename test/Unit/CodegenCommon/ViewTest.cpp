//===- ViewTest.cpp - Strided views against copies ------------------------===//
#include "passes/Codegen/Common/View.h"

#include <catch2/catch.hpp>

#include <numeric>
#include <random>

using namespace partita::codegen;

/// The element numbers of the buffer in row-major order of the view.
static std::vector<int64_t> elementsOf(const View &view) {
  std::vector<int64_t> places{view.offset};
  for (const Parts &parts : view.dims)
    for (const Part &part : parts) {
      std::vector<int64_t> next;
      for (int64_t at : places)
        for (int64_t i = 0; i < part.size; ++i)
          next.push_back(at + i * part.stride);
      places = std::move(next);
    }
  return places;
}

static int64_t product(const Shape &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

TEST_CASE("a dense view is the buffer in order") {
  View view = View::dense({3, 1, 4});
  CHECK(view.isDense());
  std::vector<int64_t> expected(12);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(elementsOf(view) == expected);
  CHECK(view.dims[1].empty());
}

TEST_CASE("heads and transposes are views") {
  // [4, 2·8] → [4, 2, 8] → [2, 4, 8] → [2, 32] → [64]
  View view = *View::dense({4, 16}).reshaped({4, 2, 8});
  view = view.transposed({1, 0, 2});
  CHECK_FALSE(view.isDense());
  CHECK(view.dims == std::vector<Parts>{{{2, 8}}, {{4, 16}}, {{8, 1}}});
  View merged = *view.reshaped({2, 32});
  CHECK(merged.dims[1] == Parts{{4, 16}, {8, 1}});
  CHECK(elementsOf(merged) == elementsOf(view));
  CHECK(*merged.reshaped({2, 4, 8}) == view);
  // Cuts that do not nest need a copy.
  CHECK_FALSE(View::dense({4, 6}).transposed({1, 0}).reshaped({8, 3}).has_value());
}

TEST_CASE("slices, steps and broadcasts") {
  View view = *View::dense({4, 10}).sliced({2, 3}, {1, 8}, {2, -3});
  CHECK(elementsOf(view) == std::vector<int64_t>{18, 15, 12, 38, 35, 32});
  View row = View::dense({1, 3}).broadcast({2, 2, 3});
  CHECK(elementsOf(row) == std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2});
  View last = View::dense({2, 5, 3, 4}).transposed({0, 3, 1, 2});
  CHECK(last.denseLike({2, 7, 5, 3}).dims ==
        View::dense({2, 5, 3, 7}).transposed({0, 3, 1, 2}).dims);
}

TEST_CASE("random chains of views name the elements that copies would") {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    Shape shape{2, 3, 4};
    View view = View::dense(shape);
    // `expected` is the tensor's contents if every step copied.
    std::vector<int64_t> expected = elementsOf(view);
    for (int step = 0; step < 4; ++step) {
      std::vector<int64_t> order(shape.size());
      std::iota(order.begin(), order.end(), int64_t(0));
      if (random() % 2) {
        std::shuffle(order.begin(), order.end(), random);
        View dense = View::dense(shape).transposed(order);
        std::vector<int64_t> moved;
        for (int64_t at : elementsOf(dense))
          moved.push_back(expected[static_cast<size_t>(at)]);
        expected = std::move(moved);
        view = view.transposed(order);
        shape = view.shape();
        continue;
      }
      static const Shape shapes[] = {{24}, {6, 4}, {2, 12}, {4, 3, 2}, {2, 2, 2, 3}};
      const Shape &wanted = shapes[random() % 5];
      REQUIRE(product(wanted) == product(shape));
      auto reshaped = view.reshaped(wanted);
      if (!reshaped)
        break;
      view = *reshaped;
      shape = wanted;
    }
    CHECK(view.shape() == shape);
    CHECK(elementsOf(view) == expected);
  }
}
