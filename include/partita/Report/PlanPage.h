//===- PlanPage.h - A plan as one HTML page ---------------------*- C++ -*-===//
//
// One self-contained file: no script, no font, no picture from elsewhere; pictures are
// SVG. Plain facts go in, whoever collects them.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_REPORT_PLANPAGE_H
#define PARTITA_REPORT_PLANPAGE_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace partita::report {

struct Level {
  std::string name;
  int64_t size = 1;
  double bandwidth = 0;   ///< bytes/s per device
  double busySeconds = 0; ///< of the plan's communication
};

/// Ops of one node kind, strategy and place in the layers, equal ones once.
struct StrategyRow {
  std::string node, op, strategy;
  std::vector<std::string> axes; ///< that split it
  int64_t copies = 1;
};

struct Part {
  std::string name;
  double seconds = 0;
};

struct OtherPlan {
  std::string name;
  double seconds = 0;
  int64_t memory = 0;
  bool fits = true;
};

struct PlanPage {
  std::string model, device;
  std::vector<std::pair<std::string, int64_t>> axes; ///< of the mesh, major first
  std::vector<Level> levels;                         ///< from inside out
  double seconds = 0;
  std::string boundText;            ///< the bound, and what it speaks of
  std::vector<std::string> choices; ///< what else was chosen, a sentence each
  std::vector<Part> parts;          ///< of the seconds
  std::vector<int64_t> memory;      ///< bytes at each moment of the program
  std::optional<int64_t> memoryLimit;
  std::vector<std::string> memoryNotes; ///< the largest contributors
  std::vector<StrategyRow> strategies;
  std::vector<std::string> conversions; ///< those that take longest
  std::vector<OtherPlan> plans;         ///< ours first
  std::vector<std::pair<std::string, std::string>>
      meshes; ///< that were searched, what came out
};

/// The page, as UTF-8. Names come from models: they are escaped.
std::string htmlOf(const PlanPage &page);

} // namespace partita::report

#endif // PARTITA_REPORT_PLANPAGE_H
