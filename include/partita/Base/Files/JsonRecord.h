//===- JsonRecord.h - Structs as objects of a JSON file ---------*- C++ -*-===//
//
// The members of a struct are named once, by a function that both directions run:
//
//   template <typename Io> void visit(Io &io, As<Io, Point> &point) {
//     io.member("x", point.x);
//     io.optional("label", point.label); // absent where it is empty
//   }
//
//   JsonRecordWriter(out).record(point);   JsonRecordReader reader(value);
//   reader.record(point);
//
// `visit` is found by the struct's namespace. Values are numbers, flags, texts, lists of
// values, and structs that have a `visit` of their own.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_JSONRECORD_H
#define PARTITA_BASE_FILES_JSONRECORD_H

#include "partita/Base/Files/Json.h"
#include "partita/Base/Files/JsonWriter.h"

#include <optional>
#include <type_traits>

namespace partita {

/// A struct as a direction visits it: what is written does not change.
template <typename Io, typename T> using As = std::conditional_t<Io::reads, T, const T>;

/// Members that may be absent, for a direction that writes: `Self` has `member`.
template <typename Self> class RecordWriter {
public:
  static constexpr bool reads = false;

  /// Written unless it is `absent`.
  template <typename T>
  void optional(std::string_view key, const T &value, const T &absent = T()) {
    if (!(value == absent))
      self().member(key, value);
  }
  template <typename T>
  void optional(std::string_view key, const std::optional<T> &value) {
    if (value)
      self().member(key, *value);
  }
  /// Whether members that come together, `key` the first of them, are written, or there.
  bool isThere(std::string_view, bool isWritten) { return isWritten; }

private:
  Self &self() { return static_cast<Self &>(*this); }
};

/// Members that may be absent, for a direction that reads: `Self` has `member` and `has`.
template <typename Self> class RecordReader {
public:
  static constexpr bool reads = true;

  template <typename T>
  void optional(std::string_view key, T &value, const T &absent = T()) {
    if (self().has(key))
      self().member(key, value);
    else
      value = absent;
  }
  template <typename T> void optional(std::string_view key, std::optional<T> &value) {
    if (self().has(key))
      self().member(key, value.emplace());
  }
  bool isThere(std::string_view key, bool) { return self().has(key); }

private:
  Self &self() { return static_cast<Self &>(*this); }
};

class JsonRecordWriter : public RecordWriter<JsonRecordWriter> {
public:
  explicit JsonRecordWriter(JsonWriter &out) : out(out) {}

  void member(std::string_view key, const auto &value) {
    out.key(key);
    write(value);
  }
  template <typename T> void record(const T &value) {
    out.beginObject();
    visit(*this, value);
    out.endObject();
  }

private:
  void write(const std::string &text) { out.value(std::string_view(text)); }
  void write(int64_t number) { out.value(number); }
  void write(double number) { out.value(number); }
  void write(std::same_as<bool> auto flag) { out.value(flag); }
  template <typename T> void write(const std::vector<T> &values) {
    out.beginArray();
    for (const T &value : values)
      write(value);
    out.endArray();
  }
  template <typename T>
    requires std::is_class_v<T>
  void write(const T &value) {
    if constexpr (requires { writeJson(out, value); })
      writeJson(out, value);
    else
      record(value);
  }

  JsonWriter &out;
};

/// The first error stays; what is behind it is not to be used.
class JsonRecordReader : public RecordReader<JsonRecordReader> {
public:
  explicit JsonRecordReader(JsonValue value) : from(std::move(value)) {}

  template <typename T> void member(std::string_view key, T &value) {
    if (auto found = from.at(key))
      read(*found, value);
    else
      keep(found.error());
  }
  bool has(std::string_view key) const { return from.has(key); }

  template <typename T> void record(T &value) { visit(*this, value); }

  /// An error about the value of a member that is there.
  void refuse(std::string_view key, const std::string &message) {
    if (auto found = from.at(key))
      keep(found->error(message).value());
  }
  void keep(const Error &error) {
    if (first.message.empty())
      first = error;
  }
  Error first;

private:
  void read(const JsonValue &value, std::string &text) { take(value.asString(), text); }
  void read(const JsonValue &value, int64_t &number) { take(value.asInteger(), number); }
  void read(const JsonValue &value, double &number) { take(value.asNumber(), number); }
  void read(const JsonValue &value, bool &flag) { take(value.asBool(), flag); }
  template <typename T> void read(const JsonValue &value, std::vector<T> &values) {
    auto elements = value.elements();
    if (!elements)
      return keep(elements.error());
    for (const JsonValue &element : *elements)
      read(element, values.emplace_back());
  }
  template <typename T>
    requires std::is_class_v<T>
  void read(const JsonValue &value, T &result) {
    if constexpr (requires { readJson(value, result); }) {
      if (auto ok = readJson(value, result); !ok)
        keep(ok.error());
    } else {
      JsonRecordReader inner(value);
      inner.record(result);
      if (!inner.first.message.empty())
        keep(inner.first);
    }
  }
  template <typename T> void take(Expected<T> given, T &value) {
    if (given)
      value = std::move(*given);
    else
      keep(given.error());
  }

  JsonValue from;
};

} // namespace partita

#endif // PARTITA_BASE_FILES_JSONRECORD_H
