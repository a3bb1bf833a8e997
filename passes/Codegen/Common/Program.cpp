//===- Program.cpp - Which kernels are equal ------------------------------===//
#include "passes/Codegen/Common/Program.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "passes/Codegen/Common/Interfaces.h"

#include "llvm/ADT/Hashing.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

int64_t KernelSpec::rowElements() const {
  int64_t count = 1;
  for (size_t d = domain.size() - static_cast<size_t>(rowDims); d < domain.size(); ++d)
    count *= domain[d];
  return count;
}

uint64_t KernelSpec::scratchOffset(size_t node, int64_t slot) const {
  for (const KernelNode &earlier : ArrayRef(nodes).take_front(node))
    if (earlier.kind == KernelNode::Row)
      slot += cast<RowOpInterface>(earlier.op).numScratchRows();
  uint64_t row = static_cast<uint64_t>(rowElements()) * sizeof(double);
  return static_cast<uint64_t>(slot) * ((row + 63) / 64 * 64);
}

bool KernelSpec::changesInPlace(int number) const {
  if (attention)
    return false;
  const KernelNode &n = nodes[static_cast<size_t>(number)];
  if (n.kind != KernelNode::Row || outputs.size() != 1 || rowDims != 1 ||
      outputs[0].node != number || !kernelFactsOf(n.op).mayChangeInPlace)
    return false;
  const KernelNode &first = nodes[static_cast<size_t>(n.args[0])];
  if (first.kind != KernelNode::Load ||
      operands[static_cast<size_t>(first.operand)].output != 0)
    return false;
  // Whoever else looks at a row needs it as a whole.
  return llvm::count_if(nodes, [&](const KernelNode &other) {
           return llvm::is_contained(other.args, n.args[0]) ||
                  llvm::is_contained(other.args, number);
         }) == 1;
}

static Attribute uniformElement(Operation *op) {
  auto elements = cast<DenseElementsAttr>(cast<graph::ConstantOp>(op).getValue());
  return *elements.getValues<Attribute>().begin();
}

/// But for the part of a training step, and what of the model it is for: what the
/// backward pass repeats is the same kernel, as is the update of each parameter.
static bool haveEqualMarks(Operation *a, Operation *b) {
  DictionaryAttr first = a->getDiscardableAttrDictionary(),
                 second = b->getDiscardableAttrDictionary();
  auto rest = [](DictionaryAttr marks) {
    return llvm::make_filter_range(marks.getValue(), [](NamedAttribute mark) {
      return mark.getName() != phaseAttr && mark.getName() != parameterAttr;
    });
  };
  return first == second || llvm::equal(rest(first), rest(second));
}

/// Attributes are unique in a context: comparing them is comparing pointers, where their
/// text would have to be made for every use of a kernel.
static bool haveEqualAttributes(Operation *a, Operation *b) {
  return a->getName() == b->getName() && haveEqualMarks(a, b) &&
         a->getName().compareOpProperties(a->getPropertiesStorage(),
                                          b->getPropertiesStorage());
}

bool KernelNode::operator==(const KernelNode &other) const {
  if (kind != other.kind || type != other.type || operand != other.operand ||
      args != other.args || reads != other.reads || scalar != other.scalar ||
      result != other.result || own != other.own)
    return false;
  if (op == other.op || kind == Load)
    return true;
  if (kind == Constant)
    return uniformElement(op) == uniformElement(other.op);
  // An Indexed op computes with the shape of its result.
  return haveEqualAttributes(op, other.op) &&
         (kind != Indexed || op->getResultTypes() == other.op->getResultTypes());
}

size_t KernelSpec::hash() const {
  llvm::hash_code code = llvm::hash_combine(llvm::hash_combine_range(domain), rowDims,
                                            scratchBytes, operands.size());
  for (const auto *list : {&operands, &outputs})
    for (const KernelOperand &operand : *list)
      code = llvm::hash_combine(code, operand.type, operand.offset,
                                llvm::hash_combine_range(operand.strides));
  for (const KernelNode &node : nodes)
    code = llvm::hash_combine(
        code, node.kind, node.type, node.operand, llvm::hash_combine_range(node.args),
        node.op ? node.op->getName().getAsOpaquePointer() : nullptr);
  return code;
}
