//===- MatMulPostOpsTest.cpp - Followers of a product, wherever it goes ---===//
//
// Every implementation × every chain of post-ops × every order of the destination. Not
// every implementation of an engine's library can do every chain into every order: it
// must not be asked for what it does wrong, or dies of.
//
//===----------------------------------------------------------------------===//
#include "EngineCheck.h"

#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Plain.h"

#include <algorithm>
#include <numeric>
#include <set>

using namespace partita;
using namespace partita::test;

using Chain = std::vector<task::PostOp>;

/// Chains of one and of two followers over `numDims` dims of the result, the last of
/// which are rows and columns.
static std::vector<Chain> chainsOver(size_t numDims) {
  const int64_t all = (int64_t(1) << numDims) - 1, column = int64_t(1) << (numDims - 1),
                row = column >> 1;
  auto add = [](int64_t mask) {
    return task::PostOp{PARTITA_POST_BINARY_ADD, 0, 0, mask};
  };
  auto mul = [](int64_t mask) {
    return task::PostOp{PARTITA_POST_BINARY_MUL, 0, 0, mask};
  };
  const task::PostOp half{PARTITA_POST_LINEAR, 0.5f, 0.25f}, relu{PARTITA_POST_RELU};
  std::vector<Chain> chains{
      {}, {relu}, {half, add(column)}, {mul(column), add(all)}, {add(column), relu}};
  for (int64_t mask = 0; mask <= all; ++mask)
    chains.insert(chains.end(), {{mul(mask)}, {add(mask), mul(row)}});
  return chains;
}

/// The product with its result stored in `order`, outermost dim first, columns innermost,
/// and `gap` elements behind each row.
static task::MatMul intoOrder(task::MatMul p, const std::vector<size_t> &order,
                              int64_t gap) {
  int64_t step = p.n + gap;
  for (size_t k = order.size(); k-- > 0;) {
    const bool isRow = order[k] == p.batch.size();
    (isRow ? p.c_row : p.batch[order[k]].c) = step;
    step *= isRow ? p.m : p.batch[order[k]].size;
  }
  return p;
}

/// The engine's own choices, the library alone, our kernels, and loops.
static std::vector<std::shared_ptr<const engine::Call>> callsFor(const task::MatMul &p) {
  runtime::setTeamSize(1);
  std::vector<std::shared_ptr<const engine::Call>> calls;
  for (auto products : {onednn::Products::OfMachine, onednn::Products::Own,
                        onednn::Products::OfLibrary}) {
    auto made = onednn::oneDnn(products).create(p);
    REQUIRE(made);
    calls.emplace_back(std::move(*made));
  }
  if (auto own = gemm::matMul(p))
    calls.emplace_back(std::move(own));
  calls.emplace_back(plain::matMul(p));
  return calls;
}

static void checkOrders(task::MatMul p, std::set<std::string> &seen) {
  std::vector<size_t> order(p.batch.size() + 1);
  std::iota(order.begin(), order.end(), 0);
  do {
    for (int64_t gap : {0, 3})
      for (const Chain &chain : chainsOver(p.batch.size() + 2)) {
        task::MatMul q = intoOrder(p, order, gap);
        q.post = chain;
        std::string what = "gap " + std::to_string(gap) + ", order";
        for (size_t d : order)
          what += " " + std::to_string(d);
        for (const task::PostOp &op : chain)
          what +=
              ", post-op " + std::to_string(op.kind) + " of " + std::to_string(op.mask);
        std::set<std::string> done; // of several that are one implementation the first
        for (auto &call : callsFor(q))
          if (done.insert(call->implementation()).second)
            checkMatMul(q, what, call);
        seen.merge(done);
      }
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("matmul: every chain of post-ops into every order of the destination") {
  std::set<std::string> seen;
  for (DType type : {DType::F32, DType::BF16, DType::F16})
    for (int64_t packed : {0, 1})
      for (int64_t bias : {0, 1}) {
        task::MatMul p = sized(type, 6, 13, 11);
        p.b_packed = packed, p.bias_mask = bias;
        p.batch = {{6, 66, packed ? 0 : 143, 0}};
        checkOrders(p, seen);
        if (type != DType::F32)
          continue;
        p.batch = {{2, 3 * 66, packed ? 0 : 3 * 143, 0}, {3, 66, packed ? 0 : 143, 0}};
        checkOrders(p, seen);
      }
  INFO(
      "implementations: " << std::accumulate(seen.begin(), seen.end(), std::string(),
                                             [](std::string text, const std::string &it) {
                                               return std::move(text) + it + "; ";
                                             }));
  auto saw = [&](std::string_view start) {
    return std::ranges::any_of(seen,
                               [&](const auto &name) { return name.starts_with(start); });
  };
  CHECK(saw("loops"));
  // Our kernels of AVX2, and in them what has narrow types.
  CHECK(saw("panels:avx2") == gemm::isSupported());
  CHECK(saw("widened panels:avx2") == gemm::isSupported());
  // The library's product of any order, and its faster one of vectors of 512 bits.
  CHECK(saw("gemm:"));
  CHECK(saw("brg:avx512") == hasWideVectors());
}
