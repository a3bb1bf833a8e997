//===- JsonStream.h - Pull reader for large JSON documents ------*- C++ -*-===//
//
// Json.h keeps a whole document in memory, about a hundred bytes per number. This
// reader is for documents of millions of numbers: the caller asks for what it expects
// next, nothing is kept, and every error names the file and the path inside it:
//   big.json.gz: problem/edges/costs[17][4]: expected an integer, got a string
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_JSONSTREAM_H
#define PARTITA_BASE_FILES_JSONSTREAM_H

#include "partita/Base/Error.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace partita {

/// Reads one JSON document front to back. After an error the reader must not be used.
class JsonStream {
public:
  /// Fills the buffer with up to `size` bytes; 0 means the end of the input.
  using Source = std::function<Expected<size_t>(char *buffer, size_t size)>;

  /// `file` is only used in messages.
  JsonStream(Source source, std::string file);

  /// Expects '{' here. Then call nextMember until it gives false.
  Expected<void> beginObject();
  /// True and the key of the next member (whose value must then be read), or false at
  /// the closing '}'. A key that appears twice is an error.
  Expected<bool> nextMember(std::string &key);
  /// Expects '[' here. Then call nextElement until it gives false.
  Expected<void> beginArray();
  /// True when another element follows (which must then be read), false at ']'.
  Expected<bool> nextElement();

  /// An integer in [low, high]. Fractions, exponents and numbers of any length outside
  /// the range are errors that say so.
  Expected<int64_t> readInteger(int64_t low, int64_t high);
  Expected<std::string> readString();
  /// A whole array of integers in [low, high], appended to `out`.
  Expected<void> readIntegers(int64_t low, int64_t high, std::vector<int64_t> &out);
  /// Expects nothing but white space up to the end of the input.
  Expected<void> finish();

  /// "file: path: message" as an error about the value read last.
  tl::unexpected<Error> error(const std::string &message) const;

private:
  struct Frame {
    bool isObject;
    int64_t index;
    std::string key;
    std::set<std::string> seen;
  };
  int peek();
  int peekToken();
  tl::unexpected<Error> wrongType(const char *expected);
  tl::unexpected<Error> malformed(const std::string &what);

  Source source;
  std::string file;
  std::vector<char> buffer;
  size_t position = 0, filled = 0;
  bool atEnd = false;
  std::string sourceError;
  int64_t line = 1;
  std::vector<Frame> frames;
};

} // namespace partita

#endif // PARTITA_BASE_FILES_JSONSTREAM_H
