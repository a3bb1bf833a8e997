//===- StepLog.cpp - The file with a line per step ------------------------===//
#include "StepLog.h"

#include "partita/Base/Files/File.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

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

/// Bytes of the lines of a log up to a step.
static Expected<uint64_t> bytesUpTo(int64_t step, const std::string &path) {
  constexpr std::string_view head = "{\"step\":";
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  std::string_view left = *text;
  for (int64_t line = 1; !left.empty(); ++line) {
    size_t end = left.find('\n');
    if (end == std::string_view::npos)
      break; // a killed process has left it
    int64_t number = 0;
    const char *digits = left.data() + head.size();
    if (end <= head.size() || !left.starts_with(head) ||
        std::from_chars(digits, left.data() + end, number).ec != std::errc())
      return makeError("'" + path + "', line " + std::to_string(line) +
                       ": expected a line of a log, which begins with {\"step\": "
                       "and a number; the file is left as it is");
    if (number > step)
      break;
    left.remove_prefix(end + 1);
  }
  return text->size() - left.size();
}

Expected<void> StepLog::openBehind(const std::string &log, int64_t step) {
  path = log;
  if (path.empty())
    return {};
  if (::access(path.c_str(), F_OK) == 0) {
    auto bytes = bytesUpTo(step, path);
    if (!bytes)
      return tl::unexpected(bytes.error());
    if (::truncate(path.c_str(), static_cast<off_t>(*bytes)) != 0)
      return cannotWrite(errno);
  }
  return open(log, true);
}

/// Writes what is owed, or as much of it as there is room for.
bool StepLog::write() {
  while (!owed.empty()) {
    const ssize_t count = ::write(file.get(), owed.data(), owed.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return false;
    owed.erase(0, static_cast<size_t>(count));
  }
  return true;
}

Expected<void> StepLog::add(int64_t step, std::string_view line) {
  if (file.get() < 0)
    return {};
  owed += line;
  if (write()) {
    if (firstOwed != 0)
      (*waits)("'" + path + "' can be written again: no step is missing there");
    firstOwed = 0;
    return {};
  }
  const int problem = errno;
  if (!waits)
    return cannotWrite(problem);
  if (firstOwed == 0) {
    firstOwed = step;
    (*waits)("cannot write '" + path + "': " + std::strerror(problem) +
             "; lines from step " + std::to_string(step) + " on wait in memory");
  }
  return {};
}

Expected<void> StepLog::amendLast(const std::string &name,
                                  const std::string &value) const {
  if (file.get() < 0)
    return {};
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  const size_t begin = text->rfind('\n', text->size() < 2 ? 0 : text->size() - 2);
  const std::string_view line =
      std::string_view(*text).substr(begin == std::string::npos ? 0 : begin + 1);
  if (!line.ends_with("}\n") || line.find("\"" + name + "\":") != std::string::npos)
    return {};
  const std::string added = ",\"" + name + "\":" + value + "}\n";
  // Another descriptor: this one's writes are all at the end.
  FileDescriptor own(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const bool isWritten =
      own.get() >= 0 && ::pwrite(own.get(), added.data(), added.size(),
                                 static_cast<off_t>(text->size() - 2)) ==
                            static_cast<ssize_t>(added.size());
  return isWritten ? Expected<void>() : cannotWrite(errno);
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
                   "; lines from step " + std::to_string(firstOwed) + " on are lost");
}
