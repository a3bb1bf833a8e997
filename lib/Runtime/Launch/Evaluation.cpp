//===- Evaluation.cpp - Loss of rows that are held out --------------------===//
#include "Evaluation.h"

#include "StopSignal.h"
#include "partita/Base/Bundle/Evaluation.h"
#include "partita/Base/Scalar.h"

#include <algorithm>

using namespace partita;
using namespace partita::runtime;

/// The options of a run as those of one on the rows that are held out: every row comes
/// once, whatever the batch is.
static RunOptions evaluatedOptions(const RunOptions &options) {
  RunOptions own = options;
  own.data.files = options.data.evaluation.files;
  own.data.last = LastBatch::Pad;
  own.data.batch.reset();
  return own;
}

static Expected<DataFeed> openFeed(const RunOptions &options,
                                   const EntryInterface &entry) {
  return DataFeed::open(evaluatedOptions(options), entry, /*isHeldOut=*/true)
      .and_then([&](DataFeed feed) -> Expected<DataFeed> {
        const int64_t batch = feed.batch();
        if (feed.numRows() % batch != 0 && !feed.weighsRows())
          return makeError("--eval " + fileText(options.data.evaluation.files) +
                           ": it has " + std::to_string(feed.numRows()) +
                           " rows, which batches of " + std::to_string(batch) +
                           " do not divide, and of a loss that the model computes it is "
                           "not known what rows add to it");
        return feed;
      });
}

/// An error if no label of the file counts.
static Expected<void> checkLabels(const DataFeed &feed, const std::string &file) {
  const int64_t rows = feed.numRows(), batch = feed.batch();
  for (int64_t begin = 0; begin < rows; begin += batch) {
    auto taken = std::make_shared<std::vector<int64_t>>();
    for (int64_t row = begin; row < std::min(rows, begin + batch); ++row)
      taken->push_back(row);
    auto count = feed.countLabels(taken);
    if (!count)
      return tl::unexpected(count.error());
    if (!*count || **count > 0)
      return {};
  }
  return makeError("--eval " + file +
                   ": no label counts, as all are \"ignore_index\" of the training file");
}

/// The entry that evaluates the rows of the file: the one beside the step that is trained
/// if it takes them, else the first that does. An error is of the one beside the step.
static Expected<size_t> chooseEvaluation(const RunOptions &options,
                                         const std::vector<EntryInterface> &entries) {
  const std::string own = evaluationName(options.entry);
  std::optional<size_t> chosen;
  std::optional<Error> failure;
  for (size_t k = 0; k < entries.size(); ++k) {
    const std::string &name = entries[k].info.name;
    if (!isEvaluation(name))
      continue;
    auto feed = openFeed(options, entries[k]);
    if (feed && (!chosen || name == own))
      chosen = k;
    if (!feed && (!failure || name == own))
      failure = feed.error();
  }
  if (chosen)
    return *chosen;
  if (failure)
    return tl::unexpected(*failure);
  return makeError("--eval: '" + options.bundle + "' has no entry '" + evaluationEntry +
                   "'; compile it with \"evaluate\": true in the training file");
}

Expected<void> runtime::checkEvaluation(const RunOptions &options) {
  const std::vector<std::string> &files = options.data.evaluation.files;
  if (files.empty())
    return {};
  auto entries = entryInterfaces(options.bundle);
  if (!entries)
    return tl::unexpected(entries.error());
  if (isEvaluation(options.entry))
    return makeError("--eval: the entry '" + options.entry +
                     "' trains nothing that could be evaluated");
  auto own = chooseEvaluation(options, *entries);
  if (!own)
    return tl::unexpected(own.error());
  auto feed = openFeed(options, (*entries)[*own]);
  return feed ? checkLabels(*feed, fileText(files)) : tl::unexpected(feed.error());
}

Evaluation::Evaluation(Session &session, const RunOptions &options, RankProgress *used,
                       size_t entry, DataFeed feed)
    : session(&session), given(&options), options(&options.data.evaluation), used(used),
      entry(entry), feed(std::move(feed)),
      weights(static_cast<size_t>(this->feed.batch())) {}

namespace {
/// Makes a session be about another entry for a time.
class Selected {
public:
  Selected(Session &session, RankProgress *used, size_t entry)
      : session(session), used(used), before(session.entry()) {
    use(entry);
  }
  ~Selected() { use(before); }
  Selected(const Selected &) = delete;
  Selected &operator=(const Selected &) = delete;

private:
  void use(size_t entry) {
    session.select(entry);
    if (used)
      used->task.store(static_cast<uint32_t>(entry));
  }
  Session &session;
  RankProgress *used;
  size_t before;
};
} // namespace

Expected<Evaluation> Evaluation::open(Session &session, const RunOptions &options,
                                      RankProgress *used) {
  std::vector<EntryInterface> loaded;
  for (size_t k = 0; k < session.entries().size(); ++k) {
    Selected selected(session, used, k);
    loaded.push_back({session.info(), session.inputs(), session.outputs()});
  }
  auto entry = chooseEvaluation(options, loaded);
  if (!entry)
    return tl::unexpected(entry.error());
  Selected selected(session, used, *entry);
  auto feed = openFeed(options, {session.info(), session.inputs(), session.outputs()});
  if (!feed)
    return tl::unexpected(feed.error());
  auto sample = feed->agree(session, "--eval");
  if (!sample)
    return tl::unexpected(sample.error());
  Evaluation made(session, options, used, *entry, std::move(*feed));
  made.hash = std::to_string(made.feed.numRows()) + " rows, " + sample->str();
  made.from.resize(session.inputs().size());
  for (size_t k = 0; k < made.from.size(); ++k)
    if (session.inputs()[k].name == rowWeightsInput)
      made.from[k] = reinterpret_cast<const std::byte *>(made.weights.data());
  for (const TensorInfo &info : session.outputs())
    made.outputs.push_back(HostTensor::zeros(info.type, info.shape));
  for (HostTensor &output : made.outputs)
    made.to.push_back(output.bytes.data());
  return made;
}

/// The first rows fill the last batch, and do not count there.
Expected<void> Evaluation::runBatch(int64_t begin) {
  const int64_t rows = feed.numRows(), batch = feed.batch();
  auto taken = std::make_shared<std::vector<int64_t>>();
  for (int64_t i = 0; i < batch; ++i) {
    taken->push_back((begin + i) % rows);
    weights[static_cast<size_t>(i)] = begin + i < rows ? 1 : 0;
  }
  if (auto read = session->readInputs(feed.inputs(taken)); !read)
    return tl::unexpected(read.error());
  if (auto ok = session->run(from, to); !ok)
    return ok;
  if (!session->isRoot())
    return {};
  double loss = 0, count = static_cast<double>(batch);
  for (size_t k = 0; k < outputs.size(); ++k) {
    double value = visitType(outputs[k].type, [&]<typename T>() {
      return static_cast<double>(load(*outputs[k].data<T>()));
    });
    (session->outputs()[k].name == countedOutput ? count : loss) = value;
  }
  if (count > 0)
    sum += loss * count, counted += count;
  return {};
}

Expected<EvaluationEnd> Evaluation::run() {
  Selected selected(*session, used, entry);
  sum = counted = 0;
  for (int64_t begin = 0; begin < feed.numRows(); begin += feed.batch()) {
    // Little time is left from a signal on.
    int64_t signal[] = {keptStopSignal()};
    if (auto ok = session->agree(signal); !ok)
      return tl::unexpected(ok.error());
    if (signal[0] != 0)
      return EvaluationEnd{0, static_cast<int>(signal[0])};
    if (auto ok = runBatch(begin); !ok)
      return tl::unexpected(ok.error());
    if (auto ok = checkFinite(*session, *given, "evaluation"); !ok)
      return tl::unexpected(ok.error());
  }
  return EvaluationEnd{sum / counted, 0};
}
