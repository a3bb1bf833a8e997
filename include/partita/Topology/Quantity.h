//===- Quantity.h - Numbers of a cluster file, checked ----------*- C++ -*-===//
#ifndef PARTITA_TOPOLOGY_QUANTITY_H
#define PARTITA_TOPOLOGY_QUANTITY_H

#include "partita/Base/Files/Json.h"

namespace partita::cluster {

/// Bytes as text: "80GiB", "1.5 TB", "4096".
Expected<int64_t> parseBytes(std::string_view text);
/// Bytes: an integer, or a string such as "80GiB", "1.5 TB", "512 MiB".
Expected<int64_t> readBytes(const JsonValue &value);
/// A finite number above zero.
Expected<double> readPositive(const JsonValue &value);
/// A finite number, zero or more.
Expected<double> readNonNegative(const JsonValue &value);
/// A number above 0 and at most 1.
Expected<double> readFraction(const JsonValue &value);

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

/// "a, b, c", for messages.
std::string listed(const std::vector<std::string> &names);

} // namespace partita::cluster

#endif // PARTITA_TOPOLOGY_QUANTITY_H
