//===- MakeBundle.cpp - Writes the hand-made bundle -----------------------===//
//
//   make-test-bundle STAGE.so MESH FOLDER
// writes FOLDER/bundle, FOLDER/x.npy, mode.npy and the expected y.npy.
//
//===----------------------------------------------------------------------===//
#include "Model.h"

#include "partita/Base/Files/Npy.h"

#include <cstdio>

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  std::string folder = argv[3];
  auto ok = testmodel::writeBundle(folder + "/bundle", argv[1], argv[2]);
  if (ok)
    ok = partita::writeNpy(folder + "/x.npy", testmodel::input());
  if (ok)
    ok = partita::writeNpy(folder + "/mode.npy", testmodel::mode(testmodel::Normal, 0));
  if (ok)
    ok = partita::writeNpy(folder + "/y.npy", testmodel::expected());
  if (!ok)
    std::fprintf(stderr, "%s\n", ok.error().message.c_str());
  return !ok;
}
