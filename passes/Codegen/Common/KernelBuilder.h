//===- KernelBuilder.h - One kernel and its task ----------------*- C++ -*-===//
//
// Collects the nodes of a kernel over a domain, then refines the domain so that every
// operand has one stride per dim, orders and merges its dims, and adds the task.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_KERNELBUILDER_H
#define PARTITA_PASSES_CODEGEN_COMMON_KERNELBUILDER_H

#include "passes/Codegen/Common/TaskFormer.h"

namespace partita::codegen {

class KernelBuilder {
public:
  KernelBuilder(TaskFormer &former, Shape domain, std::vector<int64_t> rowDims)
      : former(former), shape(std::move(domain)), rowDims(std::move(rowDims)),
        cuts(shape.size()) {}

  /// Values that ops of the group compute become nodes, others are loaded.
  void setGroup(int32_t number) { group = number; }
  /// Likewise for single ops.
  void addMember(mlir::Operation *op) { members.insert(op); }
  /// Says which node a value is.
  void setNode(mlir::Value value, int node) { nodes[value] = node; }
  int nodeOf(mlir::Value value);
  /// A load of a tensor that broadcasts to the domain.
  int load(const Tensor &tensor, DType type);
  /// The kernel is attention's (AttentionSpec), whose first three operands are read.
  void setAttention(AttentionSpec spec) { attention = std::move(spec); }
  /// An operand that no node loads; `view` is its storage as seen from the domain.
  void addOperand(const Tensor &tensor, View view, DType type);
  /// A node of a payload that is one of several of `op`.
  int addPayload(mlir::Operation *op, partita::Payload payload, std::vector<int> args,
                 DType type);
  /// The node that stands for attention's first product.
  int score(DType type);
  const KernelNode &node(int number) const { return list[static_cast<size_t>(number)]; }
  /// The view that most operands of this shape have, or of an image that is read at
  /// computed places, whose order in memory an output should have; row-major if there is
  /// none.
  View model(const Shape &shape) const;
  /// `view` is the tensor's storage as seen from the domain.
  void addOutput(int node, const Tensor &tensor, View view, DType type, bool perRow);

  /// Says that nobody reads an output behind so many points of its row.
  void storeFirst(int64_t points) { storedPoints = points; }

  /// Adds the kernel, unless an equal one exists, and its task.
  void finish(const std::string &source);

private:
  /// A strided operand before the domain is refined.
  struct Access {
    Tensor tensor;
    View view; ///< of the domain's shape
    DType type;
    bool isOutput = false, perRow = false, isIndexed = false;
    int node = -1;
  };
  /// A part of a domain dim that has one stride in every operand.
  struct Atom {
    int64_t dim, size, weight;         ///< weight: of its index in the dim's
    std::vector<int64_t> strides = {}; ///< per access
  };

  int addNode(KernelNode node);
  /// The kernel operand of which an op computes the places that it reads.
  int readByPlace(mlir::Value operand);
  int addAccess(Access access);
  void refine();
  void makeAtoms();
  bool hasIndexed() const;
  void orderAtoms();
  void mergeAtoms();
  bool isRow(int64_t dim) const;
  KernelSpec makeSpec() const;

  TaskFormer &former;
  Shape shape;
  std::vector<int64_t> rowDims;
  int32_t group = -1;
  int64_t storedPoints = -1;
  std::optional<AttentionSpec> attention;
  llvm::DenseSet<mlir::Operation *> members;
  llvm::DenseMap<mlir::Value, int> nodes;
  std::vector<KernelNode> list;
  std::vector<RankValueSpec> scalars;
  std::vector<Access> accesses; ///< operands, then outputs
  kernels::Cuts cuts;
  std::vector<Atom> atoms;
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_KERNELBUILDER_H
