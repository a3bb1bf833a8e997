//===- Targets.cpp - The targets that there are ---------------------------===//
#include "passes/Codegen/Targets/Targets.h"

#include "passes/Codegen/OneDnn/OneDnnModel.h"
#include "passes/Codegen/Plain/PlainModel.h"

using namespace partita;
using namespace partita::codegen;

Expected<std::unique_ptr<TargetModel>> codegen::targetNamed(std::string_view name,
                                                            const std::string &cpu) {
  auto code = cpuTarget(cpu);
  if (!code)
    return tl::unexpected(code.error());
  if (name == OneDnnModel::name)
    return std::make_unique<OneDnnModel>(std::move(*code));
  if (name == PlainModel::name)
    return std::make_unique<PlainModel>(std::move(*code));
  return makeError("target '" + std::string(name) +
                   "' is unknown; expected cpu or plain");
}
