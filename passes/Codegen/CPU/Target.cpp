//===- Target.cpp - What a program is compiled for ------------------------===//
#include "passes/Codegen/CPU/Target.h"

#include "partita/Runtime/OneDnn.h"
#include "partita/Runtime/Plain.h"

using namespace partita;
using namespace partita::codegen;

Expected<Target> codegen::targetNamed(std::string_view name,
                                      const std::vector<std::string> &cpuFeatures) {
  for (const Target &target :
       {Target{"cpu", &onednn::engineFor(cpuFeatures)}, Target{"plain", &plain::loops()}})
    if (target.name == name)
      return target;
  return makeError("target '" + std::string(name) +
                   "' is unknown; expected cpu or plain");
}
