//===- HostLink.cpp - Lines between a launcher and agents on hosts --------===//
#include "HostLink.h"

#include "partita/Base/Files/File.h"
#include "partita/Base/Files/Hash.h"

#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <span>
#include <sys/socket.h>

using namespace partita;
using namespace partita::runtime;

LineSocket::LineSocket(FileDescriptor given) : socket(std::move(given)) {
  int on = 1;
  ::setsockopt(get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // A line that a full link has dropped is sent again soon, however often it was.
  ::setsockopt(get(), IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
}

void LineSocket::send(const std::string &line) {
  const std::string whole = line + "\n";
  if (isOpen())
    (void)!::send(get(), whole.data(), whole.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool LineSocket::read() {
  constexpr size_t most = 65536; // nobody has so much to say
  char part[4096];
  while (isOpen() && text.size() < most) {
    ssize_t got = ::recv(get(), part, sizeof(part), MSG_DONTWAIT);
    if (got > 0)
      text.append(part, static_cast<size_t>(got));
    else if (got < 0 && errno == EINTR)
      continue;
    else
      return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  return isOpen();
}

std::optional<std::string> LineSocket::take() {
  const size_t end = text.find('\n');
  if (end == std::string::npos)
    return std::nullopt;
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

int64_t runtime::wallClock() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

std::string runtime::bundleHash(const std::string &bundle) {
  auto text = readFile(bundle + "/bundle.json");
  return text ? hashOf(std::as_bytes(std::span(*text))).str() : "none";
}
