//===- Main.cpp - Many hints on one model, imported once ------------------===//
//
// usage: hint-sweep MODEL [--shape NAME=SIZES]…
//
// Reads lines "MESH<tab>HINTS", HINTS as a hints file has it, and answers each with one
// line: "ok" where the hints are done and the program passes the gates of both levels and
// has the price that the plan says, else the error of `partita compile --to L3`. Reading
// the model costs as much as deciding and partitioning it: this reads it once.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Files/File.h"
#include "passes/Pipelines/Compiler.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <unistd.h>

using namespace mlir;
using namespace partita;

namespace {
struct Sweep {
  explicit Sweep(const Request &request)
      : job(request, [](const std::string &) {}), compiler(job),
        folder(std::filesystem::temp_directory_path() /
               ("hint-sweep-" + std::to_string(getpid()))) {}
  ~Sweep() {
    std::error_code code;
    std::filesystem::remove_all(folder, code);
  }

  Expected<void> start() {
    std::error_code code;
    std::filesystem::create_directories(folder, code);
    auto ok = compiler.import();
    if (ok)
      imported = compiler.module.get().clone();
    return ok;
  }

  Expected<void> run(const std::string &mesh, const std::string &hints) {
    const std::string file = folder / "hints.json";
    auto read = writeFile(file, hints).and_then([&] { return readHints(file); });
    if (!read)
      return tl::unexpected(read.error());
    auto meshes = readMeshes(mesh);
    if (!meshes)
      return tl::unexpected(meshes.error());
    job.request.hints = std::move(*read);
    job.request.meshes = std::move(*meshes);
    compiler.module = imported->clone();
    compiler.report = {};
    compiler.plan = {};
    auto ok = compiler.annotate();
    return ok ? compiler.partition() : ok;
  }

  Job job;
  Compiler compiler;
  OwningOpRef<ModuleOp> imported; ///< before the context goes
  std::filesystem::path folder;
};
} // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: hint-sweep MODEL [--shape NAME=SIZES]...\n");
    return 2;
  }
  Request request;
  request.model.file = argv[1];
  request.mode = ShardMode::SemiAuto;
  request.levels.to = Level::L3;
  for (int i = 2; i + 1 < argc; i += 2) {
    auto shape = onnx_model::parseShapeBinding(argv[i + 1]);
    if (!shape) {
      fprintf(stderr, "error: %s\n", shape.error().message.c_str());
      return 1;
    }
    request.model.shapes.push_back(std::move(*shape));
  }
  Sweep sweep(request);
  if (auto ok = sweep.start(); !ok) {
    fprintf(stderr, "error: %s\n", ok.error().message.c_str());
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    size_t tab = std::min(line.find('\t'), line.size());
    auto ok = sweep.run(line.substr(0, tab), line.substr(std::min(tab + 1, line.size())));
    std::string answer = ok ? "ok" : ok.error().message;
    std::replace(answer.begin(), answer.end(), '\n', ' ');
    printf("%s\n", answer.c_str());
    fflush(stdout);
  }
  return 0;
}
