//===- InspectCommand.cpp - partita inspect -------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "passes/Pipelines/Inspect.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

using namespace partita;

void partita::addInspectCommand(CLI::App &app, int &status) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App *command = app.add_subcommand(
      "inspect", "Show a model's inputs, operators, parameters and what is unsupported");
  command->footer("Examples:\n  partita inspect gpt2.onnx\n"
                  "  partita inspect gpt2.onnx --weights '*.c_attn.*'\n"
                  "  partita inspect gpt2.onnx --nodes '*.h.0.*' --json\n"
                  "  partita inspect det.onnx --shape x=1,3,640,640\n"
                  "  partita inspect bert.onnx --shape batch=2 --shape sequence=32");
  command->add_option("model", options->model.model, "The ONNX file")->required();
  addBindingOptions(*command, options->model);
  CLI::Option *nodes = command->add_option(
      "--nodes", options->nodes,
      "List the nodes whose name or module path matches this pattern (default: all), as "
      "hints see them: shapes, and the loops that can be split");
  CLI::Option *weights = command->add_option(
      "--weights", options->weights,
      "List the weights whose name or module path matches this pattern (default: all)");
  for (CLI::Option *list : {nodes, weights})
    list->expected(0, 1)->type_name("GLOB");
  command->add_flag("--json", options->json, "Write a JSON document");
  command->callback([options, nodes, weights, &status] {
    if (nodes->count() != 0 && options->nodes.empty())
      options->nodes = "*";
    if (weights->count() != 0 && options->weights.empty())
      options->weights = "*";
    auto result = inspectModel(*options);
    if (!result) {
      status = fail(result.error().message);
      return;
    }
    std::printf("%s", result->text.c_str());
    status = result->supported ? 0 : 1;
  });
}
