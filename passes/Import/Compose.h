//===- Compose.h - Operators as programs of graph ops -----------*- C++ -*-===//
//
// Most ONNX operators are a few graph ops, and lose nothing by it: each op splits along
// its loops, and what is elementwise shares a kernel again. A Compose is a Formula whose
// ops are folded as those of the importer are:
//
//     Compose c(importer);
//     Value mean = c.mean(x, axes), d = c.sub(x, mean);
//     return c.results({c.div(d, c.sqrt(c.add(c.mean(c.mul(d, d), axes), epsilon)))});
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_IMPORT_COMPOSE_H
#define PARTITA_PASSES_IMPORT_COMPOSE_H

#include "dialects/Graph/Formula.h"
#include "passes/Import/Importer.h"

namespace partita::import {

class Compose : public graph::Formula {
public:
  explicit Compose(Importer &importer)
      : Formula(importer.builder, importer.location), importer(importer) {}

  Importer &importer;

  /// Over dims that may have counts: of what is there.
  mlir::Value mean(mlir::Value a, llvm::ArrayRef<int64_t> axes, bool keep = true);

  /// A loop of `count` results: see Importer::repeat.
  Values repeat(int64_t trips, const Values &carried, const Values &scanned, size_t count,
                llvm::function_ref<Values(const Values &)> body);

protected:
  Expected<Values> emit(llvm::StringRef op, mlir::ValueRange operands,
                        llvm::ArrayRef<mlir::NamedAttribute> attrs) override;
  Expected<mlir::Value> emitShaped(llvm::StringRef op, mlir::ValueRange operands,
                                   const Shape &shape,
                                   llvm::ArrayRef<mlir::NamedAttribute> attrs) override;
  mlir::Value constant(const HostTensor &tensor) override;
};

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_COMPOSE_H
