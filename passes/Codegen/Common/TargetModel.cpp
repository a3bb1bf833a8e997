//===- TargetModel.cpp - What code is generated for -----------------------===//
#include "passes/Codegen/Common/TargetModel.h"

#include "partita/Base/Bundle/Images.h"

using namespace partita;
using namespace partita::codegen;

View TargetModel::image(const Shape &shape) const {
  return View::inOrder(shape, task::imageOrder(kernels.images.format, shape.size()));
}

bool TargetModel::isImage(const View &view) const {
  return view.dims.size() > 2 && view.dims == image(view.shape()).dims;
}

bool TargetModel::readsImage(const View &view) const {
  return isImage(view) ||
         (view.isDense() && sizeOf(view.dims[1]) <= kernels.images.fewChannels);
}

int64_t TargetModel::formatOf(const View &view) const {
  return isImage(view) ? kernels.images.format : task::rowMajorImage;
}

std::vector<size_t> TargetModel::orderOf(const View &view) const {
  return task::imageOrder(formatOf(view), view.dims.size());
}
