//===- Session.cpp - an engine that a verb works on -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Session.h"

#include "Progress.h"
#include "Results.h"

#include "lathe/codegen/Target.h"
#include "lathe/engine/Draws.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>

namespace lathe::cli {
namespace {

using Clock = std::chrono::steady_clock;
double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void addOnce(std::vector<std::string> &names, const std::string &name) {
  if (std::find(names.begin(), names.end(), name) == names.end())
    names.push_back(name);
}

/// An engine is compiled already: what could only change the compilation is a mistake.
Status noCompileOptions(const CompileOptions &options) {
  const std::pair<const char *, bool> given[] = {
      {"--dim", !options.dims.empty()},       {"--entry", !options.entries.empty()},
      {"--donate", !options.donate.empty()},  {"--const", !options.constants.empty()},
      {"--parameter", !options.parameters.empty()},
      {"--replace", !options.replace.empty()}, {"--config", !options.configs.empty()},
      {"--lock", !options.lock.empty()},      {"--allow", !options.allow.empty()},
      {"--shape", !options.shapes.empty()},   {"--random-weights", options.randomWeights.has_value()},
      {"--winograd-tolerance", !options.winogradTolerance.empty()},
      {"--sparse-weights", !options.sparseWeights.empty()},
      {"--mesh", !options.mesh.empty()},      {"--shard", !options.shard.empty()},
      {"--rank-memory", options.rankMemory != 0},
      {"--streams", options.streams != 0}};
  for (const auto &[name, isGiven] : given)
    if (isGiven)
      return usageError("has no effect on an engine, which is compiled already", name);
  return okStatus();
}

/// Whether torchrun, mpirun or srun has started this process as one of several.
bool isOneOfSeveral() {
  const char *variables[][2] = {{"RANK", "WORLD_SIZE"},
                                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                {"PMI_RANK", "PMI_SIZE"},
                                {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (auto [rank, ranks] : variables)
    if (const char *count = std::getenv(ranks); count && std::getenv(rank))
      return std::string_view(count) != "1";
  return false;
}

/// Ranks share a CPU; GPUs have one each, from the one that is named on.
std::string deviceOfRank(const std::string &device, int rank) {
  const size_t colon = device.find(':');
  const std::string kind = device.substr(0, colon);
  if (kind == "cpu")
    return device;
  int first = 0;
  if (colon != std::string::npos) {
    const char *begin = device.c_str() + colon + 1, *end = device.c_str() + device.size();
    if (auto [at, error] = std::from_chars(begin, end, first); error != std::errc() || at != end)
      return device; // as it is where an error says what is wrong with it
  }
  return kind + ":" + std::to_string(first + rank);
}

} // namespace

bool isEngine(const std::string &path) {
  return isEngineFile(path) || path.ends_with(".lathe");
}

Status toStatus(lathe_error *error) {
  if (!error)
    return okStatus();
  Status status(ErrorCode(lathe_error_code(error)), lathe_error_message(error),
                lathe_error_location(error));
  lathe_error_free(error);
  return status;
}

/// The plans of a file that is open.
static Result<Model> withPlans(Model model) {
  Result<std::vector<engine::Plan>> plans = model.file->plans();
  if (!plans)
    return plans.status();
  model.plans = std::move(*plans);
  if (model.plans.empty())
    return invalidError("holds no plan", model.path);
  for (engine::Plan &plan : model.plans) {
    model.draws |= engine::draws(plan);
    plan.inputs.resize(engine::givenInputs(plan)); // what callers give
  }
  return model;
}

Result<Model> Model::fromBytes(const std::string &path, std::string bytes) {
  Model model;
  model.path = path;
  model.compiled = true;
  model.bytes = std::move(bytes);
  auto file = engine::EngineReader::fromMemory(model.bytes);
  if (!file)
    return file.status();
  model.file = *file;
  return withPlans(std::move(model));
}

void addTrustOption(Parser &parser, std::string &into) {
  parser.add("trust", "KEYRING",
             "Take no engine but one that a key of this file has signed (`lathe sign`): an engine is a "
             "program, and to run it is to trust its source",
             into);
}

Result<Model> Model::open(const std::string &path, CompileOptions options,
                          const std::string &device, const std::string &trust) {
  if (std::error_code error; !std::filesystem::exists(path, error))
    return usageError("no such file", path);
  if (isEngine(path)) {
    LATHE_RETURN_IF_ERROR(noCompileOptions(options));
    Model model;
    model.path = path;
    model.trust = trust;
    engine::KeyRing ring;
    engine::EngineReader::Options reading;
    if (!trust.empty()) {
      Result<engine::KeyRing> found = engine::KeyRing::read(trust);
      if (!found)
        return found.status();
      ring = std::move(*found);
      reading.trusted = &ring;
    }
    auto file = engine::EngineReader::open(path, reading);
    if (!file)
      return file.status();
    model.file = *file;
    return withPlans(std::move(model));
  }
  if (!trust.empty())
    return usageError("is of engines; a model is compiled here", "--trust");
  LATHE_RETURN_IF_ERROR(completeTarget(options, device));
  Progress progress;
  options.onPhase = [&](Phase phase) {
    progress.show("compiling: " + std::string(toString(phase)), int(phase), 12);
  };
  Result<CompileResult> compiled = compileModel(path, options);
  progress.finish();
  if (!compiled)
    return compiled.status();
  for (const std::string &warning : compiled->warnings)
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  Result<Model> model = fromBytes(path, std::move(compiled->bytes));
  if (model) {
    model->fromCache = compiled->fromCache;
    model->compileSeconds = compiled->seconds;
  }
  return model;
}

std::vector<std::string> Model::entries() const {
  std::vector<std::string> names;
  for (const engine::Plan &plan : plans)
    addOnce(names, plan.entry);
  return names;
}

std::vector<std::string> Model::targets() const {
  std::vector<std::string> names;
  for (const engine::Plan &plan : plans)
    addOnce(names, plan.target);
  return names;
}

Result<const engine::Plan *> Model::plan(const std::string &entry,
                                         const std::string &target) const {
  for (const engine::Plan &plan : plans)
    if ((entry.empty() || plan.entry == entry) && (target.empty() || plan.target == target))
      return &plan;
  return usageError("the engine has no such entry; it has " + joined(entries()) + " for " +
                        joined(targets()),
                    "entry '" + entry + "'");
}

Result<Session> Session::open(const Model &model, const SessionOptions &options) {
  Session session;
  Clock::time_point begin = Clock::now();
  lathe_engine *engine = nullptr;
  lathe_open_options opening = {sizeof opening,
                                model.trust.empty() ? nullptr : model.trust.c_str()};
  LATHE_RETURN_IF_ERROR(toStatus(
      model.compiled ? lathe_engine_open_memory(model.bytes.data(), model.bytes.size(), &engine)
                     : lathe_engine_open_with(model.path.c_str(), &opening, &engine)));
  session.engine.reset(engine);
  lathe_options wanted = {};
  wanted.size = sizeof wanted;
  wanted.threads = options.threads;
  wanted.target = options.target.empty() ? nullptr : options.target.c_str();
  wanted.no_graphs = options.noGraphs;
  wanted.no_overlap = options.noOverlap;
  wanted.no_pinning = options.noPinning;
  const int ranks = model.plans.front().ranks;
  if (options.ranks && options.ranks != ranks)
    return usageError("the engine is for " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"),
                      "--ranks=" + std::to_string(options.ranks));
  if (options.maybeRank && !options.ranks && isOneOfSeveral()) {
    lathe_world world = {}; // as the launcher says
    world.size = sizeof world;
    lathe_context *context = nullptr;
    Status joined = toStatus(lathe_context_create_rank(engine, options.device.c_str(), &wanted, &world, &context));
    if (!joined.ok() && ranks == 1)
      return Status(joined.code(), joined.message() + "; --ranks=1 runs it in each process alone", joined.location());
    LATHE_RETURN_IF_ERROR(joined);
    session.handle.reset(context);
  } else if (ranks > 1) {
    std::vector<std::string> names;
    for (int rank = 0; rank < ranks; ++rank)
      names.push_back(deviceOfRank(options.device, rank));
    std::vector<const char *> devices;
    for (const std::string &name : names)
      devices.push_back(name.c_str());
    lathe_group *group = nullptr;
    LATHE_RETURN_IF_ERROR(
        toStatus(lathe_group_create(engine, devices.data(), devices.size(), &wanted, &group)));
    session.group.reset(group);
  } else {
    lathe_context *context = nullptr;
    LATHE_RETURN_IF_ERROR(
        toStatus(lathe_context_create(engine, options.device.c_str(), &wanted, &context)));
    session.handle.reset(context);
  }
  session.targetName = lathe_context_target(session.context());
  session.seconds = secondsSince(begin);
  return session;
}

Status Session::run(const engine::Plan &plan, const std::vector<HostTensor> &inputs,
                    std::vector<lathe_tensor> &outputs) const {
  std::vector<lathe_tensor> views;
  for (const HostTensor &input : inputs)
    views.push_back(viewOf(input));
  outputs.resize(plan.outputs.size());
  if (!group)
    return run(plan, views, outputs);
  Result<std::vector<lathe_tensor>> made = runRanks(plan, views, outputs);
  if (!made)
    return made.status();
  const size_t count = outputs.size();
  std::copy_n(made->begin(), count, outputs.begin());
  for (size_t i = count; i < made->size(); ++i)
    if (copyOf((*made)[i]).data != copyOf(outputs[i % count]).data)
      return runtimeError("rank " + std::to_string(i / count) + " has another result than rank 0",
                          "output '" + plan.outputs[i % count].name + "'");
  return okStatus();
}

Status Session::run(const engine::Plan &plan, const std::vector<lathe_tensor> &inputs,
                    std::vector<lathe_tensor> &outputs) const {
  if (!group)
    return toStatus(lathe_run(context(), plan.entry.c_str(), inputs.data(), inputs.size(), outputs.data(),
                              outputs.size()));
  Result<std::vector<lathe_tensor>> made = runRanks(plan, inputs, outputs);
  if (made)
    std::copy_n(made->begin(), outputs.size(), outputs.begin());
  return made.status();
}

Result<std::vector<lathe_tensor>> Session::runRanks(const engine::Plan &plan,
                                                    const std::vector<lathe_tensor> &inputs,
                                                    const std::vector<lathe_tensor> &outputs) const {
  std::vector<lathe_tensor> given, made(outputs.size() * ranks());
  for (size_t r = 0; r < ranks(); ++r)
    given.insert(given.end(), inputs.begin(), inputs.end());
  std::copy(outputs.begin(), outputs.end(), made.begin());
  uint64_t step = 0;
  LATHE_RETURN_IF_ERROR(toStatus(lathe_group_submit(group.get(), plan.entry.c_str(), given.data(),
                                                    inputs.size(), made.data(), outputs.size(), &step)));
  LATHE_RETURN_IF_ERROR(toStatus(lathe_group_wait(group.get(), step, -1)));
  return made;
}

Status Session::warm(const engine::Plan &plan, const std::vector<HostTensor> &inputs) const {
  std::vector<lathe_tensor> views, outputs(plan.outputs.size());
  for (const HostTensor &input : inputs)
    views.push_back(viewOf(input));
  for (size_t r = 0; r < ranks(); ++r)
    LATHE_RETURN_IF_ERROR(toStatus(lathe_warm(rank(r), plan.entry.c_str(), views.data(), views.size(),
                                              outputs.data(), outputs.size())));
  return okStatus();
}

std::map<std::string, int64_t> Session::stateLengths(const engine::Plan &plan) const {
  std::map<std::string, int64_t> lengths;
  for (const engine::State &state : plan.states) {
    int64_t length = 0;
    if (state.axis >= 0 &&
        toStatus(lathe_state_length(context(), state.name.c_str(), &length)).ok())
      lengths[state.name] = length;
  }
  return lengths;
}

Status Session::truncateStates(const std::map<std::string, int64_t> &lengths) const {
  for (size_t r = 0; r < ranks(); ++r)
    for (const auto &[name, length] : lengths)
      LATHE_RETURN_IF_ERROR(toStatus(lathe_state_truncate(rank(r), name.c_str(), length)));
  return okStatus();
}

static Result<std::string> targetOfDevice(const std::string &device) {
  if (device.rfind("cuda", 0) != 0)
    return device.rfind("fake", 0) == 0 ? std::string("sm_90a") : std::string("native");
  int index = device.size() > 5 ? std::atoi(device.c_str() + 5) : 0;
  // Only to learn the architecture; the runtime opens the driver for itself.
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver)
    return unsupportedError("there is no NVIDIA driver on this machine", device);
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto get = reinterpret_cast<int (*)(int *, int)>(dlsym(driver, "cuDeviceGet"));
  auto attribute =
      reinterpret_cast<int (*)(int *, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
  constexpr int kMajor = 75, kMinor = 76; // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  int ordinal = 0, major = 0, minor = 0;
  if (!init || !get || !attribute || init(0) || get(&ordinal, index) ||
      attribute(&major, kMajor, ordinal) || attribute(&minor, kMinor, ordinal))
    return unsupportedError("there is no such GPU", device);
  return Target::forGpu(major, minor).name;
}

Status completeTarget(CompileOptions &options, const std::string &device) {
  if (!options.targets.empty())
    return okStatus();
  Result<std::string> target = targetOfDevice(device);
  if (target)
    options.targets.push_back(*target);
  return target.status();
}

lathe_tensor viewOf(const HostTensor &tensor) {
  lathe_tensor view = {};
  view.data = const_cast<std::byte *>(tensor.data.data());
  view.bytes = tensor.data.size();
  view.dtype = lathe_dtype(tensor.dtype);
  view.memory = LATHE_HOST;
  view.rank = int32_t(tensor.dims.size());
  view.dims = tensor.dims.data();
  return view;
}

HostTensor copyOf(const lathe_tensor &tensor) {
  HostTensor copy(DType(tensor.dtype), {tensor.dims, tensor.dims + tensor.rank});
  if (copy.dtype == DType::String) {
    const auto *packed = static_cast<const std::byte *>(tensor.data);
    copy.data.assign(packed, packed + tensor.bytes);
    return copy;
  }
  if (copy.data.empty())
    return copy;
  const auto *source = static_cast<const std::byte *>(tensor.data);
  if (!tensor.strides || bitWidth(copy.dtype) < 8) {
    std::memcpy(copy.data.data(), source, copy.data.size());
    return copy;
  }
  // Element by element; types below a byte are never strided.
  size_t element = bitWidth(copy.dtype) / 8;
  std::vector<int64_t> index(copy.dims.size());
  for (int64_t i = 0, count = copy.count(); i < count; ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d)
      at += index[d] * tensor.strides[d];
    std::memcpy(copy.data.data() + size_t(i) * element, source + at * int64_t(element), element);
    for (size_t d = index.size(); d-- && ++index[d] == copy.dims[d];)
      index[d] = 0;
  }
  return copy;
}

} // namespace lathe::cli
