//===- RunBundle.cpp - A bundle's ranks as threads of this process --------===//
#include "partita/Runtime/RunBundle.h"

#include "partita/Runtime/Session.h"

#include <chrono>

using namespace partita;

Expected<std::vector<HostTensor>>
runtime::runBundle(const std::string &folder, const std::vector<HostTensor> &inputs,
                   int repeat, const std::function<void(double)> &timed) {
  auto session = runtime::Session::load(folder, {});
  if (!session)
    return tl::unexpected(session.error());
  std::vector<const std::byte *> from;
  for (const HostTensor &input : inputs)
    from.push_back(input.bytes.data());
  std::vector<HostTensor> outputs;
  for (const runtime::TensorInfo &info : (*session)->outputs())
    outputs.push_back(HostTensor::zeros(info.type, info.shape));
  std::vector<std::byte *> to;
  for (HostTensor &output : outputs)
    to.push_back(output.bytes.data());
  for (int i = 0; i < repeat; ++i) {
    auto begin = std::chrono::steady_clock::now();
    if (auto ok = (*session)->run(from, to); !ok)
      return tl::unexpected(ok.error());
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (timed)
      timed(took.count());
  }
  return outputs;
}
