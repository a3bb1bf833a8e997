//===- WatchedTensors.cpp - A bundle on tensors in a watched process ------===//
//
// The child gets the inputs by being forked, and leaves outputs, states and seconds in a
// file without a name that both processes have open.
//
//===----------------------------------------------------------------------===//
#include "Internal.h"

#include "partita/Runtime/RunBundle.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

namespace {
/// Results of a run.
struct Left {
  std::vector<HostTensor> outputs;
  std::map<std::string, HostTensor> states;
  std::vector<double> seconds; ///< of each request
};

/// Both ways through one file, front to back. After a failure nothing more happens.
class Channel {
public:
  Channel() {
    if (int descriptor = ::memfd_create("partita-run", MFD_CLOEXEC); descriptor >= 0)
      file.reset(::fdopen(descriptor, "w+b"));
  }
  bool isOpen() const { return file != nullptr; }
  /// From now on by the other process, which shares the place in the file.
  bool flush() { return std::fflush(file.get()) == 0; }
  bool rewind() { return std::fseek(file.get(), 0, SEEK_SET) == 0; }

  template <typename T> bool write(const T *data, size_t count) {
    return std::fwrite(data, sizeof(T), count, file.get()) == count;
  }
  template <typename T> bool read(T *data, size_t count) {
    return std::fread(data, sizeof(T), count, file.get()) == count;
  }

private:
  struct Close {
    void operator()(FILE *stream) const { std::fclose(stream); }
  };
  std::unique_ptr<FILE, Close> file;
};
} // namespace

/// A count, then as many elements.
template <typename Sequence> static bool write(Channel &to, const Sequence &from) {
  uint64_t count = from.size();
  return to.write(&count, 1) && to.write(from.data(), from.size());
}

template <typename Sequence> static bool read(Channel &from, Sequence &to) {
  uint64_t count = 0;
  if (!from.read(&count, 1))
    return false;
  to.resize(count);
  return from.read(to.data(), to.size());
}

static bool write(Channel &to, const HostTensor &tensor) {
  return to.write(&tensor.type, 1) && write(to, tensor.shape) && write(to, tensor.bytes);
}

static bool read(Channel &from, HostTensor &tensor) {
  return from.read(&tensor.type, 1) && read(from, tensor.shape) &&
         read(from, tensor.bytes);
}

static bool write(Channel &to, const Left &left) {
  uint64_t counts[] = {left.outputs.size(), left.states.size()};
  bool ok = to.write(counts, 2) && write(to, left.seconds);
  for (const HostTensor &tensor : left.outputs)
    ok = ok && write(to, tensor);
  for (const auto &[name, tensor] : left.states)
    ok = ok && write(to, name) && write(to, tensor);
  return ok && to.flush();
}

static bool read(Channel &from, Left &left) {
  uint64_t counts[2] = {};
  bool ok = from.rewind() && from.read(counts, 2) && read(from, left.seconds);
  for (uint64_t k = 0; ok && k < counts[0]; ++k)
    ok = read(from, left.outputs.emplace_back());
  for (uint64_t k = 0; ok && k < counts[1]; ++k) {
    std::string name;
    ok = read(from, name) && read(from, left.states[name]);
  }
  return ok;
}

Expected<std::vector<HostTensor>> runtime::runBundleWatched(
    const std::string &folder, const std::map<std::string, HostTensor> &inputs,
    std::map<std::string, HostTensor> &states, const BundleRun &how) {
  auto bundle = readBundle(folder);
  if (!bundle)
    return tl::unexpected(bundle.error());
  RunOptions options;
  options.bundle = folder;
  options.timeout = how.timeout;
  options.entry = how.entry.empty() ? bundle->entries.front().name : how.entry;
  Channel channel;
  if (!channel.isOpen())
    return makeError(std::string("cannot share memory: ") + std::strerror(errno));
  auto ok = watch(options, [&](RankProgress *progress) -> Expected<RunEnd> {
    SessionOptions session;
    session.entry = options.entry;
    session.timeout = options.timeout;
    session.weights = how.weights;
    session.progress = progress;
    Left left{{}, states, {}};
    auto outputs = runSession(folder, session, inputs, left.states, how.repeat,
                              [&](double seconds) { left.seconds.push_back(seconds); });
    if (!outputs)
      return tl::unexpected(outputs.error());
    left.outputs = std::move(*outputs);
    if (!write(channel, left))
      return makeError(std::string("cannot share memory: ") + std::strerror(errno));
    return RunEnd();
  });
  if (!ok)
    return tl::unexpected(ok.error());
  if (ok->isLost)
    return makeError(ok->problem);
  Left left;
  if (!read(channel, left))
    return makeError("the process of the ranks left no results");
  for (double seconds : left.seconds)
    if (how.timed)
      how.timed(seconds);
  states = std::move(left.states);
  return std::move(left.outputs);
}
