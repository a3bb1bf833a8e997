//===- StepLog.cpp - The file with a line per step ------------------------===//
#include "StepLog.h"

#include "partita/Base/Files/File.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <unistd.h>
#include <utility>

using namespace partita;
using namespace partita::runtime;

tl::unexpected<Error> StepLog::cannotWrite(int problem) const {
  return makeError("cannot write '" + path + "': " + std::strerror(problem));
}

Expected<void> StepLog::open(const std::string &log, bool append) {
  path = log;
  if (path.empty())
    return {};
  const int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC);
  file = FileDescriptor(::open(path.c_str(), how, 0666));
  return file.get() >= 0 ? Expected<void>() : cannotWrite(errno);
}

static constexpr std::string_view lineHead = "{\"step\":";

/// Reads the step that a line is of.
static std::optional<int64_t> stepOfLine(std::string_view line) {
  int64_t number = 0;
  if (!line.starts_with(lineHead))
    return std::nullopt;
  line.remove_prefix(lineHead.size());
  const bool isNumber =
      std::from_chars(line.data(), line.data() + line.size(), number).ec == std::errc();
  return isNumber ? std::optional(number) : std::nullopt;
}

namespace {
/// Lines of a log that stay.
struct Kept {
  uint64_t bytes = 0;
  int64_t lines = 0, last = 0; ///< last: the step of the last one
};
} // namespace

/// Finds the lines of a log up to a step.
static Expected<Kept> linesUpTo(int64_t step, const std::string &path) {
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  std::string_view left = *text;
  Kept kept;
  for (; !left.empty(); ++kept.lines) {
    size_t end = left.find('\n');
    if (end == std::string_view::npos)
      break; // a killed process has left it
    auto number = stepOfLine(left.substr(0, end));
    if (!number)
      return makeError("'" + path + "', line " + std::to_string(kept.lines + 1) +
                       ": expected a line of a log, which begins with {\"step\": "
                       "and a number; the file is left as it is");
    if (*number > step)
      break;
    kept.last = *number;
    left.remove_prefix(end + 1);
  }
  kept.bytes = text->size() - left.size();
  return kept;
}

Expected<void> StepLog::openBehind(const std::string &log, int64_t step,
                                   const Print &print) {
  path = log;
  if (path.empty())
    return {};
  if (::access(path.c_str(), F_OK) == 0) {
    auto kept = linesUpTo(step, path);
    if (!kept)
      return tl::unexpected(kept.error());
    if (::truncate(path.c_str(), static_cast<off_t>(kept->bytes)) != 0)
      return cannotWrite(errno);
    // A disk that was full has left them out.
    if (kept->lines > 0 && kept->last < step)
      print("'" + path + "' lacks lines of steps " + std::to_string(kept->last + 1) +
            " to " + std::to_string(step));
  }
  return open(log, true);
}

/// Writes what is owed, or as much of it as there is room for.
bool StepLog::write() {
  while (!owed.empty()) {
    std::string &text = owed.front().text;
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return false;
    text.erase(0, static_cast<size_t>(count));
    if (text.empty())
      owed.pop_front();
  }
  return true;
}

Expected<void> StepLog::add(int64_t step, std::string_view line) {
  if (file.get() < 0)
    return {};
  owed.push_back({step, std::string(line)});
  if (write()) {
    if (std::exchange(isTold, false))
      (*waits)("'" + path + "' can be written again, and has all lines that waited");
    return {};
  }
  const int problem = errno;
  if (!waits)
    return cannotWrite(problem);
  if (!std::exchange(isTold, true))
    (*waits)("cannot write '" + path + "': " + std::strerror(problem) +
             "; lines from step " + std::to_string(owed.front().step) +
             " on wait in memory");
  return {};
}

/// Puts bytes at the end of a file in one write, in the place of `old`; false: there is
/// no room, and the end is the old one.
static bool replaceEnd(int file, off_t at, const std::string &bytes,
                       const std::string &old) {
  const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), at);
  if (count == static_cast<ssize_t>(bytes.size()))
    return true;
  const int problem = count < 0 ? errno : ENOSPC;
  if (count > 0 && ::pwrite(file, old.data(), old.size(), at) > 0)
    (void)!::ftruncate(file, at + static_cast<off_t>(old.size()));
  errno = problem;
  return false;
}

Expected<void> StepLog::amendLast(int64_t step, const std::string &name,
                                  const std::string &value) const {
  if (file.get() < 0)
    return {};
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  const std::string end = "}\n";
  const size_t begin = text->rfind('\n', text->size() < 2 ? 0 : text->size() - 2);
  const std::string_view line =
      std::string_view(*text).substr(begin == std::string::npos ? 0 : begin + 1);
  if (stepOfLine(line) != step || !line.ends_with(end) ||
      line.find("\"" + name + "\":") != std::string::npos)
    return {};
  // Another descriptor: this one's writes are all at the end.
  FileDescriptor own(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const auto at = static_cast<off_t>(text->size() - end.size());
  if (own.get() >= 0 &&
      replaceEnd(own.get(), at, ",\"" + name + "\":" + value + end, end))
    return {};
  const int problem = errno;
  if (!waits)
    return cannotWrite(problem);
  (*waits)("cannot write '" + path + "': " + std::strerror(problem) + "; " + name +
           " of step " + std::to_string(step) + " is missing there");
  return {};
}

Expected<void> StepLog::close() {
  if (file.get() < 0)
    return {};
  const bool isWritten = write();
  const int problem = errno;
  file.close();
  if (isWritten)
    return {};
  return makeError("cannot write '" + path + "': " + std::strerror(problem) +
                   "; lines from step " + std::to_string(owed.front().step) +
                   " on are lost");
}
