//===- Session.h - an engine that a verb works on ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime through its C interface, and the same engine's plans for what people
// want to know of it. A model is compiled in memory first.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_SESSION_H
#define LATHE_TOOLS_LATHE_SESSION_H

#include "Options.h"

#include "lathe/compiler/Compiler.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/runtime/lathe.h"
#include "lathe/support/HostTensor.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lathe::cli {

/// Whether a file is an engine, by its beginning or its name; else it is a model.
bool isEngine(const std::string &path);

/// Takes the error over.
Status toStatus(lathe_error *error);

struct EngineDeleter {
  void operator()(lathe_engine *engine) const { lathe_engine_close(engine); }
};
struct GroupDeleter {
  void operator()(lathe_group *group) const { lathe_group_destroy(group); }
};
struct ContextDeleter {
  void operator()(lathe_context *context) const { lathe_context_destroy(context); }
};

/// A checked engine file, of the disk or of a model compiled in memory.
struct Model {
  std::string path;
  std::shared_ptr<const engine::EngineReader> file;
  std::vector<engine::Plan> plans;
  bool draws = false; ///< has random numbers, of which a context has the seed
  bool compiled = false, fromCache = false;
  double compileSeconds = 0; ///< 0 for an engine file
  std::string bytes;         ///< of a model that was compiled here
  std::string trust;         ///< the key ring that an engine file was checked against; or empty

  /// Opens an engine, or compiles a model with `options` and shows progress. Without a target
  /// it is compiled for `device`. `trust`: a key ring, one of whose keys must have signed the engine.
  static Result<Model> open(const std::string &path, CompileOptions options,
                            const std::string &device = "cpu", const std::string &trust = "");
  /// The engine of a model that was compiled elsewhere.
  static Result<Model> fromBytes(const std::string &path, std::string bytes);
  /// Names in the order of the file, each once.
  std::vector<std::string> entries() const;
  std::vector<std::string> targets() const;
  /// The plan of an entry; an empty name is the first. Usage error that lists the
  /// entries otherwise.
  Result<const engine::Plan *> plan(const std::string &entry, const std::string &target) const;
};

/// --trust, of verbs that open engines.
void addTrustOption(Parser &parser, std::string &into);

struct SessionOptions {
  std::string device = "cpu";
  int threads = 0;       ///< 0: all cores
  std::string target;    ///< empty: the best that the device runs
  bool noGraphs = false, noOverlap = false;
  bool noPinning = false; ///< CPU: several sessions share the cores
  int ranks = 0;          ///< of an engine for a mesh; 0: as many as it says
  bool maybeRank = false; ///< be one rank of a world where a launcher has started several processes
  bool warm = false;      ///< make memory, and on a GPU graphs, before the first run
};

/// An engine on a device.
class Session {
public:
  static Result<Session> open(const Model &model, const SessionOptions &options);

  /// Of a mesh that of the first rank, for states and counters.
  lathe_context *context() const { return handle ? handle.get() : lathe_group_member(group.get(), 0); }
  lathe_context *rank(size_t i) const { return group ? lathe_group_member(group.get(), i) : handle.get(); }
  /// Those of this process.
  size_t ranks() const { return group ? lathe_group_size(group.get()) : 1; }
  const std::string &target() const { return targetName; }
  double loadSeconds() const { return seconds; }
  /// Lengths of the states now, by name.
  std::map<std::string, int64_t> stateLengths(const engine::Plan &plan) const;

  /// Makes states as long as they were, on all ranks.
  Status truncateStates(const std::map<std::string, int64_t> &lengths) const;

  /// Runs an entry; empty outputs get memory of the context. On a mesh all ranks run it, the results are the
  /// first rank's, and it is an error when another has other bits.
  Status run(const engine::Plan &plan, const std::vector<HostTensor> &inputs,
             std::vector<lathe_tensor> &outputs) const;
  /// The same of tensors for the runtime, as many as outputs. On a mesh results are those of the first rank, unseen.
  Status run(const engine::Plan &plan, const std::vector<lathe_tensor> &inputs,
             std::vector<lathe_tensor> &outputs) const;
  /// Makes the memory, and on a GPU the graph, of such a run, whose outputs come to the host.
  Status warm(const engine::Plan &plan, const std::vector<HostTensor> &inputs) const;

private:
  std::unique_ptr<lathe_engine, EngineDeleter> engine;
  /// Of all ranks, those of the first in front.
  Result<std::vector<lathe_tensor>> runRanks(const engine::Plan &plan, const std::vector<lathe_tensor> &inputs,
                                             const std::vector<lathe_tensor> &outputs) const;

  std::unique_ptr<lathe_context, ContextDeleter> handle; ///< null for a mesh
  std::unique_ptr<lathe_group, GroupDeleter> group;      ///< of a mesh
  std::string targetName;
  double seconds = 0;
};

/// Adds the target of a device where none is given: native for the CPU, the architecture of
/// the GPU. An error when there is no such device.
Status completeTarget(CompileOptions &options, const std::string &device);

/// A view for the runtime; valid as long as the tensor.
lathe_tensor viewOf(const HostTensor &tensor);
/// A copy of a result on the host, row-major whatever its strides.
HostTensor copyOf(const lathe_tensor &tensor);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_SESSION_H
