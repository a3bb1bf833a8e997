//===- MarkStates.cpp - Inputs that are what the outputs were -------------===//
#include "passes/Import/MarkStates.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Formula.h"
#include "dialects/Graph/Returned.h"
#include "partita/Onnx/MergeStages.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>

using namespace mlir;
using namespace partita;

/// What the stars of a pattern stand for in a text: "past.*.key" in "past.12.key" is
/// "12". The shortest that fit, from the left. Nothing if it does not match.
static std::optional<std::vector<std::string>> starsOf(StringRef pattern,
                                                       StringRef text) {
  auto [literal, rest] = pattern.split('*');
  if (!text.consume_front(literal))
    return std::nullopt;
  if (literal.size() == pattern.size())
    return text.empty() ? std::optional(std::vector<std::string>()) : std::nullopt;
  for (size_t length = 0; length <= text.size(); ++length)
    if (auto more = starsOf(rest, text.drop_front(length))) {
      more->insert(more->begin(), text.take_front(length).str());
      return more;
    }
  return std::nullopt;
}

/// The pattern with `stars` in place of its own.
static std::string withStars(StringRef pattern, const std::vector<std::string> &stars) {
  std::string text;
  size_t next = 0;
  for (char c : pattern)
    text += c == '*' ? stars[next++] : std::string(1, c);
  return text;
}

namespace {
/// Marks the ends of states on one function.
class Marker {
public:
  explicit Marker(func::FuncOp function) : function(function) {
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (auto name = function.getArgAttrOfType<StringAttr>(i, "graph.name"))
        arguments.emplace_back(name.getValue(), i);
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (auto name = function.getResultAttrOfType<StringAttr>(i, "graph.name"))
        results.emplace_back(name.getValue(), i);
  }

  Expected<void> mark(const std::string &binding) {
    auto [past, present] = StringRef(binding).split('=');
    auto error = [&](const Twine &what) -> Expected<void> {
      return makeError(("--state " + Twine(binding) + ": " + what).str());
    };
    if (past.empty() || present.empty() || present.contains('='))
      return error("expected INPUT=OUTPUT, each a name or a pattern with stars");
    if (past.count('*') != present.count('*'))
      return error("expected as many stars on both sides");
    bool any = false;
    for (auto [name, argument] : arguments) {
      auto stars = starsOf(past, name);
      if (!stars)
        continue;
      any = true;
      std::string output = withStars(present, *stars);
      auto result = llvm::find_if(results, [&](auto &r) { return r.first == output; });
      if (result == results.end())
        return error("input '" + name + "' would become output '" + output +
                     "', which the model does not have" + listed(results));
      if (auto why = tie(name, argument, *result))
        return error(*why);
    }
    if (!any)
      return error("the model has no input '" + past + "'" + listed(arguments));
    return {};
  }

private:
  using End = std::pair<StringRef, unsigned>;

  /// "; its inputs are 'a', 'b'", the first few.
  static std::string listed(ArrayRef<End> ends) {
    constexpr size_t most = 6;
    std::string text;
    for (auto [name, number] : ends.take_front(most))
      text += (text.empty() ? "; it has '" : ", '") + name.str() + "'";
    return text + (ends.size() > most ? ", …" : "");
  }

  std::optional<std::string> tie(StringRef name, unsigned argument, const End &result) {
    Type in = function.getArgumentTypes()[argument];
    keepLastRows(argument, result);
    Type out = function.getResultTypes()[result.second];
    std::string both = ("input '" + name + "' and output '" + result.first + "' ").str();
    if (in != out) {
      std::string text = both + "are of types ";
      llvm::raw_string_ostream(text)
          << in << " and " << out
          << ": a state keeps its size, or is the last rows of a Concat whose first "
             "operand is the input itself";
      return text;
    }
    if (function.getResultAttr(result.second, graph::dimsAttr))
      return "output '" + result.first.str() +
             "' is as long as the data say, and a state keeps its size";
    if (dist::argumentState(function, argument))
      return "input '" + name.str() + "' is a state already";
    if (dist::resultState(function, result.second))
      return "output '" + result.first.str() + "' is a state already";
    auto state =
        dist::StateAttr::get(function.getContext(),
                             StringAttr::get(function.getContext(), name), StringAttr());
    function.setArgAttr(argument, dist::stateAttr, state);
    function.setResultAttr(result.second, dist::stateAttr, state);
    return std::nullopt;
  }

  /// Of `present = Concat(past, new)` the last rows, as many as `past` has, are the
  /// state.
  void keepLastRows(unsigned argument, const End &result) {
    Operation *end = function.front().getTerminator();
    auto both = end->getOperand(result.second).getDefiningOp<graph::ConcatOp>();
    if (!both || both->getOperand(0) != function.getArgument(argument))
      return;
    // Beside it: the ops of a state are in one stage, and stages are cut in order.
    OpBuilder builder(end->getContext());
    builder.setInsertionPointAfter(both);
    graph::Formula f(
        builder, NameLoc::get(builder.getStringAttr(result.first.str() + "/last_rows")));
    size_t d = f.axis(both.getAxis(), both.getResult());
    int64_t rows = shapeOf(both->getOperand(0))[d], all = shapeOf(both.getResult())[d];
    end->setOperand(result.second, f.slice(both.getResult(), d, all - rows, all));
    function.setType(
        builder.getFunctionType(function.getArgumentTypes(), end->getOperandTypes()));
  }

  func::FuncOp function;
  std::vector<End> arguments, results;
};
} // namespace

Expected<void> partita::markStates(ModuleOp module,
                                   const std::vector<std::string> &bindings) {
  if (bindings.empty())
    return {};
  auto function = module.lookupSymbol<func::FuncOp>("main");
  Marker marker(function);
  for (const std::string &binding : bindings)
    if (auto ok = marker.mark(binding); !ok)
      return ok;
  return {};
}

Expected<void> partita::markModelStates(ModuleOp module,
                                        const std::vector<std::string> &given,
                                        const onnx_model::Model &model) {
  if (auto ok = markStates(module, given); !ok)
    return ok;
  std::vector<std::string> own;
  for (std::string &line : onnx_model::linesOf(model, onnx_model::statesKey))
    if (!llvm::is_contained(given, line))
      own.push_back(std::move(line));
  auto ok = markStates(module, own);
  return ok ? ok
            : makeError("'" + model.path + "': property '" +
                        std::string(onnx_model::statesKey) + "': " + ok.error().message);
}
