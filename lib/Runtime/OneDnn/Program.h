//===- Program.h - A few oneDNN primitives in a row -------------*- C++ -*-===//
//
// The C API, because it returns status codes where the C++ one throws.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_ONEDNN_PROGRAM_H
#define PARTITA_LIB_RUNTIME_ONEDNN_PROGRAM_H

#include "partita/Runtime/OneDnn.h"
#include "partita/Runtime/Plain.h"

#include <oneapi/dnnl/dnnl.h>

#include <optional>
#include <vector>

namespace partita::onednn {

using engine::Call;
using engine::WeightForm;

/// Owns one oneDNN object.
template <typename T, dnnl_status_t (*Destroy)(T)> class Handle {
public:
  Handle() = default;
  explicit Handle(T object) : object(object) {}
  Handle(Handle &&other) noexcept : object(other.object) { other.object = nullptr; }
  Handle &operator=(Handle &&other) noexcept {
    std::swap(object, other.object);
    return *this;
  }
  ~Handle() {
    if (object)
      Destroy(object);
  }
  T get() const { return object; }
  T *put() { return &object; }
  explicit operator bool() const { return object != nullptr; }

private:
  T object = nullptr;
};
using PrimitiveDesc = Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Primitive = Handle<dnnl_primitive_t, dnnl_primitive_destroy>;
using Memory = Handle<dnnl_memory_t, dnnl_memory_destroy>;
using Attr = Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Handle<dnnl_post_ops_t, dnnl_post_ops_destroy>;

/// The CPU engine and a stream, one per process: streams have no state on the CPU.
dnnl_engine_t cpuEngine();
dnnl_stream_t cpuStream();

/// oneDNN's name of the type; nothing if it has none.
std::optional<dnnl_data_type_t> dataType(int64_t dtype);

using Dims = std::vector<int64_t>;
/// A strided descriptor. `strides` empty: dense row-major.
dnnl_memory_desc_t describe(const Dims &dims, dnnl_data_type_t type, Dims strides = {});
/// One whose memory form the primitive chooses.
dnnl_memory_desc_t describeAny(const Dims &dims, dnnl_data_type_t type);
Dims rowMajor(const Dims &dims);

/// Where an argument lies.
struct Place {
  enum Where { Operand, Packed, Scratch } where;
  uint64_t at; ///< operand index or scratch offset
};

struct Argument {
  int id; ///< DNNL_ARG_…
  dnnl_memory_desc_t desc;
  Place place;
};

/// The operand of a binary post-op as the table stores it: dense over the dims in the
/// mask, `order` outer to inner (empty: as numbered).
dnnl_memory_desc_t describeOperand(const task::PostOp &op, const Dims &dims,
                                   dnnl_data_type_t type,
                                   const std::vector<size_t> &order = {});

/// Attributes with user scratchpad and these post-ops; `operands` are the descriptors of
/// the binary ones. `addsToResult`: first of all, what the result holds is added. Nothing
/// if a post-op has no counterpart.
std::optional<Attr> makeAttr(const std::vector<task::PostOp> &post,
                             const std::vector<dnnl_memory_desc_t> &operands = {},
                             bool addsToResult = false);

/// Name of the implementation; "ref…" ones are as slow as plain loops.
std::string implementationOf(const PrimitiveDesc &desc);
const dnnl_memory_desc_t &queryDesc(const PrimitiveDesc &desc, dnnl_query_t what);

class Program : public Call {
public:
  explicit Program(size_t scratchOperand) : scratchOperand(scratchOperand) {}
  /// Reserves scratch; returns its place.
  Place scratch(uint64_t bytes);
  /// Appends a primitive; its own scratchpad is added. False if oneDNN refuses.
  bool add(const PrimitiveDesc &desc, std::vector<Argument> arguments);
  /// Appends a copy between two memory forms.
  bool addReorder(const dnnl_memory_desc_t &from, Place source,
                  const dnnl_memory_desc_t &to, Place target);
  /// Declares that the weight is kept as `to`, repacked at load from `from`.
  bool packWeight(const dnnl_memory_desc_t &from, const dnnl_memory_desc_t &to);
  /// What packWeight was given.
  const dnnl_memory_desc_t &packedAs() const { return packTo; }
  /// Post-ops done by plain loops after the last primitive.
  void addPost(plain::Post post) { posts.push_back(std::move(post)); }
  void describeAs(std::string text) { name = std::move(text); }

  Expected<void> pack(const void *raw, void *packed) const override;
  Expected<std::unique_ptr<Weight>> describe(void *packed) const override;
  Expected<std::unique_ptr<Frame>> frame() const override;
  bool run(Frame &frame, std::span<void *const> operands,
           const Weight *weight) const noexcept override;
  std::string implementation() const override { return name; }

private:
  struct Step {
    Primitive primitive;
    std::vector<Argument> arguments;
  };
  size_t scratchOperand;
  std::vector<Step> steps;
  std::vector<plain::Post> posts;
  dnnl_memory_desc_t packFrom{}, packTo{};
  std::string name;
};

/// The bytes of a descriptor: plain data, zero-filled before use.
std::string bytesOf(const dnnl_memory_desc_t &desc);
/// The form that a weight stored as `stored` is asked for in: the given one, or whichever
/// the primitive chooses. Nothing if the given one is of another weight.
std::optional<dnnl_memory_desc_t> wantedForm(const dnnl_memory_desc_t &stored,
                                             dnnl_data_type_t type,
                                             const WeightForm *form);

/// Whether oneDNN computes with vectors of 512 bits, for which it has fast products of
/// any shape. As oneDNN sees the CPU: it can be told to see less (ONEDNN_MAX_CPU_ISA).
bool hasWideVectors();
/// Whether oneDNN sums products of bytes without saturation on the way (VNNI).
bool multipliesBytes();

/// Element types of the operands and of the result.
struct Types {
  dnnl_data_type_t a, b, c;
};
/// Types of a MatMul or a Conv. Nothing where oneDNN has no such product, or not an exact
/// one: without VNNI its sums of two products of bytes saturate at 16 bits.
template <typename P> std::optional<Types> typesOf(const P &p) {
  if (!task::isOfBytes(p)) {
    auto type = dataType(p.dtype);
    return type ? std::optional(Types{*type, *type, *type}) : std::nullopt;
  }
  if (task::rhsType(p) != DType::I8 || !multipliesBytes())
    return std::nullopt;
  return Types{task::lhsType(p) == DType::I8 ? dnnl_s8 : dnnl_u8, dnnl_s8, dnnl_s32};
}

/// An error where a form is given for which oneDNN has nothing better than loops.
using MadeCall = Expected<std::unique_ptr<Call>>;
MadeCall createMatMul(const task::MatMul &params, const WeightForm *form,
                      Products products);
MadeCall createConv(const task::Conv &params, bool transposed, const WeightForm *form,
                    Products products);
MadeCall createConvBackwardFilter(const task::ConvBackwardFilter &params,
                                  Products products);
MadeCall createPool(const task::Pool &params);

/// The same call in f32 around 16-bit operands, which are widened into scratch and whose
/// result is rounded once (Widened.cpp). `params` are those of the 16-bit call.
MadeCall createWidened(const task::Params &params, const WeightForm *form,
                       Products products);
/// Whether the form is one that createWidened made.
bool isWidened(const WeightForm &form);

} // namespace partita::onednn

#endif // PARTITA_LIB_RUNTIME_ONEDNN_PROGRAM_H
