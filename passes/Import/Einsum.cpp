//===- Einsum.cpp - Import of sums of products by an equation -------------===//
#include "passes/Import/Counted.h"

#include <map>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

namespace {
/// One operand or result: a name per dim; those of an ellipsis are its places from the
/// end, "0", "1", ….
using EinsumDims = std::vector<std::string>;
} // namespace

static bool isLetter(char ch) { return (ch | 32) >= 'a' && (ch | 32) <= 'z'; }

static Expected<EinsumDims> einsumDims(StringRef text, size_t rank, bool isResult) {
  EinsumDims dims;
  size_t letters = llvm::count_if(text, [](char ch) { return isLetter(ch); });
  for (size_t i = 0; i < text.size(); ++i) {
    if (isLetter(text[i])) {
      dims.emplace_back(1, text[i]);
    } else if (text.substr(i).starts_with("...")) {
      size_t count = rank - std::min(rank, letters);
      for (size_t d = 0; d < count; ++d)
        dims.push_back("e" + std::to_string(count - 1 - d));
      i += 2;
    } else if (text[i] != ' ') {
      return makeError("the equation has '" + std::string(1, text[i]) + "'");
    }
  }
  if (!isResult && dims.size() != rank)
    return makeError("the equation has " + std::to_string(dims.size()) +
                     " dims for an operand of rank " + std::to_string(rank));
  return dims;
}

/// Takes the diagonal where an operand has a dim twice: of [.., n, .., n, ..] the
/// elements that an identity matrix has, summed over one of them.
static Value einsumDiagonals(Compose &c, Value a, EinsumDims &dims) {
  for (size_t i = 0; i < dims.size(); ++i)
    for (size_t j = dims.size(); j-- > i + 1;) {
      if (dims[i] != dims[j] || !a)
        continue;
      Value same = c.equal(placesAlong(c, a, i), placesAlong(c, a, j));
      a = c.sum(c.select(same, a, c.like(a, 0)), {static_cast<int64_t>(j)}, false);
      dims.erase(dims.begin() + static_cast<int64_t>(j));
    }
  return a;
}

static std::string einsumText(const EinsumDims &dims, const Shape &shape) {
  std::string text;
  for (size_t d = 0; d < dims.size(); ++d)
    text += (text.empty() ? "" : " ") + (shape[d] == 1 ? "1" : dims[d]);
  return text;
}

/// Sums away what is in no list of `kept`; then orders like `result`, if given.
static Value einsumReduce(Compose &c, Value a, EinsumDims &dims, const EinsumDims &kept) {
  std::vector<int64_t> gone;
  EinsumDims left;
  for (size_t d = 0; d < dims.size(); ++d)
    if (llvm::is_contained(kept, dims[d]))
      left.push_back(dims[d]);
    else
      gone.push_back(static_cast<int64_t>(d));
  dims = left;
  return c.sum(a, gone, false);
}

/// Two operands at a time; what is in neither the result nor a later operand is summed.
static Expected<Values> importEinsum(Importer &importer, const Node &node) {
  Compose c(importer);
  std::string equation = stringAttr(node, "equation", "");
  auto [left, right] = StringRef(equation).split("->");
  SmallVector<StringRef> texts;
  left.split(texts, ',');
  if (texts.size() != node.inputs.size())
    return makeError("the equation has " + std::to_string(texts.size()) + " operands");
  std::vector<EinsumDims> dims;
  std::vector<Value> operands;
  std::map<std::string, int> times;
  size_t mostRank = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    Value a = importer.input(node, i);
    auto own = einsumDims(texts[i], c.shape(a).size(), false);
    if (!own)
      return tl::unexpected(own.error());
    for (const std::string &name : *own)
      ++times[name];
    mostRank = std::max(mostRank, static_cast<size_t>(llvm::count_if(
                                      *own, [](auto &n) { return n.size() > 1; })));
    operands.push_back(einsumDiagonals(c, a, *own));
    dims.push_back(std::move(*own));
  }
  EinsumDims result;
  if (equation.find("->") == std::string::npos) {
    // Implicit: the ellipsis, then the letters that are there once, in order.
    for (size_t d = mostRank; d-- > 0;)
      result.push_back("e" + std::to_string(d));
    for (const auto &[name, count] : times)
      if (count == 1 && name.size() == 1)
        result.push_back(name);
  } else {
    size_t letters = llvm::count_if(right, [](char ch) { return isLetter(ch); });
    auto own = einsumDims(right, letters + mostRank, true);
    if (!own)
      return tl::unexpected(own.error());
    result = std::move(*own);
  }
  Value a = operands[0];
  EinsumDims names = dims[0];
  for (size_t i = 1; i < operands.size() && !c.failed(); ++i) {
    EinsumDims kept = result, joined;
    for (size_t later = i + 1; later < dims.size(); ++later)
      llvm::append_range(kept, dims[later]);
    EinsumDims after = kept;
    llvm::append_range(after, dims[i]);
    a = einsumReduce(c, a, names, after);
    after = kept;
    llvm::append_range(after, names);
    Value b = einsumReduce(c, operands[i], dims[i], after);
    for (const EinsumDims *list : {&names, &dims[i]})
      for (const std::string &name : *list)
        if (llvm::is_contained(kept, name) && !llvm::is_contained(joined, name))
          joined.push_back(name);
    // A dim of 1 that the other operand has longer broadcasts.
    Shape shape;
    for (const std::string &name : joined) {
      int64_t extent = 1;
      for (auto [list, value] : {std::pair(&names, a), std::pair(&dims[i], b)})
        for (size_t d = 0; d < list->size(); ++d)
          if ((*list)[d] == name && value && c.shape(value)[d] != 1)
            extent = c.shape(value)[d];
      shape.push_back(extent);
    }
    if (!a || !b)
      break;
    a = c.contract(a, b,
                   einsumText(names, c.shape(a)) + ", " +
                       einsumText(dims[i], c.shape(b)) + " -> " +
                       einsumText(joined, shape));
    names = joined;
  }
  a = einsumReduce(c, a, names, result);
  std::vector<int64_t> order;
  for (const std::string &name : result)
    order.push_back(llvm::find(names, name) - names.begin());
  if (order.size() != names.size() || llvm::is_contained(order, int64_t(names.size())))
    return makeError("the equation's result has a dim that is in no operand");
  return c.results({c.transpose(a, order)});
}

void import::addEinsum(HandlerTable &table) {
  table["Einsum"] = takesCounts(importEinsum);
}
