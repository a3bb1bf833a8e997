//===- Json.h - The one checked JSON reader ---------------------*- C++ -*-===//
//
// nlohmann::json throws on a wrong type (and aborts without exceptions), so all
// JSON that comes from outside goes through this reader. Every error names the
// file and the path inside it:
//   hints.json: nodes/"fc1"/in[0][1]: expected an integer, got a string
//
// Writing goes through nlohmann::ordered_json directly (building a document
// cannot fail), or through JsonWriter.h where there is an entry per op.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_JSON_H
#define PARTITA_BASE_FILES_JSON_H

#include "partita/Base/Error.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// A read-only view of one value of a document, which it keeps alive. Cheap to copy.
class JsonValue {
public:
  bool isNull() const;
  bool isObject() const;
  bool isArray() const;
  bool isString() const;
  bool isInteger() const;
  bool isNumber() const;
  bool isBool() const;

  Expected<int64_t> asInteger() const;
  /// An integer in [low, high]; anything else is an error that says so.
  Expected<int64_t> asInteger(int64_t low, int64_t high) const;
  Expected<double> asNumber() const;
  Expected<bool> asBool() const;
  Expected<std::string> asString() const;
  Expected<std::vector<int64_t>> asIntegers() const;
  Expected<std::vector<std::string>> asStrings() const;

  /// Elements of an array, in order; an error if this is not an array.
  Expected<std::vector<JsonValue>> elements() const;
  /// Members of an object, in file order; an error if this is not an object.
  Expected<std::vector<std::pair<std::string, JsonValue>>> members() const;

  /// The member `key`; an error if absent or if this is not an object.
  Expected<JsonValue> at(std::string_view key) const;
  /// Whether this is an object with the member `key`.
  bool has(std::string_view key) const;

  /// An error if this object has a member that is not in `known`: a misspelt key is
  /// reported, never ignored.
  Expected<void> allowOnly(std::initializer_list<std::string_view> known) const;

  /// "file: path: message" as an error, for checks that the caller makes.
  tl::unexpected<Error> error(const std::string &message) const;
  /// "file: path".
  std::string where() const;

private:
  friend Expected<JsonValue> parseJson(std::string_view, const std::string &);
  struct Node;
  explicit JsonValue(std::shared_ptr<const Node> node) : node(std::move(node)) {}
  tl::unexpected<Error> wrongType(const char *expected) const;
  JsonValue child(const void *value, std::string step) const;
  std::shared_ptr<const Node> node;
};

/// Parses `text`; `file` is only used in messages. Duplicate keys are refused.
Expected<JsonValue> parseJson(std::string_view text, const std::string &file);
/// Reads and parses the file at `path`.
Expected<JsonValue> readJsonFile(const std::string &path);

} // namespace partita

#endif // PARTITA_BASE_FILES_JSON_H
