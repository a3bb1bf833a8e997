//===- Yaml.cpp - Documents of YAML ---------------------------------------===//
//
// yaml-cpp, as Debian has it, writes the texts "1", "no" and "2001-01-01" without quotes,
// which readers then take for a number, a bool and a date: values of environment
// variables and annotations would be refused. A reader of JSON reads every quoted text
// here.
//
//===----------------------------------------------------------------------===//
#include "Yaml.h"

#include <cctype>
#include <cstring>

using namespace partita;
using Json = nlohmann::ordered_json;

/// Tells whether a text needs no quotes: words and paths that begin like a word or an
/// option, and are no word of YAML.
static bool isPlain(const std::string &text) {
  if (text.empty() || !(std::isalpha(text[0]) || text[0] == '/' ||
                        (text.starts_with("--") && text.size() > 2 && text[2] != '-')))
    return false;
  for (char c : text)
    if (!std::isalnum(c) && !std::strchr("_-./", c))
      return false;
  std::string lower;
  for (char c : text)
    lower += static_cast<char>(std::tolower(c));
  for (const char *word : {"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
    if (lower == word)
      return false;
  return true;
}

/// A text of several lines that ends with a newline, which can stand as it is.
static bool isBlock(const std::string &text) {
  if (text.find('\n') == std::string::npos || !text.ends_with('\n') ||
      text.ends_with("\n\n") || text[0] == ' ' || text[0] == '\n')
    return false;
  for (char c : text)
    if (c != '\n' && (c < ' ' || c > '~'))
      return false;
  return true;
}

static std::string scalarText(const Json &value, size_t indent) {
  if (!value.is_string())
    return value.dump();
  const auto &text = value.get_ref<const std::string &>();
  if (isPlain(text))
    return text;
  if (!isBlock(text))
    return value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  std::string block = "|";
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    block += "\n" + (end > begin ? std::string(indent, ' ') : std::string()) +
             text.substr(begin, end - begin);
  return block;
}

static void write(const Json &value, size_t indent, std::string &out);

/// The value of a member or an element, behind "name:" or "-".
static void writeValue(const Json &value, size_t indent, std::string &out) {
  if (!value.is_structured() || value.empty()) {
    out += " " + scalarText(value, indent) + "\n";
    return;
  }
  out += "\n";
  write(value, indent, out);
}

static void write(const Json &value, size_t indent, std::string &out) {
  const std::string margin(indent, ' ');
  for (const auto &[name, entry] : value.items()) {
    if (value.is_object()) {
      out += margin + scalarText(name, indent) + ":";
      writeValue(entry, indent + 2, out);
    } else if (entry.is_structured() && !entry.empty()) {
      // The first member stands behind the hyphen.
      std::string inner;
      write(entry, indent + 2, inner);
      out += margin + "- " + inner.substr(indent + 2);
    } else {
      out += margin + "-";
      writeValue(entry, indent + 2, out);
    }
  }
}

std::string deploy::yamlText(const Json &document) {
  std::string out;
  write(document, 0, out);
  return out;
}
