//===- TargetModel.cpp - What code is generated for -----------------------===//
#include "passes/Codegen/Common/TargetModel.h"

#include "partita/Base/Bundle/Images.h"

using namespace partita;
using namespace partita::codegen;

View TargetModel::image(const Shape &shape) const {
  return partita::kernels::imageView(kernels.images, shape);
}

bool TargetModel::isImage(const View &view) const {
  return partita::kernels::isImage(kernels.images, view);
}

bool TargetModel::readsImage(const View &view) const {
  return partita::kernels::readsImage(kernels.images, view);
}

int64_t TargetModel::formatOf(const View &view) const {
  return isImage(view) ? kernels.images.format : task::rowMajorImage;
}

std::vector<size_t> TargetModel::orderOf(const View &view) const {
  return task::imageOrder(formatOf(view), view.dims.size());
}
