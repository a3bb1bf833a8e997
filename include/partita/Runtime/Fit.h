//===- Fit.h - Which entry point a request is for ---------------*- C++ -*-===//
//
// A bundle of several entries has one program per set of input shapes. A request is for
// the entry whose inputs have its shapes; or, where the caller says so, for the smallest
// one into which it can be padded: shorter along symbolic dims of the model alone, with
// zeros behind, and the outputs cut to the same extents of these dims. Whether the model
// computes the same then is the caller's to know: a causal decoder does, a mean over the
// padded dim does not.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_FIT_H
#define PARTITA_RUNTIME_FIT_H

#include "partita/Runtime/Session.h"

#include <map>
#include <optional>
#include <string>

namespace partita::runtime {

/// What one entry takes and gives.
struct EntryInterface {
  BundleEntry info;
  std::vector<TensorInfo> inputs, outputs;
};
/// Of every entry of the bundle, from its task tables; nothing is started.
Expected<std::vector<EntryInterface>> entryInterfaces(const std::string &folder);

using Shapes = std::map<std::string, std::vector<int64_t>>; ///< by input
/// Extents of a request, by the model's symbolic dims; without those that are the
/// entry's.
using Extents = std::map<std::string, int64_t>;

/// The extents with which a request fits the entry; empty if its shapes are the entry's.
/// Nothing if it does not fit. Inputs that `given` lacks are not looked at.
std::optional<Extents> fit(const EntryInterface &entry, const Shapes &given);

struct Choice {
  size_t entry = 0;
  Extents extents;
};
/// The entry of exactly these shapes, or, with `pad`, the one with the fewest elements
/// that they fit into. An error lists what there is.
Expected<Choice> chooseEntry(const std::vector<EntryInterface> &entries,
                             const Shapes &given, bool pad);

/// Copies what two tensors have in common, whose shapes differ in extents alone; elements
/// of `width` bytes. `to` may be `from` if it is no longer along any dim.
void copyCommon(const std::byte *from, const std::vector<int64_t> &fromShape,
                std::byte *to, const std::vector<int64_t> &toShape, size_t width);

/// The shape cut to the extents of a request. `dims`: names of its dims, "" for others.
std::vector<int64_t> cutShape(const std::vector<int64_t> &shape,
                              const std::vector<std::string> &dims,
                              const Extents &extents);

/// A tensor of which only the first `shape` elements are there, which lie in front.
void shortenTo(HostTensor &tensor, const std::vector<int64_t> &shape);

/// The tensor with zeros behind, in the input's shape.
HostTensor padded(const HostTensor &tensor, const TensorInfo &info);
/// The tensor cut to the extents of a request. `dims`: names of its dims, "" for others.
HostTensor trimmed(const HostTensor &tensor, const std::vector<std::string> &dims,
                   const Extents &extents);

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_FIT_H
