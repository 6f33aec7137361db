//===- Outputs.cpp - results to the caller, states forward ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Run.h"
#include "Tensors.h"

namespace lathe::runtime {

using namespace engine;

Status Run::deliver(size_t index) {
  const Port &port = plan.outputs[index];
  const std::string where = "output '" + port.name + "'";
  lathe_tensor &t = outputs[index];
  PortMemory &memory = entry.outputs[index];
  const Buffer &buffer = plan.buffers[port.buffer];
  BufferKind root = plan.buffers[program.buffers[port.buffer].root].kind;

  Result<std::vector<int64_t>> dims = evaluateDims(program.outputDims[index], symbols, where);
  if (!dims)
    return dims.status();
  Result<std::vector<int64_t>> physical =
      evaluateDims(program.buffers[port.buffer].physical, symbols, where);
  if (!physical)
    return physical.status();
  Result<int64_t> bytes = denseBytes(port.dtype, *dims, where);
  if (!bytes)
    return bytes.status();
  void *source = addresses[port.buffer];
  if (!source)
    return invalidError("an output has no memory", where);
  auto size = static_cast<size_t>(*bytes);
  if (t.data && t.memory != LATHE_DISCARD && t.bytes < size)
    return usageError("the result has " + std::to_string(size) + " bytes, the memory given " +
                          std::to_string(t.bytes),
                      where);
  memory.dims = std::move(*dims);
  memory.strides = denseStrides(memory.dims);
  std::vector<int64_t> sourceStrides = denseStrides(*physical);
  t.dtype = static_cast<lathe_dtype>(port.dtype);
  t.rank = static_cast<int32_t>(memory.dims.size());
  t.dims = memory.dims.data();
  t.strides = memory.strides.data();
  if (t.memory == LATHE_DISCARD) {
    t.data = nullptr;
    t.bytes = size;
    return okStatus();
  }
  bool onHost = buffer.onHost || device.isHost();
  bool wantHost = t.memory == LATHE_HOST || device.isHost();
  void *target = t.data;
  if (!target) {
    // What nobody else will change needs no copy.
    bool lasting = root == BufferKind::Output || root == BufferKind::State;
    if (lasting && onHost == wantHost) {
      t.data = source;
      t.bytes = root == BufferKind::State ? static_cast<uint64_t>(layout->places[port.buffer].bytes)
                                          : size;
      memory.strides = sourceStrides;
      t.strides = memory.strides.data();
      return okStatus();
    }
    Block &own = wantHost ? memory.host : memory.device;
    bool moved = false;
    LATHE_RETURN_IF_ERROR(own.reserve(size, moved));
    target = own.data();
    t.data = target;
    t.bytes = size;
  }
  if (target == source || size == 0)
    return okStatus();
  lathe_counters &sums = context.sums;
  (onHost == wantHost ? sums.bytes_staged
   : wantHost         ? sums.bytes_from_device
                      : sums.bytes_to_device) += size;
  if (root == BufferKind::State)
    sums.state_bytes_copied += size;
  if (onHost && wantHost && !device.isHost()) {
    LATHE_RETURN_IF_ERROR(waitForDevice());
    if (!isDense(memory.dims, sourceStrides))
      return unsupportedError("a padded output in host memory", where);
    std::copy_n(static_cast<const char *>(source), size, static_cast<char *>(target));
    return okStatus();
  }
  deviceBusy = true;
  CopyKind kind = onHost     ? CopyKind::HostToDevice
                  : wantHost ? CopyKind::DeviceToHost
                             : CopyKind::DeviceToDevice;
  return copyToDense(device, target, source, port.dtype, memory.dims, sourceStrides, kind);
}

Status Run::commitStates() {
  for (const auto &[index, by] : advances) {
    StateSlot &slot = *states[index];
    slot.length += by;
    context.sums.state_bytes_appended += static_cast<uint64_t>(by * slot.bytesPerStep());
  }
  context.sums.state_bytes = context.states->totalBytes();
  context.sums.weight_bytes = context.image->weightBytes();
  return okStatus();
}

} // namespace lathe::runtime
