//===- WeightOptions.h - How a bundle's weight files are opened -*- C++ -*-===//
#ifndef PARTITA_BASE_BUNDLE_WEIGHTOPTIONS_H
#define PARTITA_BASE_BUNDLE_WEIGHTOPTIONS_H

#include <string>

namespace partita {

struct WeightOptions {
  std::string folder; ///< is searched first for the model's files; empty: none
  bool check = true;  ///< blocks that are read must be those of the compile
};

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_WEIGHTOPTIONS_H
