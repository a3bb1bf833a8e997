//===- Manifest.cpp - How kernels of PTX are called -----------------------===//
#include "passes/Codegen/Nvptx/Manifest.h"

#include "partita/Base/Files/JsonWriter.h"
#include "passes/Codegen/Nvptx/TileEmitter.h"

using namespace partita;
using namespace partita::codegen;

int64_t codegen::roomOf(const KernelSpec &kernel, const KernelOperand &operand) {
  int64_t last = operand.offset;
  if (!operand.view.dims.empty()) {
    last = operand.view.offset;
    for (const Parts &parts : operand.view.dims)
      for (const Part &part : parts)
        last += std::max<int64_t>(0, (part.size - 1) * part.stride);
    return last + 1;
  }
  for (auto [size, stride] : llvm::zip_equal(kernel.domain, operand.strides))
    last += std::max<int64_t>(0, (size - 1) * stride);
  return last + 1;
}

int64_t codegen::gridOf(const KernelSpec &kernel) {
  constexpr int64_t mostScratch = 64 << 20, mostBlocks = 1 << 20;
  int64_t outer = 1, all = 1;
  for (auto [d, size] : llvm::enumerate(kernel.domain)) {
    all *= size;
    outer *= d < kernel.numOuter() ? size : 1;
  }
  int64_t blocks = GpuEmitter::hasRows(kernel) ? outer
                                               : (all + GpuEmitter::threadsPerBlock - 1) /
                                                     GpuEmitter::threadsPerBlock;
  if (kernel.scratchBytes != 0)
    blocks = std::min(blocks, mostScratch / static_cast<int64_t>(kernel.scratchBytes));
  return std::clamp<int64_t>(blocks, 1, mostBlocks);
}

static void writeOperand(JsonWriter &json, const KernelSpec &kernel,
                         const KernelOperand &operand, const char *kind) {
  json.beginObject();
  json.member("kind", std::string_view(kind));
  json.member("type", name(operand.type));
  json.member("elements", roomOf(kernel, operand));
  if (operand.view.dims.empty()) {
    json.member("shape", std::span<const int64_t>(kernel.domain));
    json.member("strides", std::span<const int64_t>(operand.strides));
    json.member("offset", operand.offset);
  } else {
    const Shape shape = operand.view.shape();
    json.member("shape", std::span<const int64_t>(shape));
  }
  if (operand.output >= 0)
    json.member("output", static_cast<int64_t>(operand.output));
  json.endObject();
}

/// A product's points are its sums: two flops each.
static double flopsOf(const KernelSpec &kernel) {
  return kernel.nodes.empty() ? 2 * kernel.points() : kernel.flops();
}

static void writeKernel(JsonWriter &json, const KernelSpec &kernel,
                        const std::optional<TileKernel> &tiles, const std::string &symbol,
                        const std::vector<std::string> &sources) {
  json.beginObject();
  json.member("name", std::string_view(symbol));
  json.member("sources", std::span<const std::string>(sources));
  json.member("grid", tiles ? tiles->program.grid(kernel) : gridOf(kernel));
  json.member("block", tiles ? tiles->program.threads() : GpuEmitter::threadsPerBlock);
  json.member("shared", tiles ? SharedTiles(*tiles).bytes() : int64_t(0));
  json.member("flops", flopsOf(kernel));
  json.member("bytes", kernel.bytes());
  json.key("arguments");
  json.beginArray();
  for (const KernelOperand &operand : kernel.operands)
    writeOperand(json, kernel, operand, "in");
  for (const KernelOperand &output : kernel.outputs)
    writeOperand(json, kernel, output, "out");
  if (kernel.scratchBytes != 0) {
    json.beginObject();
    json.member("kind", std::string_view("scratch"));
    json.member("bytes", gridOf(kernel) * static_cast<int64_t>(kernel.scratchBytes));
    json.endObject();
  }
  if (kernel.numScalars != 0) {
    json.beginObject();
    json.member("kind", std::string_view("scalars"));
    json.member("count", static_cast<int64_t>(kernel.numScalars));
    json.endObject();
  }
  if (llvm::any_of(kernel.nodes, isChecked)) {
    json.beginObject();
    json.member("kind", std::string_view("status"));
    json.endObject();
  }
  json.endArray();
  json.endObject();
}

std::string codegen::manifestOf(const GpuKernels &kernels,
                                const std::vector<std::vector<std::string>> &sources,
                                const std::string &architecture) {
  JsonWriter json(JsonWriter::Style::Lines);
  json.beginObject();
  json.member("architecture", std::string_view(architecture));
  json.key("kernels");
  json.beginArray();
  for (size_t i = 0; i < kernels.size(); ++i) {
    auto tiles = kernels.tiles(i);
    writeKernel(json, tiles ? tiles->kernel : kernels.kernels[i], tiles,
                tiles ? tiles->name : kernelSymbol(i), sources[i]);
  }
  json.endArray();
  json.endObject();
  return json.take() + "\n";
}
