//===- MachineLearning.cpp - Import of ai.onnx.ml's operators -------------===//
#include "passes/Import/MachineLearning.h"

#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

//===-- Attributes and ends -----------------------------------------------===//

std::vector<double> import::tensorAttr(const Node &node, const char *name) {
  const auto *tensor = node.attribute<onnx_model::Tensor>(name);
  if (!tensor)
    return {};
  HostTensor host{tensor->type, tensor->shape, {}};
  host.bytes.assign(tensor->bytes.begin(), tensor->bytes.end());
  return reference::values<double>(host);
}

/// The position of attribute `name` in `words`, the first where it is absent.
Expected<int64_t> import::wordAttr(const Node &node, const char *name,
                                   std::initializer_list<const char *> words,
                                   const char *absent) {
  std::string word = stringAttr(node, name, absent);
  const auto *found = std::find(words.begin(), words.end(), word);
  if (found == words.end())
    return makeError(std::string(name) + " \"" + word + "\" is not known");
  return found - words.begin();
}

std::vector<double> import::numbersAttr(const Node &node, const char *name) {
  std::vector<int64_t> values = intsAttr(node, name, {});
  return {values.begin(), values.end()};
}

Type import::realType(Compose &c, const Node &node) {
  bool isWide = node.attribute<int64_t>("dtype") != nullptr;
  return isWide ? c.builder.getF64Type() : c.f32();
}

/// A list of f32, or a tensor of more precise ones.
std::vector<double> import::realsAttr(const Node &node, const std::string &name) {
  if (const auto *list = node.attribute<std::vector<float>>(name))
    return {list->begin(), list->end()};
  return tensorAttr(node, (name + "_as_tensor").c_str());
}

Expected<int64_t> import::postTransform(const Node &node) {
  return wordAttr(node, "post_transform",
                  {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"}, "NONE");
}

/// The transform of scores [rows, targets]. ONNX names the first three of them; the last
/// two are those of ONNX Runtime: a softmax in which zeros stay zeros, and the inverse of
/// the normal distribution by Winitzki's approximation of the inverse error function.
Value import::transformed(Compose &c, Value y, int64_t how) {
  switch (how) {
  case Softmax:
    return c.op("softmax", y, c.attr("axis", int64_t(1)));
  case Logistic:
    return c.op("sigmoid", y);
  case SoftmaxZero: {
    Value most = c.reduce(ReduceKind::Max, y, {1});
    Value isScore = c.less(c.like(y, 1e-7), c.op("abs", y));
    Value e = c.select(isScore, c.op("exp", c.sub(y, most)),
                       c.mul(y, c.op("exp", c.op("neg", most))));
    return c.div(e, c.sum(e, {1}));
  }
  case Probit: {
    constexpr double a = 0.147, pi = 3.14159265358979;
    Value x = c.sub(c.mul(y, 2), 1);
    Value log = c.op("log", c.mul(c.sub(c.like(x, 1), x), c.add(x, 1)));
    Value half = c.add(c.mul(log, 0.5), 2 / (pi * a));
    Value root = c.sqrt(c.sub(c.mul(half, half), c.mul(log, 1 / a)));
    Value size = c.mul(c.sqrt(c.sub(root, half)), std::sqrt(2.0));
    return c.select(c.less(x, 0), c.op("neg", size), size);
  }
  default:
    return y;
  }
}

/// Rows of features as reals; a list of them is one row.
Value import::features(Compose &c, Value x) {
  Shape shape = c.shape(x);
  if (shape.size() == 1)
    x = c.reshape(x, {1, shape[0]});
  else if (shape.size() != 2)
    return c.fail("its input has " + std::to_string(shape.size()) + " dims, not 2");
  return x && c.type(x).isF64() ? x : c.cast(x, c.f32());
}

Value import::affine(Compose &c, Value x, const std::vector<double> &weights,
                     const std::vector<double> &shift, int64_t targets) {
  if (c.failed())
    return nullptr;
  int64_t count = c.shape(x)[1];
  if (targets < 1 || static_cast<int64_t>(weights.size()) != targets * count)
    return c.fail(std::to_string(weights.size()) + " coefficients for " +
                  std::to_string(count) + " features and " + std::to_string(targets) +
                  " targets");
  if (!shift.empty() && static_cast<int64_t>(shift.size()) != targets)
    return c.fail(std::to_string(shift.size()) + " intercepts for " +
                  std::to_string(targets) + " targets");
  Value rows = c.tensor(c.type(x), {targets, count}, weights);
  Value y = c.take(matMul(c.importer, x, c.transpose(rows, {1, 0})));
  return shift.empty() ? y : c.add(y, c.tensor(c.type(x), {targets}, shift));
}

Expected<std::vector<double>> import::classLabels(const Node &node, const char *name) {
  const auto *words = node.attribute<std::vector<std::string>>("classlabels_strings");
  if (words && !words->empty())
    return makeError("its classes are strings (\"" + words->front() +
                     "\", …), which are no tensor here: convert the model with integer "
                     "labels");
  return numbersAttr(node, name);
}

/// The first place of the largest of each row.
static Value largest(Compose &c, Value y) {
  if (c.failed())
    return nullptr;
  int64_t count = c.shape(y)[1];
  Value best = c.reduce(ReduceKind::Max, y, {1}), places = c.iota(c.i64(), count, 1, 2);
  Value none = c.like(places, static_cast<double>(count));
  return c.min(
      c.reduce(ReduceKind::Min, c.select(c.equal(y, best), places, none), {1}, false),
      static_cast<double>(count - 1));
}

Value import::labelled(Compose &c, Value places, const std::vector<double> &labels) {
  return c.gather(c.tensor(c.i64(), {static_cast<int64_t>(labels.size())}, labels),
                  places, 0);
}

Expected<Values> import::classified(Compose &c, Value y, std::vector<double> labels,
                                    int64_t post, double threshold, bool isChance) {
  if (c.failed())
    return c.results({});
  int64_t count = c.shape(y)[1];
  if (count > 1) {
    if (static_cast<int64_t>(labels.size()) != count)
      return makeError(std::to_string(labels.size()) + " labels for " +
                       std::to_string(count) + " scores");
    return c.results({labelled(c, largest(c, y), labels), transformed(c, y, post)});
  }
  // A single score is that of the second class.
  bool isPair = labels.size() == 2;
  if (!isPair)
    labels = {0, 1};
  Value isSecond = c.op("greater", {c.reshape(y, {c.shape(y)[0]}), c.like(y, threshold)});
  Value label = labelled(c, c.cast(isSecond, c.i64()), labels);
  if (isPair && isChance && post != Logistic)
    y = c.concat({c.sub(c.like(y, 1), y), y}, 1);
  else if (isPair)
    y = c.concat({c.op("neg", y), y}, 1);
  return c.results({label, transformed(c, y, post)});
}

static Expected<Values> importLinear(Importer &importer, const Node &node) {
  Compose c(importer);
  auto post = postTransform(node);
  if (!post)
    return tl::unexpected(post.error());
  std::vector<double> weights = realsAttr(node, "coefficients");
  std::vector<double> shift = realsAttr(node, "intercepts");
  Value x = c.cast(features(c, importer.input(node, 0)), realType(c, node));
  if (node.opType == "LinearRegressor")
    return c.results({transformed(
        c, affine(c, x, weights, shift, intAttr(node, "targets", 1)), *post)});
  auto labels = classLabels(node, "classlabels_ints");
  if (!labels || c.failed())
    return labels ? c.results({}) : tl::unexpected(labels.error());
  int64_t count = static_cast<int64_t>(shift.size());
  if (shift.empty())
    count = static_cast<int64_t>(weights.size()) / std::max<int64_t>(1, c.shape(x)[1]);
  return classified(c, affine(c, x, weights, shift, count), *labels, *post, 0, true);
}

//===-- Features ----------------------------------------------------------===//

/// A list of one number for all features, or of one for each.
static Value perFeature(Compose &c, Value x, const std::vector<double> &values,
                        const char *what) {
  Shape shape = c.shape(x);
  auto count = static_cast<int64_t>(values.size());
  if (count == 1)
    return c.like(x, values[0]);
  if (shape.empty() || shape.back() != count)
    return c.fail(std::to_string(count) + " " + what + " for " +
                  std::to_string(shape.empty() ? 1 : shape.back()) + " features");
  return c.tensor(c.type(x), {count}, values);
}

static Expected<Values> importScaler(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = c.cast(importer.input(node, 0), realType(c, node));
  if (std::vector<double> offset = realsAttr(node, "offset"); !offset.empty())
    x = c.sub(x, perFeature(c, x, offset, "offsets"));
  if (std::vector<double> scale = realsAttr(node, "scale"); !scale.empty())
    x = c.mul(x, perFeature(c, x, scale, "scales"));
  return c.results({x});
}

/// Each row by its largest element, or the sum of its sizes or of its squares; a row of
/// which that is 0 stays.
static Expected<Values> importNormalizer(Importer &importer, const Node &node) {
  Compose c(importer);
  auto how = wordAttr(node, "norm", {"MAX", "L1", "L2"}, "MAX");
  if (!how)
    return tl::unexpected(how.error());
  Value x = c.cast(importer.input(node, 0), realType(c, node));
  auto last = static_cast<int64_t>(c.shape(x).size()) - 1;
  if (last < 0)
    return makeError("Normalizer of a scalar");
  Value by = *how == 0   ? c.reduce(ReduceKind::Max, x, {last})
             : *how == 1 ? c.sum(c.op("abs", x), {last})
                         : c.sqrt(c.sum(c.mul(x, x), {last}));
  return c.results({c.div(x, c.select(c.equal(by, 0), c.like(by, 1), by))});
}

static Expected<Values> importImputer(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  bool isReal = x && isa<FloatType>(c.type(x));
  std::vector<double> values = isReal ? realsAttr(node, "imputed_value_floats")
                                      : numbersAttr(node, "imputed_value_int64s");
  double missing = isReal ? floatAttr(node, "replaced_value_float", 0)
                          : static_cast<double>(intAttr(node, "replaced_value_int64", 0));
  if (values.empty())
    return makeError("Imputer without values of its input's type");
  Value isMissing = std::isnan(missing) ? c.op("isnan", x) : c.equal(x, missing);
  return c.results({c.select(isMissing, perFeature(c, x, values, "values"), x)});
}

/// A dim behind the others has an element for each category.
static Expected<Values> importOneHotEncoder(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  std::vector<double> categories = numbersAttr(node, "cats_int64s");
  if (categories.empty())
    return makeError("OneHotEncoder of strings: encode categories as integers");
  Shape shape = c.shape(x);
  shape.push_back(1);
  auto count = static_cast<int64_t>(categories.size());
  Value same = c.equal(c.reshape(c.cast(x, c.i64()), shape),
                       c.tensor(c.i64(), {count}, categories));
  if (intAttr(node, "zeros", 1) == 0)
    return makeError(
        "OneHotEncoder with zeros = 0, which is an error for a category that "
        "is not known");
  return c.results({c.cast(same, realType(c, node))});
}

/// Keys and values of a LabelEncoder, whose names end in their type.
static std::vector<double> column(const Node &node, const std::string &name,
                                  bool &isReal) {
  std::vector<double> values = numbersAttr(node, (name + "_int64s").c_str());
  isReal = values.empty();
  if (isReal)
    if (const auto *list = node.attribute<std::vector<float>>(name + "_floats"))
      values.assign(list->begin(), list->end());
  const auto *tensor = node.attribute<onnx_model::Tensor>(name + "_tensor");
  if (!tensor || !values.empty())
    return values;
  isReal = tensor->type == DType::F32 || tensor->type == DType::F64;
  return tensorAttr(node, (name + "_tensor").c_str());
}

static Expected<Values> importLabelEncoder(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  bool areKeysReal = false, isReal = false;
  std::vector<double> keys = column(node, "keys", areKeysReal);
  std::vector<double> values = column(node, "values", isReal);
  if (keys.empty() || keys.size() != values.size())
    return makeError(
        "LabelEncoder of strings, or of as many keys as values: encode labels "
        "as integers");
  std::vector<double> other = tensorAttr(node, "default_tensor");
  if (other.empty())
    other = {isReal ? floatAttr(node, "default_float", -0.0)
                    : static_cast<double>(intAttr(node, "default_int64", -1))};
  values.insert(values.begin(), other[0]);
  auto count = static_cast<int64_t>(keys.size());
  Shape shape = c.shape(x);
  Shape beside = shape;
  beside.push_back(1);
  x = c.reshape(x, beside);
  Value same = c.equal(x, c.tensor(c.type(x), {count}, keys));
  for (size_t k = 0; k < keys.size(); ++k)
    if (std::isnan(keys[k]) && node.sinceVersion >= 4) { // before, it equals nothing
      Value isHere = c.equal(c.iota(c.i64(), count, 0, 1), static_cast<double>(k));
      same = c.op("or", {same, c.both(isHere, c.op("isnan", x))});
    }
  // The last of equal keys counts.
  Value number =
      c.select(same, c.add(c.iota(c.i64(), count, 0, 1), 1), c.scalar(c.i64(), 0));
  number = c.reduce(ReduceKind::Max, number, {static_cast<int64_t>(shape.size())}, false);
  Value table = c.tensor(isReal ? realType(c, node) : c.i64(), {count + 1}, values);
  return c.results({c.gather(table, number, 0)});
}

static Expected<Values> importFeatureVectorizer(Importer &importer, const Node &node) {
  Compose c(importer);
  std::vector<int64_t> widths = intsAttr(node, "inputdimensions", {});
  Values parts;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Value x = features(c, importer.input(node, i));
    if (c.failed())
      return c.results({});
    if (i < widths.size() && widths[i] != c.shape(x)[1])
      return makeError("input " + std::to_string(i) + " has " +
                       std::to_string(c.shape(x)[1]) + " features, and inputdimensions " +
                       std::to_string(widths[i]));
    parts.push_back(c.cast(x, realType(c, node)));
  }
  return c.results({c.concat(parts, 1)});
}

static Expected<Values> importBinarizer(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Value threshold = c.like(x, floatAttr(node, "threshold", 0));
  return c.results({c.cast(c.op("greater", {x, threshold}), c.type(x))});
}

/// Elements of the last dim by a list of places.
static Expected<Values> importFeatureExtractor(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), places = importer.input(node, 1);
  if (c.shape(x).empty())
    return makeError("ArrayFeatureExtractor of a scalar");
  if (c.shape(x).size() == 1)
    x = c.reshape(x, {1, c.shape(x)[0]});
  places = c.reshape(places, {elementCount(c.shape(places))});
  return c.results({c.gather(x, places, static_cast<int64_t>(c.shape(x).size()) - 1)});
}

void import::addMachineLearning(HandlerTable &table) {
  auto add = [&](const char *name, OperatorImport handler) {
    table[std::string("ai.onnx.ml.") + name] = handler;
  };
  add("LinearClassifier", importLinear);
  add("LinearRegressor", importLinear);
  add("Scaler", importScaler);
  add("Normalizer", importNormalizer);
  add("Imputer", importImputer);
  add("OneHotEncoder", importOneHotEncoder);
  add("LabelEncoder", importLabelEncoder);
  add("FeatureVectorizer", importFeatureVectorizer);
  add("Binarizer", importBinarizer);
  add("ArrayFeatureExtractor", importFeatureExtractor);
  addSupportVectors(table);
  addTrees(table);
}
