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

/// Replaces a Scan or Loop by as many copies of its body as it has iterations. Each
/// method appends them to `out`, or returns false and appends nothing of meaning: the
/// length is not known, or the loop may end early.
class Unroller {
public:
  /// Longer loops would make programs that take minutes to compile.
  static constexpr int64_t mostIterations = 1024;

  Unroller(const PendingNode &loop, UnrollNames names, std::vector<PendingNode> &out)
      : loop(loop), names(std::move(names)), out(out) {}

  bool scan(const ProtoTypes &types);
  /// `trips`, `condition`: the values of the first two inputs where they are known.
  bool loopTimes(std::optional<int64_t> trips, std::optional<bool> condition);

private:
  PendingNode &add(const std::string &op, const std::vector<std::string> &inputs,
                   const std::string &output);
  std::string integer(int64_t value, bool isList);
  std::string unsqueezed(const std::string &value, int64_t axis);
  void join(const std::vector<std::string> &parts, int64_t axis,
            const std::string &result);
  std::vector<std::string> iterate(const onnx::FunctionProto &body,
                                   const std::vector<std::string> &inputs);
  void finish(const std::vector<std::string> &states);

  const PendingNode &loop;
  UnrollNames names;
  std::vector<PendingNode> &out;
};

} // namespace partita::onnx_model

#endif // PARTITA_LIB_ONNX_UNROLL_H
