//===- Link.cpp - A shared library without an outside linker --------------===//
#include "partita/Base/Files/File.h"
#include "passes/Codegen/CPU/KernelCompiler.h"

#include "lld/Common/Driver.h"
#include "llvm/Support/raw_ostream.h"

#include <filesystem>
#include <mutex>

LLD_HAS_DRIVER(elf)

using namespace partita;
using namespace partita::codegen;

/// As a side effect lld sets all LLVM command-line options of this process back to their
/// defaults.
Expected<void> codegen::linkStage(llvm::ArrayRef<char> object, const std::string &path) {
  std::string input = path + ".o";
  if (auto ok = writeFile(input, {object.data(), object.size()}); !ok)
    return ok;
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  const char *arguments[] = {
      "ld.lld",     "-shared",         input.c_str(),      "-o",
      path.c_str(), "--build-id=none", "--hash-style=gnu", "--gc-sections",
      "-z",         "noexecstack",     "--threads=1"};
  // lld keeps what it links in globals: one link at a time, of some 35 ms.
  static std::mutex linking;
  std::lock_guard lock(linking);
  lld::Result result =
      lld::lldMain(arguments, llvm::nulls(), stream, {{lld::Gnu, &lld::elf::link}});
  std::error_code ignored;
  std::filesystem::remove(input, ignored);
  if (result.retCode != 0)
    return makeError("the stage library cannot be linked: " + messages);
  return {};
}
