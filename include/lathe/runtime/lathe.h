/*===- lathe.h - the runtime's C interface ----------------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * An engine is a compiled model, immutable and shared by any number of threads. A
 * context runs it on one device and owns states, arena and outputs; one thread at a
 * time may use a context (a second gets a LATHE_USAGE error).
 *
 *   lathe_engine *engine; lathe_context *context;
 *   lathe_error *e = lathe_engine_open("model.lathe", &engine);
 *   if (!e) e = lathe_context_create(engine, "cpu", NULL, &context);
 *   if (!e) e = lathe_run(context, NULL, inputs, 1, outputs, 1);
 *   if (e) { puts(lathe_error_message(e)); lathe_error_free(e); }
 *
 * Functions that can fail return NULL, or an error that the caller frees. Pointers
 * that functions hand out belong to the engine or context and say how long they live.
 *===------------------------------------------------------------------===*/
#ifndef LATHE_RUNTIME_LATHE_H
#define LATHE_RUNTIME_LATHE_H

#include "lathe/runtime/dlpack.h"

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define LATHE_API
#else
#define LATHE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a function or struct changes its meaning. */
#define LATHE_ABI_VERSION 2
LATHE_API int lathe_abi_version(void);

/*--- errors -------------------------------------------------------------*/

/* The numbers are the exit codes of the command line. */
typedef enum lathe_code {
  LATHE_OK = 0,
  LATHE_USAGE = 2,           /* wrong use of this interface, or wrong inputs */
  LATHE_INVALID = 3,         /* damaged engine, or of another version */
  LATHE_UNSUPPORTED = 4,     /* this machine or device cannot run it */
  LATHE_RUNTIME_FAILURE = 5, /* guard, index, memory, device */
  LATHE_INTERNAL = 6,
  LATHE_DEADLINE = 7,        /* a wait has ended before what it waited for */
  LATHE_CANCELLED = 8,       /* by the caller, or because a step ahead failed */
  LATHE_PEER_LOST = 9        /* another rank of the mesh is gone; the message names it */
} lathe_code;

typedef struct lathe_error lathe_error;
LATHE_API lathe_code lathe_error_code(const lathe_error *);
/* What happened, without the place. */
LATHE_API const char *lathe_error_message(const lathe_error *);
/* Where: "node Gather_3", "input 'x'", "model.lathe:+4096"; may be "". */
LATHE_API const char *lathe_error_location(const lathe_error *);
LATHE_API void lathe_error_free(lathe_error *); /* NULL is fine */

/*--- tensors ------------------------------------------------------------*/

typedef enum lathe_dtype {
  LATHE_BOOL = 0, LATHE_I8, LATHE_I16, LATHE_I32, LATHE_I64,
  LATHE_UI8, LATHE_UI16, LATHE_UI32, LATHE_UI64,
  LATHE_F16, LATHE_BF16, LATHE_F32, LATHE_F64,
  LATHE_F8E4M3FN, LATHE_F8E4M3FNUZ, LATHE_F8E5M2, LATHE_F8E5M2FNUZ, LATHE_F8E8M0,
  LATHE_I4, LATHE_UI4, LATHE_F4E2M1, LATHE_I2, LATHE_UI2, LATHE_C64, LATHE_C128,
  LATHE_STRING /* UTF-8, packed: see lathe_string_at() */
} lathe_dtype;

typedef enum lathe_memory {
  LATHE_HOST = 0,
  LATHE_DEVICE = 1, /* of the context's device; the same as host on the CPU */
  LATHE_DISCARD = 2 /* outputs: not wanted, sizes only */
} lathe_memory;

#define LATHE_MAX_RANK 32

/* As input: all fields are the caller's. As output: data NULL asks the context for
 * memory (in `memory`), which it owns and which lives until the next run or submission
 * of the same entry behind the wait for this one, or the end of the context; otherwise data points to `bytes` bytes of the
 * caller, in which the result is stored row-major. The run fills in the rest; dims
 * and strides then live as long as context memory does. A tensor that got context
 * memory may be passed to the next run as it is. */
typedef struct lathe_tensor {
  void *data;
  uint64_t bytes;         /* size of the memory behind data */
  lathe_dtype dtype;
  lathe_memory memory;
  int32_t rank;
  const int64_t *dims;
  const int64_t *strides; /* elements; NULL: row-major. Results may have strides when
                             they are views of a state. */
} lathe_tensor;

/* Bytes of a row-major tensor; 0 on overflow or unknown dtype, and for strings, whose bytes are
 * those of their text. */
LATHE_API uint64_t lathe_tensor_bytes(lathe_dtype, int32_t rank, const int64_t *dims);
/* "f32", "bf16", ...; NULL for unknown numbers. */
LATHE_API const char *lathe_dtype_name(lathe_dtype);

/*--- strings ------------------------------------------------------------*/

/* The data of a LATHE_STRING tensor of `count` elements are one piece of memory of `bytes` bytes, in
 * row-major order (strides are not looked at): count + 1 offsets (int64_t), rising from 0, then the
 * text. String i is the bytes offsets[i] to offsets[i + 1] of the text, UTF-8 without a 0 at its end.
 * Memory, ownership and lifetime are those of any tensor: an input is the caller's, a result lies in the
 * context's memory or, where data is given, in the caller's, if its `bytes` are enough (else
 * LATHE_USAGE, whose message says how many it takes). An input that is no UTF-8, or whose offsets do
 * not rise or leave the memory, is LATHE_USAGE. Engines with strings or images open liblathe_host.so,
 * which stands beside the runtime's library, or where the environment's LATHE_HOST_LIBRARY says;
 * without it they are LATHE_UNSUPPORTED when they are opened. They run on CPUs.
 *
 * The place of a string in the tensor's memory, and its length in bytes. */
LATHE_API lathe_error *lathe_string_at(const lathe_tensor *, uint64_t index, const char **text,
                                       uint64_t *length);

/*--- lists --------------------------------------------------------------*/

/* An input or output x of the model that is a sequence or an optional, and whose length only a run knows, is these ports of the
 * entry:
 *   x[]          the elements of all its tensors, one tensor after another, each row-major: [E]
 *   x[].shapes   a row for each tensor, its rank and then its sizes, with 0 behind these: i64 [N, 1 + the highest rank]
 *   x[].present  of an optional sequence alone, whether it has a value: bool, no dimensions
 * An optional tensor without a value has no row. Inputs whose shapes are not those of their elements, or are not what the model
 * states, are LATHE_USAGE, which names the tensor. A position outside a list, a join of tensors that do not fit or of none, and
 * the value of an optional without one are LATHE_RUNTIME_FAILURE with the node. Tensors in lists lie in the host's memory.
 *
 * Packs `count` row-major tensors of the host, of the type that values->dtype says. With both `data` NULL it fills in the bytes
 * that the parts take; else it writes them there, where `bytes` are enough. Other fields are the caller's. */
LATHE_API lathe_error *lathe_list_pack(const lathe_tensor *tensors, size_t count, lathe_tensor *values,
                                       lathe_tensor *shapes);
/* Tensor `index` of a packed list in the host's memory, as a view: its data and dims lie in those of the parts. */
LATHE_API lathe_error *lathe_list_at(const lathe_tensor *values, const lathe_tensor *shapes, uint64_t index,
                                     lathe_tensor *out);

/* Fills `out` with a view of the tensor, which must stay alive meanwhile. */
LATHE_API lathe_error *lathe_tensor_from_dlpack(const DLManagedTensor *, lathe_tensor *out);

/*--- engines ------------------------------------------------------------*/

typedef struct lathe_engine lathe_engine;
LATHE_API lathe_error *lathe_engine_open(const char *path, lathe_engine **out);
LATHE_API lathe_error *lathe_engine_open_memory(const void *bytes, size_t size,
                                                lathe_engine **out); /* copies */

/* An engine is a program, and opening one is to trust it. With a key ring only engines that one
 * of its keys has signed (`lathe sign`) are opened; others are LATHE_INVALID before anything in
 * them is read but the section table. */
typedef struct lathe_open_options {
  uint32_t size;        /* sizeof(lathe_open_options) */
  const char *key_ring; /* a file of public keys as `lathe keygen` writes them, a line each; NULL:
                           any engine is taken */
} lathe_open_options;
/* As those above; `options` may be NULL. */
LATHE_API lathe_error *lathe_engine_open_with(const char *path, const lathe_open_options *options,
                                              lathe_engine **out);
LATHE_API lathe_error *lathe_engine_open_memory_with(const void *bytes, size_t size,
                                                     const lathe_open_options *options,
                                                     lathe_engine **out);
/* Contexts keep what they need: an engine may be closed before them. */
LATHE_API void lathe_engine_close(lathe_engine *);
LATHE_API const char *lathe_engine_build_id(const lathe_engine *);

/* Entries and targets: an engine holds one plan for each pair. Strings live as long as
 * the engine. An index out of range gives NULL. */
LATHE_API size_t lathe_engine_entry_count(const lathe_engine *);
LATHE_API const char *lathe_engine_entry_name(const lathe_engine *, size_t entry);
LATHE_API size_t lathe_engine_target_count(const lathe_engine *);
LATHE_API const char *lathe_engine_target_name(const lathe_engine *, size_t target);

typedef struct lathe_port {
  const char *name; /* as in the ONNX graph */
  lathe_dtype dtype;
  int32_t rank;
  const char *const *dims; /* formulas over named symbols: "B", "P + S", "768" */
  int32_t donated_to;      /* inputs: output that lies in the memory, in place when both are given
                              the same; or -1 */
} lathe_port;
LATHE_API size_t lathe_engine_input_count(const lathe_engine *, const char *entry);
LATHE_API size_t lathe_engine_output_count(const lathe_engine *, const char *entry);
/* `entry` NULL: the only or first one. NULL when there is none such. */
LATHE_API const lathe_port *lathe_engine_input(const lathe_engine *, const char *entry, size_t);
LATHE_API const lathe_port *lathe_engine_output(const lathe_engine *, const char *entry, size_t);

typedef struct lathe_symbol {
  const char *name;
  int64_t min, max, opt, multiple_of; /* max INT64_MAX: unbounded */
} lathe_symbol;
LATHE_API size_t lathe_engine_symbol_count(const lathe_engine *, const char *entry);
LATHE_API const lathe_symbol *lathe_engine_symbol(const lathe_engine *, const char *entry, size_t);

LATHE_API size_t lathe_engine_state_count(const lathe_engine *);
LATHE_API const char *lathe_engine_state_name(const lathe_engine *, size_t state);

/*--- parameters ---------------------------------------------------------*/

/* An engine that was compiled with parameters (inputs that change seldom: `parameter` of lathe_compiler.h) has an
 * entry "prepare" beside the others. It takes parameters and gives what the other entries read in their place: packed
 * weights, and what follows from parameters alone. Each of its results is, by name, an input of other entries; a
 * parameter that they read as it lies is an input of theirs under its own name.
 *
 *   run "prepare" with the parameters; results in memory of the caller's (or of the context's, which lives until
 *     "prepare" runs again); then run the others any number of times with these results as inputs
 *   run "prepare" again behind each change of a parameter, and ahead of the next run of the others
 *
 * It is an entry like any other: nothing is remembered between runs, so results are those of the parameters that
 * were given last, whoever gave them. Contexts and threads may read one set of results at once while nobody writes
 * it. An engine none of whose kernels wants anything prepared has no such entry. */

/* A number made of some lines (of 64 bytes) of each tensor's memory, which is the host's: the same as long as these
 * bytes are. It tells writes that a caller has no other way to know of from none: those into all of a tensor nearly
 * surely, those into few elements maybe not. `bytes` of each tensor counts, dims and strides do not. Any thread may
 * call it. */
LATHE_API uint64_t lathe_fingerprint(const lathe_tensor *tensors, size_t count);

/*--- contexts -----------------------------------------------------------*/

typedef struct lathe_context lathe_context;

typedef struct lathe_options {
  uint32_t size;      /* sizeof(lathe_options) */
  int32_t threads;    /* CPU: 0 = all cores this process may use */
  const char *target; /* which target's plans; NULL: the best that the device runs */
  void *stream;       /* CUDA: the caller's CUstream, or NULL for one of its own */
  int32_t no_graphs;  /* CUDA: launch kernels one by one */
  int32_t no_pinning; /* CPU: do not bind workers to cores */
  int32_t no_overlap; /* CUDA: no kernel starts before the one ahead of it is over */
  int32_t max_graphs; /* CUDA: graphs that are kept, the longest unused go first; 0: 1024 */
  uint64_t max_graph_bytes; /* CUDA: device memory that they may take; 0: 1 GiB */
  int64_t deadline_ms; /* what a wait takes at most, within calls too; 0: 60 s; < 0: endless */
  int32_t prefault; /* CPU: all memory gets its pages when it is made, in one call, and not one by
                       one when it is first written; made by lathe_warm(), it always does */
} lathe_options;

/* device: "cpu", "cuda", "cuda:1", or "fake:0": a CUDA device without hardware, which
 * accepts everything and computes nothing, for tests. */
LATHE_API lathe_error *lathe_context_create(const lathe_engine *, const char *device,
                                            const lathe_options *, lathe_context **out);
/* Cancels what is under way and waits for it, up to the deadline. Behind work that does not
 * end (a deadline has passed already) it returns at once: memory that such work may touch,
 * the caller's too, is left alone until the process ends. */
LATHE_API void lathe_context_destroy(lathe_context *);
/* The target that was chosen. */
LATHE_API const char *lathe_context_target(const lathe_context *);

/* CUDA: inputs that streams of the caller have still to write. Both may be called from any
 * thread, and hold for every step that starts from then on; LATHE_UNSUPPORTED on the CPU.
 * The CUstream that steps begin behind, for those who let it wait for what they make
 * (cuStreamWaitEvent, or as the `stream` of DLPack's protocol in Python). The context's own;
 * nothing but waits may be put on it. */
LATHE_API lathe_error *lathe_context_input_stream(lathe_context *, void **stream);
/* Lets it wait for what a CUstream of the caller has to do by now. */
LATHE_API lathe_error *lathe_context_wait_for(lathe_context *, void *stream);

/* Runs an entry (NULL: the first) and waits for it: lathe_submit() and lathe_wait(). inputs
 * and outputs are in the order of the entry. On an error the states are as before the run. */
LATHE_API lathe_error *lathe_run(lathe_context *, const char *entry, const lathe_tensor *inputs,
                                 size_t input_count, lathe_tensor *outputs, size_t output_count);

/*--- steps that are submitted --------------------------------------------*/

/* What a step has to do with the caller's CUDA events (CUevent); CUDA only. */
typedef struct lathe_submit_options {
  uint32_t size;            /* sizeof(lathe_submit_options) */
  uint32_t wait_count;
  void *const *wait_events; /* the step begins when these are reached */
  void *record_event;       /* recorded behind the step and its results; NULL: none */
} lathe_submit_options;

/* Starts a step of an entry behind those submitted before, and does not wait; `step` gets its
 * number (1, 2, ...). `options` may be NULL. At most 64 steps may stand between submission and
 * wait (LATHE_USAGE).
 *   inputs: host memory is copied by this call and free when it returns; device memory (on
 *     the CPU: what is given as LATHE_DEVICE) is read in place until the step has ended.
 *   outputs: the array and the memory that it names are the step's until the wait for it has
 *     returned; then they are filled in as by lathe_run().
 * Errors that are seen at once (sizes, types, memory) are returned, and there is no such
 * step; all others come from lathe_wait(). A submission may wait for steps ahead where it
 * needs more memory than any before.
 * When a step fails, those submitted behind it, up to the wait that says so, end
 * LATHE_CANCELLED, and the states are as before the step that failed. */
LATHE_API lathe_error *lathe_submit(lathe_context *, const char *entry, const lathe_tensor *inputs,
                                    size_t input_count, lathe_tensor *outputs, size_t output_count,
                                    const lathe_submit_options *options, uint64_t *step);

/* Waits until the step (0: the last) has ended and returns its error; those before it are
 * forgotten with it, but for their errors, which their own waits still get. LATHE_DEADLINE
 * after `timeout_ns` (< 0: the context's deadline): the step goes on, may be waited for
 * again, and its memory stays its own. */
LATHE_API lathe_error *lathe_wait(lathe_context *, uint64_t step, int64_t timeout_ns);

/* Whether the step has ended, well or not; never waits. */
LATHE_API lathe_error *lathe_poll(lathe_context *, uint64_t step, int *ended);

/* Cancels this step (0: all) and those submitted behind it so far. A step that has ended
 * keeps its result; one that a GPU is working on ends when it is done, and its result is not
 * used. States are as before the first that was cancelled. Any thread may call it. */
LATHE_API void lathe_cancel(lathe_context *, uint64_t step);

/* Does ahead of the first step for these sizes what would make it slower than others. CUDA:
 * captures the graph for these sizes and places of memory (data may be NULL where it would be
 * staged; contents are not used); nothing where there are no graphs. CPU: makes the arena, results
 * and scratch memory with all their pages, as far as sizes decide. Largest sizes first: memory
 * that grows makes older graphs stale. */
LATHE_API lathe_error *lathe_warm(lathe_context *, const char *entry, const lathe_tensor *inputs,
                                  size_t input_count, const lathe_tensor *outputs,
                                  size_t output_count);

/* Seeds the ops that draw and have no seed of their own (Dropout that trains, RandomNormal and the like),
 * and begins to count runs again; waits for what was submitted. A context begins with seed 0. What is
 * drawn is a function of seed, run, node and place (Philox4x32-10), the same for any number of threads and on
 * each device; but Multinomial and f64 with a scale compute with the draws, and devices round that differently.
 * Each run of an entry that draws counts, also one that fails. */
LATHE_API lathe_error *lathe_context_seed(lathe_context *, uint64_t seed);

/*--- groups of devices ----------------------------------------------------*/

/* An ordered list of devices with a context each, which the group owns. Of an engine for a mesh the members are
 * its ranks, in order. GPUs of a mesh reach each other's memory (else LATHE_UNSUPPORTED) and exchange by kernels:
 * where one does not come in time, the step ends with LATHE_PEER_LOST for all, and later ones run. */
typedef struct lathe_group lathe_group;
/* devices: names as of lathe_context_create(), each may occur several times. `options` are
 * those of every member; no stream of the caller. An engine for a mesh of N ranks wants N devices of one kind,
 * which are its ranks in order: "cpu" each, threads of this process, or a GPU each, at most 8, whose kernels wait
 * for each other for three quarters of the options' deadline; all get the same inputs and have the same outputs,
 * to the bit. */
LATHE_API lathe_error *lathe_group_create(const lathe_engine *, const char *const *devices,
                                          size_t count, const lathe_options *, lathe_group **out);
/* As lathe_context_destroy() for every member. */
LATHE_API void lathe_group_destroy(lathe_group *);
LATHE_API size_t lathe_group_size(const lathe_group *);
/* A member, for its states and counters; lives as long as the group. Its steps are the
 * group's: do not run or submit on it. NULL when there is none such. */
LATHE_API lathe_context *lathe_group_member(lathe_group *, size_t member);
/* One step of every member: the tensors of the first, then of the second, and so on; the
 * counts are of one member. Ownership, lifetime and errors as of lathe_submit(). When a
 * member fails, the step fails for all: the states of every member are as before it. */
LATHE_API lathe_error *lathe_group_submit(lathe_group *, const char *entry,
                                          const lathe_tensor *inputs, size_t input_count,
                                          lathe_tensor *outputs, size_t output_count,
                                          uint64_t *step);
/* As lathe_wait(), lathe_cancel(); errors name the device. */
LATHE_API lathe_error *lathe_group_wait(lathe_group *, uint64_t step, int64_t timeout_ns);
LATHE_API void lathe_group_cancel(lathe_group *, uint64_t step);

/*--- ranks that are processes ---------------------------------------------*/

/* The processes that run one engine for a mesh together, a rank each. They meet at a port of rank 0 and
 * talk over TCP, to whoever reaches their ports: for networks of one's own. */
typedef struct lathe_world {
  uint32_t size;      /* sizeof(lathe_world) */
  int32_t rank;
  int32_t ranks;      /* 0: rank and ranks, and below what is not given, are what the launcher says in the
                         environment: torchrun (RANK, WORLD_SIZE), mpirun (OMPI_COMM_WORLD_RANK and _SIZE,
                         PMI_RANK and _SIZE) or srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS) */
  int32_t port;       /* of rank 0, for the meeting alone; 0: MASTER_PORT, else 29500 */
  const char *host;   /* of rank 0; NULL: MASTER_ADDR, else SLURM_LAUNCH_NODE_IPADDR, else 127.0.0.1 */
  int64_t join_ms;    /* what it takes at most until all have come; 0: 60 s; < 0: endless */
  int64_t silence_ms; /* a rank of which nothing is heard for so long is lost; 0: 3 s */
} lathe_world;

/* A context that is a rank of a mesh, whose other ranks are contexts of other processes (or threads). Returns
 * when all have come. Each rank gives inputs and gets outputs as one device would, the same to the bit on all.
 * On GPUs ("cuda": that of the rank's place among those of its host, or the only one that the process sees;
 * "cuda:N": that one) ranks are on one host, at most 8, a GPU each, and exchange by kernels as those of a group do.
 * A step begins and ends on all ranks: all submit the same entries in the same order, and what goes wrong on
 * one is an error of all. After LATHE_PEER_LOST the context runs nothing more, and its states may differ from
 * those of other ranks: destroy it and make another, of the same engine, whose weights stay where they are: on a
 * GPU as long as the engine is open.
 * Errors, on all ranks that have come: LATHE_USAGE for ranks of different engines or worlds, two on one GPU, and a
 * port that is taken; LATHE_DEADLINE names the missing; LATHE_UNSUPPORTED for GPUs that do not reach each other's
 * memory, and without liblathe_tcp.so, which is looked for beside this library or where the environment variable
 * LATHE_COMM says. `threads` 0 of the options: a share
 * of the cores for each rank of this machine. */
LATHE_API lathe_error *lathe_context_create_rank(const lathe_engine *, const char *device,
                                                 const lathe_options *, const lathe_world *,
                                                 lathe_context **out);
/* Of a context that is a rank, in a group too; 0 and 1 of others. */
LATHE_API int32_t lathe_context_rank(const lathe_context *);
LATHE_API int32_t lathe_context_ranks(const lathe_context *);

/*--- copies of results ----------------------------------------------------*/

/* A copy of a tensor (a result, say) that outlives the context; row-major. The caller
 * calls its deleter. */
LATHE_API lathe_error *lathe_tensor_to_dlpack(lathe_context *, const lathe_tensor *,
                                              DLManagedTensor **out);
/* The same of a result that the caller has no further use for: where the context can do without its memory it is
 * handed over, and nothing is copied (results on a GPU, of an engine whose sizes come with the data or in which the
 * host takes part). `data` of the tensor is NULL and `bytes` 0 afterwards. Waits for the steps that were submitted. */
LATHE_API lathe_error *lathe_tensor_take_dlpack(lathe_context *, lathe_tensor *, DLManagedTensor **out);

/*--- states -------------------------------------------------------------*/

/* These calls wait for the steps that were submitted. */
/* Current length along the growing axis; 0 before the first run. */
LATHE_API lathe_error *lathe_state_length(lathe_context *, const char *state, int64_t *out);
LATHE_API lathe_error *lathe_state_capacity(lathe_context *, const char *state, int64_t *out);
/* Forgets everything behind `length`, which must not be above the current one. */
LATHE_API lathe_error *lathe_state_truncate(lathe_context *, const char *state, int64_t length);
/* Back to the start; `state` NULL: all. */
LATHE_API lathe_error *lathe_state_reset(lathe_context *, const char *state);
/* The value of a state that does not grow (a buffer that a model of torch writes into). Fills in dtype, sizes and
 * `bytes`, whose `dims` live until the context ends, and copies the value to `data`, memory of the host of that many
 * bytes; `data` NULL: nothing is copied. */
LATHE_API lathe_error *lathe_state_read(lathe_context *, const char *state, lathe_tensor *value);
/* Gives such a state a value, of its dtype and sizes, row-major in memory of the host. */
LATHE_API lathe_error *lathe_state_write(lathe_context *, const char *state, const lathe_tensor *value);

/*--- what happened ------------------------------------------------------*/

/* Sums since the context was created or the counters were reset. */
typedef struct lathe_counters {
  uint64_t runs;
  uint64_t launches;             /* kernels, also inside graphs */
  uint64_t graph_launches;
  uint64_t graphs_captured;
  uint64_t host_steps;           /* host ops, binds, custom calls */
  uint64_t bytes_to_device;      /* inputs, host values */
  uint64_t bytes_from_device;
  uint64_t bytes_staged;         /* copied because of alignment, strides, overlap */
  uint64_t state_bytes_appended; /* written into states by kernels */
  uint64_t state_bytes_copied;   /* copied from or to states by anything else */
  uint64_t arena_bytes;          /* current size, not a sum */
  uint64_t state_bytes;          /* current size, not a sum */
  uint64_t weight_bytes;         /* current size, not a sum */
  double graph_seconds;          /* device time of graph launches, where it is asked for */
  uint64_t graph_nodes_updated;  /* nodes that got other memory of the caller */
  uint64_t graphs;               /* kept now, not a sum */
  uint64_t graph_bytes;          /* device memory that they took when made; not a sum */
} lathe_counters;
LATHE_API void lathe_context_counters(const lathe_context *, lathe_counters *out);
LATHE_API void lathe_context_reset_counters(lathe_context *);

/* Measures each graph launch on the device from now on, or no longer. */
LATHE_API void lathe_context_time_graphs(lathe_context *, int enable);

/* Times every kernel (and turns graphs off) until disabled. Enabling clears. */
LATHE_API void lathe_context_profile(lathe_context *, int enable);
typedef struct lathe_profile_row {
  const char *entry;
  const char *kernel; /* or "host:NAME", "copy" */
  const char *config; /* of the variant that ran last */
  const char *nodes;  /* ONNX nodes, comma-separated */
  uint64_t calls;
  double seconds;     /* sum of the calls */
  double flops;       /* of one call */
  double bytes;       /* of one call */
} lathe_profile_row;
/* Rows in the order of the plan; valid until the next run or call. */
LATHE_API const lathe_profile_row *lathe_context_profile_rows(lathe_context *, size_t *count);
typedef struct lathe_profile_event {
  uint64_t row;   /* number of the row that it is a call of */
  double begin;   /* seconds since the profile was enabled */
  double seconds; /* of a kernel on a GPU on the device; it ended at begin + seconds or shortly before */
} lathe_profile_event;
/* The calls behind the rows, one by one in their order, of the first 65536; valid until the next run
 * or call. */
LATHE_API const lathe_profile_event *lathe_context_profile_events(lathe_context *, size_t *count);

/*--- watching and extending ---------------------------------------------*/

typedef enum lathe_tap_kind {
  LATHE_TAP_VALUE = 0,  /* a tap that was compiled into the plan */
  LATHE_TAP_BEFORE = 1, /* before a kernel: all its buffers */
  LATHE_TAP_AFTER = 2   /* after it */
} lathe_tap_kind;
typedef struct lathe_tap {
  lathe_tap_kind kind;
  const char *entry;
  const char *name;              /* of the value or kernel */
  const char *config;            /* of the kernel's variant */
  const char *nodes;             /* ONNX nodes, comma-separated */
  int32_t step;                  /* number of the kernel launch in the plan */
  const lathe_tensor *tensors;   /* on the host, valid during the call */
  const uint8_t *written;        /* per tensor: the kernel writes it */
  size_t count;
  const int64_t *symbols;        /* kernels: values of its symbol arguments */
  size_t symbol_count;
} lathe_tap;
typedef void (*lathe_tap_function)(void *user, const lathe_tap *);
/* Calls `function` for each tap and around each kernel; NULL stops. Turns graphs off. */
LATHE_API void lathe_context_set_tap(lathe_context *, lathe_tap_function function, void *user);

typedef struct lathe_attribute {
  const char *name;
  const int64_t *ints;
  size_t int_count;
  const double *floats;
  size_t float_count;
  const char *text;
} lathe_attribute;
typedef struct lathe_call {
  const char *name;
  const lathe_tensor *inputs; /* host memory, row-major */
  size_t input_count;
  const lathe_tensor *outputs; /* sizes are set; the function fills data */
  size_t output_count;
  const lathe_attribute *attributes;
  size_t attribute_count;
} lathe_call;
/* Returns NULL, or a message that the run's error carries (copied at once). */
typedef const char *(*lathe_call_function)(void *user, const lathe_call *);
/* Must happen before an entry that uses the call runs. */
LATHE_API lathe_error *lathe_context_register_call(lathe_context *, const char *name,
                                                   lathe_call_function, void *user);

#ifdef __cplusplus
}
#endif
#endif /* LATHE_RUNTIME_LATHE_H */
