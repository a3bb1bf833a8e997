//===- Json.cpp - The one checked JSON reader -----------------------------===//
#include "partita/Base/Files/Json.h"

#include "partita/Base/Files/File.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

using namespace partita;
using nlohmann::ordered_json;

/// The path is kept as a chain to the parent and only spelled out in an error.
struct JsonValue::Node {
  std::shared_ptr<const ordered_json> document;
  std::string file;
  std::shared_ptr<const Node> parent;
  std::string step;
  const ordered_json *value = nullptr;
};

bool JsonValue::isNull() const { return node->value->is_null(); }
bool JsonValue::isObject() const { return node->value->is_object(); }
bool JsonValue::isArray() const { return node->value->is_array(); }
bool JsonValue::isString() const { return node->value->is_string(); }
bool JsonValue::isInteger() const { return node->value->is_number_integer(); }
bool JsonValue::isNumber() const { return node->value->is_number(); }
bool JsonValue::isBool() const { return node->value->is_boolean(); }

std::string JsonValue::where() const {
  std::string path;
  for (const Node *n = node.get(); n && n->parent; n = n->parent.get()) {
    bool isIndex = n->step.front() == '[';
    bool first = !n->parent->parent;
    path = (isIndex || first ? n->step : "/" + n->step) + path;
  }
  return path.empty() ? node->file : node->file + ": " + path;
}

tl::unexpected<Error> JsonValue::error(const std::string &message) const {
  return makeError(where() + ": " + message);
}

static const char *article(const ordered_json &value) {
  switch (value.type()) {
  case ordered_json::value_t::null:
    return "null";
  case ordered_json::value_t::object:
    return "an object";
  case ordered_json::value_t::array:
    return "an array";
  case ordered_json::value_t::string:
    return "a string";
  case ordered_json::value_t::boolean:
    return "a boolean";
  default:
    return value.is_number_integer() ? "an integer" : "a number";
  }
}

tl::unexpected<Error> JsonValue::wrongType(const char *expected) const {
  return error(std::string("expected ") + expected + ", got " + article(*node->value));
}

JsonValue JsonValue::child(const void *value, std::string step) const {
  auto result = std::make_shared<Node>();
  result->document = node->document;
  result->file = node->file;
  result->parent = node;
  result->step = std::move(step);
  result->value = static_cast<const ordered_json *>(value);
  return JsonValue(result);
}

Expected<int64_t> JsonValue::asInteger() const {
  if (!isInteger())
    return wrongType("an integer");
  if (node->value->is_number_unsigned() &&
      node->value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return error("the integer does not fit in 64 bits");
  return node->value->get<int64_t>();
}

Expected<int64_t> JsonValue::asInteger(int64_t low, int64_t high) const {
  Expected<int64_t> value = asInteger();
  if (value && (*value < low || *value > high))
    return error("expected an integer from " + std::to_string(low) + " to " +
                 std::to_string(high) + ", got " + std::to_string(*value));
  return value;
}

Expected<double> JsonValue::asNumber() const {
  if (!isNumber())
    return wrongType("a number");
  return node->value->get<double>();
}

Expected<bool> JsonValue::asBool() const {
  if (!isBool())
    return wrongType("a boolean");
  return node->value->get<bool>();
}

Expected<std::string> JsonValue::asString() const {
  if (!isString())
    return wrongType("a string");
  return node->value->get<std::string>();
}

Expected<std::vector<int64_t>> JsonValue::asIntegers() const {
  auto values = elements();
  if (!values)
    return tl::unexpected(values.error());
  std::vector<int64_t> result;
  for (const JsonValue &v : *values) {
    Expected<int64_t> i = v.asInteger();
    if (!i)
      return tl::unexpected(i.error());
    result.push_back(*i);
  }
  return result;
}

Expected<std::vector<std::string>> JsonValue::asStrings() const {
  auto values = elements();
  if (!values)
    return tl::unexpected(values.error());
  std::vector<std::string> result;
  for (const JsonValue &v : *values) {
    Expected<std::string> s = v.asString();
    if (!s)
      return tl::unexpected(s.error());
    result.push_back(std::move(*s));
  }
  return result;
}

Expected<std::vector<JsonValue>> JsonValue::elements() const {
  if (!isArray())
    return wrongType("an array");
  std::vector<JsonValue> result;
  for (size_t i = 0; i < node->value->size(); ++i)
    result.push_back(child(&(*node->value)[i], "[" + std::to_string(i) + "]"));
  return result;
}

Expected<std::vector<std::pair<std::string, JsonValue>>> JsonValue::members() const {
  if (!isObject())
    return wrongType("an object");
  std::vector<std::pair<std::string, JsonValue>> result;
  for (const auto &item : node->value->items())
    result.emplace_back(item.key(), child(&item.value(), "\"" + item.key() + "\""));
  return result;
}

bool JsonValue::has(std::string_view key) const {
  return isObject() && node->value->contains(std::string(key));
}

Expected<JsonValue> JsonValue::at(std::string_view key) const {
  if (!isObject())
    return wrongType("an object");
  auto it = node->value->find(std::string(key));
  if (it == node->value->end())
    return error("the member \"" + std::string(key) + "\" is missing");
  return child(&*it, std::string(key));
}

Expected<void> JsonValue::allowOnly(std::initializer_list<std::string_view> known) const {
  auto all = members();
  if (!all)
    return tl::unexpected(all.error());
  for (const auto &[key, value] : *all) {
    if (std::find(known.begin(), known.end(), key) != known.end())
      continue;
    std::string list;
    for (std::string_view k : known)
      list += (list.empty() ? "" : ", ") + std::string(k);
    return error("unknown member \"" + key + "\"; known are " + list);
  }
  return {};
}

/// nlohmann keeps the first of two equal keys silently; a second one is most often a
/// mistake in a hand-written file, so the parser callback refuses it.
static ordered_json parseStrict(std::string_view text, std::string &duplicate) {
  std::vector<std::set<std::string>> open;
  auto callback = [&](int, ordered_json::parse_event_t event, ordered_json &value) {
    if (event == ordered_json::parse_event_t::object_start)
      open.emplace_back();
    else if (event == ordered_json::parse_event_t::object_end)
      open.pop_back();
    else if (event == ordered_json::parse_event_t::key) {
      std::string key = value.get<std::string>();
      if (!open.back().insert(key).second && duplicate.empty())
        duplicate = key;
    }
    return true;
  };
  return ordered_json::parse(text, callback);
}

Expected<JsonValue> partita::parseJson(std::string_view text, const std::string &file) {
  auto root = std::make_shared<JsonValue::Node>();
  root->file = file;
  std::string duplicate;
  try {
    root->document = std::make_shared<ordered_json>(parseStrict(text, duplicate));
  } catch (const ordered_json::exception &e) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    std::string what = e.what();
    size_t close = what.find("] ");
    return makeError(file + ": not valid JSON: " +
                     (close == std::string::npos ? what : what.substr(close + 2)));
  }
  if (!duplicate.empty())
    return makeError(file + ": the member \"" + duplicate + "\" appears twice");
  root->value = root->document.get();
  return JsonValue(root);
}

Expected<JsonValue> partita::readJsonFile(const std::string &path) {
  Expected<std::string> text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  return parseJson(*text, path);
}
