//===- Device.h - Where the tasks of a rank run -----------------*- C++ -*-===//
//
// What stands under the executor: memory, streams of work, and events between them. The
// executor gives every task that computes or copies to the device of its rank, and looks
// at the device's memory through it alone, so that another kind of device is another
// implementation of this and nothing else.
//
//   stream:   work that is done in the order in which it is given
//   event:    a place in the work of a stream, for which others wait
//   memory:   of one of the table's spaces; Space::Host is the host's, whatever the
//   device
//
// The device of a CPU has the host's memory, and has done what it is given when a call
// returns; its streams and events are nothing. Of other devices an address means nothing
// to the host, and what ranks send each other goes through memory of the host.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_DEVICE_H
#define PARTITA_RUNTIME_DEVICE_H

#include "partita/Abi/TaskTable.h"
#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Base/Error.h"
#include "partita/Runtime/Engine.h"

#include <memory>
#include <span>
#include <vector>

namespace partita::runtime {

class Stage;

/// Zero-filled and aligned to 64 bytes; given back with its last user. Null if it has no
/// bytes.
using Memory = std::shared_ptr<std::byte>;

/// Memory of the host. Pages that are not `isFilled` from one end to the other are small
/// ones: a huge page in memory for one weight would bring its neighbours' places.
Expected<Memory> hostMemory(uint64_t bytes, bool isFilled = true);

/// All local copies are rows: `outer` rows, of which `from` bytes are copied from the
/// source row at the target row of `to` bytes; what remains of the target row is filled
/// with a pattern of `width` bytes. Source rows are `skip` bytes apart, target rows
/// `targetSkip`, or where that is 0, as long as they are.
struct RowsWork {
  int64_t outer = 0, skip = 0, from = 0, to = 0;
  uint64_t bits = 0;
  int64_t width = 1;
  /// By the task's value: how far behind the operands' beginnings the rows begin.
  int64_t sourceShift = 0, targetShift = 0, targetSkip = 0;
  int parts = 1; ///< of the rows, at once
};

/// A kernel of a stage, as tasks call it.
struct KernelWork {
  void *code;    ///< Device::kernel
  int64_t units; ///< as partita_kernel_fn says
  int parts;     ///< calls at once, for which there is scratch
  bool checks;   ///< whether it may leave word in the status
};

/// A prepared call of an engine.
struct EngineWork {
  std::shared_ptr<const engine::Call> call;
  engine::Call::Frame *frame = nullptr;         ///< the rank's, for this call
  std::shared_ptr<engine::Call::Weight> weight; ///< where it is packed
  /// Per operand, and which of them is the result: for a device whose memory the engine
  /// cannot use as it is.
  std::vector<uint64_t> bytes = {};
  size_t result = 0;
};

class Device {
public:
  struct Stream {
    virtual ~Stream() = default;
    /// What kernels have left word of, once the work is done; whoever begins a request
    /// clears it.
    partita_status status{};
  };
  struct Event {
    virtual ~Event() = default;
  };

  virtual ~Device() = default;
  /// Whether its memory is the host's, and all work is done when its call returns.
  bool isHost() const { return sharesHost; }

  // At load. Errors say what the device has not.

  /// Memory of a space; of State and Weight too.
  virtual Expected<Memory> allocate(Space space, uint64_t bytes) = 0;
  virtual Expected<std::unique_ptr<Stream>> stream() = 0;
  virtual Expected<std::unique_ptr<Event>> event() = 0;
  /// A kernel of a stage by its number in the table: KernelWork::code.
  virtual Expected<void *> kernel(const Stage &stage, uint32_t index) = 0;

  // Work. Addresses are of the device or of Space::Host. Nothing is allocated. False if
  // the device reports a failure, of this work or of earlier work of the stream.

  virtual bool launch(Stream &stream, const KernelWork &work,
                      std::span<void *const> buffers,
                      std::span<const int64_t> scalars) noexcept = 0;
  virtual bool call(Stream &stream, const EngineWork &work,
                    std::span<void *const> operands) noexcept = 0;
  virtual bool rows(Stream &stream, const RowsWork &work, const void *source,
                    void *target) noexcept = 0;
  /// Behind the stream's work, to or from any memory of the host; done when it returns.
  virtual bool copy(Stream &stream, void *to, const void *from,
                    uint64_t bytes) noexcept = 0;

  // Order.

  /// The event comes when all work that the stream has been given is done.
  virtual bool record(Event &event, Stream &stream) noexcept = 0;
  /// Work that the stream is given from now on begins when the event has come.
  virtual bool await(Stream &stream, Event &event) noexcept = 0;
  /// The host waits for all work of the stream.
  virtual bool finish(Stream &stream) noexcept = 0;

protected:
  explicit Device(bool sharesHost) : sharesHost(sharesHost) {}

private:
  bool sharesHost;
};

/// The processor that this program runs on. Kernels and copies are divided among the
/// thread's team (Team.h).
Device &cpuDevice();

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_DEVICE_H
