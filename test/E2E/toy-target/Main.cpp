//===- Main.cpp - A target that the compiler does not know ----------------===//
//
// usage: toy-target [--cut-as-cpu] compile MODEL -o BUNDLE [as partita compile]…
//
// Compiles for a target of its own: calls apply one post-op, a sum, whatever operand is
// broadcast how, read row-major images alone and pack nothing; attention is no kernel;
// kernels have other parts. The calls and the stage refuse what such a target does not
// have, so that a program is written only if its plain data alone decided how it was
// formed. `plain` runs the bundle.
//
// With --cut-as-cpu the program is cut by the plain data of `cpu`, which the toy's calls
// or its stage have to refuse.
//
//===----------------------------------------------------------------------===//
#include "common/CommandLine.h"
#include "common/CommandOptions.h"
#include "partita/Base/Bundle/Images.h"
#include "partita/Runtime/Plain.h"
#include "passes/Codegen/CPU/CpuModel.h"
#include "passes/Codegen/Common/Program.h"
#include "passes/Pipelines/Compiler.h"

#include <cstdio>

using namespace partita;
using codegen::KernelSpec;

static constexpr kernels::Target toy = {
    .maxPostOps = 1,
    .posts = 1u << static_cast<unsigned>(kernels::Post::Add),
    .calls = {.broadcastsPosts = true,
              .addsToResult = false,
              .packsWeights = false,
              .requantizes = false},
    .images = {task::rowMajorImage, "row-major", 0},
    .division = {.units = 5, .chunk = 96, .lanes = 1},
};

/// How much of the toy's own a program has.
struct Seen {
  int calls = 0, sums = 0, broadcasts = 0, kernels = 0, chunks = 0;
};

static Expected<void> checkPosts(const std::vector<task::PostOp> &posts, Seen &seen) {
  if (posts.size() > toy.maxPostOps)
    return makeError("a call of the toy target applies one post-op, expected are " +
                     std::to_string(posts.size()));
  for (const task::PostOp &post : posts) {
    bool isSum = post.kind == PARTITA_POST_BINARY_ADD ||
                 (post.kind == PARTITA_POST_LINEAR && post.alpha == 1);
    if (!isSum)
      return makeError("a call of the toy target adds, expected is post-op " +
                       std::to_string(post.kind));
    ++seen.sums;
  }
  return {};
}

static Expected<void> checkFormats(std::initializer_list<int64_t> formats) {
  for (int64_t format : formats)
    if (format != task::rowMajorImage)
      return makeError(
          "a call of the toy target has row-major images, expected is format " +
          std::to_string(format));
  return {};
}

static Expected<void> checkCall(const task::Params &params, Seen &seen) {
  ++seen.calls;
  if (auto *p = std::get_if<task::MatMul>(&params)) {
    if (p->b_packed)
      return makeError("a product of the toy target packs no weight");
    // A bias was a sum behind the call.
    if (p->bias_mask != 0 && !p->post.empty())
      return makeError("a product of the toy target adds once");
    for (const task::PostOp &post : p->post) {
      const int64_t columns = int64_t(1) << (p->batch.size() + 1), all = 2 * columns - 1;
      seen.broadcasts +=
          task::isBinary(post.kind) && post.mask != all && post.mask != columns;
    }
    return checkPosts(p->post, seen);
  }
  if (auto *p = std::get_if<task::BlockMatMul>(&params))
    return p->b_packed ? makeError("a product of the toy target packs no weight")
                       : Expected<void>();
  if (auto *p = std::get_if<task::Pool>(&params))
    return checkFormats({p->src_format, p->dst_format});
  if (auto *p = std::get_if<task::ConvBackwardFilter>(&params))
    return checkFormats({p->src_format, p->dst_format});
  auto *transposed = std::get_if<task::ConvTranspose>(&params);
  const task::Conv &p = transposed ? *transposed : std::get<task::Conv>(params);
  if (p.weights_packed || p.adds_to_result)
    return makeError(
        "a convolution of the toy target packs no weight and adds to nothing");
  if (auto ok = checkFormats({p.src_format, p.dst_format}); !ok)
    return ok;
  return checkPosts(p.post, seen);
}

static Expected<void> checkKernel(const KernelSpec &kernel, Seen &seen) {
  ++seen.kernels;
  if (kernel.attention)
    return makeError("the toy target has no kernel of attention");
  if (kernel.split.lanes != 1)
    return makeError("the toy target has a row at a time, expected are " +
                     std::to_string(kernel.split.lanes));
  if (kernel.rowDims == 0 && kernel.split.chunk % toy.division.chunk != 0)
    return makeError("the toy target has chunks of 96, expected are " +
                     std::to_string(kernel.split.chunk));
  seen.chunks += kernel.split.chunk != 0;
  return {};
}

namespace {
class ToyModel : public codegen::CpuModel {
public:
  ToyModel(const kernels::Target &cut, codegen::CpuTarget code, Seen &seen)
      : CpuModel("plain", cut, plain::loops(), std::move(code)), seen(seen) {}

  std::unique_ptr<Calls> calls() const override {
    struct Checked : Calls {
      std::unique_ptr<Calls> all;
      Seen *seen = nullptr;
      Expected<CallNeeds> needsOf(const std::string &program, const task::Params &params,
                                  const std::string &weight, int threads) override {
        if (auto ok = checkCall(params, *seen); !ok)
          return tl::unexpected(ok.error());
        return all->needsOf(program, params, weight, threads);
      }
    };
    auto checked = std::make_unique<Checked>();
    checked->all = CpuModel::calls();
    checked->seen = &seen;
    return checked;
  }

  Expected<void> writeStage(const std::vector<KernelSpec> &kernels,
                            const std::string &table, const std::string &path,
                            StageCode &code) const override {
    for (const KernelSpec &kernel : kernels)
      if (auto ok = checkKernel(kernel, seen); !ok)
        return ok;
    return CpuModel::writeStage(kernels, table, path, code);
  }

private:
  Seen &seen;
};
} // namespace

static Expected<void> compileForToy(const Request &request, bool cutAsCpu, Seen &seen) {
  auto code = codegen::cpuTarget(request.target.cpu);
  if (!code)
    return tl::unexpected(code.error());
  ToyModel model(cutAsCpu ? kernels::cpu : toy, std::move(*code), seen);
  Job job(request, [](const std::string &) {});
  std::unique_ptr<EntryCompiler> entry = straightCompiler(job);
  if (auto ok = entry->run(); !ok)
    return ok;
  std::printf("%s", summaryText(entry->compiler().report.collectives).c_str());
  return emitEntries({{"main", &entry->compiler()}}, request, &model);
}

int main(int argc, char **argv) {
  Request request;
  bool cutAsCpu = false;
  CLI::App app("A target that the compiler does not know", "toy-target");
  app.add_flag("--cut-as-cpu", cutAsCpu);
  CLI::App *compile = app.add_subcommand("compile")->fallthrough();
  app.require_subcommand(1);
  compile->add_option("model", request.model.file)->required();
  compile->add_option("-o", request.emission.output)->required();
  CommandOptions options(*compile);
  addCompile(options, request);
  if (auto done = parse(app, argc, argv))
    return *done;
  Seen seen;
  auto ok = options.error ? tl::unexpected(*options.error)
                          : compileForToy(request, cutAsCpu, seen);
  if (!ok) {
    fprintf(stderr, "error: %s\n", ok.error().message.c_str());
    return 1;
  }
  printf("toy: calls %d, sums %d, broadcasts %d, kernels %d, chunks %d\n", seen.calls,
         seen.sums, seen.broadcasts, seen.kernels, seen.chunks);
  return 0;
}
