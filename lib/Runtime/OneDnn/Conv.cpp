//===- Conv.cpp - Convolution, its transpose and pooling ------------------===//
#include "Program.h"

#include "partita/Base/Bundle/Images.h"
#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Winograd.h"

#include <algorithm>

using namespace partita;
using namespace partita::onednn;

namespace {

/// Parameters of a window in oneDNN's terms (dilation 0 = dense).
struct Window {
  Dims kernel, strides, dilates, padBegin, padEnd;
};

/// The end padding follows from the extents: ONNX's own may be larger (the last
/// elements unused) or, with ceiling, smaller.
Window makeWindow(const std::vector<task::SpatialDim> &dims, bool transposed) {
  Window w;
  for (const task::SpatialDim &d : dims) {
    int64_t reach = (d.kernel - 1) * d.dilation + 1;
    int64_t end = transposed ? (d.in - 1) * d.stride + reach - d.padBegin - d.out
                             : (d.out - 1) * d.stride + reach - d.in - d.padBegin;
    w.kernel.push_back(d.kernel);
    w.strides.push_back(d.stride);
    w.dilates.push_back(d.dilation - 1);
    w.padBegin.push_back(d.padBegin);
    w.padEnd.push_back(transposed ? end : std::max<int64_t>(end, 0));
  }
  return w;
}

Dims imageDims(int64_t batch, int64_t channels, const std::vector<task::SpatialDim> &dims,
               int64_t task::SpatialDim::*field) {
  Dims out{batch, channels};
  for (const task::SpatialDim &d : dims)
    out.push_back(d.*field);
  return out;
}

dnnl_memory_desc_t imageDesc(const Dims &dims, int64_t format, dnnl_data_type_t type) {
  if (format == PARTITA_FORMAT_CHANNELS_FIRST)
    return describe(dims, type);
  Dims strides(dims.size());
  int64_t step = dims[1];
  strides[1] = 1;
  for (size_t d = dims.size(); d-- > 2;) {
    strides[d] = step;
    step *= dims[d];
  }
  strides[0] = step;
  return describe(dims, type, strides);
}

/// Weights as the table stores them, seen as [groups,] out, in, kernel….
template <typename Params>
dnnl_memory_desc_t weightDesc(const Params &p, dnnl_data_type_t type, bool transposed) {
  int64_t out = p.out_channels / p.groups, in = p.in_channels / p.groups, taps = 1;
  Dims dims{p.groups, out, in};
  for (const task::SpatialDim &d : p.spatial) {
    dims.push_back(d.kernel);
    taps *= d.kernel;
  }
  Dims strides = rowMajor(dims);
  if (transposed) {
    strides[1] = taps;
    strides[2] = out * taps;
  }
  if (p.groups == 1) {
    dims.erase(dims.begin());
    strides.erase(strides.begin());
  }
  return describe(dims, type, strides);
}

struct Images {
  dnnl_memory_desc_t src, dst;
};

/// Where oneDNN's Winograd primitive is worth its transforms and the copies of the images
/// into blocks of channels and back, for images that our own (Winograd.h) does not take:
/// measured with oneDNN 2.6 and 512-bit vectors, 0.55 to 0.85 of the direct algorithm's
/// time from 64 channels on, 0.8 to 1.4 with 32. A weight that is no constant would be
/// transformed in every run. oneDNN has no primitive for other cases of a 3 × 3 window,
/// nor for other vectors: it says so itself.
bool suitsWinograd(const task::Conv &p) {
  constexpr int64_t enoughChannels = 64, enoughPixels = 400;
  int64_t pixels = p.batch;
  for (const task::SpatialDim &d : p.spatial)
    pixels *= d.out;
  return static_cast<DType>(p.dtype) == DType::F32 && p.weights_packed && p.groups == 1 &&
         p.spatial.size() == 2 && pixels >= enoughPixels &&
         std::min(p.in_channels, p.out_channels) >= enoughChannels &&
         std::all_of(p.spatial.begin(), p.spatial.end(), [](const task::SpatialDim &d) {
           return d.kernel == 3 && d.stride == 1 && d.dilation == 1;
         });
}

class ConvBuilder {
public:
  ConvBuilder(const task::Conv &params, const Types &types, bool transposed,
              const WeightForm *form)
      : p(params), types(types), transposed(transposed),
        algorithm(transposed ? dnnl_deconvolution_direct : dnnl_convolution_direct),
        form(form),
        srcDims(imageDims(p.batch, p.in_channels, p.spatial, &task::SpatialDim::in)),
        dstDims(imageDims(p.batch, p.out_channels, p.spatial, &task::SpatialDim::out)),
        given{imageDesc(srcDims, p.src_format, types.a),
              imageDesc(dstDims, p.dst_format, types.c)},
        weights(weightDesc(p, types.b, transposed)),
        order(task::imageOrder(p.dst_format, dstDims.size())) {
    if (p.adds_to_result)
      addend = Place{Place::Operand, task::ConvDst};
  }

  /// Winograd's algorithm with all post-ops inside, on copies of the images. A tensor
  /// that is added first is put into the copy of the result, to which the primitive adds.
  /// Null if there is no primitive.
  std::unique_ptr<Program> buildWinograd() {
    algorithm = dnnl_convolution_winograd;
    bool first = !p.adds_to_result && !p.post.empty() &&
                 p.post[0].kind == PARTITA_POST_BINARY_ADD && whole(p.post[0].mask);
    for (size_t i = first; i < p.post.size(); ++i)
      if (task::isBinary(p.post[i].kind))
        return nullptr;
    if (first)
      addend = Place{Place::Operand, task::ConvPost};
    images = {describeAny(srcDims, types.a), describeAny(dstDims, types.c)};
    auto attr = makeAttr({p.post.begin() + first, p.post.end()}, {}, addend.has_value());
    PrimitiveDesc desc;
    if (!attr || !makeDesc(*attr, desc))
      return nullptr;
    auto program = std::make_unique<Program>(task::ConvScratch);
    return assemble(*program, desc, true) ? std::move(program) : nullptr;
  }

  /// `fused`: post-ops inside the primitive. `freeForm`: oneDNN chooses the form of the
  /// images and they are copied to and from scratch. Null if there is no primitive.
  std::unique_ptr<Program> build(bool fused, bool freeForm) {
    const auto post = fused ? p.post : std::vector<task::PostOp>{};
    stored.clear();
    used.clear();
    for (const task::PostOp &op : post)
      if (task::isBinary(op.kind))
        stored.push_back(describeOperand(op, dstDims, types.c, order));
    used = stored;
    images = freeForm
                 ? Images{describeAny(srcDims, types.a), describeAny(dstDims, types.c)}
                 : given;
    if (!supported(post) || (freeForm && !stored.empty() && !adoptForm()))
      return nullptr;
    auto attr = makeAttr(post, used, addend.has_value());
    PrimitiveDesc desc;
    if (!attr || !makeDesc(*attr, desc))
      return nullptr;
    // Its GEMM path computes some binary post-ops wrongly and all of them slowly.
    if (!stored.empty() && implementationOf(desc).find("gemm") != std::string::npos)
      return nullptr;
    auto program = std::make_unique<Program>(task::ConvScratch);
    return assemble(*program, desc, fused) ? std::move(program) : nullptr;
  }

private:
  /// Operands that vary along nothing, the channels, or everything: oneDNN 2.6 takes
  /// others too, and computes some of them wrongly.
  bool supported(const std::vector<task::PostOp> &post) const {
    for (const task::PostOp &op : post)
      if (task::isBinary(op.kind) && op.mask != 0 && op.mask != 2 && !whole(op.mask))
        return false;
    return true;
  }
  bool whole(int64_t mask) const {
    for (size_t d = 0; d < dstDims.size(); ++d)
      if (!(mask >> d & 1) && dstDims[d] != 1)
        return false;
    return true;
  }

  /// Fixes the form of the images to what oneDNN chooses without post-ops, and that of
  /// whole operands to the result's: left to itself it picks a slow primitive.
  bool adoptForm() {
    auto plain = makeAttr({}, {}, addend.has_value());
    PrimitiveDesc probe;
    if (!plain || !makeDesc(*plain, probe))
      return false;
    images = {queryDesc(probe, dnnl_query_src_md), queryDesc(probe, dnnl_query_dst_md)};
    for (dnnl_memory_desc_t &operand : used)
      if (std::equal(dstDims.begin(), dstDims.end(), operand.dims))
        operand = images.dst;
    return true;
  }

  bool makeDesc(const Attr &attr, PrimitiveDesc &out) {
    Window w = makeWindow(p.spatial, transposed);
    // Weights that change are copied in every run, which is nothing beside the products
    // that the primitives for their stored form are slower at.
    auto weightForm = wantedForm(weights, types.b, form);
    auto bias = describe({p.out_channels}, types.c);
    const dnnl_memory_desc_t *biasDesc = p.has_bias ? &bias : nullptr;
    dnnl_convolution_desc_t op;
    auto init = transposed ? dnnl_dilated_deconvolution_forward_desc_init
                           : dnnl_dilated_convolution_forward_desc_init;
    if (!weightForm ||
        init(&op, dnnl_forward_inference, algorithm, &images.src, &*weightForm, biasDesc,
             &images.dst, w.strides.data(), w.dilates.data(), w.padBegin.data(),
             w.padEnd.data()) != dnnl_success)
      return false;
    if (algorithm == dnnl_convolution_winograd)
      return findSmallTiles(op, attr, out);
    return dnnl_primitive_desc_create(out.put(), &op, attr.get(), cpuEngine(), nullptr) ==
           dnnl_success;
  }

  /// The primitive with tiles of 2 × 2 results. Those of 4 × 4 are faster for some
  /// shapes, and their rounding errors are too large: with 128 channels 1.2e-6 of the
  /// result instead of 7e-7 (root mean square), and the largest are several times those.
  static bool findSmallTiles(const dnnl_convolution_desc_t &op, const Attr &attr,
                             PrimitiveDesc &out) {
    dnnl_primitive_desc_iterator_t at = nullptr;
    if (dnnl_primitive_desc_iterator_create(&at, &op, attr.get(), cpuEngine(), nullptr) !=
        dnnl_success)
      return false;
    bool found = false;
    do {
      PrimitiveDesc desc(dnnl_primitive_desc_iterator_fetch(at));
      found = desc && implementationOf(desc).find("wino_2x3") != std::string::npos;
      if (found)
        out = std::move(desc);
    } while (!found && dnnl_primitive_desc_iterator_next(at) == dnnl_success);
    dnnl_primitive_desc_iterator_destroy(at);
    return found;
  }

  bool assemble(Program &program, const PrimitiveDesc &desc, bool fused) {
    const auto &src = queryDesc(desc, dnnl_query_src_md);
    const auto &dst = queryDesc(desc, dnnl_query_dst_md);
    const auto &form = queryDesc(desc, dnnl_query_weights_md);
    Place srcPlace{Place::Operand, task::ConvSrc},
        dstPlace{Place::Operand, task::ConvDst};
    Place weightPlace{Place::Operand, task::ConvWeights};
    if (!dnnl_memory_desc_equal(&src, &given.src)) {
      Place place = program.scratch(dnnl_memory_desc_get_size(&src));
      if (!program.addReorder(given.src, srcPlace, src, place))
        return false;
      srcPlace = place;
    }
    bool copyBack = !dnnl_memory_desc_equal(&dst, &given.dst);
    if (copyBack)
      dstPlace = program.scratch(dnnl_memory_desc_get_size(&dst));
    if (!dnnl_memory_desc_equal(&form, &weights)) {
      Place place = p.weights_packed ? Place{Place::Packed, 0}
                                     : program.scratch(dnnl_memory_desc_get_size(&form));
      if (p.weights_packed ? !program.packWeight(weights, form)
                           : !program.addReorder(weights, weightPlace, form, place))
        return false;
      weightPlace = place;
    }
    std::vector<Argument> arguments = {{DNNL_ARG_SRC, src, srcPlace},
                                       {DNNL_ARG_WEIGHTS, form, weightPlace},
                                       {DNNL_ARG_DST, dst, dstPlace}};
    if (p.has_bias)
      arguments.push_back({DNNL_ARG_BIAS,
                           describe({p.out_channels}, types.c),
                           {Place::Operand, task::ConvBias}});
    bool isThere = p.adds_to_result && !copyBack;
    if (addend && !isThere && !program.addReorder(given.dst, *addend, dst, dstPlace))
      return false;
    if (fused && algorithm != dnnl_convolution_winograd &&
        !addPostArguments(program, arguments))
      return false;
    if (!program.add(desc, std::move(arguments)))
      return false;
    if (copyBack &&
        !program.addReorder(dst, dstPlace, given.dst, {Place::Operand, task::ConvDst}))
      return false;
    program.describeAs(implementationOf(desc));
    if (!fused && !p.post.empty())
      program.addPost({static_cast<DType>(p.dtype), dstDims,
                       Dims(given.dst.format_desc.blocking.strides,
                            given.dst.format_desc.blocking.strides + given.dst.ndims),
                       task::ConvDst, task::ConvPost, p.post, order});
    return true;
  }

  bool addPostArguments(Program &program, std::vector<Argument> &arguments) const {
    uint64_t next = task::ConvPost;
    int position = p.adds_to_result ? 1 : 0;
    size_t binary = 0;
    for (const task::PostOp &op : p.post) {
      if (task::isBinary(op.kind)) {
        Place place{Place::Operand, next++};
        const dnnl_memory_desc_t &from = stored[binary], &to = used[binary];
        ++binary;
        if (!dnnl_memory_desc_equal(&from, &to)) {
          Place copy = program.scratch(dnnl_memory_desc_get_size(&to));
          if (!program.addReorder(from, place, to, copy))
            return false;
          place = copy;
        }
        arguments.push_back(
            {DNNL_ARG_ATTR_MULTIPLE_POST_OP(position) | DNNL_ARG_SRC_1, to, place});
      }
      position += op.kind == PARTITA_POST_HARDSIGMOID ? 2 : 1;
    }
    return true;
  }

  const task::Conv &p;
  Types types;
  bool transposed;
  dnnl_alg_kind_t algorithm;
  const WeightForm *form; ///< of the packed weights, or null: the primitive's choice
  Dims srcDims, dstDims;
  Images given, images; ///< as the table stores them, as the primitive is asked for
  dnnl_memory_desc_t weights;
  std::vector<size_t> order; ///< of dst's dims in memory
  /// What the primitive finds in the result and adds to, if it does.
  std::optional<Place> addend;
  /// Binary operands as the table stores them, and as the primitive reads them.
  std::vector<dnnl_memory_desc_t> stored, used;
};

bool isReference(const Program *call) {
  return !call || call->implementation().starts_with("ref");
}

} // namespace

static winograd::Vectors vectorsOf(Products products) {
  return products == Products::OfMachine && hasWideVectors()
             ? winograd::Vectors::Of512Bits
             : winograd::Vectors::Of256Bits;
}

/// By our own kernels, or null. A filter that is packed already decides.
static std::unique_ptr<Call> ownConv(const task::Conv &p, bool transposed,
                                     const WeightForm *form, Products products) {
  bool isWanted = form ? winograd::isForm(*form) : winograd::isWorth(p);
  if (products == Products::OfLibrary || !isWanted)
    return nullptr;
  return winograd::conv(p, vectorsOf(products), transposed);
}

/// Our own kernels of bytes, or null. A filter that is packed already decides.
static std::unique_ptr<Call> ownBytes(const task::Conv &p, const WeightForm *form,
                                      Products products) {
  auto own = gemm::byteConv(p, products != Products::Own && multipliesBytes());
  return own && (!form || own->form().packed == form->packed) ? std::move(own) : nullptr;
}

/// The same convolution of an image of whole strides, or nothing where that is no other.
/// A 1 × 1 window with a stride leaves out rows behind the last one that it reads, and a
/// rank's part of an image may end there; oneDNN's kernels for such windows want them to
/// be counted. Only where they are at the end of memory: of one image, by rows.
static std::optional<task::Conv> withWholeStrides(const task::Conv &p) {
  bool isPoint = std::all_of(p.spatial.begin(), p.spatial.end(), [](const auto &d) {
    return d.kernel == 1 && d.padBegin == 0 && d.in <= d.out * d.stride;
  });
  if (!isPoint || p.batch != 1 || p.src_format != PARTITA_FORMAT_CHANNELS_LAST ||
      p.spatial[0].in == p.spatial[0].out * p.spatial[0].stride)
    return std::nullopt;
  task::Conv whole = p;
  whole.spatial[0].in = p.spatial[0].out * p.spatial[0].stride;
  return whole;
}

/// A convolution of bytes with post-ops whose sums oneDNN leaves in scratch, where that
/// is the fastest: its own post-ops round otherwise, and windows of 1 × 1 take as long by
/// kernels that need no second way through the caches. Else null.
static std::unique_ptr<Call> requantizing(const task::Conv &p, const WeightForm *form,
                                          Products products) {
  const bool isPoint = p.groups == 1 && std::ranges::all_of(p.spatial, [](const auto &d) {
                         return d.kernel == 1;
                       });
  if (p.post.empty() || isPoint || products == Products::Own || !typesOf(p) ||
      p.dst_format != PARTITA_FORMAT_CHANNELS_LAST)
    return nullptr;
  task::Conv sums = p;
  sums.post.clear();
  auto call = onednn::createConv(sums, false, form, products);
  return call && !(*call)->implementation().starts_with("loops")
             ? gemm::requantized(p, std::move(*call))
             : nullptr;
}

MadeCall onednn::createConv(const task::Conv &params, bool transposed,
                            const WeightForm *form, Products products) {
  auto types = typesOf(params);
  const bool isOfBytes = !transposed && task::isOfBytes(params);
  if (isOfBytes)
    if (auto call = requantizing(params, form, products))
      return std::unique_ptr<Call>(std::move(call));
  if (isOfBytes && (!types || products == Products::Own || !params.post.empty()))
    if (auto own = ownBytes(params, form, products))
      return own;
  if (!types)
    return plain::conv(params, transposed);
  if (auto own = ownConv(params, transposed, form, products))
    return own;
  if (!transposed && suitsWinograd(params))
    if (auto program = ConvBuilder(params, *types, false, form).buildWinograd())
      return std::unique_ptr<Call>(std::move(program));
  if (auto whole = transposed ? std::nullopt : withWholeStrides(params)) {
    // These read what they need; a copy of the image would read all that is counted.
    auto program = ConvBuilder(*whole, *types, false, form).build(true, false);
    if (program && program->implementation().starts_with("jit_1x1"))
      return std::unique_ptr<Call>(std::move(program));
  }
  ConvBuilder builder(params, *types, transposed, form);
  // In channels-first form oneDNN has a fast path for few cases only (im2col and GEMM;
  // one GEMM a group); its blocked forms pay for the copies. Channels-last is taken as
  // it is.
  bool asGiven = params.src_format == PARTITA_FORMAT_CHANNELS_LAST;
  std::unique_ptr<Program> best;
  for (bool fused : {true, false})
    for (bool freeForm : {!asGiven, asGiven}) {
      if (!isReference(best.get()))
        break;
      std::unique_ptr<Program> next = builder.build(fused, freeForm);
      if (!best || !isReference(next.get()))
        best = std::move(next);
    }
  if (isOfBytes && isReference(best.get()))
    if (auto own = ownBytes(params, form, products))
      return own;
  if (!best || (form && isReference(best.get())))
    return plain::conv(params, transposed);
  return std::unique_ptr<Call>(std::move(best));
}

namespace {
/// `freeForm`: oneDNN chooses the form of the images, which are copied. The gradient of
/// the weights is made in its form and copied to theirs. Null if there is no primitive.
std::unique_ptr<Program> backwardFilter(const task::ConvBackwardFilter &p,
                                        dnnl_data_type_t type, bool freeForm) {
  Dims srcDims = imageDims(p.batch, p.in_channels, p.spatial, &task::SpatialDim::in);
  Dims dstDims = imageDims(p.batch, p.out_channels, p.spatial, &task::SpatialDim::out);
  Images given{imageDesc(srcDims, p.src_format, type),
               imageDesc(dstDims, p.dst_format, type)};
  Images asked =
      freeForm ? Images{describeAny(srcDims, type), describeAny(dstDims, type)} : given;
  dnnl_memory_desc_t weights = weightDesc(p, type, false);
  dnnl_memory_desc_t anyWeights =
      describeAny(Dims(weights.dims, weights.dims + weights.ndims), type);
  Window w = makeWindow(p.spatial, false);
  auto attr = makeAttr({});
  dnnl_convolution_desc_t op;
  PrimitiveDesc desc;
  if (!attr ||
      dnnl_dilated_convolution_backward_weights_desc_init(
          &op, dnnl_convolution_direct, &asked.src, &anyWeights, nullptr, &asked.dst,
          w.strides.data(), w.dilates.data(), w.padBegin.data(),
          w.padEnd.data()) != dnnl_success ||
      dnnl_primitive_desc_create(desc.put(), &op, attr->get(), cpuEngine(), nullptr) !=
          dnnl_success)
    return nullptr;
  auto program = std::make_unique<Program>(task::BackwardScratch);
  auto place = [&](const dnnl_memory_desc_t &stored, const dnnl_memory_desc_t &wanted,
                   size_t operand) -> std::optional<Place> {
    Place own{Place::Operand, operand};
    if (dnnl_memory_desc_equal(&stored, &wanted))
      return own;
    Place copy = program->scratch(dnnl_memory_desc_get_size(&wanted));
    return program->addReorder(stored, own, wanted, copy) ? std::optional(copy)
                                                          : std::nullopt;
  };
  const auto &src = queryDesc(desc, dnnl_query_src_md);
  const auto &dst = queryDesc(desc, dnnl_query_diff_dst_md);
  const auto &made = queryDesc(desc, dnnl_query_diff_weights_md);
  auto srcPlace = place(given.src, src, task::BackwardSrc);
  auto dstPlace = place(given.dst, dst, task::BackwardDst);
  Place result{Place::Operand, task::BackwardFilter}, madePlace = result;
  bool copyBack = !dnnl_memory_desc_equal(&made, &weights);
  if (copyBack)
    madePlace = program->scratch(dnnl_memory_desc_get_size(&made));
  if (!srcPlace || !dstPlace ||
      !program->add(desc, {{DNNL_ARG_SRC, src, *srcPlace},
                           {DNNL_ARG_DIFF_DST, dst, *dstPlace},
                           {DNNL_ARG_DIFF_WEIGHTS, made, madePlace}}) ||
      (copyBack && !program->addReorder(made, madePlace, weights, result)))
    return nullptr;
  program->describeAs(implementationOf(desc));
  return program;
}
} // namespace

MadeCall onednn::createConvBackwardFilter(const task::ConvBackwardFilter &p,
                                          Products products) {
  auto type = dataType(p.dtype);
  if (!type)
    return plain::convBackwardFilter(p);
  if (products != Products::OfLibrary && winograd::isWorth(p))
    if (auto own = winograd::filterGradient(p, vectorsOf(products)))
      return own;
  bool asGiven = p.dst_format == PARTITA_FORMAT_CHANNELS_LAST;
  for (bool freeForm : {!asGiven, asGiven})
    if (auto program = backwardFilter(p, *type, freeForm); !isReference(program.get()))
      return std::unique_ptr<Call>(std::move(program));
  return plain::convBackwardFilter(p);
}

/// Maxima of bytes are taken: oneDNN's averages are rounded, and those of loops cut.
static std::optional<dnnl_data_type_t> poolType(const task::Pool &p) {
  const auto type = static_cast<DType>(p.dtype);
  if (p.mode == PARTITA_POOL_MAX && (type == DType::U8 || type == DType::I8))
    return type == DType::U8 ? dnnl_u8 : dnnl_s8;
  return dataType(p.dtype);
}

MadeCall onednn::createPool(const task::Pool &p) {
  auto type = poolType(p);
  Window w = makeWindow(p.spatial, false);
  bool countsCeiling = false;
  for (size_t d = 0; d < p.spatial.size(); ++d)
    countsCeiling |= w.padEnd[d] > p.spatial[d].padEnd;
  // Taps that only ceiling added are no padding; oneDNN would count them.
  if (!type || (p.mode == PARTITA_POOL_AVG_INCLUDE && countsCeiling))
    return plain::pool(p);
  auto src = imageDesc(imageDims(p.batch, p.channels, p.spatial, &task::SpatialDim::in),
                       p.src_format, *type);
  auto dst = imageDesc(imageDims(p.batch, p.channels, p.spatial, &task::SpatialDim::out),
                       p.dst_format, *type);
  dnnl_alg_kind_t algorithm = p.mode == PARTITA_POOL_MAX ? dnnl_pooling_max
                              : p.mode == PARTITA_POOL_AVG_INCLUDE
                                  ? dnnl_pooling_avg_include_padding
                                  : dnnl_pooling_avg_exclude_padding;
  dnnl_pooling_v2_desc_t op;
  auto attr = makeAttr({});
  PrimitiveDesc desc;
  auto program = std::make_unique<Program>(task::PoolScratch);
  if (!attr ||
      dnnl_pooling_v2_forward_desc_init(&op, dnnl_forward_inference, algorithm, &src,
                                        &dst, w.strides.data(), w.kernel.data(),
                                        w.dilates.data(), w.padBegin.data(),
                                        w.padEnd.data()) != dnnl_success ||
      dnnl_primitive_desc_create(desc.put(), &op, attr->get(), cpuEngine(), nullptr) !=
          dnnl_success ||
      !program->add(desc, {{DNNL_ARG_SRC, src, {Place::Operand, task::PoolSrc}},
                           {DNNL_ARG_DST, dst, {Place::Operand, task::PoolDst}}}))
    return plain::pool(p);
  program->describeAs(implementationOf(desc));
  return std::unique_ptr<Call>(std::move(program));
}
