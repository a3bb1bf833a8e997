//===- Pack.cpp - Operands in the order in which tiles read them ----------===//
#include "Blocks.h"

#include <cstring>

using namespace partita;
using namespace partita::gemm;

void gemm::packPanels(const Kernels &kernel, Matrix from, int64_t rows, int64_t columns,
                      float *to) {
  const int64_t panel = rows * panelColumns, whole = columns / panelColumns;
  if (columns % panelColumns)
    std::memset(to + whole * panel, 0, static_cast<size_t>(4 * panel));
  if (from.row == 1) {
    for (int64_t c = 0; c < columns; c += panelColumns)
      kernel.transpose(std::min(panelColumns, columns - c), rows,
                       from.at + c * from.column, from.column, to + c * rows,
                       panelColumns);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float *row = from.at + r * from.row;
    float *at = to + r * panelColumns;
    int64_t c = 0;
    if (from.column == 1)
      for (; c < whole * panelColumns; c += panelColumns, at += panel)
        std::memcpy(at, row + c, 4 * panelColumns);
    for (; c < columns; ++c)
      to[c / panelColumns * panel + r * panelColumns + c % panelColumns] =
          row[c * from.column];
  }
}
