//===- CommandLine.h - Command lines of all but partita-opt -----*- C++ -*-===//
//
// LLVM reads partita-opt's, with the same outcomes (Status.h).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOOLS_COMMON_COMMANDLINE_H
#define PARTITA_TOOLS_COMMON_COMMANDLINE_H

#include "common/Status.h"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace partita {

/// Parses the command line and runs the callbacks of commands. The exit status if that is
/// all there is to do: help, the version, or a wrong command line.
inline std::optional<int> parse(CLI::App &app, int argc, char **argv) {
  const std::string program = app.get_name();
  app.failure_message([&](const CLI::App *, const CLI::Error &failure) {
    // The parser sees a wrong word only as the lack of a command.
    std::string what = failure.what();
    bool wantsCommand = !app.get_subcommands({}).empty();
    if (wantsCommand && app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-')
      what = "there is no command '" + std::string(argv[1]) + "'";
    else if (wantsCommand && app.get_subcommands().empty() && argc > 1)
      what = "there is no option '" + std::string(argv[1]) + "' without a command";
    else if (wantsCommand && argc == 1)
      what = "a command is missing";
    return "error: " + what + "; see " + program + " --help\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? finish(0) : usageStatus;
  }
  return std::nullopt;
}

/// Adds the option of commands that read the external data of a bundle's model.
inline void addWeightsDir(CLI::App &command, std::string &folder) {
  command
      .add_option("--weights-dir", folder,
                  "Look here first for the model's external data (then in the bundle, "
                  "where it was as seen from the bundle, and where it was)")
      ->check(CLI::ExistingDirectory);
}

/// The option --no-check of commands that run a bundle.
inline void addNoCheck(CLI::App &command, bool &check) {
  command.add_flag_callback(
      "--no-check", [&check] { check = false; },
      "Do not compare the blocks of weight files that are read with their hashes");
}

} // namespace partita

#endif // PARTITA_TOOLS_COMMON_COMMANDLINE_H
