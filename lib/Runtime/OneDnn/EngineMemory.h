//===- EngineMemory.h - What oneDNN allocates while it runs -----*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_ONEDNN_ENGINEMEMORY_H
#define PARTITA_LIB_RUNTIME_ONEDNN_ENGINEMEMORY_H

namespace partita::onednn {

/// Leads oneDNN's calls of malloc, operator new and their relatives through KeptBlocks,
/// by the import slots of that one shared object; nobody else's calls change. Once per
/// process. Where it cannot be done (slots that are sealed, oneDNN linked statically, a
/// sanitizer's allocator) nothing changes, and execute calls go on allocating.
void keepEngineMemory();

} // namespace partita::onednn

#endif // PARTITA_LIB_RUNTIME_ONEDNN_ENGINEMEMORY_H
