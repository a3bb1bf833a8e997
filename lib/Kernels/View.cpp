//===- View.cpp - Tensors as strided views of a buffer --------------------===//
#include "partita/Kernels/View.h"

#include "partita/Base/Bundle/Images.h"

#include <algorithm>
#include <numeric>

using namespace partita;
using namespace partita::kernels;

void Parts::push_back(Part part) {
  if (count == own.size())
    more.assign(own.begin(), own.end());
  if (count < own.size())
    own[count] = part;
  else
    more.push_back(part);
  ++count;
}

void Parts::pop_back() {
  if (--count == own.size())
    std::copy_n(more.begin(), count, own.begin());
  if (count >= own.size())
    more.resize(count);
}

void Parts::insertFront(Part part) {
  push_back(part);
  std::rotate(begin(), end() - 1, end());
}

bool Parts::operator==(const Parts &other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

Parts kernels::simplified(Parts parts) {
  Parts result;
  for (const Part &part : parts) {
    if (part.size == 1)
      continue;
    if (!result.empty() && result.back().stride == part.size * part.stride)
      result.back() = {result.back().size * part.size, part.stride};
    else
      result.push_back(part);
  }
  return result;
}

int64_t kernels::sizeOf(const Parts &parts) {
  int64_t size = 1;
  for (const Part &part : parts)
    size *= part.size;
  return size;
}

View View::dense(const Shape &shape) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t(0));
  return inOrder(shape, order);
}

View View::inOrder(const Shape &shape, std::span<const size_t> order) {
  View view;
  view.dims.resize(shape.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    if (shape[d] != 1)
      view.dims[d] = {{shape[d], stride}};
    stride *= shape[d];
  }
  return view;
}

Shape View::shape() const {
  Shape shape;
  for (const Parts &parts : dims)
    shape.push_back(sizeOf(parts));
  return shape;
}

int64_t View::elements() const {
  int64_t count = 1;
  for (const Parts &parts : dims)
    count *= sizeOf(parts);
  return count;
}

bool View::isDense() const {
  Parts all;
  for (const Parts &parts : dims)
    all.append(parts.begin(), parts.end());
  all = simplified(std::move(all));
  return all.empty() || (all.size() == 1 && all[0].stride == 1);
}

View View::denseLike(const Shape &shape) const {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t(0));
  if (dims.size() != shape.size())
    return dense(shape);
  for (const Parts &parts : dims)
    if (parts.size() > 1 || (parts.size() == 1 && parts[0].stride <= 0))
      return dense(shape);
  // Dims of size 1 keep their place behind the dim before them.
  std::vector<int64_t> key(shape.size());
  int64_t last = INT64_MAX;
  for (size_t d = 0; d < dims.size(); ++d)
    key[d] = last = dims[d].empty() ? last : dims[d][0].stride;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key[a] > key[b]; });
  return inOrder(shape, order);
}

View View::transposed(const Shape &permutation) const {
  View view{offset, {}};
  for (int64_t d : permutation)
    view.dims.push_back(dims[static_cast<size_t>(d)]);
  return view;
}

std::optional<View> View::sliced(const Shape &shape, const Shape &starts,
                                 const Shape &steps) const {
  View view = *this;
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t size = sizeOf(dims[d]);
    if (shape[d] == size && starts[d] == 0 && steps[d] == 1)
      continue;
    if (dims[d].size() > 1)
      return std::nullopt;
    int64_t stride = dims[d].empty() ? 0 : dims[d][0].stride;
    view.offset += starts[d] * stride;
    view.dims[d].clear();
    if (shape[d] != 1)
      view.dims[d] = {{shape[d], steps[d] * stride}};
  }
  return view;
}

View View::broadcast(const Shape &shape) const {
  View view{offset, std::vector<Parts>(shape.size())};
  size_t skip = shape.size() - dims.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    bool own = d >= skip && sizeOf(dims[d - skip]) == shape[d];
    if (own)
      view.dims[d] = dims[d - skip];
    else if (shape[d] != 1)
      view.dims[d] = {{shape[d], 0}};
  }
  return view;
}

std::optional<View> View::reshaped(const Shape &shape) const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    return View{offset, View::dense(shape).dims};
  Parts rest;
  for (const Parts &parts : dims)
    rest.append(parts.begin(), parts.end());
  rest = simplified(std::move(rest));
  View view{offset, std::vector<Parts>(shape.size())};
  // From the minor end, so that a part is always cut at its own minor end.
  for (size_t d = shape.size(); d-- > 0;) {
    Parts taken;
    for (int64_t need = shape[d]; need > 1;) {
      if (rest.empty())
        return std::nullopt;
      Part &last = rest.back();
      if (need % last.size == 0) {
        need /= last.size;
        taken.insertFront(last);
        rest.pop_back();
      } else if (last.size % need == 0) {
        taken.insertFront({need, last.stride});
        last = {last.size / need, last.stride * need};
        need = 1;
      } else {
        return std::nullopt;
      }
    }
    view.dims[d] = simplified(std::move(taken));
  }
  return view;
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

std::optional<std::vector<Parts>>
kernels::partsOfLoops(const std::vector<std::vector<int32_t>> &dims,
                      std::span<const int64_t> sizes, const View &view) {
  std::vector<Parts> result(sizes.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    Shape own;
    for (int32_t loop : dims[d])
      own.push_back(sizes[static_cast<size_t>(loop)]);
    auto cut = View{0, {view.dims[d]}}.reshaped(own);
    if (!cut)
      return std::nullopt;
    for (size_t i = 0; i < own.size(); ++i)
      result[static_cast<size_t>(dims[d][i])] = cut->dims[i];
  }
  return result;
}

std::optional<View> kernels::viewOfResult(const OpFacts &facts, const View &operand,
                                          const Shape &result) {
  switch (facts.role) {
  case OpRole::Reshape:
    return operand.reshaped(result);
  case OpRole::Transpose:
    return operand.transposed(facts.numbers[0]);
  case OpRole::Broadcast:
    return operand.broadcast(result);
  case OpRole::Slice:
    return operand.sliced(result, facts.numbers[0], facts.numbers[1]);
  default:
    return std::nullopt;
  }
}

std::optional<View> kernels::viewOfOperand(const OpFacts &facts, const View &result,
                                           const Shape &operand) {
  if (facts.role == OpRole::Reshape)
    return result.reshaped(operand);
  if (facts.role != OpRole::Transpose)
    return std::nullopt;
  const Shape &permutation = facts.numbers[0];
  Shape inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i)
    inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  return result.transposed(inverse);
}

View kernels::imageView(const Images &images, const Shape &shape) {
  return View::inOrder(shape, task::imageOrder(images.format, shape.size()));
}

bool kernels::isImage(const Images &images, const View &view) {
  return view.dims.size() > 2 && view.dims == imageView(images, view.shape()).dims;
}

bool kernels::readsImage(const Images &images, const View &view) {
  return isImage(images, view) ||
         (view.isDense() && sizeOf(view.dims[1]) <= images.fewChannels);
}

std::vector<View> kernels::viewsOfJoin(const View &result,
                                       std::span<const Shape> operands, size_t axis) {
  std::vector<View> views;
  Shape starts(result.dims.size(), 0);
  for (const Shape &shape : operands) {
    views.push_back(*result.sliced(shape, starts, Shape(starts.size(), 1)));
    starts[axis] += shape[axis];
  }
  return views;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Images of different extents, as a pool has them: equal in batch and channels.
static bool areBothImages(const Shape &a, const Shape &b) {
  return a.size() > 2 && a.size() == b.size() && a[0] == b[0] && a[1] == b[1];
}

View kernels::orderOfOutput(std::span<const Lying> operands, const Shape &shape) {
  const View *most = nullptr;
  ptrdiff_t votes = 0;
  for (const Lying &operand : operands) {
    if (operand.view->shape() != shape)
      continue;
    const ptrdiff_t equal = std::ranges::count_if(
        operands, [&](const Lying &other) { return *other.view == *operand.view; });
    if (equal > votes)
      most = operand.view, votes = equal;
  }
  if (most)
    return *most;
  for (const Lying &operand : operands)
    if (operand.isIndexed && areBothImages(operand.view->shape(), shape))
      return *operand.view;
  return View::dense(shape);
}

bool Cuts::nests(const View &view) {
  auto merged = perDim;
  for (size_t d = 0; d < perDim.size(); ++d) {
    int64_t product = 1;
    const Parts &parts = view.dims[d];
    for (size_t p = parts.size(); p-- > 0;)
      merged[d].push_back(product *= parts[p].size);
    std::sort(merged[d].begin(), merged[d].end());
    merged[d].erase(std::unique(merged[d].begin(), merged[d].end()), merged[d].end());
    for (size_t i = 1; i < merged[d].size(); ++i)
      if (merged[d][i] % merged[d][i - 1] != 0)
        return false;
  }
  perDim = std::move(merged);
  return true;
}

View kernels::ownElements(const View &ofPoints) {
  View own = ofPoints;
  for (Parts &parts : own.dims)
    if (std::ranges::all_of(parts, [](const Part &part) { return part.stride == 0; }))
      parts.clear();
  return own;
}
