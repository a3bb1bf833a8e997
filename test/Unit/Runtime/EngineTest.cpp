//===- EngineTest.cpp - Engine calls against naive loops ------------------===//
#include "ConvCheck.h"
#include "EngineCheck.h"

#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Plain.h"

#include <cstdlib>
#include <sys/mman.h>

using namespace partita;
using namespace partita::test;

//===----------------------------------------------------------------------===//
// MatMul
//===----------------------------------------------------------------------===//

TEST_CASE("matmul: types, transposes, bias, batches, packing") {
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32,
                     DType::I64, DType::I16}) {
    checkMatMul(sized(type, 5, 7, 9), "plain");
    for (int64_t packed : {0, 1}) {
      task::MatMul p = sized(type, 33, 48, 64);
      p.b_packed = packed;
      checkMatMul(p, "packed");
      p.b_row = 1, p.b_col = 64, p.bias_mask = 1;
      checkMatMul(p, "transposed b, bias");
      p.a_row = 1, p.a_col = 33, p.bias_mask = 2;
      checkMatMul(p, "both transposed, bias along m");
      p.bias_mask = 3;
      checkMatMul(p, "bias along both");
    }
    task::MatMul p = sized(type, 6, 10, 8);
    p.batch = {{2, 3 * 48, 0, 3 * 60}, {3, 48, 80, 60}};
    checkMatMul(p, "b broadcast along the outer batch");
    p.batch = {{2, 3 * 48, 0, 3 * 60}, {3, 48, 0, 60}};
    p.b_packed = 1;
    checkMatMul(p, "one b for all batches");
    p.b_packed = 0;
    p.batch = {{2, 0, 240, 180}, {3, 0, 80, 60}};
    checkMatMul(p, "one a for all batches");
    // Heads as a view: rows of 4 heads side by side.
    p = sized(type, 5, 5, 8);
    p.a_row = 32, p.b_row = 1, p.b_col = 32;
    p.batch = {{2, 160, 160, 100}, {4, 8, 8, 25}};
    checkMatMul(p, "heads by stride");
    p = sized(type, 1, 20, 30);
    checkMatMul(p, "one row");
    p = sized(type, 20, 1, 30);
    checkMatMul(p, "one column");
  }
}

TEST_CASE("matmul: every post-op, alone and in chains") {
  for (DType type : {DType::F32, DType::F64, DType::BF16})
    for (int64_t kind = 0; kind <= PARTITA_POST_BINARY_MUL; ++kind) {
      task::MatMul p = sized(type, 12, 16, 8);
      task::PostOp op{kind, 0.25f, 0.75f};
      if (!task::isBinary(kind)) {
        p.post.push_back(op);
        checkMatMul(p, "post-op " + std::to_string(kind));
        continue;
      }
      for (int64_t mask : {0, 1, 2, 3}) {
        op.mask = mask;
        p.post = {op};
        checkMatMul(p,
                    "binary " + std::to_string(kind) + " mask " + std::to_string(mask));
      }
    }
  task::MatMul p = sized(DType::F32, 12, 16, 8);
  p.batch = {{3, 96, 0, 192}};
  p.b_packed = p.bias_mask = 1;
  p.post = {{PARTITA_POST_HARDSIGMOID, 0.2f, 0.5f},
            {PARTITA_POST_BINARY_MUL, 0, 0, 7},
            {PARTITA_POST_HARDSWISH},
            {PARTITA_POST_BINARY_ADD, 0, 0, 4}};
  checkMatMul(p, "chain");
  p.post = {{PARTITA_POST_BINARY_ADD, 0, 0, 1}};
  checkMatMul(p, "operand along the batch only");
}

TEST_CASE("matmul: one column is no work for reference code") {
  for (DType type : {DType::F32, DType::BF16, DType::F64})
    for (int64_t m : {2, 40, 300})
      for (int64_t k : {1, 7, 64})
        for (bool packed : {false, true}) {
          task::MatMul p = sized(type, m, 1, k);
          p.b_packed = packed;
          for (p.bias_mask = 0; p.bias_mask < 4; ++p.bias_mask)
            checkMatMul(p, "bias " + std::to_string(p.bias_mask));
          p.bias_mask = 1;
          for (int64_t mask : {0, 1, 2, 3}) {
            p.post = {{PARTITA_POST_BINARY_MUL, 0, 0, mask}, {PARTITA_POST_RELU, 0.5f}};
            checkMatMul(p, "operand of mask " + std::to_string(mask));
          }
          p.batch = {{3, m * k, packed ? 0 : k, m}};
          for (int64_t mask : {0, 1, 2, 3, 5, 6, 7}) {
            p.post = {{PARTITA_POST_BINARY_ADD, 0, 0, mask}};
            checkMatMul(p, "batch, operand of mask " + std::to_string(mask));
          }
          p.batch[0].a = 0, p.post = {};
          checkMatMul(p, "one matrix for all columns");
          p = sized(type, m, 1, k);
          p.a_row = 1, p.a_col = m + 2;
          checkMatMul(p, "transposed");
          p.b_row = 3;
          checkMatMul(p, "transposed, a column of a matrix");
          p.c_row = 2;
          checkMatMul(p, "into a column of a matrix");
        }
  auto call = onednn::oneDnn().create(sized(DType::F32, 512, 1, 768));
  REQUIRE(call);
  CHECK_FALSE((*call)->implementation().starts_with("ref"));
}

TEST_CASE("matmul: few rows read the weight that many rows have had packed") {
  for (int64_t m : {1, 2, 3, 4})
    for (int64_t n : {1, 16, 48, 64, 100, 773})
      for (int64_t k : {1, 17, 320, 321, 700}) {
        task::MatMul p = sized(DType::F32, m, n, k);
        p.b_packed = p.bias_mask = 1;
        p.post = {{PARTITA_POST_RELU}, {PARTITA_POST_BINARY_ADD, 0, 0, 3}};
        checkMatMul(p, "few rows");
        p.b_row = 1, p.b_col = k;
        checkMatMul(p, "few rows, transposed weight");
      }
  engine::Calls calls(onednn::oneDnn());
  auto many = calls.get(
      [] {
        task::MatMul p = sized(DType::F32, 64, 768, 768);
        p.b_packed = 1;
        return p;
      }(),
      "w");
  REQUIRE(many);
  for (int64_t m : {1, 2, 3}) {
    task::MatMul p = sized(DType::F32, m, 768, 768);
    p.b_packed = 1;
    auto few = calls.get(p, "w");
    REQUIRE(few);
    CHECK((*few)->form() == (*many)->form());
    if (hasWideVectors())
      CHECK((*few)->implementation().find("blocks of") != std::string::npos);
  }
}

TEST_CASE("matmul: Relu of infinities is no NaN") {
  const double inf = std::numeric_limits<double>::infinity();
  for (const engine::Engine *engine : {&onednn::oneDnn(), &plain::loops()})
    for (DType type : {DType::F32, DType::F64, DType::F16}) {
      task::MatMul p = sized(type, 3, 3, 1);
      p.post = {{PARTITA_POST_RELU}};
      Buffer a(type, 3), b(type, 3), c(type, 9);
      for (int64_t i = 0; i < 3; ++i) {
        a.set(i, i == 0 ? -inf : i == 1 ? inf : -2);
        b.set(i, 1);
      }
      auto call = engine->create(p);
      REQUIRE(call);
      Prepared run(p, {a.data, b.data, c.data, nullptr, nullptr}, task::MatMulScratch,
                   *call);
      INFO(name(type) << " by " << (*call)->implementation());
      for (int64_t i = 0; i < 9; ++i)
        CHECK(c.get(i) == (i / 3 == 1 ? inf : 0));
    }
}

//===----------------------------------------------------------------------===//
// Conv and Pool, up to two spatial dims
//===----------------------------------------------------------------------===//

TEST_CASE("conv: groups, dilation, padding, strides, formats, post-ops") {
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (int64_t format : {PARTITA_FORMAT_CHANNELS_FIRST, PARTITA_FORMAT_CHANNELS_LAST})
      for (int64_t packed : {0, 1}) {
        task::Conv p;
        p.dtype = static_cast<int64_t>(type);
        p.src_format = p.dst_format = format, p.weights_packed = packed;
        p.batch = 2, p.in_channels = 3, p.out_channels = 16, p.has_bias = 1;
        p.spatial = {window(9, 3, 1, 1, 1, 1), window(8, 3, 2, 1, 0, 1)};
        checkConv(p, false, "3x3");
        p.post = {{PARTITA_POST_RELU}};
        checkConv(p, false, "3x3 relu");
        p.post = {{PARTITA_POST_BINARY_ADD, 0, 0, 2}, {PARTITA_POST_HARDSWISH}};
        checkConv(p, false, "3x3 add per channel, hardswish");
        p.post = {};
        p.in_channels = p.out_channels = p.groups = 16, p.has_bias = 0;
        checkConv(p, false, "depthwise");
        p.groups = 4;
        p.spatial = {window(9, 3, 1, 2, 2, 2), window(9, 2, 3, 1, 0, 0)};
        checkConv(p, false, "grouped, dilated");
        p.groups = 1;
        p.spatial = {window(17, 3, 2, 1, 1, 0)};
        checkConv(p, false, "1-d");
        p.spatial = {window(5, 1, 1, 1, 0, 0), window(6, 1, 1, 1, 0, 0)};
        checkConv(p, false, "1x1");
        for (int64_t mask : {15, 14, 12, 3}) {
          p.post = {{PARTITA_POST_BINARY_ADD, 0, 0, mask}, {PARTITA_POST_RELU}};
          checkConv(p, false, "1x1, add, relu, mask " + std::to_string(mask));
        }
        p.adds_to_result = true, p.has_bias = 1;
        checkConv(p, false, "1x1 to its result, add, relu");
        p.post = {{PARTITA_POST_RELU}};
        checkConv(p, false, "1x1 to its result, relu");
        p.groups = 16;
        checkConv(p, false, "depthwise to its result, relu");
      }
}

TEST_CASE("conv: many channels and a 3 x 3 window, by oneDNN's Winograd where it is") {
  const engine::Engine &library = onednn::oneDnn(onednn::Products::OfLibrary);
  task::Conv p;
  p.dtype = static_cast<int64_t>(DType::F32);
  p.src_format = p.dst_format = PARTITA_FORMAT_CHANNELS_LAST, p.weights_packed = 1;
  p.batch = 1, p.in_channels = p.out_channels = 64;
  p.spatial = {window(20, 3, 1, 1, 1, 1), window(21, 3, 1, 1, 1, 1)};
  auto make = [&] {
    runtime::setTeamSize(1);
    auto call = library.create(p);
    REQUIRE(call);
    return *call;
  };
  auto isWinograd = [&] {
    return make()->implementation().find("wino_2x3") != std::string::npos;
  };
  auto check = [&](std::vector<task::PostOp> post, bool expected, const char *what) {
    p.post = std::move(post);
    checkConv(p, false, what, make());
    INFO(what);
    CHECK(isWinograd() == (expected && hasWideVectors()));
  };
  check({{PARTITA_POST_BINARY_ADD, 0, 0, 15}, {PARTITA_POST_RELU}}, true, "add, relu");
  check({{PARTITA_POST_RELU}, {PARTITA_POST_BINARY_ADD, 0, 0, 15}}, false, "relu, add");
  p.has_bias = 1;
  check({{PARTITA_POST_BINARY_SUB, 0, 0, 15}}, false, "bias, subtract");
  p.dst_format = PARTITA_FORMAT_CHANNELS_FIRST;
  check({{PARTITA_POST_BINARY_ADD, 0, 0, 15}}, true, "bias, add, channels first");
  p.adds_to_result = true;
  check({{PARTITA_POST_RELU}}, true, "to its result, relu, channels first");
  check({{PARTITA_POST_BINARY_ADD, 0, 0, 15}}, false, "to its result, add");
  p.dst_format = PARTITA_FORMAT_CHANNELS_LAST;
  check({{PARTITA_POST_RELU}}, true, "to its result, relu");
  p.adds_to_result = false;
  // A rank's rows, which come with those of its neighbours.
  p.spatial[0] = window(21, 3, 1, 1, 1, 0);
  checkConv(p, false, "a rank's rows", make());
  p.spatial[0] = window(10, 3, 1, 1, 1, 1);
  CHECK(!isWinograd());
}

TEST_CASE("conv: a 1 x 1 window with a stride reads no row behind its last") {
  task::Conv p;
  p.dtype = static_cast<int64_t>(DType::F32);
  p.src_format = p.dst_format = PARTITA_FORMAT_CHANNELS_LAST, p.weights_packed = 1;
  p.batch = 1, p.in_channels = 64, p.out_channels = 32, p.has_bias = 1;
  p.post = {{PARTITA_POST_RELU}};
  // A rank's rows, of which the last is the last that is read.
  p.spatial = {window(27, 1, 2, 1, 0, 0), window(56, 1, 2, 1, 0, 0)};
  checkConv(p, false, "a rank's rows");
  p.spatial[1] = window(55, 1, 2, 1, 0, 0);
  checkConv(p, false, "rows and columns");
  p.spatial[1] = window(56, 1, 2, 1, 0, 0);
  p.batch = 2;
  checkConv(p, false, "two images");
  p.batch = 1;
  // Behind the image no memory is.
  const size_t bytes = size_t(4) * 27 * 56 * 64, page = 4096;
  const size_t mapped = (bytes + page - 1) / page * page;
  void *pages = ::mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  REQUIRE(::mprotect(static_cast<char *>(pages) + mapped, page, PROT_NONE) == 0);
  Buffer filter(DType::F32, 64 * 32), result(DType::F32, 14 * 28 * 32);
  Buffer bias(DType::F32, 32);
  bias.fill(1);
  Prepared run(p,
               {static_cast<char *>(pages) + mapped - bytes, filter.data, result.data,
                bias.data, nullptr},
               task::ConvScratch);
  CHECK(result.get(result.count - 1) == std::max(bias.get(31), 0.0));
  if (gemm::isSupported() && !hasWideVectors())
    CHECK(run.call->implementation() == "jit_1x1:avx2");
  ::munmap(pages, mapped + page);
}

TEST_CASE("transposed conv: groups, strides, output padding") {
  for (DType type : {DType::F32, DType::F64})
    for (int64_t packed : {0, 1})
      for (int64_t groups : {1, 2}) {
        task::Conv p;
        p.dtype = static_cast<int64_t>(type);
        p.weights_packed = packed, p.groups = groups, p.has_bias = 1;
        p.batch = 2, p.in_channels = 6, p.out_channels = 4;
        // out = (in-1)·stride + kernel - pads + output padding
        p.spatial = {{5, 10, 3, 2, 1, 1, 1}, {4, 8, 2, 2, 1, 0, 0}};
        checkConv(p, true, "stride 2");
        p.post = {{PARTITA_POST_RELU}};
        p.spatial = {{5, 9, 3, 1, 2, 0, 0}, {4, 4, 3, 1, 1, 1, 1}};
        checkConv(p, true, "dilated");
      }
}

TEST_CASE("gradient of a filter: groups, dilation, padding, strides, formats") {
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (int64_t src : {PARTITA_FORMAT_CHANNELS_FIRST, PARTITA_FORMAT_CHANNELS_LAST})
      for (int64_t dst : {PARTITA_FORMAT_CHANNELS_FIRST, PARTITA_FORMAT_CHANNELS_LAST}) {
        task::ConvBackwardFilter p;
        p.dtype = static_cast<uint8_t>(type);
        p.src_format = static_cast<uint8_t>(src);
        p.dst_format = static_cast<uint8_t>(dst);
        p.batch = 2, p.in_channels = 3, p.out_channels = 16;
        p.spatial = {window(9, 3, 1, 1, 1, 1), window(8, 3, 2, 1, 0, 1)};
        checkBackwardFilter(p, "3x3");
        p.in_channels = p.out_channels = p.groups = 16;
        checkBackwardFilter(p, "depthwise");
        p.groups = 4;
        p.spatial = {window(9, 3, 1, 2, 2, 2), window(9, 2, 3, 1, 0, 0)};
        checkBackwardFilter(p, "grouped, dilated");
        p.groups = 1;
        p.spatial = {window(17, 3, 2, 1, 1, 0)};
        checkBackwardFilter(p, "1-d, the last element is in no window");
        p.spatial = {window(5, 1, 2, 1, 0, 0), window(6, 1, 2, 1, 0, 0)};
        checkBackwardFilter(p, "1x1 with a stride");
        p.spatial = {window(4, 2, 1, 1, 0, 0), window(5, 2, 1, 1, 1, 0),
                     window(3, 3, 1, 1, 1, 1)};
        checkBackwardFilter(p, "3-d");
      }
}

TEST_CASE("pool: maximum and both averages, with ceiling") {
  for (DType type : {DType::F32, DType::F64, DType::BF16, DType::I8})
    for (int64_t format : {PARTITA_FORMAT_CHANNELS_FIRST, PARTITA_FORMAT_CHANNELS_LAST})
      for (int64_t mode = 0; mode < PARTITA_NUM_POOLS; ++mode)
        for (bool ceiling : {false, true}) {
          task::Pool p;
          p.dtype = static_cast<int64_t>(type), p.mode = mode;
          p.batch = 2, p.channels = 5, p.src_format = p.dst_format = format;
          p.spatial = {window(10, 3, 2, 1, 1, 1), window(9, 2, 2, 1, 0, 0)};
          if (ceiling) // one window more, which begins inside the image
            p.spatial[1].out += 1;
          std::vector<int64_t> in = {10, 9}, out = {p.spatial[0].out, p.spatial[1].out};
          Buffer src(type, 2 * 5 * 90), dst(type, 2 * 5 * elementCount(out));
          src.fill(3);
          Prepared run(p, {src.data, dst.data, nullptr}, task::PoolScratch);
          double worst = 0;
          for (int64_t n = 0; n < 2; ++n)
            for (int64_t c = 0; c < 5; ++c)
              forAll(out, [&](const std::vector<int64_t> &at) {
                double sum = 0, best = -1e30;
                int64_t inside = 0, padded = 0;
                forAll({3, 2}, [&](const std::vector<int64_t> &k) {
                  std::vector<int64_t> from(2);
                  bool valid = true, counted = true;
                  for (size_t d = 0; d < 2; ++d) {
                    auto &s = p.spatial[d];
                    from[d] = at[d] * s.stride - s.padBegin + k[d];
                    valid &= from[d] >= 0 && from[d] < s.in;
                    counted &= from[d] < s.in + s.padEnd;
                  }
                  padded += counted;
                  if (!valid)
                    return;
                  double x = src.get(place(format, 5, in, n, c, from));
                  sum += x, best = std::max(best, x), ++inside;
                });
                double expected = mode == PARTITA_POOL_MAX ? best
                                  : mode == PARTITA_POOL_AVG_INCLUDE
                                      ? sum / static_cast<double>(padded)
                                      : sum / static_cast<double>(inside);
                if (!isFloat(type))
                  expected = std::trunc(expected);
                double got = dst.get(place(format, 5, out, n, c, at));
                worst = std::max(worst, std::fabs(got - expected));
              });
          INFO(name(type) << " mode " << mode << " format " << format << " ceiling "
                          << ceiling << " by " << run.call->implementation());
          CHECK(worst <= tolerance(type));
        }
}

//===----------------------------------------------------------------------===//
// Loops on a team
//===----------------------------------------------------------------------===//

/// The result of the loops for this call on a team of so many threads.
static std::vector<std::byte> byLoops(const task::Params &params, size_t result,
                                      int team) {
  auto needs = task::operandNeeds(params, *Mesh::parse(""));
  REQUIRE(needs);
  std::vector<Buffer> buffers;
  std::vector<void *> operands;
  for (size_t i = 0; i < needs->size(); ++i) {
    buffers.emplace_back(DType::F32, static_cast<int64_t>((*needs)[i].bytes / 4));
    buffers.back().fill(static_cast<unsigned>(i) + 1);
  }
  for (Buffer &buffer : buffers)
    operands.push_back(buffer.data);
  runtime::setTeamSize(team);
  auto call = plain::loops().create(params, nullptr);
  REQUIRE(call);
  auto frame = (*call)->frame();
  REQUIRE((*call)->run(**frame, operands, nullptr));
  runtime::setTeamSize(1);
  auto *bytes = static_cast<const std::byte *>(operands[result]);
  return {bytes, bytes + (*needs)[result].bytes};
}

TEST_CASE("loops on a team give the same bits") {
  task::MatMul product = sized(DType::F32, 50, 64, 64);
  product.batch = {{3, 3200, 4096, 3200}};
  product.bias_mask = 1;
  product.post = {{PARTITA_POST_BINARY_ADD, 0, 0, 6}, {PARTITA_POST_RELU}};
  task::Conv conv;
  conv.batch = 2, conv.in_channels = 8, conv.out_channels = 12;
  conv.spatial = {{16, 16, 3, 1, 1, 1, 1}, {16, 16, 3, 1, 1, 1, 1}};
  conv.dst_format = PARTITA_FORMAT_CHANNELS_LAST;
  conv.post = {{PARTITA_POST_CLIP, -1, 1}, {PARTITA_POST_BINARY_MUL, 0, 0, 2}};
  task::ConvBackwardFilter filter;
  filter.batch = 2, filter.in_channels = 8, filter.out_channels = 12;
  filter.spatial = conv.spatial;
  task::Pool pool;
  pool.batch = 2, pool.channels = 5;
  pool.spatial = {{64, 64, 3, 1, 1, 1, 1}, {64, 64, 3, 1, 1, 1, 1}};
  for (auto [params, result] :
       {std::pair(task::Params(product), size_t(task::MatMulC)),
        std::pair(task::Params(conv), size_t(task::ConvDst)),
        std::pair(task::Params(task::ConvTranspose(conv)), size_t(task::ConvDst)),
        std::pair(task::Params(filter), size_t(task::BackwardFilter)),
        std::pair(task::Params(pool), size_t(task::PoolDst))}) {
    auto one = byLoops(params, result, 1);
    for (int team : {2, 3})
      CHECK(byLoops(params, result, team) == one);
  }
}
