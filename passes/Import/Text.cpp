//===- Text.cpp - Import of ops on sequences of words ---------------------===//
#include "passes/Import/Compose.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

namespace {
/// Words of one length from TfIdfVectorizer's pool; word i has the number `first` + i.
struct Words {
  int64_t length = 0, first = 0, count = 0;
  std::vector<double> items; ///< count × length
};
} // namespace

/// The pool holds words of 1 item, then those of 2, and so on; `ngram_counts` says where
/// each begins.
static Expected<std::vector<Words>> wordsOf(const Node &node) {
  std::vector<int64_t> pool = intsAttr(node, "pool_int64s", {});
  std::vector<int64_t> begins = intsAttr(node, "ngram_counts", {});
  if (pool.empty())
    return makeError("TfIdfVectorizer of strings");
  std::vector<Words> words;
  int64_t first = 0, size = static_cast<int64_t>(pool.size());
  for (size_t i = 0; i < begins.size(); ++i) {
    int64_t begin = begins[i], end = i + 1 < begins.size() ? begins[i + 1] : size;
    auto length = static_cast<int64_t>(i) + 1;
    if (begin < 0 || end < begin || end > size || (end - begin) % length != 0)
      return makeError("ngram_counts does not cut the pool into words");
    Words some{length, first, (end - begin) / length, {}};
    some.items.assign(pool.begin() + begin, pool.begin() + end);
    first += some.count;
    if (some.count != 0 && length >= intAttr(node, "min_gram_length", 1) &&
        length <= intAttr(node, "max_gram_length", 1))
      words.push_back(std::move(some));
  }
  return words;
}

/// How often each word occurs in the rows of x [N, C] with its items `step` apart: [N,
/// count].
static Value occurrences(Compose &c, Value x, const Words &words, int64_t step) {
  int64_t rows = c.shape(x)[0], starts = c.shape(x)[1] - (words.length - 1) * step;
  if (starts < 1)
    return nullptr;
  Value found;
  for (int64_t j = 0; j < words.length; ++j) {
    std::vector<double> items;
    for (int64_t w = 0; w < words.count; ++w)
      items.push_back(words.items[static_cast<size_t>(w * words.length + j)]);
    Value here = c.reshape(c.slice(x, 1, j * step, j * step + starts), {rows, starts, 1});
    Value same = c.equal(here, c.tensor(c.i64(), {words.count}, items));
    found = found ? c.both(found, same) : same;
  }
  return c.sum(c.cast(found, c.f32()), {1}, false);
}

static Expected<Values> importTfIdf(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  auto words = wordsOf(node);
  if (!words)
    return tl::unexpected(words.error());
  std::vector<int64_t> columns = intsAttr(node, "ngram_indexes", {});
  std::string mode = stringAttr(node, "mode", "TF");
  Shape shape = c.shape(x);
  if (shape.empty() || shape.size() > 2 || columns.empty())
    return makeError("TfIdfVectorizer of rank " + std::to_string(shape.size()));
  int64_t rows = shape.size() == 2 ? shape[0] : 1;
  x = c.reshape(c.cast(x, c.i64()), {rows, shape.back()});
  // Behind the counts a zero, for columns that no word has.
  Values counts;
  std::vector<double> from(
      static_cast<size_t>(*std::max_element(columns.begin(), columns.end()) + 1), -1);
  double at = 0;
  for (const Words &some : *words) {
    Value sum = c.broadcast(c.scalar(c.f32(), 0), {rows, some.count});
    // A word of one item has no distances between its items.
    int64_t most = some.length == 1 ? 0 : intAttr(node, "max_skip_count", 0);
    for (int64_t skip = 0; skip <= most; ++skip)
      if (Value found = occurrences(c, x, some, skip + 1))
        sum = c.add(sum, found);
    counts.push_back(sum);
    for (int64_t w = 0; w < some.count; ++w, ++at)
      if (auto number = static_cast<size_t>(some.first + w); number < columns.size())
        from[static_cast<size_t>(columns[number])] = at;
  }
  counts.push_back(c.broadcast(c.scalar(c.f32(), 0), {rows, 1}));
  std::vector<double> weights(from.size(), 1);
  if (const auto *given = node.attribute<std::vector<float>>("weights"))
    for (size_t i = 0; i < given->size() && i < columns.size(); ++i)
      weights[static_cast<size_t>(columns[i])] = (*given)[i];
  std::replace(from.begin(), from.end(), -1.0, at);
  auto width = static_cast<int64_t>(from.size());
  Value y = c.gather(c.concat(counts, 1), c.tensor(c.i64(), {width}, from), 1);
  if (mode == "IDF")
    y = c.cast(c.op("greater", {y, c.like(y, 0)}), c.f32());
  if (mode != "TF")
    y = c.mul(y, c.tensor(c.f32(), {width}, weights));
  shape.back() = width;
  return c.results({c.reshape(y, shape)});
}

void import::addText(HandlerTable &table) { table["TfIdfVectorizer"] = importTfIdf; }
