//===- Formula.cpp - Programs of graph ops, as formulas  -------------------===//
#include "dialects/Graph/Formula.h"

#include "partita/Reference/Kernels.h"

#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::graph;

std::nullptr_t Formula::fail(std::string message) {
  if (!error)
    error = Error{std::move(message)};
  return nullptr;
}

Value Formula::take(Expected<Value> value) {
  if (!value)
    return fail(value.error().message);
  return *value;
}

Expected<Values> Formula::results(Values values) {
  if (error)
    return tl::unexpected(*error);
  return values;
}

Value Formula::op(StringRef name, ValueRange operands, ArrayRef<NamedAttribute> attrs) {
  if (error || llvm::is_contained(operands, Value()))
    return nullptr;
  auto values = emit(("graph." + name).str(), operands, attrs);
  if (!values)
    return fail(values.error().message);
  return values->front();
}

Value Formula::shaped(StringRef name, ValueRange operands, const Shape &shape,
                      ArrayRef<NamedAttribute> attrs) {
  if (error || llvm::is_contained(operands, Value()))
    return nullptr;
  return take(emitShaped(("graph." + name).str(), operands, shape, attrs));
}

Values Formula::ops(StringRef name, size_t count, ValueRange operands,
                    ArrayRef<NamedAttribute> attrs) {
  if (error || llvm::is_contained(operands, Value()))
    return Values(count);
  auto values = emit(("graph." + name).str(), operands, attrs);
  if (values)
    return *values;
  fail(values.error().message);
  return Values(count);
}

Value Formula::cast(Value value, Type element) {
  if (!value || !element) // what it is to be like has failed
    return nullptr;
  if (type(value) == element)
    return value;
  return op("cast", value, attr("to", TypeAttr::get(element)));
}

Value Formula::scalar(Type element, double value) {
  if (error || !element)
    return nullptr;
  return constant(reference::tensor<double>(*dtypeOf(element), {}, {value}));
}

Value Formula::like(Value a, double value) {
  return a ? scalar(type(a), value) : nullptr;
}

Value Formula::tensor(Type element, const Shape &shape,
                      const std::vector<double> &values) {
  if (error)
    return nullptr;
  return constant(reference::tensor<double>(*dtypeOf(element), shape, values));
}

Value Formula::iota(Type element, int64_t extent, size_t d, size_t rank) {
  std::vector<double> values(static_cast<size_t>(extent));
  std::iota(values.begin(), values.end(), 0.0);
  Shape shape(rank, 1);
  if (rank != 0)
    shape[d] = extent;
  return tensor(element, shape, values);
}

Value Formula::reduce(ReduceKind kind, Value a, ArrayRef<int64_t> axes, bool keep) {
  if (axes.empty())
    return a;
  return op("reduce", a,
            {attr("kind", ReduceKindAttr::get(builder.getContext(), kind)),
             attr("axes", axes), attr("keep_dims", builder.getBoolAttr(keep))});
}

Value Formula::mean(Value a, ArrayRef<int64_t> axes, bool keep) {
  double count = 1;
  for (int64_t d : axes)
    count *= static_cast<double>(a ? shape(a)[static_cast<size_t>(d)] : 1);
  return div(sum(a, axes, keep), count);
}

Value Formula::reciprocalRoot(Value a, double epsilon) {
  Value root = sqrt(add(a, epsilon));
  return div(like(root, 1), root);
}

Value Formula::reshape(Value a, const Shape &shape) {
  if (!a || this->shape(a) == shape)
    return a;
  return take(emitShaped("graph.reshape", a, shape, {}));
}

Value Formula::transpose(Value a, ArrayRef<int64_t> permutation) {
  return op("transpose", a, attr("permutation", permutation));
}

Value Formula::broadcast(Value a, const Shape &to) {
  if (!a || shape(a) == to)
    return a;
  return take(emitShaped("graph.broadcast", a, to, {}));
}

Value Formula::slice(Value a, size_t d, int64_t from, int64_t to) {
  if (!a || (from == 0 && to == shape(a)[d]))
    return a;
  Shape part = shape(a);
  std::vector<int64_t> starts(part.size(), 0), steps(part.size(), 1);
  part[d] = to - from;
  starts[d] = from;
  return take(
      emitShaped("graph.slice", a, part,
                 {attr("starts", ArrayRef(starts)), attr("steps", ArrayRef(steps))}));
}

Value Formula::reversed(Value a, size_t d) {
  if (!a)
    return a;
  std::vector<int64_t> starts(shape(a).size(), 0), steps(shape(a).size(), 1);
  starts[d] = shape(a)[d] - 1;
  steps[d] = -1;
  return take(
      emitShaped("graph.slice", a, shape(a),
                 {attr("starts", ArrayRef(starts)), attr("steps", ArrayRef(steps))}));
}

Value Formula::concat(ValueRange parts, int64_t axis) {
  if (parts.size() == 1)
    return parts[0];
  return op("concat", parts, attr("axis", axis));
}

Value Formula::pad(Value a, ArrayRef<int64_t> low, ArrayRef<int64_t> high, double value) {
  auto isZero = [](int64_t amount) { return amount == 0; };
  if (llvm::all_of(low, isZero) && llvm::all_of(high, isZero))
    return a;
  return op("pad", {a, like(a, value)}, {attr("low", low), attr("high", high)});
}

Value Formula::zeros(Type element, const Shape &shape) {
  if (error || !element)
    return nullptr;
  auto type = RankedTensorType::get(shape, element);
  return ConstantOp::create(builder, where,
                            SplatElementsAttr::get(type, builder.getZeroAttr(element)));
}

Value Formula::unbroadcast(Value a, const Shape &to) {
  Shape from = shape(a);
  if (!a || from == to)
    return a;
  std::vector<int64_t> axes;
  size_t added = from.size() - to.size();
  for (size_t d = 0; d < from.size(); ++d)
    if (d < added || (to[d - added] == 1 && from[d] != 1))
      axes.push_back(static_cast<int64_t>(d));
  return reshape(sum(a, axes, false), to);
}

Value Formula::gather(Value a, Value indices, int64_t axis) {
  return op("gather", {a, indices}, attr("axis", axis));
}

Value Formula::contract(Value a, Value b, const std::string &equation) {
  auto parsed = Equation::parse(equation);
  return parsed ? contract(a, b, *parsed) : fail(parsed.error().message);
}

Value Formula::contract(Value a, Value b, const Equation &equation) {
  return op("contract", {a, b},
            attr("equation", EquationAttr::get(builder.getContext(), equation)));
}

Type Formula::type(Value a) const {
  return a ? getElementTypeOrSelf(a.getType()) : Type();
}

std::vector<int64_t> Formula::dimsFrom(size_t first, Value a) const {
  std::vector<int64_t> dims;
  for (size_t d = first; d < shape(a).size(); ++d)
    dims.push_back(static_cast<int64_t>(d));
  return dims;
}

size_t Formula::axis(int64_t axis, Value a) {
  auto normal = normalizeAxis(axis, shape(a).size());
  if (!normal) {
    fail(normal.error().message);
    return 0;
  }
  return static_cast<size_t>(*normal);
}

Value Formula::map(const Payload &payload, ValueRange operands) {
  return op("map", operands,
            attr("payload", PayloadAttr::get(builder.getContext(), payload)));
}

Value Formula::map(StringRef payload, ValueRange operands) {
  auto parsed = Payload::parse(std::string_view(payload));
  return parsed ? map(*parsed, operands) : fail(parsed.error().message);
}

Expected<Values> Formula::emit(StringRef op, ValueRange operands,
                               ArrayRef<NamedAttribute> attrs) {
  auto created = createInferred(builder, where, op, operands, attrs);
  if (!created)
    return tl::unexpected(created.error());
  return Values((*created)->result_begin(), (*created)->result_end());
}

Expected<Value> Formula::emitShaped(StringRef op, ValueRange operands, const Shape &shape,
                                    ArrayRef<NamedAttribute> attrs) {
  auto created = createShaped(builder, where, op, operands, shape, attrs);
  if (!created)
    return tl::unexpected(created.error());
  return (*created)->getResult(0);
}

Value Formula::constant(const HostTensor &tensor) {
  return ConstantOp::create(builder, where, toAttribute(builder.getContext(), tensor));
}
