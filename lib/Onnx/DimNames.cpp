//===- DimNames.cpp - Names of dims that are sums or products of others ---===//
#include "Internal.h"

#include <algorithm>
#include <charconv>

using namespace partita;
using namespace partita::onnx_model;

namespace {
/// Computes `sum := product (("+" | " - ") product)*`, `product := atom ("*" atom)*`,
/// `atom := number | name | "(" sum ")"`. A "-" without spaces is a part of a name.
class NameReader {
public:
  NameReader(std::string_view text, const SizeOfName &sizeOf)
      : rest(text), sizeOf(sizeOf) {}

  std::optional<int64_t> read() {
    std::optional<int64_t> result = sum();
    skipSpaces();
    return rest.empty() ? result : std::nullopt;
  }

private:
  void skipSpaces() {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  }
  bool take(char c) {
    skipSpaces();
    if (!rest.starts_with(c))
      return false;
    rest.remove_prefix(1);
    return true;
  }

  std::optional<int64_t> sum() {
    std::optional<int64_t> total = product();
    while (total) {
      bool isMinus = false;
      if (!take('+') && !(isMinus = rest.starts_with("- ") && take('-')))
        break;
      std::optional<int64_t> next = product();
      if (!next || (isMinus ? __builtin_sub_overflow(*total, *next, &*total)
                            : __builtin_add_overflow(*total, *next, &*total)))
        return std::nullopt;
    }
    return total;
  }

  std::optional<int64_t> product() {
    std::optional<int64_t> total = atom();
    while (total && take('*')) {
      std::optional<int64_t> next = atom();
      if (!next || __builtin_mul_overflow(*total, *next, &*total))
        return std::nullopt;
    }
    return total;
  }

  std::optional<int64_t> atom() {
    constexpr size_t deepest = 100;
    if (take('(')) {
      if (++depth > deepest)
        return std::nullopt;
      std::optional<int64_t> inner = sum();
      --depth;
      return take(')') ? inner : std::nullopt;
    }
    std::string_view word = rest.substr(0, rest.find_first_of(" +*()"));
    if (word.empty())
      return std::nullopt;
    rest.remove_prefix(word.size());
    if (word[0] < '0' || word[0] > '9')
      return sizeOf(std::string(word));
    int64_t number = 0;
    auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), number);
    bool isNumber = status == std::errc() && stop == word.data() + word.size();
    return isNumber ? std::optional(number) : std::nullopt;
  }

  std::string_view rest;
  const SizeOfName &sizeOf;
  size_t depth = 0;
};
} // namespace

std::optional<int64_t> onnx_model::computeDim(std::string_view name,
                                              const SizeOfName &sizeOf) {
  return NameReader(name, sizeOf).read();
}

std::vector<std::string> onnx_model::partsOfDim(std::string_view name) {
  std::vector<std::string> parts;
  auto note = [&](const std::string &part) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end())
      parts.push_back(part);
    return std::optional<int64_t>(0);
  };
  // Zero for each name: no product can be too large then.
  bool isComputed = computeDim(name, note) && (parts.size() != 1 || parts[0] != name);
  return isComputed && !parts.empty() ? parts : std::vector<std::string>();
}
