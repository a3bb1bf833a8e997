//===- Engine.h - Calls of libraries that compute ---------------*- C++ -*-===//
//
// MatMul, BlockMatMul, Conv, ConvTranspose, ConvBackwardFilter and Pool tasks are calls
// of an engine. A call is prepared once per distinct descriptor and then has no state:
// any number of threads run it, at any addresses, each with a frame of its own. It is
// prepared for the team of the thread that prepares it (Team.h) and must be run on one of
// that size. The compiler asks the same engine how much scratch and packed-weight memory
// a call will need, so both sides create the same descriptors.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_ENGINE_H
#define PARTITA_RUNTIME_ENGINE_H

#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Base/Error.h"

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

namespace partita::engine {

struct Sizes {
  uint64_t scratch = 0; ///< bytes of the scratch operand
  uint64_t packed = 0;  ///< bytes of the repacked weights; 0: used as they are
};

/// How an engine keeps a weight. Opaque; equal bytes are equal forms.
struct WeightForm {
  std::string stored; ///< as the table stores it, seen with the call's dims
  std::string packed; ///< as the engine reads it; empty: as stored
  auto operator<=>(const WeightForm &) const = default;
};

class Call {
public:
  virtual ~Call() = default;

  Sizes sizes() const { return memory; }
  /// Calls with equal forms can share one packed copy of a weight. Empty if none is
  /// packed.
  const WeightForm &form() const { return weightForm; }
  /// Which operand is the weight, for kinds that have one (hasWeight).
  static size_t weightOperand(TaskKind kind);

  /// Repacks the weight: `raw` as the table says, `packed` of sizes().packed bytes.
  virtual Expected<void> pack(const void *raw, void *packed) const { return {}; }

  /// A packed weight as calls of one form read it: an address, described once.
  struct Weight {
    virtual ~Weight() = default;
  };
  /// For calls with sizes().packed other than 0; `packed` must outlive it.
  virtual Expected<std::unique_ptr<Weight>> describe(void *packed) const {
    return nullptr;
  }

  /// What one thread needs to run the call: descriptions of its operands, whose addresses
  /// are set anew by every run.
  struct Frame {
    virtual ~Frame() = default;
  };
  virtual Expected<std::unique_ptr<Frame>> frame() const = 0;

  /// Runs at these addresses (null where absent, 64-byte aligned), with the weight where
  /// one is packed. No two runs at once with one frame. What the engine allocates for
  /// itself is its own affair; nothing else is allocated. False if the engine reports a
  /// failure.
  virtual bool run(Frame &frame, std::span<void *const> operands,
                   const Weight *weight) const noexcept = 0;
  /// What runs, for reports: the engine's name for it, or "loops".
  virtual std::string implementation() const = 0;

protected:
  Sizes memory;
  WeightForm weightForm;
};

/// A library that prepares calls. Has no state.
class Engine {
public:
  /// Prepares the call of an engine task for this host. A weight that may be packed takes
  /// the form that the engine likes best, or `form` where one is given and the weight is
  /// stored so: an error if the engine has nothing fast for it.
  virtual Expected<std::shared_ptr<const Call>>
  create(const task::Params &params, const WeightForm *form = nullptr) const = 0;

protected:
  ~Engine() = default;
};

/// The calls of a process, each prepared once, whoever asks.
class Calls {
public:
  explicit Calls(const Engine &engine) : engine(engine) {}
  /// `weight` names what the call's weight holds, among all that are asked for here. The
  /// first call that packs it fixes its form; later ones take that form, unless the
  /// engine has nothing fast for it.
  Expected<std::shared_ptr<const Call>> get(const task::Params &params,
                                            const std::string &weight);
  /// How many were prepared.
  size_t size() const;

private:
  using Key = std::pair<std::string, WeightForm>; ///< task::bytesOf
  Expected<std::shared_ptr<const Call>> find(const task::Params &params,
                                             const WeightForm *form);

  const Engine &engine;
  mutable std::mutex lock;
  std::map<Key, std::shared_ptr<const Call>> calls;
  std::map<std::pair<std::string, std::string>, WeightForm> forms; ///< by weight, stored
};

} // namespace partita::engine

#endif // PARTITA_RUNTIME_ENGINE_H
