//===- JsonMembers.h - Members of a hand-written JSON file ------*- C++ -*-===//
//
// Cluster files and training specifications are objects of optional members with
// ranges. Errors name the file and the path, as in Json.h:
//   spec.json: optimizer/eps: expected a number above 0, got -1
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_JSONMEMBERS_H
#define PARTITA_BASE_FILES_JSONMEMBERS_H

#include "partita/Base/Files/Json.h"

#include <span>

namespace partita {

/// A finite number above zero.
Expected<double> readPositive(const JsonValue &value);
/// A finite number, zero or more.
Expected<double> readNonNegative(const JsonValue &value);
/// A number above 0 and at most 1.
Expected<double> readFraction(const JsonValue &value);
/// A number from 0 to 1.
Expected<double> readUpToOne(const JsonValue &value);
/// A number from 0 on, below 1.
Expected<double> readBelowOne(const JsonValue &value);

/// Sets `into` to the member `key`, read by `reader`, if the object has it.
template <typename T, typename Reader>
Expected<void> readMember(const JsonValue &object, std::string_view key, T &into,
                          Reader reader) {
  if (!object.has(key))
    return {};
  auto member = object.at(key);
  if (!member)
    return tl::unexpected(member.error());
  auto read = reader(*member);
  if (!read)
    return tl::unexpected(read.error());
  into = std::move(*read);
  return {};
}

/// The place of a string in `names`; another string is an error that lists them.
Expected<size_t> readName(const JsonValue &value,
                          std::span<const std::string_view> names);

} // namespace partita

#endif // PARTITA_BASE_FILES_JSONMEMBERS_H
