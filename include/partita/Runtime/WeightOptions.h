//===- WeightOptions.h - How a bundle's weight files are opened -*- C++ -*-===//
#ifndef PARTITA_RUNTIME_WEIGHTOPTIONS_H
#define PARTITA_RUNTIME_WEIGHTOPTIONS_H

#include <string>

namespace partita::runtime {

struct WeightOptions {
  std::string folder; ///< is searched first for the model's files; empty: none
  bool check = true;  ///< blocks that are read must be those of the compile
};

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_WEIGHTOPTIONS_H
