//===- Program.h - a plan made ready to run ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A verified plan with its formulas compiled and its steps numbered. Immutable, shared
// by all contexts of an engine.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_EXEC_PROGRAM_H
#define LATHE_RUNTIME_EXEC_PROGRAM_H

#include "../host/HostLibrary.h"
#include "lathe/engine/CollectiveAbi.h"
#include "lathe/engine/ExprProgram.h"
#include "lathe/engine/Plan.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lathe::runtime {

using engine::ExprProgram;
using Values = std::span<const int64_t>; ///< of symbols

struct CompiledCondition {
  engine::Condition::Kind kind;
  ExprProgram lhs, rhs;
  /// An error when a formula has no value.
  Result<bool> holds(Values symbols, std::string_view what) const;
};

struct CompiledBuffer {
  ExprProgram bytes, offset;
  std::vector<ExprProgram> dims, physical;
  int32_t root = 0; ///< the buffer itself, or the one behind all views
};

struct CompiledLaunch {
  ExprProgram grid[3], sharedBytes;
};

struct CompiledVariant {
  std::vector<CompiledCondition> guard;
  std::vector<ExprProgram> tensorMapSizes; ///< map by map: dims, then strides
  std::vector<CompiledLaunch> launches;
  ExprProgram workspaceBytes, scratchBytes;
};

struct CompiledKernel {
  std::vector<CompiledVariant> variants;
  ExprProgram flops, bytes;
};

/// A LaunchStep.
struct LaunchSite {
  const engine::LaunchStep *step = nullptr;
  std::vector<ExprProgram> symbols;
  std::vector<DType> dtypes; ///< of the buffers
  int statusSlot = -1;       ///< which status word, or none
  std::string nodes;         ///< ONNX nodes, comma-separated
};

/// A CollectiveStep of GPUs: what it may launch.
struct CompiledCollective {
  std::string image;
  std::vector<engine::Launch> launches; ///< of an all-reduce by AllReduceForm, else one; blocks are those of a size
  int statusSlot = 0;
};

/// Whom an error word is of.
struct StatusUser {
  std::string nodes, kernel;
  bool isCollective = false;
};

struct CompiledStep {
  const engine::Step *step = nullptr;
  int launch = -1;             ///< LaunchStep: number of the site
  HostOp hostOp = nullptr;     ///< HostOpStep
  LatheHostOp hostLibraryOp = nullptr; ///< HostOpStep of liblathe_host.so, in the place of hostOp
  std::unique_ptr<const CompiledCollective> collective; ///< CollectiveStep of GPUs
  CompiledCondition condition; ///< GuardStep
  ExprProgram by;              ///< AdvanceStateStep; the value of a BindStep without a buffer
  std::string nodes;
};

/// Steps of a block that are enqueued without the host: a graph of its own, in a program that is none
/// as a whole.
struct Segment {
  int number = 0;                ///< of the program's
  size_t first = 0, end = 0;     ///< steps of the block
  std::vector<uint32_t> symbols; ///< that its sizes and places follow from, rising
  std::vector<int32_t> buffers;  ///< that it touches
};

struct CompiledState {
  std::vector<ExprProgram> physical;
};

class Program {
public:
  /// Invalid when the plan uses a host op that this runtime does not have; Unsupported when it is in a library
  /// that is not there.
  static Result<std::unique_ptr<const Program>> compile(engine::Plan plan);
  Program(const Program &) = delete;

  engine::Plan plan;
  std::shared_ptr<const HostLibrary> hostLibrary; ///< where the plan has strings, or ops of it
  std::vector<std::string> symbolNames;
  std::vector<std::optional<ExprProgram>> derived; ///< of each symbol
  std::vector<CompiledCondition> guards;
  std::vector<ExprProgram> arenaBytes;
  std::vector<CompiledBuffer> buffers;
  std::vector<CompiledState> states;
  std::vector<std::vector<ExprProgram>> inputDims, outputDims;
  std::vector<CompiledKernel> kernels;
  std::vector<std::vector<CompiledStep>> blocks;
  std::vector<std::vector<int32_t>> boundIn; ///< by block: symbols that it, or a block inside of it, gives values
  std::vector<LaunchSite> sites;
  std::vector<std::pair<int32_t, int32_t>> beside; ///< engine::buffersBeside()
  std::vector<StatusUser> statusUsers; ///< of each status word
  /// All symbols are known when the run starts: layouts can be kept.
  bool isStatic = true;
  /// Nothing but launches and copies on the device: a graph can be captured.
  bool capturable = true;
  /// By block; empty where the program is capturable.
  std::vector<std::vector<Segment>> segments;

  int32_t symbol(const std::string &name) const; ///< number, or -1

private:
  Program() = default;
  Status openHostLibrary();
  void findBound();
  void findSegments();
};

/// "a, b, c"
std::string join(const std::vector<std::string> &texts);

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_PROGRAM_H
