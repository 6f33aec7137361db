//===- DeviceRanks.cpp - collectives of ranks on GPUs -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A collective is a launch of a kernel of lathe/engine/CollectiveAbi.h, enqueued as any other. Where the kernel wants
// operands in the arenas of the ranks, or at multiples of 16 bytes, and they are not, there are copies before and
// behind it. All ranks come to the same by sizes and places alone, which are equal on all.
//
//===----------------------------------------------------------------------===//

#include "Run.h"

namespace lathe::runtime {

using namespace engine;

namespace {

constexpr int64_t kVector = 16; ///< bytes that kernels move at a time
constexpr int64_t kMostCopies = 1 << 14;

int64_t padded(int64_t bytes) { return (bytes + kVector - 1) / kVector * kVector; }
bool isAligned(const void *p) { return reinterpret_cast<uintptr_t>(p) % kVector == 0; }
char *bytesAt(void *p) { return static_cast<char *>(p); }

/// Rows of so many bytes from one pitch to another.
void addCopies(std::vector<CollectivePart> &parts, void *to, int64_t toPitch, void *from, int64_t fromPitch,
               int64_t bytes, int64_t rows) {
  if (bytes == toPitch && bytes == fromPitch) {
    bytes *= rows;
    rows = 1;
  }
  for (int64_t row = 0; row < rows; ++row) {
    CollectivePart copy;
    copy.out = bytesAt(to) + row * toPitch;
    copy.in = bytesAt(from) + row * fromPitch;
    copy.bytes = bytes;
    parts.push_back(copy);
  }
}

} // namespace

/// A launch with what it points to.
struct CollectiveCommand {
  Launch spec;
  KernelVariant variant;
  void *buffers[3];
  std::vector<int64_t> symbols;
  LaunchCommand command;
};

void Run::fillCommand(const CompiledStep &compiled, const CollectivePart &part, bool mayOverlap, CollectiveCommand &out) {
  const CompiledCollective &collective = *compiled.collective;
  const PeerArenas &peers = *context.peers;
  const Launch &spec = collective.launches[size_t(part.launch)];
  out.spec = spec;
  out.spec.block = {part.shape.threads, 1, 1};
  out.buffers[0] = part.in;
  out.buffers[1] = part.out;
  out.buffers[2] = peers.begin();
  out.symbols = {peers.arenaBytes(), context.rank()};
  out.symbols.insert(out.symbols.end(), part.sizes.begin(), part.sizes.end());
  out.symbols.insert(out.symbols.end(), {peers.timeout(), std::get<CollectiveStep>(compiled.step->op).order});
  out.command.function = context.image->collective(collective.image, spec.function);
  out.command.spec = &out.spec;
  out.command.variant = &out.variant;
  out.command.grid[0] = part.shape.blocks;
  out.command.mayOverlap = mayOverlap;
  out.command.buffers = out.buffers;
  out.command.symbols = out.symbols;
  out.command.status = static_cast<LatheStatusWord *>(slot.status.data()) + collective.statusSlot;
}

Result<std::vector<CollectivePart>> Run::collectiveParts(const CompiledStep &compiled) {
  Result<Exchange> exchange = exchangeOf(compiled);
  if (!exchange)
    return exchange.status();
  const Exchange &x = *exchange;
  PeerArenas &peers = *context.peers;
  const int64_t ranks = peers.ranks(), rank = context.rank(), size = bitWidth(x.dtype) / 8;
  void *in = const_cast<void *>(x.in), *out = x.out;
  std::vector<CollectivePart> parts;
  if (x.rows * x.run == 0)
    return parts;
  auto isOperand = [&](void *p, int64_t bytes) { return isAligned(p) && peers.holds(rank, p, bytes); };

  if (x.kind == Exchange::Kind::AllReduce) {
    const int64_t bytes = x.rows * x.run * size;
    const AllReduceForm form =
        allReduceForm(bytes, ranks, x.dtype, isOperand(in, bytes) && isOperand(out, bytes));
    const bool direct = form == AllReduceForm::Direct;
    const bool copied = direct ? !isOperand(in, bytes) || !isOperand(out, bytes) : !isAligned(in) || !isAligned(out);
    CollectivePart launch;
    launch.in = in;
    launch.out = out;
    if (copied) {
      Result<void *> area = peers.copies(rank, bytes);
      if (!area)
        return area.status();
      addCopies(parts, *area, bytes, in, bytes, bytes, 1);
      launch.in = launch.out = *area;
    }
    launch.launch = int(form);
    launch.sizes = {x.rows * x.run};
    launch.shape = allReduceShape(form, bytes, ranks, /*beside=*/compiled.step->stream > 0 && layout->usesStreams);
    parts.push_back(launch);
    if (copied)
      addCopies(parts, out, bytes, launch.out, bytes, bytes, 1);
    return parts;
  }

  // A part on one side, the whole on the other; rows of multiples of 16 bytes.
  const bool gathers = x.kind == Exchange::Kind::AllGather;
  const int64_t run = x.run * size, pitch = padded(run), part = x.rows * run, whole = part * ranks;
  const bool isPadded = pitch != run;
  if (isPadded && x.rows * ranks > kMostCopies)
    return unsupportedError(std::to_string(x.rows) + " rows of " + std::to_string(run) +
                                " bytes, which is no multiple of 16, on GPUs",
                            "node " + compiled.nodes);
  void *partAt = gathers ? in : out, *wholeAt = gathers ? out : in;
  const bool copiesPart = isPadded || !isAligned(partAt), copiesWhole = isPadded || !isOperand(wholeAt, whole);
  CollectivePart launch;
  launch.launch = 0;
  launch.in = in;
  launch.out = out;
  launch.sizes = {x.rows, gathers ? pitch : pitch / size};
  launch.shape = gathers ? gatherShape(x.rows * pitch) : scatterShape(x.rows * pitch);
  char *area = nullptr;
  if (copiesPart || copiesWhole) {
    Result<void *> found = peers.copies(rank, x.rows * pitch * (ranks + 1));
    if (!found)
      return found.status();
    area = bytesAt(*found);
  }
  // The whole is first in the area, so that it is at one place on all ranks.
  char *wholeCopy = area, *partCopy = area ? area + x.rows * pitch * ranks : nullptr;
  if (gathers) {
    if (copiesPart)
      addCopies(parts, launch.in = partCopy, pitch, in, run, run, x.rows);
    if (copiesWhole)
      launch.out = wholeCopy;
    parts.push_back(launch);
    if (copiesWhole)
      addCopies(parts, out, run, wholeCopy, pitch, run, x.rows * ranks);
  } else {
    if (copiesWhole)
      addCopies(parts, launch.in = wholeCopy, pitch, in, run, run, x.rows * ranks);
    if (copiesPart)
      launch.out = partCopy;
    parts.push_back(launch);
    if (copiesPart)
      addCopies(parts, out, run, partCopy, pitch, run, x.rows);
  }
  return parts;
}

Status Run::exchangeOnDevice(const CompiledStep &compiled) {
  const auto &step = std::get<CollectiveStep>(compiled.step->op);
  Result<std::vector<CollectivePart>> parts = collectiveParts(compiled);
  if (!parts)
    return parts.status();
  if (context.world && !program.isStatic) // else others know of all memory since the step began
    LATHE_RETURN_IF_ERROR(shareInStep(compiled.nodes));
  if (context.profiling)
    LATHE_RETURN_IF_ERROR(device.beginTiming());
  const bool mayOverlap = context.overlapWanted && launches > 0 && overlaps;
  const int32_t buffers[] = {step.inputs[0], step.outputs[0]};
  for (size_t i = 0; i < parts->size(); ++i) {
    const CollectivePart &part = (*parts)[i];
    const size_t before = device.capturedNodes();
    Status status;
    if (part.launch < 0) {
      status = device.copy(part.out, part.in, size_t(part.bytes), CopyKind::DeviceToDevice);
    } else {
      CollectiveCommand made;
      fillCommand(compiled, part, mayOverlap, made);
      status = device.launch(made.command);
      ++launches;
    }
    if (!status.ok())
      return Status(status.code(), step.name + ": " + status.message(), "node " + compiled.nodes);
    noteNode(before, compiled, int(i), mayOverlap, buffers);
  }
  deviceBusy = true;
  if (context.profiling) {
    Result<double> seconds = device.endTiming();
    if (!seconds)
      return seconds.status();
    ProfileEntry &p = timed(compiled, *seconds);
    p.name = step.name;
    p.bytes = double(layout->places[step.inputs[0]].bytes);
  }
  return okStatus();
}

/// One part of it in a graph, after memory of the caller that it uses has changed.
Status Run::updateCollective(const Graph &graph, const GraphNode &node) {
  Result<std::vector<CollectivePart>> parts = collectiveParts(*node.step);
  if (!parts)
    return parts.status();
  if (size_t(node.launch) >= parts->size())
    return unsupportedError("a collective has other parts than in the graph");
  const CollectivePart &part = (*parts)[size_t(node.launch)];
  if (part.launch < 0)
    return device.updateCopy(graph.handle, node.number, part.out, part.in, size_t(part.bytes),
                             CopyKind::DeviceToDevice);
  CollectiveCommand made;
  fillCommand(*node.step, part, node.mayOverlap, made);
  return device.updateLaunch(graph.handle, node.number, made.command);
}

} // namespace lathe::runtime
