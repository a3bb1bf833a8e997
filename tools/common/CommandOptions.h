//===- CommandOptions.h - Options on the command line -----------*- C++ -*-===//
#ifndef PARTITA_TOOLS_COMMON_COMMANDOPTIONS_H
#define PARTITA_TOOLS_COMMON_COMMANDOPTIONS_H

#include "common/Options.h"

#include <CLI/CLI.hpp>

namespace partita {

/// A Set (Options.h), which must outlive the parsing of the command line. Texts are read
/// in the order in which options were added.
class CommandOptions {
public:
  explicit CommandOptions(CLI::App &command) : command(command) {}

  template <typename Read>
  CLI::Option *text(const char *name, Read read, const char *help) {
    return command.add_option_function<std::string>(
        dashed(name), [this, read](const std::string &text) { keep(read(text)); }, help);
  }
  template <typename Read>
  void texts(const char *name, const char *, Read read, const char *help) {
    command.add_option_function<std::vector<std::string>>(
        dashed(name),
        [this, read](const std::vector<std::string> &texts) {
          for (const std::string &text : texts)
            keep(read(text));
        },
        help);
  }
  template <typename Read> void repeated(const char *name, Read read, const char *help) {
    texts(name, name, read, help);
    command.get_option(dashed(name))->allow_extra_args(false);
  }
  void flag(const char *name, bool &into, const char *help) {
    const bool is = !std::string_view(name).starts_with("no-");
    command.add_flag_callback(dashed(name), [&into, is] { into = is; }, help);
  }
  template <typename Read>
  void word(const char *name, const std::vector<std::string> &words, Read read,
            const char *help) {
    text(name, read, help)->check(CLI::IsMember(words))->default_str(words.front());
  }
  template <typename T>
  void range(const char *name, T &into, std::type_identity_t<T> low,
             std::type_identity_t<T> high, const char *help) {
    auto *option =
        command.add_option(dashed(name), into, help)->check(CLI::Range(low, high));
    if (low <= into && into <= high)
      option->capture_default_str();
  }

  /// A number that is not there unless it is given.
  template <typename T>
  void range(const char *name, std::optional<T> &into, std::type_identity_t<T> low,
             std::type_identity_t<T> high, const char *help) {
    command.add_option(dashed(name), into, help)->check(CLI::Range(low, high));
  }

  std::optional<Error> error; ///< of the first text that cannot be read

private:
  /// An output has a letter, too.
  static std::string dashed(const std::string &name) {
    return (name == "output" ? "-o,--" : "--") + name;
  }
  void keep(const Expected<void> &read) {
    if (!read && !error)
      error = read.error();
  }

  CLI::App &command;
};

} // namespace partita

#endif // PARTITA_TOOLS_COMMON_COMMANDOPTIONS_H
