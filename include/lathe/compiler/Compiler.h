//===- Compiler.h - a model in, an engine out -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The driver behind the command line, the C interface and the tests, without a
// word of MLIR. Compilation.h has the same in steps, for those who look inside.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_COMPILER_COMPILER_H
#define LATHE_COMPILER_COMPILER_H

#include "lathe/compiler/Phase.h"
#include "lathe/import/Graph.h"
#include "lathe/support/Status.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

struct CompileOptions {
  std::vector<std::string> targets; ///< "native", "x86-64-v3", "sm_90a"; empty: native
  std::vector<std::string> dims;    ///< "B=1:1:16", "x[0]=4"
  std::vector<std::string> shapes;  ///< "x=1x3x224x224"
  std::vector<std::string> entries; ///< "decode:S=1,P=0"
  std::vector<std::string> donate;  ///< "present.0=past.0", output first, or input first
  /// Inputs that change seldom, of CPUs: what follows from them alone is made by the entry `prepare`
  /// (lathe_compiler.h says how to run it).
  std::vector<std::string> parameters;
  std::vector<std::string> replace; ///< "KERNEL=FILE.cu"
  std::vector<std::string> configs; ///< "KERNEL=CONFIGURATION", in place of what select chooses
  std::string lock;   ///< a file that `lathe tune` wrote: more of them (Lock.h); empty: none
  bool paged = false; ///< a decoder becomes a step over tokens of many sequences (runtime/serve)
  /// With `paged`: "int8" or "int4": keys and values are kept as codes of so many bits; empty: as the model has them.
  std::string kvCodes;
  /// With `paged`: "W:S": a token sees the last W tokens and the first S alone; empty: what the model says.
  std::string kvWindow;
  bool batchInvariant = false; ///< with `paged`: the bits of an answer do not depend on who shares its steps
  /// "axes=FILE.npy" or FILE.pb: inputs that become constants, because lathe needs
  /// their values to compile. They are no inputs of the entries any more.
  std::vector<std::string> constants;
  /// Makes external weights whose file is absent from this seed.
  std::optional<uint64_t> randomWeights;
  /// CPU: 3 x 3 convolutions may run by Winograd's F(4,3) where its expected relative error (root
  /// mean square) is no larger than this number; empty: nowhere.
  std::string winogradTolerance;
  std::string sparseWeights;         ///< auto, never, always; empty: auto
  /// GPU: streams that the kernels of an entry may be spread over, wherever the estimate says that
  /// it gains anything; 1: none but the first. 0: up to 4, where it gains a tenth.
  int64_t streams = 0;
  /// What GPUs may do less exactly: "tf32", products of f32 operands whose last 13 bits are cut
  /// off; "reduced-sums", sums of 8-bit floats in about 14 bits instead of f32's 24.
  std::vector<std::string> allow;
  std::vector<std::string> mesh;  ///< "tp=2": ranks that each run the entries with shards of the weights
  std::vector<std::string> shard; ///< "NAME=dim:1", "NAME=all": how weights or results of nodes are divided
  int64_t rankMemory = 0; ///< bytes that each rank has for weights, states and what lives at once; 0: as many as it takes
  std::optional<Phase> stopAfter;
  std::string dumpDir;     ///< NN-phase.mlir, weights.bin, kernels/; empty: nothing
  std::string remarksFile; ///< JSON; empty: none
  unsigned threads = 0;    ///< 0: all cores
  bool cache = true;       ///< look for the finished engine in the cache
  /// What is compiled in place of a model's file, if it is not null; the model's name is then
  /// "graph".
  const GraphText *graph = nullptr;
  /// Called in the compiling thread when a phase begins.
  std::function<void(Phase)> onPhase;
};

struct CompileResult {
  bool isEngine = true;
  std::string bytes; ///< the engine, or the text of a phase; not an engine that went to a file
  uint64_t size = 0; ///< of the engine or text
  Phase phase = Phase::Engine; ///< the last that ran
  std::vector<std::string> warnings;
  bool fromCache = false;
  double seconds = 0;
};

/// Adds an option by its name on the command line without dashes ("target", "dim").
/// Usage error for unknown names and for values that are wrong on their face.
Status addCompileOption(CompileOptions &options, const std::string &name, const std::string &value);

/// Compiles `model` in memory: .onnx, ONNX text, or MLIR of any phase with its
/// weights.bin beside it. Errors: Usage, Invalid, Unsupported, Internal, with the
/// ONNX node where there is one; RuntimeFailure when a file cannot be written.
Result<CompileResult> compileModel(const std::string &model, const CompileOptions &options);

/// The same into a file; a phase's text gets weights.bin beside it. "-" and other
/// paths that are no regular files get the text alone.
Result<CompileResult> compileToFile(const std::string &model, const CompileOptions &options,
                                    const std::string &output);

/// Whether the file begins as an engine does.
bool isEngineFile(const std::string &path);

/// "lathe 0.1.0", stored in engines.
const std::string &compilerVersion();

/// Operators of torch that a graph may have: "abs\nadd\n...max.dim\n", by name or overload.
const std::string &torchOperators();

//===----------------------------------------------------------------------===//
// Reproducers
//===----------------------------------------------------------------------===//

/// What a reproducer of an internal error holds.
struct Reproducer {
  std::vector<std::string> command; ///< argv
  std::vector<std::string> files;   ///< model, data: copied
};

/// Writes the folder `lathe-reproducer-<hash>` with the command line, the files and
/// `message` below $LATHE_REPRODUCER_DIR or the working directory. Returns its path.
Result<std::string> writeReproducer(const Reproducer &what, const std::string &message);

/// From now on a fatal signal or LLVM's fatal error writes the reproducer, says so on
/// stderr and ends the process with the exit code of an internal error.
void reproduceOnCrash(Reproducer what);

} // namespace lathe

#endif // LATHE_COMPILER_COMPILER_H
