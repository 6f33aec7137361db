//===- Graphs.h - kept shapes and captured graphs ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything about an entry at one set of sizes is worked out once and found again by a
// hash of the sizes: formulas, checks, and where the device has graphs one graph a slot.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_EXEC_GRAPHS_H
#define LATHE_RUNTIME_EXEC_GRAPHS_H

#include "../device/Device.h"
#include "Layout.h"

#include <deque>
#include <memory>
#include <unordered_map>

namespace lathe::runtime {

/// A launch or copy of a graph that touches memory which may be the caller's.
struct GraphNode {
  size_t number = 0; ///< among the captured
  const CompiledStep *step = nullptr;
  int launch = -1;            ///< of the kernel's launches; -1: a copy; of a collective: its part
  bool mayOverlap = false;
  std::vector<int32_t> ports; ///< inputs, then outputs behind all inputs
};

struct Graph {
  GraphHandle handle = nullptr;
  uint64_t generation = 0;        ///< of the context's memory
  std::vector<uint8_t> placement; ///< how each port was placed, and whether copies are inside
  std::vector<void *> callers;    ///< memory of the caller that is baked in, by port
  std::vector<GraphNode> nodes;   ///< those that know memory of the caller
  uint64_t launches = 0;
  uint64_t lastStep = 0; ///< number of the step that used it last
};

/// A segment at values of its symbols, in one place for steps.
struct SegmentGraph {
  GraphHandle handle = nullptr;   ///< null: seen, and not yet captured
  std::vector<void *> addresses;  ///< of the segment's buffers
  std::vector<void *> others;     ///< those of the run before, where they were not these; else none
  uint64_t launches = 0;
  uint64_t bytesToDevice = 0, bytesFromDevice = 0, stateBytesCopied = 0;
  uint64_t lastStep = 0;   ///< number of the step that came by here last
  uint64_t lastLaunch = 0; ///< number of the step that launched the graph last
};

/// Sizes of one result.
struct PortShape {
  std::vector<int64_t> dims, strides; ///< row-major
  std::vector<int64_t> sourceStrides; ///< where it lies in the buffer
  int64_t bytes = 0;
};

/// An entry whose symbols are known when it starts, at one set of sizes that passed all checks.
struct Shape {
  Layout layout; ///< with the symbols
  std::vector<int64_t> inputBytes;
  std::vector<PortShape> outputs;
  std::vector<std::vector<int64_t>> stateSizes; ///< physical
  bool hasArenas = false; ///< they are large enough; arenas only grow
  uint64_t lastStep = 0;
  std::deque<Graph> graphs; ///< by slot
  /// Of ranks that are processes: generation and placement for which collectives have memory for copies.
  uint64_t copiesAt = 0;
  std::vector<uint8_t> copiesOf;
};

struct SizesHash {
  size_t operator()(const std::vector<int64_t> &sizes) const;
};

class ShapeCache {
public:
  Shape *find(const std::vector<int64_t> &key) {
    auto it = shapes.find(key);
    return it == shapes.end() ? nullptr : it->second.get();
  }
  Shape *add(const std::vector<int64_t> &key, std::unique_ptr<Shape> shape) {
    return (shapes[key] = std::move(shape)).get();
  }
  using Map = std::unordered_map<std::vector<int64_t>, std::unique_ptr<Shape>, SizesHash>;
  Map &all() { return shapes; }

private:
  Map shapes;
};

struct GraphLimits {
  uint64_t graphs = 1024;                ///< of a context
  uint64_t bytes = uint64_t(1) << 30;    ///< device memory that they take
};

/// How many graphs a context has and what they take; forgets the oldest beyond the limits.
class GraphStore {
public:
  void setLimits(const GraphLimits &l) { limits = l; }
  uint64_t count() const { return graphs; }
  uint64_t bytes() const { return taken; }
  /// A graph was made and `bytes` of device memory went away meanwhile.
  void added(size_t bytes) { ++graphs, taken += bytes; }
  void removed() {
    taken -= graphs ? taken / graphs : 0;
    --graphs;
  }
  bool isFull() const { return graphs >= limits.graphs || (graphs && taken >= limits.bytes); }
  uint64_t shapeLimit() const { return std::max<uint64_t>(limits.graphs, 64); }

private:
  GraphLimits limits;
  uint64_t graphs = 0, taken = 0;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_GRAPHS_H
