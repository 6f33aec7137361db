//===- Calls.cpp - host ops, custom calls and taps --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Run.h"
#include "Tensors.h"

#include <algorithm>
#include <chrono>

namespace lathe::runtime {

using namespace engine;

namespace {

/// lathe_tensors with the storage that they point into.
struct TensorList {
  std::vector<lathe_tensor> tensors;
  std::vector<std::vector<int64_t>> dims, strides;
  std::vector<std::vector<uint64_t>> copies; ///< of device memory

  void add(void *data, int64_t bytes, DType dtype, std::vector<int64_t> d,
           std::vector<int64_t> s) {
    dims.push_back(std::move(d));
    strides.push_back(std::move(s));
    tensors.push_back({data, static_cast<uint64_t>(bytes), static_cast<lathe_dtype>(dtype),
                       LATHE_HOST, static_cast<int32_t>(dims.back().size()), nullptr, nullptr});
  }
  const std::vector<lathe_tensor> &finish() {
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].dims = dims[i].data();
      tensors[i].strides = strides[i].data();
    }
    return tensors;
  }
};

} // namespace

Result<std::vector<int64_t>> Run::dimsOf(int32_t buffer) {
  if (!(addresses.empty() ? addressOf(buffer) : addresses[buffer]))
    return invalidError("a step uses a buffer without memory",
                        "buffer " + plan.buffers[buffer].name);
  return evaluateDims(program.buffers[buffer].dims, symbols, plan.buffers[buffer].name);
}

/// Counts a call of a step that has just ended.
ProfileEntry &Run::timed(const CompiledStep &step, double seconds) {
  constexpr size_t kMostCalls = 65536;
  ProfileEntry &p = entry.profile[&step];
  p.calls += 1;
  p.seconds += seconds;
  std::chrono::duration<double> end = std::chrono::steady_clock::now() - context.profileStart;
  if (context.timedCalls.size() < kMostCalls)
    context.timedCalls.push_back({&p, std::max(0.0, end.count() - seconds), seconds});
  return p;
}

Status Run::hostOp(const CompiledStep &step) {
  const auto &op = std::get<HostOpStep>(step.step->op);
  auto start = std::chrono::steady_clock::now();
  std::vector<HostView> in, out;
  std::vector<std::vector<uint64_t>> copies; // of device memory
  for (auto [list, views] : {std::pair(&op.inputs, &in), std::pair(&op.outputs, &out)})
    for (int32_t b : *list) {
      Result<std::vector<int64_t>> dims = dimsOf(b);
      if (!dims)
        return dims.status();
      Result<std::vector<int64_t>> physical =
          evaluateDims(program.buffers[b].physical, symbols, plan.buffers[b].name);
      if (!physical)
        return physical.status();
      if (*dims != *physical)
        return unsupportedError("a host op on a padded buffer", "node " + step.nodes);
      void *data = addresses[b];
      if (!device.isHost() && !plan.buffers[b].onHost) {
        const auto bytes = static_cast<size_t>(layout->places[b].bytes);
        copies.emplace_back((bytes + 7) / 8);
        data = copies.back().data();
        if (views == &in && bytes) {
          sums.bytes_from_device += bytes;
          LATHE_RETURN_IF_ERROR(device.copy(data, addresses[b], bytes, CopyKind::DeviceToHost));
        }
      }
      views->push_back({data, plan.buffers[b].dtype, *dims});
    }
  if (!copies.empty())
    LATHE_RETURN_IF_ERROR(device.sync());
  HostCall call{in, out, op.attributes, &entry.lists};
  Status s = step.hostOp ? step.hostOp(call) : entry.strings->call(step.hostLibraryOp, call);
  if (!s.ok())
    return Status(s.code(), s.message() + " (" + op.name + ")", "node " + step.nodes);
  for (size_t i = 0; i < out.size(); ++i) {
    const int32_t b = op.outputs[i];
    const auto bytes = static_cast<size_t>(layout->places[b].bytes);
    if (out[i].data == addresses[b] || !bytes)
      continue;
    sums.bytes_to_device += bytes;
    LATHE_RETURN_IF_ERROR(device.copy(addresses[b], out[i].data, bytes, CopyKind::HostToDevice));
  }
  if (!copies.empty()) // which live in this function
    LATHE_RETURN_IF_ERROR(device.sync());
  if (context.profiling) {
    std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    timed(step, spent.count()).name = "host:" + op.name;
  }
  return okStatus();
}

Status Run::customCall(const CompiledStep &step) {
  const auto &op = std::get<CustomCallStep>(step.step->op);
  auto it = context.calls.find(op.name);
  if (it == context.calls.end())
    return usageError("the custom call '" + op.name + "' is not registered",
                      "node " + step.nodes);
  TensorList in, out;
  for (auto [list, target] : {std::pair(&op.inputs, &in), std::pair(&op.outputs, &out)})
    for (int32_t b : *list) {
      Result<std::vector<int64_t>> dims = dimsOf(b);
      if (!dims)
        return dims.status();
      Result<int64_t> bytes = denseBytes(plan.buffers[b].dtype, *dims, op.name);
      if (!bytes)
        return bytes.status();
      if (layout->places[b].bytes < *bytes)
        return invalidError("a custom call's buffer is too small", "node " + step.nodes);
      void *data = addresses[b];
      if (!device.isHost() && !plan.buffers[b].onHost) {
        target->copies.emplace_back((*bytes + 7) / 8);
        data = target->copies.back().data();
        sums.bytes_from_device += target == &in ? *bytes : 0;
        if (target == &in)
          LATHE_RETURN_IF_ERROR(device.copy(data, addresses[b], static_cast<size_t>(*bytes),
                                            CopyKind::DeviceToHost));
      }
      std::vector<int64_t> strides = denseStrides(*dims);
      target->add(data, *bytes, plan.buffers[b].dtype, std::move(*dims), std::move(strides));
    }
  LATHE_RETURN_IF_ERROR(device.sync());
  std::vector<lathe_attribute> attributes;
  for (const Attribute &a : op.attributes)
    attributes.push_back({a.name.c_str(), a.ints.data(), a.ints.size(), a.floats.data(),
                          a.floats.size(), a.text.c_str()});
  const std::vector<lathe_tensor> &inputList = in.finish(), &outputList = out.finish();
  lathe_call call{op.name.c_str(),   inputList.data(),  inputList.size(), outputList.data(),
                  outputList.size(), attributes.data(), attributes.size()};
  if (const char *message = it->second.function(it->second.user, &call))
    return runtimeError("custom call '" + op.name + "': " + message, "node " + step.nodes);
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    int32_t b = op.outputs[i];
    if (device.isHost() || plan.buffers[b].onHost)
      continue;
    sums.bytes_to_device += outputList[i].bytes;
    LATHE_RETURN_IF_ERROR(device.copy(addresses[b], outputList[i].data, outputList[i].bytes,
                                      CopyKind::HostToDevice));
  }
  // The copies live in this function.
  return device.sync();
}

Status Run::showTap(lathe_tap_kind kind, const std::string &name, const CompiledStep &step,
                    std::span<const int32_t> buffers, const SiteLaunch *site) {
  LATHE_RETURN_IF_ERROR(waitForDevice());
  TensorList list;
  std::vector<uint8_t> written;
  const KernelVariant *variant = nullptr;
  if (site) {
    const Kernel &k = plan.kernels[program.sites[step.launch].step->kernel];
    variant = &k.variants[site->variant];
    written.assign(k.writes.begin(), k.writes.end());
  }
  written.resize(buffers.size());
  for (int32_t b : buffers) {
    Result<std::vector<int64_t>> dims = dimsOf(b);
    if (!dims)
      return dims.status();
    Result<std::vector<int64_t>> physical =
        evaluateDims(program.buffers[b].physical, symbols, plan.buffers[b].name);
    if (!physical)
      return physical.status();
    void *data = addresses[b];
    int64_t bytes = layout->places[b].bytes;
    if (!device.isHost() && !plan.buffers[b].onHost) {
      list.copies.emplace_back((bytes + 7) / 8);
      data = list.copies.back().data();
      LATHE_RETURN_IF_ERROR(
          device.copy(data, addresses[b], static_cast<size_t>(bytes), CopyKind::DeviceToHost));
    }
    list.add(data, bytes, plan.buffers[b].dtype, std::move(*dims), denseStrides(*physical));
  }
  LATHE_RETURN_IF_ERROR(device.sync());
  const std::vector<lathe_tensor> &tensors = list.finish();
  lathe_tap tap{kind,
                plan.entry.c_str(),
                name.c_str(),
                variant ? variant->config.c_str() : "",
                step.nodes.c_str(),
                step.launch,
                tensors.data(),
                written.data(),
                tensors.size(),
                site ? site->symbols.data() : nullptr,
                site ? site->symbols.size() : 0};
  context.tap(context.tapUser, &tap);
  return okStatus();
}

} // namespace lathe::runtime
