//===- Incarnation.cpp - Which start of a run a folder belongs to ---------===//
//
// A folder has an empty file incarnation-NUMBER of the newest start that took it. A name
// is made in one step on every file system, those without locks among them, and needs no
// room on a full disk.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Files/Aside.h"
#include "partita/Base/Units.h"
#include "partita/Runtime/Checkpoint.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

static constexpr std::string_view prefix = "incarnation-";

std::string runtime::incarnationText(uint64_t number) {
  return formatted("%016llx", static_cast<unsigned long long>(number));
}

std::optional<uint64_t> runtime::parseIncarnation(std::string_view text) {
  uint64_t number = 0;
  auto [end, failed] =
      std::from_chars(text.data(), text.data() + text.size(), number, 16);
  bool isNumber = text.size() == 16 && failed == std::errc() &&
                  end == text.data() + text.size() && number <= INT64_MAX;
  return isNumber ? std::optional(number) : std::nullopt;
}

/// Numbers of all starts that the folder names.
static std::vector<uint64_t> incarnationsOf(const std::string &folder) {
  std::vector<uint64_t> numbers;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix))
      if (auto number = parseIncarnation(std::string_view(name).substr(prefix.size())))
        numbers.push_back(*number);
  }
  return numbers;
}

static uint64_t newestIncarnation(const std::string &folder) {
  uint64_t newest = 0;
  for (uint64_t number : incarnationsOf(folder))
    newest = std::max(newest, number);
  return newest;
}

uint64_t runtime::nextIncarnation(const std::string &folder) {
  const uint64_t count = (newestIncarnation(folder) >> 32) + 1;
  return (count & 0x7fffffff) << 32 | (Aside::draw() & 0xffffffff);
}

std::string runtime::incarnationPath(const std::string &folder, uint64_t number) {
  return folder + "/" + std::string(prefix) + incarnationText(number);
}

Expected<void> runtime::checkIncarnation(const std::string &folder, uint64_t number) {
  const uint64_t newest = newestIncarnation(folder);
  if (newest <= number)
    return {};
  return makeError("'" + folder + "' belongs to incarnation " + incarnationText(newest) +
                   " of the run; this one, " + incarnationText(number) +
                   ", was given up");
}

Expected<void> runtime::takeFolder(const std::string &folder, uint64_t number) {
  const std::string own = incarnationPath(folder, number);
  int file = ::open(own.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0 && errno != EROFS && errno != EACCES && errno != ENOSPC && errno != EDQUOT)
    return makeError("cannot write '" + own + "': " + std::strerror(errno));
  if (file >= 0)
    ::close(file);
  if (auto ok = checkIncarnation(folder, number); !ok) {
    ::unlink(own.c_str());
    return ok;
  }
  for (uint64_t older : incarnationsOf(folder))
    if (older < number)
      ::unlink(incarnationPath(folder, older).c_str());
  return {};
}
