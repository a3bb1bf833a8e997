//===- Compose.cpp - Operators as programs of graph ops -------------------===//
#include "passes/Import/Compose.h"

#include "partita/Reference/Kernels.h"

#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::import;

std::nullptr_t Compose::fail(std::string message) {
  if (!error)
    error = Error{std::move(message)};
  return nullptr;
}

Value Compose::take(Expected<Value> value) {
  if (!value)
    return fail(value.error().message);
  return *value;
}

Expected<Values> Compose::results(Values values) {
  if (error)
    return tl::unexpected(*error);
  return values;
}

Value Compose::op(StringRef name, ValueRange operands, ArrayRef<NamedAttribute> attrs) {
  if (error || llvm::is_contained(operands, Value()))
    return nullptr;
  return take(importer.emit(("graph." + name).str(), operands, attrs));
}

Values Compose::ops(StringRef name, size_t count, ValueRange operands,
                    ArrayRef<NamedAttribute> attrs) {
  if (error || llvm::is_contained(operands, Value()))
    return Values(count);
  auto values = importer.emitAll(("graph." + name).str(), operands, attrs);
  if (values)
    return *values;
  fail(values.error().message);
  return Values(count);
}

Values Compose::repeat(int64_t trips, const Values &carried, const Values &scanned,
                       size_t count, llvm::function_ref<Values(const Values &)> body) {
  if (error || llvm::is_contained(carried, Value()) ||
      llvm::is_contained(scanned, Value()))
    return Values(count);
  auto values = importer.repeat(trips, carried, scanned, [&](const Values &arguments) {
    return results(body(arguments));
  });
  if (values)
    return *values;
  fail(values.error().message);
  return Values(count);
}

Value Compose::cast(Value value, Type element) {
  if (!value || type(value) == element)
    return value;
  return op("cast", value, importer.attr("to", TypeAttr::get(element)));
}

Value Compose::scalar(Type element, double value) {
  return error || !element ? nullptr : importer.scalar(element, value);
}

Value Compose::like(Value a, double value) {
  return a ? scalar(type(a), value) : nullptr;
}

Value Compose::tensor(Type element, const Shape &shape,
                      const std::vector<double> &values) {
  if (error)
    return nullptr;
  return importer.constant(reference::tensor<double>(*dtypeOf(element), shape, values),
                           importer.nodeName + "/constant");
}

Value Compose::iota(Type element, int64_t extent, size_t d, size_t rank) {
  std::vector<double> values(static_cast<size_t>(extent));
  std::iota(values.begin(), values.end(), 0.0);
  Shape shape(rank, 1);
  if (rank != 0)
    shape[d] = extent;
  return tensor(element, shape, values);
}

Value Compose::reduce(ReduceKind kind, Value a, ArrayRef<int64_t> axes, bool keep) {
  if (axes.empty())
    return a;
  Builder &builder = importer.builder;
  return op(
      "reduce", a,
      {importer.attr("kind", graph::ReduceKindAttr::get(builder.getContext(), kind)),
       importer.attr("axes", axes),
       importer.attr("keep_dims", builder.getBoolAttr(keep))});
}

Value Compose::mean(Value a, ArrayRef<int64_t> axes, bool keep) {
  double count = 1;
  for (int64_t d : axes)
    count *= static_cast<double>(a ? shape(a)[static_cast<size_t>(d)] : 1);
  return div(sum(a, axes, keep), count);
}

Value Compose::reshape(Value a, const Shape &shape) {
  return a ? take(importer.reshape(a, shape)) : nullptr;
}

Value Compose::transpose(Value a, ArrayRef<int64_t> permutation) {
  return op("transpose", a, importer.attr("permutation", permutation));
}

Value Compose::broadcast(Value a, const Shape &to) {
  if (!a || shape(a) == to)
    return a;
  return take(importer.emitShaped("graph.broadcast", a, to));
}

Value Compose::slice(Value a, size_t d, int64_t from, int64_t to) {
  if (!a || (from == 0 && to == shape(a)[d]))
    return a;
  Shape part = shape(a);
  std::vector<int64_t> starts(part.size(), 0), steps(part.size(), 1);
  part[d] = to - from;
  starts[d] = from;
  return take(importer.emitShaped("graph.slice", a, part,
                                  {importer.attr("starts", ArrayRef(starts)),
                                   importer.attr("steps", ArrayRef(steps))}));
}

Value Compose::reversed(Value a, size_t d) {
  if (!a)
    return a;
  std::vector<int64_t> starts(shape(a).size(), 0), steps(shape(a).size(), 1);
  starts[d] = shape(a)[d] - 1;
  steps[d] = -1;
  return take(importer.emitShaped("graph.slice", a, shape(a),
                                  {importer.attr("starts", ArrayRef(starts)),
                                   importer.attr("steps", ArrayRef(steps))}));
}

Value Compose::concat(ValueRange parts, int64_t axis) {
  if (parts.size() == 1)
    return parts[0];
  return op("concat", parts, importer.attr("axis", axis));
}

Value Compose::gather(Value a, Value indices, int64_t axis) {
  return op("gather", {a, indices}, importer.attr("axis", axis));
}

Value Compose::contract(Value a, Value b, const std::string &equation) {
  auto parsed = Equation::parse(equation);
  if (!parsed)
    return fail(parsed.error().message);
  return op("contract", {a, b},
            importer.attr("equation", graph::EquationAttr::get(
                                          importer.builder.getContext(), *parsed)));
}

Type Compose::type(Value a) const {
  return a ? getElementTypeOrSelf(a.getType()) : Type();
}

std::vector<int64_t> Compose::dimsFrom(size_t first, Value a) const {
  std::vector<int64_t> dims;
  for (size_t d = first; d < shape(a).size(); ++d)
    dims.push_back(static_cast<int64_t>(d));
  return dims;
}

size_t Compose::axis(int64_t axis, Value a) {
  auto normal = normalizeAxis(axis, shape(a).size());
  if (!normal) {
    fail(normal.error().message);
    return 0;
  }
  return static_cast<size_t>(*normal);
}
