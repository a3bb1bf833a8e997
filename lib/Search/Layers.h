//===- Layers.h - Layers that are copies of each other ----------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_LAYERS_H
#define PARTITA_LIB_SEARCH_LAYERS_H

#include "partita/Search/Model.h"

namespace partita::search {

/// Finds runs of equal layers and ties the variables of their copies in classes of one
/// run. Returns the copies tied, over all runs of layers. See docs/search.md.
size_t tieLayers(const FlowGraph &graph, Model &model);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_LAYERS_H
