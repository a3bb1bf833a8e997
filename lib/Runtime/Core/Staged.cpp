//===- Staged.cpp - Devices with memory of their own ----------------------===//
//
// Ranks talk to each other through memory of the host: what a collective or transfer
// sends is copied there when it is started, what it received is copied back when it is
// over. Copies in flight go on a stream of their own.
//
//===----------------------------------------------------------------------===//
#include "ExecutorOp.h"

using namespace partita;
using namespace partita::runtime;

/// Room for a call of the transport; null on devices that need none.
Executor::Staged *Executor::stage(uint64_t source, uint64_t target, bool inPlace) {
  if (device.isHost())
    return nullptr;
  auto staged = std::make_unique<Staged>();
  staged->source.resize(inPlace ? 0 : source);
  staged->target.resize(target);
  staged->inPlace = inPlace;
  stagings.push_back(std::move(staged));
  return stagings.back().get();
}

/// The target too: a call may leave elements of it as they are.
bool Executor::toHost(Staged &staged, const void *source, void *target) noexcept {
  bool ok = true;
  if (source && !staged.inPlace)
    ok = device.copy(*work, staged.source.data(), source, staged.source.size());
  if (target)
    ok &= device.copy(*work, staged.target.data(), target, staged.target.size());
  return ok;
}

bool Executor::fromHost(const Staged &staged, void *target) noexcept {
  return device.copy(*work, target, staged.target.data(), staged.target.size());
}

/// A local copy that is only started.
Expected<void> Executor::prepareFlight(Op &op) {
  if (!copies) {
    auto stream = device.stream();
    if (!stream)
      return tl::unexpected(stream.error());
    copies = std::move(*stream);
  }
  auto ready = device.event(), done = device.event();
  if (!ready || !done)
    return tl::unexpected(ready ? done.error() : ready.error());
  op.work = FlightWork{std::get<RowsWork>(op.work), std::move(*ready), std::move(*done)};
  return {};
}

bool Executor::runFlight(Op &op) noexcept {
  if (auto *wait = std::get_if<AwaitWork>(&op.work))
    return device.await(*work, *wait->done);
  auto &flight = *std::get_if<FlightWork>(&op.work);
  return device.record(*flight.ready, *work) && device.await(*copies, *flight.ready) &&
         device.rows(*copies, flight.rows, op.addresses[0], op.addresses[1]) &&
         device.record(*flight.done, *copies);
}
