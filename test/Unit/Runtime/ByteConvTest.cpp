//===- ByteConvTest.cpp - Convolutions and pools of 8-bit integers --------===//
//
// Compares every engine's bits with those of the loops, with the numbers that saturate
// where two products of bytes are added in 16 bits.
//
//===----------------------------------------------------------------------===//
#include "ConvCheck.h"

#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Plain.h"

#include <array>
#include <limits>

using namespace partita;
using namespace partita::test;

namespace {
/// Extremes, in half of the places.
void fillBytes(Buffer &buffer, unsigned seed) {
  std::mt19937 random(seed);
  for (int64_t i = 0; i < buffer.count; ++i) {
    auto byte = static_cast<int>(random() % 256);
    if (random() % 2)
      byte = random() % 2 ? 255 : 0;
    buffer.set(i, buffer.type == DType::I8 ? byte - 128 : byte);
  }
}

/// Gives what the call leaves in operand `result`; the image and the filter end where
/// memory does that it may read.
std::vector<std::byte> resultOf(const engine::Call &call, std::vector<Buffer> &buffers,
                                size_t result, size_t scratchOperand) {
  Buffer scratch(DType::U8, static_cast<int64_t>(call.sizes().scratch));
  Buffer packed(DType::U8, static_cast<int64_t>(call.sizes().packed));
  std::unique_ptr<Call::Weight> weight;
  if (call.sizes().packed) {
    REQUIRE(call.pack(buffers[task::ConvWeights].data, packed.data));
    auto described = call.describe(packed.data);
    REQUIRE(described);
    weight = std::move(*described);
  }
  std::vector<void *> operands;
  for (Buffer &buffer : buffers)
    operands.push_back(buffer.count ? buffer.data : nullptr);
  operands[scratchOperand] = scratch.data;
  Buffer &to = buffers[result];
  const size_t bytes = static_cast<size_t>(to.count) * byteWidth(to.type);
  std::memset(to.data, 0x5a, bytes);
  auto frame = call.frame();
  REQUIRE(frame);
  REQUIRE(call.run(**frame, operands, weight.get()));
  return {to.data, to.data + bytes};
}

task::Conv bytes(DType left, DType right, int64_t in, int64_t out, int64_t groups,
                 std::vector<task::SpatialDim> spatial) {
  task::Conv p;
  p.dtype = PARTITA_DTYPE_I32;
  p.a_dtype = static_cast<uint8_t>(left);
  p.b_dtype = static_cast<uint8_t>(right);
  p.batch = 2, p.in_channels = in, p.out_channels = out, p.groups = groups;
  p.src_format = p.dst_format = PARTITA_FORMAT_CHANNELS_LAST;
  p.spatial = std::move(spatial);
  return p;
}

/// Numbers by which sums become bytes, half of them such that many are between two.
void fillFactors(Buffer &buffer) {
  std::mt19937 random(11);
  for (int64_t i = 0; i < buffer.count; ++i)
    buffer.set(i, random() % 2 ? 1.0 / 4096
                               : static_cast<float>(1 + random() % 1000) / 3e6f);
}

std::vector<Buffer> buffersOf(const task::Conv &p) {
  auto needs = task::operandNeeds(p, *Mesh::parse(""));
  REQUIRE(needs);
  std::vector<Buffer> buffers;
  std::vector<DType> posts;
  auto type = DType::I32;
  for (const task::PostOp &op : p.post) {
    type = task::typeAfter(op.kind, type);
    if (task::isBinary(op.kind))
      posts.push_back(type);
  }
  for (size_t i = 0; i < needs->size(); ++i) {
    DType type = i == task::ConvSrc       ? task::lhsType(p)
                 : i == task::ConvWeights ? task::rhsType(p)
                 : i == task::ConvDst     ? task::resultType(p)
                 : i >= task::ConvPost    ? posts[i - task::ConvPost]
                                          : DType::I32;
    buffers.emplace_back(type, static_cast<int64_t>((*needs)[i].bytes / byteWidth(type)));
    if (type == DType::F32 && i >= task::ConvPost)
      fillFactors(buffers.back());
    else
      fillBytes(buffers.back(), static_cast<unsigned>(i) + 1);
  }
  return buffers;
}

/// Runs by the machine's engine, by kernels of 256 bits, by oneDNN and by loops; with one
/// thread and with three.
void checkAll(task::Conv p, const std::string &what) {
  std::vector<Buffer> buffers = buffersOf(p);
  const auto expected =
      resultOf(*plain::conv(p, false), buffers, task::ConvDst, task::ConvScratch);
  for (int threads : {1, 3}) {
    runtime::setTeamSize(threads);
    for (bool packed : {false, true}) {
      p.weights_packed = packed;
      std::vector<std::shared_ptr<const Call>> calls;
      for (auto who : {onednn::Products::OfMachine, onednn::Products::Own,
                       onednn::Products::OfLibrary}) {
        auto call = onednn::oneDnn(who).create(p);
        REQUIRE(call);
        calls.push_back(*call);
      }
      for (bool isWide : {false, true})
        if (std::shared_ptr<const Call> own = gemm::byteConv(p, isWide))
          calls.push_back(own);
      for (const auto &call : calls) {
        INFO(what << ", " << threads << " threads, packed " << packed << ": "
                  << call->implementation());
        CHECK(resultOf(*call, buffers, task::ConvDst, task::ConvScratch) == expected);
      }
    }
  }
  runtime::setTeamSize(1);
}

constexpr int64_t first = PARTITA_FORMAT_CHANNELS_FIRST,
                  last = PARTITA_FORMAT_CHANNELS_LAST;
} // namespace

TEST_CASE("convolutions of bytes: windows, signs, forms of the images") {
  for (DType left : {DType::U8, DType::I8})
    for (DType right : {DType::I8, DType::U8})
      for (auto [from, to] : {std::pair(last, last), std::pair(first, last),
                              std::pair(last, first), std::pair(first, first)})
        for (int64_t channels : {1, 3, 8, 18})
          for (auto [kernel, stride, dilation, pad] : {std::array<int64_t, 4>{1, 1, 1, 0},
                                                       {1, 2, 1, 0},
                                                       {3, 1, 1, 1},
                                                       {3, 2, 1, 1},
                                                       {2, 1, 3, 2},
                                                       {5, 3, 1, 4}}) {
            task::Conv p = bytes(left, right, channels, 7 * channels, 1,
                                 {window(9, kernel, stride, dilation, pad, pad),
                                  window(8, kernel, 1, dilation, pad, 0)});
            p.src_format = static_cast<uint8_t>(from);
            p.dst_format = static_cast<uint8_t>(to);
            checkAll(p, std::to_string(channels) + " channels, window " +
                            std::to_string(kernel) + ", stride " +
                            std::to_string(stride));
          }
}

TEST_CASE("convolutions of bytes: groups, a filter per channel") {
  for (DType left : {DType::U8, DType::I8})
    for (DType right : {DType::I8, DType::U8})
      for (auto [in, out, groups] : {std::array<int64_t, 3>{8, 8, 4},
                                     {12, 6, 3},
                                     {4, 4, 4},
                                     {16, 16, 16},
                                     {17, 17, 17},
                                     {40, 40, 40},
                                     {16, 32, 16},
                                     {72, 72, 2}})
        for (int64_t stride : {1, 2})
          for (int64_t kernel : {1, 3, 4}) {
            task::Conv p = bytes(
                left, right, in, out, groups,
                {window(9, kernel, stride, 1, 1, 1), window(7, kernel, stride, 2, 2, 1)});
            checkAll(p, std::to_string(in) + " to " + std::to_string(out) +
                            " channels in " + std::to_string(groups) + " groups");
          }
}

TEST_CASE("convolutions of bytes: one and three dims, many blocks and summands") {
  checkAll(bytes(DType::U8, DType::I8, 6, 40, 1, {window(33, 5, 2, 1, 2, 2)}), "a row");
  checkAll(bytes(DType::U8, DType::I8, 6, 10, 1,
                 {window(5, 3, 1, 1, 1, 1), window(6, 2, 1, 1, 0, 0),
                  window(7, 3, 2, 1, 1, 1)}),
           "three dims");
  checkAll(bytes(DType::I8, DType::I8, 20, 20, 20,
                 {window(5, 3, 1, 1, 1, 1), window(6, 2, 1, 1, 0, 0),
                  window(7, 3, 2, 1, 1, 1)}),
           "three dims, a filter per channel");
  checkAll(bytes(DType::U8, DType::I8, 256, 70, 1,
                 {window(17, 3, 1, 1, 1, 1), window(17, 3, 1, 1, 1, 1)}),
           "many summands");
  checkAll(bytes(DType::I8, DType::I8, 64, 100, 1,
                 {window(40, 1, 1, 1, 0, 0), window(40, 1, 1, 1, 0, 0)}),
           "many pixels");
}

namespace {
constexpr float all = std::numeric_limits<float>::infinity();

/// Results that a sum may become; `rank` of the result.
std::vector<std::vector<task::PostOp>> chains(size_t rank) {
  const int64_t whole = (int64_t(1) << rank) - 1, odd = 1 | int64_t(1) << (rank - 1);
  auto binary = [](int64_t kind, int64_t mask) { return task::PostOp{kind, 0, 0, mask}; };
  const task::PostOp toF32{PARTITA_POST_TO_F32}, round{PARTITA_POST_ROUND},
      toU8{PARTITA_POST_TO_U8}, toI8{PARTITA_POST_TO_I8},
      add{binary(PARTITA_POST_BINARY_ADD, 2)}, sub{binary(PARTITA_POST_BINARY_SUB, 2)},
      mul{binary(PARTITA_POST_BINARY_MUL, 2)}, zero{PARTITA_POST_LINEAR, 1, 135},
      bytes{PARTITA_POST_CLIP, 0, 255}, scale{PARTITA_POST_LINEAR, 1.0f / 3000, 0};
  return {{add, toF32, mul, round, zero, bytes, toU8},
          {toF32, mul, round, {PARTITA_POST_CLIP, -128, 127}, toI8},
          {sub, toF32, scale, round, {PARTITA_POST_CLIP, -7, 100}, toI8},
          {toF32, scale, round, {PARTITA_POST_LINEAR, 1, -3}, bytes, toU8},
          {binary(PARTITA_POST_BINARY_ADD, whole), {PARTITA_POST_LINEAR, 1, -99999}},
          {add,
           toF32,
           mul,
           binary(PARTITA_POST_BINARY_ADD, whole),
           {PARTITA_POST_RELU},
           round,
           bytes,
           toU8},
          {toF32, binary(PARTITA_POST_BINARY_MUL, odd), {PARTITA_POST_CLIP, -1, all}},
          {toF32, binary(PARTITA_POST_BINARY_MUL, 0), binary(PARTITA_POST_BINARY_SUB, 1)},
          {toF32, mul, zero, scale, round, bytes, toU8}};
}
} // namespace

TEST_CASE("convolutions of bytes: what sums become") {
  for (auto [in, out, groups] :
       {std::array<int64_t, 3>{5, 20, 1}, {8, 64, 1}, {34, 34, 34}, {4, 40, 2}})
    for (auto [from, to] : {std::pair(last, last), std::pair(first, first)})
      for (DType left : {DType::U8, DType::I8}) {
        task::Conv p = bytes(left, DType::I8, in, out, groups,
                             {window(9, 3, 2, 1, 1, 1), window(7, 3, 1, 1, 1, 1)});
        p.src_format = static_cast<uint8_t>(from),
        p.dst_format = static_cast<uint8_t>(to);
        int number = 0;
        for (const auto &chain : chains(4)) {
          p.post = chain;
          checkAll(p, "chain " + std::to_string(number++) + ", " + std::to_string(out) +
                          " channels in " + std::to_string(groups) + " groups");
        }
      }
  task::Conv row = bytes(DType::U8, DType::I8, 6, 40, 1, {window(33, 5, 2, 1, 2, 2)});
  for (const auto &chain : chains(3)) {
    row.post = chain;
    checkAll(row, "a row");
  }
}

TEST_CASE("convolutions of bytes: what a table may not say of their sums") {
  auto reason = [](std::vector<task::PostOp> post) {
    task::Conv p = bytes(DType::U8, DType::I8, 3, 4, 1, {window(3, 1, 1, 1, 0, 0)});
    p.post = std::move(post);
    auto needs = task::operandNeeds(p, *Mesh::parse(""));
    return needs ? std::string() : needs.error().message;
  };
  const task::PostOp toF32{PARTITA_POST_TO_F32}, toU8{PARTITA_POST_TO_U8};
  CHECK(reason({toF32, {PARTITA_POST_ROUND}, toU8}).empty());
  CHECK(reason({toU8}) == "a post-op of i32 is of kind 10");
  CHECK(reason({{PARTITA_POST_RELU}}) == "a post-op of i32 is of kind 0");
  CHECK(reason({toF32, toF32}) == "a post-op of f32 is of kind 9");
  CHECK(reason({toF32, toU8, {PARTITA_POST_RELU}}) == "a post-op of u8 is of kind 0");
  task::Conv real = bytes(DType::U8, DType::I8, 3, 4, 1, {window(3, 1, 1, 1, 0, 0)});
  real.a_dtype = real.b_dtype = flatbuffers::nullopt;
  real.dtype = PARTITA_DTYPE_F32;
  real.post = {{PARTITA_POST_ROUND}};
  auto needs = task::operandNeeds(real, *Mesh::parse(""));
  REQUIRE(!needs);
  CHECK(needs.error().message == "a post-op is 8, expected 0 to 7");
}

TEST_CASE("maxima of bytes are those of the loops") {
  for (DType type : {DType::U8, DType::I8})
    for (int64_t format : {first, last})
      for (int64_t channels : {1, 3, 16, 70}) {
        task::Pool p;
        p.dtype = static_cast<uint8_t>(type);
        p.mode = PARTITA_POOL_MAX;
        p.batch = 2, p.channels = channels;
        p.src_format = p.dst_format = static_cast<uint8_t>(format);
        p.spatial = {window(12, 3, 2, 1, 1, 1), window(11, 3, 2, 1, 1, 0)};
        std::vector<Buffer> buffers;
        buffers.emplace_back(type, 2 * channels * 12 * 11);
        buffers.emplace_back(type, 2 * channels * p.spatial[0].out * p.spatial[1].out);
        buffers.emplace_back(type, 0);
        fillBytes(buffers[0], 7);
        auto call = onednn::oneDnn().create(p);
        REQUIRE(call);
        INFO(name(type) << ", " << channels << ": " << (*call)->implementation());
        CHECK((*call)->implementation() != "loops");
        CHECK(resultOf(**call, buffers, task::PoolDst, task::PoolScratch) ==
              resultOf(*plain::pool(p), buffers, task::PoolDst, task::PoolScratch));
      }
}
