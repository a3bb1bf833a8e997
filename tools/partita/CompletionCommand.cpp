//===- CompletionCommand.cpp - partita completion -------------------------===//
//
// Scripts that complete commands, options and the words that options take, made from the
// command line's own description, so that they know every option there is.
//
//===----------------------------------------------------------------------===//
#include "Commands.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <sstream>

namespace {
struct OptionWords {
  std::vector<std::string> names;  ///< --mesh
  std::vector<std::string> values; ///< L0 L2 …, if only some are taken
  bool takesValue = false;
  std::string description;
};
struct CommandWords {
  std::string name, description;
  std::vector<OptionWords> options;
};
} // namespace

/// The words in "TEXT:{L0,L2,L3}".
static std::vector<std::string> membersOf(const std::string &typeName) {
  std::vector<std::string> words;
  size_t begin = typeName.find('{'), end = typeName.find('}');
  if (begin == std::string::npos || end == std::string::npos)
    return words;
  std::istringstream list(typeName.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(list, word, ',');)
    words.push_back(word);
  return words;
}

static std::vector<CommandWords> commandsOf(const CLI::App &app) {
  std::vector<CommandWords> commands;
  for (const CLI::App *command : app.get_subcommands({})) {
    CommandWords words{command->get_name(), command->get_description(), {}};
    for (const CLI::Option *option : command->get_options()) {
      OptionWords entry;
      for (const std::string &name : option->get_lnames())
        entry.names.push_back("--" + name);
      for (const std::string &name : option->get_snames())
        entry.names.push_back("-" + name);
      if (entry.names.empty())
        continue;
      entry.takesValue = option->get_items_expected_max() != 0;
      entry.values = membersOf(option->get_type_name());
      entry.description = option->get_description();
      words.options.push_back(std::move(entry));
    }
    commands.push_back(std::move(words));
  }
  return commands;
}

static std::string joined(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

static std::string namesOf(const std::vector<CommandWords> &commands) {
  std::string text;
  for (const CommandWords &command : commands)
    text += (text.empty() ? "" : " ") + command.name;
  return text;
}

static std::string bashScript(const std::vector<CommandWords> &commands) {
  std::string text = "_partita() {\n"
                     "  local word=\"${COMP_WORDS[COMP_CWORD]}\" words=''\n"
                     "  local before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
                     "  if [[ $COMP_CWORD -eq 1 ]]; then\n"
                     "    COMPREPLY=($(compgen -W '" +
                     namesOf(commands) +
                     " help --help --version' -- \"$word\"))\n"
                     "    return\n  fi\n"
                     "  case \"${COMP_WORDS[1]} $before\" in\n";
  for (const CommandWords &command : commands)
    for (const OptionWords &option : command.options)
      if (!option.values.empty())
        for (const std::string &name : option.names)
          text += "    '" + command.name + " " + name + "') COMPREPLY=($(compgen -W '" +
                  joined(option.values) + "' -- \"$word\")); return ;;\n";
  text += "  esac\n  case \"${COMP_WORDS[1]}\" in\n    help) words='" +
          namesOf(commands) + "' ;;\n";
  for (const CommandWords &command : commands) {
    std::string all;
    for (const OptionWords &option : command.options)
      all += (all.empty() ? "" : " ") + joined(option.names);
    text += "    " + command.name + ") words='" + all + "' ;;\n";
  }
  return text + "  esac\n"
                "  if [[ $word == -* || ${COMP_WORDS[1]} == help ]]; then\n"
                "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                "  else\n    COMPREPLY=($(compgen -f -- \"$word\"))\n  fi\n}\n"
                "complete -o filenames -F _partita partita\n";
}

/// Zsh runs bash's completion functions.
static std::string zshScript(const std::vector<CommandWords> &commands) {
  return "#compdef partita\nautoload -U +X bashcompinit && bashcompinit\n" +
         bashScript(commands);
}

/// For single quotes of fish: the first sentence of a description.
static std::string fishQuoted(std::string text) {
  text = text.substr(0, text.find_first_of(".;:("));
  std::string quoted = "'";
  for (char c : text)
    quoted += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + "'";
}

static std::string fishScript(const std::vector<CommandWords> &commands) {
  std::string text, all = namesOf(commands);
  for (const CommandWords &command : commands)
    text += "complete -c partita -n '__fish_use_subcommand' -f -a " + command.name +
            " -d " + fishQuoted(command.description) + "\n";
  for (const CommandWords &command : commands)
    for (const OptionWords &option : command.options) {
      text += "complete -c partita -n '__fish_seen_subcommand_from " + command.name + "'";
      for (const std::string &name : option.names)
        text +=
            name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takesValue)
        text += " -r";
      if (!option.values.empty())
        text += " -f -a '" + joined(option.values) + "'";
      text += " -d " + fishQuoted(option.description) + "\n";
    }
  return text;
}

void partita::addCompletionCommand(CLI::App &app, int &status) {
  auto shell = std::make_shared<std::string>();
  CLI::App *command = app.add_subcommand(
      "completion", "Print a script that completes commands and options");
  command->footer(
      "Examples:\n"
      "  partita completion bash > ~/.local/share/bash-completion/completions/"
      "partita\n"
      "  partita completion zsh > _partita\n"
      "  partita completion fish > partita.fish");
  command->add_option("shell", *shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([shell, &app, &status] {
    auto commands = commandsOf(app);
    std::string text = *shell == "bash"  ? bashScript(commands)
                       : *shell == "zsh" ? zshScript(commands)
                                         : fishScript(commands);
    std::printf("%s", text.c_str());
    status = 0;
  });
}
