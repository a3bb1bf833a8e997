//===- InspectCommand.cpp - partita inspect -------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "common/CommandOptions.h"
#include "passes/Pipelines/Inspect.h"

#include <cstdio>
#include <memory>

using namespace partita;

void partita::addInspectCommand(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand(
      "inspect", "Show a model's inputs, operators, parameters and what is unsupported");
  struct Options {
    InspectOptions inspect;
    CommandOptions set;
  };
  auto options = std::make_shared<Options>(InspectOptions(), CommandOptions(*command));
  InspectOptions &inspect = options->inspect;
  command->footer("Examples:\n  partita inspect gpt2.onnx\n"
                  "  partita inspect gpt2.onnx --weights '*.c_attn.*'\n"
                  "  partita inspect gpt2.onnx --nodes '*.h.0.*' --json\n"
                  "  partita inspect det.onnx --shape x=1,3,640,640\n"
                  "  partita inspect bert.onnx --shape batch=2 --shape sequence=32");
  command->add_option("model", inspect.model.file, "The ONNX file")->required();
  addInspect(options->set, inspect);
  CLI::Option *nodes = command->get_option("--nodes");
  CLI::Option *weights = command->get_option("--weights");
  for (CLI::Option *list : {nodes, weights})
    list->expected(0, 1)->type_name("GLOB");
  command->add_flag("--json", inspect.json, "Write a JSON document");
  command->callback([options, &inspect, nodes, weights, &status] {
    if (nodes->count() != 0 && inspect.nodes.empty())
      inspect.nodes = "*";
    if (weights->count() != 0 && inspect.weights.empty())
      inspect.weights = "*";
    const std::optional<Error> &error = options->set.error;
    auto result = error ? tl::unexpected(*error) : inspectModel(inspect);
    if (!result) {
      status = fail(result.error().message);
      return;
    }
    std::printf("%s", result->text.c_str());
    status = result->supported.value_or(true) ? 0 : 1;
  });
}
