//===- Manifest.cpp - What a generation is, as JSON -----------------------===//
#include "partita/Runtime/Checkpoint.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/BlockList.h"
#include "partita/Base/Files/Json.h"
#include "partita/Base/Files/JsonWriter.h"

#include <algorithm>
#include <charconv>

using namespace partita;
using namespace partita::runtime;

std::string runtime::partFile(size_t part) {
  return "part-" + std::to_string(part) + ".safetensors";
}
std::string runtime::partBlocks(size_t part) {
  return "part-" + std::to_string(part) + ".blocks";
}

const Manifest::State *Manifest::find(std::string_view name) const {
  auto it = std::ranges::find(states, name, &State::name);
  return it == states.end() ? nullptr : &*it;
}

void runtime::describe(Manifest &manifest, const std::vector<HeldState> &states,
                       const std::vector<std::vector<Piece>> &pieces) {
  manifest.parts.clear(), manifest.states.clear();
  for (const HeldState &state : states)
    manifest.states.push_back({state.name, state.type, state.shape, state.isWeight});
  for (size_t rank = 0; rank < pieces.size(); ++rank) {
    manifest.parts.push_back({partFile(rank)});
    for (const Piece &piece : pieces[rank])
      manifest.states[piece.state].pieces.push_back({rank, piece.tensor, piece.runs});
  }
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static void write(JsonWriter &out, const Runs &runs) {
  out.beginArray();
  for (const std::vector<DimRun> &dim : runs) {
    out.beginArray();
    for (const DimRun &run : dim) {
      out.beginArray();
      out.value(run.global);
      out.value(run.length);
      out.endArray();
    }
    out.endArray();
  }
  out.endArray();
}

static void write(JsonWriter &out, const Manifest::State &state) {
  out.beginObject();
  out.member("name", std::string_view(state.name));
  out.member("type", name(state.type));
  out.member("shape", std::span<const int64_t>(state.shape));
  out.member("kind", std::string_view(state.isWeight ? "weight" : "optimizer"));
  out.key("pieces");
  out.beginArray();
  for (const Manifest::SavedPiece &piece : state.pieces) {
    out.beginObject();
    out.member("part", static_cast<int64_t>(piece.part));
    out.member("tensor", std::string_view(piece.tensor));
    out.key("runs");
    write(out, piece.runs);
    out.endObject();
  }
  out.endArray();
  out.endObject();
}

static void write(JsonWriter &out, const RunIdentity &run) {
  // Numbers of 64 bits without sign are text: many readers of JSON have 53 bits.
  out.member("seed", std::string_view(std::to_string(run.seed)));
  out.member("batch", run.batch);
  out.member("last", std::string_view(run.padsLast ? "pad" : "drop"));
  out.member("rows", run.rows);
  out.member("data", std::string_view(run.data));
  out.member("model", std::string_view(run.model));
  out.member("plan", std::string_view(run.plan));
  out.member("specification_hash",
             std::string_view(hashOf(std::as_bytes(std::span(run.specification))).str()));
  out.member("specification", std::string_view(run.specification));
  out.member("model_file", std::string_view(run.modelFile));
}

std::string Manifest::json() const {
  JsonWriter out(JsonWriter::Style::Compact);
  out.beginObject();
  out.member("format", checkpointFormat);
  out.member("partita", partitaVersion());
  out.member("step", step);
  out.member("epoch", cursor.epoch);
  out.member("example", cursor.example);
  out.member("incarnation", std::string_view(incarnation));
  out.key("run");
  out.beginObject();
  write(out, run);
  out.endObject();
  out.key("changes");
  out.beginArray();
  for (const AllowedChange &change : changes) {
    out.beginObject();
    out.member("step", change.step);
    out.member("name", std::string_view(change.name));
    out.member("was", std::string_view(change.was));
    out.member("is", std::string_view(change.is));
    out.endObject();
  }
  out.endArray();
  if (owesEvaluation)
    out.member("owes_evaluation", true);
  if (best) {
    out.key("best");
    out.beginObject();
    out.member("name", std::string_view(best->name));
    out.member("step", best->step);
    out.member("loss", best->loss);
    out.member("data", std::string_view(best->data));
    out.endObject();
  }
  out.key("parts");
  out.beginArray();
  for (const Part &part : parts) {
    out.beginObject();
    out.member("file", std::string_view(part.file));
    out.member("bytes", part.bytes);
    out.endObject();
  }
  out.endArray();
  out.key("states");
  out.beginArray();
  for (const State &state : states)
    write(out, state);
  out.endArray();
  out.endObject();
  return out.take() + "\n";
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {

/// Reads members one after the other; the first error stays.
class Reader {
public:
  explicit Reader(JsonValue value) : value(std::move(value)) {}

  void number(std::string_view key, int64_t &into, int64_t low, int64_t high) {
    if (auto member = at(key))
      set(member->asInteger(low, high), into);
  }
  void text(std::string_view key, std::string &into) {
    if (auto member = at(key))
      set(member->asString(), into);
  }
  void real(std::string_view key, double &into) {
    if (auto member = at(key))
      set(member->asNumber(), into);
  }
  /// `read` takes an element of the array.
  void each(std::string_view key, auto read) {
    auto member = at(key);
    if (!member)
      return;
    std::vector<JsonValue> elements;
    set(member->elements(), elements);
    for (const JsonValue &element : elements)
      if (ok)
        ok = read(element);
  }
  std::optional<JsonValue> at(std::string_view key) {
    if (!ok)
      return std::nullopt;
    auto member = value.at(key);
    if (member)
      return std::move(*member);
    ok = tl::unexpected(member.error());
    return std::nullopt;
  }
  void fail(std::string_view key, const std::string &message) {
    if (auto member = at(key))
      ok = member->error(message);
  }
  const Expected<void> &result() const { return ok; }

private:
  template <typename T> void set(Expected<T> read, T &into) {
    if (read)
      into = std::move(*read);
    else
      ok = tl::unexpected(read.error());
  }
  JsonValue value;
  Expected<void> ok;
};

} // namespace

static constexpr int64_t mostNumber = int64_t(1) << 53;

/// The runs of a dim are apart, ascend in the piece, and lie in the dim.
static Expected<void> readRuns(const JsonValue &value, int64_t extent,
                               std::vector<DimRun> &runs) {
  auto list = value.elements();
  if (!list)
    return tl::unexpected(list.error());
  int64_t at = 0;
  for (const JsonValue &element : *list) {
    auto pair = element.asIntegers();
    if (!pair)
      return tl::unexpected(pair.error());
    if (pair->size() != 2 || (*pair)[0] < 0 || (*pair)[1] < 1 || (*pair)[0] > extent ||
        (*pair)[1] > extent - (*pair)[0])
      return element.error("expected a place and a length in a dim of " +
                           std::to_string(extent));
    runs.push_back({(*pair)[0], at, (*pair)[1]});
    at += (*pair)[1];
  }
  return {};
}

static Expected<void> readPiece(const JsonValue &value, const Manifest &manifest,
                                Manifest::State &state) {
  Reader reader(value);
  Manifest::SavedPiece piece;
  int64_t part = 0;
  reader.number("part", part, 0, static_cast<int64_t>(manifest.parts.size()) - 1);
  reader.text("tensor", piece.tensor);
  reader.each("runs", [&](const JsonValue &dim) -> Expected<void> {
    if (piece.runs.size() == state.shape.size())
      return dim.error("expected runs of " + std::to_string(state.shape.size()) +
                       " dims");
    int64_t extent = state.shape[piece.runs.size()];
    return readRuns(dim, extent, piece.runs.emplace_back());
  });
  if (piece.runs.size() != state.shape.size())
    reader.fail("runs",
                "expected runs of " + std::to_string(state.shape.size()) + " dims");
  piece.part = static_cast<size_t>(part);
  state.pieces.push_back(std::move(piece));
  return reader.result();
}

static Expected<void> readState(const JsonValue &value, Manifest &manifest) {
  Reader reader(value);
  Manifest::State state;
  std::string type, kind;
  reader.text("name", state.name);
  reader.text("type", type);
  reader.text("kind", kind);
  reader.each("shape", [&](const JsonValue &extent) -> Expected<void> {
    auto number = extent.asInteger(0, mostNumber);
    state.shape.push_back(number.value_or(0));
    return number ? Expected<void>() : tl::unexpected(number.error());
  });
  if (auto known = dtypeFromName(type))
    state.type = *known;
  else
    reader.fail("type", "'" + type + "' is no element type");
  state.isWeight = kind == "weight";
  reader.each("pieces",
              [&](const JsonValue &piece) { return readPiece(piece, manifest, state); });
  uint64_t count = 0, whole = 1;
  for (int64_t extent : state.shape)
    if (__builtin_mul_overflow(whole, static_cast<uint64_t>(extent), &whole))
      reader.fail("shape", "the shape overflows");
  for (const Manifest::SavedPiece &piece : state.pieces)
    if (reader.result())
      count += static_cast<uint64_t>(elementCount(extentsOf(piece.runs)));
  if (reader.result() && count != whole)
    reader.fail("pieces", "the pieces of '" + state.name + "' have " +
                              std::to_string(count) + " elements, the state has " +
                              std::to_string(whole));
  manifest.states.push_back(std::move(state));
  return reader.result();
}

static Expected<void> readRun(const JsonValue &value, RunIdentity &run) {
  Reader reader(value);
  std::string seed, last, hash;
  reader.text("seed", seed);
  reader.number("batch", run.batch, 0, mostNumber);
  reader.text("last", last);
  reader.number("rows", run.rows, 0, mostNumber);
  reader.text("data", run.data);
  reader.text("model", run.model);
  reader.text("plan", run.plan);
  reader.text("specification", run.specification);
  reader.text("model_file", run.modelFile);
  auto [end, failed] = std::from_chars(seed.data(), seed.data() + seed.size(), run.seed);
  if (failed != std::errc() || end != seed.data() + seed.size())
    reader.fail("seed", "expected a number as text, got '" + seed + "'");
  run.padsLast = last == "pad";
  return reader.result();
}

static Expected<BestStep> readBest(const JsonValue &value) {
  Reader reader(value);
  BestStep best;
  reader.text("name", best.name);
  reader.number("step", best.step, 0, mostNumber);
  reader.real("loss", best.loss);
  reader.text("data", best.data);
  return reader.result().map([&] { return best; });
}

static Expected<Manifest> parseManifest(std::string_view text, const std::string &path) {
  auto root = parseJson(text, path);
  if (!root)
    return tl::unexpected(root.error());
  Reader reader(*root);
  Manifest manifest;
  reader.number("format", manifest.format, 0, mostNumber);
  if (reader.result() && manifest.format != checkpointFormat)
    return manifest;
  reader.number("step", manifest.step, 0, mostNumber);
  reader.number("epoch", manifest.cursor.epoch, 0, mostNumber);
  reader.number("example", manifest.cursor.example, 0, mostNumber);
  reader.text("incarnation", manifest.incarnation);
  reader.each("changes", [&](const JsonValue &value) {
    Reader change(value);
    AllowedChange &it = manifest.changes.emplace_back();
    change.number("step", it.step, 0, mostNumber);
    change.text("name", it.name);
    change.text("was", it.was);
    change.text("is", it.is);
    return change.result();
  });
  reader.each("parts", [&](const JsonValue &value) {
    Reader part(value);
    Manifest::Part &it = manifest.parts.emplace_back();
    int64_t bytes = 0;
    part.text("file", it.file);
    part.number("bytes", bytes, 0, INT64_MAX);
    it.bytes = static_cast<uint64_t>(bytes);
    if (it.file.find('/') != std::string::npos)
      part.fail("file", "'" + it.file + "' leaves the folder");
    return part.result();
  });
  reader.each("states",
              [&](const JsonValue &value) { return readState(value, manifest); });
  auto run = reader.at("run");
  auto ok = run ? readRun(*run, manifest.run) : reader.result();
  if (ok && root->has("best"))
    ok = root->at("best").and_then(readBest).map(
        [&](BestStep best) { manifest.best = std::move(best); });
  if (ok && root->has("owes_evaluation"))
    ok = root->at("owes_evaluation")
             .and_then([](const JsonValue &value) { return value.asBool(); })
             .map([&](bool owes) { manifest.owesEvaluation = owes; });
  if (!ok)
    return tl::unexpected(ok.error());
  return manifest;
}

Expected<Manifest> runtime::readManifest(const std::string &generation) {
  std::string path = generation + "/manifest.json";
  auto list = readBlockList(generation + "/manifest.blocks");
  if (!list)
    return tl::unexpected(list.error());
  auto file = InputFile::open(path, std::move(*list), "");
  if (!file)
    return tl::unexpected(file.error());
  std::string text((*file)->size(), '\0');
  if (auto ok = (*file)->read(0, std::as_writable_bytes(std::span(text))); !ok)
    return tl::unexpected(ok.error());
  return parseManifest(text, path);
}

Expected<void> runtime::checkFormat(const std::string &generation,
                                    const Manifest &manifest) {
  if (manifest.format == checkpointFormat)
    return {};
  return makeError("'" + generation + "' has format " + std::to_string(manifest.format) +
                   ", this version reads " + std::to_string(checkpointFormat));
}

Expected<void> runtime::checkParts(const std::string &generation,
                                   const Manifest &manifest) {
  for (const Manifest::Part &part : manifest.parts) {
    auto there = InputFile::open(generation + "/" + part.file);
    if (!there)
      return tl::unexpected(there.error());
    if ((*there)->size() != part.bytes)
      return makeError("'" + generation + "/" + part.file + "' has " +
                       std::to_string((*there)->size()) + " bytes, the manifest says " +
                       std::to_string(part.bytes));
  }
  return {};
}
