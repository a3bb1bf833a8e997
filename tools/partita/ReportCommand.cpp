//===- ReportCommand.cpp - partita report ---------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "partita/Base/Bundle/Bundle.h"
#include "passes/Pipelines/Report.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

void partita::addReportCommand(CLI::App &app, int &status) {
  auto path = std::make_shared<std::string>();
  auto all = std::make_shared<bool>(false);
  CLI::App *command = app.add_subcommand(
      "report",
      "Print the plan of a bundle: layouts, strategies, communication, work, memory");
  command->footer("Examples:\n  partita report gpt2.bundle\n"
                  "  partita report gpt2.bundle/plan.json");
  command->add_option("plan", *path, "A bundle, or a plan.json")->required();
  command->add_flag("--all", *all,
                    "A line for each collective, not one for equal layers");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Write a JSON document");
  auto entry = std::make_shared<std::string>();
  command->add_option("--entry", *entry,
                      "Which entry point of the bundle (default: the first)");
  auto trace = std::make_shared<std::string>();
  command
      ->add_option(
          "--trace", *trace,
          "What `run --trace` wrote: of a training step of several stages beside the "
          "schedule, else what ranks wait for calls in flight")
      ->excludes("--json")
      ->option_text("FILE.json");
  auto least = std::make_shared<double>(0);
  command
      ->add_option("--slower-calls", *least,
                   "With --trace: what a request would take if each collective took so "
                   "many milliseconds at least")
      ->needs("--trace")
      ->check(CLI::Range(0.0, 1e6))
      ->check([](const std::string &text) -> std::string {
        return text.find_first_of("nN") == std::string::npos ? "" : "it is no number";
      })
      ->option_text("MS");
  command->callback([path, all, json, entry, trace, least, &status] {
    Expected<std::string> text =
        *json ? reportJson(*path, *entry) : reportText(*path, *entry, *all);
    if (text && !trace->empty())
      text = reportTrace(*path, *entry, *trace, 1e-3 * *least);
    if (text)
      std::printf("%s", text->c_str());
    status = text ? 0 : fail(text.error().message);
  });
}
