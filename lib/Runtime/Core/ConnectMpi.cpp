//===- ConnectMpi.cpp - Loading the MPI transport -------------------------===//
#include "partita/Runtime/Transport.h"

#include <dlfcn.h>
#include <filesystem>
#include <iterator>
#include <string>

using namespace partita;
using namespace partita::runtime;

/// The folder of the object this code was linked into, behind symbolic links.
static std::string ownFolder() {
  Dl_info info;
  if (!::dladdr(reinterpret_cast<void *>(&ownFolder), &info) || !info.dli_fname)
    return ".";
  std::string path = info.dli_fname;
  // A program that the shell found in PATH knows itself by the bare word.
  if (path.find('/') == std::string::npos)
    path = "/proc/self/exe";
  std::error_code failed;
  auto real = std::filesystem::canonical(path, failed);
  return failed ? "." : real.parent_path().string();
}

static constexpr std::string_view windowNames[] = {"auto", "on", "off"};

std::optional<MpiWindow> runtime::parseMpiWindow(std::string_view text) {
  for (size_t i = 0; i < std::size(windowNames); ++i)
    if (text == windowNames[i])
      return static_cast<MpiWindow>(i);
  return std::nullopt;
}

std::string_view runtime::name(MpiWindow window) {
  return windowNames[static_cast<size_t>(window)];
}

Expected<std::unique_ptr<Transport>> runtime::connectMpi(MpiWindow window) {
  std::string folder = ownFolder(), reasons;
  for (const std::string &path :
       {folder + "/libpartita_mpi.so", folder + "/../lib/libpartita_mpi.so",
        std::string("libpartita_mpi.so")}) {
    // Global, because Open MPI's own plugins look for its symbols; never closed, because
    // MPI cannot be started twice.
    void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      reasons = ::dlerror();
      continue;
    }
    // Both sides know the insides of Transport and TaskTable.
    auto *abi = static_cast<const char *>(::dlsym(library, "partita_mpi_abi"));
    if (!abi || std::string_view(abi) != PARTITA_TRANSPORT_ABI)
      return makeError("'" + path + "' is of another build of Partita than this " +
                       "runtime; install both from one build");
    using Create = Transport *(*)(MpiWindow, std::string *);
    auto create = reinterpret_cast<Create>(::dlsym(library, "partita_mpi_create"));
    std::string problem = "MPI cannot be started";
    Transport *transport = create ? create(window, &problem) : nullptr;
    if (!transport)
      return makeError(problem);
    return std::unique_ptr<Transport>(transport);
  }
  return makeError("the MPI transport cannot be loaded: " + reasons);
}
