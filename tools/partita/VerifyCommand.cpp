//===- VerifyCommand.cpp - partita verify ---------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "common/CommandOptions.h"
#include "common/Interrupt.h"
#include "partita/Runtime/Launch.h"
#include "passes/Pipelines/Verify.h"

#include <cstdio>
#include <filesystem>
#include <memory>

using namespace partita;

void partita::addVerifyCommand(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand(
      "verify", "Check that a bundle, or a model partitioned for a mesh, equals the "
                "original: on virtual ranks, and for a bundle on real ones");
  struct Options {
    CommandOptions set;
    Request request = {};
    VerifyOptions verify = {};
    bool strict = false;
  };
  auto options = std::make_shared<Options>(CommandOptions(*command));
  command->footer("Examples:\n  partita verify gpt2.bundle\n  partita verify gpt2.onnx "
                  "--mesh dp=2,tp=2 --inputs-dir "
                  "test_data_set_0 --expect-dir test_data_set_0");
  command->add_option("model", options->request.model.file, "A bundle, or an ONNX file")
      ->required();
  addMesh(options->set, options->request);
  addModel(options->set, options->request);
  addCut(options->set, options->request.cut);
  refuseBlankMesh(*command);
  addVerify(options->set, options->verify, options->strict);
  addVerifyModel(options->set, options->verify);
  addVerifyBundle(options->set, options->verify);
  command->get_option("--expect-dir")->needs("--inputs-dir");
  command
      ->add_option("--f64-dir", options->verify.f64,
                   "Only evaluate the model with every float type as f64, and write "
                   "output_K.npy into this folder")
      ->needs("--inputs-dir");
  addWeightsDir(*command, options->verify.weights.folder);
  addNoCheck(*command, options->verify.weights.check);
  command->callback([options, command, &status] {
    const std::string &file = options->request.model.file;
    std::error_code unreadable;
    bool isBundle = std::filesystem::is_directory(file, unreadable);
    for (const char *option : {"--model", "--entry", "--no-check"})
      if (!isBundle && command->count(option) != 0) {
        status = fail(std::string(option) + " is for a bundle; '" + file +
                          "' is a model itself",
                      usageStatus);
        return;
      }
    for (const char *option :
         {"--mesh", "--mode", "--hints", "--plan", "--no-all-to-all", "--shape",
          "--const", "--train", "--compute", "--keep-f32", "--accuracy-level", "--steps",
          "--f64", "--stages", "--groups", "--schedule", "--micro-batches"})
      if (isBundle && command->count(option) != 0) {
        status = fail(std::string(option) + " is for a model; '" + file +
                          "' is a bundle, which has its own",
                      usageStatus);
        return;
      }
    RemovedOnInterrupt interrupt; // bundles of a sample
    options->verify.run = runtime::runBundleWatched;
    options->verify.progress = [](const std::string &line) {
      std::fprintf(stderr, "%s\n", line.c_str());
    };
    const std::optional<Error> &error = options->set.error;
    auto result = error      ? tl::unexpected(*error)
                  : isBundle ? verifyBundle(file, options->verify)
                             : verifyModel(options->request, options->verify);
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
