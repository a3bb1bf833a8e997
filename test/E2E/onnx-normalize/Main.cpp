//===- Main.cpp - Loads ONNX models and writes them in canonical form -----===//
//
//   onnx-normalize IN.onnx OUT.onnx [--expand] [NAME=1,128]…
//
// --expand keeps no operator that ONNX defines by a function body.
// For tests only: what ONNX Runtime computes from OUT must be what it computes from IN.
// Without arguments it reads such lines from standard input and answers each with "ok"
// or the error, so that thousands of models need one process.
//
//===----------------------------------------------------------------------===//
#include "partita/Onnx/Load.h"
#include "partita/Onnx/Write.h"

#include <iostream>
#include <sstream>

using namespace partita;
using namespace partita::onnx_model;

static Expected<void> normalize(const std::vector<std::string> &arguments) {
  if (arguments.size() < 2)
    return makeError("expected IN.onnx OUT.onnx [NAME=1,128]...");
  LoadOptions options;
  options.keepLoops = false; // ONNX has no node for the ends of a kept body
  for (size_t i = 2; i < arguments.size(); ++i) {
    if (arguments[i] == "--expand") {
      options.kept = {"Range"}; // the body is a Loop
      continue;
    }
    auto binding = parseShapeBinding(arguments[i]);
    if (!binding)
      return tl::unexpected(binding.error());
    options.shapes.push_back(*binding);
  }
  auto model = loadModel(arguments[0], options);
  if (!model)
    return tl::unexpected(model.error());
  return writeModel(*model, arguments[1]);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    auto done = normalize({argv + 1, argv + argc});
    if (!done)
      std::cerr << "onnx-normalize: error: " << done.error().message << "\n";
    return done ? 0 : 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> arguments;
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, '\t');)
      arguments.push_back(field);
    auto done = normalize(arguments);
    std::cout << (done ? "ok" : done.error().message) << std::endl;
  }
}
