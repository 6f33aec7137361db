//===- CapturedRun.cpp - steps as graphs ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of a shape are captured once for each place that a step may have. What the graph
// knows of this context's memory holds until that memory moves; memory of the caller that has
// changed is put into the nodes that use it.
//
// Of a program in which the host takes part, what lies between its steps is captured: the second time
// that a segment runs with the same sizes, as sizes that come with the data may not come again. Where its buffers
// have moved, as results do that callers keep, its steps are enqueued by themselves, and captured when the same places
// come twice in turn: to capture takes longer than some launches.
//
//===----------------------------------------------------------------------===//

#include "Run.h"

#include <algorithm>

namespace lathe::runtime {

using namespace engine;

size_t SizesHash::operator()(const std::vector<int64_t> &sizes) const {
  uint64_t h = 0x9e3779b97f4a7c15;
  for (int64_t v : sizes) {
    h = (h ^ static_cast<uint64_t>(v)) * 0xff51afd7ed558ccd;
    h ^= h >> 32;
  }
  return h;
}

void Context::dropGraph(GraphHandle &handle) {
  if (!handle)
    return;
  device->destroyGraph(std::exchange(handle, nullptr));
  graphs.removed();
}

/// Takes the graph that was launched longest ago; null when there is none.
GraphHandle Context::takeOldestGraph(uint64_t before) {
  GraphHandle *oldest = nullptr;
  uint64_t last = before;
  auto offer = [&](GraphHandle &handle, uint64_t lastLaunch) {
    if (handle && lastLaunch < last && isOver(lastLaunch)) {
      oldest = &handle;
      last = lastLaunch;
    }
  };
  for (auto &item : entries) {
    for (auto &kept : item.second.shapes.all())
      for (Graph &graph : kept.second->graphs)
        offer(graph.handle, graph.lastStep);
    for (auto &kept : item.second.segments)
      offer(kept.second.handle, kept.second.lastLaunch);
  }
  if (!oldest)
    return nullptr;
  graphs.removed();
  return std::exchange(*oldest, nullptr);
}

Status Run::runWithGraph(bool launchIt) {
  // Timing is of the kernels, not of what is brought and taken away.
  bool copies = !context.timingGraphs;
  if (shape->graphs.size() <= static_cast<size_t>(slotNumber))
    shape->graphs.resize(slotNumber + 1);
  Graph &graph = shape->graphs[slotNumber];
  wanted = placement;
  wanted.push_back(copies);
  for (const Delivery &d : deliveries)
    wanted.push_back(copies && d.way == Delivery::Way::Copy && d.inGraph);

  bool known = graph.handle && graph.generation == context.generation && graph.placement == wanted;
  if (known && !updateGraph(graph).ok())
    known = false; // what is wrong shows again
  if (!known) {
    graph.placement = wanted;
    LATHE_RETURN_IF_ERROR(capture(graph, copies));
  } else {
    // What happens on the host does not happen in a graph.
    for (const CompiledStep &step : program.blocks[0])
      if (std::holds_alternative<AdvanceStateStep>(step.step->op))
        LATHE_RETURN_IF_ERROR(advance(step));
  }
  graph.lastStep = number;
  launches = graph.launches;
  if (!launchIt)
    return okStatus();
  ++sums.graph_launches;
  deviceBusy = true;
  if (copies)
    return device.launchGraph(graph.handle);
  LATHE_RETURN_IF_ERROR(stageInputs());
  LATHE_RETURN_IF_ERROR(device.beginTiming());
  LATHE_RETURN_IF_ERROR(device.launchGraph(graph.handle));
  Result<double> seconds = device.endTiming();
  if (!seconds)
    return seconds.status();
  sums.graph_seconds += *seconds;
  return enqueueDeliveries(/*inGraph=*/true);
}

Status Run::capture(Graph &graph, bool copies) {
  computeAddresses();
  GraphHandle reuse = std::exchange(graph.handle, nullptr);
  if (reuse)
    context.graphs.removed();
  else if (context.graphs.isFull())
    reuse = context.takeOldestGraph(number ? number : UINT64_MAX);
  graph.nodes.clear();
  launches = 0;
  capturing = &graph;
  Result<GraphHandle> made = captured(reuse, [&]() -> Status {
    if (copies)
      LATHE_RETURN_IF_ERROR(stageInputs());
    LATHE_RETURN_IF_ERROR(runBlock(0));
    return copies ? enqueueDeliveries(/*inGraph=*/true) : okStatus();
  });
  capturing = nullptr;
  if (!made)
    return made.status();
  graph.handle = *made;
  graph.generation = context.generation;
  graph.launches = launches;
  graph.callers.clear();
  for (size_t i = 0; i < placement.size(); ++i)
    graph.callers.push_back(placement[i] != Callers ? nullptr
                            : i < inputData.size()  ? inputData[i]
                                                    : outputData[i - inputData.size()]);
  return okStatus();
}

/// The graph of what `body` enqueues, counted; it takes the place of `reuse`, which is gone after an error.
Result<GraphHandle> Run::captured(GraphHandle reuse, const std::function<Status()> &body) {
  size_t before = device.freeBytes();
  if (Status begun = device.beginCapture(); !begun.ok()) {
    device.destroyGraph(reuse);
    return begun;
  }
  if (Status status = body(); !status.ok()) {
    device.abandonCapture();
    device.destroyGraph(reuse);
    return status;
  }
  Result<GraphHandle> made = device.endCapture(reuse);
  if (!made)
    return made;
  size_t after = device.freeBytes();
  context.graphs.added(before > after ? before - after : 0);
  ++sums.graphs_captured;
  return made;
}

/// Notes a node that the caller's memory may change under.
void Run::noteNode(size_t before, const CompiledStep &step, int launch, bool mayOverlap,
                   std::span<const int32_t> buffers) {
  if (!capturing || device.capturedNodes() != before + 1)
    return; // no capture, or an empty grid
  GraphNode node{before, &step, launch, mayOverlap, {}};
  for (int32_t b : buffers) {
    const Buffer &root = plan.buffers[program.buffers[b].root];
    size_t port = root.kind == BufferKind::Input    ? root.index
                  : root.kind == BufferKind::Output ? plan.inputs.size() + root.index
                                                    : placement.size();
    if (port < placement.size() && placement[port] == Callers)
      node.ports.push_back(static_cast<int32_t>(port));
  }
  if (!node.ports.empty())
    capturing->nodes.push_back(std::move(node));
}

/// After an error the graph has to be captured again.
Status Run::updateGraph(Graph &graph) {
  auto dataOf = [&](size_t port) {
    return port < inputData.size() ? inputData[port] : outputData[port - inputData.size()];
  };
  std::vector<bool> changed;
  for (size_t i = 0; i < placement.size(); ++i) {
    if (placement[i] != Callers || dataOf(i) == graph.callers[i])
      continue;
    changed.resize(placement.size());
    changed[i] = true;
    graph.callers[i] = dataOf(i);
  }
  if (changed.empty())
    return okStatus();
  if (!device.updatesNodes())
    return unsupportedError("this driver cannot change the nodes of a graph");
  for (const GraphNode &node : graph.nodes) {
    if (std::none_of(node.ports.begin(), node.ports.end(), [&](int32_t p) { return changed[p]; }))
      continue;
    Status status;
    if (node.step->collective) {
      status = updateCollective(graph, node);
    } else if (node.launch >= 0) {
      LATHE_RETURN_IF_ERROR(gatherBuffers(*node.step));
      LaunchCommand command =
          commandOf(*node.step, layout->sites[node.step->launch], static_cast<size_t>(node.launch));
      command.mayOverlap = node.mayOverlap;
      status = device.updateLaunch(graph.handle, node.number, command);
    } else {
      const auto &copy = std::get<CopyStep>(node.step->step->op);
      status = device.updateCopy(graph.handle, node.number, addressOf(copy.target),
                                 addressOf(copy.source),
                                 static_cast<size_t>(layout->places[copy.source].bytes),
                                 CopyKind::DeviceToDevice);
    }
    LATHE_RETURN_IF_ERROR(status);
    ++sums.graph_nodes_updated;
  }
  return okStatus();
}

Status Run::runSegment(int32_t block, const Segment &segment) {
  auto runAll = [&]() -> Status {
    for (size_t i = segment.first; i < segment.end; ++i)
      LATHE_RETURN_IF_ERROR(runStep(program.blocks[block][i]));
    return okStatus();
  };
  std::vector<int64_t> key = {segment.number, slotNumber};
  for (uint32_t s : segment.symbols)
    key.push_back(symbols[s]);
  auto found = entry.segments.find(key);
  if (found == entry.segments.end()) {
    forgetSegments();
    entry.segments[std::move(key)].lastStep = number;
    return runAll();
  }
  SegmentGraph &graph = found->second;
  std::vector<void *> now;
  for (int32_t b : segment.buffers)
    now.push_back(addresses[b]);
  if (!graph.addresses.empty() && graph.addresses != now && graph.others != now) { // also where its graph made room for others
    graph.others = std::move(now);
    graph.lastStep = number;
    return runAll();
  }
  graph.others.clear();
  if (!graph.handle || graph.addresses != now) {
    if (graph.handle && graph.lastLaunch == number) // it may be under way
      LATHE_RETURN_IF_ERROR(waitForDevice());
    GraphHandle reuse = std::exchange(graph.handle, nullptr);
    if (reuse)
      context.graphs.removed();
    else if (context.graphs.isFull() && !(reuse = context.takeOldestGraph(number)))
      return runAll(); // all are of this step
    lathe_counters counted = sums;
    uint64_t launched = launches;
    Result<GraphHandle> made = captured(reuse, [&]() -> Status {
      for (size_t i = segment.first; i < segment.end; ++i) {
        overlaps = i > segment.first; // what is ahead of the graph comes to its end
        LATHE_RETURN_IF_ERROR(runStep(program.blocks[block][i]));
      }
      return okStatus();
    });
    overlaps = true;
    if (!made)
      return made.status();
    graph.handle = *made;
    graph.addresses = std::move(now);
    graph.launches = launches - launched;
    graph.bytesToDevice = sums.bytes_to_device - counted.bytes_to_device;
    graph.bytesFromDevice = sums.bytes_from_device - counted.bytes_from_device;
    graph.stateBytesCopied = sums.state_bytes_copied - counted.state_bytes_copied;
  } else {
    if (context.isCancelled(number))
      return Status(ErrorCode::Cancelled, "cancelled while it ran");
    launches += graph.launches;
    sums.bytes_to_device += graph.bytesToDevice;
    sums.bytes_from_device += graph.bytesFromDevice;
    sums.state_bytes_copied += graph.stateBytesCopied;
  }
  graph.lastStep = graph.lastLaunch = number;
  ++sums.graph_launches;
  deviceBusy = true;
  return device.launchGraph(graph.handle);
}

/// Makes room for one more: that which was used longest ago goes, with its graph.
void Run::forgetSegments() {
  if (entry.segments.size() < context.graphs.shapeLimit())
    return;
  auto oldest = entry.segments.end();
  for (auto it = entry.segments.begin(); it != entry.segments.end(); ++it)
    if (it->second.lastStep < number && context.isOver(it->second.lastStep) &&
        (oldest == entry.segments.end() || it->second.lastStep < oldest->second.lastStep))
      oldest = it;
  if (oldest == entry.segments.end())
    return;
  context.dropGraph(oldest->second.handle);
  entry.segments.erase(oldest);
}

} // namespace lathe::runtime
