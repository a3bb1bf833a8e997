//===- CommandLine.h - What all commands have in common ---------*- C++ -*-===//
//
// Exit status 0: everything was done and written; 1: an error; 2: the command line is
// wrong. Errors are one line on standard error that begins with "error: ".
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOOLS_COMMON_COMMANDLINE_H
#define PARTITA_TOOLS_COMMON_COMMANDLINE_H

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>
#include <unistd.h>

namespace partita {

inline constexpr int errorStatus = 1, usageStatus = 2;

inline int fail(const std::string &message, int status = errorStatus) {
  std::fflush(stdout);
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return status;
}

/// The status of a command that has written to standard output: an error where that went
/// nowhere, as on a full disk.
inline int finish(int status) {
  errno = 0;
  bool written = std::cout.flush().good();
  written &= std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written)
    return status;
  // The stream may have failed some time ago: the system says why again.
  if (errno == 0)
    (void)!::write(STDOUT_FILENO, "\n", 1);
  std::string reason = errno ? ": " + std::string(std::strerror(errno)) : "";
  return fail("cannot write to standard output" + reason, status ? status : errorStatus);
}

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

} // namespace partita

#endif // PARTITA_TOOLS_COMMON_COMMANDLINE_H
