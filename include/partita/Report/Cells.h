//===- Cells.h - Columns of text --------------------------------*- C++ -*-===//
#ifndef PARTITA_REPORT_CELLS_H
#define PARTITA_REPORT_CELLS_H

#include <algorithm>
#include <string>

namespace partita::report {

/// The text with blanks behind it, `width` bytes in all or one blank more than the text.
inline std::string cell(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

} // namespace partita::report

#endif // PARTITA_REPORT_CELLS_H
