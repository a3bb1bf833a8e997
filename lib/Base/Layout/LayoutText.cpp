//===- LayoutText.cpp - Printing and parsing layouts ----------------------===//
#include "partita/Base/Layout/Layout.h"

#include <algorithm>
#include <charconv>

using namespace partita;

std::string Layout::str(const Mesh &mesh) const {
  std::string text = "[";
  for (size_t d = 0; d < dims.size(); ++d) {
    text += d ? ", " : "";
    for (size_t f = 0; f < dims[d].factors.size(); ++f) {
      const DimFactor &factor = dims[d].factors[f];
      text += (f ? "*{" : "{") + std::to_string(factor.size);
      if (!factor.blocks.empty())
        for (size_t i = 0; i < factor.blocks.size(); ++i)
          text += (i ? "+" : "=") + std::to_string(factor.blocks[i]);
      else if (factor.padded != factor.size)
        text += "/" + std::to_string(factor.padded);
      for (size_t i = 0; i < factor.axes.size(); ++i)
        text += (i ? ", " : ": ") + mesh.str(factor.axes[i]);
      text += "}";
    }
  }
  text += "]";
  for (size_t i = 0; i < partial.size(); ++i)
    text += (i ? ", " : " partial ") + std::string(name(partial[i].kind)) + " " +
            mesh.str(partial[i].axes);
  return text;
}

namespace {
/// Recursive descent over the grammar that str() writes:
///   layout  ::= '[' (dim (',' dim)*)? ']' ('partial' partial (',' partial)*)?
///   dim     ::= factor ('·' factor)*
///   factor  ::= '{' size ('/' padded | '=' block ('+' block)*)? (':' axis (',' axis)*)?
///   '}' partial ::= kind '{' axis (',' axis)* '}'
class Parser {
public:
  Parser(std::string_view text, const Mesh &mesh) : text(text), mesh(mesh) {}

  Expected<Layout> parse() {
    Layout layout;
    if (!eat("["))
      return fail("expected [");
    while (!eat("]")) {
      if (!layout.dims.empty() && !eat(","))
        return fail("expected , or ]");
      Expected<DimLayout> dim = parseDim();
      if (!dim)
        return tl::unexpected(dim.error());
      layout.dims.push_back(std::move(*dim));
    }
    if (eat("partial"))
      do {
        Expected<PartialAxes> entry = parsePartial();
        if (!entry)
          return tl::unexpected(entry.error());
        layout.partial.push_back(std::move(*entry));
      } while (eat(","));
    skipSpace();
    if (at != text.size())
      return fail("unexpected text");
    if (auto ok = layout.verify(mesh); !ok)
      return makeError("in the layout \"" + std::string(text) +
                       "\": " + ok.error().message);
    return layout;
  }

private:
  void skipSpace() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n'))
      ++at;
  }

  bool eat(std::string_view token) {
    skipSpace();
    if (!text.substr(at).starts_with(token))
      return false;
    at += token.size();
    return true;
  }

  tl::unexpected<Error> fail(const std::string &what) const {
    return makeError("in the layout \"" + std::string(text) + "\": " + what +
                     " at column " + std::to_string(at + 1));
  }

  Expected<int64_t> parseInteger() {
    skipSpace();
    int64_t value = 0;
    auto [end, error] =
        std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (error != std::errc())
      return fail("expected an integer");
    at = end - text.data();
    return value;
  }

  Expected<AxisRef> parseAxis() {
    skipSpace();
    size_t end = text.find_first_of(",}", at);
    if (end == std::string_view::npos)
      return fail("expected }");
    Expected<AxisRef> ref = mesh.parseAxis(text.substr(at, end - at));
    if (!ref)
      return makeError("in the layout \"" + std::string(text) +
                       "\": " + ref.error().message);
    at = end;
    return ref;
  }

  Expected<void> parseAxes(AxisList &axes) {
    do {
      Expected<AxisRef> ref = parseAxis();
      if (!ref)
        return tl::unexpected(ref.error());
      axes.push_back(*ref);
    } while (eat(","));
    return {};
  }

  Expected<void> parseBlocks(std::vector<int64_t> &blocks) {
    do {
      Expected<int64_t> block = parseInteger();
      if (!block)
        return tl::unexpected(block.error());
      blocks.push_back(*block);
    } while (eat("+"));
    return {};
  }

  Expected<DimFactor> parseFactor() {
    if (!eat("{"))
      return fail("expected {");
    DimFactor factor;
    Expected<int64_t> size = parseInteger();
    if (!size)
      return tl::unexpected(size.error());
    factor.size = factor.padded = *size;
    if (eat("/")) {
      Expected<int64_t> padded = parseInteger();
      if (!padded)
        return tl::unexpected(padded.error());
      factor.padded = *padded;
    }
    if (eat("="))
      if (auto ok = parseBlocks(factor.blocks); !ok)
        return tl::unexpected(ok.error());
    if (eat(":"))
      if (auto ok = parseAxes(factor.axes); !ok)
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

  Expected<DimLayout> parseDim() {
    DimLayout dim;
    do {
      Expected<DimFactor> factor = parseFactor();
      if (!factor)
        return tl::unexpected(factor.error());
      dim.factors.push_back(std::move(*factor));
    } while (eat("*"));
    return dim;
  }

  Expected<PartialAxes> parsePartial() {
    PartialAxes entry;
    skipSpace();
    size_t end = std::min(text.find_first_of(" {", at), text.size());
    auto kind = reduceKindFromName(text.substr(at, end - at));
    if (!kind)
      return fail("expected sum, max, min or prod");
    entry.kind = *kind;
    at = end;
    if (!eat("{"))
      return fail("expected {");
    if (auto ok = parseAxes(entry.axes); !ok)
      return tl::unexpected(ok.error());
    if (!eat("}"))
      return fail("expected }");
    return entry;
  }

  std::string_view text;
  const Mesh &mesh;
  size_t at = 0;
};
} // namespace

Expected<Layout> Layout::parse(std::string_view text, const Mesh &mesh) {
  return Parser(text, mesh).parse();
}
