//===- Ends.cpp - Outputs, and what goes from program to program ----------===//
#include "partita/Base/Files/TensorProto.h"
#include "passes/RankFiles/RankWriter.h"

using namespace partita;
using namespace partita::rank_files;

void rank_files::addOutput(RankWriter &w, const std::string &name, const Shape &shape,
                           DType type) {
  w.model.graph.outputs.push_back(name);
  w.model.graph.outputShapes.push_back(shape);
  w.model.graph.outputTypes.push_back(type);
}

void rank_files::writeOutput(RankWriter &w, const std::string &whole,
                             const std::string &name, const Shape &shape, DType type) {
  onnx_model::Node node;
  node.name = node.origin = w.reserve(name + "/Identity");
  node.opType = "Identity";
  node.inputs = {whole};
  node.outputs = {name};
  w.model.graph.nodes.push_back(std::move(node));
  addOutput(w, name, shape, type);
}

static bool mayCross(RankWriter &w) {
  if (w.dialect == RankDialect::Partita)
    return true;
  w.fail("(task.transfer) goes from stage to stage, for which dialect " +
         std::string(w.dialect == RankDialect::Ort ? "ort" : "tensorrt") +
         " has no node");
  return false;
}

std::string rank_files::writeSend(RankWriter &w, const std::string &whole,
                                  const Crossing &to) {
  w.begin(to.name);
  if (!mayCross(w))
    return "";
  std::string sent = w.node("Send", {whole}, {{"value", to.name}, {"ranks", to.ranks}},
                            onnx_model::ownDomain);
  addOutput(w, sent, to.shape, to.type);
  return sent;
}

std::string rank_files::writeReceive(RankWriter &w, const Crossing &from, Names after) {
  w.begin(from.name);
  if (!mayCross(w))
    return "";
  return w.node("Receive", std::move(after),
                {{"value", from.name},
                 {"shape", from.shape},
                 {"type", int64_t(onnxNumber(from.type))},
                 {"ranks", from.ranks}},
                onnx_model::ownDomain);
}
