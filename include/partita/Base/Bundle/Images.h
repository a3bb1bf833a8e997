//===- Images.h - In which order images lie in memory -----------*- C++ -*-===//
#ifndef PARTITA_BASE_BUNDLE_IMAGES_H
#define PARTITA_BASE_BUNDLE_IMAGES_H

#include "partita/Abi/TaskTable.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace partita::task {

/// The format in which dims lie as they are numbered: batch, channels, spatial dims.
inline constexpr int64_t rowMajorImage = PARTITA_FORMAT_CHANNELS_FIRST;

/// An image's dims from outer to inner in memory, by partita_format.
std::vector<size_t> imageOrder(int64_t format, size_t rank);

} // namespace partita::task

#endif // PARTITA_BASE_BUNDLE_IMAGES_H
