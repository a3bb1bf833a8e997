//===- JsonStream.cpp - Pull reader for large JSON documents --------------===//
#include "partita/Base/Files/JsonStream.h"

using namespace partita;

/// Deep enough for any format read here; a hostile file cannot grow the stack.
static constexpr size_t maxDepth = 64;
/// Keys and strings longer than this are refused rather than collected.
static constexpr size_t maxString = 1 << 16;

JsonStream::JsonStream(Source source, std::string file)
    : source(std::move(source)), file(std::move(file)), buffer(1 << 18) {}

/// The next byte without consuming it; -1 at the end of the input or after a failed read.
int JsonStream::peek() {
  if (position < filled)
    return static_cast<unsigned char>(buffer[position]);
  if (atEnd)
    return -1;
  Expected<size_t> got = source(buffer.data(), buffer.size());
  if (!got)
    sourceError = got.error().message;
  position = 0;
  filled = got ? *got : 0;
  atEnd = filled == 0;
  return atEnd ? -1 : static_cast<unsigned char>(buffer[0]);
}

int JsonStream::peekToken() {
  for (;;) {
    int c = peek();
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
      return c;
    line += c == '\n';
    ++position;
  }
}

tl::unexpected<Error> JsonStream::error(const std::string &message) const {
  std::string path;
  for (const Frame &frame : frames) {
    if (frame.isObject && frame.key.empty())
      continue;
    if (!frame.isObject && frame.index < 0)
      continue;
    if (frame.isObject)
      path += (path.empty() ? "" : "/") + frame.key;
    else
      path += "[" + std::to_string(frame.index) + "]";
  }
  return makeError(file + ": " + (path.empty() ? "" : path + ": ") + message);
}

tl::unexpected<Error> JsonStream::malformed(const std::string &what) {
  int c = peek();
  if (!sourceError.empty())
    return makeError(sourceError);
  if (c < 0)
    return error("not valid JSON: the file ends in line " + std::to_string(line) + ", " +
                 what);
  std::string shown = c >= 0x20 && c < 0x7f ? std::string(1, static_cast<char>(c))
                                            : "byte " + std::to_string(c);
  return error("not valid JSON: line " + std::to_string(line) + " has '" + shown + "', " +
               what);
}

tl::unexpected<Error> JsonStream::wrongType(const char *expected) {
  int c = peekToken();
  const char *got = nullptr;
  if (c == '{')
    got = "an object";
  else if (c == '[')
    got = "an array";
  else if (c == '"')
    got = "a string";
  else if (c == 't' || c == 'f')
    got = "a boolean";
  else if (c == 'n')
    got = "null";
  else if (c == '-' || (c >= '0' && c <= '9'))
    got = "a number";
  if (!got)
    return malformed(std::string("expected ") + expected);
  return error(std::string("expected ") + expected + ", got " + got);
}

Expected<void> JsonStream::beginObject() {
  if (peekToken() != '{')
    return wrongType("an object");
  if (frames.size() == maxDepth)
    return error("nested deeper than " + std::to_string(maxDepth) + " levels");
  ++position;
  frames.push_back({true, -1, {}, {}});
  return {};
}

Expected<bool> JsonStream::nextMember(std::string &key) {
  Frame &frame = frames.back();
  int c = peekToken();
  if (c == '}') {
    ++position;
    frames.pop_back();
    return false;
  }
  if (!frame.seen.empty()) {
    if (c != ',')
      return malformed("expected ',' or '}'");
    ++position;
  }
  frame.key.clear();
  if (peekToken() != '"')
    return malformed("expected a member's name in quotes");
  Expected<std::string> name = readString();
  if (!name)
    return tl::unexpected(name.error());
  if (peekToken() != ':')
    return malformed("expected ':'");
  ++position;
  frame.key = key = *name;
  if (!frame.seen.insert(key).second)
    return error("the member appears twice");
  return true;
}

Expected<void> JsonStream::beginArray() {
  if (peekToken() != '[')
    return wrongType("an array");
  if (frames.size() == maxDepth)
    return error("nested deeper than " + std::to_string(maxDepth) + " levels");
  ++position;
  frames.push_back({false, -1, {}, {}});
  return {};
}

Expected<bool> JsonStream::nextElement() {
  Frame &frame = frames.back();
  int c = peekToken();
  if (c == ']') {
    ++position;
    frames.pop_back();
    return false;
  }
  if (frame.index >= 0) {
    if (c != ',')
      return malformed("expected ',' or ']'");
    ++position;
    if (peekToken() == ']')
      return malformed("expected a value after ','");
  }
  ++frame.index;
  return true;
}

Expected<int64_t> JsonStream::readInteger(int64_t low, int64_t high) {
  int c = peekToken();
  if (c != '-' && (c < '0' || c > '9'))
    return wrongType("an integer");
  bool negative = c == '-';
  if (negative)
    ++position;
  int digits = 0;
  bool tooLarge = false;
  bool leadingZero = peek() == '0';
  // Accumulated below zero, because the negative range is the larger one.
  int64_t value = 0;
  for (c = peek(); c >= '0' && c <= '9'; c = peek(), ++digits) {
    tooLarge |= __builtin_mul_overflow(value, 10, &value);
    tooLarge |= __builtin_sub_overflow(value, c - '0', &value);
    ++position;
  }
  if (digits == 0 || (leadingZero && digits > 1))
    return malformed("expected a number without leading zeros");
  if (c == '.' || c == 'e' || c == 'E')
    return error("expected an integer, got a number with a fraction or an exponent");
  if (!negative)
    tooLarge |= __builtin_sub_overflow(0, value, &value);
  if (tooLarge || value < low || value > high)
    return error("expected an integer from " + std::to_string(low) + " to " +
                 std::to_string(high) + ", got " +
                 (tooLarge ? "one of " + std::to_string(digits) + " digits"
                           : std::to_string(value)));
  return value;
}

Expected<std::string> JsonStream::readString() {
  if (peekToken() != '"')
    return wrongType("a string");
  ++position;
  std::string text;
  for (int c = peek(); c != '"'; c = peek()) {
    if (c < 0x20)
      return malformed("expected the end of a string");
    if (text.size() >= maxString)
      return error("the string is longer than " + std::to_string(maxString) + " bytes");
    ++position;
    if (c == '\\') {
      c = peek();
      if (c != '"' && c != '\\' && c != '/')
        return malformed("expected one of the escapes \\\" \\\\ \\/");
      ++position;
    }
    text.push_back(static_cast<char>(c));
  }
  ++position;
  return text;
}

Expected<void> JsonStream::readIntegers(int64_t low, int64_t high,
                                        std::vector<int64_t> &out) {
  if (auto begun = beginArray(); !begun)
    return begun;
  for (;;) {
    Expected<bool> more = nextElement();
    if (!more)
      return tl::unexpected(more.error());
    if (!*more)
      return {};
    Expected<int64_t> value = readInteger(low, high);
    if (!value)
      return tl::unexpected(value.error());
    out.push_back(*value);
  }
}

Expected<void> JsonStream::finish() {
  int c = peekToken();
  if (!sourceError.empty())
    return makeError(sourceError);
  if (c >= 0)
    return malformed("expected the end of the file");
  return {};
}
