//===- OneDnn.h - Engine calls of the CPU runtime ---------------*- C++ -*-===//
//
// MatMul, Conv, ConvTranspose and Pool tasks, prepared once and run many times. The
// compiler links the same library to ask how much scratch and packed-weight memory a
// call will need, so both sides create the same descriptors.
//
// oneDNN does f32 and, where the CPU has it, bf16; element types that it does not know
// (f64, f16 on most CPUs, integers) run plain loops with the same meaning.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_ONEDNN_H
#define PARTITA_RUNTIME_ONEDNN_H

#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Base/Error.h"

#include <memory>
#include <span>
#include <string>

namespace partita::onednn {

/// Sets the threads that oneDNN uses for calls made from *this* thread. Sizes and
/// descriptors depend on it: set it before create and before run.
void setThreads(int threads);

struct Sizes {
  uint64_t scratch = 0; ///< bytes of the scratch operand
  uint64_t packed = 0;  ///< bytes of the repacked weights; 0: used as they are
};

class Call {
public:
  /// Prepares the call for this host. `params` as in the task table.
  static Expected<std::unique_ptr<Call>> create(TaskKind kind, task::IntsView params);
  virtual ~Call() = default;

  Sizes sizes() const { return memory; }
  /// Names the packed form: calls with equal keys can share one packed copy of a
  /// weight. Empty if nothing is packed.
  const std::string &packedKey() const { return key; }
  /// Which operand is the weight, for kinds that have one.
  static size_t weightOperand(TaskKind kind);

  /// Repacks the weight: `raw` as the table says, `packed` of sizes().packed bytes.
  virtual Expected<void> pack(const void *raw, void *packed) { return {}; }
  /// Fixes the addresses of all operands (null where absent) and of the packed weight
  /// (null if sizes().packed is 0). All are 64-byte aligned.
  virtual Expected<void> bind(std::span<void *const> operands, void *packed) = 0;
  /// Runs ahead of the first request what would allocate there, on the thread that will
  /// run it, with its number of threads; what the operands hold changes. Twice for all
  /// calls of a thread: first without keeping memory, as some primitives generate code
  /// when they first run, out of a multitude of blocks; then keeping what every run
  /// takes. False if the engine reports a failure.
  virtual bool warmUp(bool keepsMemory) noexcept { return true; }
  /// Runs on the bound addresses; allocates nothing after warmUp. False if the engine
  /// reports a failure.
  virtual bool run() noexcept = 0;
  /// What runs, for reports: oneDNN's implementation name or "loops".
  virtual std::string implementation() const = 0;

protected:
  Sizes memory;
  std::string key;
};

/// The sizes of a call with `threads` threads, asked of a throw-away Call.
Expected<Sizes> querySizes(TaskKind kind, task::IntsView params, int threads);

} // namespace partita::onednn

#endif // PARTITA_RUNTIME_ONEDNN_H
