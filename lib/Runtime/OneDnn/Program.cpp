//===- Program.cpp - A few oneDNN primitives in a row ---------------------===//
#include "Program.h"

#include "EngineMemory.h"
#include "KeptBlocks.h"

#include <cstring>
#include <dlfcn.h>

using namespace partita;
using namespace partita::onednn;

/// Of the calls of this thread.
static thread_local bool isParallel = false;

void onednn::setThreads(int threads) {
  // oneDNN brings the OpenMP runtime it was built with; asking for the symbol at run
  // time avoids linking a second one.
  using Set = void (*)(int);
  static auto set = reinterpret_cast<Set>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set)
    set(threads);
  isParallel = threads > 1;
  // From now on this thread is no worker of another one's calls.
  kept::Scope once(false);
}

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

std::vector<size_t> onednn::memoryOrder(int64_t format, size_t dims) {
  std::vector<size_t> order;
  for (size_t d = 0; d < dims; ++d)
    if (d != 1 || format == PARTITA_FORMAT_CHANNELS_FIRST)
      order.push_back(d);
  if (format == PARTITA_FORMAT_CHANNELS_LAST)
    order.push_back(1);
  return order;
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
    {PARTITA_POST_GELU_ERF, dnnl_eltwise_gelu_erf, false, false},
    {PARTITA_POST_GELU_TANH, dnnl_eltwise_gelu_tanh, false, false},
    {PARTITA_POST_TANH, dnnl_eltwise_tanh, false, false},
    {PARTITA_POST_LOGISTIC, dnnl_eltwise_logistic, false, false},
    {PARTITA_POST_SWISH, dnnl_eltwise_swish, true, false},
    {PARTITA_POST_HARDSWISH, dnnl_eltwise_hardswish, false, false},
    {PARTITA_POST_CLIP, dnnl_eltwise_clip, true, true},
    {PARTITA_POST_LINEAR, dnnl_eltwise_linear, true, true},
    {PARTITA_POST_ELU, dnnl_eltwise_elu, true, false},
    {PARTITA_POST_SQRT, dnnl_eltwise_sqrt, false, false},
    {PARTITA_POST_SQUARE, dnnl_eltwise_square, false, false},
    {PARTITA_POST_ABS, dnnl_eltwise_abs, false, false},
    {PARTITA_POST_EXP, dnnl_eltwise_exp, false, false},
};

constexpr std::pair<int64_t, dnnl_alg_kind_t> binaryOps[] = {
    {PARTITA_POST_BINARY_ADD, dnnl_binary_add},
    {PARTITA_POST_BINARY_SUB, dnnl_binary_sub},
    {PARTITA_POST_BINARY_MUL, dnnl_binary_mul},
    {PARTITA_POST_BINARY_MAX, dnnl_binary_max},
    {PARTITA_POST_BINARY_MIN, dnnl_binary_min},
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
                                     const std::vector<dnnl_memory_desc_t> &operands) {
  Attr attr;
  PostOps ops;
  if (dnnl_primitive_attr_create(attr.put()) != dnnl_success ||
      dnnl_primitive_attr_set_scratchpad_mode(attr.get(), dnnl_scratchpad_mode_user) !=
          dnnl_success ||
      dnnl_post_ops_create(ops.put()) != dnnl_success)
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
  // The descriptors are plain data, zero-filled before use.
  key.assign(reinterpret_cast<const char *>(&from), sizeof(from));
  key.append(reinterpret_cast<const char *>(&to), sizeof(to));
  PrimitiveDesc probe;
  return makeReorder(from, to, probe, dnnl_scratchpad_mode_library);
}

Expected<void> Program::pack(const void *raw, void *packed) {
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

Expected<void> Program::bind(std::span<void *const> operands, void *packed) {
  for (Step &step : steps) {
    step.memories.clear();
    step.bound.clear();
    for (const Argument &argument : step.arguments) {
      void *address = packed;
      if (argument.place.where == Place::Operand)
        address = operands[argument.place.at];
      else if (argument.place.where == Place::Scratch)
        address = static_cast<char *>(operands[scratchOperand]) + argument.place.at;
      Memory memoryObject;
      if (dnnl_memory_create(memoryObject.put(), &argument.desc, cpuEngine(), address) !=
          dnnl_success)
        return makeError("oneDNN cannot describe an operand");
      step.bound.push_back({argument.id, memoryObject.get()});
      step.memories.push_back(std::move(memoryObject));
    }
  }
  for (NativePost &post : posts)
    post.bind(operands);
  return {};
}

bool Program::runSteps() noexcept {
  for (const Step &step : steps)
    if (dnnl_primitive_execute(step.primitive.get(), cpuStream(),
                               static_cast<int>(step.bound.size()),
                               step.bound.data()) != dnnl_success)
      return false;
  return true;
}

bool Program::warmUp(bool keepsMemory) noexcept {
  keepEngineMemory();
  return keepsMemory ? run() : runSteps();
}

bool Program::run() noexcept {
  {
    kept::Scope scope(isParallel);
    if (!runSteps())
      return false;
  }
  for (const NativePost &post : posts)
    post.run();
  return true;
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

size_t Call::weightOperand(TaskKind kind) {
  return kind == TaskKind::MatMul ? static_cast<size_t>(task::MatMulB)
                                  : static_cast<size_t>(task::ConvWeights);
}

static Expected<std::unique_ptr<Call>> createTyped(TaskKind kind, task::IntsView params) {
  if (kind == TaskKind::MatMul) {
    auto p = task::MatMul::decode(params);
    return p ? createMatMul(*p) : tl::unexpected(p.error());
  }
  if (kind == TaskKind::Pool) {
    auto p = task::Pool::decode(params);
    return p ? createPool(*p) : tl::unexpected(p.error());
  }
  auto p = task::Conv::decode(params);
  return p ? createConv(*p, kind == TaskKind::ConvTranspose) : tl::unexpected(p.error());
}

Expected<std::unique_ptr<Call>> Call::create(TaskKind kind, task::IntsView params) {
  bool weighted = kind == TaskKind::MatMul || kind == TaskKind::Conv ||
                  kind == TaskKind::ConvTranspose;
  if (!weighted && kind != TaskKind::Pool)
    return makeError(std::string(name(kind)) + " is not an engine call");
  auto call = createTyped(kind, params);
  // Every engine call begins with its element type.
  if (!call || !weighted ||
      (params[0] != PARTITA_DTYPE_F16 && params[0] != PARTITA_DTYPE_BF16))
    return call;
  std::string how = (*call)->implementation();
  bool slow = how == "loops" || how.starts_with("ref");
  return slow ? createWidened(kind, params) : std::move(call);
}

Expected<Sizes> onednn::querySizes(TaskKind kind, task::IntsView params, int threads) {
  setThreads(threads);
  auto call = Call::create(kind, params);
  if (!call)
    return tl::unexpected(call.error());
  return (*call)->sizes();
}
