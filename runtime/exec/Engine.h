//===- Engine.h - an opened engine and its place on devices -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_EXEC_ENGINE_H
#define LATHE_RUNTIME_EXEC_ENGINE_H

#include "../device/Device.h"
#include "../memory/Memory.h"
#include "Program.h"
#include "lathe/engine/EngineFile.h"

#include <map>
#include <memory>
#include <mutex>

namespace lathe::runtime {

/// Kernels and weights of one target in the memory of one device, shared by contexts.
class DeviceImage {
public:
  static Result<std::shared_ptr<const DeviceImage>>
  create(std::shared_ptr<const engine::EngineReader> reader, std::unique_ptr<Device> device,
         const std::vector<const Program *> &programs, int64_t rank);

  Function *function(const Program &program, int kernel, int variant, int launch) const;
  /// A collective kernel of one of the programs, by image and name.
  Function *collective(const std::string &image, const std::string &name) const;
  /// Address of a weight in device memory, or in the file for host steps; of a sharded one what `rank` has, which is
  /// the image's where that is of one rank.
  void *weight(const engine::Weight &weight, bool onHost, int64_t rank) const;
  /// The first value of a state without axis in the mapped file; null where it has none.
  const void *initial(const engine::Plan &plan, const engine::State &state) const;
  size_t weightBytes() const { return bytes; }
  /// As Device::abandon(): kernels of it run without an end.
  void abandon() const { device->abandon(); }

private:
  DeviceImage() = default;
  Status loadFunctions(const Program &program);
  Status loadCollectives(const Program &program);
  Status openModule(const std::string &target);
  /// A function of one of the plans' kernels. Loading one waits for kernels that run, and those of a mesh may wait for
  /// the one that is loaded: they are on the device before any runs.
  Result<Function *> functionOf(const Program &program, const std::string &image, const engine::Launch &launch);
  Status loadWeights(const Program &program);
  /// Makes the weights that the engine has no bytes of.
  Status makeWeights(const std::vector<const Program *> &programs);
  Status fillOnDevice(void *memory, const engine::Weight &weight, const std::string &target);

  std::shared_ptr<const engine::EngineReader> reader;
  std::unique_ptr<Device> device; ///< outlives modules and blocks
  int64_t rank = 0;               ///< whose shards are in device memory
  std::unique_ptr<Module> module;
  std::map<std::string, Block> sections; ///< weights on the device; on the CPU those made there
  std::map<uint64_t, Block> made;        ///< random weights that the host reads, by offset
  size_t bytes = 0;
  using Launches = std::vector<Function *>;
  std::map<const Program *, std::vector<std::vector<Launches>>> functions;
  std::map<std::pair<std::string, std::string>, Function *> collectives;
};

/// Immutable apart from the cache of images; any number of threads.
class Engine {
public:
  static Result<std::shared_ptr<const Engine>>
  open(std::shared_ptr<const engine::EngineReader> reader);

  const engine::EngineReader &file() const { return *reader; }
  /// Names in the order of the file, "main" first.
  const std::vector<std::string> &entries() const { return entryNames; }
  const std::vector<std::string> &targets() const { return targetNames; }
  const std::vector<std::string> &states() const { return stateNames; }
  /// Of the mesh that the engine was compiled for; 1: none.
  int64_t ranks() const { return programs.front()->plan.ranks; }
  /// Null when there is none. An empty entry means the first, an empty target any.
  const Program *program(const std::string &entry, const std::string &target = {}) const;
  std::vector<const Program *> programsOf(const std::string &target) const;

  /// The best target that the device runs; an error that says why none does.
  Result<std::string> chooseTarget(const Device &device, const std::string &wanted) const;
  /// Loads, or finds what another context has loaded. `device` is of the same memory; the image may keep it. Of an
  /// engine for a mesh each rank has its own, but for what all find in the file. `stays`: it lives as long as the engine.
  Result<std::shared_ptr<const DeviceImage>> image(const std::string &target, std::unique_ptr<Device> device,
                                                   int64_t rank, bool stays = false) const;

private:
  Engine() = default;

  std::shared_ptr<const engine::EngineReader> reader;
  std::vector<std::unique_ptr<const Program>> programs;
  std::vector<std::string> entryNames, targetNames, stateNames;
  mutable std::mutex mutex;
  mutable std::map<std::string, std::weak_ptr<const DeviceImage>> images;
  mutable std::vector<std::shared_ptr<const DeviceImage>> staying;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_ENGINE_H
