//===- Attention.h - Softmax between two products, by rows ------*- C++ -*-===//
//
// Reference of graph.attention and its gradients, row by row in double. Shapes are the
// caller's duty: q [outer…, queries, depth], k [outer…, keys, depth], v [outer…, keys,
// width], where outer dims of k and v may be 1; operands of the payload broadcast to
// [outer…, queries, keys].
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_REFERENCE_ATTENTION_H
#define PARTITA_REFERENCE_ATTENTION_H

#include "partita/Base/DType.h"
#include "partita/Rule/Scalar/Payload.h"

#include <vector>

namespace partita::reference {

/// Logit = payload(scale · q·k, further operands). Weights of a row that are no numbers
/// are 0 where `zeroForNaN`.
struct AttentionForm {
  const Payload &payload;
  double scale = 1;
  bool zeroForNaN = false;
};

/// The output [outer…, queries, width] of q's type; the largest logit of each row and the
/// sum of exp(logit − largest), of type `statistic`.
std::vector<HostTensor> attention(const AttentionForm &form, const HostTensor &q,
                                  const HostTensor &k, const HostTensor &v,
                                  const std::vector<const HostTensor *> &scored,
                                  DType statistic);

/// Per row: results of `attention`, the cotangent of its output, and the sum of cotangent
/// · output.
struct AttentionRows {
  const HostTensor &largest, &sum, &cotangent, &delta;
};

/// The gradients by q, k and v, in their shapes and types.
std::vector<HostTensor> attentionGradients(const AttentionForm &form, const HostTensor &q,
                                           const HostTensor &k, const HostTensor &v,
                                           const AttentionRows &rows,
                                           const std::vector<const HostTensor *> &scored);

} // namespace partita::reference

#endif // PARTITA_REFERENCE_ATTENTION_H
