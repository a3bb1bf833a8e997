//===- Compose.cpp - Operators as programs of graph ops -------------------===//
#include "passes/Import/Compose.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;

Value Compose::mean(Value a, ArrayRef<int64_t> axes, bool keep) {
  double known = 1;
  Value count;
  for (int64_t axis : axes) {
    auto d = static_cast<size_t>(axis);
    Value own = a ? importer.countOf(a, d) : Value();
    known *= a && !own ? static_cast<double>(shape(a)[d]) : 1;
    if (own)
      count = count ? mul(count, own) : own;
  }
  Value total = sum(a, axes, keep);
  if (!count)
    return div(total, known);
  return div(total, mul(cast(count, type(total)), known));
}

Values Compose::repeat(int64_t trips, const Values &carried, const Values &scanned,
                       size_t count, llvm::function_ref<Values(const Values &)> body) {
  if (failed() || llvm::is_contained(carried, Value()) ||
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

Expected<Values> Compose::emit(StringRef op, ValueRange operands,
                               ArrayRef<NamedAttribute> attrs) {
  return importer.emitAll(op, operands, attrs);
}

Expected<Value> Compose::emitShaped(StringRef op, ValueRange operands, const Shape &shape,
                                    ArrayRef<NamedAttribute> attrs) {
  return importer.emitShaped(op, operands, shape, attrs);
}

Value Compose::constant(const HostTensor &tensor) {
  return importer.constant(tensor, importer.nodeName + "/constant");
}
