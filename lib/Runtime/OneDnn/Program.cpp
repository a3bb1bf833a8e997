//===- Program.cpp - A few oneDNN primitives in a row ---------------------===//
#include "Program.h"

#include "partita/Runtime/Gemm.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::onednn;

static dnnl_engine_t makeEngine() {
  dnnl_engine_t engine = nullptr;
  dnnl_engine_create(&engine, dnnl_cpu, 0);
  return engine;
}

dnnl_engine_t onednn::cpuEngine() {
  static dnnl_engine_t engine = makeEngine();
  return engine;
}

static dnnl_stream_t makeStream() {
  dnnl_stream_t stream = nullptr;
  dnnl_stream_create(&stream, cpuEngine(), dnnl_stream_in_order);
  return stream;
}

dnnl_stream_t onednn::cpuStream() {
  static dnnl_stream_t stream = makeStream();
  return stream;
}

std::optional<dnnl_data_type_t> onednn::dataType(int64_t dtype) {
  switch (static_cast<DType>(dtype)) {
  case DType::F32:
    return dnnl_f32;
  case DType::BF16:
    return dnnl_bf16;
  default:
    return std::nullopt;
  }
}

Dims onednn::rowMajor(const Dims &dims) {
  Dims strides(dims.size());
  int64_t step = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    strides[d] = step;
    step *= dims[d];
  }
  return strides;
}

dnnl_memory_desc_t onednn::describe(const Dims &dims, dnnl_data_type_t type,
                                    Dims strides) {
  if (strides.empty())
    strides = rowMajor(dims);
  dnnl_memory_desc_t desc{};
  dnnl_memory_desc_init_by_strides(&desc, static_cast<int>(dims.size()), dims.data(),
                                   type, strides.data());
  return desc;
}

dnnl_memory_desc_t onednn::describeAny(const Dims &dims, dnnl_data_type_t type) {
  dnnl_memory_desc_t desc{};
  dnnl_memory_desc_init_by_tag(&desc, static_cast<int>(dims.size()), dims.data(), type,
                               dnnl_format_tag_any);
  return desc;
}

//===----------------------------------------------------------------------===//
// Post-ops
//===----------------------------------------------------------------------===//

namespace {
struct Eltwise {
  int64_t kind;
  dnnl_alg_kind_t algorithm;
  bool usesAlpha, usesBeta;
};
constexpr Eltwise eltwiseOps[] = {
    {PARTITA_POST_RELU, dnnl_eltwise_relu, true, false},
    {PARTITA_POST_HARDSWISH, dnnl_eltwise_hardswish, false, false},
    {PARTITA_POST_CLIP, dnnl_eltwise_clip, true, true},
    {PARTITA_POST_LINEAR, dnnl_eltwise_linear, true, true},
};

constexpr std::pair<int64_t, dnnl_alg_kind_t> binaryOps[] = {
    {PARTITA_POST_BINARY_ADD, dnnl_binary_add},
    {PARTITA_POST_BINARY_SUB, dnnl_binary_sub},
    {PARTITA_POST_BINARY_MUL, dnnl_binary_mul},
};
} // namespace

static bool appendUnary(dnnl_post_ops_t ops, const task::PostOp &op) {
  auto append = [&](dnnl_alg_kind_t algorithm, float alpha, float beta) {
    return dnnl_post_ops_append_eltwise(ops, 1.0f, algorithm, alpha, beta) ==
           dnnl_success;
  };
  if (op.kind == PARTITA_POST_HARDSIGMOID)
    return append(dnnl_eltwise_linear, op.alpha, op.beta) &&
           append(dnnl_eltwise_clip, 0.0f, 1.0f);
  for (const Eltwise &e : eltwiseOps)
    if (e.kind == op.kind)
      return append(e.algorithm, e.usesAlpha ? op.alpha : 0, e.usesBeta ? op.beta : 0);
  return false;
}

dnnl_memory_desc_t onednn::describeOperand(const task::PostOp &op, const Dims &dims,
                                           dnnl_data_type_t type,
                                           const std::vector<size_t> &order) {
  Dims shape(dims.size(), 1), strides(dims.size(), 1);
  int64_t step = 1;
  for (size_t k = dims.size(); k-- > 0;) {
    size_t d = order.empty() ? k : order[k];
    strides[d] = step;
    if (op.mask >> d & 1)
      step *= shape[d] = dims[d];
  }
  return describe(shape, type, strides);
}

std::optional<Attr> onednn::makeAttr(const std::vector<task::PostOp> &post,
                                     const std::vector<dnnl_memory_desc_t> &operands,
                                     bool addsToResult) {
  Attr attr;
  PostOps ops;
  if (dnnl_primitive_attr_create(attr.put()) != dnnl_success ||
      dnnl_primitive_attr_set_scratchpad_mode(attr.get(), dnnl_scratchpad_mode_user) !=
          dnnl_success ||
      dnnl_post_ops_create(ops.put()) != dnnl_success)
    return std::nullopt;
  if (addsToResult && dnnl_post_ops_append_sum(ops.get(), 1.0f) != dnnl_success)
    return std::nullopt;
  size_t next = 0;
  for (const task::PostOp &op : post) {
    if (!task::isBinary(op.kind)) {
      if (!appendUnary(ops.get(), op))
        return std::nullopt;
      continue;
    }
    const dnnl_memory_desc_t &desc = operands[next++];
    for (const auto &[kind, algorithm] : binaryOps)
      if (kind == op.kind &&
          dnnl_post_ops_append_binary(ops.get(), algorithm, &desc) != dnnl_success)
        return std::nullopt;
  }
  if (dnnl_primitive_attr_set_post_ops(attr.get(), ops.get()) != dnnl_success)
    return std::nullopt;
  return attr;
}

std::string onednn::implementationOf(const PrimitiveDesc &desc) {
  const char *text = "";
  dnnl_primitive_desc_query(desc.get(), dnnl_query_impl_info_str, 0, &text);
  return text;
}

const dnnl_memory_desc_t &onednn::queryDesc(const PrimitiveDesc &desc,
                                            dnnl_query_t what) {
  static const dnnl_memory_desc_t none{};
  const dnnl_memory_desc_t *found = dnnl_primitive_desc_query_md(desc.get(), what, 0);
  return found ? *found : none;
}

//===----------------------------------------------------------------------===//
// Program
//===----------------------------------------------------------------------===//

Place Program::scratch(uint64_t bytes) {
  Place place{Place::Scratch, memory.scratch};
  memory.scratch += (bytes + 63) / 64 * 64;
  return place;
}

bool Program::add(const PrimitiveDesc &desc, std::vector<Argument> arguments) {
  Step step;
  if (dnnl_primitive_create(step.primitive.put(), desc.get()) != dnnl_success)
    return false;
  const dnnl_memory_desc_t &own = queryDesc(desc, dnnl_query_scratchpad_md);
  if (size_t bytes = own.ndims ? dnnl_memory_desc_get_size(&own) : 0)
    arguments.push_back({DNNL_ARG_SCRATCHPAD, own, scratch(bytes)});
  step.arguments = std::move(arguments);
  steps.push_back(std::move(step));
  return true;
}

static bool makeReorder(const dnnl_memory_desc_t &from, const dnnl_memory_desc_t &to,
                        PrimitiveDesc &desc, dnnl_scratchpad_mode_t mode) {
  Attr attr;
  return dnnl_primitive_attr_create(attr.put()) == dnnl_success &&
         dnnl_primitive_attr_set_scratchpad_mode(attr.get(), mode) == dnnl_success &&
         dnnl_reorder_primitive_desc_create(desc.put(), &from, cpuEngine(), &to,
                                            cpuEngine(), attr.get()) == dnnl_success;
}

bool Program::addReorder(const dnnl_memory_desc_t &from, Place source,
                         const dnnl_memory_desc_t &to, Place target) {
  PrimitiveDesc desc;
  return makeReorder(from, to, desc, dnnl_scratchpad_mode_user) &&
         add(desc, {{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, target}});
}

bool Program::packWeight(const dnnl_memory_desc_t &from, const dnnl_memory_desc_t &to) {
  packFrom = from;
  packTo = to;
  memory.packed = (dnnl_memory_desc_get_size(&to) + 63) / 64 * 64;
  weightForm = {bytesOf(from), bytesOf(to)};
  PrimitiveDesc probe;
  return makeReorder(from, to, probe, dnnl_scratchpad_mode_library);
}

std::string onednn::bytesOf(const dnnl_memory_desc_t &desc) {
  return std::string(reinterpret_cast<const char *>(&desc), sizeof(desc));
}

std::optional<dnnl_memory_desc_t> onednn::wantedForm(const dnnl_memory_desc_t &stored,
                                                     dnnl_data_type_t type,
                                                     const WeightForm *form) {
  if (!form)
    return describeAny(Dims(stored.dims, stored.dims + stored.ndims), type);
  dnnl_memory_desc_t wanted{};
  if (form->stored != bytesOf(stored) || form->packed.size() != sizeof(wanted))
    return std::nullopt;
  std::memcpy(&wanted, form->packed.data(), sizeof(wanted));
  return wanted;
}

Expected<void> Program::pack(const void *raw, void *packed) const {
  PrimitiveDesc desc;
  Primitive reorder;
  Memory source, target;
  if (!makeReorder(packFrom, packTo, desc, dnnl_scratchpad_mode_library) ||
      dnnl_primitive_create(reorder.put(), desc.get()) != dnnl_success ||
      dnnl_memory_create(source.put(), &packFrom, cpuEngine(), const_cast<void *>(raw)) !=
          dnnl_success ||
      dnnl_memory_create(target.put(), &packTo, cpuEngine(), packed) != dnnl_success)
    return makeError("oneDNN cannot repack a weight");
  dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source.get()},
                                 {DNNL_ARG_TO, target.get()}};
  if (dnnl_primitive_execute(reorder.get(), cpuStream(), 2, arguments) != dnnl_success)
    return makeError("oneDNN cannot repack a weight");
  return {};
}

namespace {
struct DescribedWeight : Call::Weight {
  Memory object;
};

/// A memory object per argument of every step, and where it points now. Setting an
/// address costs a fraction of a microsecond, and in a form with padding writes the
/// padding: most calls of a program find their addresses as they left them.
struct ProgramFrame : Call::Frame {
  struct Bound {
    std::vector<Memory> memories;
    std::vector<void *> at;
    std::vector<dnnl_exec_arg_t> arguments;
  };
  std::vector<Bound> steps;
};
} // namespace

Expected<std::unique_ptr<Call::Weight>> Program::describe(void *packed) const {
  auto weight = std::make_unique<DescribedWeight>();
  if (dnnl_memory_create(weight->object.put(), &packTo, cpuEngine(), packed) !=
      dnnl_success)
    return makeError("oneDNN cannot describe a weight");
  return weight;
}

Expected<std::unique_ptr<Call::Frame>> Program::frame() const {
  auto frame = std::make_unique<ProgramFrame>();
  for (const Step &step : steps) {
    ProgramFrame::Bound &bound = frame->steps.emplace_back();
    for (const Argument &argument : step.arguments) {
      Memory object;
      if (argument.place.where != Place::Packed &&
          dnnl_memory_create(object.put(), &argument.desc, cpuEngine(),
                             DNNL_MEMORY_NONE) != dnnl_success)
        return makeError("oneDNN cannot describe an operand");
      bound.arguments.push_back({argument.id, object.get()});
      bound.memories.push_back(std::move(object));
    }
    bound.at.resize(step.arguments.size());
  }
  return frame;
}

bool Program::run(Frame &room, std::span<void *const> operands,
                  const Weight *weight) const noexcept {
  auto &frame = static_cast<ProgramFrame &>(room);
  for (size_t s = 0; s < steps.size(); ++s) {
    ProgramFrame::Bound &bound = frame.steps[s];
    for (size_t i = 0; i < bound.at.size(); ++i) {
      const Place &place = steps[s].arguments[i].place;
      if (place.where == Place::Packed) {
        bound.arguments[i].memory =
            static_cast<const DescribedWeight *>(weight)->object.get();
        continue;
      }
      void *at = place.where == Place::Operand
                     ? operands[place.at]
                     : static_cast<char *>(operands[scratchOperand]) + place.at;
      if (at != bound.at[i] &&
          dnnl_memory_set_data_handle(bound.memories[i].get(), at) != dnnl_success)
        return false;
      bound.at[i] = at;
    }
    if (dnnl_primitive_execute(steps[s].primitive.get(), cpuStream(),
                               static_cast<int>(bound.arguments.size()),
                               bound.arguments.data()) != dnnl_success)
      return false;
  }
  for (const plain::Post &post : posts)
    post.run(operands);
  return true;
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

bool onednn::hasWideVectors() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) ==
         dnnl_cpu_isa_avx512_core;
}

bool onednn::multipliesBytes() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_vnni) ==
         dnnl_cpu_isa_avx512_core_vnni;
}

/// The element type where the call sums products.
static std::optional<DType> productType(const task::Params &params) {
  return std::visit(
      []<typename P>(const P &p) -> std::optional<DType> {
        if constexpr (requires { p.post; } || std::is_same_v<P, task::ConvBackwardFilter>)
          return static_cast<DType>(p.dtype);
        return std::nullopt;
      },
      params);
}

static MadeCall createTyped(const task::Params &params, const WeightForm *form,
                            Products products) {
  if (auto *p = std::get_if<task::MatMul>(&params))
    return createMatMul(*p, form, products);
  if (auto *p = std::get_if<task::BlockMatMul>(&params)) {
    bool isWide = products != Products::Own &&
                  (p->byte_rows ? multipliesBytes() : hasWideVectors());
    auto own = gemm::blockMatMul(*p, isWide);
    return own ? std::move(own) : plain::blockMatMul(*p);
  }
  if (auto *p = std::get_if<task::Conv>(&params))
    return createConv(*p, false, form, products);
  if (auto *p = std::get_if<task::ConvTranspose>(&params))
    return createConv(*p, true, form, products);
  if (auto *p = std::get_if<task::ConvBackwardFilter>(&params))
    return createConvBackwardFilter(*p, products);
  if (auto *p = std::get_if<task::Pool>(&params))
    return createPool(*p);
  return makeError(std::string(name(kindOf(params))) + " is not an engine call");
}

static MadeCall createAny(const task::Params &params, const WeightForm *form,
                          Products products) {
  if (form && isWidened(*form))
    return createWidened(params, form, products);
  auto call = createTyped(params, form, products);
  auto type = productType(params);
  if (!call || (type != DType::F16 && type != DType::BF16))
    return call;
  std::string how = (*call)->implementation();
  bool slow = how == "loops" || how.starts_with("ref");
  return slow ? createWidened(params, nullptr, products) : std::move(call);
}

namespace {
struct OneDnn final : engine::Engine {
  Products products;
  explicit OneDnn(Products products) : products(products) {}

  Expected<std::shared_ptr<const Call>> create(const task::Params &params,
                                               const WeightForm *form) const override {
    auto call = createAny(params, form, products);
    if (!call)
      return tl::unexpected(call.error());
    if (form && (*call)->form() != *form)
      return makeError("the engine has no fast implementation for a weight in this form");
    return std::shared_ptr<const Call>(std::move(*call));
  }
};
} // namespace

const engine::Engine &onednn::oneDnn(Products products) {
  static const OneDnn ofMachine(Products::OfMachine), own(Products::Own),
      ofLibrary(Products::OfLibrary);
  return products == Products::OfMachine ? ofMachine
         : products == Products::Own     ? own
                                         : ofLibrary;
}

const engine::Engine &onednn::engineFor(const std::vector<std::string> &features) {
  auto has = [&](const char *name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  };
  return oneDnn(has("avx2") && !has("avx512f") ? Products::Own : Products::OfMachine);
}
