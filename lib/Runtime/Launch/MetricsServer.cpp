//===- MetricsServer.cpp - A text that others may ask for -----------------===//
#include "MetricsServer.h"

#include "Descriptor.h"
#include "partita/Runtime/Launch.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

Expected<std::pair<std::string, std::string>>
runtime::parseAddress(const std::string &text) {
  size_t colon = text.rfind(':');
  std::string host =
      colon == std::string::npos ? std::string("127.0.0.1") : text.substr(0, colon);
  std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  uint16_t number = 0;
  auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), number);
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  bool isPort = failed == std::errc() && end == port.data() + port.size();
  if (!isPort || host.empty() ||
      ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found) != 0)
    return makeError("expected a port from 0 to 65535, or ADDRESS:PORT with a numeric "
                     "address, got '" +
                     text + "'");
  ::freeaddrinfo(found);
  return std::pair(host, port);
}

struct MetricsServer::State {
  FileDescriptor listener, stop;
  pthread_t thread = {};
  std::string where;
  std::mutex mutex;
  std::string text;

  void serve();
  void answer(int client);
};

/// Reads the head of a request; empty: it does not come, or has no end.
static std::string readHead(int client, int stop) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t most = 8192;
  std::string head;
  auto end = Clock::now() + std::chrono::seconds(1);
  while (head.find("\r\n\r\n") == std::string::npos) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd waits[] = {{client, POLLIN, 0}, {stop, POLLIN, 0}};
    if (left.count() <= 0 || head.size() > most ||
        ::poll(waits, 2, static_cast<int>(left.count())) <= 0 || waits[1].revents)
      return {};
    char part[1024];
    ssize_t got = ::recv(client, part, sizeof(part), 0);
    if (got <= 0)
      return {};
    head.append(part, static_cast<size_t>(got));
  }
  return head;
}

void MetricsServer::State::answer(int client) {
  std::string head = readHead(client, stop.get());
  if (head.empty())
    return;
  bool isGet = head.starts_with("GET "), isHead = head.starts_with("HEAD ");
  size_t begin = head.find(' ') + 1;
  std::string path = head.substr(begin, head.find_first_of(" ?\r", begin) - begin);
  std::string body, status = "200 OK";
  if (!isGet && !isHead)
    status = "405 Method Not Allowed", body = "only GET is answered\n";
  else if (path != "/metrics")
    status = "404 Not Found", body = "metrics are at /metrics\n";
  else {
    std::lock_guard guard(mutex);
    body = text;
  }
  std::string reply = "HTTP/1.1 " + status +
                      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
                      "\r\nContent-Length: " +
                      std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" +
                      (isHead ? std::string() : body);
  timeval patience{1, 0};
  ::setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  for (std::string_view left = reply; !left.empty();) {
    ssize_t sent = ::send(client, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent <= 0)
      return;
    left.remove_prefix(static_cast<size_t>(sent));
  }
}

void MetricsServer::State::serve() {
  for (;;) {
    pollfd waits[] = {{listener.get(), POLLIN, 0}, {stop.get(), POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR)
      return;
    if (waits[1].revents)
      return;
    if (!(waits[0].revents & POLLIN))
      continue;
    FileDescriptor client(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client.get() >= 0)
      answer(client.get());
    else // without descriptors, say, the client would be found again at once
      ::poll(&waits[1], 1, /*milliseconds=*/100);
  }
}

/// A socket that listens, and where.
static Expected<std::pair<FileDescriptor, std::string>>
listenAt(const std::string &address) {
  auto parsed = parseAddress(address);
  if (!parsed)
    return tl::unexpected(parsed.error());
  auto failed = [&](const char *what) {
    return makeError("--metrics " + address + ": " + what + ": " + std::strerror(errno));
  };
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, wanted.ai_socktype = SOCK_STREAM;
  if (int code =
          ::getaddrinfo(parsed->first.c_str(), parsed->second.c_str(), &wanted, &found))
    return makeError("--metrics " + address + ": " + ::gai_strerror(code));
  std::unique_ptr<addrinfo, void (*)(addrinfo *)> owner(found, ::freeaddrinfo);
  FileDescriptor socket(
      ::socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol));
  if (socket.get() < 0)
    return failed("cannot make a socket");
  // A run that begins behind another one finds connections that are not over yet.
  int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.get(), 16) != 0)
    return failed("cannot listen there");
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr *>(&own), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr *>(&own), length, host, sizeof(host), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return failed("cannot tell its port");
  std::string name = std::strchr(host, ':') ? "[" + std::string(host) + "]" : host;
  return std::pair(std::move(socket), name + ":" + port);
}

MetricsServer::MetricsServer(std::unique_ptr<State> state) : state(std::move(state)) {}

Expected<std::unique_ptr<MetricsServer>>
MetricsServer::start(const std::string &address) {
  auto state = std::make_unique<State>();
  auto socket = listenAt(address);
  if (!socket)
    return tl::unexpected(socket.error());
  state->listener = std::move(socket->first), state->where = std::move(socket->second);
  state->stop = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  auto main = [](void *given) -> void * {
    static_cast<State *>(given)->serve();
    return nullptr;
  };
  // Not by std::thread, which throws where the system has no more threads.
  int code = state->stop.get() < 0
                 ? errno
                 : ::pthread_create(&state->thread, nullptr, main, state.get());
  if (code != 0)
    return makeError("--metrics " + address +
                     ": cannot start a thread: " + std::strerror(code));
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(state)));
}

MetricsServer::~MetricsServer() {
  uint64_t one = 1;
  // An event counter that is below its limit takes one more.
  if (::write(state->stop.get(), &one, sizeof(one)) == sizeof(one))
    ::pthread_join(state->thread, nullptr);
}

std::string MetricsServer::address() const { return state->where; }

void MetricsServer::publish(std::string text) {
  std::lock_guard guard(state->mutex);
  state->text = std::move(text);
}
