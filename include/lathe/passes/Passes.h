//===- Passes.h - the passes and the recipe ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All passes run on the top module. Everything that changes the result is an
// attribute of that module: `lathe.options`, a dictionary with
//   targets = ["x86-64-v4", "sm_90a"]   canonical names, in order
//   entries = ["prefill:P=0", "decode:S=1"]   named entries with bound dimensions
//   donate  = ["k0=pk0"]                inputs that become outputs: states, or one memory
//   allow   = ["tf32"]                what may be less exact: tf32, reduced-sums
//   configs = {kernel = "gemm.pingpong..."}   configurations that were asked for
//   streams = ["2"]                    streams of a program at most; 1: no others
//   paged   = ["16"]                a decoder becomes a step over pages of so many tokens; ["16", "batch-invariant"]:
//                                   whose sums do not depend on who shares the step; "kv=int8", "kv=int4": pages
//                                   hold codes; "kv-window=512:4": a token sees the last 512 and the first 4
//   mesh    = ["tp=2"]                axes of a mesh of ranks; shard = ["w=dim:1"] hints for it
//   replace = {kernel = "text"}         CUDA texts that take the place of generated ones
// From layout on, the module holds one nested module a target, named after it,
// with the attribute `lathe.target`.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_PASSES_H
#define LATHE_PASSES_PASSES_H

#include "lathe/compiler/Phase.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace mlir {
class OpPassManager;
}

namespace lathe {

inline constexpr const char *kOptionsAttr = "lathe.options";
/// In these options: a list of one text, the number of --winograd-tolerance.
inline constexpr const char *kWinogradToleranceOption = "winograd_tolerance";
/// In these options: a list of one text, what --sparse-weights says: auto, never, always.
inline constexpr const char *kSparseWeightsOption = "sparse_weights";
/// In these options: a list of one text, the number of --streams.
inline constexpr const char *kStreamsOption = "streams";
/// In these options: a list, the tokens of a page, maybe "batch-invariant", "kv=int8" or "kv=int4" for codes, and
/// "kv-window=W:S" for the last W and the first S tokens.
inline constexpr const char *kPagedOption = "paged";
inline constexpr int64_t kPageTokens = 16;
/// In these options: the axes of the mesh, "tp=2", and what is said of single values, "NAME=dim:1".
inline constexpr const char *kMeshOption = "mesh";
inline constexpr const char *kShardOption = "shard";
inline constexpr const char *kTargetAttr = "lathe.target";
inline constexpr const char *kPhaseAttr = "lathe.phase";
/// What the engine of a paged decoder says of itself, a dictionary (passes/simplify/PageStates.cpp).
inline constexpr const char *kLlmAttr = "lathe.llm";

// createXPass for each pass of Passes.td.
#define GEN_PASS_DECL
#include "lathe/passes/Passes.h.inc"

/// Adds the passes of one phase; none for import and engine, which are no
/// passes, and for phases without a request in `lathe.options`.
void addPhase(mlir::OpPassManager &passes, Phase phase);

/// Adds the phases after `from` up to and including `to`, each followed by the
/// note in `lathe.phase`.
void buildPipeline(mlir::OpPassManager &passes, Phase from, Phase to);

/// The phase that `lathe.phase` names; import when there is none.
Phase phaseOf(mlir::ModuleOp module);

/// Ranks of the mesh that `lathe.options` ask for: each runs the same program. 1 without a mesh.
int64_t meshRanks(mlir::ModuleOp module);

/// Makes every pass and `lathe-pipeline{from= to=}` known to pass pipelines in text.
void registerLathePasses();

} // namespace lathe

#endif // LATHE_PASSES_PASSES_H
