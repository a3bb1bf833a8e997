//===- OpFacts.h - How an op can be computed --------------------*- C++ -*-===//
//
// Facts by which an op may share a kernel or an engine call with others. The op itself
// states them (`getKernelFacts`), the same for the whole op and for a rank's part.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_KERNELS_OPFACTS_H
#define PARTITA_KERNELS_OPFACTS_H

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace partita::kernels {

/// *Pointwise*: an element of the result from the elements at its place. *Row*: mixes or
/// reduces the elements of each row of operand 0. *Indexed*: reads elements at computed
/// places. *View*: the result is the buffer of operand 0, seen otherwise. *Engine*: a
/// call. *Attention*: softmax between two products, or its gradient: a kernel of its own.
/// *Other*: tasks of its own, as collectives, copies and fills are.
enum class OpKind : uint8_t { Other, Pointwise, Row, Indexed, View, Engine, Attention };

/// A pointwise function that engines may apply to what they have computed.
enum class Post : uint8_t {
  None,
  Relu,
  HardSwish,
  HardSigmoid,
  Clip,
  Add,
  Sub,
  Mul,
  // Functions of calls that requantize.
  Max,
  Min,
  Round,
  Cast
};

/// The op by what it does, where attentions, or places of elements, depend on that.
enum class OpRole : uint8_t {
  Other,
  // Elements of operand 0 at other places: views, and what copies put together.
  Reshape,
  Transpose, ///< numbers: the permutation
  Broadcast,
  Slice,  ///< numbers: starts, steps
  Join,   ///< numbers: the axis
  Pad,    ///< with a constant; numbers: low, high
  Window, ///< exchange of a window, which keeps the order of an image
  // Attention's.
  Contract, ///< numbers: loops of lhs, rhs, result: per dim those of it, and −1
  Softmax,
  AttentionGradient,
  Mul,
  Div,
  Add,
  Where,
  IsNaN,
  Cast
};

struct OpFacts {
  OpKind kind = OpKind::Other;
  Post post = Post::None;
  OpRole role = OpRole::Other;
  /// Pointwise: a few plain operations, no functions of real numbers.
  bool isCheap = false;
  /// Bit i: operand i is an image, which calls read in orders of their own (Images).
  uint8_t imageOperands = 0;
  /// Says that the result is an image in the order of the target.
  bool givesImage = false;
  std::vector<std::vector<int64_t>> numbers = {}; ///< of the role
  /// Engine: whether its call, of 8-bit integers, applies functions to their sums in i32,
  /// casts included.
  bool requantizes = false;
  /// Engine: whether its products are those of rows rounded to 8 bits, whatever type the
  /// operand has in memory.
  bool roundsRows = false;
  /// Parameters of the function: Relu has the slope of negative numbers, HardSigmoid its
  /// slope and its offset.
  double alpha = 0, beta = 0;
  /// Engine: whether the call applies functions to its result.
  bool takesPostOps = false;
  /// Row: whether the result has one element per row, and if so whether the reduced dims
  /// stay as dims of size 1.
  bool reducesRow = false, keepsDims = true;
  /// Row: whether the result is operand 0 with some elements changed. Its kernel is its
  /// own: it changes them where operand 0 lies, or a copy of it, and touches no others.
  bool mayChangeInPlace = false;
  /// Operands from this one on are read at places that the op computes.
  uint32_t firstByPlace = std::numeric_limits<uint32_t>::max();
  std::vector<int64_t> rowDims = {}; ///< Row: dims of operand 0, ascending
  /// Steps (Cost.h) at one point of the kernel.
  double steps = 1;

  bool readsByPlace(size_t operand) const { return operand >= firstByPlace; }
  /// Whether kernels compute it.
  bool isFusable() const {
    return kind == OpKind::Pointwise || kind == OpKind::Row || kind == OpKind::Indexed;
  }

  static OpFacts of(OpKind kind) {
    OpFacts facts;
    facts.kind = kind;
    facts.firstByPlace = kind == OpKind::Indexed ? 0 : facts.firstByPlace;
    return facts;
  }
  static OpFacts pointwise(double steps, Post post, double alpha = 0, double beta = 0) {
    OpFacts facts = of(OpKind::Pointwise);
    facts.steps = steps, facts.post = post, facts.alpha = alpha, facts.beta = beta;
    return facts;
  }
  static OpFacts engine(bool takesPostOps, bool requantizes = false,
                        bool roundsRows = false) {
    OpFacts facts = of(OpKind::Engine);
    facts.takesPostOps = takesPostOps, facts.requantizes = requantizes;
    facts.roundsRows = roundsRows;
    return facts;
  }
  /// An engine's op on images: convolutions, their gradients and pools.
  static OpFacts image(OpFacts facts, uint8_t operands, bool givesImage) {
    facts.imageOperands = operands, facts.givesImage = givesImage;
    return facts;
  }
  static OpFacts of(OpKind kind, OpRole role, std::vector<std::vector<int64_t>> numbers) {
    OpFacts facts = of(kind);
    facts.role = role, facts.numbers = std::move(numbers);
    return facts;
  }
  static OpFacts row(std::vector<int64_t> dims) {
    OpFacts facts = of(OpKind::Row);
    facts.rowDims = std::move(dims);
    return facts;
  }
};

} // namespace partita::kernels

#endif // PARTITA_KERNELS_OPFACTS_H
