//===- CheckpointFolder.cpp - Who may write generations -------------------===//
#include "partita/Runtime/CheckpointSession.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace partita;
using namespace partita::runtime;

Expected<std::string> runtime::agreeOnText(Session &session, std::string text) {
  constexpr size_t most = 2000;
  if (session.ranks().size() == static_cast<size_t>(session.numRanks()))
    return text; // one process
  text.resize(std::min(text.size(), most));
  // The lowest rank has the largest number.
  int64_t own = text.empty() ? 0 : session.numRanks() - session.rank();
  int64_t first[] = {own};
  if (auto ok = session.agree(first); !ok)
    return tl::unexpected(ok.error());
  if (first[0] == 0)
    return std::string();
  if (own != first[0])
    text.clear();
  int64_t size[] = {static_cast<int64_t>(text.size())};
  if (auto ok = session.agree(size); !ok)
    return tl::unexpected(ok.error());
  // The others have zeros.
  std::vector<int64_t> letters(static_cast<size_t>(size[0]));
  for (size_t i = 0; i < text.size(); ++i)
    letters[i] = static_cast<unsigned char>(text[i]);
  if (auto ok = session.agree(letters); !ok)
    return tl::unexpected(ok.error());
  std::string result;
  for (int64_t letter : letters)
    result += static_cast<char>(letter);
  return result;
}

CheckpointFolder::CheckpointFolder(CheckpointFolder &&other) noexcept
    : folder(std::move(other.folder)), incarnation(other.incarnation),
      lock(std::exchange(other.lock, -1)) {}

CheckpointFolder::~CheckpointFolder() {
  if (lock >= 0)
    ::close(lock);
}

/// A run that was killed, or that saves before it ends, gives it back soon. Where folders
/// cannot be locked, as on some network file systems, whoever starts runs sees to it.
Expected<void> CheckpointFolder::lockIt(std::chrono::milliseconds patience) {
  auto begin = std::chrono::steady_clock::now();
  lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0)
    return makeError("cannot open the folder '" + folder + "': " + std::strerror(errno));
  while (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return {};
    if (std::chrono::steady_clock::now() - begin > patience)
      return makeError("another run writes checkpoints into '" + folder + "'");
    ::usleep(20'000);
  }
  return {};
}

Expected<void> CheckpointFolder::check() const {
  struct stat locked, there;
  if (::stat(folder.c_str(), &there) != 0)
    return makeError("cannot open the folder '" + folder + "': " + std::strerror(errno));
  if (::fstat(lock, &locked) == 0 && locked.st_ino == there.st_ino &&
      locked.st_dev == there.st_dev)
    return {};
  return makeError("'" + folder + "' is another folder than when the run began");
}

/// Takes the folder for this start. Called by the root, which has the lock.
Expected<void> CheckpointFolder::take(uint64_t given) {
  incarnation = given != 0 ? given : nextIncarnation(folder);
  if (auto ok = takeFolder(folder, incarnation); !ok)
    return ok;
  removeAbandonedGenerations(folder);
  return {};
}

/// Every process looks for the file that the root has made. Network file systems may take
/// a moment to show it.
Expected<void> CheckpointFolder::checkShared(Session &session) const {
  constexpr auto patience = std::chrono::milliseconds(1500);
  const std::string mark = incarnationPath(folder, incarnation);
  int64_t isMade[] = {session.isRoot() && ::access(mark.c_str(), F_OK) == 0};
  if (auto ok = session.agree(isMade); !ok)
    return ok;
  std::string problem;
  const auto begin = std::chrono::steady_clock::now();
  while (isMade[0] != 0 && ::access(mark.c_str(), F_OK) != 0) {
    if (std::chrono::steady_clock::now() - begin > patience) {
      char host[256] = "";
      ::gethostname(host, sizeof(host) - 1);
      problem = "rank " + std::to_string(session.rank()) + " on '" + host + "': '" +
                folder + "' is another folder there than on the host of rank 0";
      break;
    }
    ::usleep(50'000);
  }
  auto agreed = agreeOnText(session, std::move(problem));
  if (!agreed)
    return tl::unexpected(agreed.error());
  return agreed->empty() ? Expected<void>() : makeError(*agreed);
}

Expected<CheckpointFolder> CheckpointFolder::open(Session &session, std::string path,
                                                  uint64_t incarnation,
                                                  std::chrono::milliseconds patience) {
  CheckpointFolder result(std::move(path));
  std::string problem;
  if (session.isRoot()) {
    if (::mkdir(result.folder.c_str(), 0777) != 0 && errno != EEXIST)
      problem =
          "cannot create the folder '" + result.folder + "': " + std::strerror(errno);
    else if (auto known = generationsOf(result.folder); !known)
      problem = known.error().message;
    else if (auto ok = result.lockIt(patience).and_then(
                 [&] { return result.take(incarnation); });
             !ok)
      problem = ok.error().message;
  }
  auto agreed = agreeOnText(session, std::move(problem));
  if (!agreed)
    return tl::unexpected(agreed.error());
  if (!agreed->empty())
    return makeError(*agreed);
  // Without a sign: the largest is the root's.
  int64_t number[] = {session.isRoot() ? static_cast<int64_t>(result.incarnation) : 0};
  if (auto ok = session.agree(number); !ok)
    return tl::unexpected(ok.error());
  result.incarnation = static_cast<uint64_t>(number[0]);
  if (auto ok = result.checkShared(session); !ok)
    return tl::unexpected(ok.error());
  return result;
}
