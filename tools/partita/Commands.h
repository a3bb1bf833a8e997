//===- Commands.h - Sub-commands of partita ---------------------*- C++ -*-===//
#ifndef PARTITA_TOOLS_PARTITA_COMMANDS_H
#define PARTITA_TOOLS_PARTITA_COMMANDS_H

namespace CLI {
class App;
} // namespace CLI

namespace partita {

/// Of --mesh.
void refuseBlankMesh(CLI::App &command);

/// Each adds a sub-command whose callback stores its exit status.
void addCalibrateCommand(CLI::App &app, int &status);
void addCompileCommand(CLI::App &app, int &status);
void addConvertCommand(CLI::App &app, int &status);
void addDeployCommand(CLI::App &app, int &status);
void addPlanCommand(CLI::App &app, int &status);
void addInspectCommand(CLI::App &app, int &status);
void addRunCommand(CLI::App &app, int &status);
void addVerifyCommand(CLI::App &app, int &status);
void addReportCommand(CLI::App &app, int &status);
void addCompletionCommand(CLI::App &app, int &status);

} // namespace partita

#endif // PARTITA_TOOLS_PARTITA_COMMANDS_H
