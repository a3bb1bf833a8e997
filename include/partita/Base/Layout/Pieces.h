//===- Pieces.h - Exchanges whose pieces are named by rank ------*- C++ -*-===//
//
// Layouts say of every element of one tensor where it lives. What a program written per
// rank sends to its neighbours is no tensor: a block may go one rank further, a border to
// some ranks and a corner to others, and at the end of a row of ranks there is nobody. So
// an exchange of pieces is a list: of the tensor that rank `from` has, a box becomes a
// box of the tensor that rank `to` gets.
//
//   ranks      0      1      2        pieces   0 → 1   1 → 2
//   have      [a]    [b]    [c]
//   get       [0]    [a]    [b]
//
// All ranks have tensors of one shape, and get tensors of one shape. Elements that no
// piece names are zero.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_LAYOUT_PIECES_H
#define PARTITA_BASE_LAYOUT_PIECES_H

#include "partita/Base/Layout/Reshard.h"

namespace partita {

inline bool operator==(const ExchangeRun &a, const ExchangeRun &b) {
  return a.before == b.before && a.after == b.after && a.length == b.length;
}

/// A box, which is one run of elements in each dim.
struct Piece {
  int64_t from = 0, to = 0; ///< ranks, which may be the same one
  std::vector<ExchangeRun> runs;

  int64_t elements() const;
  bool operator==(const Piece &) const = default;
};

/// A box of elements that no piece fills: per dim its first element and its length.
struct EmptyBox {
  std::vector<int64_t> begin, length;
};

struct Pieces {
  std::vector<int64_t> before, after; ///< shapes of what every rank has, and gets
  /// Order: by receiver, sender, runs. Boxes of one receiver are disjoint.
  std::vector<Piece> list;

  /// Puts the list in its order, without boxes that have no elements.
  void sort();
  /// Everything that is said above, and one piece or more. An error names the ranks.
  Expected<void> verify(const Mesh &mesh) const;
  /// The axes along which a piece leads from one coordinate to another: every piece
  /// stays within a group of them.
  AxisList axes(const Mesh &mesh) const;
  /// Those, and the axes along which ranks get pieces of other boxes: ranks that have
  /// equal tensors may get different ones along them, and along no others.
  AxisList differingAxes(const Mesh &mesh) const;
  /// The same exchange back, for gradients: each element of `before` gets the sum of
  /// those that were made of it. Where pieces of one rank overlap they lie in several
  /// layers, which are behind each other along the first dim. There is one layer or
  /// more, and one dim or more.
  struct Back;
  Back back() const;
  bool operator==(const Pieces &) const = default;
};

struct Pieces::Back {
  Pieces pieces;
  int64_t layers = 1;
};

/// Blocks that `rank` takes from each sender, itself included; see exchangeBlocks.
std::vector<ExchangeBlock> pieceBlocks(const Pieces &pieces, int64_t rank);

/// The elements of what `rank` gets that no piece fills, as disjoint boxes.
std::vector<EmptyBox> emptyBoxes(const Pieces &pieces, int64_t rank);

/// Elements that a rank receives from others, the most over all ranks.
int64_t pieceElements(const Pieces &pieces);

/// Results of all virtual ranks; locals[r] is the operand of rank r.
std::vector<HostTensor> executePieces(const Mesh &mesh, const Pieces &pieces,
                                      const std::vector<HostTensor> &locals);

} // namespace partita

#endif // PARTITA_BASE_LAYOUT_PIECES_H
