//===- Export.cpp - A trained model as an ONNX file -----------------------===//
#include "partita/Onnx/Export.h"

#include "Internal.h"
#include "partita/Base/Files/Aside.h"
#include "partita/Base/Files/SafeTensors.h"
#include "partita/Base/Files/TensorProto.h"
#include "partita/Base/Scalar.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <unistd.h>

using namespace partita;
using namespace partita::onnx_model;

static bool isExternal(const onnx::TensorProto &tensor) {
  return tensor.data_location() == onnx::TensorProto::EXTERNAL;
}

//===----------------------------------------------------------------------===//
// The tensors of a model
//===----------------------------------------------------------------------===//

using Visit = std::function<Expected<void>(onnx::TensorProto &)>;

static Expected<void> visitGraph(onnx::GraphProto &graph, const Visit &visit);

template <typename Nodes>
static Expected<void> visitNodes(Nodes &nodes, const Visit &visit) {
  for (onnx::NodeProto &node : nodes)
    for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      Expected<void> ok;
      if (attribute.has_t())
        ok = visit(*attribute.mutable_t());
      for (onnx::TensorProto &tensor : *attribute.mutable_tensors())
        if (ok)
          ok = visit(tensor);
      if (ok && attribute.has_g())
        ok = visitGraph(*attribute.mutable_g(), visit);
      for (onnx::GraphProto &graph : *attribute.mutable_graphs())
        if (ok)
          ok = visitGraph(graph, visit);
      if (!ok)
        return ok;
    }
  return {};
}

/// Every tensor that the graph has, in loops and branches too.
static Expected<void> visitGraph(onnx::GraphProto &graph, const Visit &visit) {
  for (onnx::TensorProto &tensor : *graph.mutable_initializer())
    if (auto ok = visit(tensor); !ok)
      return ok;
  return visitNodes(*graph.mutable_node(), visit);
}

static Expected<void> visitTensors(onnx::ModelProto &model, const Visit &visit) {
  auto ok = visitGraph(*model.mutable_graph(), visit);
  for (onnx::FunctionProto &function : *model.mutable_functions())
    if (ok)
      ok = visitNodes(*function.mutable_node(), visit);
  return ok;
}

static std::set<std::string> initializerNames(const onnx::GraphProto &graph) {
  std::set<std::string> names;
  for (const onnx::TensorProto &tensor : graph.initializer())
    names.insert(tensor.name());
  return names;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

static std::string typeText(DType type, const std::vector<int64_t> &shape) {
  std::string text = std::string(name(type)) + "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

static bool isWideFloat(DType type) {
  return type == DType::F32 || type == DType::F64 || type == DType::F16 ||
         type == DType::BF16;
}

template <typename T> static T rounded(double value) {
  if constexpr (std::is_same_v<T, Half>)
    return {floatToHalf(static_cast<float>(value))};
  else if constexpr (std::is_same_v<T, Bfloat16>)
    return {floatToBfloat16(static_cast<float>(value))};
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(value);
  else
    return {}; // isWideFloat
}

static std::string converted(std::span<const std::byte> bytes, DType from, DType to) {
  size_t count = bytes.size() / byteWidth(from);
  std::string result(count * byteWidth(to), '\0');
  visitType(from, [&]<typename From>() {
    visitType(to, [&]<typename To>() {
      for (size_t i = 0; i < count; ++i) {
        From element;
        std::memcpy(&element, bytes.data() + i * sizeof(From), sizeof(From));
        To value = rounded<To>(static_cast<double>(partita::load(element)));
        std::memcpy(result.data() + i * sizeof(To), &value, sizeof(To));
      }
    });
  });
  return result;
}

/// The bytes of a state in the type of its initializer.
static Expected<std::string> valuesFor(const onnx::TensorProto &initializer,
                                       const std::string &model,
                                       const SafeTensorsFile &states,
                                       const SafeTensorEntry &state) {
  auto type = dtypeFromOnnx(initializer.data_type());
  std::vector<int64_t> shape(initializer.dims().begin(), initializer.dims().end());
  bool fits = type && state.shape == shape &&
              (state.type == *type || (isWideFloat(state.type) && isWideFloat(*type)));
  if (!fits)
    return makeError(
        "initializer '" + initializer.name() + "' of '" + model + "' is " +
        (type ? typeText(*type, shape) : onnxTypeName(initializer.data_type())) +
        ", but the state of this name is " + typeText(state.type, state.shape));
  return converted(states.bytes(state), state.type, *type);
}

static void setInline(onnx::TensorProto &tensor, std::string bytes) {
  onnx::TensorProto plain;
  plain.set_name(tensor.name());
  plain.set_doc_string(tensor.doc_string());
  plain.set_data_type(tensor.data_type());
  *plain.mutable_dims() = tensor.dims();
  *plain.mutable_metadata_props() = tensor.metadata_props();
  plain.set_raw_data(std::move(bytes));
  tensor = std::move(plain);
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static std::string dataOf(const std::string &model) { return model + ".data"; }

namespace {

/// The external data of the copy, written aside until it is renamed.
class DataFile {
public:
  explicit DataFile(const std::string &model) : path(dataOf(model)) {}

  /// Appends the values, and refers to them.
  Expected<void> add(onnx::TensorProto &tensor, std::string_view bytes) {
    if (!stream.is_open())
      if (auto ok = open(); !ok)
        return ok;
    // A mapping of each can be used in place.
    constexpr uint64_t alignment = 64;
    std::string gap((alignment - position % alignment) % alignment, '\0');
    stream << gap << bytes;
    position += gap.size();
    setInline(tensor, {});
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto &[key, value] :
         {std::pair("location", std::filesystem::path(path).filename().string()),
          {"offset", std::to_string(position)},
          {"length", std::to_string(bytes.size())}}) {
      auto &entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    position += bytes.size();
    return stream ? Expected<void>() : failed();
  }

  /// Puts it into its place, if there is any.
  Expected<void> finish() {
    if (!stream.is_open())
      return {};
    stream.close();
    if (!stream)
      return failed();
    auto ok = aside.commit();
    isPlaced = ok.has_value();
    return ok;
  }
  /// Of a copy whose model could not be written.
  void drop() {
    if (isPlaced)
      ::unlink(path.c_str());
  }

private:
  Expected<void> open() {
    auto made = Aside::file(path);
    if (!made)
      return tl::unexpected(made.error());
    aside = std::move(*made);
    stream.open(aside.path(), std::ios::binary | std::ios::trunc);
    return stream ? Expected<void>() : failed();
  }
  tl::unexpected<Error> failed() const {
    return makeError("cannot write '" + path + "': " + std::strerror(errno));
  }
  std::string path;
  Aside aside;
  std::ofstream stream;
  bool isPlaced = false;
  uint64_t position = 0;
};

/// A copy of a model with other values.
class Exporter {
public:
  Exporter(ModelFile &file, const SafeTensorsFile &states, const std::string &to,
           const std::vector<std::string> &dataFolders)
      : file(file), states(states), reader(file, true, dataFolders), data(to), to(to) {}

  Expected<size_t> run(const std::vector<std::string> &weights) {
    auto &initializers = *file.proto.mutable_graph()->mutable_initializer();
    if (auto ok = checkWeights(weights); !ok)
      return tl::unexpected(ok.error());
    for (int i = 0; i < initializers.size(); ++i)
      if (auto ok = setInitializer(initializers[i], file.payloads[i]); !ok)
        return tl::unexpected(ok.error());
    if (replaced == 0)
      return makeError("no state has the name of an initializer of '" + file.path + "'");
    if (auto ok = visitTensors(file.proto, [&](auto &t) { return moveExternal(t); }); !ok)
      return tl::unexpected(ok.error());
    toInference(*file.proto.mutable_graph());
    std::string bytes;
    if (!file.proto.SerializeToString(&bytes))
      return makeError("'" + to +
                       "': the model does not fit into one ONNX file of 2 GiB");
    auto ok = data.finish();
    if (ok)
      ok = writeFile(to, bytes);
    if (ok)
      return replaced;
    data.drop();
    return tl::unexpected(ok.error());
  }

private:
  Expected<void> checkWeights(const std::vector<std::string> &weights) const {
    const std::set<std::string> names = initializerNames(file.proto.graph());
    for (const std::string &weight : weights)
      if (!names.contains(weight))
        return makeError("'" + file.path +
                         "' is another model than the one that was "
                         "trained: it has no initializer '" +
                         weight + "'");
    return {};
  }

  /// `payload`: its values where readModelFile has left them in the file.
  Expected<void> setInitializer(onnx::TensorProto &tensor,
                                std::span<const std::byte> payload) {
    const SafeTensorEntry *state = states.find(tensor.name());
    if (!state) {
      if (!payload.empty() && tensor.raw_data().empty())
        tensor.set_raw_data(payload.data(), payload.size());
      return {};
    }
    auto values = valuesFor(tensor, file.path, states, *state);
    if (!values)
      return tl::unexpected(values.error());
    ++replaced;
    if (!isExternal(tensor)) {
      setInline(tensor, std::move(*values));
      return {};
    }
    moved.insert(&tensor);
    return data.add(tensor, *values);
  }

  Expected<void> moveExternal(onnx::TensorProto &tensor) {
    if (!isExternal(tensor) || moved.contains(&tensor))
      return {};
    auto read = reader.read(tensor, "tensor '" + tensor.name() + "'");
    if (!read)
      return tl::unexpected(read.error());
    // As it lies in the file: small types are packed there.
    auto type = dtypeFromOnnx(tensor.data_type());
    std::string bytes(packedBytes(*type, read->bytes.size()), '\0');
    auto source = InputFile::open(read->file);
    auto ok =
        source ? (*source)->read(read->offset, std::as_writable_bytes(std::span(bytes)))
               : tl::unexpected(source.error());
    return ok ? data.add(tensor, bytes) : ok;
  }

  ModelFile &file;
  const SafeTensorsFile &states;
  TensorReader reader;
  DataFile data;
  std::string to;
  std::set<const onnx::TensorProto *> moved; ///< that are in `data`
  size_t replaced = 0;
};

} // namespace

/// The files of the model, so that none is replaced while others refer to it.
static Expected<void> checkPlaces(ModelFile &file, const std::string &to) {
  namespace fs = std::filesystem;
  std::set<std::string> own = {file.path};
  auto note = [&](onnx::TensorProto &tensor) -> Expected<void> {
    for (const auto &entry : tensor.external_data())
      if (entry.key() == "location")
        own.insert(fs::path(file.path).parent_path() / entry.value());
    return {};
  };
  if (auto ok = visitTensors(file.proto, note); !ok)
    return ok;
  std::error_code ignored;
  for (const std::string &path : own)
    for (const std::string &target : {to, dataOf(to)})
      if (fs::equivalent(path, target, ignored))
        return makeError("'" + target +
                         "' is a file of the model itself; export under another name");
  return {};
}

/// Exceptions, and what names in a file may have in them, stay here.
template <typename T> static Expected<T> guarded(const std::string &from, auto run) {
  try {
    Expected<T> result = run();
    if (!result)
      return makeError(printable(result.error().message));
    return result;
  } catch (const std::exception &error) {
    return makeError(printable("'" + from + "': " + error.what()));
  }
}

Expected<std::vector<std::string>>
onnx_model::initializersOf(const std::string &model,
                           const std::vector<std::string> &names) {
  using Names = std::vector<std::string>;
  return guarded<Names>(model, [&]() -> Expected<Names> {
    auto file = readModelFile(model);
    if (!file)
      return tl::unexpected(file.error());
    const std::set<std::string> known = initializerNames((*file)->proto.graph());
    Names found;
    std::ranges::copy_if(names, std::back_inserter(found),
                         [&](const std::string &name) { return known.contains(name); });
    return found;
  });
}

Expected<void> onnx_model::checkExport(const std::string &from, const std::string &to) {
  return guarded<void>(from, [&]() -> Expected<void> {
    auto file = readModelFile(from);
    return file ? checkPlaces(**file, to) : tl::unexpected(file.error());
  });
}

Expected<size_t> onnx_model::exportModel(const std::string &from,
                                         const std::string &states, const std::string &to,
                                         const std::vector<std::string> &dataFolders,
                                         const std::vector<std::string> &weights) {
  return guarded<size_t>(from, [&]() -> Expected<size_t> {
    auto file = readModelFile(from);
    if (!file)
      return tl::unexpected(file.error());
    if (auto ok = checkPlaces(**file, to); !ok)
      return tl::unexpected(ok.error());
    auto values = readSafeTensors(states);
    return values ? Exporter(**file, *values, to, dataFolders).run(weights)
                  : tl::unexpected(values.error());
  });
}
