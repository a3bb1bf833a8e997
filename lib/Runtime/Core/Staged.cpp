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
Executor::Staged *Executor::stage(std::span<void *const> places,
                                  std::span<const uint64_t> bytes) {
  if (device.isHost())
    return nullptr;
  auto staged = std::make_unique<Staged>();
  staged->room.resize(places.size());
  staged->places.resize(places.size());
  for (size_t k = 0; k < places.size(); ++k) {
    bool inPlace = k % 2 == 0 && places[k] == places[k + 1]; // null or not
    staged->room[k].resize(places[k] && !inPlace ? bytes[k] : 0);
    staged->places[k] = places[k] ? staged->room[k].data() : nullptr;
    if (k % 2 == 1 && places[k] == places[k - 1])
      staged->places[k - 1] = staged->places[k];
  }
  stagings.push_back(std::move(staged));
  return stagings.back().get();
}

/// Targets too: a call may leave elements of them as they are.
bool Executor::toHost(Staged &staged, void *const *places) noexcept {
  bool ok = true;
  for (size_t k = 0; k < staged.room.size(); ++k)
    if (!staged.room[k].empty())
      ok &= device.copy(*work, staged.room[k].data(), places[k], staged.room[k].size());
  return ok;
}

bool Executor::fromHost(const Staged &staged, void *const *places) noexcept {
  bool ok = true;
  for (size_t k = 1; k < staged.room.size(); k += 2)
    if (!staged.room[k].empty())
      ok &= device.copy(*work, places[k], staged.room[k].data(), staged.room[k].size());
  return ok;
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
