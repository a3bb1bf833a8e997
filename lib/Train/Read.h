//===- Read.h - The objects of a training specification ---------*- C++ -*-===//
#ifndef PARTITA_LIB_TRAIN_READ_H
#define PARTITA_LIB_TRAIN_READ_H

#include "partita/Base/Files/JsonMembers.h"
#include "partita/Base/Files/JsonWriter.h"
#include "partita/Train/Spec.h"

namespace partita::train {

Expected<Loss> readLoss(const JsonValue &value);
Expected<Optimizer> readOptimizer(const JsonValue &value);
Expected<Schedule> readSchedule(const JsonValue &value);
Expected<CommFusion> readFusion(const JsonValue &value);

/// Writes an object with every member that the kind has.
void write(JsonWriter &out, const Loss &loss);
void write(JsonWriter &out, const Optimizer &optimizer);
void write(JsonWriter &out, const Schedule &schedule);

/// A string that is not empty.
Expected<std::string> readText(const JsonValue &value);
/// At least one glob, none of them empty.
Expected<std::vector<std::string>> readGlobs(const JsonValue &value);
/// The same where an empty list means none.
Expected<std::vector<std::string>> readGlobsOrNone(const JsonValue &value);
/// An integer from 1 on.
Expected<int64_t> readCount(const JsonValue &value);
Expected<bool> readFlag(const JsonValue &value);

/// A member that only some kinds of an object have.
struct KindMember {
  std::string_view key;
  uint32_t kinds; ///< a bit for each, in the order of `names`
};
/// An error if the object, which is of a kind, has a member of others:
///   spec.json: optimizer: "betas" is of adam, adamw and lamb, the kind is sgd
Expected<void> allowOfKind(const JsonValue &object,
                           std::span<const std::string_view> names, size_t kind,
                           std::span<const KindMember> members);

} // namespace partita::train

#endif // PARTITA_LIB_TRAIN_READ_H
