//===- RecordReader.h - Lists of a table that may be damaged ----*- C++ -*-===//
//
// FlatBuffers' verifier shows that every offset leads to a whole record. Records may lie
// anywhere and be referred to by many, so a small blob can describe a huge table; every
// list is therefore charged to a budget of a few times the blob's size.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_BASE_BUNDLE_RECORDREADER_H
#define PARTITA_LIB_BASE_BUNDLE_RECORDREADER_H

#include "partita/Base/Bundle/TaskTable.h"

#include <algorithm>

namespace partita {

inline tl::unexpected<Error> damaged(const std::string &what) {
  return makeError("the task table is damaged: " + what);
}

inline std::string_view textOf(const flatbuffers::String *text) {
  return text ? std::string_view(text->c_str(), text->size()) : std::string_view();
}

/// The entries of a vector that may be absent.
template <typename T>
std::vector<typename flatbuffers::Vector<T>::return_type>
entriesOf(const flatbuffers::Vector<T> *list) {
  std::vector<typename flatbuffers::Vector<T>::return_type> out;
  for (uint32_t i = 0; list && i < list->size(); ++i)
    out.push_back(list->Get(i));
  return out;
}

inline AxisList axesOf(const flatbuffers::Vector<const fb::Axis *> *list) {
  AxisList axes;
  for (const fb::Axis *axis : entriesOf(list))
    axes.push_back(flatbuffers::UnPack(*axis));
  return axes;
}

class RecordReader {
protected:
  explicit RecordReader(uint64_t blobBytes) : budget(4 * blobBytes) {}

  /// False once the lists taken together are larger than the blob.
  template <typename T> bool charge(const flatbuffers::Vector<T> *list) {
    if (!isAligned(list))
      return false;
    constexpr uint64_t each = flatbuffers::IndirectHelper<T>::element_stride;
    uint64_t bytes = list ? list->size() * each : 0;
    bool fits = bytes <= budget;
    budget -= std::min(bytes, budget);
    return fits;
  }
  bool charge(const flatbuffers::Vector<const fb::Axis *> *list) {
    bool fits = isAligned(list) && (!list || list->size() <= 64);
    budget -= std::min<uint64_t>(budget, list ? list->size() * sizeof(fb::Axis) : 0);
    return fits && budget != 0;
  }
  static tl::unexpected<Error> tooMuch(const std::string &where) {
    return damaged(where + ": its lists are larger than the table, or out of place");
  }
  /// The verifier looks at where a vector's length lies, not at its elements.
  template <typename T> static bool isAligned(const flatbuffers::Vector<T> *list) {
    constexpr size_t alignment = alignof(std::remove_pointer_t<T>);
    return !list || list->size() == 0 ||
           reinterpret_cast<uintptr_t>(list->Data()) % alignment == 0;
  }

  /// The axes of a mesh.
  static Expected<Mesh>
  readMesh(const flatbuffers::Vector<flatbuffers::Offset<fb::MeshAxis>> *axes) {
    std::vector<Mesh::Axis> list;
    for (const fb::MeshAxis *a : entriesOf(axes)) {
      if (list.size() >= 64 || a->size() < 1 || a->size() > INT32_MAX)
        return damaged("axis " + std::to_string(list.size()));
      list.push_back({std::string(textOf(a->name())), a->size()});
    }
    Expected<Mesh> mesh = Mesh::create(std::move(list));
    if (!mesh)
      return damaged(mesh.error().message);
    return mesh;
  }

  /// What verify takes for granted: few enough parts, kinds that there are.
  bool read(const fb::Layout &l, Layout &layout) {
    if (!charge(l.dims()) || !charge(l.partial()))
      return false;
    for (const fb::Dim *d : entriesOf(l.dims())) {
      DimLayout &dim = layout.dims.emplace_back();
      if (!charge(d->factors()))
        return false;
      for (const fb::Factor *f : entriesOf(d->factors())) {
        if (!charge(f->axes()) || !charge(f->blocks()))
          return false;
        dim.factors.push_back(
            {f->size(), f->padded(), axesOf(f->axes()), entriesOf(f->blocks())});
      }
    }
    for (const fb::Partial *p : entriesOf(l.partial())) {
      if (p->kind() >= PARTITA_NUM_REDUCES || !charge(p->axes()))
        return false;
      layout.partial.push_back({static_cast<ReduceKind>(p->kind()), axesOf(p->axes())});
    }
    return true;
  }

  uint64_t budget; ///< bytes of lists that may still come: sharing is for names only
};

} // namespace partita

#endif // PARTITA_LIB_BASE_BUNDLE_RECORDREADER_H
