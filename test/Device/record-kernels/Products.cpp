//===- Products.cpp - Products for a GPU, and what they are on a CPU ------===//
#include "Products.h"

#include "partita/Base/Scalar.h"
#include "partita/Runtime/Plain.h"

#include <random>
#include <sstream>

using namespace partita;

static Expected<int64_t> number(const std::string &text, const std::string &product) {
  char *end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || value < 1)
    return makeError("product '" + product + "': '" + text + "' is no number above 0");
  return value;
}

static std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);)
    parts.push_back(part);
  return parts;
}

namespace {
/// Words behind the shape.
struct How {
  bool turnsA = false, turnsB = false, sharesB = false;
  int64_t batch = 1, pad = 0;
  std::vector<int64_t> tiles;
};
} // namespace

static Expected<void> readWord(const std::string &word, const std::string &text,
                               How &how) {
  auto parts = split(word, '=');
  how.turnsA |= word == "ta", how.turnsB |= word == "tb", how.sharesB |= word == "shared";
  if (word == "ta" || word == "tb" || word == "shared")
    return {};
  if (parts.size() == 2 && (parts[0] == "batch" || parts[0] == "pad")) {
    auto value = number(parts[1], text);
    if (!value)
      return tl::unexpected(value.error());
    (parts[0] == "batch" ? how.batch : how.pad) = *value;
    return {};
  }
  if (parts.size() != 2 || parts[0] != "tiles")
    return makeError("product '" + text + "': '" + word + "' is no word of a product");
  for (const std::string &part : split(parts[1], '/')) {
    auto value = number(part, text);
    if (!value)
      return tl::unexpected(value.error());
    how.tiles.push_back(*value);
  }
  if (how.tiles.size() != 7)
    return makeError("product '" + text + "': expected 7 numbers of tiles");
  return {};
}

Expected<std::pair<task::MatMul, codegen::ProductTiles>>
readProduct(const std::string &text) {
  auto words = split(text, ',');
  auto head = split(words.empty() ? "" : words[0], ':');
  auto type = head.size() == 2 ? dtypeFromName(head[0]) : std::nullopt;
  auto sizes = split(head.size() == 2 ? head[1] : "", 'x');
  if (!type || sizes.size() != 3)
    return makeError("product '" + text + "': expected TYPE:MxNxK");
  task::MatMul p;
  p.dtype = static_cast<uint8_t>(*type);
  for (auto [to, word] :
       {std::pair(&p.m, &sizes[0]), {&p.n, &sizes[1]}, {&p.k, &sizes[2]}}) {
    auto value = number(*word, text);
    if (!value)
      return tl::unexpected(value.error());
    *to = *value;
  }
  How how;
  for (size_t i = 1; i < words.size(); ++i)
    if (auto ok = readWord(words[i], text, how); !ok)
      return tl::unexpected(ok.error());
  const int64_t rowA = (how.turnsA ? p.m : p.k) + how.pad;
  const int64_t rowB = (how.turnsB ? p.k : p.n) + how.pad;
  p.a_row = how.turnsA ? 1 : rowA, p.a_col = how.turnsA ? rowA : 1;
  p.b_row = how.turnsB ? 1 : rowB, p.b_col = how.turnsB ? rowB : 1;
  p.c_row = p.n + how.pad;
  if (how.batch != 1)
    p.batch.push_back({how.batch, rowA * (how.turnsA ? p.k : p.m),
                       how.sharesB ? 0 : rowB * (how.turnsB ? p.n : p.k), p.c_row * p.m});
  codegen::ProductTiles tiles = codegen::tilesFor(p);
  if (const auto &t = how.tiles; !t.empty())
    tiles = {t[0], t[1], t[2], t[3], t[4], t[5], t[6]};
  return std::pair(p, tiles);
}

/// Numbers of which a type keeps all bits, so that a product's error is its sum's.
static std::string drawn(DType type, size_t bytes, std::mt19937_64 &random) {
  std::normal_distribution<float> normal;
  std::string data(bytes, 0);
  visitType(type, [&]<typename T>() {
    for (size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
      T element = store<T>(static_cast<Compute<T>>(normal(random)));
      std::memcpy(data.data() + at, &element, sizeof(T));
    }
  });
  return data;
}

Launch runProduct(const task::MatMul &product, const codegen::TileKernel &made,
                  uint64_t seed) {
  std::mt19937_64 random(seed);
  Launch launch;
  for (const auto *list : {&made.kernel.operands, &made.kernel.outputs})
    for (const codegen::KernelOperand &operand : *list)
      launch.before.push_back(
          drawn(operand.type,
                static_cast<size_t>(codegen::roomOf(made.kernel, operand)) *
                    byteWidth(operand.type),
                random));
  std::vector<std::string> tensors = launch.before;
  void *operands[] = {tensors[0].data(), tensors[1].data(), tensors[2].data(), nullptr,
                      nullptr};
  auto call = plain::matMul(product);
  call->run(**call->frame(), operands, nullptr);
  launch.after = {std::move(tensors[2])};
  return launch;
}
