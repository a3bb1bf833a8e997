//===- Load.h - Reading ONNX models -----------------------------*- C++ -*-===//
#ifndef PARTITA_ONNX_LOAD_H
#define PARTITA_ONNX_LOAD_H

#include "partita/Base/Error.h"
#include "partita/Onnx/Model.h"

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita::onnx_model {

/// "NAME=1,128": the whole shape of input NAME, or with one number the extent of the
/// symbolic dimension NAME in every input.
struct ShapeBinding {
  std::string name;
  std::vector<int64_t> shape;

  /// The text that parseShapeBinding reads.
  std::string str() const;
};

Expected<ShapeBinding> parseShapeBinding(std::string_view text);

/// An input of the model that is a constant from here on.
struct ConstBinding {
  std::string name;
  std::string file; ///< that `value` was read from
  HostTensor value;
};

/// "NAME=FILE", with the value in a .npy or, as a TensorProto, in a .pb file.
Expected<ConstBinding> readConstBinding(std::string_view text);

/// Operators that have a function body but are better kept whole: the graph dialect has
/// them as ops.
std::set<std::string> defaultKeptOps();

struct LoadOptions {
  std::vector<ShapeBinding> shapes;
  std::vector<ConstBinding> constants;
  /// Standard operators that are not expanded although ONNX defines them by a function.
  std::set<std::string> kept = defaultKeptOps();
  /// False: a missing external data file is no error; its tensors have no bytes.
  bool weights = true;
  /// Folders that are searched for external data before the model's own, by the path that
  /// the model has for them and by their names alone.
  std::vector<std::string> dataFolders = {};
  /// How Scan and Loop of known length come: as bodies between the nodes RepeatBegin and
  /// RepeatEnd of ownDomain, but for those of two iterations at most; or false:
  /// unrolled.
  bool keepLoops = true;
  /// The training step of this number that the file has (TrainingInfoProto): its nodes
  /// join the model's, and Graph::updates says what becomes of initializers.
  std::optional<size_t> trainingInfo;
  /// True: every float type becomes f64, so that what is computed from the model shows
  /// what rounding did to other computations of it.
  bool wide = false;
};

/// Reads IR 3 to 13, opset 7 to 27. Inlines model-local functions, takes the branch of
/// an If whose condition is a constant, expands operators that ONNX defines by a
/// function body, turns Constant nodes into initializers, binds symbolic dims, brings
/// every node to its canonical form and sorts the nodes. Nodes that the loader does not
/// know stay as they are: whether an operator is supported is the compiler's question.
///
/// Fails with one sentence that starts with the path: a file that is no model, a
/// version from the future, a cycle, a value defined twice or never, a malformed node,
/// external data that is missing, too short or outside the model's folder, and inputs
/// that stay symbolic.
Expected<Model> loadModel(const std::string &path, const LoadOptions &options = {});

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_LOAD_H
