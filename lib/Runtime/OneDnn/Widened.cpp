//===- Widened.cpp - 16-bit floats computed in f32 ------------------------===//
//
// oneDNN has no f16 (and, on older CPUs, no fast bf16) products. The f32 call with the
// same strides works on copies of the operands that differ only in element width, so
// nothing about geometry is said twice.
//
//===----------------------------------------------------------------------===//
#include "Program.h"

#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace partita;
using namespace partita::onednn;

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static int64_t
widenHalfFast(const uint16_t *from, float *to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                 reinterpret_cast<const __m128i *>(from + i))));
  return i;
}

__attribute__((target("avx,f16c"))) static int64_t
narrowHalfFast(const float *from, uint16_t *to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(
        reinterpret_cast<__m128i *>(to + i),
        _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}

static bool hasF16c() { return __builtin_cpu_supports("f16c"); }
#else
static int64_t widenHalfFast(const uint16_t *, float *, int64_t) { return 0; }
static int64_t narrowHalfFast(const float *, uint16_t *, int64_t) { return 0; }
static bool hasF16c() { return false; }
#endif

static void widen(DType type, const void *source, void *target, int64_t count) {
  auto *from = static_cast<const uint16_t *>(source);
  auto *to = static_cast<float *>(target);
  if (type == DType::BF16) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = bfloat16ToFloat(from[i]);
    return;
  }
  for (int64_t i = hasF16c() ? widenHalfFast(from, to, count) : 0; i < count; ++i)
    to[i] = halfToFloat(from[i]);
}

static void narrow(DType type, const void *source, void *target, int64_t count) {
  auto *from = static_cast<const float *>(source);
  auto *to = static_cast<uint16_t *>(target);
  if (type == DType::BF16) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = floatToBfloat16(from[i]);
    return;
  }
  for (int64_t i = hasF16c() ? narrowHalfFast(from, to, count) : 0; i < count; ++i)
    to[i] = floatToHalf(from[i]);
}

namespace {

static_assert(size_t(task::MatMulB) == size_t(task::ConvWeights));

uint64_t rounded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Before the forms of the f32 call, so that they are not taken for those of others.
constexpr const char *mark = "widened ";

/// The f32 weight where the f32 call takes it as it is.
struct WideWeight : Call::Weight {
  void *address;
  explicit WideWeight(void *address) : address(address) {}
};

struct WideFrame : Call::Frame {
  std::unique_ptr<Call::Frame> inner;
  std::vector<void *> operands;
};

class Widened : public Call {
public:
  Widened(TaskKind kind, DType type, std::shared_ptr<const Call> inner,
          std::vector<int64_t> counts, bool packs)
      : type(type), scratch(scratchOperand(kind)), result(resultOperand(kind)),
        inner(std::move(inner)), counts(std::move(counts)), packs(packs) {
    engine::Sizes own = this->inner->sizes();
    // The f32 weight is kept, repacked or not, where the 16-bit one is a constant.
    if (packs) {
      memory.packed = own.packed ? own.packed : rounded(4 * weightCount());
      const WeightForm &form = this->inner->form();
      weightForm = {mark + std::to_string(static_cast<int>(type)) + " " + form.stored,
                    mark + form.packed};
    }
    memory.scratch = rounded(own.scratch);
    for (size_t i = 0; i < this->counts.size(); ++i)
      if (copied(i))
        memory.scratch += rounded(4 * static_cast<uint64_t>(this->counts[i]));
  }

  Expected<void> pack(const void *raw, void *packed) const override {
    if (inner->sizes().packed == 0) {
      widen(type, raw, packed, static_cast<int64_t>(weightCount()));
      return {};
    }
    // At load only.
    std::unique_ptr<float[]> copy(new float[weightCount()]);
    widen(type, raw, copy.get(), static_cast<int64_t>(weightCount()));
    return inner->pack(copy.get(), packed);
  }

  Expected<std::unique_ptr<Weight>> describe(void *packed) const override {
    if (inner->sizes().packed != 0)
      return inner->describe(packed);
    return std::make_unique<WideWeight>(packed);
  }

  Expected<std::unique_ptr<Frame>> frame() const override {
    auto own = inner->frame();
    if (!own)
      return own;
    auto frame = std::make_unique<WideFrame>();
    frame->inner = std::move(*own);
    frame->operands.resize(counts.size());
    return frame;
  }

  bool run(Frame &room, std::span<void *const> list,
           const Weight *weight) const noexcept override {
    auto &frame = static_cast<WideFrame &>(room);
    auto *place = static_cast<std::byte *>(list[scratch]);
    frame.operands[scratch] = place;
    place += rounded(inner->sizes().scratch);
    // The result too: elements between its strides must come back unchanged.
    for (size_t i = 0; i < counts.size(); ++i) {
      if (!copied(i) || !list[i])
        continue;
      frame.operands[i] = place;
      widen(type, list[i], place, counts[i]);
      place += rounded(4 * static_cast<uint64_t>(counts[i]));
    }
    if (packs && inner->sizes().packed == 0)
      frame.operands[task::MatMulB] = static_cast<const WideWeight *>(weight)->address;
    if (!inner->run(*frame.inner, frame.operands, weight))
      return false;
    narrow(type, frame.operands[result], list[result], counts[result]);
    return true;
  }

  std::string implementation() const override {
    return "widened " + inner->implementation();
  }

private:
  uint64_t weightCount() const { return static_cast<uint64_t>(counts[task::MatMulB]); }
  /// Whether the operand has an f32 copy in scratch.
  bool copied(size_t i) const { return i != scratch && !(packs && i == task::MatMulB); }

  DType type;
  size_t scratch, result; ///< operands
  std::shared_ptr<const Call> inner;
  std::vector<int64_t> counts; ///< elements per operand
  bool packs;
};

} // namespace

bool onednn::isWidened(const WeightForm &form) { return form.packed.starts_with(mark); }

/// The parameters of the same call in f32.
static task::Params widenedParams(task::Params params) {
  std::visit(
      [](auto &p) {
        if constexpr (requires { p.dtype; })
          p.dtype = PARTITA_DTYPE_F32;
      },
      params);
  return params;
}

static bool packsWeight(const task::Params &params) {
  if (auto *matmul = std::get_if<task::MatMul>(&params))
    return matmul->b_packed;
  return std::visit(
      [](const auto &p) {
        if constexpr (requires { p.weights_packed; })
          return p.weights_packed;
        return false;
      },
      params);
}

static DType typeOf(const task::Params &params) {
  return std::visit(
      [](const auto &p) {
        if constexpr (requires { p.dtype; })
          return static_cast<DType>(p.dtype);
        return DType::F32;
      },
      params);
}

MadeCall onednn::createWidened(const task::Params &params, const WeightForm *form,
                               Products products) {
  auto needs = task::operandNeeds(params, Mesh());
  if (!needs)
    return tl::unexpected(needs.error());
  DType type = typeOf(params);
  std::optional<WeightForm> own;
  if (form) {
    std::string before = mark + std::to_string(static_cast<int>(type)) + " ";
    if (!form->stored.starts_with(before))
      return makeError("the weight's form is of another type");
    own = {form->stored.substr(before.size()), form->packed.substr(strlen(mark))};
  }
  bool prescribes = own && !own->packed.empty();
  auto inner =
      oneDnn(products).create(widenedParams(params), prescribes ? &*own : nullptr);
  if (!inner)
    return tl::unexpected(inner.error());
  std::vector<int64_t> counts;
  for (const task::OperandNeed &need : *needs)
    counts.push_back(static_cast<int64_t>(need.bytes / 2));
  return std::make_unique<Widened>(kindOf(params), type, std::move(*inner),
                                   std::move(counts), packsWeight(params));
}
