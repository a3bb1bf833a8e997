//===- Processes.cpp - What the system tells of processes -----------------===//
#include "Processes.h"

#include "MpiRun.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

using namespace partita;
using namespace partita::runtime;

/// Words of /proc/PID/stat from the state on, which is the third; none where the process
/// is gone, perhaps while the file is read.
static std::vector<std::string> statOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  size_t name = stat.rfind(") ");
  std::istringstream words(name == std::string::npos ? "" : stat.substr(name + 2));
  return {std::istream_iterator<std::string>(words), {}};
}

bool runtime::isAlive(pid_t pid) {
  const std::vector<std::string> stat = statOf(pid);
  return !stat.empty() && stat[0] != "Z" && stat[0] != "X";
}

std::optional<int> runtime::statusOfZombie(pid_t pid) {
  constexpr size_t status = 52 - 3; // the 52nd word of all
  const std::vector<std::string> stat = statOf(pid);
  if (stat.size() <= status || stat[0] != "Z")
    return std::nullopt;
  return std::atoi(stat[status].c_str());
}

bool runtime::isOfRun(pid_t pid, const std::string &page) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  const std::string entry = std::string(mpi::pageVariable) + "=" + page;
  for (std::string word; std::getline(file, word, '\0');)
    if (word == entry)
      return true;
  return false;
}
