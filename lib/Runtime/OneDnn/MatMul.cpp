//===- MatMul.cpp - Batched matrix products -------------------------------===//
#include "Program.h"

#include "partita/Runtime/Gemm.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::onednn;

namespace {

/// Whether a post-op's operand is broadcast or whole along both of two dims.
bool sameMaskBits(const task::MatMul &p, size_t first, size_t second) {
  for (const task::PostOp &op : p.post)
    if (task::isBinary(op.kind) && (op.mask >> first & 1) != (op.mask >> second & 1))
      return false;
  return true;
}

void dropMaskBit(task::MatMul &p, size_t dim) {
  for (task::PostOp &op : p.post) {
    int64_t low = op.mask & ((int64_t(1) << dim) - 1);
    op.mask = low | (op.mask >> (dim + 1) << dim);
  }
}

/// Merges batch dims into m where b does not depend on them, and neighbouring batch dims
/// that are contiguous: oneDNN's fast paths are the ones with few dims.
task::MatMul flattened(task::MatMul p) {
  for (size_t i = 0; i < p.batch.size();) {
    if (p.batch[i].size == 1) {
      dropMaskBit(p, i);
      p.batch.erase(p.batch.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  while (!p.batch.empty()) {
    const task::BatchDim &last = p.batch.back();
    size_t dim = p.batch.size() - 1;
    if (last.b != 0 || last.a != p.m * p.a_row || last.c != p.m * p.c_row ||
        (p.bias_mask & 2) || !sameMaskBits(p, dim, dim + 1))
      break;
    p.m *= last.size;
    dropMaskBit(p, dim);
    p.batch.pop_back();
  }
  for (size_t i = p.batch.size(); i-- > 1;) {
    task::BatchDim &outer = p.batch[i - 1];
    const task::BatchDim &inner = p.batch[i];
    if (outer.a != inner.size * inner.a || outer.b != inner.size * inner.b ||
        outer.c != inner.size * inner.c || !sameMaskBits(p, i - 1, i))
      continue;
    outer = {outer.size * inner.size, inner.a, inner.b, inner.c};
    dropMaskBit(p, i);
    p.batch.erase(p.batch.begin() + static_cast<ptrdiff_t>(i));
  }
  return p;
}

/// A product, and which operands of the task are its left and its right one.
struct Product {
  task::MatMul p;
  size_t left = task::MatMulA, right = task::MatMulB;
};

/// One column, a·b, as one row, bᵀ·aᵀ: oneDNN has nothing but its reference code for the
/// first. The weight, now on the left, is read as it is stored. Nothing where the result
/// is no row: its elements are apart.
std::optional<Product> asRow(const task::MatMul &p) {
  if (p.n != 1 || p.m == 1 || p.c_row != 1)
    return std::nullopt;
  Product row{p, task::MatMulB, task::MatMulA};
  task::MatMul &q = row.p;
  std::swap(q.m, q.n);
  std::swap(q.a_dtype, q.b_dtype);
  q.a_row = p.k * p.b_row, q.a_col = p.b_row;
  q.b_row = p.a_col, q.b_col = p.a_row;
  q.c_row = q.n;
  for (task::BatchDim &d : q.batch)
    std::swap(d.a, d.b);
  q.b_packed = false;
  q.bias_mask = (p.bias_mask & 1) << 1 | (p.bias_mask & 2) >> 1;
  size_t dim = p.batch.size();
  for (task::PostOp &op : q.post) {
    int64_t m = op.mask >> dim & 1, n = op.mask >> (dim + 1) & 1;
    op.mask = (op.mask & ~(int64_t(3) << dim)) | n << dim | m << (dim + 1);
  }
  return row;
}

struct Descs {
  Dims dims; ///< of the result
  dnnl_memory_desc_t a, b, c, bias;
};

/// A dim of stride 0 is a dim of size 1 to oneDNN. A dim of size 1 has any stride; a
/// dense one keeps it out of oneDNN's search for a transposed form.
Descs makeDescs(const task::MatMul &p, const Types &types) {
  Descs out;
  Dims aDims, aStrides, bDims, bStrides, cStrides, biasDims;
  for (const task::BatchDim &d : p.batch) {
    out.dims.push_back(d.size);
    aDims.push_back(d.a ? d.size : 1);
    bDims.push_back(d.b ? d.size : 1);
    aStrides.push_back(d.a ? d.a : p.m * p.k);
    bStrides.push_back(d.b ? d.b : p.k * p.n);
    cStrides.push_back(d.c);
    biasDims.push_back(1);
  }
  auto add = [](Dims &dims, Dims &strides, int64_t rows, int64_t row, int64_t columns,
                int64_t column) {
    dims.insert(dims.end(), {rows, columns});
    if (rows == 1 && column == 1)
      row = columns;
    if (columns == 1 && row == 1)
      column = rows;
    strides.insert(strides.end(), {row, column});
  };
  add(aDims, aStrides, p.m, p.a_row, p.k, p.a_col);
  add(bDims, bStrides, p.k, p.b_row, p.n, p.b_col);
  add(out.dims, cStrides, p.m, p.c_row, p.n, 1);
  biasDims.insert(biasDims.end(), {p.bias_mask & 2 ? p.m : 1, p.bias_mask & 1 ? p.n : 1});
  out.a = describe(aDims, types.a, aStrides);
  out.b = describe(bDims, types.b, bStrides);
  out.c = describe(out.dims, types.c, cStrides);
  out.bias = describe(biasDims, types.c);
  return out;
}

bool makeDesc(const Descs &d, const dnnl_memory_desc_t &weights, bool hasBias,
              const Attr &attr, PrimitiveDesc &out) {
  dnnl_matmul_desc_t op;
  return dnnl_matmul_desc_init(&op, &d.a, &weights, hasBias ? &d.bias : nullptr, &d.c) ==
             dnnl_success &&
         dnnl_primitive_desc_create(out.put(), &op, attr.get(), cpuEngine(), nullptr) ==
             dnnl_success;
}

} // namespace

/// Whether oneDNN does the post-ops right in the primitive. Its code (gemm:jit, brg, on
/// every kind of vectors) finds the place in an operand from where the element of the
/// result lies. Where dims of the result are not stored from the outermost to the
/// innermost, the code has no rule for that, and oneDNN ends the process when it makes or
/// runs the primitive (2.6.3). Where something lies between rows or matrices, places are
/// counted as if nothing did, but for an operand of columns alone.
static bool joinsRight(const task::MatMul &p, const Dims &dims, const Dims &strides) {
  bool isInOrder = true, isDense = true;
  int64_t step = 1, before = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    if (dims[d] == 1)
      continue;
    isInOrder &= strides[d] >= before;
    isDense &= strides[d] == step;
    step *= dims[d];
    before = strides[d] * dims[d];
  }
  const int64_t column = int64_t(1) << (dims.size() - 1);
  return isDense || std::ranges::all_of(p.post, [&](const task::PostOp &op) {
           return !task::isBinary(op.kind) || op.mask == 0 ||
                  (isInOrder && op.mask == column);
         });
}

/// The call with `fused` telling whether the post-ops go into the primitive; null if
/// oneDNN has no such primitive.
static std::unique_ptr<Program> build(const Product &product, bool fused,
                                      const WeightForm *form) {
  const task::MatMul &p = product.p;
  const std::optional<Types> types = typesOf(p);
  if (!types)
    return nullptr;
  Descs d = makeDescs(p, *types);
  const Dims strides(d.c.format_desc.blocking.strides,
                     d.c.format_desc.blocking.strides + d.c.ndims);
  if (fused && !joinsRight(p, d.dims, strides))
    return nullptr;
  const auto post = fused ? p.post : std::vector<task::PostOp>{};
  std::vector<dnnl_memory_desc_t> operands;
  for (const task::PostOp &op : post)
    if (task::isBinary(op.kind))
      operands.push_back(describeOperand(op, d.dims, types->c));
  auto attr = makeAttr(post, operands);
  if (!attr)
    return nullptr;
  bool hasBias = p.bias_mask != 0;
  auto weights = p.b_packed ? wantedForm(d.b, types->b, form) : std::optional(d.b);
  PrimitiveDesc desc;
  if (!weights || !makeDesc(d, *weights, hasBias, *attr, desc))
    return nullptr;
  auto program = std::make_unique<Program>(task::MatMulScratch);
  const dnnl_memory_desc_t &chosen = queryDesc(desc, dnnl_query_weights_md);
  bool repack = p.b_packed && !dnnl_memory_desc_equal(&chosen, &d.b);
  if (repack && !program->packWeight(d.b, chosen))
    return nullptr;
  Place weightPlace =
      repack ? Place{Place::Packed, 0} : Place{Place::Operand, product.right};
  std::vector<Argument> arguments = {
      {DNNL_ARG_SRC, d.a, {Place::Operand, product.left}},
      {DNNL_ARG_WEIGHTS, repack ? chosen : d.b, weightPlace},
      {DNNL_ARG_DST, d.c, {Place::Operand, task::MatMulC}}};
  if (hasBias)
    arguments.push_back({DNNL_ARG_BIAS, d.bias, {Place::Operand, task::MatMulBias}});
  uint64_t next = task::MatMulPost;
  int position = 0;
  size_t binary = 0;
  for (const task::PostOp &op : post) {
    if (task::isBinary(op.kind))
      arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(position) | DNNL_ARG_SRC_1,
                           operands[binary++],
                           {Place::Operand, next++}});
    // Hard sigmoid takes two places in the chain.
    position += op.kind == PARTITA_POST_HARDSIGMOID ? 2 : 1;
  }
  if (!program->add(desc, std::move(arguments)))
    return nullptr;
  program->describeAs(implementationOf(desc));
  if (!fused && !p.post.empty())
    program->addPost({static_cast<DType>(p.dtype), d.dims, strides, task::MatMulC,
                      task::MatMulPost, p.post});
  return program;
}

static bool isReference(const Call &call) {
  return call.implementation().starts_with("ref");
}

/// The fastest of oneDNN's programs for the product; null if there is none. A chain of
/// post-ops that only its reference code takes is done behind the product alone, which is
/// fast.
static std::unique_ptr<Program> bestOf(const Product &product, const WeightForm *form) {
  std::unique_ptr<Program> call = build(product, true, form);
  if (!call || isReference(*call))
    if (auto split = build(product, false, form); split && !isReference(*split))
      return split;
  return call;
}

/// How the packed weight lies, if its columns are in blocks that our kernels read.
static std::optional<gemm::Blocks> blocksOf(const dnnl_memory_desc_t &form) {
  const dnnl_blocking_desc_t &blocking = form.format_desc.blocking;
  const int inner = blocking.inner_nblks;
  if (form.ndims != 2 || form.data_type != dnnl_f32 || form.format_kind != dnnl_blocked ||
      inner < 1 || inner > 2 || blocking.inner_idxs[inner - 1] != 1 ||
      (inner == 2 && blocking.inner_idxs[0] != 0))
    return std::nullopt;
  const int64_t columns = blocking.inner_blks[inner - 1];
  const int64_t summands = inner == 2 ? blocking.inner_blks[0] : 1;
  gemm::Blocks blocks{columns, form.padded_dims[0] * columns};
  if (columns % 16 != 0 || blocking.strides[0] != summands * columns ||
      blocking.strides[1] != blocks.step)
    return std::nullopt;
  return blocks;
}

namespace {
/// A product of few rows by our kernels, with the weight as oneDNN packs it, so that
/// calls of many rows, in other entries of a bundle, share it.
class FewRows final : public Call {
public:
  FewRows(std::unique_ptr<Call> product, std::unique_ptr<Program> packing)
      : product(std::move(product)), packing(std::move(packing)) {
    memory = {this->product->sizes().scratch, this->packing->sizes().packed};
    weightForm = this->packing->form();
  }
  Expected<void> pack(const void *raw, void *packed) const override {
    return packing->pack(raw, packed);
  }
  Expected<std::unique_ptr<Weight>> describe(void *packed) const override {
    return product->describe(packed);
  }
  Expected<std::unique_ptr<Frame>> frame() const override { return product->frame(); }
  bool run(Frame &frame, std::span<void *const> operands,
           const Weight *weight) const noexcept override {
    return product->run(frame, operands, weight);
  }
  std::string implementation() const override {
    return product->implementation() + ", blocks of " + packing->implementation();
  }

private:
  std::unique_ptr<Call> product;
  std::unique_ptr<Program> packing;
};
} // namespace

/// A product of few rows waits for its weight. Our kernels fetch it ahead, oneDNN's do
/// not: 1 × 768 × 32,000 takes 5.0 ms and 7.3 ms (AMD EPYC, 512-bit vectors). With four
/// rows and more, a tile covers one panel of a block, and passes over the block again.
static std::unique_ptr<Call> fewRows(const task::MatMul &p,
                                     std::unique_ptr<Program> &packing) {
  constexpr int64_t most = 3;
  if (p.m > most || !p.b_packed || !packing || packing->sizes().packed == 0)
    return nullptr;
  auto blocks = blocksOf(packing->packedAs());
  auto product = blocks ? gemm::matMul(p, blocks) : nullptr;
  return product ? std::make_unique<FewRows>(std::move(product), std::move(packing))
                 : nullptr;
}

/// Products of bytes by oneDNN where that is exact and fast, else by our kernels.
static MadeCall createBytes(const task::MatMul &p, const WeightForm *form,
                            Products products) {
  if (products != Products::Own)
    if (auto call = bestOf({p}, form); call && !isReference(*call))
      return std::unique_ptr<Call>(std::move(call));
  if (auto own = gemm::byteMatMul(p))
    return own;
  return plain::matMul(p);
}

MadeCall onednn::createMatMul(const task::MatMul &params, const WeightForm *form,
                              Products products) {
  task::MatMul p = flattened(params);
  if (task::isOfBytes(p))
    return createBytes(p, form, products);
  if (!typesOf(p))
    return plain::matMul(params);
  bool isOwn =
      products == Products::Own || (products == Products::OfMachine && !hasWideVectors());
  if (isOwn && gemm::isWorth(p))
    if (auto own = gemm::matMul(p))
      return own;
  std::unique_ptr<Program> call = bestOf({p}, form);
  if (products != Products::OfLibrary)
    if (auto few = fewRows(p, call))
      return few;
  if (!call || isReference(*call))
    if (auto row = asRow(p))
      if (auto other = bestOf(*row, nullptr); other && !isReference(*other))
        call = std::move(other);
  if (!call || (form && isReference(*call)))
    return plain::matMul(params);
  return std::unique_ptr<Call>(std::move(call));
}
