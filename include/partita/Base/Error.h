//===- Error.h - The error type of every library ----------------*- C++ -*-===//
//
// Libraries never print and never throw across a folder: they return
// Expected<T>. The message is one sentence for a person, without a trailing
// period, naming the file, op, dim and value involved.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_ERROR_H
#define PARTITA_BASE_ERROR_H

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace partita {

struct Error {
  std::string message;
  /// Subjects of the message where they are known, for programs that show them apart: the
  /// name of an ONNX node, a dim of a value of it, the place in a hints file.
  std::string node = {};
  int64_t dim = -1;
  std::string hint = {};
};

template <typename T> using Expected = tl::expected<T, Error>;

/// Shorthand for returning a failure from a function that returns Expected<T>.
inline tl::unexpected<Error> makeError(std::string message) {
  return tl::unexpected<Error>(Error{.message = std::move(message)});
}

} // namespace partita

#endif // PARTITA_BASE_ERROR_H
