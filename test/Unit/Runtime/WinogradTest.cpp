//===- WinogradTest.cpp - Our own Winograd convolution --------------------===//
//
// Against the direct sum in double, on CPUs with the vectors that the kernels are made
// for, whichever algorithm the engine prefers.
//
//===----------------------------------------------------------------------===//
#include "ConvCheck.h"

#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Winograd.h"

#include <array>

using namespace partita;
using namespace partita::test;

static task::Conv image(int64_t in, int64_t out, task::SpatialDim height,
                        task::SpatialDim width) {
  task::Conv p;
  p.dtype = static_cast<int64_t>(DType::F32);
  p.src_format = p.dst_format = PARTITA_FORMAT_CHANNELS_LAST, p.weights_packed = 1;
  p.batch = 1, p.in_channels = in, p.out_channels = out;
  p.spatial = {height, width};
  return p;
}
static task::SpatialDim padded(int64_t in) { return window(in, 3, 1, 1, 1, 1); }

/// The vectors that this CPU has.
static std::vector<winograd::Vectors> vectors() {
  std::vector<winograd::Vectors> out;
  auto p = image(1, 1, padded(1), padded(1));
  for (auto each : {winograd::Vectors::Of256Bits, winograd::Vectors::Of512Bits})
    if (winograd::conv(p, each))
      out.push_back(each);
  CHECK(out.empty() == !gemm::isSupported());
  return out;
}

/// With one thread and with three.
static void checkOwn(const task::Conv &p, const std::string &what,
                     bool isTransposed = false) {
  for (winograd::Vectors each : vectors())
    for (int threads : {1, 3}) {
      runtime::setTeamSize(threads);
      std::shared_ptr<const Call> call = winograd::conv(p, each, isTransposed);
      REQUIRE(call);
      INFO(threads << " threads, " << p.in_channels << " to " << p.out_channels
                   << " channels, " << p.spatial[0].in << " x " << p.spatial[1].in);
      checkConv(p, isTransposed, what, call);
    }
  runtime::setTeamSize(1);
}

TEST_CASE("Winograd: channels of any number, images of any size") {
  for (int64_t in : {1, 3, 8, 13, 16, 33})
    for (int64_t out : {1, 7, 8, 16, 21, 40})
      checkOwn(image(in, out, padded(7), padded(6)), "channels");
  for (int64_t height : {1, 2, 3, 4, 9})
    for (int64_t width : {1, 2, 3, 5, 8, 31})
      checkOwn(image(9, 18, padded(height), padded(width)), "pixels");
}

TEST_CASE("Winograd: padding at either end, more or less than the window needs") {
  for (int64_t begin : {0, 1, 2, 3})
    for (int64_t end : {-2, -1, 0, 1, 2, 4}) {
      auto p = image(8, 16, window(7, 3, 1, 1, begin, end), padded(5));
      checkOwn(p, "rows");
      std::swap(p.spatial[0], p.spatial[1]);
      checkOwn(p, "columns");
    }
  // A rank's rows, which come with those of its neighbours.
  checkOwn(image(16, 16, window(9, 3, 1, 1, 0, 0), padded(12)), "a rank in the middle");
  checkOwn(image(16, 16, window(9, 3, 1, 1, 1, 0), padded(12)), "the first rank");
}

TEST_CASE("Winograd: a filter that changes from run to run") {
  for (int64_t in : {1, 13, 16, 33})
    for (int64_t out : {1, 7, 16, 21, 40}) {
      auto p = image(in, out, padded(7), padded(6));
      p.weights_packed = 0;
      checkOwn(p, "channels");
    }
  auto p = image(330, 50, padded(15), padded(16));
  p.weights_packed = 0, p.batch = 2, p.has_bias = 1;
  p.post = {{PARTITA_POST_RELU}};
  checkOwn(p, "many of all, a bias, relu");
}

TEST_CASE("Winograd: the gradient of a convolution's images") {
  auto transposed = [](int64_t in, int64_t begin, int64_t end) {
    return task::SpatialDim{in, in + 2 - begin - end, 3, 1, 1, begin, end};
  };
  for (int64_t begin : {0, 1, 2})
    for (int64_t end : {0, 1, 2}) {
      auto p = image(13, 21, transposed(6, begin, end), transposed(9, end, begin));
      p.weights_packed = 0;
      checkOwn(p, "paddings", true);
    }
  for (int64_t in : {1, 16, 33})
    for (int64_t out : {1, 8, 40}) {
      auto p = image(in, out, transposed(5, 1, 1), transposed(4, 1, 1));
      p.weights_packed = 0, p.batch = 3, p.adds_to_result = in == 16;
      checkOwn(p, "channels", true);
    }
  auto p = image(330, 50, transposed(15, 1, 1), transposed(16, 1, 1));
  p.weights_packed = 0;
  checkOwn(p, "many of both", true);
}

/// The gradient of the filter, with one thread and with three, which give the same bits.
static void checkGradient(const task::ConvBackwardFilter &p, const std::string &what) {
  for (winograd::Vectors each : vectors())
    for (int threads : {1, 3}) {
      runtime::setTeamSize(threads);
      std::shared_ptr<const Call> call = winograd::filterGradient(p, each);
      REQUIRE(call);
      INFO(threads << " threads, " << p.in_channels << " to " << p.out_channels);
      checkBackwardFilter(p, what, call);
    }
  runtime::setTeamSize(1);
}

TEST_CASE("Winograd: the gradient of a filter") {
  task::ConvBackwardFilter p;
  p.dtype = static_cast<uint8_t>(DType::F32);
  p.src_format = p.dst_format = PARTITA_FORMAT_CHANNELS_LAST;
  p.batch = 2;
  for (int64_t in : {1, 13, 16, 33})
    for (int64_t out : {1, 7, 16, 25}) {
      p.in_channels = in, p.out_channels = out;
      p.spatial = {padded(7), padded(6)};
      checkGradient(p, "channels");
    }
  p.in_channels = 9, p.out_channels = 18;
  for (int64_t begin : {0, 1, 2})
    for (int64_t end : {-1, 0, 1, 3}) {
      p.spatial = {window(7, 3, 1, 1, begin, end), window(5, 3, 1, 1, end + 1, begin)};
      checkGradient(p, "paddings");
    }
  for (int64_t size : {1, 2, 5}) {
    p.spatial = {padded(size), padded(size)};
    checkGradient(p, "small images");
  }
  p.in_channels = 100, p.out_channels = 40, p.batch = 3;
  p.spatial = {padded(23), padded(20)};
  checkGradient(p, "several blocks");
}

TEST_CASE("Winograd: the gradient of a filter is the same for all teams and vectors") {
  if (!gemm::isSupported())
    return;
  task::ConvBackwardFilter p;
  p.dtype = static_cast<uint8_t>(DType::F32);
  p.src_format = p.dst_format = PARTITA_FORMAT_CHANNELS_LAST;
  p.batch = 2, p.in_channels = 50, p.out_channels = 70;
  p.spatial = {padded(21), padded(18)};
  std::vector<Buffer> results;
  for (winograd::Vectors each : vectors())
    for (int threads : {1, 2, 5}) {
      Buffer src(DType::F32, 2 * 50 * 21 * 18), dst(DType::F32, 2 * 70 * 21 * 18);
      Buffer filter(DType::F32, 50 * 70 * 9);
      src.fill(1), dst.fill(2);
      for (int64_t i = 0; i < dst.count; ++i)
        dst.set(i, dst.get(i) / 3);
      runtime::setTeamSize(threads);
      std::shared_ptr<const Call> call = winograd::filterGradient(p, each);
      Prepared run(p, {src.data, dst.data, filter.data, nullptr}, task::BackwardScratch,
                   call);
      runtime::setTeamSize(1);
      results.push_back(std::move(filter));
      CHECK(std::memcmp(results[0].data, results.back().data,
                        static_cast<size_t>(4 * results[0].count)) == 0);
    }
}

TEST_CASE("Winograd: several blocks of tiles and of summands, a batch of images") {
  auto p = image(400, 20, padded(6), padded(7));
  p.batch = 3;
  checkOwn(p, "many channels");
  p = image(64, 33, padded(29), padded(30));
  p.batch = 2;
  checkOwn(p, "many tiles");
  p = image(330, 16, padded(15), padded(16));
  checkOwn(p, "many of both");
}

TEST_CASE("Winograd: every post-op, with operands of every form") {
  auto p = image(12, 20, padded(7), padded(9));
  p.batch = 2;
  for (int64_t bias : {0, 1})
    for (int64_t adds : {0, 1}) {
      p.has_bias = bias, p.adds_to_result = adds;
      p.post = {};
      checkOwn(p, "plain");
      p.post = {{PARTITA_POST_RELU}};
      checkOwn(p, "relu");
      p.post = {{PARTITA_POST_RELU, 0.5f}};
      checkOwn(p, "relu with a slope");
      p.post = {{PARTITA_POST_RELU}, {PARTITA_POST_LINEAR, -2, 1}, {PARTITA_POST_RELU}};
      checkOwn(p, "relu, linear, relu");
      p.post = {{PARTITA_POST_CLIP, 0, 6}, {PARTITA_POST_HARDSIGMOID, 0.2f, 0.5f}};
      checkOwn(p, "clip, hardsigmoid");
      p.post = {{PARTITA_POST_HARDSWISH}};
      checkOwn(p, "hardswish");
      for (int64_t mask = 0; mask < 16; ++mask) {
        p.post = {{PARTITA_POST_BINARY_ADD, 0, 0, mask}, {PARTITA_POST_RELU}};
        checkOwn(p, "add, relu, mask " + std::to_string(mask));
      }
      p.post = {{PARTITA_POST_RELU},
                {PARTITA_POST_BINARY_MUL, 0, 0, 2},
                {PARTITA_POST_BINARY_SUB, 0, 0, 15}};
      checkOwn(p, "relu, multiply by channel, subtract");
    }
}

namespace {
/// The result for a team of some threads.
struct Result {
  Buffer src, filter, dst;
  Result(const task::Conv &p, winograd::Vectors vectors, int threads,
         std::pair<int64_t, float> put = {-1, 0.0f})
      : src(DType::F32, p.batch * p.in_channels * p.spatial[0].in * p.spatial[1].in),
        filter(DType::F32, p.in_channels * p.out_channels * 9),
        dst(DType::F32, p.batch * p.out_channels * p.spatial[0].out * p.spatial[1].out) {
    src.fill(1);
    filter.fill(2);
    // Which has rounding errors.
    for (int64_t i = 0; i < filter.count; ++i)
      filter.set(i, filter.get(i) / 3);
    if (put.first >= 0)
      src.set(put.first, put.second);
    runtime::setTeamSize(threads);
    std::shared_ptr<const Call> call = winograd::conv(p, vectors);
    REQUIRE(call);
    Prepared run(p, {src.data, filter.data, dst.data, nullptr, nullptr},
                 task::ConvScratch, call);
    runtime::setTeamSize(1);
  }
};
} // namespace

TEST_CASE("Winograd: the same bits for any number of threads, and for all vectors") {
  for (auto [channels, size] : {std::array<int64_t, 2>{64, 40}, {330, 10}}) {
    auto p = image(channels, 50, padded(size), padded(size + 1));
    if (!gemm::isSupported())
      return;
    Result one(p, winograd::Vectors::Of256Bits, 1);
    for (winograd::Vectors each : vectors())
      for (int threads : {1, 2, 3, 5}) {
        Result many(p, each, threads);
        auto bytes = static_cast<size_t>(4 * one.dst.count);
        CHECK(std::memcmp(one.dst.data, many.dst.data, bytes) == 0);
      }
  }
}

TEST_CASE("Winograd: errors are at most twice those of sums in f32") {
  for (auto [channels, size] : {std::array<int64_t, 2>{32, 20}, {128, 7}, {512, 4}})
    for (winograd::Vectors each : vectors()) {
      auto p = image(channels, 16, padded(size), padded(size));
      p.weights_packed = 0;
      Result own(p, each, 1);
      double squares = 0, direct = 0;
      forAll({size, size, 16}, [&](const std::vector<int64_t> &at) {
        double exact = 0;
        float sum = 0;
        for (int64_t tap = 0; tap < 9; ++tap) {
          const int64_t row = at[0] + tap / 3 - 1, column = at[1] + tap % 3 - 1;
          if (std::min(row, column) < 0 || std::max(row, column) >= size)
            continue;
          for (int64_t c = 0; c < channels; ++c) {
            const double x = own.src.get((row * size + column) * channels + c),
                         w = own.filter.get((at[2] * channels + c) * 9 + tap);
            exact += x * w;
            sum = std::fma(static_cast<float>(x), static_cast<float>(w), sum);
          }
        }
        const double found = own.dst.get((at[0] * size + at[1]) * 16 + at[2]);
        squares += (found - exact) * (found - exact);
        direct += (static_cast<double>(sum) - exact) * (static_cast<double>(sum) - exact);
      });
      INFO(channels << " channels: " << std::sqrt(squares / direct));
      CHECK(squares <= 4 * direct);
    }
}

TEST_CASE("Winograd: what lies behind the last result is not read into it") {
  // The tile of the last row and column reads a row and a column that no result has.
  auto p = image(8, 16, window(8, 3, 1, 1, 1, -2), window(8, 3, 1, 1, 1, -2));
  REQUIRE(p.spatial[0].out == 5);
  for (winograd::Vectors each : vectors()) {
    for (int64_t pixel = 0; pixel < 64; ++pixel)
      if (pixel / 8 >= 6 || pixel % 8 >= 6) {
        Result nan(p, each, 1, {pixel * 8, std::nanf("")});
        for (int64_t i = 0; i < nan.dst.count; ++i)
          REQUIRE_FALSE(std::isnan(nan.dst.get(i)));
      }
    task::Conv relu = p;
    relu.post = {{PARTITA_POST_RELU}};
    Result nan(relu, each, 1, {0, std::nanf("")});
    CHECK(std::isnan(nan.dst.get(0)));
  }
}

TEST_CASE("Winograd: one packed form for images of all sizes and teams") {
  if (!gemm::isSupported())
    return;
  auto p = image(64, 70, padded(20), padded(20));
  std::shared_ptr<const Call> small = winograd::conv(p, winograd::Vectors::Of256Bits);
  p.spatial = {padded(50), padded(60)};
  runtime::setTeamSize(2);
  std::shared_ptr<const Call> large = winograd::conv(p, winograd::Vectors::Of256Bits);
  runtime::setTeamSize(1);
  CHECK(small->form() == large->form());
  if (auto wide = winograd::conv(p, winograd::Vectors::Of512Bits)) {
    CHECK(wide->form() == small->form());
    CHECK(wide->sizes().packed == small->sizes().packed);
  }
  CHECK(winograd::isForm(small->form()));
  CHECK(small->sizes().packed == 4 * 16 * 64 * 80);
  CHECK(large->sizes().packed == small->sizes().packed);
  CHECK(large->sizes().scratch > small->sizes().scratch);
  p.out_channels = 64;
  CHECK(winograd::conv(p, winograd::Vectors::Of256Bits)->form() != small->form());
}

TEST_CASE("Winograd: what is left to others") {
  if (!gemm::isSupported())
    return;
  const auto all = image(64, 64, padded(20), padded(20));
  CHECK(winograd::conv(all, winograd::Vectors::Of256Bits));
  auto without = [&](auto change) {
    auto p = all;
    change(p);
    return winograd::conv(p, winograd::Vectors::Of256Bits) == nullptr;
  };
  CHECK(without([](auto &p) { p.dtype = static_cast<int64_t>(DType::F64); }));
  CHECK(without([](auto &p) { p.groups = 2; }));
  CHECK_FALSE(winograd::conv(all, winograd::Vectors::Of256Bits, true)); // constant
  CHECK(without([](auto &p) { p.src_format = PARTITA_FORMAT_CHANNELS_FIRST; }));
  CHECK(without([](auto &p) { p.dst_format = PARTITA_FORMAT_CHANNELS_FIRST; }));
  CHECK(without([](auto &p) { p.spatial[1] = window(20, 3, 2, 1, 1, 1); }));
  CHECK(without([](auto &p) { p.spatial[0] = window(20, 3, 1, 2, 1, 1); }));
  CHECK(without([](auto &p) { p.spatial[0] = window(20, 5, 1, 1, 2, 2); }));
  CHECK(without([](auto &p) { p.spatial.pop_back(); }));
  CHECK(without([](auto &p) { p.spatial.push_back(padded(20)); }));
}

TEST_CASE("Winograd: chosen by the code's vectors, not by the machine that runs it") {
  if (!gemm::isSupported())
    return;
  auto p = image(64, 64, padded(20), padded(20));
  const engine::Engine &engine = onednn::engineFor({"avx2", "fma"});
  auto made = engine.create(p);
  REQUIRE(made);
  auto own = winograd::conv(p, winograd::Vectors::Of256Bits);
  CHECK((*made)->implementation() == own->implementation());
  CHECK((*made)->sizes().scratch == own->sizes().scratch);
  CHECK((*made)->form() == own->form());
  // Another entry of the bundle, whose image is too small by itself, has the same filter.
  p.spatial = {padded(4), padded(4)};
  auto small = engine.create(p, &own->form());
  REQUIRE(small);
  CHECK((*small)->implementation() == own->implementation());
  CHECK((*engine.create(p))->implementation() != own->implementation());
  p = image(8, 64, padded(20), padded(20));
  CHECK((*engine.create(p))->implementation() != own->implementation());
  // f16 is computed in f32, by the same kernels.
  p = image(64, 64, padded(20), padded(20));
  p.dtype = static_cast<int64_t>(DType::F16);
  CHECK((*engine.create(p))->implementation() == "widened " + own->implementation());
}
