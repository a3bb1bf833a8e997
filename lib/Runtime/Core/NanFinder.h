//===- NanFinder.h - The first op that made a NaN or infinity ---*- C++ -*-===//
//
// Looks at what each task of a rank reads and writes while a request runs, and remembers
// those whose results are not finite. Behind a request whose outputs or states are not
// finite, a walk from these back to the tasks that wrote what was read leads to those
// that made such numbers of finite ones: an infinity that a mask has, and that no result
// shows, is on no such way.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_CORE_NANFINDER_H
#define PARTITA_LIB_RUNTIME_CORE_NANFINDER_H

#include "KernelTrial.h"
#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Runtime/NotFinite.h"

#include <optional>
#include <set>

namespace partita::runtime {

class NanFinder {
public:
  /// An error if the table has no formulas. It outlives the finder.
  static Expected<std::unique_ptr<NanFinder>> create(const TaskTable &table, int rank,
                                                     ReadPayload readPayload);

  /// Address of each operand of a task; null where it is absent.
  using Addresses = std::span<const std::byte *const>;

  void beginRequest();
  /// Looks around every task that computes, copies or talks.
  void before(size_t task, Addresses addresses);
  void after(size_t task, Addresses addresses);
  /// Tells of what leaves the program for another.
  void sends(DType type, const std::byte *data, uint64_t elements);
  /// An output or state of which elements that are not finite lie in these bytes.
  void ends(const std::byte *data, uint64_t bytes);
  /// Finding of this request, where a result is not finite. `nameAt` says which input,
  /// weight or state lies at an address, as in "input 'x'"; empty: none.
  std::optional<FoundNan>
  endRequest(const std::function<std::string(const std::byte *)> &nameAt);

private:
  /// An operand of a task at hand.
  struct Operand {
    const std::byte *data = nullptr;
    uint64_t bytes = 0; ///< of its buffer
    DType type = DType::F32;
    uint64_t elements = 0; ///< dense ones; of a kernel none: see `access`
    const KernelFormula::Operand *access = nullptr;
    bool reads = false, writes = false, isOwn = true;
    std::vector<std::byte> copy = {}; ///< what was there, where the task writes it
  };
  struct Range {
    const std::byte *begin;
    uint64_t bytes;
    NotFinite count = {};
  };
  /// A task that has written what is not finite.
  struct Record {
    size_t task;
    uint64_t number; ///< of tasks that ran before it in this request
    double time;
    std::vector<Range> reads, writes; ///< those that are not finite
    NotFinite count;                  ///< in what it wrote
    FoundNan found = {};              ///< None: it made none
  };

  NanFinder(const TaskTable &table, int rank, Formulas formulas, ReadPayload readPayload)
      : table(table), formulas(std::move(formulas)), rank(rank),
        readPayload(std::move(readPayload)) {}
  std::vector<Operand> operandsOf(size_t task, Addresses addresses) const;
  NotFinite countIn(size_t task, const Operand &operand) const;
  const KernelFormula *formulaOf(size_t task) const;
  void judge(Record &record) const;
  void judgeKernel(Record &record, const KernelFormula &formula) const;
  void judgeCall(Record &record) const;
  void judgeAsOne(Record &record) const;
  std::string madeText(const Record &record, const MadeName &name,
                       const NotFinite &count) const;
  MadeName nameOf(size_t task, size_t number) const;
  FoundNan at(const Record &record, FoundNan::Origin origin, std::string text) const;
  void addTaint(Record record);
  const Record *writerOf(const Range &range, uint64_t before) const;

  const TaskTable &table;
  Formulas formulas;
  int rank;
  ReadPayload readPayload;
  uint64_t number = 0;
  std::vector<Operand> current;    ///< of the task at hand, before it
  std::vector<Range> currentReads; ///< of these, what is not finite
  struct Flight {
    size_t task = 0;
    std::vector<Range> reads = {};
  };
  std::vector<Flight> flights; ///< by handle
  std::vector<Record> records;
  /// Finite results of which a NaN is behind: an engine's maximum or relu may drop it.
  std::vector<Range> tainted;
  bool isTainted = false; ///< what the task at hand reads
  std::vector<Range> ended;
  bool isResultBad = false;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_NANFINDER_H
