//===- KernelText.cpp - Kernels and programs as text ----------------------===//
#include "passes/Codegen/Common/ProgramText.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

static void printList(raw_ostream &os, ArrayRef<int64_t> values) {
  os << "[";
  llvm::interleaveComma(values, os);
  os << "]";
}

static void printOperand(raw_ostream &os, const KernelOperand &operand) {
  os << name(operand.type);
  if (!operand.view.dims.empty()) {
    os << " view";
    for (const Parts &parts : operand.view.dims) {
      os << " (";
      llvm::interleave(
          parts, os, [&](const Part &p) { os << p.size << ":" << p.stride; }, " ");
      os << ")";
    }
  } else {
    os << " strides ";
    printList(os, operand.strides);
  }
  if (operand.offset != 0)
    os << " offset " << operand.offset;
}

/// The op's name and attributes, without what the plan left on it.
static void printOp(raw_ostream &os, Operation *op) {
  os << op->getName();
  SmallVector<NamedAttribute> attributes;
  for (NamedAttribute attribute : op->getAttrDictionary())
    if (!attribute.getName().getValue().starts_with("dist.") &&
        attribute.getName() != parameterAttr)
      attributes.push_back(attribute);
  if (!attributes.empty())
    os << " " << DictionaryAttr::get(op->getContext(), attributes);
}

static void printNode(raw_ostream &os, const KernelNode &node) {
  switch (node.kind) {
  case KernelNode::Load:
    os << "load #" << node.operand;
    break;
  case KernelNode::Constant:
    os << "constant ";
    (*cast<DenseElementsAttr>(cast<graph::ConstantOp>(node.op).getValue())
          .getValues<Attribute>()
          .begin())
        .print(os);
    break;
  case KernelNode::Payload:
    if (node.own) {
      os << "\"" << node.own->str() << "\"";
      break;
    }
    [[fallthrough]];
  case KernelNode::Row:
  case KernelNode::Indexed:
    printOp(os, node.op);
    break;
  case KernelNode::Result:
    os << "result " << node.result << " of";
    break;
  case KernelNode::Score:
    os << "score";
    break;
  }
  for (int arg : node.args)
    os << " %" << arg;
  for (int read : node.reads)
    os << " #" << read;
  if (node.kind == KernelNode::Indexed) {
    os << " ";
    printList(os, cast<RankedTensorType>(node.op->getResult(0).getType()).getShape());
  }
  os << " : " << name(node.type);
}

static void printAttention(raw_ostream &os, const AttentionSpec &a) {
  static const char *hides[] = {"", " hidden unless", " hidden where",
                                " hidden by the sum of"};
  os << " attention" << (a.isGradient() ? "'s gradient by" : "")
     << (a.ofQueries ? " queries" : "") << (a.ofKeys ? " keys" : "") << " scale "
     << a.scale << " of %" << a.logits << " in blocks of " << a.queryBlock << " by "
     << a.keyBlock << (a.zeroForNaN ? " zero for NaN" : "")
     << hides[static_cast<int>(a.hides)];
  for (int node : a.hiders)
    os << " %" << node;
}

std::string KernelSpec::text() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "  domain ";
  printList(os, domain);
  if (rowDims != 0)
    os << " row dims " << rowDims;
  if (scratchBytes != 0)
    os << " scratch " << scratchBytes;
  if (numScalars != 0)
    os << " scalars " << numScalars;
  if (attention)
    printAttention(os, *attention);
  os << "\n";
  if (!originalDims.empty()) {
    os << "  index";
    for (const auto &terms : originalDims) {
      os << " (";
      llvm::interleave(
          terms, os,
          [&](const IndexTerm &t) {
            os << "i" << t.dim;
            if (t.weight != 1)
              os << "*" << t.weight;
          },
          " + ");
      os << ")";
    }
    os << "\n";
  }
  for (auto [i, operand] : llvm::enumerate(operands)) {
    os << "  #" << i << " = ";
    printOperand(os, operand);
    os << "\n";
  }
  for (auto [i, node] : llvm::enumerate(nodes)) {
    os << "  %" << i << " = ";
    printNode(os, node);
    os << "\n";
  }
  for (auto [i, output] : llvm::enumerate(outputs)) {
    os << "  store " << (attention ? "attention" : "%" + std::to_string(output.node))
       << " to #" << operands.size() + i << " ";
    printOperand(os, output);
    os << (output.perRow ? " per row" : "");
    if (!output.perRow && storedPoints >= 0)
      os << " first " << storedPoints;
    os << "\n";
  }
  return text;
}

static void printTask(raw_ostream &os, const Program &program, const Task &task) {
  os << "task " << name(task.kind());
  auto *kernel = std::get_if<task::Kernel>(&task.params);
  if (kernel)
    os << " @" << kernelSymbol(kernel->kernel);
  os << " (";
  llvm::interleaveComma(task.operands, os, [&](const Place &place) {
    if (place.storage < 0) {
      os << "-";
      return;
    }
    const Storage &storage = program.storages[static_cast<size_t>(place.storage)];
    os << (storage.space == Space::Weight ? "w" : "b") << place.storage;
    if (place.offset != 0)
      os << "+" << place.offset;
  });
  os << ")";
  if (!kernel)
    os << " " << task::text(task.params);
  if (!task.layouts.empty())
    os << " from " << task.layouts[0].str(program.mesh) << " to "
       << task.layouts[1].str(program.mesh);
  os << " // " << task.source << "\n";
}

std::string codegen::programText(const Program &program) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (auto [i, kernel] : llvm::enumerate(program.kernels))
    os << "kernel @" << kernelSymbol(i) << "\n" << kernel.text();
  for (const TensorEntry &tensor : program.tensors) {
    static const char *roles[] = {"input", "output", "weight", "state"};
    os << roles[static_cast<int>(tensor.spec.role)] << " \"" << tensor.spec.name << "\" "
       << name(tensor.spec.type) << " " << tensor.spec.layout.str(program.mesh) << " in b"
       << tensor.storage;
    if (const auto &roll = program.storages[static_cast<size_t>(tensor.storage)].roll)
      os << " rolls by " << roll->advance << " of " << roll->capacity
         << " rows along dim " << roll->dim;
    os << "\n";
  }
  for (const Task &task : program.tasks)
    printTask(os, program, task);
  for (const auto &[node, why] : program.notes)
    os << "note " << node << ": " << why << "\n";
  return text;
}
