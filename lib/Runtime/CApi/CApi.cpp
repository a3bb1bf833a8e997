//===- CApi.cpp - The runtime for C callers -------------------------------===//
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Runtime/CheckpointSession.h"
#include "partita/Runtime/Fit.h"
#include "partita/Runtime/Session.h"
#include "partita/Runtime/StateFile.h"
#include "partita/Runtime/partita_runtime.h"

#include <algorithm>
#include <atomic>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

struct partita_session {
  std::unique_ptr<Session> session;
  std::vector<const std::byte *> inputs;
  std::vector<std::byte *> outputs;
  std::string error;
  /// The ranks are threads of this process: a child that fork() makes has none.
  std::vector<std::string> entries;
  std::vector<EntryInterface> interfaces; ///< of these
  const pid_t process = ::getpid();

  /// What the caller sees of the entry in use: its tensors, or shorter ones.
  std::vector<TensorInfo> givenInputs, givenOutputs;
  /// The outputs with the extents that they had in the last request.
  std::vector<TensorInfo> lastOutputs;
  /// Whole tensors of the entry where the caller's are shorter; else empty.
  std::vector<std::vector<std::byte>> wholeInputs, wholeOutputs;
  /// What the session is given: what is bound, or whole tensors.
  std::vector<const std::byte *> sources;
  std::vector<std::byte *> targets;

  /// Nothing is bound to the entry, which requests with these extents are for.
  void use(size_t entry, const Extents &extents) {
    session->select(entry);
    inputs.assign(session->inputs().size(), nullptr);
    outputs.assign(session->outputs().size(), nullptr);
    sources = inputs, targets = outputs;
    shorten(session->inputs(), extents, givenInputs, wholeInputs);
    shorten(session->outputs(), extents, givenOutputs, wholeOutputs);
    lastOutputs = givenOutputs;
  }
  void shorten(const std::vector<TensorInfo> &own, const Extents &extents,
               std::vector<TensorInfo> &given,
               std::vector<std::vector<std::byte>> &whole) const {
    given = own;
    whole.assign(own.size(), {});
    for (size_t i = 0; i < own.size(); ++i) {
      const auto &all = session->info().dims;
      auto dims = all.find(own[i].name);
      if (dims != all.end())
        given[i].shape = cutShape(own[i].shape, dims->second, extents);
      if (given[i].shape != own[i].shape)
        whole[i].assign(own[i].bytes(), std::byte{0});
    }
  }
  /// One request, by way of whole tensors where the caller's are shorter.
  Expected<void> runWhole() {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (const TensorInfo &own = session->inputs()[i]; !wholeInputs[i].empty())
        copyCommon(inputs[i], givenInputs[i].shape, wholeInputs[i].data(), own.shape,
                   byteWidth(own.type));
    auto ok = session->run(sources, targets);
    for (size_t i = 0; ok && session->isRoot() && i < outputs.size(); ++i) {
      const std::vector<int64_t> &own = session->outputShapes()[i];
      std::vector<int64_t> &last = lastOutputs[i].shape;
      for (size_t d = 0; d < last.size(); ++d)
        last[d] = std::min(givenOutputs[i].shape[d], own[d]);
      if (!wholeOutputs[i].empty())
        copyCommon(targets[i], own, outputs[i], last, byteWidth(lastOutputs[i].type));
    }
    return ok;
  }
  std::atomic<bool> isBusy = false;

  /// Where checkpoints go, once one was saved; goes before the session.
  std::unique_ptr<CheckpointFolder> folder;
  std::unique_ptr<CheckpointSaver> saver;

  /// Prepares saving into this folder, unless it is the one of before.
  Expected<void> saveInto(const std::string &path, int64_t keep) {
    if (saver && folder->path() == path && kept == keep)
      return {};
    if (saver)
      if (auto ok = saver->finish(); !ok)
        return ok;
    saver.reset(), folder.reset();
    auto opened = CheckpointFolder::open(*session, path);
    if (!opened)
      return tl::unexpected(opened.error());
    folder = std::make_unique<CheckpointFolder>(std::move(*opened));
    auto made = CheckpointSaver::create(*session, *folder, {.keep = keep});
    if (!made)
      return tl::unexpected(made.error());
    saver = std::move(*made);
    kept = keep;
    return {};
  }
  /// Waits for the save under way; the failure of one since the last call is an error.
  Expected<void> finishSaving() {
    if (!saver)
      return {};
    if (auto ok = saver->finish(); !ok)
      return ok;
    auto failure = saver->takeFailure();
    return failure ? makeError("no checkpoint was written: " + *failure)
                   : Expected<void>();
  }
  int64_t kept = 0;    ///< generations
  std::string skipped; ///< sentences of the last load

  int fail(std::string message) {
    error = std::move(message);
    return 1;
  }
};

static thread_local std::string loadError;

namespace {
/// What a thread was refused because of another: the session's own error is that one's.
struct Refusal {
  const partita_session *session = nullptr;
  std::string message;
};
thread_local Refusal refusal;

/// One call on a session. False where the session cannot be used now, or here.
class Call {
public:
  explicit Call(partita_session *given) {
    refusal = {};
    if (!given)
      return;
    if (given->process != ::getpid()) {
      refusal = {given, "the session belongs to process " +
                            std::to_string(given->process) +
                            ": its ranks are not in a process made by fork(); load the "
                            "bundle there"};
      return;
    }
    if (given->isBusy.exchange(true)) {
      refusal = {given, "another thread is using the session; one may at a time"};
      return;
    }
    session = given;
  }
  ~Call() {
    if (session)
      session->isBusy = false;
  }
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;
  explicit operator bool() const { return session; }

private:
  partita_session *session = nullptr;
};
} // namespace

const char *partita_version(void) { return partitaVersion().data(); }

partita_session *partita_load(const char *bundle, const partita_load_options *options) {
  SessionOptions o;
  loadError.clear();
  if (options) {
    if (options->size != sizeof(*options)) {
      loadError = "partita_load_options has another size: header and library differ";
      return nullptr;
    }
    std::string transport = options->transport ? options->transport : "local";
    if (transport != "local" && transport != "mpi") {
      loadError = "transport '" + transport + "' is unknown; expected local or mpi";
      return nullptr;
    }
    o.transport = transport == "mpi" ? TransportKind::Mpi : TransportKind::Local;
    if (options->entry)
      o.entry = options->entry;
    if (!(options->timeout >= 0)) {
      loadError = "timeout: expected seconds, or 0 for the default, got " +
                  std::to_string(options->timeout);
      return nullptr;
    }
    if (options->timeout > 0)
      o.timeout = options->timeout;
    if (options->threads < -1) {
      loadError = "threads: expected a number per rank, 0 for as compiled, or -1 for the "
                  "cores divided by the ranks, got " +
                  std::to_string(options->threads);
      return nullptr;
    }
    if (options->threads != 0)
      o.threads = std::max(options->threads, 0);
    if (options->weights_dir)
      o.weights.folder = options->weights_dir;
    o.weights.check = options->no_check == 0;
  }
  auto session = Session::load(bundle ? bundle : "", o);
  if (!session) {
    loadError = session.error().message;
    return nullptr;
  }
  auto *out = new partita_session;
  out->session = std::move(*session);
  out->entries = out->session->entries();
  for (size_t i = 0; i < out->entries.size(); ++i) {
    out->session->select(i);
    out->interfaces.push_back(
        {out->session->info(), out->session->inputs(), out->session->outputs()});
  }
  out->use(0, {});
  return out;
}

void partita_free(partita_session *session) {
  // The threads that it would wait for are in the process that loaded it.
  if (!session || session->process != ::getpid())
    return;
  if (session->saver)
    (void)session->saver->finish();
  delete session;
}

const char *partita_error(const partita_session *session) {
  if (session && refusal.session == session)
    return refusal.message.c_str();
  return session ? session->error.c_str() : loadError.c_str();
}

size_t partita_num_ranks(const partita_session *session) {
  return static_cast<size_t>(session->session->numRanks());
}
size_t partita_num_inputs(const partita_session *session) {
  return session->inputs.size();
}
size_t partita_num_outputs(const partita_session *session) {
  return session->outputs.size();
}

size_t partita_num_entries(const partita_session *session) {
  return session->entries.size();
}
const char *partita_entry_name(const partita_session *session, size_t index) {
  return index < session->entries.size() ? session->entries[index].c_str() : nullptr;
}

int partita_use_entry(partita_session *session, const char *name) {
  Call call(session);
  if (!call)
    return 1;
  std::string known;
  for (size_t i = 0; i < session->entries.size(); ++i) {
    if (name && session->entries[i] == name) {
      session->use(i, {});
      return 0;
    }
    known += (known.empty() ? "'" : ", '") + session->entries[i] + "'";
  }
  return session->fail("there is no entry '" + std::string(name ? name : "") +
                       "'; there are " + known);
}

int partita_fit_entry(partita_session *session, const partita_shape *inputs, size_t count,
                      int pad) {
  Call call(session);
  if (!call)
    return 1;
  Shapes shapes;
  for (size_t i = 0; i < count; ++i) {
    const partita_shape &it = inputs[i];
    if (!it.name || (!it.shape && it.rank != 0))
      return session->fail("shape " + std::to_string(i) + " has no name or no extents");
    shapes[it.name].assign(it.shape, it.shape + it.rank);
  }
  auto choice = chooseEntry(session->interfaces, shapes, pad != 0);
  if (!choice)
    return session->fail(choice.error().message);
  session->use(choice->entry, choice->extents);
  return 0;
}

size_t partita_entry_in_use(const partita_session *session) {
  return session->session->entry();
}

static int describe(const std::vector<TensorInfo> &list, size_t index,
                    partita_tensor_info *info) {
  if (index >= list.size())
    return 1;
  const TensorInfo &t = list[index];
  // The names of types are string literals.
  *info = {t.name.c_str(), name(t.type).data(), t.shape.size(), t.shape.data(),
           t.bytes()};
  return 0;
}

int partita_input_info(const partita_session *session, size_t index,
                       partita_tensor_info *info) {
  return describe(session->givenInputs, index, info);
}
int partita_output_info(const partita_session *session, size_t index,
                        partita_tensor_info *info) {
  return describe(session->givenOutputs, index, info);
}

int partita_output_shape(const partita_session *session, size_t index,
                         partita_tensor_info *info) {
  return describe(session->lastOutputs, index, info);
}

/// The place of the tensor in `list`, or -1 with the session's error set.
static ptrdiff_t find(partita_session *session, const std::vector<TensorInfo> &list,
                      const char *what, const char *wanted, const void *data,
                      size_t bytes) {
  if (!wanted) {
    session->fail("the name of the " + std::string(what) + " is NULL");
    return -1;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].name != wanted)
      continue;
    if (list[i].bytes() == bytes && (data || bytes == 0))
      return static_cast<ptrdiff_t>(i);
    if (list[i].bytes() == bytes) {
      session->fail(std::string(what) + " '" + wanted + "': the data is NULL");
      return -1;
    }
    session->fail(std::string(what) + " '" + wanted + "' has " +
                  std::to_string(list[i].bytes()) + " bytes, got " +
                  std::to_string(bytes));
    return -1;
  }
  std::string known;
  for (const TensorInfo &t : list)
    known += (known.empty() ? "" : ", ") + t.name;
  session->fail("there is no " + std::string(what) + " '" + wanted + "'; there are " +
                known);
  return -1;
}

int partita_bind_input(partita_session *session, const char *name, const void *data,
                       size_t bytes) {
  Call call(session);
  if (!call)
    return 1;
  ptrdiff_t i = find(session, session->givenInputs, "input", name, data, bytes);
  if (i < 0)
    return 1;
  auto at = static_cast<size_t>(i);
  session->inputs[at] = static_cast<const std::byte *>(data);
  session->sources[at] = session->wholeInputs[at].empty()
                             ? session->inputs[at]
                             : session->wholeInputs[at].data();
  return 0;
}

int partita_bind_output(partita_session *session, const char *name, void *data,
                        size_t bytes) {
  Call call(session);
  if (!call)
    return 1;
  ptrdiff_t i = find(session, session->givenOutputs, "output", name, data, bytes);
  if (i < 0)
    return 1;
  auto at = static_cast<size_t>(i);
  session->outputs[at] = static_cast<std::byte *>(data);
  session->targets[at] = session->wholeOutputs[at].empty()
                             ? session->outputs[at]
                             : session->wholeOutputs[at].data();
  return 0;
}

size_t partita_num_states(const partita_session *session) {
  return session->session->states().size();
}
int partita_state_info(const partita_session *session, size_t index,
                       partita_tensor_info *info) {
  return describe(session->session->states(), index, info);
}

int partita_read_state(partita_session *session, const char *name, void *data,
                       size_t bytes) {
  Call call(session);
  if (!call)
    return 1;
  // Only the root is given the state.
  static const char nowhere = 0;
  ptrdiff_t i = find(session, session->session->states(), "state", name,
                     session->session->isRoot() ? data : &nowhere, bytes);
  if (i < 0)
    return 1;
  auto ok =
      session->session->readState(static_cast<size_t>(i), static_cast<std::byte *>(data));
  return ok ? 0 : session->fail(ok.error().message);
}

int partita_write_state(partita_session *session, const char *name, const void *data,
                        size_t bytes) {
  Call call(session);
  if (!call)
    return 1;
  ptrdiff_t i = find(session, session->session->states(), "state", name, data, bytes);
  if (i < 0)
    return 1;
  auto ok = session->session->writeState(static_cast<size_t>(i),
                                         static_cast<const std::byte *>(data));
  return ok ? 0 : session->fail(ok.error().message);
}

int partita_reset_states(partita_session *session) {
  Call call(session);
  if (!call)
    return 1;
  auto ok = session->session->resetStates();
  return ok ? 0 : session->fail(ok.error().message);
}

int partita_save_states(partita_session *session, const char *path) {
  Call call(session);
  if (!call)
    return 1;
  auto ok = saveStates(*session->session, path ? path : "");
  return ok ? 0 : session->fail(ok.error().message);
}

int partita_load_states(partita_session *session, const char *path) {
  Call call(session);
  if (!call)
    return 1;
  auto ok = loadStates(*session->session, path ? path : "");
  return ok ? 0 : session->fail(ok.error().message);
}

int partita_save_checkpoint(partita_session *session, const char *folder, int64_t step,
                            int64_t keep) {
  Call call(session);
  if (!call)
    return 1;
  if (!folder || !*folder || step < 0 || keep < 1)
    return session->fail("a checkpoint needs a folder, a step of at least 0 and at least "
                         "one generation to keep");
  auto ok = session->finishSaving();
  if (ok)
    ok = session->saveInto(folder, keep);
  Manifest head;
  head.step = step;
  auto origins = session->session->hashOfOrigins();
  if (origins)
    head.run.model = origins->str();
  else if (ok)
    ok = tl::unexpected(origins.error());
  if (ok)
    ok = session->saver->save(std::move(head), -1);
  if (ok && !session->saver->isSaving())
    ok = session->finishSaving(); // it could not begin
  return ok ? 0 : session->fail(ok.error().message);
}

int partita_wait_checkpoint(partita_session *session) {
  Call call(session);
  if (!call)
    return 1;
  auto ok = session->finishSaving();
  return ok ? 0 : session->fail(ok.error().message);
}

int partita_load_checkpoint(partita_session *session, const char *folder, int64_t *step) {
  Call call(session);
  if (!call)
    return 1;
  if (!folder || !*folder)
    return session->fail("a checkpoint is loaded from a folder, which has no name here");
  if (auto ok = session->finishSaving(); !ok)
    return session->fail(ok.error().message);
  auto origins = session->session->hashOfOrigins();
  if (!origins)
    return session->fail(origins.error().message);
  auto fits = [&](const Restored &found) -> Expected<void> {
    if (std::string own = origins->str(); found.manifest.run.model != own)
      return makeError("'" + found.path + "' is of another model: the hash of its " +
                       "parameters is " + found.manifest.run.model + ", here " + own);
    return {};
  };
  session->skipped.clear();
  auto tell = [&](std::string_view text) {
    session->skipped += (session->skipped.empty() ? "" : "\n") + std::string(text);
  };
  auto found = restoreNewest(*session->session, folder, tell, fits);
  if (!found)
    return session->fail(found.error().message);
  if (step)
    *step = *found ? (*found)->manifest.step : -1;
  return 0;
}

const char *partita_skipped_checkpoints(const partita_session *session) {
  return session->skipped.c_str();
}

int partita_run(partita_session *session) {
  Call call(session);
  if (!call)
    return 1;
  const Session &s = *session->session;
  for (size_t i = 0; i < session->inputs.size(); ++i)
    if (!session->inputs[i] && session->givenInputs[i].bytes() != 0)
      return session->fail("input '" + s.inputs()[i].name + "' is not bound");
  for (size_t i = 0; i < session->outputs.size(); ++i)
    if (s.isRoot() && !session->outputs[i] && session->givenOutputs[i].bytes() != 0)
      return session->fail("output '" + s.outputs()[i].name + "' is not bound");
  auto ok = session->runWhole();
  return ok ? 0 : session->fail(ok.error().message);
}
