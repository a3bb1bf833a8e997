//===- LayoutText.h - The text of layouts, piece by piece -------*- C++ -*-===//
//
// The grammar of layouts, for readers of texts that have layouts in them (strategies,
// rules). A whole layout is read with Layout::parse.
//
//   layout  ::= '[' (dim (',' dim)*)? ']' ('partial' partial (',' partial)*)?
//   dim     ::= factor ('*' factor)*
//   factor  ::= '{' size ('/' padded | '=' block ('+' block)*)? (':' axis (',' axis)*)?
//               '}'
//   partial ::= kind '{' axis (',' axis)* '}'
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_LAYOUT_LAYOUTTEXT_H
#define PARTITA_BASE_LAYOUT_LAYOUTTEXT_H

#include "partita/Base/Layout/Layout.h"

namespace partita {

/// Recursive descent over one text. Every method reads at the current place, moves past
/// what it has read, and returns an error that quotes the text and the column otherwise.
class LayoutReader {
public:
  /// `what` is what the text is called in errors: "layout", "strategy".
  LayoutReader(std::string_view text, const Mesh &mesh, std::string_view what)
      : text(text), mesh(mesh), what(what) {}

  /// Moves past white space and `token`; false, and nothing but space read, if something
  /// else stands here.
  bool eat(std::string_view token);
  /// Whether a digit comes next.
  bool atDigit();
  /// Whether '{' comes next, and whether a digit follows it.
  bool atBrace();
  bool atSizedFactor();
  bool atEnd();
  tl::unexpected<Error> fail(const std::string &problem) const;

  Expected<int64_t> integer();
  /// Letters, digits and _.
  Expected<std::string> identifier();
  Expected<ReduceKind> kind();
  /// One axis, up to one of ",}", which must follow.
  Expected<AxisRef> axis();
  /// '{' axis (',' axis)* '}'
  Expected<AxisList> axisSet();
  Expected<DimLayout> dim();
  Expected<PartialAxes> partial();

private:
  void skipSpace();
  Expected<DimFactor> factor();
  Expected<void> axes(AxisList &into);
  Expected<void> blocks(std::vector<int64_t> &into);

  std::string_view text;
  const Mesh &mesh;
  std::string_view what;
  size_t at = 0;
};

/// One dim as Layout::str writes it: "{3}*{768: tp}".
std::string dimText(const Mesh &mesh, const DimLayout &dim);

} // namespace partita

#endif // PARTITA_BASE_LAYOUT_LAYOUTTEXT_H
