//===- Unroll.h - Scan and Loop of known length -----------------*- C++ -*-===//
#ifndef PARTITA_LIB_ONNX_UNROLL_H
#define PARTITA_LIB_ONNX_UNROLL_H

#include "Internal.h"

#include <functional>

namespace partita::onnx_model {

/// What an unrolled body needs of the graph around it.
struct UnrollNames {
  std::function<std::string(const std::string &)> value, node; ///< unique names
  /// The nodes of a call of a function.
  std::function<std::vector<PendingNode>(const PendingNode &, onnx::FunctionProto)>
      inlined;
};

/// The body of a loop as a function: its initializers are Constants there.
onnx::FunctionProto bodyAsFunction(const onnx::GraphProto &body);

/// Replaces a Scan or Loop by as many copies of its body as it has iterations, or by one
/// between two nodes (see ownDomain) if loops are kept. Each method appends them to
/// `out`, or returns false and appends nothing of meaning: the length is not known, or
/// the loop may end early.
class Unroller {
public:
  /// Longer loops would make programs that take minutes to compile.
  static constexpr int64_t mostIterations = 1024;
  /// A loop of so many would be as long as its iterations.
  static constexpr int64_t alwaysUnrolled = 2;

  Unroller(const PendingNode &loop, UnrollNames names, std::vector<PendingNode> &out,
           bool keepLoops)
      : loop(loop), names(std::move(names)), out(out), keepLoops(keepLoops) {}

  bool scan(const ProtoTypes &types);
  /// `trips`, `condition`: the values of the first two inputs where they are known.
  bool loopTimes(std::optional<int64_t> trips, std::optional<bool> condition);

private:
  bool loopNever();
  PendingNode &add(const std::string &op, const std::vector<std::string> &inputs,
                   const std::string &output);
  std::string integer(int64_t value, bool isList);
  std::string unsqueezed(const std::string &value, int64_t axis);
  void join(const std::vector<std::string> &parts, int64_t axis,
            const std::string &result);
  std::vector<std::string> iterate(const onnx::FunctionProto &body,
                                   const std::vector<std::string> &inputs);
  void finish(const std::vector<std::string> &states);
  /// A tensor of integers, a list of them.
  std::string integers(const std::vector<int64_t> &values);
  std::string turned(const std::string &rows, int64_t trips, bool isReverse);
  std::string atFront(const std::string &value, int64_t axis, int64_t rank);
  bool keptScan(const onnx::GraphProto &graph, const ProtoTypes &types, int64_t trips);
  void keptLoop(const onnx::FunctionProto &body, const std::string &goOn, int64_t trips);
  /// One iteration between its two nodes: `step` makes it from what it sees. What comes
  /// out of the loop, what is carried first.
  std::vector<std::string>
  kept(int64_t trips, const std::vector<std::string> &carried,
       const std::vector<std::string> &scanned,
       const std::function<std::vector<std::string>(const std::vector<std::string> &)>
           &step);

  const PendingNode &loop;
  UnrollNames names;
  std::vector<PendingNode> &out;
  bool keepLoops;
};

} // namespace partita::onnx_model

#endif // PARTITA_LIB_ONNX_UNROLL_H
