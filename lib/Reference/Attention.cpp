//===- Attention.cpp - Softmax between two products, by rows --------------===//
#include "partita/Reference/Attention.h"

#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace partita;
using namespace partita::reference;

namespace {
/// A tensor that broadcasts to an index of [outer…, rows].
struct Rows {
  explicit Rows(const HostTensor &tensor)
      : shape(tensor.shape), elements(values<double>(tensor)) {}
  /// The last dim is a row's columns.
  static Rows ofColumns(const HostTensor &tensor) {
    Rows rows(tensor);
    rows.columns = static_cast<size_t>(rows.shape.back());
    rows.shape.pop_back();
    return rows;
  }
  /// The place at which the row of this index begins.
  size_t at(const Shape &index) const {
    int64_t offset = 0;
    size_t skip = index.size() - shape.size();
    for (size_t d = 0; d < shape.size(); ++d)
      offset = offset * shape[d] + (shape[d] == 1 ? 0 : index[skip + d]);
    return static_cast<size_t>(offset) * columns;
  }

  Shape shape; ///< without columns
  size_t columns = 1;
  std::vector<double> elements;
};

/// An attention, whose rows are visited one after the other.
class Machine {
public:
  Machine(const AttentionForm &form, const HostTensor &q, const HostTensor &k,
          const HostTensor &v, const std::vector<const HostTensor *> &scored)
      : form(form), derivative(form.payload.derivative(0)), q(Rows::ofColumns(q)),
        k(Rows::ofColumns(k)), v(Rows::ofColumns(v)), arguments(scored.size() + 1) {
    for (const HostTensor *operand : scored)
      this->scored.emplace_back(*operand);
    keys = this->k.shape.back();
    rows = q.shape;
    rows.pop_back();
  }

  /// Scores of a row scaled, what the payload makes of them, and its derivatives.
  void begin(const Shape &row) {
    logits.clear(), slopes.clear();
    index = row;
    index.push_back(0);
    from = q.at(row);
    for (int64_t key = 0; key < keys; ++key) {
      double score = 0;
      size_t other = keyAt(k, key);
      for (size_t d = 0; d < q.columns; ++d)
        score += q.elements[from + d] * k.elements[other + d];
      arguments[0] = score * form.scale;
      index.back() = key;
      for (size_t o = 0; o < scored.size(); ++o)
        arguments[o + 1] = scored[o].elements[scored[o].at(index)];
      logits.push_back(form.payload.evaluate<double>(arguments.data(), {}, scratch));
      slopes.push_back(derivative.evaluate<double>(arguments.data(), {}, scratch));
    }
  }

  size_t keyAt(const Rows &of, int64_t key) {
    Shape place = index;
    place.pop_back();
    place.back() = key;
    return of.at(place);
  }

  /// The weight of a logit in a row of this maximum and sum. A logit of the row is no
  /// larger than its maximum; one of padding may be, and counts as equal.
  double weight(double logit, double largest, double sum) const {
    double base = std::isinf(largest) && largest < 0 ? 0 : largest;
    double weight =
        std::exp(std::isnan(logit) ? logit : std::min(logit - base, 0.0)) / sum;
    return form.zeroForNaN && !(sum > 0) ? 0 : weight;
  }

  const AttentionForm &form;
  Payload derivative;
  Rows q, k, v;
  std::vector<Rows> scored;
  int64_t keys = 0;
  Shape rows;
  // State of the current row.
  Shape index; ///< with a key
  size_t from = 0;
  std::vector<double> logits, slopes, arguments, scratch;
};
} // namespace

/// The number as the type has it.
static double rounded(double value, DType type) {
  return type == DType::F64 ? value : static_cast<double>(static_cast<float>(value));
}

std::vector<HostTensor>
reference::attention(const AttentionForm &form, const HostTensor &q, const HostTensor &k,
                     const HostTensor &v, const std::vector<const HostTensor *> &scored,
                     DType statistic) {
  Machine machine(form, q, k, v, scored);
  std::vector<double> output, maxima, sums;
  forEachIndex(machine.rows, [&](const Shape &row) {
    machine.begin(row);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (double logit : machine.logits)
      largest = std::isnan(logit) || logit > largest ? logit : largest;
    largest = rounded(largest, statistic);
    double base = std::isinf(largest) && largest < 0 ? 0 : largest;
    for (double logit : machine.logits)
      sum += std::exp(logit - base);
    sum = rounded(sum, statistic);
    std::vector<double> result(machine.v.columns, 0);
    for (int64_t key = 0; key < machine.keys; ++key) {
      double weight =
          machine.weight(machine.logits[static_cast<size_t>(key)], largest, sum);
      for (size_t c = 0; c < result.size(); ++c)
        result[c] += weight * machine.v.elements[machine.keyAt(machine.v, key) + c];
    }
    output.insert(output.end(), result.begin(), result.end());
    maxima.push_back(largest), sums.push_back(sum);
  });
  Shape shape = machine.rows;
  shape.push_back(v.shape.back());
  std::vector<HostTensor> results;
  results.push_back(tensor<double>(q.type, shape, output));
  results.push_back(tensor<double>(statistic, machine.rows, maxima));
  results.push_back(tensor<double>(statistic, machine.rows, sums));
  return results;
}

std::vector<HostTensor>
reference::attentionGradients(const AttentionForm &form, const HostTensor &q,
                              const HostTensor &k, const HostTensor &v,
                              const AttentionRows &rows,
                              const std::vector<const HostTensor *> &scored) {
  Machine machine(form, q, k, v, scored);
  Rows largest(rows.largest), sum(rows.sum), delta(rows.delta);
  Rows cotangent = Rows::ofColumns(rows.cotangent);
  std::vector<double> dq(machine.q.elements.size()), dk(machine.k.elements.size());
  std::vector<double> dv(machine.v.elements.size());
  forEachIndex(machine.rows, [&](const Shape &row) {
    machine.begin(row);
    size_t at = largest.at(row), g = cotangent.at(row);
    for (int64_t key = 0; key < machine.keys; ++key) {
      auto number = static_cast<size_t>(key);
      size_t toKey = machine.keyAt(machine.k, key),
             toValue = machine.keyAt(machine.v, key);
      double weight =
          machine.weight(machine.logits[number], largest.elements[at], sum.elements[at]);
      double along = 0;
      for (size_t c = 0; c < machine.v.columns; ++c) {
        along += cotangent.elements[g + c] * machine.v.elements[toValue + c];
        dv[toValue + c] += weight * cotangent.elements[g + c];
      }
      double slope = weight * (along - delta.elements[at]) * machine.slopes[number];
      for (size_t d = 0; d < machine.q.columns; ++d) {
        dq[machine.from + d] += form.scale * slope * machine.k.elements[toKey + d];
        dk[toKey + d] += form.scale * slope * machine.q.elements[machine.from + d];
      }
    }
  });
  std::vector<HostTensor> results;
  results.push_back(tensor<double>(q.type, q.shape, dq));
  results.push_back(tensor<double>(k.type, k.shape, dk));
  results.push_back(tensor<double>(v.type, v.shape, dv));
  return results;
}
