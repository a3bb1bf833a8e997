//===- RunBundle.cpp - A bundle's ranks as threads of this process --------===//
#include "partita/Runtime/RunBundle.h"

#include "partita/Runtime/Fit.h"
#include "partita/Runtime/Session.h"

#include <chrono>

using namespace partita;
using namespace partita::runtime;

using States = std::map<std::string, HostTensor>;

static Expected<void> setStates(Session &session, const States &states) {
  for (size_t i = 0; i < session.states().size(); ++i) {
    const TensorInfo &info = session.states()[i];
    auto given = states.find(info.name);
    if (given == states.end())
      continue;
    if (given->second.type != info.type || given->second.shape != info.shape)
      return makeError("state '" + info.name + "' is given in another type or shape");
    if (auto ok = session.writeState(i, given->second.bytes.data()); !ok)
      return ok;
  }
  return {};
}

static Expected<void> getStates(Session &session, States &states) {
  for (size_t i = 0; i < session.states().size(); ++i) {
    const TensorInfo &info = session.states()[i];
    HostTensor &tensor = states[info.name] = HostTensor::zeros(info.type, info.shape);
    if (auto ok = session.readState(i, tensor.bytes.data()); !ok)
      return ok;
  }
  return {};
}

Expected<std::vector<HostTensor>>
runtime::runBundle(const std::string &folder,
                   const std::map<std::string, HostTensor> &inputs, States &states,
                   const BundleRun &how) {
  SessionOptions options;
  options.entry = how.entry;
  options.weights = how.weights;
  options.stop = how.stop;
  return runSession(folder, options, inputs, states, how.repeat, how.timed);
}

Expected<std::vector<HostTensor>>
runtime::runSession(const std::string &folder, const SessionOptions &options,
                    const std::map<std::string, HostTensor> &inputs, States &states,
                    int repeat, const std::function<void(double)> &timed) {
  auto session = Session::load(folder, options);
  if (!session)
    return tl::unexpected(session.error());
  std::vector<const std::byte *> from;
  for (const TensorInfo &info : (*session)->inputs()) {
    auto given = inputs.find(info.name);
    if (given == inputs.end())
      return makeError("input '" + info.name + "' is not given");
    from.push_back(given->second.bytes.data());
  }
  std::vector<HostTensor> outputs;
  for (const TensorInfo &info : (*session)->outputs())
    outputs.push_back(HostTensor::zeros(info.type, info.shape));
  std::vector<std::byte *> to;
  for (HostTensor &output : outputs)
    to.push_back(output.bytes.data());
  for (int i = 0; i < repeat; ++i) {
    if (auto ok = setStates(**session, states); !ok)
      return tl::unexpected(ok.error());
    auto begin = std::chrono::steady_clock::now();
    if (auto ok = (*session)->run(from, to); !ok)
      return tl::unexpected(ok.error());
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (timed)
      timed(took.count());
  }
  for (size_t k = 0; k < outputs.size(); ++k)
    shortenTo(outputs[k], (*session)->outputShapes()[k]);
  if (auto ok = getStates(**session, states); !ok)
    return tl::unexpected(ok.error());
  return outputs;
}
