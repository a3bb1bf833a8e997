//===- Asker.h - Whose code asks for memory ---------------------*- C++ -*-===//
#ifndef PARTITA_TEST_E2E_COUNTALLOCATIONS_ASKER_H
#define PARTITA_TEST_E2E_COUNTALLOCATIONS_ASKER_H

#include <cstring>
#include <dlfcn.h>
#include <initializer_list>
#include <unwind.h>

namespace counting {

/// Of a path, what follows the last slash.
inline const char *fileOf(const char *path) {
  const char *slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/// Whether the object only passes requests on: the C and C++ libraries.
inline bool passesOn(const char *path) {
  for (const char *prefix : {"libc.so", "libstdc++.so", "libgcc_s.so", "ld-linux"})
    if (std::strncmp(fileOf(path), prefix, std::strlen(prefix)) == 0)
      return true;
  return false;
}

/// The object file whose code called, `from` being the address behind the call of malloc:
/// the first one on the stack that does not only pass requests on. Null if there is none.
/// Allocates nothing.
inline const char *asker(void *from) {
  struct Search {
    void *from;
    bool started;
    const char *found;
  } search{from, false, nullptr};
  auto look = [](_Unwind_Context *context, void *argument) {
    auto &s = *static_cast<Search *>(argument);
    void *at = reinterpret_cast<void *>(_Unwind_GetIP(context));
    s.started |= at == s.from;
    Dl_info info;
    if (!s.started || !::dladdr(at, &info) || !info.dli_fname || passesOn(info.dli_fname))
      return _URC_NO_REASON;
    s.found = info.dli_fname;
    return _URC_END_OF_STACK;
  };
  _Unwind_Backtrace(look, &search);
  return search.found;
}

/// Whether the object is made here: a program, a library or a stage of Partita's. Who
/// asks from nowhere counts as one.
inline bool isOwn(const char *path) {
  if (!path)
    return true;
  for (const char *part : {"partita", "stage-", "unit-"})
    if (std::strstr(fileOf(path), part))
      return true;
  return false;
}

} // namespace counting

#endif // PARTITA_TEST_E2E_COUNTALLOCATIONS_ASKER_H
