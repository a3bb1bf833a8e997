//===- Formula.h - Programs of graph ops, written as formulas ----*- C++ -*-===//
//
// Imports of operators, gradients, losses and optimizers are a few graph ops each. A
// Formula builds such a program. The first error is kept; steps behind it do nothing and
// give null values, so that the code reads like the formula it implements:
//
//     Formula f(builder, location);
//     Value mean = f.mean(x, axes), d = f.sub(x, mean);
//     return f.results({f.div(d, f.sqrt(f.add(f.mean(f.mul(d, d), axes), epsilon)))});
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_GRAPH_FORMULA_H
#define PARTITA_DIALECTS_GRAPH_FORMULA_H

#include "dialects/Graph/Graph.h"

#include "mlir/IR/Builders.h"

#include <optional>

namespace partita::graph {

using Values = std::vector<mlir::Value>;

class Formula {
public:
  Formula(mlir::OpBuilder &builder, mlir::Location location)
      : builder(builder), where(location) {}
  virtual ~Formula() = default;

  mlir::OpBuilder &builder;

  bool failed() const { return error.has_value(); }
  /// Keeps the first error.
  std::nullptr_t fail(std::string message);
  mlir::Value take(Expected<mlir::Value> value);
  /// The values, or the first error.
  Expected<Values> results(Values values);

  // Any op: `graph.` before its name.
  mlir::Value op(llvm::StringRef name, mlir::ValueRange operands,
                 llvm::ArrayRef<mlir::NamedAttribute> attrs = {});

  /// An op whose result's shape is part of the program.
  mlir::Value shaped(llvm::StringRef name, mlir::ValueRange operands, const Shape &shape,
                     llvm::ArrayRef<mlir::NamedAttribute> attrs);

  /// An op of `count` results.
  Values ops(llvm::StringRef name, size_t count, mlir::ValueRange operands,
             llvm::ArrayRef<mlir::NamedAttribute> attrs = {});

  /// The elementwise op of a payload (graph.map) on operands x, y, z, w, x4, …
  mlir::Value map(const Payload &payload, mlir::ValueRange operands);
  mlir::Value map(llvm::StringRef payload, mlir::ValueRange operands);

  // Elementwise; the operands have one element type and broadcast.
  mlir::Value add(mlir::Value a, mlir::Value b) { return op("add", {a, b}); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return op("sub", {a, b}); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return op("mul", {a, b}); }
  mlir::Value div(mlir::Value a, mlir::Value b) { return op("div", {a, b}); }
  mlir::Value max(mlir::Value a, mlir::Value b) { return op("max", {a, b}); }
  mlir::Value min(mlir::Value a, mlir::Value b) { return op("min", {a, b}); }
  mlir::Value sqrt(mlir::Value a) { return op("sqrt", a); }
  mlir::Value equal(mlir::Value a, mlir::Value b) { return op("equal", {a, b}); }
  mlir::Value less(mlir::Value a, mlir::Value b) { return op("less", {a, b}); }
  mlir::Value both(mlir::Value a, mlir::Value b) { return op("and", {a, b}); }
  mlir::Value select(mlir::Value condition, mlir::Value yes, mlir::Value no) {
    return op("where", {condition, yes, no});
  }
  mlir::Value cast(mlir::Value value, mlir::Type element);
  /// With a number on the right, of the left one's element type.
  mlir::Value add(mlir::Value a, double b) { return add(a, like(a, b)); }
  mlir::Value sub(mlir::Value a, double b) { return sub(a, like(a, b)); }
  mlir::Value mul(mlir::Value a, double b) { return mul(a, like(a, b)); }
  mlir::Value div(mlir::Value a, double b) { return div(a, like(a, b)); }
  mlir::Value max(mlir::Value a, double b) { return max(a, like(a, b)); }
  mlir::Value min(mlir::Value a, double b) { return min(a, like(a, b)); }
  mlir::Value equal(mlir::Value a, double b) { return equal(a, like(a, b)); }
  mlir::Value less(mlir::Value a, double b) { return less(a, like(a, b)); }
  mlir::Value pow(mlir::Value a, double b) { return op("pow", {a, like(a, b)}); }
  mlir::Value clamp(mlir::Value a, double low, double high) {
    return min(max(a, low), high);
  }

  // Constants.
  mlir::Value scalar(mlir::Type element, double value);
  /// A scalar of the element type of `a`.
  mlir::Value like(mlir::Value a, double value);
  mlir::Value tensor(mlir::Type element, const Shape &shape,
                     const std::vector<double> &values);
  /// 0, 1, 2, … along dim `d` of a tensor of `rank` dims, whose other dims are 1.
  mlir::Value iota(mlir::Type element, int64_t extent, size_t d, size_t rank);

  // Over dims; the reduced ones stay with size 1 where `keep`.
  mlir::Value reduce(ReduceKind kind, mlir::Value a, llvm::ArrayRef<int64_t> axes,
                     bool keep = true);
  mlir::Value sum(mlir::Value a, llvm::ArrayRef<int64_t> axes, bool keep = true) {
    return reduce(ReduceKind::Sum, a, axes, keep);
  }
  mlir::Value mean(mlir::Value a, llvm::ArrayRef<int64_t> axes, bool keep = true);

  /// What a value broadcast to the shape of `a` gets of `a`: the sums over the dims that
  /// were stretched or added.
  mlir::Value unbroadcast(mlir::Value a, const Shape &shape);

  /// 1 / √(a + epsilon).
  mlir::Value reciprocalRoot(mlir::Value a, double epsilon);

  // Movements.
  mlir::Value reshape(mlir::Value a, const Shape &shape);
  mlir::Value transpose(mlir::Value a, llvm::ArrayRef<int64_t> permutation);
  mlir::Value broadcast(mlir::Value a, const Shape &shape);
  /// Elements [from, to) of dim `d`.
  mlir::Value slice(mlir::Value a, size_t d, int64_t from, int64_t to);
  /// From the last element of dim `d` to the first.
  mlir::Value reversed(mlir::Value a, size_t d);
  mlir::Value concat(mlir::ValueRange parts, int64_t axis);
  mlir::Value gather(mlir::Value a, mlir::Value indices, int64_t axis);
  /// Elements around every dim, of one value; negative amounts cut.
  mlir::Value pad(mlir::Value a, llvm::ArrayRef<int64_t> low,
                  llvm::ArrayRef<int64_t> high, double value = 0);
  /// Zeros of the type of `a`.
  mlir::Value zerosLike(mlir::Value a) { return a ? zeros(type(a), shape(a)) : nullptr; }
  mlir::Value zeros(mlir::Type element, const Shape &shape);
  mlir::Value contract(mlir::Value a, mlir::Value b, const std::string &equation);
  mlir::Value contract(mlir::Value a, mlir::Value b, const Equation &equation);

  // Attributes.
  mlir::NamedAttribute attr(llvm::StringRef name, mlir::Attribute value) const {
    return builder.getNamedAttr(name, value);
  }
  mlir::NamedAttribute attr(llvm::StringRef name, int64_t value) const {
    return attr(name, builder.getI64IntegerAttr(value));
  }
  mlir::NamedAttribute attr(llvm::StringRef name, llvm::ArrayRef<int64_t> value) const {
    return attr(name, builder.getDenseI64ArrayAttr(value));
  }

  // What the formulas ask.
  Shape shape(mlir::Value a) const { return a ? shapeOf(a) : Shape{}; }
  mlir::Type type(mlir::Value a) const;
  /// Dims [first, rank) of `a`.
  std::vector<int64_t> dimsFrom(size_t first, mlir::Value a) const;
  mlir::Type i64() const { return builder.getI64Type(); }
  mlir::Type f32() const { return builder.getF32Type(); }
  /// The axis counted from the front; an error if it is out of range.
  size_t axis(int64_t axis, mlir::Value a);

protected:
  // How an op, one whose shape is part of the program, and a constant are made. Import
  // folds, and keeps large constants as weights.
  virtual Expected<Values> emit(llvm::StringRef op, mlir::ValueRange operands,
                                llvm::ArrayRef<mlir::NamedAttribute> attrs);
  virtual Expected<mlir::Value> emitShaped(llvm::StringRef op, mlir::ValueRange operands,
                                           const Shape &shape,
                                           llvm::ArrayRef<mlir::NamedAttribute> attrs);
  virtual mlir::Value constant(const HostTensor &tensor);

private:
  mlir::Location where;
  std::optional<Error> error;
};

} // namespace partita::graph

#endif // PARTITA_DIALECTS_GRAPH_FORMULA_H
