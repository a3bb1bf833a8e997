//===- Formulas.cpp - The text of formulas --------------------------------===//
//
// A line per part, of words with spaces between; names and payloads, which may have
// spaces, end their line.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Bundle/Formulas.h"

#include <algorithm>
#include <charconv>
#include <cmath>

using namespace partita;

namespace {
class Writer {
public:
  std::string text;

  void line(std::string_view word) { text += word; }
  void number(int64_t value) { text += " " + std::to_string(value); }
  void real(double value) {
    char digits[32];
    auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    text += " ";
    text.append(digits, end);
  }
  void list(const auto &values) {
    number(static_cast<int64_t>(values.size()));
    for (auto value : values)
      number(value);
  }
  void end() { text += "\n"; }
  /// The rest of the line.
  void rest(std::string_view words) {
    text += " ";
    for (char c : words)
      text += c == '\n' || c == '\t' ? ' ' : c;
    end();
  }

  void operand(std::string_view word, const KernelFormula::Operand &o) {
    line(word);
    number(static_cast<int64_t>(o.type));
    number(o.offset);
    list(o.strides);
    number(static_cast<int64_t>(o.whole.size()));
    for (auto [size, stride] : o.whole)
      number(size), number(stride);
    number(o.perRow);
    number(o.node);
    end();
  }
  void node(const KernelFormula::Node &n) {
    line("node");
    number(n.kind);
    number(static_cast<int64_t>(n.type));
    number(n.operand);
    list(n.args);
    list(n.reads);
    number(static_cast<int64_t>(n.attributes.size()));
    for (double value : n.attributes)
      real(value);
    rest(n.text);
  }
  void kernel(const KernelFormula &k) {
    line("kernel");
    list(k.domain);
    for (int64_t value : {k.rowDims, k.storedPoints, static_cast<int64_t>(k.isWhole),
                          static_cast<int64_t>(k.ownReads)})
      number(value);
    end();
    for (const auto &read : k.reads)
      operand("read", read);
    for (const auto &n : k.nodes)
      node(n);
    for (const auto &write : k.writes)
      operand("write", write);
  }
};

/// Words of one line. What is wrong is remembered, so that callers ask once.
class Words {
public:
  explicit Words(std::string_view line) : left(line) {}
  bool isGood() const { return good; }

  std::string_view word() {
    size_t end = std::min(left.find(' '), left.size());
    std::string_view word = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    good &= !word.empty();
    return word;
  }
  template <typename T = int64_t> T number(T low, T high) {
    std::string_view digits = word();
    T value{};
    auto [end, failed] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
    bool isIn = std::is_floating_point_v<T> || (value >= low && value <= high);
    good &= failed == std::errc() && end == digits.data() + digits.size() && isIn;
    return good ? value : low;
  }
  template <typename T> std::vector<T> list(T low, T high) {
    std::vector<T> values(count());
    for (T &value : values)
      value = number<T>(low, high);
    return values;
  }
  /// A number of entries that may be in the rest of the line.
  size_t count() { return number<size_t>(0, left.size()); }
  DType type() { return static_cast<DType>(number<int>(0, static_cast<int>(DType::U2))); }
  std::string rest() { return std::string(left); }

private:
  std::string_view left;
  bool good = true;
};

constexpr int64_t most = int64_t(1) << 53;
constexpr int mostNumber = 1 << 24;

KernelFormula::Operand operandOf(Words &words) {
  KernelFormula::Operand o;
  o.type = words.type();
  o.offset = words.number<int64_t>(0, most);
  o.strides = words.list<int64_t>(-most, most);
  o.whole.resize(words.count());
  for (auto &[size, stride] : o.whole) {
    size = words.number<int64_t>(0, most);
    stride = words.number<int64_t>(-most, most);
  }
  o.perRow = words.number<int>(0, 1) != 0;
  o.node = words.number<int>(-1, mostNumber);
  return o;
}

KernelFormula::Node nodeOf(Words &words) {
  KernelFormula::Node n;
  n.kind = static_cast<KernelFormula::Node::Kind>(
      words.number<int>(KernelFormula::Node::Load, KernelFormula::Node::Opaque));
  n.type = words.type();
  n.operand = words.number<int>(-1, mostNumber);
  n.args = words.list<int>(0, mostNumber);
  n.reads = words.list<int>(0, mostNumber);
  n.attributes.resize(words.count());
  for (double &value : n.attributes)
    value = words.number<double>(0, 0);
  n.text = words.rest();
  return n;
}

KernelFormula kernelOf(Words &words) {
  KernelFormula k;
  k.domain = words.list<int64_t>(1, most);
  k.rowDims = words.number<int64_t>(0, static_cast<int64_t>(k.domain.size()));
  k.storedPoints = words.number<int64_t>(-1, most);
  k.isWhole = words.number<int>(0, 1) != 0;
  k.ownReads = words.number<int>(0, mostNumber);
  return k;
}

/// Checks that all that refers to something leads somewhere.
bool isSound(const KernelFormula &k) {
  auto isRead = [&](int read) {
    return read >= 0 && read < static_cast<int>(k.reads.size());
  };
  for (size_t i = 0; i < k.nodes.size(); ++i) {
    const KernelFormula::Node &n = k.nodes[i];
    bool ok = n.kind != KernelFormula::Node::Load || isRead(n.operand);
    ok &= n.kind != KernelFormula::Node::Constant || n.attributes.size() == 1;
    for (int arg : n.args)
      ok &= arg < static_cast<int>(i);
    for (int read : n.reads)
      ok &= isRead(read);
    if (!ok)
      return false;
  }
  for (const auto *list : {&k.reads, &k.writes})
    for (const KernelFormula::Operand &o : *list)
      if (o.node >= static_cast<int>(k.nodes.size()) ||
          (o.whole.empty() && o.strides.size() != k.domain.size()))
        return false;
  return k.ownReads <= static_cast<int>(k.reads.size());
}
} // namespace

std::string Formulas::text() const {
  Writer w;
  for (const KernelFormula &kernel : kernels)
    w.kernel(kernel);
  for (const auto &[task, made] : names) {
    w.line("task");
    w.number(static_cast<int64_t>(task));
    w.end();
    for (const MadeName &name : made) {
      w.line("made");
      w.rest(name.node);
      w.line("value");
      w.rest(name.value);
    }
  }
  return std::move(w.text);
}

Expected<Formulas> Formulas::parse(std::string_view text) {
  Formulas result;
  std::vector<MadeName> *names = nullptr;
  for (size_t number = 1; !text.empty(); ++number) {
    size_t end = std::min(text.find('\n'), text.size());
    Words words(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    std::string_view word = words.word();
    KernelFormula *kernel = result.kernels.empty() ? nullptr : &result.kernels.back();
    bool isKnown = true;
    if (word == "kernel")
      result.kernels.push_back(kernelOf(words));
    else if (word == "read" && kernel)
      kernel->reads.push_back(operandOf(words));
    else if (word == "write" && kernel)
      kernel->writes.push_back(operandOf(words));
    else if (word == "node" && kernel)
      kernel->nodes.push_back(nodeOf(words));
    else if (word == "task")
      names = &result.names[words.number<size_t>(0, static_cast<size_t>(most))];
    else if (word == "made" && names)
      names->push_back({words.rest(), {}});
    else if (word == "value" && names && !names->empty())
      names->back().value = words.rest();
    else
      isKnown = false;
    if (!isKnown || !words.isGood())
      return makeError("the formulas of the task table are damaged: line " +
                       std::to_string(number));
  }
  for (size_t k = 0; k < result.kernels.size(); ++k)
    if (!isSound(result.kernels[k]))
      return makeError("the formulas of the task table are damaged: kernel " +
                       std::to_string(k));
  return result;
}
