//===- RunBundle.cpp - The bundle of a function on its arguments ----------===//
#include "passes/Pipelines/RunBundle.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Returned.h"

using namespace mlir;
using namespace partita;

Expected<std::vector<HostTensor>>
partita::runBundleOf(func::FuncOp function, const BundleRunner &run,
                     const std::string &folder, const std::vector<HostTensor> &arguments,
                     const BundleRun &how) {
  std::vector<HostTensor> results;
  std::map<std::string, HostTensor> inputs, states;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (dist::StateAttr state = dist::argumentState(function, i))
      states[state.getName().str()] = arguments[i];
    else // called as FunctionBuffers calls its buffer
      inputs[function.getArgAttr(i, "graph.name")
                 ? function.getArgAttrOfType<StringAttr>(i, "graph.name").str()
                 : "input_" + std::to_string(i)] = arguments[i];
  auto outputs = run(folder, inputs, states, how);
  if (!outputs)
    return tl::unexpected(outputs.error());
  size_t output = 0;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (dist::StateAttr state = dist::resultState(function, i))
      results.push_back(states.at(state.getName().str()));
    else if (!function.getResultAttr(i, graph::sizeAttr))
      results.push_back(std::move((*outputs)[output++]));
  return results;
}
