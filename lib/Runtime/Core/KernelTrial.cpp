//===- KernelTrial.cpp - Which node of a kernel made a NaN ----------------===//
#include "KernelTrial.h"

#include "partita/Base/Layout/Layout.h"
#include "partita/Base/Scalar.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::runtime;
using Node = KernelFormula::Node;

void NotFinite::add(double value) {
  nan += std::isnan(value);
  inf += std::isinf(value);
}

NotFinite &NotFinite::operator+=(const NotFinite &other) {
  nan += other.nan, inf += other.inf, elements += other.elements;
  return *this;
}

double runtime::elementAt(DType type, const std::byte *data, int64_t place) {
  return visitType(type, [&]<typename T>() {
    return static_cast<double>(load(reinterpret_cast<const T *>(data)[place]));
  });
}

/// A number as an element of a type has it.
static double rounded(DType type, double value) {
  if (type == DType::Bool)
    return value != 0;
  if (!isFloat(type))
    return std::isfinite(value) ? std::trunc(value) : 0;
  return visitType(type, [&]<typename T>() {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>)
      return static_cast<double>(load(store<T>(static_cast<float>(value))));
    else if constexpr (std::is_same_v<T, float>)
      return static_cast<double>(static_cast<float>(value));
    else
      return value;
  });
}

bool runtime::forEachElement(const KernelFormula &formula,
                             const KernelFormula::Operand &operand, uint64_t bytes,
                             const std::function<void(int64_t)> &visit) {
  // Loops along which the place stays are left out.
  std::vector<std::pair<int64_t, int64_t>> loops;
  for (auto [size, stride] : operand.whole)
    if (stride != 0 && size > 1)
      loops.emplace_back(size, stride);
  if (operand.whole.empty())
    for (size_t d = 0; d < formula.domain.size(); ++d)
      if (operand.strides[d] != 0 && formula.domain[d] > 1)
        loops.emplace_back(formula.domain[d], operand.strides[d]);
  int64_t low = operand.offset, high = operand.offset;
  for (auto [size, stride] : loops)
    (stride < 0 ? low : high) += (size - 1) * stride;
  if (low < 0 || static_cast<uint64_t>(high + 1) * byteWidth(operand.type) > bytes)
    return false;
  std::vector<int64_t> at(loops.size(), 0);
  for (int64_t place = operand.offset;;) {
    visit(place);
    size_t d = loops.size();
    while (d > 0 && ++at[d - 1] == loops[d - 1].first) {
      place -= (loops[d - 1].first - 1) * loops[d - 1].second;
      at[--d] = 0;
    }
    if (d == 0)
      return true;
    place += loops[d - 1].second;
  }
}

namespace {
/// Values of a node at the points of a row; what is not known is no number of anyone's.
struct Row {
  std::vector<double> values;
  bool isKnown = true;
};

/// Kinds of numbers among operands that are not finite.
struct Seen {
  bool nan = false, inf = false, unknown = false;
  void add(double value) { nan |= std::isnan(value), inf |= std::isinf(value); }
};

class KernelTrial {
public:
  KernelTrial(const KernelFormula &formula, std::span<const TrialOperand> reads,
              std::span<const TrialOperand> writes, const ReadPayload &readPayload)
      : f(formula), reads(reads), writes(writes), rows(formula.nodes.size()),
        payloads(formula.nodes.size()) {
    const size_t outer = f.domain.size() - static_cast<size_t>(f.rowDims);
    for (size_t d = outer; d < f.domain.size(); ++d)
      points *= f.domain[d];
    for (size_t i = 0; i < f.nodes.size(); ++i)
      if (const Node &n = f.nodes[i]; n.kind == Node::Payload)
        payloads[i] = readPayload(n.text, n.attributes, computeType(n));
    trial.made.resize(f.nodes.size());
  }

  Trial run(int64_t mostRows) {
    const size_t outer = f.domain.size() - static_cast<size_t>(f.rowDims);
    int64_t all = 1;
    for (size_t d = 0; d < outer; ++d)
      all *= f.domain[d];
    std::vector<int64_t> index(f.domain.size(), 0);
    for (int64_t row = 0; row < all && mostRows > 0; ++row) {
      int64_t left = row;
      for (size_t d = outer; d-- > 0; left /= f.domain[d])
        index[d] = left % f.domain[d];
      if (!isBad(index))
        continue;
      --mostRows;
      tryRow(index);
    }
    for (auto &made : trial.made)
      for (NotFinite &numbers : made)
        numbers.elements = static_cast<uint64_t>(all * points);
    std::ranges::sort(trial.suspects);
    auto same = std::ranges::unique(trial.suspects);
    trial.suspects.erase(same.begin(), same.end());
    return std::move(trial);
  }

private:
  /// Place of point `point` of the row whose outer indices are `index`.
  int64_t placeOf(const KernelFormula::Operand &operand,
                  const std::vector<int64_t> &index, int64_t point) const {
    int64_t place = operand.offset;
    for (size_t d = f.domain.size(); d-- > 0;) {
      bool isOfRow = d >= f.domain.size() - static_cast<size_t>(f.rowDims);
      int64_t at = isOfRow ? point % f.domain[d] : index[d];
      if (isOfRow)
        point /= f.domain[d];
      place += at * operand.strides[d];
    }
    return place;
  }
  int64_t stored(const KernelFormula::Operand &write) const {
    return write.perRow          ? 1
           : f.storedPoints >= 0 ? std::min(f.storedPoints, points)
                                 : points;
  }
  double written(size_t write, const std::vector<int64_t> &index, int64_t point) const {
    const KernelFormula::Operand &o = f.writes[write];
    return elementAt(o.type, writes[write].data, placeOf(o, index, point));
  }
  bool isBad(const std::vector<int64_t> &index) const {
    for (size_t w = 0; w < f.writes.size(); ++w)
      for (int64_t p = 0; isFloat(f.writes[w].type) && p < stored(f.writes[w]); ++p)
        if (!std::isfinite(written(w, index, p)))
          return true;
    return false;
  }

  void tryRow(const std::vector<int64_t> &index) {
    bool isExplained = false;
    std::vector<int> suspects;
    for (size_t i = 0; i < f.nodes.size(); ++i) {
      const Node &n = f.nodes[i];
      rows[i] = {std::vector<double>(static_cast<size_t>(points)), true};
      compute(i, index);
      useWritten(i, index);
      if (n.kind == Node::Load || n.kind == Node::Constant)
        continue;
      bool isMove = n.kind == Node::Opaque && n.text == "moves";
      if ((!rows[i].isKnown && !isMove) || hasUnknown(n))
        suspects.push_back(static_cast<int>(i));
      isExplained |= judge(i);
    }
    if (!isExplained && loadsAreFinite())
      trial.suspects.insert(trial.suspects.end(), suspects.begin(), suspects.end());
  }

  bool hasUnknown(const Node &n) const {
    return std::ranges::any_of(
        n.args, [&](int arg) { return !rows[static_cast<size_t>(arg)].isKnown; });
  }
  bool loadsAreFinite() const {
    for (size_t i = 0; i < f.nodes.size(); ++i)
      if (f.nodes[i].kind == Node::Load)
        for (double value : rows[i].values)
          if (!std::isfinite(value))
            return false;
    return true;
  }

  /// A value that is stored is what the kernel has made of it.
  void useWritten(size_t i, const std::vector<int64_t> &index) {
    for (size_t w = 0; w < f.writes.size(); ++w) {
      const KernelFormula::Operand &o = f.writes[w];
      if (o.node != static_cast<int>(i) || f.nodes[i].kind == Node::Load ||
          o.type != f.nodes[i].type || (!o.perRow && stored(o) < points))
        continue;
      for (int64_t p = 0; p < points; ++p)
        rows[i].values[static_cast<size_t>(p)] = written(w, index, o.perRow ? 0 : p);
      rows[i].isKnown = true;
    }
  }

  void compute(size_t i, const std::vector<int64_t> &index) {
    const Node &n = f.nodes[i];
    std::vector<double> &to = rows[i].values;
    if (n.kind == Node::Load) {
      const KernelFormula::Operand &o = f.reads[static_cast<size_t>(n.operand)];
      const TrialOperand &from = reads[static_cast<size_t>(n.operand)];
      for (int64_t p = 0; p < points; ++p)
        to[static_cast<size_t>(p)] =
            o.whole.empty() ? elementAt(o.type, from.data, placeOf(o, index, p)) : 0;
      rows[i].isKnown = o.whole.empty();
    } else if (n.kind == Node::Constant) {
      std::ranges::fill(to, n.attributes[0]);
    } else if (hasUnknown(n) || n.kind == Node::Opaque ||
               (n.kind == Node::Payload && !payloads[i])) {
      rows[i].isKnown = false;
    } else if (n.kind == Node::Payload) {
      for (size_t p = 0; p < to.size(); ++p)
        to[p] = payloadAt(i, p);
    } else {
      rows[i].isKnown = rowOp(n, to);
    }
  }

  /// Type in which the kernel computes: the widest float of the operands.
  DType computeType(const Node &n) const {
    DType type = n.args.empty() && isFloat(n.type) ? DType::F32 : DType::I64;
    for (int arg : n.args) {
      DType own = f.nodes[static_cast<size_t>(arg)].type;
      if (own == DType::F64)
        return own;
      type = isFloat(own) ? DType::F32 : type;
    }
    return type;
  }

  double payloadAt(size_t i, size_t point) {
    const Node &n = f.nodes[i];
    operands.clear();
    for (int arg : n.args)
      operands.push_back(rows[static_cast<size_t>(arg)].values[point]);
    return rounded(n.type, payloads[i](operands));
  }

  const std::vector<double> &arg(const Node &n, size_t k) const {
    return rows[static_cast<size_t>(n.args[k])].values;
  }

  /// Sums are those of f32, as kernels have them for all but f64. False: not known.
  bool rowOp(const Node &n, std::vector<double> &to) const {
    const bool isDouble = n.type == DType::F64;
    auto cut = [&](double x) { return isDouble ? x : static_cast<double>(float(x)); };
    auto sum = [&](const std::vector<double> &x, auto of) {
      double total = 0;
      for (double value : x)
        total = cut(total + cut(of(value)));
      return total;
    };
    const std::vector<double> &x = arg(n, 0);
    const auto count = static_cast<double>(points);
    if (n.text.starts_with("reduce "))
      return reduce(n, x, to, cut);
    if (n.text == "softmax" || n.text == "log_softmax") {
      double top = propagatingTop(x);
      double total = sum(x, [&](double v) { return std::exp(cut(v - top)); });
      for (size_t p = 0; p < to.size(); ++p)
        to[p] = rounded(n.type, n.text == "softmax"
                                    ? cut(std::exp(cut(x[p] - top))) * cut(1 / total)
                                    : cut(x[p] - top) - std::log(total));
      return true;
    }
    const bool isLayerNorm = n.text == "layer_norm";
    if ((!isLayerNorm && n.text != "rms_norm") || n.attributes.empty() ||
        n.args.size() < (isLayerNorm ? 3U : 2U))
      return false;
    double mean = isLayerNorm ? cut(sum(x, [](double v) { return v; }) / count) : 0;
    double squares = sum(x, [&](double v) { return cut(v - mean) * cut(v - mean); });
    double scale = cut(1 / std::sqrt(cut(cut(squares / count) + n.attributes[0])));
    for (size_t p = 0; p < to.size(); ++p) {
      double value = cut(cut(cut(x[p] - mean) * scale) * arg(n, 1)[p]);
      to[p] = rounded(n.type, isLayerNorm ? value + arg(n, 2)[p] : value);
    }
    return true;
  }

  static double propagatingTop(const std::vector<double> &x) {
    double top = x[0];
    for (double value : x)
      top = std::isnan(top) || value <= top ? top : value;
    return top;
  }

  static bool reduce(const Node &n, const std::vector<double> &x, std::vector<double> &to,
                     const auto &cut) {
    auto kind = reduceKindFromName(std::string_view(n.text).substr(7));
    if (!kind || !isFloat(n.type))
      return false;
    double total = x[0];
    for (size_t p = 1; p < x.size(); ++p)
      switch (*kind) {
      case ReduceKind::Sum:
        total = cut(total + x[p]);
        break;
      case ReduceKind::Prod:
        total = cut(total * x[p]);
        break;
      case ReduceKind::Max:
        total = std::isnan(total) || x[p] <= total ? total : x[p];
        break;
      case ReduceKind::Min:
        total = std::isnan(total) || x[p] >= total ? total : x[p];
        break;
      }
    std::ranges::fill(to, rounded(n.type, total));
    return true;
  }

  /// Counts what the node made; whether it made something.
  bool judge(size_t i) {
    const Node &n = f.nodes[i];
    if (!rows[i].isKnown || !isFloat(n.type) || hasUnknown(n))
      return false;
    const bool isOfRow = n.kind != Node::Payload;
    Seen row;
    for (int arg : n.args)
      for (double value : rows[static_cast<size_t>(arg)].values)
        row.add(value);
    for (int read : n.reads)
      row.unknown |= !readIsFinite(static_cast<size_t>(read));
    bool made = false;
    for (size_t p = 0; p < rows[i].values.size(); ++p) {
      double value = rows[i].values[p];
      if (std::isfinite(value))
        continue;
      Seen seen = row;
      if (!isOfRow) {
        seen = {};
        for (int arg : n.args)
          seen.add(rows[static_cast<size_t>(arg)].values[p]);
      }
      if (seen.unknown || seen.nan || (seen.inf && !std::isnan(value)))
        continue;
      MadeFrom from = seen.inf ? MadeFrom::Infinite : MadeFrom::Finite;
      trial.made[i][static_cast<size_t>(from)].add(value);
      made = true;
    }
    return made;
  }

  bool readIsFinite(size_t read) const {
    const KernelFormula::Operand &o = f.reads[read];
    bool isFinite = true;
    if (isFloat(o.type))
      forEachElement(f, o, reads[read].bytes, [&](int64_t place) {
        isFinite &= std::isfinite(elementAt(o.type, reads[read].data, place));
      });
    return isFinite;
  }

  const KernelFormula &f;
  std::span<const TrialOperand> reads, writes;
  int64_t points = 1;                    ///< of a row
  std::vector<Row> rows;                 ///< by node
  std::vector<PayloadFunction> payloads; ///< by node
  std::vector<double> operands;
  Trial trial;
};
} // namespace

Trial runtime::tryKernel(const KernelFormula &formula,
                         std::span<const TrialOperand> reads,
                         std::span<const TrialOperand> writes, int64_t mostRows,
                         const ReadPayload &readPayload) {
  return KernelTrial(formula, reads, writes, readPayload).run(mostRows);
}
