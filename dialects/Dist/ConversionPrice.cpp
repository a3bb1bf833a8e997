//===- ConversionPrice.cpp - What the conversions of a program cost -------===//
#include "dialects/Dist/Manual.h"
#include "dialects/Dist/ProgramFlow.h"

using namespace mlir;
using namespace partita;
using namespace partita::dist;

namespace {
/// Follows layouts from each value through the conversions of it.
class Pricer {
public:
  explicit Pricer(FunctionOpInterface function)
      : function(function), mesh(findMesh(function).getMesh()),
        options(reshardOptionsOf(function)) {}

  Price run() {
    for (BlockArgument argument : function.getArguments())
      if (auto layout = argumentLayout(function, argument.getArgNumber()))
        begin(argument, layout.getLayout());
    for (Operation &op : function.front())
      visit(op);
    return price;
  }

private:
  /// Where a value stands: in which tree, at which node, in which layout.
  struct Place {
    size_t tree = 0, node = 0;
    Layout layout;
  };

  void begin(Value value, const Layout &layout) {
    trees.emplace_back(mesh, options, elementBytesOf(value), price);
    places[value] = {trees.size() - 1, 0, layout.canonicalized()};
  }

  void visit(Operation &op) {
    if (auto reshard = dyn_cast<ReshardOp>(op))
      return convert(reshard);
    if (auto window = dyn_cast<WindowOp>(op)) {
      // Of a source the buffer is filled from slices that the rank reads.
      if (auto place = places.find(window.getInput()); place != places.end())
        trees[place->second.tree].window(place->second.node,
                                         window.getWindows().from(place->second.layout));
      else
        begin(window.getInput(), Layout::replicated(shapeOf(window.getInput())));
      return;
    }
    if (isa<CallingOpInterface>(op)) {
      for (OpResult result : op.getResults())
        if (auto layout =
                FlowEnd{FlowEnd::CallResult, &op, result.getResultNumber()}.layout())
          begin(result, layout.getLayout());
        else
          begin(result, Layout::replicated(shapeOf(result)));
    }
    if (auto manual = dyn_cast<ManualOp>(op))
      exchange(manual);
    auto shardable = dyn_cast<ShardingRuleOpInterface>(op);
    if (!shardable || op.getNumOperands() == 0)
      return;
    RuleRef facts = ruleOf(&op);
    auto strategy = strategyOf(&op, facts->rule);
    for (unsigned i = 0; strategy && i < op.getNumResults(); ++i)
      begin(op.getResult(i), partita::resultLayout(*facts->rule, *strategy, i));
  }

  void convert(ReshardOp op) {
    Layout to = op.getLayout().getLayout().canonicalized();
    auto found = places.find(op.getInput());
    if (found == places.end()) // a source: each rank reads its slices
      return begin(op.getResult(), to);
    Place place = found->second;
    place.node = trees[place.tree].convert(place.node, place.layout, to,
                                           static_cast<int64_t>(op.getEpoch()));
    place.layout = std::move(to);
    places[op.getResult()] = std::move(place);
  }

  /// A value that enters is converted like others, and of a source that is cut each rank
  /// reads its slices. What is inside is a tensor of its own.
  void exchange(ManualOp op) {
    Layout to = op.getTo().getLayout().canonicalized();
    if (auto pieces = op.getExchange()) {
      StepTree(mesh, options, elementBytesOf(op.getInput()), price).pieces(*pieces);
      return;
    }
    if (auto found = places.find(op.getInput()); op.getEnter() && found != places.end()) {
      const Place &place = found->second;
      trees[place.tree].convert(place.node, place.layout, to);
    } else if (!op.getEnter()) {
      StepTree steps(mesh, options, elementBytesOf(op.getInput()), price);
      steps.convert(0, op.getFrom().getLayout().canonicalized(),
                    op.getLeave() ? outerLayout(op) : to);
    }
  }

  FunctionOpInterface function;
  const Mesh &mesh;
  ReshardOptions options;
  Price price;
  std::vector<StepTree> trees;
  DenseMap<Value, Place> places;
};
} // namespace

Price dist::priceOfConversions(FunctionOpInterface function) {
  Price all = Pricer(function).run();
  for (Operation &op : function.front())
    if (auto call = dyn_cast<CallingOpInterface>(op))
      for (Operation *callee : call.getCallees()) {
        Price inner = priceOfConversions(cast<FunctionOpInterface>(callee));
        all.receivedBytes += inner.receivedBytes * call.getCallTrips();
        all.collectives += inner.collectives * call.getCallTrips();
        all.peakBytes = std::max(all.peakBytes, inner.peakBytes);
      }
  return all;
}
