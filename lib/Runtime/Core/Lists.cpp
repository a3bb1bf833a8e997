//===- Lists.cpp - Tasks that read a list ---------------------------------===//
#include "ExecutorOp.h"

#include <algorithm>

using namespace partita;
using namespace partita::runtime;

Expected<void> Executor::prepareList(Op &op, const task::Rows &p) {
  auto width = static_cast<int64_t>(byteWidth(static_cast<DType>(p.dtype)));
  op.work = ListWork{p.inner * width, p.put};
  // Whatever the table lets its elements be.
  for (Op::Read &read : op.reads)
    read.most = std::min(read.most, read.isList ? p.extent - 1 : p.count);
  bool isFixed = op.reads.empty() || !op.reads[0].isList;
  if (isFixed && op.list[0] >= p.extent)
    return makeError("its list says row " + std::to_string(op.list[0]) + " of " +
                     std::to_string(p.extent));
  if (op.scalars.size() > 1 && op.scalars[1] > p.count)
    return makeError("its list has " + std::to_string(p.count) + " rows, it is to take " +
                     std::to_string(op.scalars[1]));
  return {};
}

/// Rows that follow each other at both ends are one copy.
bool Executor::runList(const Op &op, const ListWork &list) noexcept {
  auto count = static_cast<int64_t>(op.list.size());
  if (op.scalars.size() > 1)
    count = op.scalars[1];
  auto *source = static_cast<const std::byte *>(op.addresses[0]);
  auto *target = static_cast<std::byte *>(op.addresses[1]);
  bool ok = true;
  for (int64_t first = 0, next; first < count && ok; first = next) {
    const int64_t *row = op.list.data() + first;
    for (next = first + 1; next < count && row[next - first] == row[0] + next - first;)
      ++next;
    int64_t from = list.put ? first : row[0], to = list.put ? row[0] : first;
    RowsWork rows{.outer = 1, .from = (next - first) * list.rowBytes};
    rows.to = rows.from;
    ok = device.rows(*work, rows, source + from * list.rowBytes,
                     target + to * list.rowBytes);
  }
  return ok;
}

/// False, with word of it, if a member of a ragged call has no room for its rows.
bool Executor::countsFit(const Op &op) noexcept {
  if (op.list.empty())
    return true;
  auto misfit = raggedMisfit(op.ragged, op.list.data());
  if (misfit)
    work->status = {misfit->sends ? sendsTooMany : receivesTooMany, misfit->rows,
                    misfit->sends ? op.ragged.rows : op.ragged.toRows,
                    static_cast<int64_t>(misfit->member)};
  return !misfit;
}
