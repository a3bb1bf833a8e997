//===- Group.h - Which ops share a kernel or an engine call -----*- C++ -*-===//
//
// Two passes go over the ops that no attention has:
//
// 1. Forward: behind each call that takes post-ops, the chain of pointwise ops, each the
//    only user of the one before, that the target applies.
// 2. Backward, users first: an op with a payload, a row op or an indexed op is computed
//
//    - in the kernel of its users, if it fits there and nobody else reads it;
//    - likewise, and *kept*: the kernel stores it for others, which all run later;
//    - again in each of the kernels of its users, if these are all;
//    - in a kernel of its own; a reduction beside another kernel that goes over the same
//      rows and reads the same large tensor, and kept there,
//
//    whatever takes least (Target.h). A value is kept only if the kernel holds no more
//    for it than it stores; in a step of training, only if it holds nothing for it.
//
//      %r = add %a, %b               kernel of %n: loads a, b; stores n, and r, which is
//      %n = layer_norm %r            kept: the last op reads it
//      %y = contract %n, %w
//      %z = add %y, %r
//
//    An op fits into a kernel whose points are its elements, or to whose points it
//    broadcasts; row ops into one with rows along the same dims.
//
// A kernel has one set of row dims: row ops over other dims start a kernel of their own.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_KERNELS_GROUP_H
#define PARTITA_KERNELS_GROUP_H

#include "partita/Base/Bundle/TaskParts.h"
#include "partita/Kernels/LocalProgram.h"
#include "partita/Kernels/Target.h"

#include <span>
#include <string_view>

namespace partita::kernels {

/// The ops of one kernel.
struct Group {
  int32_t root = -1;            ///< the last op
  std::vector<int64_t> domain;  ///< shape of the points
  std::vector<int64_t> rowDims; ///< ascending; empty without row ops
  /// Results of other ops than the root that the kernel computes and writes, as other
  /// kernels read them.
  std::vector<int32_t> kept = {};
};

/// A pointwise op behind an engine call.
struct PostStep {
  int32_t op = -1; ///< the last one
  task::PostOp post;
  int32_t operand = -1; ///< of binary ones, a value; −1 otherwise
  /// Earlier ops that the post-op stands for too.
  std::vector<int32_t> merged = {};

  /// Whether the post-op adds an operand.
  bool isSum() const { return post.kind == PARTITA_POST_BINARY_ADD; }
};

struct Grouping {
  std::vector<Group> groups;
  /// Per op the numbers of the groups that compute it.
  std::vector<std::vector<int32_t>> groupsOf;
  /// Per op the post-ops of its call.
  std::vector<std::vector<PostStep>> chains;
  /// Per op the one whose call computes it as a post-op, or −1.
  std::vector<int32_t> callOf;
  /// Roots of kernels that are apart from their users', and why: a sentence without
  /// subject.
  std::vector<std::pair<int32_t, std::string_view>> apart;

  /// The number of the group that the op is the root of, or −1.
  int32_t groupAt(int32_t op) const;
  bool isIn(int32_t op, int32_t group) const;
  /// Whether the op is computed in some other op's kernel or call.
  bool isAbsorbed(const LocalProgram &program, int32_t op) const;
  /// The op whose result its call computes: the last post-op, or the op itself.
  int32_t lastOfCall(int32_t op) const;
  /// The last op at which tasks are formed that compute this one; −1: attention's.
  int32_t formedAt(const LocalProgram &program, int32_t op) const;
};

/// Decides by the program and the target alone.
Grouping group(const LocalProgram &program, const Target &target);

} // namespace partita::kernels

#endif // PARTITA_KERNELS_GROUP_H
