//===- ReadLoss.cpp - "loss" of a training specification ------------------===//
#include "Read.h"

using namespace partita;
using namespace partita::train;

// In the order of LossKind.
static constexpr std::string_view kinds[] = {"softmax_cross_entropy", "nll", "mse", "l1",
                                             "bce_with_logits"};
static constexpr uint32_t ofClasses = 0b00011, ofLogits = 0b00001;

static constexpr KindMember members[] = {
    {"axis", ofClasses}, {"ignore_index", ofClasses}, {"label_smoothing", ofLogits}};

static Expected<Loss> readGivenLoss(const JsonValue &value) {
  for (const char *key :
       {"kind", "of", "labels", "axis", "ignore_index", "label_smoothing", "reduction"})
    if (value.has(key))
      return value.error("\"output\" says that the model computes the loss, so \"" +
                         std::string(key) + "\" has no meaning");
  if (auto ok = value.allowOnly({"output"}); !ok)
    return tl::unexpected(ok.error());
  Loss loss;
  loss.kind = LossKind::Output;
  if (auto ok = readMember(value, "output", loss.of, readText); !ok)
    return tl::unexpected(ok.error());
  return loss;
}

static constexpr std::string_view reductions[] = {"mean", "sum"};

static Expected<bool> readReduction(const JsonValue &value) {
  return readName(value, reductions).map([](size_t i) { return i == 0; });
}

Expected<Loss> train::readLoss(const JsonValue &value) {
  if (value.has("output"))
    return readGivenLoss(value);
  if (auto ok = value.allowOnly({"output", "kind", "of", "labels", "axis", "ignore_index",
                                 "label_smoothing", "reduction"});
      !ok)
    return tl::unexpected(ok.error());
  for (const char *key : {"kind", "of", "labels"})
    if (auto member = value.at(key); !member)
      return tl::unexpected(member.error());
  Loss loss;
  size_t kind = 0;
  auto name = [](const JsonValue &v) { return readName(v, kinds); };
  auto integer = [](const JsonValue &v) { return v.asInteger(); };
  auto axis = [](const JsonValue &v) { return v.asInteger(-64, 63); };
  auto ok =
      readMember(value, "kind", kind, name)
          .and_then([&] { return allowOfKind(value, kinds, kind, members); })
          .and_then([&] { return readMember(value, "of", loss.of, readText); })
          .and_then([&] { return readMember(value, "labels", loss.labels, readText); })
          .and_then([&] { return readMember(value, "axis", loss.axis, axis); })
          .and_then([&] {
            return readMember(value, "ignore_index", loss.ignoreIndex, integer);
          })
          .and_then([&] {
            return readMember(value, "label_smoothing", loss.labelSmoothing,
                              readBelowOne);
          })
          .and_then(
              [&] { return readMember(value, "reduction", loss.mean, readReduction); });
  if (!ok)
    return tl::unexpected(ok.error());
  if (loss.labels == loss.of)
    return value.error("\"labels\" names a new input of the training step, but \"" +
                       loss.labels + "\" is the output that the loss is of");
  loss.kind = static_cast<LossKind>(kind);
  return loss;
}

void train::write(JsonWriter &out, const Loss &loss) {
  out.beginObject();
  if (loss.kind == LossKind::Output) {
    out.member("output", std::string_view(loss.of));
    return out.endObject();
  }
  const auto kind = static_cast<size_t>(loss.kind);
  out.member("kind", kinds[kind]);
  out.member("of", std::string_view(loss.of));
  out.member("labels", std::string_view(loss.labels));
  if ((ofClasses >> kind) & 1)
    out.member("axis", loss.axis.value_or(-1)); // left out of two dims alone
  if (loss.ignoreIndex)
    out.member("ignore_index", *loss.ignoreIndex);
  if ((ofLogits >> kind) & 1)
    out.member("label_smoothing", loss.labelSmoothing);
  out.member("reduction", reductions[loss.mean ? 0 : 1]);
  out.endObject();
}
