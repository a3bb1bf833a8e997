//===- Main.cpp - partita: the command ------------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"

#include <algorithm>
#include <csignal>
#include <vector>

static constexpr char about[] =
    "Spreads an ONNX model over a mesh of devices and runs it.\n\n"
    "  partita inspect model.onnx\n"
    "  partita compile model.onnx -o bundle --mesh dp=2,tp=2\n"
    "  partita run bundle --inputs-dir test_data_set_0 --outputs-dir out\n";

/// `partita help` is `partita --help`, `partita help run` is `partita run --help`.
static std::vector<char *> withoutHelp(int argc, char **argv) {
  static char option[] = "--help";
  std::vector<char *> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    words.erase(words.begin() + 1);
    words.push_back(option);
  }
  words.push_back(nullptr);
  return words;
}

/// An empty word is a variable of the shell that was not set; it is no value.
static void refuseEmptyWords(CLI::App &command) {
  for (CLI::Option *option : command.get_options())
    if (option->get_items_expected_max() > 0)
      option->check([](const std::string &word) {
        return word.empty() ? "expected a value, the word is empty" : std::string();
      });
}

int main(int argc, char **argv) {
  // A limit of file sizes is an error of the write, with a sentence, and no silent end.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app(about, "partita");
  app.require_subcommand(1);
  app.set_version_flag("--version", "partita " PARTITA_VERSION);
  app.footer("partita help COMMAND shows the options of a command, with examples. A file "
             "name - is standard input.\nExit status: 0 done, 1 error, 2 wrong usage.");
  int status = 0;
  partita::addCompileCommand(app, status);
  partita::addPlanCommand(app, status);
  partita::addInspectCommand(app, status);
  partita::addVerifyCommand(app, status);
  partita::addReportCommand(app, status);
  partita::addCalibrateCommand(app, status);
  partita::addCompletionCommand(app, status);
  partita::addRunCommand(app, status);
  partita::addConvertCommand(app, status);
  partita::addDeployCommand(app, status);
  auto commands = app.get_subcommands({});
  for (CLI::App *command : commands)
    refuseEmptyWords(*command);
  if (argc > 2 && std::string_view(argv[1]) == "help" &&
      std::none_of(commands.begin(), commands.end(),
                   [&](const CLI::App *it) { return it->get_name() == argv[2]; }))
    return partita::fail("there is no command '" + std::string(argv[2]) +
                             "'; see partita --help",
                         partita::usageStatus);
  std::vector<char *> words = withoutHelp(argc, argv);
  auto done = partita::parse(app, static_cast<int>(words.size()) - 1, words.data());
  return done ? *done : partita::finish(status);
}
