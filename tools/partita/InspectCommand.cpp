//===- InspectCommand.cpp - partita inspect -------------------------------===//
#include "Commands.h"

#include "passes/Pipelines/Inspect.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

using namespace partita;

void partita::addInspectCommand(CLI::App &app, int &status) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App *command = app.add_subcommand(
      "inspect", "Show a model's inputs, operators, parameters and what is unsupported");
  command->footer("Examples:\n  partita inspect gpt2.onnx\n"
                  "  partita inspect det.onnx --shape x=1,3,640,640\n"
                  "  partita inspect bert.onnx --shape batch=1 --shape sequence=128");
  command->add_option("model", options->model, "The ONNX file")->required();
  addBindingOptions(*command, *options);
  command->callback([options, &status] {
    auto result = inspectModel(*options);
    if (!result) {
      std::fprintf(stderr, "error: %s\n", result.error().message.c_str());
      status = 1;
      return;
    }
    std::printf("%s", result->text.c_str());
    status = result->supported ? 0 : 1;
  });
}
