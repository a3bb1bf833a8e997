//===- JsonWriter.cpp - JSON documents front to back ----------------------===//
#include "partita/Base/Files/JsonWriter.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

using namespace partita;

void JsonWriter::newLine() {
  if (style == Style::Compact)
    return;
  text += '\n';
  text.append(depth, ' ');
}

void JsonWriter::separate() {
  if (afterKey) {
    afterKey = false;
    return;
  }
  if (!isFirst)
    text += ',';
  isFirst = false;
  if (depth != 0)
    newLine();
}

void JsonWriter::begin(char bracket) {
  separate();
  text += bracket;
  ++depth;
  isFirst = true;
}

void JsonWriter::end(char bracket) {
  --depth;
  if (!isFirst)
    newLine();
  text += bracket;
  isFirst = false;
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text += style == Style::Compact ? ":" : ": ";
  afterKey = true;
}

void JsonWriter::value(std::string_view string) {
  separate();
  quote(string);
}

void JsonWriter::value(int64_t number) {
  separate();
  text += std::to_string(number);
}

void JsonWriter::value(uint64_t number) {
  separate();
  text += std::to_string(number);
}

void JsonWriter::value(double number) {
  char digits[32];
  auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  word(std::string_view(digits, static_cast<size_t>(end - digits)));
}

void JsonWriter::word(std::string_view word) {
  separate();
  text += word;
}

void JsonWriter::quote(std::string_view string) {
  bool isPlain = std::all_of(string.begin(), string.end(), [](char c) {
    return c >= ' ' && c < '\x7f' && c != '"' && c != '\\';
  });
  if (isPlain)
    text.append(1, '"').append(string).append(1, '"');
  else
    text += nlohmann::ordered_json(string).dump(
        -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}
