//===- DataFeed.h - Rows of a data file as inputs ---------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_DATAFEED_H
#define PARTITA_LIB_RUNTIME_LAUNCH_DATAFEED_H

#include "Internal.h"

namespace partita::runtime {

/// The tensors of an entry's inputs. Those that the options name by --input are the same
/// in every request; of the others a request takes rows.
class DataFeed {
public:
  /// An error if the files do not have what the entry takes. `isHeldOut`: the files are
  /// those of --eval, and the weights of rows are no tensor of them.
  static Expected<DataFeed> open(const RunOptions &options, const EntryInterface &entry,
                                 bool isHeldOut = false);

  /// sampleHash() of all processes; an error on all of them if the rows of one differ
  /// from those of rank 0, as where a host has other files. `option`: "--data" or
  /// "--eval".
  Expected<Hash128> agree(Session &session, const std::string &option) const;

  int64_t batch() const { return rowsOfBatch; }
  DataOrder order(const DataOptions &options) const {
    return {rows, rowsOfBatch, options.seed, options.last};
  }
  int64_t numRows() const { return rows; }
  bool weighsRows() const { return hasWeights; }
  /// Hash of names, types, shapes, and of a sample of the bytes of all sources, which
  /// tells other data, wherever the files are.
  Expected<Hash128> sampleHash() const;
  /// How many labels of these rows count; absent: the bundle is no step whose loss is of
  /// classes.
  Expected<std::optional<int64_t>>
  countLabels(const std::shared_ptr<const std::vector<int64_t>> &taken) const;
  /// For Session::readInputs.
  std::vector<std::optional<StoredTensor>>
  inputs(const std::shared_ptr<const std::vector<int64_t>> &taken) const;

private:
  struct Source {
    std::string name;                   ///< of the input
    std::optional<StoredTensor> tensor; ///< absent: weights of rows
    bool isFixed = false;
  };
  Expected<void> addFixed(const TensorInfo &info, const std::string &path);
  /// `files` are sorted names.
  Expected<void> addRows(const TensorInfo &info, const std::vector<std::string> &files);
  Expected<void> checkRows(const DataOptions &options, bool isHeldOut) const;
  void findLabels(const std::string &bundle);

  std::vector<Source> sources;     ///< by input
  std::string first;               ///< the first input that takes rows
  std::vector<int64_t> rowsOfFile; ///< of `first`
  int64_t rows = 0, rowsOfBatch = 0;
  bool hasWeights = false;
  std::optional<size_t> labels;   ///< of `sources`
  std::optional<int64_t> ignored; ///< a label that does not count
};

/// Names and patterns as messages tell them.
std::string fileText(const std::vector<std::string> &given);

/// Sets the entry and the number of steps (with checkpoints the epochs stay, as how many
/// steps they have depends on where the run begins); with several entries the one that
/// takes rows of these files and batches of this size.
Expected<void> chooseForData(RunOptions &options);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_DATAFEED_H
