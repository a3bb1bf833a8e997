//===- View.h - Tensors as strided views of a buffer ------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_VIEW_H
#define PARTITA_PASSES_CODEGEN_COMMON_VIEW_H

#include "partita/Kernels/View.h"

namespace partita::codegen {

using kernels::Part;
using kernels::Parts;
using kernels::Shape;
using kernels::simplified;
using kernels::sizeOf;
using kernels::View;

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_VIEW_H
