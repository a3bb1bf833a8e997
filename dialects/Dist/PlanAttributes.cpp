//===- PlanAttributes.cpp - What a module says of its plan ----------------===//
#include "dialects/Dist/PlanAttributes.h"

#include "dialects/Dist/Dist.h"
#include "partita/Base/Bundle/PlanRecord.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace partita;

namespace {
/// A struct as a dictionary, by the `visit` that writes it as JSON.
class AttributeWriter : public RecordWriter<AttributeWriter> {
public:
  explicit AttributeWriter(MLIRContext *context) : builder(context) {}

  void member(std::string_view key, const auto &value) {
    members.push_back(builder.getNamedAttr(StringRef(key), made(value)));
  }

  template <typename T> Attribute record(const T &value) {
    visit(*this, value);
    return builder.getDictionaryAttr(members);
  }

private:
  Attribute made(const std::string &text) { return builder.getStringAttr(text); }
  Attribute made(int64_t number) { return builder.getI64IntegerAttr(number); }
  Attribute made(double number) { return builder.getF64FloatAttr(number); }
  Attribute made(std::same_as<bool> auto flag) { return builder.getBoolAttr(flag); }
  template <typename T> Attribute made(const std::vector<T> &values) {
    SmallVector<Attribute> list;
    for (const T &value : values)
      list.push_back(made(value));
    return builder.getArrayAttr(list);
  }
  template <typename T>
    requires std::is_class_v<T>
  Attribute made(const T &value) {
    return AttributeWriter(builder.getContext()).record(value);
  }

  Builder builder;
  SmallVector<NamedAttribute> members;
};

/// The inverse; the first error stays.
class AttributeReader : public RecordReader<AttributeReader> {
public:
  AttributeReader(DictionaryAttr from, std::string where)
      : from(from), where(std::move(where)) {}

  template <typename T> void member(std::string_view key, T &value) {
    if (Attribute found = from.get(StringRef(key)))
      read(found, value, where + ": " + std::string(key));
    else
      keep(where + ": expected a member '" + std::string(key) + "'");
  }
  bool has(std::string_view key) const { return from.contains(StringRef(key)); }

  template <typename T> void record(T &value) { visit(*this, value); }

  Error first;

private:
  void keep(const std::string &message) {
    if (first.message.empty())
      first.message = message;
  }
  template <typename Kind, typename Use>
  void take(Attribute attribute, const std::string &at, const char *what, Use use) {
    if (auto known = dyn_cast<Kind>(attribute))
      use(known);
    else
      keep(at + ": expected " + what);
  }
  void read(Attribute attribute, std::string &text, const std::string &at) {
    take<StringAttr>(attribute, at, "a text", [&](auto it) { text = it.str(); });
  }
  void read(Attribute attribute, bool &flag, const std::string &at) {
    take<BoolAttr>(attribute, at, "true or false",
                   [&](auto it) { flag = it.getValue(); });
  }
  void read(Attribute attribute, int64_t &number, const std::string &at) {
    take<IntegerAttr>(attribute, at, "an integer", [&](IntegerAttr it) {
      if (it.getType().isSignlessInteger(64))
        number = it.getInt();
      else
        keep(at + ": expected an integer of 64 bits");
    });
  }
  void read(Attribute attribute, double &number, const std::string &at) {
    take<FloatAttr>(attribute, at, "a number",
                    [&](auto it) { number = it.getValueAsDouble(); });
  }
  template <typename T>
  void read(Attribute attribute, std::vector<T> &values, const std::string &at) {
    take<ArrayAttr>(attribute, at, "a list", [&](ArrayAttr list) {
      for (auto [i, element] : llvm::enumerate(list))
        read(element, values.emplace_back(), at + "[" + std::to_string(i) + "]");
    });
  }
  template <typename T>
    requires std::is_class_v<T>
  void read(Attribute attribute, T &value, const std::string &at) {
    take<DictionaryAttr>(attribute, at, "a dictionary", [&](DictionaryAttr it) {
      AttributeReader inner(it, at);
      inner.record(value);
      if (!inner.first.message.empty())
        keep(inner.first.message);
    });
  }

  DictionaryAttr from;
  std::string where;
};
} // namespace

template <typename T> static void state(ModuleOp module, StringRef name, const T &value) {
  module->setAttr(name, AttributeWriter(module.getContext()).record(value));
}

template <typename T>
static Expected<std::optional<T>> stated(ModuleOp module, StringRef name) {
  auto known = module->getAttrOfType<DictionaryAttr>(name);
  if (!known)
    return std::nullopt;
  T value;
  AttributeReader reader(known, name.str());
  reader.record(value);
  if (!reader.first.message.empty())
    return tl::unexpected(reader.first);
  return value;
}

void dist::setCertificate(ModuleOp module, const PlanCertificate &certificate) {
  state(module, certificateAttr, certificate);
}

Expected<std::optional<PlanCertificate>> dist::certificateOf(ModuleOp module) {
  return stated<PlanCertificate>(module, certificateAttr);
}

void dist::setFacts(ModuleOp module, const PlanFacts &facts) {
  state(module, planAttr, facts);
}

Expected<std::optional<PlanFacts>> dist::factsOf(ModuleOp module) {
  return stated<PlanFacts>(module, planAttr);
}
