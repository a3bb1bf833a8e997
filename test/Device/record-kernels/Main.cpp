//===- Main.cpp - Kernels for a GPU, and what they compute on a CPU -------===//
//
// usage: record-kernels compile MODEL -o BUNDLE --inputs-dir DIR --record FOLDER
//                       [as partita compile]…
//        record-kernels products PRODUCT… --record FOLDER [--timed] [--seed 1]
//
// Compiles a model as one program whose kernels are those that partita-emit-ptx writes,
// each as PTX and as loops for this CPU, and runs requests on the CPU. Of each kernel the
// last launch is kept: what its arguments held before, and its outputs after. The folder
// gets
//
//   kernels.ptx, manifest.json    passes/Codegen/Nvptx/Manifest.h
//   cases.json                    of each kernel that ran, its place in data.bin, the
//                                 scalars, and the bytes of each in and out before and
//                                 of each out after
//   data.bin
//
// Products (Products.h) are written likewise, as tile programs, with drawn operands and
// the results of the target plain's loops; with --timed without either.
//
//===----------------------------------------------------------------------===//
#include "Products.h"
#include "common/CommandLine.h"
#include "common/CommandOptions.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Files/JsonWriter.h"
#include "partita/Base/Files/TensorProto.h"
#include "partita/Runtime/Plain.h"
#include "partita/Runtime/RunBundle.h"
#include "passes/Codegen/CPU/CpuModel.h"
#include "passes/Codegen/Nvptx/Manifest.h"
#include "passes/Codegen/Nvptx/NvptxCompiler.h"
#include "passes/Pipelines/Compiler.h"

#include <cstdio>
#include <deque>
#include <map>
#include <set>

using namespace partita;
using codegen::KernelOperand;
using codegen::KernelSpec;

/// The number of a kernel, as codegen::kernelSymbol names it, by its place in a table.
static size_t numberOf(const TaskTable &table, size_t place) {
  size_t number = 0;
  while (codegen::kernelSymbol(number) != table.kernel(place))
    ++number;
  return number;
}

namespace {
/// Bytes that a kernel may touch behind each of its operands, then outputs.
struct Room {
  std::vector<size_t> bytes;
  size_t operands = 0, scalars = 0;
};

struct Options {
  std::string inputs, record, architecture = "sm_90";
  int requests = 2;
  std::vector<std::string> products;
  bool timed = false;
  uint64_t seed = 1;
};

Expected<void> writeCode(const codegen::GpuKernels &kernels,
                         const std::vector<std::vector<std::string>> &sources,
                         const Options &options) {
  auto ptx = codegen::compileToPtx(kernels, options.architecture);
  if (!ptx)
    return tl::unexpected(ptx.error());
  if (auto ok = writeFile(options.record + "/kernels.ptx", *ptx); !ok)
    return ok;
  return writeFile(options.record + "/manifest.json",
                   codegen::manifestOf(kernels, sources, options.architecture));
}

/// Kernels as loops for this CPU. What is the same for a GPU is written on the way, while
/// the kernels' ops are there.
class TwinModel : public codegen::CpuModel {
public:
  TwinModel(codegen::CpuTarget code, const Options &options, std::vector<Room> &rooms)
      : CpuModel("plain", codegen::nvptxKernels, plain::loops(), std::move(code)),
        options(options), rooms(rooms) {}

  Expected<void> writeStage(const std::vector<KernelSpec> &kernels,
                            const std::string &table, const std::string &path,
                            StageCode &code) const override {
    auto tasks = TaskTable::read(std::as_bytes(std::span(table)));
    if (!tasks)
      return tl::unexpected(tasks.error());
    std::vector<std::set<std::string>> names(kernels.size());
    for (size_t i = 0; i < tasks->numTasks(); ++i)
      if (const TaskView task = tasks->task(i);
          auto *kernel = std::get_if<task::Kernel>(&task.params))
        names[numberOf(*tasks, static_cast<size_t>(kernel->kernel))].emplace(task.source);
    std::vector<std::vector<std::string>> sources;
    for (const auto &set : names)
      sources.emplace_back(set.begin(), set.end());
    if (auto ok = writeCode({kernels, {}}, sources, options); !ok)
      return ok;
    for (const KernelSpec &kernel : kernels)
      rooms.push_back(roomFor(kernel));
    return CpuModel::writeStage(kernels, table, path, code);
  }

private:
  static Room roomFor(const KernelSpec &kernel) {
    Room room;
    for (const auto *list : {&kernel.operands, &kernel.outputs})
      for (const KernelOperand &operand : *list)
        room.bytes.push_back(static_cast<size_t>(codegen::roomOf(kernel, operand)) *
                             byteWidth(operand.type));
    room.operands = kernel.operands.size();
    room.scalars = static_cast<size_t>(kernel.numScalars);
    return room;
  }

  const Options &options;
  std::vector<Room> &rooms;
};

/// The processor, which notes what kernels read and make.
class Recorder final : public runtime::Device {
public:
  explicit Recorder(const std::vector<Room> &rooms)
      : Device(/*sharesHost=*/true), rooms(rooms) {}

  std::map<size_t, Launch> launches; ///< by the number in the kernel's name

  Expected<runtime::Memory> allocate(Space space, uint64_t bytes) override {
    return cpu.allocate(space, bytes);
  }
  Expected<std::unique_ptr<Stream>> stream() override { return cpu.stream(); }
  Expected<std::unique_ptr<Event>> event() override { return cpu.event(); }
  Expected<void *> kernel(const runtime::Stage &stage, uint32_t index) override {
    auto code = cpu.kernel(stage, index);
    if (!code)
      return code;
    return &known.emplace_back(numberOf(stage.table(), index), *code);
  }
  bool launch(Stream &stream, const runtime::KernelWork &work,
              std::span<void *const> buffers,
              std::span<const int64_t> scalars) noexcept override {
    const auto &[index, code] = *static_cast<Known *>(work.code);
    const Room &room = rooms[index];
    Launch launch;
    for (size_t k = 0; k < room.bytes.size(); ++k)
      launch.before.emplace_back(static_cast<const char *>(buffers[k]), room.bytes[k]);
    launch.scalars.assign(scalars.begin(), scalars.begin() + int64_t(room.scalars));
    runtime::KernelWork own = work;
    own.code = code;
    bool ok = cpu.launch(stream, own, buffers, scalars);
    for (size_t k = room.operands; k < room.bytes.size(); ++k)
      launch.after.emplace_back(static_cast<const char *>(buffers[k]), room.bytes[k]);
    launches[index] = std::move(launch);
    return ok;
  }
  bool call(Stream &stream, const runtime::EngineWork &work,
            std::span<void *const> operands) noexcept override {
    return cpu.call(stream, work, operands);
  }
  bool rows(Stream &stream, const runtime::RowsWork &work, const void *source,
            void *target) noexcept override {
    return cpu.rows(stream, work, source, target);
  }
  bool copy(Stream &stream, void *to, const void *from,
            uint64_t bytes) noexcept override {
    return cpu.copy(stream, to, from, bytes);
  }
  bool record(Event &event, Stream &stream) noexcept override {
    return cpu.record(event, stream);
  }
  bool await(Stream &stream, Event &event) noexcept override {
    return cpu.await(stream, event);
  }
  bool finish(Stream &stream) noexcept override { return cpu.finish(stream); }

private:
  using Known = std::pair<size_t, void *>;
  Device &cpu = runtime::cpuDevice();
  const std::vector<Room> &rooms;
  std::deque<Known> known;
};
} // namespace

static Expected<void> compileTwin(const Request &request, const Options &options,
                                  std::vector<Room> &rooms) {
  auto code = codegen::cpuTarget(request.target.cpu);
  if (!code)
    return tl::unexpected(code.error());
  TwinModel model(std::move(*code), options, rooms);
  Job job(request, [](const std::string &) {});
  std::unique_ptr<EntryCompiler> entry = straightCompiler(job);
  if (auto ok = entry->run(); !ok)
    return ok;
  return emitEntries({{"main", &entry->compiler()}}, request, &model);
}

/// input_K.pb in the order of the bundle's inputs.
static Expected<std::map<std::string, HostTensor>> readInputs(const std::string &bundle,
                                                              const std::string &folder) {
  auto session = runtime::Session::load(bundle, {});
  if (!session)
    return tl::unexpected(session.error());
  std::map<std::string, HostTensor> inputs;
  for (const runtime::TensorInfo &info : (*session)->inputs()) {
    auto path = folder + "/input_" + std::to_string(inputs.size()) + ".pb";
    auto read = readTensorProto(path);
    if (!read)
      return tl::unexpected(read.error());
    if (read->tensor.type != info.type || read->tensor.shape != info.shape)
      return makeError("'" + path + "' is not of the type and shape of input '" +
                       info.name + "'");
    inputs[info.name] = std::move(read->tensor);
  }
  return inputs;
}

static Expected<void> writeCases(const std::map<size_t, Launch> &launches,
                                 const std::string &folder) {
  std::string data;
  JsonWriter json(JsonWriter::Style::Compact);
  json.beginArray();
  for (const auto &[index, launch] : launches) {
    json.beginObject();
    json.member("kernel", static_cast<int64_t>(index));
    json.member("begin", static_cast<int64_t>(data.size()));
    json.member("scalars", std::span<const int64_t>(launch.scalars));
    for (const auto &[key, list] :
         {std::pair("before", &launch.before), std::pair("after", &launch.after)}) {
      json.key(key);
      json.beginArray();
      for (const std::string &bytes : *list) {
        json.value(static_cast<int64_t>(bytes.size()));
        data += bytes;
      }
      json.endArray();
    }
    json.endObject();
  }
  json.endArray();
  if (auto ok = writeFile(folder + "/cases.json", json.take() + "\n"); !ok)
    return ok;
  return writeFile(folder + "/data.bin", data);
}

static Expected<void> runTool(const Request &request, const Options &options) {
  std::vector<Room> rooms;
  if (auto ok = compileTwin(request, options, rooms); !ok)
    return ok;
  auto inputs = readInputs(request.emission.output, options.inputs);
  if (!inputs)
    return tl::unexpected(inputs.error());
  Recorder recorder(rooms);
  runtime::SessionOptions session;
  session.device = &recorder;
  std::map<std::string, HostTensor> states;
  auto done = runtime::runSession(request.emission.output, session, *inputs, states,
                                  options.requests, nullptr);
  if (!done)
    return tl::unexpected(done.error());
  if (auto ok = writeCases(recorder.launches, options.record); !ok)
    return ok;
  printf("%zu of %zu kernels ran\n", recorder.launches.size(), rooms.size());
  return {};
}

static Expected<void> writeProducts(const Options &options) {
  codegen::GpuKernels kernels;
  std::vector<std::vector<std::string>> sources;
  std::map<size_t, Launch> launches;
  for (const std::string &text : options.products) {
    auto read = readProduct(text);
    if (!read)
      return tl::unexpected(read.error());
    const auto &[product, tiles] = *read;
    const size_t number = kernels.products.size();
    kernels.products.push_back(
        codegen::tileProduct(product, tiles, "product_" + std::to_string(number)));
    sources.push_back({text});
    if (!options.timed)
      launches[number] =
          runProduct(product, kernels.products.back(), options.seed + number);
  }
  if (auto ok = writeCode(kernels, sources, options); !ok)
    return ok;
  printf("%zu products\n", kernels.size());
  return options.timed ? Expected<void>() : writeCases(launches, options.record);
}

int main(int argc, char **argv) {
  Request request;
  Options mine;
  CLI::App app("Kernels for a GPU, and what they compute on a CPU", "record-kernels");
  CLI::App *compile = app.add_subcommand("compile");
  app.require_subcommand(1);
  compile->add_option("model", request.model.file)->required();
  compile->add_option("-o", request.emission.output)->required();
  compile->add_option("--inputs-dir", mine.inputs)->required();
  compile->add_option("--record", mine.record)->required();
  compile->add_option("--requests", mine.requests);
  compile->add_option("--architecture", mine.architecture);
  CLI::App *products = app.add_subcommand("products");
  products->add_option("products", mine.products)->required();
  products->add_option("--record", mine.record)->required();
  products->add_option("--architecture", mine.architecture);
  products->add_option("--seed", mine.seed);
  products->add_flag("--timed", mine.timed);
  CommandOptions options(*compile);
  addCompile(options, request);
  if (auto done = parse(app, argc, argv))
    return *done;
  auto ok = options.error        ? tl::unexpected(*options.error)
            : products->parsed() ? writeProducts(mine)
                                 : runTool(request, mine);
  if (!ok) {
    fprintf(stderr, "error: %s\n", ok.error().message.c_str());
    return 1;
  }
  return 0;
}
