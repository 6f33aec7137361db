//===- Engine.cpp - an opened engine and its place on devices ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Engine.h"
#include "../device/CpuFeatures.h"
#include "lathe/support/Parallel.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lathe::runtime {

using namespace engine;

Result<std::shared_ptr<const DeviceImage>>
DeviceImage::create(std::shared_ptr<const EngineReader> reader, std::unique_ptr<Device> device,
                    const std::vector<const Program *> &programs, int64_t rank) {
  std::shared_ptr<DeviceImage> image(new DeviceImage());
  image->rank = rank;
  image->reader = std::move(reader);
  image->device = std::move(device);
  for (const Program *p : programs) {
    LATHE_RETURN_IF_ERROR(image->loadFunctions(*p));
    LATHE_RETURN_IF_ERROR(image->loadCollectives(*p));
    LATHE_RETURN_IF_ERROR(image->loadWeights(*p));
  }
  LATHE_RETURN_IF_ERROR(image->makeWeights(programs));
  LATHE_RETURN_IF_ERROR(image->device->sync());
  return std::shared_ptr<const DeviceImage>(std::move(image));
}

Status DeviceImage::loadFunctions(const Program &program) {
  auto &table = functions[&program];
  for (const Kernel &k : program.plan.kernels) {
    LATHE_RETURN_IF_ERROR(openModule(program.plan.target));
    std::vector<Launches> variants;
    for (const KernelVariant &v : k.variants) {
      Launches launches;
      for (const Launch &l : v.launches) {
        Result<Function *> f = functionOf(program, v.image, l);
        if (!f)
          return Status(f.status().code(), f.status().message(), "kernel '" + k.name + "'");
        launches.push_back(*f);
      }
      variants.push_back(std::move(launches));
    }
    table.push_back(std::move(variants));
  }
  return okStatus();
}

Status DeviceImage::openModule(const std::string &target) {
  if (module)
    return okStatus();
  const EngineReader::Section *section = reader->kernels(target);
  if (!section)
    return invalidError("the engine has no kernels for " + target);
  Result<std::unique_ptr<Module>> loaded = device->load(section->bytes);
  if (!loaded)
    return loaded.status();
  module = std::move(*loaded);
  return okStatus();
}

Result<Function *> DeviceImage::functionOf(const Program &program, const std::string &image, const Launch &launch) {
  Result<Function *> function = module->function(image, launch);
  if (function && program.plan.ranks > 1)
    LATHE_RETURN_IF_ERROR(module->load(*function));
  return function;
}

Status DeviceImage::loadCollectives(const Program &program) {
  if (device->isHost())
    return okStatus();
  for (const CompiledStep &step : program.blocks[0]) {
    if (!std::holds_alternative<CollectiveStep>(step.step->op))
      continue;
    LATHE_RETURN_IF_ERROR(openModule(program.plan.target));
    for (const Launch &launch : step.collective->launches) {
      if (launch.function.empty())
        continue;
      Result<Function *> f = functionOf(program, step.collective->image, launch);
      if (!f)
        return Status(f.status().code(), f.status().message(), "node " + step.nodes);
      collectives[{step.collective->image, launch.function}] = *f;
    }
  }
  return okStatus();
}

Status DeviceImage::loadWeights(const Program &program) {
  if (device->isHost()) {
    for (const Weight &w : program.plan.weights)
      bytes += w.random.empty() ? w.bytes : 0;
    return okStatus();
  }
  std::vector<bool> wanted(program.plan.weights.size());
  for (const Buffer &b : program.plan.buffers)
    if (b.kind == BufferKind::Weight && !b.onHost)
      wanted[b.index] = true;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Weight &weight = program.plan.weights[i];
    const std::string name = weight.shards ? shardSection(weight.section, rank) : weight.section;
    if (!wanted[i] || !program.plan.weights[i].random.empty() || sections.count(name))
      continue;
    const EngineReader::Section *section = reader->find(SectionType::Weights, name);
    Block block(*device, false);
    bool moved = false;
    LATHE_RETURN_IF_ERROR(block.reserve(section->bytes.size(), moved));
    LATHE_RETURN_IF_ERROR(device->copy(block.data(), section->bytes.data(), section->bytes.size(),
                                       CopyKind::HostToDevice));
    bytes += section->bytes.size();
    sections[name] = std::move(block);
  }
  return okStatus();
}

namespace {

bool hasPart(const RandomPart &part, int64_t rank) { return part.rank < 0 || part.rank == rank; }

/// All parts of the rank by several threads; equal for any number of them. What they leave is zeros.
void fillOnHost(void *memory, const Weight &weight, int64_t rank) {
  constexpr uint64_t kChunk = 1 << 20;
  struct Piece {
    const RandomPart *part;
    uint64_t from, to;
  };
  std::vector<Piece> pieces;
  if (weight.shards)
    std::memset(memory, 0, weight.bytes);
  for (const RandomPart &part : weight.random)
    for (uint64_t at = 0, count = hasPart(part, rank) ? part.rows * part.columns : 0; at < count; at += kChunk)
      pieces.push_back({&part, at, std::min(count, at + kChunk)});
  inParallel(pieces.size(), [&](size_t i) {
    fillRandom(static_cast<std::byte *>(memory), weight.dtype, *pieces[i].part, pieces[i].from,
               pieces[i].to);
  });
}

} // namespace

Status DeviceImage::makeWeights(const std::vector<const Program *> &programs) {
  std::map<uint64_t, std::pair<const Program *, const Weight *>> onDevice, onHost;
  uint64_t end = 0;
  for (const Program *p : programs)
    for (const Buffer &b : p->plan.buffers)
      if (b.kind == BufferKind::Weight && !p->plan.weights[b.index].random.empty()) {
        const Weight &w = p->plan.weights[b.index];
        (b.onHost && !device->isHost() ? onHost : onDevice)[w.offset] = {p, &w};
        end = std::max(end, w.offset + w.bytes);
      }
  bool moved = false;
  if (!onDevice.empty()) {
    Block block(*device, false);
    LATHE_RETURN_IF_ERROR(block.reserve(end, moved));
    bytes += end;
    for (auto &[offset, item] : onDevice) {
      void *to = static_cast<char *>(block.data()) + offset;
      if (device->isHost())
        fillOnHost(to, *item.second, rank);
      else
        LATHE_RETURN_IF_ERROR(fillOnDevice(to, *item.second, item.first->plan.target));
    }
    sections[kRandomSection] = std::move(block);
  }
  for (auto &[offset, item] : onHost) {
    Block block(*device, true);
    LATHE_RETURN_IF_ERROR(block.reserve(item.second->bytes, moved));
    fillOnHost(block.data(), *item.second, rank);
    made[offset] = std::move(block);
  }
  return okStatus();
}

Status DeviceImage::fillOnDevice(void *memory, const Weight &weight, const std::string &target) {
  if (!module)
    return invalidError("the engine has no kernels for " + target);
  Launch launch;
  launch.function = "fillRandom";
  launch.block[0] = 256;
  launch.args.push_back({KernelArg::Kind::Buffer, 0});
  for (int32_t i = 0; i < 9; ++i)
    launch.args.push_back({KernelArg::Kind::Symbol, i});
  launch.args.push_back({KernelArg::Kind::Status, 0});
  Result<Function *> function = module->function(kRandomKernel, launch);
  if (!function)
    return function.status();
  KernelVariant variant;
  if (weight.shards)
    LATHE_RETURN_IF_ERROR(device->zero(memory, weight.bytes));
  for (const RandomPart &part : weight.random) {
    if (!hasPart(part, rank))
      continue;
    auto bits = [](float value) { return int64_t(std::bit_cast<uint32_t>(value)); };
    const int64_t symbols[] = {static_cast<int64_t>(weight.dtype),
                               static_cast<int64_t>(part.spread.stream),
                               bits(part.spread.center) | bits(part.spread.reach) << 32,
                               static_cast<int64_t>(part.rows),
                               static_cast<int64_t>(part.columns),
                               static_cast<int64_t>(part.first),
                               static_cast<int64_t>(part.pitch),
                               static_cast<int64_t>(part.from),
                               static_cast<int64_t>(part.numberPitch())};
    LaunchCommand command;
    command.function = *function;
    command.spec = &launch;
    command.variant = &variant;
    command.grid[0] = static_cast<int64_t>(
        std::min<uint64_t>((part.rows * part.columns + 255) / 256, 1 << 14));
    command.buffers = {&memory, 1};
    command.dtypes = {&weight.dtype, 1};
    command.symbols = symbols;
    LATHE_RETURN_IF_ERROR(device->launch(command));
  }
  return okStatus();
}

Function *DeviceImage::function(const Program &program, int kernel, int variant,
                                int launch) const {
  return functions.at(&program)[kernel][variant][launch];
}

Function *DeviceImage::collective(const std::string &image, const std::string &name) const {
  return collectives.at({image, name});
}

void *DeviceImage::weight(const Weight &w, bool onHost, int64_t rank) const {
  if (!w.random.empty() && onHost && !device->isHost())
    return const_cast<void *>(made.at(w.offset).data());
  if (!w.random.empty() || (!onHost && !device->isHost())) {
    const bool isShard = w.random.empty() && w.shards;
    return static_cast<char *>(sections.at(isShard ? shardSection(w.section, this->rank) : w.section).data()) + w.offset;
  }
  const char *base =
      reader->find(SectionType::Weights, w.shards ? shardSection(w.section, rank) : w.section)->bytes.data();
  return const_cast<char *>(base + w.offset); // plans that write weights do not verify
}

const void *DeviceImage::initial(const Plan &plan, const State &state) const {
  if (state.initial < 0)
    return nullptr;
  const Weight &w = plan.weights[state.initial];
  return reader->find(SectionType::Weights, w.section)->bytes.data() + w.offset;
}

Result<std::shared_ptr<const Engine>> Engine::open(std::shared_ptr<const EngineReader> reader) {
  Result<std::vector<Plan>> plans = reader->plans();
  if (!plans)
    return plans.status();
  std::shared_ptr<Engine> e(new Engine());
  e->reader = std::move(reader);
  auto add = [](std::vector<std::string> &list, const std::string &name) {
    if (std::find(list.begin(), list.end(), name) == list.end())
      list.push_back(name);
  };
  std::map<std::string, State> states;
  for (Plan &plan : *plans) {
    add(e->entryNames, plan.entry);
    add(e->targetNames, plan.target);
    if (plan.ranks != plans->front().ranks)
      return invalidError("entries disagree about the number of ranks", "entry '" + plan.entry + "'");
    for (const State &s : plan.states) {
      add(e->stateNames, s.name);
      const State &known = states.try_emplace(s.name, s).first->second;
      if (known.dtype != s.dtype || known.axis != s.axis ||
          known.physical.size() != s.physical.size() || known.zeroInit != s.zeroInit ||
          (known.initial < 0) != (s.initial < 0))
        return invalidError("entries disagree about the type", "state '" + s.name + "'");
    }
    Result<std::unique_ptr<const Program>> program = Program::compile(std::move(plan));
    if (!program)
      return program.status();
    e->programs.push_back(std::move(*program));
  }
  if (e->programs.empty())
    return invalidError("the engine has no entry");
  auto main = std::find(e->entryNames.begin(), e->entryNames.end(), "main");
  if (main != e->entryNames.end())
    std::rotate(e->entryNames.begin(), main, main + 1);
  return std::shared_ptr<const Engine>(std::move(e));
}

const Program *Engine::program(const std::string &entry, const std::string &target) const {
  const std::string &name = entry.empty() ? entryNames.front() : entry;
  for (const auto &p : programs)
    if (p->plan.entry == name && (target.empty() || p->plan.target == target))
      return p.get();
  return nullptr;
}

std::vector<const Program *> Engine::programsOf(const std::string &target) const {
  std::vector<const Program *> out;
  for (const auto &p : programs)
    if (p->plan.target == target)
      out.push_back(p.get());
  return out;
}

Result<std::string> Engine::chooseTarget(const Device &device, const std::string &wanted) const {
  int best = 0;
  std::string chosen, all, missing;
  for (const auto &p : programs) {
    int fit = device.suitability(p->plan);
    if (!wanted.empty() && p->plan.target != wanted)
      continue;
    all += (all.empty() ? "" : ", ") + p->plan.target;
    if (!p->plan.cuda && device.isHost() && fit == 0)
      missing = missingCpuFeature(p->plan.cpuFeatures);
    if (fit > best) {
      best = fit;
      chosen = p->plan.target;
    }
  }
  if (best > 0)
    return chosen;
  if (all.empty())
    return usageError("the engine has no target '" + wanted + "'");
  return unsupportedError("none of the engine's targets (" + all + ") runs on " +
                          device.memoryName() +
                          (missing.empty() ? "" : ": this CPU has no " + missing));
}

Result<std::shared_ptr<const DeviceImage>> Engine::image(const std::string &target,
                                                         std::unique_ptr<Device> device, int64_t rank,
                                                         bool stays) const {
  std::lock_guard lock(mutex);
  const auto own = [](const Weight &w) { return w.shards && !w.random.empty(); };
  bool ofRank = !device->isHost();
  for (const Program *p : programsOf(target))
    ofRank |= std::any_of(p->plan.weights.begin(), p->plan.weights.end(), own);
  std::weak_ptr<const DeviceImage> &slot =
      images[device->memoryName() + " " + target + (ofRank ? " " + std::to_string(rank) : "")];
  std::shared_ptr<const DeviceImage> found = slot.lock();
  if (!found) {
    Result<std::shared_ptr<const DeviceImage>> made =
        DeviceImage::create(reader, std::move(device), programsOf(target), rank);
    if (!made)
      return made;
    slot = found = std::move(*made);
  }
  if (stays && std::find(staying.begin(), staying.end(), found) == staying.end())
    staying.push_back(found);
  return found;
}

} // namespace lathe::runtime
