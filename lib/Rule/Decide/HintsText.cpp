//===- HintsText.cpp - Hints as a file ------------------------------------===//
#include "partita/Rule/Decide/Hints.h"

#include "partita/Base/Files/JsonWriter.h"

using namespace partita;

std::string partita::layerGlob(const std::string &name) {
  std::string glob;
  for (char c : name) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos)
      return name;
    bool isDigit = c >= '0' && c <= '9';
    if (!isDigit)
      glob += c;
    else if (glob.empty() || glob.back() != '*')
      glob += '*';
  }
  return glob;
}

/// One axis alone stands for itself.
static void writeAxes(JsonWriter &out, const std::vector<std::string> &axes) {
  if (axes.size() == 1)
    return out.value(std::string_view(axes[0]));
  out.beginArray();
  for (const std::string &axis : axes)
    out.value(std::string_view(axis));
  out.endArray();
}

static void writeDim(JsonWriter &out, const DimHint &dim) {
  if (dim.open)
    return out.null();
  if (dim.count > 0)
    return out.value(dim.count);
  if (dim.factors.empty() && dim.blocks.empty())
    return writeAxes(out, dim.axes);
  out.beginObject();
  if (!dim.blocks.empty()) {
    out.member("blocks", std::span(dim.blocks));
    out.key("axes");
    out.beginArray();
    for (const std::string &axis : dim.axes)
      out.value(std::string_view(axis));
    out.endArray();
  } else {
    out.member("factors", std::span(dim.factors));
    out.key("axes");
    out.beginArray();
    for (const auto &axes : dim.factorAxes) {
      out.beginArray();
      for (const std::string &axis : axes)
        out.value(std::string_view(axis));
      out.endArray();
    }
    out.endArray();
  }
  out.endObject();
}

static void writeTensor(JsonWriter &out, const TensorHint &tensor) {
  if (!tensor)
    return out.null();
  out.beginArray();
  for (const DimHint &dim : *tensor)
    writeDim(out, dim);
  out.endArray();
}

static std::string nodeText(const NodeHint &hint) {
  JsonWriter out(JsonWriter::Style::Compact);
  out.beginObject();
  for (auto [key, list] : {std::pair("in", &hint.in), std::pair("out", &hint.out)}) {
    if (list->empty())
      continue;
    out.key(key);
    out.beginArray();
    for (const TensorHint &tensor : *list)
      writeTensor(out, tensor);
    out.endArray();
  }
  if (hint.priority != 0)
    out.member("priority", int64_t(hint.priority));
  out.endObject();
  return out.take();
}

static std::string quoted(const std::string &text) {
  JsonWriter out(JsonWriter::Style::Compact);
  out.value(std::string_view(text));
  return out.take();
}

std::string Hints::json() const {
  std::string text;
  auto section = [&](const char *name, const auto &entries, auto entryText) {
    if (entries.empty())
      return;
    text += (text.empty() ? "{\"" : ",\n \"") + std::string(name) + "\": {";
    for (const auto &entry : entries)
      text += (&entry == entries.data() ? "\n  " : ",\n  ") + quoted(entry.glob) + ": " +
              entryText(entry);
    text += "\n}";
  };
  section("nodes", nodes, nodeText);
  section("tensors", tensors, [](const NamedTensorHint &hint) {
    JsonWriter out(JsonWriter::Style::Compact);
    writeTensor(out, hint.dims);
    return out.take();
  });
  section("subgraphs", subgraphs, [](const SubgraphHint &hint) {
    return quoted(std::string(partita::name(hint.mode)));
  });
  section("stages", stages,
          [](const StageHint &hint) { return std::to_string(hint.stage); });
  for (size_t s = 0; s < groups.size(); ++s)
    text += (s > 0          ? ", "
             : text.empty() ? "{\"groups\": ["
                            : ",\n \"groups\": [") +
            std::to_string(groups[s]) + (s + 1 == groups.size() ? "]" : "");
  section("dataset", dataset, [](const DatasetHint &hint) {
    if (hint.kind != DatasetHint::Dims)
      return quoted(hint.kind == DatasetHint::FullBatch ? "full_batch" : "data_parallel");
    JsonWriter out(JsonWriter::Style::Compact);
    out.beginArray();
    for (const auto &axes : hint.dims)
      writeAxes(out, axes);
    out.endArray();
    return out.take();
  });
  section("kept", kept, [](const KeptHint &hint) {
    JsonWriter out(JsonWriter::Style::Compact);
    writeAxes(out, hint.axes);
    return out.take();
  });
  return (text.empty() ? "{" : text) + "}\n";
}
