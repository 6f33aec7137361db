//===- Outputs.cpp - results to the caller ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is known when the steps are enqueued is planned then, the copies follow them in
// stream order, and the caller's tensors are filled in when the step is over.
//
//===----------------------------------------------------------------------===//

#include "Run.h"
#include "Tensors.h"

namespace lathe::runtime {

using namespace engine;

Result<PortShape> Run::outputShape(size_t index) {
  const Port &port = plan.outputs[index];
  const std::string where = "output '" + port.name + "'";
  Result<std::vector<int64_t>> dims = evaluateDims(program.outputDims[index], symbols, where);
  if (!dims)
    return dims.status();
  Result<std::vector<int64_t>> physical =
      evaluateDims(program.buffers[port.buffer].physical, symbols, where);
  if (!physical)
    return physical.status();
  Result<int64_t> bytes = denseBytes(storedAs(port.dtype), *dims, where);
  if (!bytes)
    return bytes.status();
  std::vector<int64_t> strides = denseStrides(*dims);
  return PortShape{std::move(*dims), std::move(strides), denseStrides(*physical), *bytes};
}

Status Run::planDelivery(size_t index) {
  const Port &port = plan.outputs[index];
  const lathe_tensor &t = outputs[index];
  const Buffer &buffer = plan.buffers[port.buffer];
  PortMemory &memory = ports.outputs[index];
  if (!shape) {
    Result<PortShape> own = outputShape(index);
    if (!own)
      return own.status();
    ownOutputs.resize(outputs.size());
    ownOutputs[index] = std::move(*own);
  }
  deliveries.resize(outputs.size());
  Delivery &d = deliveries[index];
  d = {};
  d.shape = shape ? &shape->outputs[index] : &ownOutputs[index];
  auto size = static_cast<size_t>(d.shape->bytes);
  auto where = [&] { return "output '" + port.name + "'"; };
  d.source = addressOf(port.buffer);
  if (!d.source)
    return invalidError("an output has no memory", where());
  if (t.memory == LATHE_DISCARD)
    return okStatus();
  if (port.dtype == DType::String)
    return deliverStrings(index, d);
  if (t.data && t.bytes < size)
    return usageError("the result has " + std::to_string(size) + " bytes, the memory given " +
                          std::to_string(t.bytes),
                      where());
  bool onHost = buffer.onHost || device.isHost();
  bool wantHost = t.memory == LATHE_HOST || device.isHost();
  BufferKind root = plan.buffers[program.buffers[port.buffer].root].kind;
  // What nobody else will change needs no copy.
  bool lasting = root == BufferKind::Output || root == BufferKind::State;
  if (t.data ? t.data == d.source : lasting && onHost == wantHost) {
    d.way = Delivery::Way::InPlace;
    return okStatus();
  }
  d.way = Delivery::Way::Copy;
  d.caller = t.data;
  d.byHost = onHost && wantHost && !device.isHost();
  d.kind = onHost     ? CopyKind::HostToDevice
           : wantHost ? CopyKind::DeviceToHost
                      : CopyKind::DeviceToDevice;
  // From the device to the host by pinned memory, which a graph may know.
  bool pinned = d.kind == CopyKind::DeviceToHost && !device.isHost();
  if (!t.data || pinned) {
    Block &own = wantHost ? memory.host : memory.device;
    bool moved = false;
    LATHE_RETURN_IF_ERROR(own.reserve(Block::roomFor(size, own.bytes()), moved));
    context.generation += moved && !own.ofResults();
    d.target = own.data();
    d.inGraph = !d.byHost;
  } else {
    d.target = t.data;
  }
  (onHost == wantHost ? sums.bytes_staged
   : wantHost         ? sums.bytes_from_device
                      : sums.bytes_to_device) += size;
  if (root == BufferKind::State)
    sums.state_bytes_copied += size;
  return okStatus();
}

/// Strings reach the caller at once: the next run has others.
Status Run::deliverStrings(size_t index, Delivery &d) {
  const std::string where = "output '" + plan.outputs[index].name + "'";
  const lathe_tensor &t = outputs[index];
  if (!isDense(d.shape->dims, d.shape->sourceStrides))
    return unsupportedError("a padded output of strings", where);
  const auto *numbers = static_cast<const int64_t *>(d.source);
  int64_t count = d.shape->bytes / int64_t(sizeof(int64_t));
  Result<uint64_t> bytes = entry.strings->packedBytes(numbers, count);
  if (!bytes)
    return Status(bytes.status().code(), bytes.status().message(), where);
  if (t.data && t.bytes < *bytes)
    return usageError("the result has " + std::to_string(*bytes) + " bytes, the memory given " +
                          std::to_string(t.bytes),
                      where);
  d.way = Delivery::Way::Strings;
  d.bytes = *bytes;
  d.target = t.data;
  if (!t.data) {
    // The other block of the port may hold the numbers.
    Block &own = ports.outputs[index].device;
    bool moved = false;
    LATHE_RETURN_IF_ERROR(own.reserve(Block::roomFor(*bytes, own.bytes()), moved));
    d.target = own.data();
  }
  entry.strings->pack(numbers, count, d.target);
  return okStatus();
}

/// The copies of the results that a graph may hold, or the others.
Status Run::enqueueDeliveries(bool inGraph) {
  for (size_t i = 0; i < deliveries.size(); ++i) {
    const Delivery &d = deliveries[i];
    if (d.way != Delivery::Way::Copy || d.byHost || d.inGraph != inGraph || d.shape->bytes == 0)
      continue;
    deviceBusy = true;
    LATHE_RETURN_IF_ERROR(copyToDense(device, d.target, d.source, plan.outputs[i].dtype,
                                      d.shape->dims, d.shape->sourceStrides, d.kind));
  }
  return okStatus();
}

Status Run::finishDelivery(size_t index) {
  const Port &port = plan.outputs[index];
  const Delivery &d = deliveries[index];
  lathe_tensor &t = outputs[index];
  PortMemory &memory = ports.outputs[index];
  auto size = static_cast<size_t>(d.shape->bytes);
  if (d.byHost && size) {
    if (!isDense(d.shape->dims, d.shape->sourceStrides))
      return unsupportedError("a padded output in host memory", "output '" + port.name + "'");
    std::copy_n(static_cast<const char *>(d.source), size, static_cast<char *>(d.target));
  }
  if (d.caller && d.caller != d.target && size)
    std::copy_n(static_cast<const char *>(d.target), size, static_cast<char *>(d.caller));
  if (d.way == Delivery::Way::Sizes && port.dtype == DType::String)
    size = 0; // nobody has counted the bytes
  bool asItLies = d.way == Delivery::Way::InPlace && !t.data;
  memory.dims = d.shape->dims;
  memory.strides = asItLies ? d.shape->sourceStrides : d.shape->strides;
  t.dtype = static_cast<lathe_dtype>(port.dtype);
  t.rank = static_cast<int32_t>(memory.dims.size());
  t.dims = memory.dims.data();
  t.strides = memory.strides.data();
  switch (d.way) {
  case Delivery::Way::Sizes:
    t.data = nullptr;
    t.bytes = size;
    break;
  case Delivery::Way::InPlace:
    if (!t.data) {
      t.data = d.source;
      BufferKind root = plan.buffers[program.buffers[port.buffer].root].kind;
      t.bytes = root == BufferKind::State ? static_cast<uint64_t>(layout->places[port.buffer].bytes)
                                          : size;
    }
    break;
  case Delivery::Way::Copy:
    if (!t.data) {
      t.data = d.target;
      t.bytes = size;
    }
    break;
  case Delivery::Way::Strings:
    t.data = d.target;
    t.bytes = d.bytes;
    break;
  }
  return okStatus();
}

} // namespace lathe::runtime
