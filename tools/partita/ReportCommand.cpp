//===- ReportCommand.cpp - partita report ---------------------------------===//
#include "Commands.h"

#include "passes/Pipelines/Report.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

void partita::addReportCommand(CLI::App &app, int &status) {
  auto path = std::make_shared<std::string>();
  auto all = std::make_shared<bool>(false);
  CLI::App *command =
      app.add_subcommand("report", "Say in text what a bundle or plan.json decided");
  command->footer("Examples:\n  partita report gpt2.bundle\n"
                  "  partita report gpt2.bundle/plan.json");
  command->add_option("plan", *path, "A bundle, or a plan.json")->required();
  command->add_flag("--all", *all,
                    "A line for each collective, not one for equal layers");
  command->callback([path, all, &status] {
    auto text = reportText(*path, *all);
    if (text)
      std::printf("%s", text->c_str());
    else
      std::fprintf(stderr, "error: %s\n", text.error().message.c_str());
    status = text ? 0 : 1;
  });
}
