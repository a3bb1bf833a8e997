//===- Formulas.h - What kernels compute, for those who search --*- C++ -*-===//
//
// A kernel is machine code; its formula says as data which elements it reads and writes
// and which nodes of the model it computes of them. A task table has the formulas of its
// kernels as one text, with the names of what a task makes inside. Requests do not look
// at it: `run --find-nan` does, to say which node of a kernel made a number that is not
// finite.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_FORMULAS_H
#define PARTITA_BASE_BUNDLE_FORMULAS_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

/// A kernel as data: a loop nest over `domain`, of which the last `rowDims` dims are one
/// row. Sizes, offsets and strides are in elements.
struct KernelFormula {
  /// Element (i0, i1, …) of the domain is at offset + Σ i·stride.
  struct Operand {
    DType type = DType::F32;
    int64_t offset = 0;
    std::vector<int64_t> strides = {};
    /// Extent of a read at computed places: sizes and strides of all that may be read.
    std::vector<std::pair<int64_t, int64_t>> whole = {};
    bool perRow = false; ///< written once per row
    int node = -1;       ///< writes: what is stored; −1: not said
    bool operator==(const Operand &) const = default;
  };
  struct Node {
    enum Kind {
      Load,     ///< an element of read `operand`
      Constant, ///< attributes[0]
      Payload,  ///< `text` (partita::Payload) of `args`, with `attributes`
      Row,      ///< an op of a row: "softmax", "reduce sum" …, see `text`
      Opaque,   ///< something else, of `args` and `reads`; "moves": elements of these
    };
    Kind kind = Load;
    DType type = DType::F32;
    int operand = -1;
    std::vector<int> args = {}; ///< earlier nodes
    std::vector<int> reads = {};
    std::vector<double> attributes = {};
    std::string text = {};
    bool operator==(const Node &) const = default;
  };
  std::vector<int64_t> domain;
  int64_t rowDims = 0;
  /// Points from the begin of a row on that are stored; −1: all.
  int64_t storedPoints = -1;
  /// Set if the nodes say all that is computed between reads and writes. Else
  /// (attention) the first `ownReads` reads are what the rest is computed of.
  bool isWhole = true;
  int ownReads = 0;
  std::vector<Operand> reads, writes;
  std::vector<Node> nodes;
  bool operator==(const KernelFormula &) const = default;
};

/// Names of a node of the model and of the value that it makes.
struct MadeName {
  std::string node, value;
  bool operator==(const MadeName &) const = default;
};

struct Formulas {
  std::vector<KernelFormula> kernels; ///< by the table's number
  /// Names by task, where it makes more than a value of the name of its source: of a
  /// kernel a name per node, empty where the node is none of the model; of a call its
  /// own, then one per op behind the call.
  std::map<size_t, std::vector<MadeName>> names;

  std::string text() const;
  /// The inverse of text(); an error names the line.
  static Expected<Formulas> parse(std::string_view text);
};

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_FORMULAS_H
