//===- View.cpp - Tensors as strided views of a buffer --------------------===//
#include "passes/Codegen/Common/View.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

#include <algorithm>
#include <numeric>

using namespace partita::codegen;

Parts partita::codegen::simplified(Parts parts) {
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

int64_t partita::codegen::sizeOf(const Parts &parts) {
  int64_t size = 1;
  for (const Part &part : parts)
    size *= part.size;
  return size;
}

View View::dense(const Shape &shape) {
  return inOrder(shape, llvm::to_vector<4>(llvm::seq(shape.size())));
}

View View::inOrder(const Shape &shape, llvm::ArrayRef<size_t> order) {
  View view;
  view.dims.resize(shape.size());
  int64_t stride = 1;
  for (size_t d : llvm::reverse(order)) {
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
    all.insert(all.end(), parts.begin(), parts.end());
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
    rest.insert(rest.end(), parts.begin(), parts.end());
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
        taken.insert(taken.begin(), last);
        rest.pop_back();
      } else if (last.size % need == 0) {
        taken.insert(taken.begin(), {need, last.stride});
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
