//===- LayoutText.cpp - Printing and parsing layouts ----------------------===//
#include "partita/Base/Layout/LayoutText.h"

#include <algorithm>
#include <charconv>

using namespace partita;

static std::string factorText(const Mesh &mesh, const DimFactor &factor) {
  std::string text = "{" + std::to_string(factor.size);
  if (!factor.blocks.empty())
    for (size_t i = 0; i < factor.blocks.size(); ++i)
      text += (i ? "+" : "=") + std::to_string(factor.blocks[i]);
  else if (factor.padded != factor.size)
    text += "/" + std::to_string(factor.padded);
  for (size_t i = 0; i < factor.axes.size(); ++i)
    text += (i ? ", " : ": ") + mesh.str(factor.axes[i]);
  return text + "}";
}

std::string partita::dimText(const Mesh &mesh, const DimLayout &dim) {
  std::string text;
  for (size_t f = 0; f < dim.factors.size(); ++f)
    text += (f ? "*" : "") + factorText(mesh, dim.factors[f]);
  return text;
}

std::string Layout::str(const Mesh &mesh) const {
  std::string text = "[";
  for (size_t d = 0; d < dims.size(); ++d)
    text += (d ? ", " : "") + dimText(mesh, dims[d]);
  text += "]";
  for (size_t i = 0; i < partial.size(); ++i)
    text += (i ? ", " : " partial ") + std::string(name(partial[i].kind)) + " " +
            mesh.str(partial[i].axes);
  return text;
}

//===-- Reading -----------------------------------------------------------===//

void LayoutReader::skipSpace() {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n'))
    ++at;
}

bool LayoutReader::eat(std::string_view token) {
  skipSpace();
  if (!text.substr(at).starts_with(token))
    return false;
  at += token.size();
  return true;
}

bool LayoutReader::atDigit() {
  skipSpace();
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

bool LayoutReader::atBrace() {
  skipSpace();
  return at < text.size() && text[at] == '{';
}

bool LayoutReader::atSizedFactor() {
  if (!atBrace())
    return false;
  size_t begin = at++;
  bool sized = atDigit();
  at = begin;
  return sized;
}

bool LayoutReader::atEnd() {
  skipSpace();
  return at == text.size();
}

tl::unexpected<Error> LayoutReader::fail(const std::string &problem) const {
  return makeError("in the " + std::string(what) + " \"" + std::string(text) +
                   "\": " + problem + " at column " + std::to_string(at + 1));
}

Expected<int64_t> LayoutReader::integer() {
  skipSpace();
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (error != std::errc())
    return fail("expected an integer");
  at = static_cast<size_t>(end - text.data());
  return value;
}

Expected<std::string> LayoutReader::identifier() {
  skipSpace();
  size_t end = at;
  while (end < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
    ++end;
  if (end == at)
    return fail("expected a name");
  std::string name(text.substr(at, end - at));
  at = end;
  return name;
}

Expected<ReduceKind> LayoutReader::kind() {
  skipSpace();
  size_t end = std::min(text.find_first_of(" {(,}", at), text.size());
  auto kind = reduceKindFromName(text.substr(at, end - at));
  if (!kind)
    return fail("expected sum, max, min or prod");
  at = end;
  return *kind;
}

Expected<AxisRef> LayoutReader::axis() {
  skipSpace();
  size_t end = text.find_first_of(",}", at);
  if (end == std::string_view::npos)
    return fail("expected }");
  Expected<AxisRef> ref = mesh.parseAxis(text.substr(at, end - at));
  if (!ref)
    return makeError("in the " + std::string(what) + " \"" + std::string(text) +
                     "\": " + ref.error().message);
  at = end;
  return ref;
}

Expected<void> LayoutReader::axes(AxisList &into) {
  do {
    Expected<AxisRef> ref = axis();
    if (!ref)
      return tl::unexpected(ref.error());
    into.push_back(*ref);
  } while (eat(","));
  return {};
}

Expected<AxisList> LayoutReader::axisSet() {
  AxisList list;
  if (!eat("{"))
    return fail("expected {");
  if (auto ok = axes(list); !ok)
    return tl::unexpected(ok.error());
  if (!eat("}"))
    return fail("expected }");
  return list;
}

Expected<void> LayoutReader::blocks(std::vector<int64_t> &into) {
  do {
    Expected<int64_t> block = integer();
    if (!block)
      return tl::unexpected(block.error());
    into.push_back(*block);
  } while (eat("+"));
  return {};
}

Expected<DimFactor> LayoutReader::factor() {
  if (!eat("{"))
    return fail("expected {");
  DimFactor factor;
  Expected<int64_t> size = integer();
  if (!size)
    return tl::unexpected(size.error());
  factor.size = factor.padded = *size;
  if (eat("/")) {
    Expected<int64_t> padded = integer();
    if (!padded)
      return tl::unexpected(padded.error());
    factor.padded = *padded;
  }
  if (eat("="))
    if (auto ok = blocks(factor.blocks); !ok)
      return tl::unexpected(ok.error());
  if (eat(":"))
    if (auto ok = axes(factor.axes); !ok)
      return tl::unexpected(ok.error());
  if (!eat("}"))
    return fail("expected }");
  if (!factor.blocks.empty() &&
      __builtin_mul_overflow(
          *std::max_element(factor.blocks.begin(), factor.blocks.end()),
          static_cast<int64_t>(factor.blocks.size()), &factor.padded))
    return fail("the blocks are too long");
  return factor;
}

Expected<DimLayout> LayoutReader::dim() {
  DimLayout dim;
  do {
    Expected<DimFactor> next = factor();
    if (!next)
      return tl::unexpected(next.error());
    dim.factors.push_back(std::move(*next));
  } while (eat("*"));
  return dim;
}

Expected<PartialAxes> LayoutReader::partial() {
  auto reduce = kind();
  if (!reduce)
    return tl::unexpected(reduce.error());
  auto list = axisSet();
  if (!list)
    return tl::unexpected(list.error());
  return PartialAxes{*reduce, std::move(*list)};
}

Expected<Layout> Layout::parse(std::string_view text, const Mesh &mesh) {
  LayoutReader reader(text, mesh, "layout");
  Layout layout;
  if (!reader.eat("["))
    return reader.fail("expected [");
  while (!reader.eat("]")) {
    if (!layout.dims.empty() && !reader.eat(","))
      return reader.fail("expected , or ]");
    Expected<DimLayout> dim = reader.dim();
    if (!dim)
      return tl::unexpected(dim.error());
    layout.dims.push_back(std::move(*dim));
  }
  if (reader.eat("partial"))
    do {
      Expected<PartialAxes> entry = reader.partial();
      if (!entry)
        return tl::unexpected(entry.error());
      layout.partial.push_back(std::move(*entry));
    } while (reader.eat(","));
  if (!reader.atEnd())
    return reader.fail("unexpected text");
  if (auto ok = layout.verify(mesh); !ok)
    return makeError("in the layout \"" + std::string(text) +
                     "\": " + ok.error().message);
  return layout;
}
