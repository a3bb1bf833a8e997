//===- VerifyCommand.cpp - partita verify ---------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "partita/Runtime/Launch.h"
#include "passes/Pipelines/Verify.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>

using namespace partita;

void partita::addVerifyCommand(CLI::App &app, int &status) {
  struct Options {
    CompileOptions compile;
    VerifyOptions verify;
    bool strict = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App *command = app.add_subcommand(
      "verify", "Check that a bundle, or a model partitioned for a mesh, equals the "
                "original: on virtual ranks, and for a bundle on real ones");
  command->footer("Examples:\n  partita verify gpt2.bundle\n  partita verify gpt2.onnx "
                  "--mesh dp=2,tp=2 --inputs-dir "
                  "test_data_set_0 --expect-dir test_data_set_0");
  command->add_option("model", options->compile.model, "A bundle, or an ONNX file")
      ->required();
  addModelOptions(*command, options->compile);
  CLI::Option *inputs =
      command->add_option("--inputs-dir", options->verify.inputs,
                          "Folder with input_K.pb (default: random inputs: indices over "
                          "their whole range, masks of 0 and 1)");
  command
      ->add_option("--expect-dir", options->verify.expected,
                   "Folder with output_K.pb that the model must give for these inputs")
      ->needs(inputs);
  command
      ->add_option("--f64-dir", options->verify.f64,
                   "Only evaluate the model with every float type as f64, and write "
                   "output_K.npy into this folder")
      ->needs(inputs);
  command
      ->add_option("--steps", options->verify.steps,
                   "Requests behind one another, each on the states that the one "
                   "before left")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_flag("--f64", options->verify.wide,
                    "Compare with every float type as f64: what differs then is no "
                    "rounding of narrower types");
  command->add_flag("--strict", options->strict,
                    "Exit with status 1 where an output had no elements to compare");
  command->add_option("--model", options->verify.model,
                      "The model of the bundle, if it has moved");
  addWeightsDir(*command, options->verify.weights.folder);
  addNoCheck(*command, options->verify.weights.check);
  command->add_option("--entry", options->verify.entry,
                      "Which entry point of the bundle (default: the first)");
  command->add_option("--rtol", options->verify.rtol, "Relative tolerance")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--atol", options->verify.atol, "Absolute tolerance")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->callback([options, command, &status] {
    std::error_code unreadable;
    bool isBundle = std::filesystem::is_directory(options->compile.model, unreadable);
    for (const char *option : {"--model", "--entry", "--no-check"})
      if (!isBundle && command->count(option) != 0) {
        status = fail(std::string(option) + " is for a bundle; '" +
                          options->compile.model + "' is a model itself",
                      usageStatus);
        return;
      }
    for (const char *option : {"--mesh", "--mode", "--hints", "--plan", "--no-all-to-all",
                               "--shape", "--const", "--train", "--steps", "--f64"})
      if (isBundle && command->count(option) != 0) {
        status = fail(std::string(option) + " is for a model; '" +
                          options->compile.model + "' is a bundle, which has its own",
                      usageStatus);
        return;
      }
    options->verify.run = runtime::runBundleWatched;
    auto result = isBundle ? verifyBundle(options->compile.model, options->verify)
                           : verifyModel(options->compile, options->verify);
    if (!result) {
      status = fail(result.error().message);
      return;
    }
    for (const std::string &line : result->lines)
      std::printf("%s\n", line.c_str());
    if (options->verify.f64.empty())
      std::printf("%s\n", result->verdict().c_str());
    if (options->strict && !result->unchecked.empty())
      status = errorStatus;
  });
}
