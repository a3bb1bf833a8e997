/*===- partita_runtime.h - Run a compiled bundle from C ------------*- C -*-===*\
|*
|*   partita_session *s = partita_load("bundle", NULL);
|*   if (!s) { puts(partita_error(NULL)); … }
|*   partita_bind_input(s, "x", x, sizeof x);
|*   partita_bind_output(s, "y", y, sizeof y);
|*   if (partita_run(s)) { puts(partita_error(s)); … }
|*   partita_free(s);
|*
|* Tensors are dense and row-major in the caller's memory, which must stay valid while
|* bound. All ranks run as threads of the calling process, unless MPI is asked for; then
|* every process of the job makes the same calls, and outputs are written on rank 0 only.
|* One session may be used by one thread at a time: calls of another meanwhile fail, and
|* say so. So do calls in a child that fork() has made, where the ranks are not.
|*
\*===----------------------------------------------------------------------===*/
#ifndef PARTITA_RUNTIME_PARTITA_RUNTIME_H
#define PARTITA_RUNTIME_PARTITA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PARTITA_API __attribute__((visibility("default")))

typedef struct partita_session partita_session;

typedef struct partita_load_options {
  size_t size;           /* sizeof(partita_load_options), for later additions */
  const char *entry;     /* the one entry point to load; NULL: all */
  const char *transport; /* "local" or "mpi"; NULL: "local" */
  /* Seconds without progress of a rank; 0: 60; not negative. Not of one rank of one
     thread on the CPU, whose requests run in the caller's thread. */
  double timeout;
  int threads; /* per rank; 0: as compiled; −1: the cores divided by the ranks */
  /* searched first for files of the model that the bundle refers to; NULL: none */
  const char *weights_dir;
  int no_check; /* not 0: blocks of weight files are not compared with their hashes */
} partita_load_options;

typedef struct partita_tensor_info {
  const char *name;  /* owned by the session */
  const char *dtype; /* "f32", "bf16", "i64", "bool" … */
  size_t rank;
  const int64_t *shape; /* owned by the session */
  size_t bytes;
} partita_tensor_info;

/* "0.1.0" */
PARTITA_API const char *partita_version(void);

/* Loads a bundle and its weights and starts the ranks. `options` may be NULL. NULL on
 * failure; partita_error(NULL) then says why. */
PARTITA_API partita_session *partita_load(const char *bundle,
                                          const partita_load_options *options);
/* Stops the ranks. NULL is allowed; so is a session of the parent process, which is left
 * to it. */
PARTITA_API void partita_free(partita_session *session);

/* The sentence for the session's last failure, or for this thread's last failed
 * partita_load when `session` is NULL. Empty if there was none. */
PARTITA_API const char *partita_error(const partita_session *session);

PARTITA_API size_t partita_num_ranks(const partita_session *session);
PARTITA_API size_t partita_num_inputs(const partita_session *session);
PARTITA_API size_t partita_num_outputs(const partita_session *session);
/* 0, or 1 if there is no tensor of this index. */
PARTITA_API int partita_input_info(const partita_session *session, size_t index,
                                   partita_tensor_info *info);
PARTITA_API int partita_output_info(const partita_session *session, size_t index,
                                    partita_tensor_info *info);

/* As partita_output_info, with the extents that the output had in the last request (with
 * MPI on rank 0): shorter ones where a model gives as many elements as the data say. What
 * is bound has room for the most, and has the elements that there are in its front, dense
 * and row-major. Valid until the next request. */
PARTITA_API int partita_output_shape(const partita_session *session, size_t index,
                                     partita_tensor_info *info);

/* A bundle that was compiled for several input shapes has an entry point for each, which
 * share weights and states. Inputs, outputs and requests are those of the entry in use,
 * at first the first; what was bound before another one is used is not bound to it. */
PARTITA_API size_t partita_num_entries(const partita_session *session);
/* NULL if there is none of this index. Owned by the session. */
PARTITA_API const char *partita_entry_name(const partita_session *session, size_t index);
/* 0, or 1 if there is no entry of this name. */
PARTITA_API int partita_use_entry(partita_session *session, const char *name);

typedef struct partita_shape {
  const char *name; /* of an input */
  size_t rank;
  const int64_t *shape;
} partita_shape;

/* Uses the entry whose inputs have these shapes (inputs that are not named may have any).
 * If there is none and `pad` is not 0, the smallest one into which they fit: shorter
 * along the model's symbolic dims alone. Then inputs and outputs, their infos and what is
 * bound have the extents of the request until another entry is used; requests fill inputs
 * with zeros behind, and cut outputs. Whether the model computes the same then is the
 * caller's to know: a causal decoder does, a mean over a padded dim does not. 0, or 1 if
 * no entry takes the shapes. */
PARTITA_API int partita_fit_entry(partita_session *session, const partita_shape *inputs,
                                  size_t count, int pad);
/* The index of the entry in use. */
PARTITA_API size_t partita_entry_in_use(const partita_session *session);

/* 0, or 1 if the name is unknown, `bytes` is not the tensor's size or `data` is NULL. */
PARTITA_API int partita_bind_input(partita_session *session, const char *name,
                                   const void *data, size_t bytes);
PARTITA_API int partita_bind_output(partita_session *session, const char *name,
                                    void *data, size_t bytes);

/* States last from one request to the next: what a model writes in place, as the caches
 * of a decoder. Before the first request they are what the bundle says, mostly zeros. */
PARTITA_API size_t partita_num_states(const partita_session *session);
PARTITA_API int partita_state_info(const partita_session *session, size_t index,
                                   partita_tensor_info *info);
/* Copies the whole state to `data` (with MPI on rank 0 only), or sets it. 0, or 1 if the
 * name is unknown, `bytes` is not its size, or a rank failed. */
PARTITA_API int partita_read_state(partita_session *session, const char *name, void *data,
                                   size_t bytes);
PARTITA_API int partita_write_state(partita_session *session, const char *name,
                                    const void *data, size_t bytes);
/* All states are again what they were before the first request. */
PARTITA_API int partita_reset_states(partita_session *session);

/* Writes all states to a safetensors file as whole tensors (with MPI rank 0 does), aside
 * and then renamed; sets all of them from one, whatever plan or number of ranks wrote
 * it. 0, or 1 if a rank failed, or the file is not of these states: then none is set. */
PARTITA_API int partita_save_states(partita_session *session, const char *path);
PARTITA_API int partita_load_states(partita_session *session, const char *path);

/* Generation FOLDER/step-STEP of all states, each rank's parts by its process
 * (docs/checkpoints.md). Begins to copy the states, which are copied and written while
 * requests run, and the newest `keep` generations stay. Waits for the save before; with
 * several processes it goes on within these calls alone. 0, or 1 if this save could not
 * begin, or the one before has failed. */
PARTITA_API int partita_save_checkpoint(partita_session *session, const char *folder,
                                        int64_t step, int64_t keep);
/* Until the save under way is on the disk. 0, or 1 if it has failed. */
PARTITA_API int partita_wait_checkpoint(partita_session *session);
/* Sets all states from the newest whole generation of a folder, whatever plan or number
 * of ranks wrote it; `step` (may be NULL) becomes its step, -1 where the folder has none.
 * 0, or 1 if no generation is whole, or it is not of these states or this model. */
PARTITA_API int partita_load_checkpoint(partita_session *session, const char *folder,
                                        int64_t *step);
/* One line for each damaged generation that the last load has skipped; valid until the
 * next one. */
PARTITA_API const char *partita_skipped_checkpoints(const partita_session *session);

/* One request. 0, or 1 if a tensor is unbound or a rank failed; after the latter the
 * session can only be freed. */
PARTITA_API int partita_run(partita_session *session);

#ifdef __cplusplus
}
#endif

#endif /* PARTITA_RUNTIME_PARTITA_RUNTIME_H */
