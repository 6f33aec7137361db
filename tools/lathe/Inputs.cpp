//===- Inputs.cpp - what an entry is fed with -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Inputs.h"

#include "Results.h"

#include "lathe/import/TensorFile.h"
#include "lathe/support/Npy.h"
#include "lathe/support/TensorList.h"

#include <filesystem>
#include <functional>
#include <unistd.h>

namespace fs = std::filesystem;

namespace lathe::cli {
namespace {

const engine::Port *findPort(const std::vector<engine::Port> &ports, const std::string &name) {
  for (const engine::Port &port : ports)
    if (port.name == name)
      return &port;
  return nullptr;
}

Result<HostTensor> readTensor(const std::string &path, std::optional<DType> dtype) {
  if (path.size() > 4 && path.substr(path.size() - 4) == ".npy")
    return readNpy(path, dtype);
  if (path.size() > 3 && path.substr(path.size() - 3) == ".pb") {
    Result<NamedTensor> tensor = readTensorProto(path);
    if (!tensor)
      return tensor.status();
    return std::move(tensor->tensor);
  }
  return usageError("is neither .npy nor .pb", path);
}

Result<std::vector<int64_t>> parseSizes(const std::string &text, const std::string &option) {
  std::vector<int64_t> sizes;
  size_t begin = 0;
  while (begin <= text.size()) {
    size_t end = std::min(text.find('x', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    if (part.empty() || part.size() > 18 ||
        part.find_first_not_of("0123456789") != std::string::npos)
      return usageError("wants sizes like 1x3x224x224, not '" + text + "'", option);
    sizes.push_back(std::stoll(part));
    begin = end + 1;
  }
  return sizes;
}

/// SplitMix64: the same numbers on every machine.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double unit() { return double(next() >> 11) * 0x1p-53; }

private:
  uint64_t state;
};

void fill(HostTensor &tensor, uint64_t seed) {
  Random random(seed);
  for (int64_t i = 0, count = tensor.count(); i < count; ++i) {
    if (isComplex(tensor.dtype)) {
      double re = 2 * random.unit() - 1, im = 2 * random.unit() - 1;
      tensor.setComplex(i, {re, im});
    } else if (isFloat(tensor.dtype)) {
      tensor.setReal(i, 2 * random.unit() - 1);
    } else {
      tensor.setInteger(i, int64_t(random.next() >> 63));
    }
  }
}

double physicalMemory() { return double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE)); }

uint64_t hashOf(const std::string &text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text)
    hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

bool isList(const std::vector<engine::Port> &ports, const std::string &name) {
  return findPort(ports, name + kListValues) && findPort(ports, name + kListShapes);
}

/// What the ports are of, in the model's order: themselves, but a list once.
std::vector<std::string> valueNames(const std::vector<engine::Port> &ports) {
  std::vector<std::string> names;
  for (const engine::Port &port : ports) {
    std::string name = port.name.substr(0, port.name.rfind(kListValues));
    if (!isList(ports, name))
      names.push_back(port.name);
    else if (names.empty() || names.back() != name)
      names.push_back(name);
  }
  return names;
}

/// Whether it is one tensor, s[0], of a sequence whose length was fixed when compiling.
bool isPartOfSequence(const std::string &name) {
  const size_t at = name.rfind('[');
  return at != std::string::npos && at + 2 < name.size() && name.back() == ']' &&
         name.find_first_not_of("0123456789", at + 1) == name.size() - 1;
}

/// A SequenceProto or an OptionalProto, as the ports of a list.
Status readList(const std::string &path, const std::vector<engine::Port> &ports, const std::string &name,
                const std::function<void(const std::string &, HostTensor)> &take) {
  // An optional tensor lies in its file as a sequence of one.
  const bool isOptional = findPort(ports, name + kListPresent);
  auto value = readValueProto(path, isOptional ? ValueKind::OptionalSequence : ValueKind::Sequence);
  if (!value)
    return value.status();
  auto parts = partsOfList(ports, name, *value);
  if (!parts)
    return parts.status();
  const char *suffixes[] = {kListValues, kListShapes, kListPresent};
  for (size_t i = 0; i < (*parts)->size(); ++i)
    take(name + suffixes[i], std::move((**parts)[i]));
  return okStatus();
}

Status readDataFolder(const InputOptions &options, const engine::Plan &plan, InputFiles &files) {
  std::error_code error;
  if (!fs::is_directory(options.dataFolder, error))
    return usageError("is no folder", options.dataFolder);
  auto path = [&](const char *prefix, size_t i) {
    return (fs::path(options.dataFolder) / (prefix + std::to_string(i) + ".pb")).string();
  };
  if (!fs::exists(path("input_", 0), error) && !fs::exists(path("output_", 0), error))
    return usageError("has neither input_0.pb nor output_0.pb", options.dataFolder);
  const std::vector<std::string> inputs = valueNames(plan.inputs), outputs = valueNames(plan.outputs);
  for (size_t i = 0; fs::exists(path("input_", i), error); ++i) {
    if (options.skip.count(i))
      continue;
    if (i < inputs.size() && isList(plan.inputs, inputs[i])) {
      LATHE_RETURN_IF_ERROR(readList(path("input_", i), plan.inputs, inputs[i], [&](const std::string &port, HostTensor tensor) {
        files.named[port] = std::move(tensor);
      }));
      continue;
    }
    Result<NamedTensor> tensor = readTensorProto(path("input_", i));
    const bool isNamed = tensor.ok() && findPort(plan.inputs, tensor->name);
    if (!isNamed && i < inputs.size() && isPartOfSequence(inputs[i]))
      return usageError("is of a sequence whose length was fixed when compiling: give its tensors by --input '" + inputs[i] +
                            "=FILE', or compile without the length",
                        path("input_", i));
    if (!tensor)
      return tensor.status();
    if (isNamed)
      files.named[tensor->name] = std::move(tensor->tensor);
    else
      files.byPosition.push_back(std::move(tensor->tensor));
  }
  files.expected.resize(plan.outputs.size());
  for (size_t i = 0; fs::exists(path("output_", i), error); ++i) {
    auto place = [&](const std::string &name) -> size_t { return findPort(plan.outputs, name) - plan.outputs.data(); };
    if (i < outputs.size() && isList(plan.outputs, outputs[i])) {
      LATHE_RETURN_IF_ERROR(readList(path("output_", i), plan.outputs, outputs[i], [&](const std::string &port, HostTensor tensor) {
        files.expected[place(port)] = std::move(tensor);
      }));
      continue;
    }
    Result<NamedTensor> tensor = readTensorProto(path("output_", i));
    if (!tensor)
      return tensor.status();
    size_t at = i < outputs.size() ? place(outputs[i]) : plan.outputs.size();
    for (size_t o = 0; o < plan.outputs.size(); ++o)
      if (plan.outputs[o].name == tensor->name)
        at = o;
    if (at >= files.expected.size())
      return usageError("the model has only " + std::to_string(plan.outputs.size()) + " outputs",
                        path("output_", i));
    files.expected[at] = std::move(tensor->tensor);
  }
  return okStatus();
}

/// Values of the plan's symbols as far as inputs, --shape and states decide them; the
/// rest take the size that was optimised for.
std::map<std::string, int64_t>
symbolValues(const engine::Plan &plan, const std::map<std::string, std::vector<int64_t>> &sizes,
             const std::map<std::string, int64_t> &stateLengths) {
  std::map<std::string, int64_t> values;
  for (const engine::Symbol &symbol : plan.symbols) {
    int64_t value = std::max(symbol.min, std::min(symbol.opt, symbol.max));
    int64_t step = std::max<int64_t>(symbol.multipleOf, 1);
    value = std::max(symbol.min, value / step * step);
    if (symbol.origin == engine::SymbolOrigin::Constant)
      value = symbol.min;
    if (symbol.origin == engine::SymbolOrigin::StateLength && symbol.index >= 0) {
      auto it = stateLengths.find(plan.states[size_t(symbol.index)].name);
      value = it == stateLengths.end() ? 0 : it->second;
    }
    values[symbol.name] = value;
  }
  for (const engine::Port &port : plan.inputs) {
    auto it = sizes.find(port.name);
    if (it == sizes.end() || it->second.size() != port.dims.size())
      continue;
    for (size_t axis = 0; axis < port.dims.size(); ++axis)
      if (std::optional<std::string> name = port.dims[axis].symbolName())
        values[*name] = it->second[axis];
  }
  return values;
}

} // namespace

void InputOptions::addTo(Parser &parser) {
  parser.add("input", "NAME=FILE", "An input from a .npy file or a .pb file (TensorProto)", files);
  parser.add("shape", "INPUT=1x3x224x224",
             "The sizes of an input: a model is compiled for them alone, as by `compile --shape`; of an "
             "engine's sizes they choose",
             [this](const std::string &text) {
               fixed.push_back(text);
               shapes.push_back(text);
               return okStatus();
             });
  parser.add("input-shape", "INPUT=1x3x224x224",
             "The sizes of a random input in this run alone: a model is compiled for all of its sizes",
             shapes);
  parser.add("data", "DIR",
             "A folder like ONNX's test_data_set_0: inputs from input_*.pb, sequences and optionals too, and "
             "results are compared with output_*.pb",
             dataFolder);
  parser.add("seed", "N",
             "Seed of inputs that no file gives (default 0): floats from [-1, 1), integers and "
             "bools 0 or 1",
             seed);
}

CompileOptions InputOptions::fixing(CompileOptions options, const std::string &path) const {
  if (!isEngine(path))
    options.shapes.insert(options.shapes.end(), fixed.begin(), fixed.end());
  return options;
}

Result<std::optional<std::vector<HostTensor>>> partsOfList(const std::vector<engine::Port> &ports, const std::string &name,
                                                           const std::optional<std::vector<HostTensor>> &tensors) {
  using Parts = std::optional<std::vector<HostTensor>>;
  if (!isList(ports, name))
    return Parts();
  const engine::Port *values = findPort(ports, name + kListValues);
  Result<std::vector<HostTensor>> parts = packList(tensors, values->dtype, findPort(ports, name + kListPresent));
  if (!parts)
    return Status(parts.status().code(), parts.status().message(), "'" + name + "': " + parts.status().location());
  return Parts(std::move(*parts));
}

Result<InputFiles> readInputs(const InputOptions &options, const engine::Plan &plan) {
  InputFiles files;
  if (!options.dataFolder.empty())
    LATHE_RETURN_IF_ERROR(readDataFolder(options, plan, files));
  for (const std::string &text : options.files) {
    size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return usageError("wants NAME=FILE, not '" + text + "'", "--input");
    std::string name = text.substr(0, equals);
    const engine::Port *port = findPort(plan.inputs, name);
    Result<HostTensor> tensor = readTensor(text.substr(equals + 1),
                                           port ? std::optional<DType>(port->dtype) : std::nullopt);
    if (!tensor)
      return Status(tensor.status().code(), tensor.status().message(),
                    "input '" + name + "': " + tensor.status().location());
    files.named[name] = std::move(*tensor);
  }
  for (const std::string &text : options.shapes) {
    size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      return usageError("wants NAME=1x3x224x224, not '" + text + "'", "--shape");
    // How many tensors a sequence or an optional has was said to the compiler.
    if (text[equals + 1] == '[' || text.compare(equals + 1, std::string::npos, "none") == 0)
      continue;
    Result<std::vector<int64_t>> sizes = parseSizes(text.substr(equals + 1), "--shape");
    if (!sizes)
      return sizes.status();
    files.shapes[text.substr(0, equals)] = std::move(*sizes);
  }
  return files;
}

Result<std::vector<HostTensor>> makeInputs(const InputOptions &options, const InputFiles &files,
                                           const engine::Plan &plan,
                                           const std::map<std::string, int64_t> &stateLengths,
                                           int round) {
  std::vector<HostTensor> inputs(plan.inputs.size());
  std::vector<bool> given(plan.inputs.size());
  std::map<std::string, std::vector<int64_t>> sizes = files.shapes;
  size_t position = 0;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    auto it = files.named.find(plan.inputs[i].name);
    if (it != files.named.end())
      inputs[i] = it->second;
    else if (position < files.byPosition.size())
      inputs[i] = files.byPosition[position++];
    else
      continue;
    given[i] = true;
    sizes[plan.inputs[i].name] = inputs[i].dims;
  }
  if (position < files.byPosition.size())
    return usageError("has " + std::to_string(files.byPosition.size() - position) +
                          " more inputs than entry '" + plan.entry + "'",
                      options.dataFolder);
  std::map<std::string, int64_t> values = symbolValues(plan, sizes, stateLengths);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    if (given[i])
      continue;
    const engine::Port &port = plan.inputs[i];
    if (std::string list = port.name.substr(0, port.name.rfind(kListValues)); isList(plan.inputs, list))
      return usageError("a sequence or optional of any length is not drawn at random; give it by --data, or how many tensors "
                        "it has by --shape when compiling",
                        "input '" + list + "'");
    std::vector<int64_t> dims;
    auto stated = files.shapes.find(port.name);
    if (stated != files.shapes.end()) {
      dims = stated->second;
    } else {
      for (const DimExpr &dim : port.dims) {
        Result<int64_t> size = dim.evaluate(values);
        if (!size)
          return Status(ErrorCode::Usage, size.status().str(), "input '" + port.name + "'");
        dims.push_back(*size);
      }
    }
    Result<int64_t> count = checkedElementCount(dims);
    if (!count)
      return Status(ErrorCode::Usage, count.status().message(), "input '" + port.name + "'");
    if (double bytes = double(*count) * bitWidth(port.dtype) / 8; bytes > physicalMemory())
      return usageError(describeBytes(bytes) + " are more than this machine has",
                        "input '" + port.name + "'");
    inputs[i] = HostTensor(port.dtype, dims);
    fill(inputs[i], hashOf(plan.entry + "/" + port.name) + uint64_t(options.seed) * 1000003 +
                        uint64_t(round) * 7919);
  }
  return inputs;
}

/// The entry that makes of parameters what the others read (lathe/runtime/lathe.h).
static constexpr const char *kPrepare = "prepare";

Result<std::vector<std::string>> expandEntries(const std::vector<std::string> &texts,
                                               const Model &model) {
  std::vector<std::string> names;
  for (const std::string &text : texts) {
    size_t star = text.rfind('*');
    int64_t count = 1;
    if (star != std::string::npos) {
      std::string number = text.substr(star + 1);
      if (number.empty() || number.size() > 9 ||
          number.find_first_not_of("0123456789") != std::string::npos || std::stoll(number) < 1)
        return usageError("wants NAME or NAME*COUNT, not '" + text + "'", "--entry");
      count = std::stoll(number);
    }
    names.insert(names.end(), size_t(count), text.substr(0, star));
  }
  if (names.empty()) {
    for (const engine::Plan &plan : model.plans)
      if (plan.entry == kPrepare && names.empty())
        names.push_back(kPrepare);
    names.push_back(model.plans.front().entry);
  }
  return names;
}

void PreparedValues::give(EntryRun &run) const {
  if (run.plan->entry == kPrepare)
    return;
  for (size_t i = 0; i < run.inputs.size(); ++i)
    if (auto found = values.find(run.plan->inputs[i].name); found != values.end())
      run.inputs[i] = found->second;
}

void PreparedValues::take(const EntryRun &run, const std::vector<lathe_tensor> &results) {
  if (run.plan->entry != kPrepare)
    return;
  for (size_t i = 0; i < run.inputs.size(); ++i)
    values.insert_or_assign(run.plan->inputs[i].name, run.inputs[i]);
  for (size_t i = 0; i < results.size(); ++i)
    values.insert_or_assign(run.plan->outputs[i].name, copyOf(results[i]));
}

Result<EntryRun> prepareRun(const InputOptions &options, const Model &model,
                            const Session &session, const std::string &entry, size_t round) {
  EntryRun run;
  Result<const engine::Plan *> plan = model.plan(entry, session.target());
  if (!plan)
    return plan.status();
  run.plan = *plan;
  Result<InputFiles> files = readInputs(options, **plan);
  if (!files)
    return files.status();
  run.files = std::move(*files);
  // A name that no entry of the chain has is a slip of the pen.
  std::set<std::string> known;
  for (const engine::Plan &other : model.plans)
    for (const engine::Port &port : other.inputs)
      known.insert(port.name);
  for (const auto &[name, tensor] : run.files.named)
    if (!known.count(name))
      return usageError("the model has no such input", "input '" + name + "'");
  for (const auto &[name, sizes] : run.files.shapes)
    if (!known.count(name))
      return usageError("the model has no such input", "--shape " + name);
  Result<std::vector<HostTensor>> inputs =
      makeInputs(options, run.files, **plan, session.stateLengths(**plan), int(round));
  if (!inputs)
    return inputs.status();
  run.inputs = std::move(*inputs);
  return run;
}

} // namespace lathe::cli
