//===- JsonWriter.h - JSON documents front to back --------------*- C++ -*-===//
//
// Plans and weight headers have an entry per op or tensor of a model. Written straight
// into the text they cost a tenth of what building the document first does; small files
// go through nlohmann::ordered_json (Json.h). The layout is the one of
// ordered_json::dump.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_JSONWRITER_H
#define PARTITA_BASE_FILES_JSONWRITER_H

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace partita {

class JsonWriter {
public:
  /// One entry per line, indented by one space per level; or everything on one line.
  enum class Style : uint8_t { Lines, Compact };
  explicit JsonWriter(Style style) : style(style) {}

  void beginObject() { begin('{'); }
  void endObject() { end('}'); }
  void beginArray() { begin('['); }
  void endArray() { end(']'); }

  /// The name of the next member. Whether it is new is the caller's business.
  void key(std::string_view name);

  /// Bytes that are no UTF-8 become U+FFFD: names come from models.
  void value(std::string_view text);
  void value(int64_t number);
  void value(uint64_t number);
  /// The shortest text that reads back as this number; finite.
  void value(double number);
  void null() { word("null"); }
  /// Only for bool: text and pointers are none.
  template <std::same_as<bool> T> void value(T flag) { word(flag ? "true" : "false"); }

  void member(std::string_view name, auto entry) {
    key(name);
    value(entry);
  }
  template <typename T> void member(std::string_view name, std::span<const T> entries) {
    key(name);
    beginArray();
    for (const T &entry : entries)
      value(entry);
    endArray();
  }

  /// The document so far.
  std::string take() { return std::move(text); }

private:
  void word(std::string_view word);
  void begin(char bracket);
  void end(char bracket);
  /// What goes before an element or a key.
  void separate();
  void newLine();
  void quote(std::string_view string);

  Style style;
  std::string text;
  size_t depth = 0;
  bool isFirst = true, afterKey = false;
};

} // namespace partita

#endif // PARTITA_BASE_FILES_JSONWRITER_H
