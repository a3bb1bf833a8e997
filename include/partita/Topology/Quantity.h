//===- Quantity.h - Numbers of a cluster file, checked ----------*- C++ -*-===//
#ifndef PARTITA_TOPOLOGY_QUANTITY_H
#define PARTITA_TOPOLOGY_QUANTITY_H

#include "partita/Base/Files/JsonMembers.h"

namespace partita::cluster {

/// Bytes as text: "80GiB", "1.5 TB", "4096".
Expected<int64_t> parseBytes(std::string_view text);
/// Bytes: an integer, or a string such as "80GiB", "1.5 TB", "512 MiB".
Expected<int64_t> readBytes(const JsonValue &value);

/// "a, b, c", for messages.
std::string listed(const std::vector<std::string> &names);

} // namespace partita::cluster

#endif // PARTITA_TOPOLOGY_QUANTITY_H
