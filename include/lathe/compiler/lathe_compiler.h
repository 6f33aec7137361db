/*===- lathe_compiler.h - the compiler's C interface ------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * A model file in, an engine file or engine bytes out. Options have the names and the
 * values of the command line (`lathe compile --help`).
 *
 *   lathe_compile_options *o = lathe_compile_options_create();
 *   lathe_compile_error *e = lathe_compile_options_add(o, "target", "x86-64-v3");
 *   if (!e) e = lathe_compile_to_file("model.onnx", o, "model.lathe");
 *   if (e) { puts(lathe_compile_error_message(e)); lathe_compile_error_free(e); }
 *   lathe_compile_options_destroy(o);
 *
 * Functions that can fail return NULL, or an error that the caller frees. Several
 * threads may compile at once, each with options of its own.
 *===------------------------------------------------------------------===*/
#ifndef LATHE_COMPILER_LATHE_COMPILER_H
#define LATHE_COMPILER_LATHE_COMPILER_H

#include <stddef.h>

#define LATHE_COMPILER_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

#define LATHE_COMPILER_ABI_VERSION 1
LATHE_COMPILER_API int lathe_compiler_abi_version(void);
/* "lathe 0.1.0"; lives forever. */
LATHE_COMPILER_API const char *lathe_compiler_version(void);
/* Torch's operators that the dialect `aten` may hold, a line each: "abs", or of one overload alone
 * "max.dim". Lives forever. */
LATHE_COMPILER_API const char *lathe_compiler_aten_operators(void);

/* Codes are the exit codes of the command line: 2 usage, 3 invalid model, 4 unsupported,
 * 5 a file could not be written, 6 a defect of lathe. */
typedef struct lathe_compile_error lathe_compile_error;
LATHE_COMPILER_API int lathe_compile_error_code(const lathe_compile_error *);
LATHE_COMPILER_API const char *lathe_compile_error_message(const lathe_compile_error *);
/* "node Conv_3", "input 'x'", "model.onnx"; may be "". */
LATHE_COMPILER_API const char *lathe_compile_error_location(const lathe_compile_error *);
LATHE_COMPILER_API void lathe_compile_error_free(lathe_compile_error *); /* NULL is fine */

typedef struct lathe_compile_options lathe_compile_options;
LATHE_COMPILER_API lathe_compile_options *lathe_compile_options_create(void);
LATHE_COMPILER_API void lathe_compile_options_destroy(lathe_compile_options *);
/* "target" "x86-64-v3,sm_90a"; "dim" "B=1:1:16"; "shape" "x=1x3x48x192"; "entry"
 * "decode:S=1"; "donate" "present=past"; "stop-after" "fuse"; "dump-dir", "remarks" a path;
 * "const" "axes=FILE.npy"; "random-weights" "1"; "winograd-tolerance" "1e-5"; "streams" "1";
 * "sparse-weights" "never"; "parameter" "weight" (an input that changes seldom: lathe.h, "parameters");
 * "replace" "KERNEL=FILE.cu"; "config"
 * "KERNEL=CONFIGURATION"; "threads" "2". Lists grow by adding again. */
LATHE_COMPILER_API lathe_compile_error *
lathe_compile_options_add(lathe_compile_options *, const char *name, const char *value);

/* Compiles the model (.onnx, ONNX text, or MLIR of any phase) and writes the engine, or with
 * stop-after the text of a phase. `options` may be NULL. */
LATHE_COMPILER_API lathe_compile_error *
lathe_compile_to_file(const char *model, const lathe_compile_options *options, const char *output);
/* The same into memory, which the caller frees with lathe_compile_free. */
LATHE_COMPILER_API lathe_compile_error *
lathe_compile_to_memory(const char *model, const lathe_compile_options *options, void **bytes,
                        size_t *size);

/* A tensor that the text of a graph names: row-major, in the memory order of its type. The caller
 * keeps name and bytes until the call returns; they are not copied before. */
typedef struct lathe_compile_weight {
  const char *name;
  const void *data;
  size_t bytes;
} lathe_compile_weight;
/* The same for a graph in memory: MLIR text of phase import in the dialect `aten`, torch's
 * operators (include/lathe/ir/AtenDialect.td), which needs no end of line and no terminating 0, and
 * the weights that its ops `aten.weight` name. Text that does not parse, and weights that are
 * missing or of another size than their type, are errors of code 3. */
LATHE_COMPILER_API lathe_compile_error *
lathe_compile_graph_to_file(const char *text, size_t text_size, const lathe_compile_weight *weights,
                            size_t weight_count, const lathe_compile_options *options,
                            const char *output);
LATHE_COMPILER_API lathe_compile_error *
lathe_compile_graph_to_memory(const char *text, size_t text_size,
                              const lathe_compile_weight *weights, size_t weight_count,
                              const lathe_compile_options *options, void **bytes, size_t *size);
LATHE_COMPILER_API void lathe_compile_free(void *bytes);

#ifdef __cplusplus
}
#endif
#endif /* LATHE_COMPILER_LATHE_COMPILER_H */
