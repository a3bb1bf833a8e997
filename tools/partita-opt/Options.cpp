//===- Options.cpp - The command line of partita-opt ----------------------===//
//
// LLVM and MLIR write what is wrong with a command line to standard error, each in its
// own form and in several lines, and have no other way to get at it. So standard error is
// caught while they read it, and one sentence is made of what they wrote.
//
//===----------------------------------------------------------------------===//
#include "Options.h"

#include "common/Status.h"

#include "mlir/Debug/CLOptionsSetup.h"
#include "mlir/Debug/Counter.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"

#include <sys/mman.h>
#include <sys/stat.h>

using namespace mlir;
using namespace partita;

namespace {
/// Standard error goes to memory while this lives.
class CaughtErrors {
public:
  CaughtErrors() : saved(::dup(STDERR_FILENO)), file(::memfd_create("errors", 0)) {
    if (file >= 0)
      ::dup2(file, STDERR_FILENO);
  }
  ~CaughtErrors() {
    ::dup2(saved, STDERR_FILENO);
    ::close(saved);
    ::close(file);
  }
  CaughtErrors(const CaughtErrors &) = delete;
  CaughtErrors &operator=(const CaughtErrors &) = delete;

  std::string text() const {
    struct stat info{};
    if (::fstat(file, &info) != 0)
      return "";
    std::string text(static_cast<size_t>(info.st_size), 0);
    ssize_t read = ::pread(file, text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(read, 0)));
    return text;
  }

private:
  int saved, file;
};
} // namespace

/// "partita-opt: for the --mesh option: requires a value!" -> "--mesh: requires a value".
static std::string optionError(StringRef text) {
  SmallVector<StringRef> lines;
  text.split(lines, '\n', -1, /*KeepEmpty=*/false);
  // A short option that the word begins with may complain first.
  auto *unknown = llvm::find_if(lines, [](StringRef line) {
    return line.contains("Unknown command line argument");
  });
  if (lines.empty())
    return "the command line is wrong";
  StringRef line = unknown != lines.end() ? *unknown : lines.front();
  line.consume_front("partita-opt: ");
  if (line.consume_front("Unknown command line argument "))
    return "there is no option " + line.split(".  Try").first.str();
  std::string name;
  if (line.consume_front("for the ")) {
    auto [option, what] = line.split(" option: ");
    name = option.str() + ": ";
    line = what;
  }
  std::string what = line.split("! Try").first.rtrim("!.").str();
  if (!what.empty())
    what[0] = llvm::toLower(what[0]);
  return name + what;
}

/// "<unknown>:0: error: MLIR Textual PassPipeline Parser:1:1: error: 'x' does not …" ->
/// "'x' does not …"; of a pipeline's options, what is wrong stands before what it is for.
static std::string passError(StringRef text) {
  SmallVector<StringRef> lines;
  text.split(lines, '\n', -1, /*KeepEmpty=*/false);
  std::string what;
  for (StringRef line : lines) {
    bool isError = line.contains("error: ");
    if (isError)
      line = line.substr(line.rfind("error: ")).drop_front(strlen("error: "));
    bool isOption = line.consume_front("<Pass-Options-Parser>: ");
    if (isError || isOption)
      what = line.str() + (what.empty() ? "" : ": " + what);
  }
  return what.empty() ? optionError(text) : what;
}

static std::string overview(const DialectRegistry &registry) {
  std::string text = "Runs passes on MLIR text: those of Partita, of MLIR and of "
                     "plugins.\n\n  partita-opt --partita-plan=mesh=tp=2 program.mlir\n\n"
                     "Exit status: 0 done, 1 error, 2 wrong usage.\n\nDialects: ";
  return text + llvm::join(registry.getDialectNames(), ", ");
}

/// Why the command line is wrong; empty if it is not.
static std::string parse(int argc, char **argv, const DialectRegistry &registry) {
  CaughtErrors caught;
  bool ok =
      llvm::cl::ParseCommandLineOptions(argc, argv, overview(registry), &llvm::errs());
  // A plugin that cannot be loaded is only told.
  std::string text = caught.text();
  if (!ok || !text.empty())
    return optionError(text);
  return "";
}

/// Why the passes cannot be run; empty if they can.
static std::string checkPasses(const MlirOptMainConfig &config) {
  CaughtErrors caught;
  MLIRContext context;
  PassManager passes(&context, PassManager::getAnyOpAnchorName(),
                     PassManager::Nesting::Implicit);
  return succeeded(config.setupPassPipeline(passes)) ? "" : passError(caught.text());
}

std::optional<OptOptions> partita::readOptions(int argc, char **argv,
                                               DialectRegistry &registry) {
  static llvm::cl::opt<std::string> input(
      llvm::cl::Positional, llvm::cl::desc("<input file>"), llvm::cl::init("-"));
  static llvm::cl::opt<std::string> output("o", llvm::cl::desc("Output filename"),
                                           llvm::cl::value_desc("filename"),
                                           llvm::cl::init("-"));
  MlirOptMainConfig::registerCLOptions(registry);
  registerAsmPrinterCLOptions();
  registerMLIRContextCLOptions();
  registerPassManagerCLOptions();
  registerDefaultTimingManagerCLOptions();
  tracing::DebugCounter::registerCLOptions();

  std::string wrong = parse(argc, argv, registry);
  if (wrong.empty()) {
    OptOptions options{input, output, MlirOptMainConfig::createFromCLOptions()};
    wrong = checkPasses(options.config);
    if (wrong.empty())
      return options;
  }
  fail(wrong + "; see partita-opt --help", usageStatus);
  return std::nullopt;
}
