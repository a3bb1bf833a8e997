//===- States.cpp - What lasts from one run of a function to the next -----===//
#include "dialects/Dist/Dist.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace partita;
using namespace partita::dist;

StateAttr dist::argumentState(Operation *function, unsigned argument) {
  return cast<FunctionOpInterface>(function).getArgAttrOfType<StateAttr>(argument,
                                                                         stateAttr);
}

StateAttr dist::resultState(Operation *function, unsigned result) {
  return cast<FunctionOpInterface>(function).getResultAttrOfType<StateAttr>(result,
                                                                            stateAttr);
}

SmallVector<StateEnds> dist::statesOf(Operation *op) {
  auto function = cast<FunctionOpInterface>(op);
  SmallVector<StateEnds> states;
  llvm::StringMap<size_t> places;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (StateAttr state = argumentState(function, i)) {
      places.try_emplace(state.getName(), states.size());
      states.push_back({state, static_cast<int32_t>(i), -1});
    }
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (StateAttr state = resultState(function, i)) {
      auto [place, added] = places.try_emplace(state.getName(), states.size());
      if (added)
        states.push_back({state});
      states[place->second].result = static_cast<int32_t>(i);
    }
  return states;
}

static LogicalResult verifyEnds(FunctionOpInterface function, const StateEnds &ends) {
  if (ends.argument < 0 || ends.result < 0)
    return success();
  auto argument = static_cast<unsigned>(ends.argument);
  auto result = static_cast<unsigned>(ends.result);
  Type in = function.getArgumentTypes()[argument];
  Type out = function.getResultTypes()[result];
  auto error = [&] {
    return function.emitOpError("state ") << ends.state.getName() << ": ";
  };
  if (in != out)
    return error() << "argument " << argument << " is of type " << in << ", result "
                   << result << " of type " << out;
  LayoutAttr before = argumentLayout(function, argument);
  LayoutAttr after = resultLayout(function, result);
  if (before && after && before != after && before.canonical() != after.canonical())
    return error() << "it comes in layout " << before.str() << " and goes in layout "
                   << after.str() << ", but stays in its place";
  return success();
}

LogicalResult dist::verifyStates(Operation *op) {
  auto function = cast<FunctionOpInterface>(op);
  llvm::StringMap<unsigned> arguments, results;
  auto once = [&](llvm::StringMap<unsigned> &seen, StateAttr state, StringRef what,
                  unsigned number) -> LogicalResult {
    auto [place, added] = seen.try_emplace(state.getName(), number);
    if (added)
      return success();
    return function.emitOpError("state ") << state.getName() << " is " << what << " "
                                          << place->second << " and " << number;
  };
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (StateAttr state = argumentState(function, i))
      if (failed(once(arguments, state, "argument", i)))
        return failure();
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (StateAttr state = resultState(function, i)) {
      if (failed(once(results, state, "result", i)))
        return failure();
      if (state.getInit() && arguments.contains(state.getName()))
        return function.emitOpError("state ")
               << state.getName() << " says what it begins as on result " << i
               << ", expected it on its argument";
    }
  for (const StateEnds &ends : statesOf(function))
    if (failed(verifyEnds(function, ends)))
      return failure();
  return success();
}
