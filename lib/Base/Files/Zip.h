//===- Zip.h - Where the members of a zip file lie --------------*- C++ -*-===//
#ifndef PARTITA_LIB_BASE_FILES_ZIP_H
#define PARTITA_LIB_BASE_FILES_ZIP_H

#include "partita/Base/Files/File.h"

#include <vector>

namespace partita {

struct ZipMember {
  std::string name;
  uint64_t offset = 0; ///< of its bytes in the file
  uint64_t bytes = 0;  ///< as they lie there
  bool isCompressed = false;
};

/// The members by the central directory (PKWARE's APPNOTE 6.3), with the 64-bit sizes
/// that NumPy always writes. An error names the file: no zip file, damaged, encrypted.
Expected<std::vector<ZipMember>> readZip(const InputFile &file, const std::string &path);

} // namespace partita

#endif // PARTITA_LIB_BASE_FILES_ZIP_H
