//===- Binding.cpp - symbols and memory before the steps --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Run.h"
#include "Tensors.h"

#include "lathe/engine/Draws.h"

#include <algorithm>
#include <cstring>

namespace lathe::runtime {

using namespace engine;

namespace {

std::string inputName(const Port &port) { return "input '" + port.name + "'"; }

bool aligned(const void *p, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(alignment) == 0;
}

} // namespace

Status Run::bindSymbol(int32_t symbol, int64_t value, const std::string &what,
                       const std::string &where) {
  const Symbol &s = plan.symbols[symbol];
  if (value < s.min || value > s.max || value % s.multipleOf != 0) {
    std::string range = std::to_string(s.min) + " to " +
                        (s.max == DimRange::kUnbounded ? "any" : std::to_string(s.max));
    if (s.multipleOf != 1)
      range += " in multiples of " + std::to_string(s.multipleOf);
    return runtimeError(what + " is " + std::to_string(value) + "; this engine takes " + s.name +
                            " = " + range,
                        where);
  }
  symbols[symbol] = value;
  return okStatus();
}

Status Run::checkCounts() {
  if (inputs.size() != plan.inputs.size()) {
    const size_t hidden = plan.inputs.size() - givenInputs(plan);
    return usageError("entry '" + plan.entry + "' takes " + std::to_string(givenInputs(plan)) +
                      " inputs, not " + std::to_string(inputs.size() - std::min(hidden, inputs.size())));
  }
  if (!outputs.empty() && outputs.size() != plan.outputs.size())
    return usageError("entry '" + plan.entry + "' gives " + std::to_string(plan.outputs.size()) +
                      " outputs, not " + std::to_string(outputs.size()));
  return okStatus();
}

/// All that the sizes of a step follow from: types and sizes of inputs, lengths of states. False
/// where a shape cannot be kept, or the inputs are no tensors.
bool Run::makeKey() {
  std::vector<int64_t> &key = context.key;
  key.clear();
  for (const lathe_tensor &t : inputs) {
    if (t.rank < 0 || t.rank > LATHE_MAX_RANK || (t.rank > 0 && !t.dims))
      return false;
    key.push_back(int64_t(t.dtype) << 8 | t.rank);
    key.insert(key.end(), t.dims, t.dims + t.rank);
  }
  for (const State &s : plan.states) {
    const StateSlot *slot = context.states->find(s.name);
    key.push_back(slot ? slot->length : 0);
  }
  return program.isStatic;
}

/// Sizes of everything: found again, or worked out.
Status Run::bindSizes() {
  bool keeps = makeKey();
  if (keeps)
    shape = entry.shapes.find(context.key);
  if (shape) {
    symbols = shape->layout.symbols;
    inputBytes = shape->inputBytes;
  } else {
    LATHE_RETURN_IF_ERROR(bindSymbols());
    if (keeps) {
      Result<Shape *> made = makeShape();
      if (!made)
        return made.status();
      shape = *made;
    }
  }
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    LATHE_RETURN_IF_ERROR(checkData(i));
  return lay();
}

Result<Shape *> Run::makeShape() {
  auto made = std::make_unique<Shape>();
  Result<Layout> laid = evaluateLayout(program, symbols);
  if (!laid)
    return laid.status();
  made->layout = std::move(*laid);
  made->inputBytes = inputBytes;
  layout = &made->layout;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    Result<PortShape> output = outputShape(i);
    if (!output)
      return output.status();
    made->outputs.push_back(std::move(*output));
  }
  for (size_t i = 0; i < plan.states.size(); ++i) {
    auto dims = evaluateDims(program.states[i].physical, symbols, plan.states[i].name);
    if (!dims)
      return dims.status();
    made->stateSizes.push_back(std::move(*dims));
  }
  // The oldest makes room, with its graphs; none of a step under way.
  auto &all = entry.shapes.all();
  if (all.size() >= context.graphs.shapeLimit()) {
    auto oldest = all.end();
    for (auto it = all.begin(); it != all.end(); ++it)
      if (context.isOver(it->second->lastStep) &&
          (oldest == all.end() || it->second->lastStep < oldest->second->lastStep))
        oldest = it;
    if (oldest != all.end()) {
      for (Graph &graph : oldest->second->graphs)
        context.dropGraph(graph.handle);
      all.erase(oldest);
    }
  }
  return entry.shapes.add(context.key, std::move(made));
}

Status Run::bindSymbols() {
  symbols.assign(plan.symbols.size(), kUnknownSymbol);
  inputBytes.assign(plan.inputs.size(), 0);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Port &port = plan.inputs[i];
    const lathe_tensor &t = inputs[i];
    if (static_cast<DType>(t.dtype) != port.dtype) {
      const char *given = lathe_dtype_name(t.dtype);
      return usageError(std::string("element type is ") + (given ? given : "unknown") +
                            ", expected " + std::string(name(port.dtype)),
                        inputName(port));
    }
    if (t.rank != static_cast<int32_t>(port.dims.size()) || (t.rank > 0 && !t.dims))
      return usageError("rank is " + std::to_string(t.rank) + ", expected " +
                            std::to_string(port.dims.size()),
                        inputName(port));
    for (int32_t a = 0; a < t.rank; ++a)
      if (t.dims[a] < 0)
        return usageError("axis " + std::to_string(a) + " has a negative size", inputName(port));
  }
  for (size_t i = 0; i < plan.symbols.size(); ++i) {
    const Symbol &s = plan.symbols[i];
    if (s.origin == SymbolOrigin::Constant) {
      symbols[i] = s.min;
    } else if (s.origin == SymbolOrigin::StateLength) {
      const StateSlot *slot = context.states->find(plan.states[s.index].name);
      LATHE_RETURN_IF_ERROR(bindSymbol(static_cast<int32_t>(i), slot ? slot->length : 0,
                                       "the length",
                                       "state '" + plan.states[s.index].name + "'"));
    } else if (s.origin == SymbolOrigin::InputDim) {
      LATHE_RETURN_IF_ERROR(bindSymbol(static_cast<int32_t>(i), inputs[s.index].dims[s.axis],
                                       "axis " + std::to_string(s.axis),
                                       inputName(plan.inputs[s.index])));
    }
  }
  LATHE_RETURN_IF_ERROR(deriveSymbols());
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    LATHE_RETURN_IF_ERROR(checkInput(i));
  for (size_t i = 0; i < plan.guards.size(); ++i) {
    Result<bool> holds = program.guards[i].holds(symbols, plan.guards[i].location);
    if (!holds && holds.status().code() == ErrorCode::Invalid)
      return holds.status();
    if (!holds || !*holds) // sizes for which its formulas have no value do not fit either
      return runtimeError(plan.guards[i].message, plan.guards[i].location);
  }
  return okStatus();
}

Status Run::deriveSymbols() {
  for (size_t i = 0; i < plan.symbols.size(); ++i) {
    const std::optional<ExprProgram> &formula = program.derived[i];
    if (!formula || symbols[i] != kUnknownSymbol)
      continue;
    const auto &from = formula->symbols();
    if (std::any_of(from.begin(), from.end(),
                    [&](uint32_t s) { return symbols[s] == kUnknownSymbol; }))
      continue;
    Result<int64_t> value = formula->value(symbols, plan.symbols[i].name);
    if (!value)
      return value.status();
    LATHE_RETURN_IF_ERROR(bindSymbol(static_cast<int32_t>(i), *value, plan.symbols[i].name,
                                     "entry '" + plan.entry + "'"));
  }
  return okStatus();
}

Status Run::checkInput(size_t index) {
  const Port &port = plan.inputs[index];
  const lathe_tensor &t = inputs[index];
  Result<std::vector<int64_t>> dims =
      evaluateDims(program.inputDims[index], symbols, inputName(port));
  if (!dims)
    return dims.status();
  for (int32_t a = 0; a < t.rank; ++a)
    if (t.dims[a] != (*dims)[a])
      return runtimeError("axis " + std::to_string(a) + " has size " + std::to_string(t.dims[a]) +
                              ", expected " + std::to_string((*dims)[a]) +
                              (port.dims[a].isConstant() ? "" : " = " + port.dims[a].str()),
                          inputName(port));
  Result<int64_t> bytes = denseBytes(storedAs(port.dtype), *dims, inputName(port));
  if (!bytes)
    return bytes.status();
  inputBytes[index] = *bytes;
  return okStatus();
}

/// The memory of an input whose sizes are known to fit.
Status Run::checkData(size_t index) {
  const lathe_tensor &t = inputs[index];
  int64_t bytes = inputBytes[index];
  if (bytes > 0 && !t.data)
    return usageError("there is no data", inputName(plan.inputs[index]));
  if (plan.inputs[index].dtype == DType::String) { // they are checked where they get their numbers
    callersInputs.emplace_back(static_cast<const char *>(t.data), t.bytes);
    return okStatus();
  }
  bool dense = isRowMajor(t);
  if (dense && t.bytes != 0 && t.bytes < static_cast<uint64_t>(bytes))
    return usageError(std::to_string(t.bytes) + " bytes are given, the sizes need " +
                          std::to_string(bytes),
                      inputName(plan.inputs[index]));
  if (!dense && t.memory == LATHE_DEVICE && !device.isHost())
    return unsupportedError("memory of a device that is not row-major; give a contiguous copy",
                            inputName(plan.inputs[index]));
  callersInputs.emplace_back(static_cast<const char *>(t.data), dense ? bytes : 0);
  return okStatus();
}

Status Run::lay() {
  if (shape) {
    layout = &shape->layout;
    return okStatus();
  }
  Result<Layout> made = evaluateLayout(program, symbols);
  if (!made)
    return made.status();
  ownLayout = std::move(*made);
  layout = &ownLayout;
  return okStatus();
}

Status Run::checkStates() {
  bool moved = false;
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const State &s = plan.states[i];
    std::vector<int64_t> own;
    if (!shape) {
      Result<std::vector<int64_t>> dims = evaluateDims(program.states[i].physical, symbols, s.name);
      if (!dims)
        return dims.status();
      own = std::move(*dims);
    }
    Result<StateSlot *> slot =
        context.states->prepare(s, shape ? shape->stateSizes[i] : own,
                                static_cast<size_t>(layout->stateBytes[i]), context.image->initial(plan, s),
                                moved);
    if (!slot)
      return slot.status();
    states.push_back(*slot);
  }
  context.generation += moved;
  return okStatus();
}

/// Tables of strings and lists for this run.
Status Run::startHostValues() {
  entry.lists.clear();
  if (!program.hostLibrary)
    return okStatus();
  if (!entry.strings) {
    Result<std::unique_ptr<Strings>> made = Strings::create(program.hostLibrary, plan.strings);
    if (!made)
      return made.status();
    entry.strings = std::move(*made);
  }
  entry.strings->beginRun();
  return okStatus();
}

/// Numbers of strings, in memory of the context.
Status Run::placeStrings(size_t index) {
  const lathe_tensor &t = inputs[index];
  Block &target = ports.inputs[index].host;
  auto bytes = static_cast<size_t>(inputBytes[index]);
  bool moved = false;
  LATHE_RETURN_IF_ERROR(target.reserve(Block::roomFor(bytes, target.bytes()), moved));
  context.generation += moved;
  inputData[index] = target.data();
  sums.bytes_staged += bytes;
  Status s = entry.strings->number(t.data, t.bytes, inputBytes[index] / int64_t(sizeof(int64_t)),
                                   static_cast<int64_t *>(target.data()));
  return s.ok() ? s : Status(s.code(), s.message(), inputName(plan.inputs[index]));
}

/// Memory in which the steps find an input: the caller's where that does, else this context's.
/// Values on the host go to pinned memory now, and from there with the steps.
Status Run::placeInput(size_t index) {
  const Port &port = plan.inputs[index];
  if (port.buffer < 0)
    return okStatus();
  if (port.dtype == DType::String)
    return placeStrings(index);
  const lathe_tensor &t = inputs[index];
  const Buffer &buffer = plan.buffers[port.buffer];
  PortMemory &memory = ports.inputs[index];
  auto bytes = static_cast<size_t>(inputBytes[index]);
  if (layout->places[port.buffer].bytes > inputBytes[index])
    return invalidError("the plan reads more than the input holds", inputName(port));
  bool wantHost = buffer.onHost || device.isHost();
  bool isHost = device.isHost() || t.memory != LATHE_DEVICE;
  // The program may overwrite a donated input: only its caller's consent, the same
  // memory for the output, lets it do so in place.
  bool inPlace = port.donatedTo < 0 || (port.donatedTo < static_cast<int32_t>(outputs.size()) &&
                                        outputs[port.donatedTo].data == t.data);
  bool dense = isRowMajor(t);
  if (wantHost == isHost && dense && inPlace && t.data && aligned(t.data, buffer.alignment)) {
    inputData[index] = t.data;
    placement[index] = Callers;
    return okStatus();
  }
  Block &target = wantHost ? memory.host : memory.device;
  bool moved = false;
  LATHE_RETURN_IF_ERROR(target.reserve(Block::roomFor(bytes, target.bytes()), moved));
  if (isHost && !wantHost)
    LATHE_RETURN_IF_ERROR(
        memory.host.reserve(Block::roomFor(bytes, memory.host.bytes()), moved));
  context.generation += moved;
  inputData[index] = target.data();
  if (bytes == 0)
    return okStatus();
  (wantHost == isHost ? sums.bytes_staged
   : wantHost         ? sums.bytes_from_device
                      : sums.bytes_to_device) += bytes;
  if (!device.isHost() && isHost) {
    if (wantHost && !dense)
      return unsupportedError("strides on an input that the host reads", inputName(port));
    if (!wantHost)
      placement[index] = Staged;
    if (dense) {
      std::memcpy(memory.host.data(), t.data, bytes);
      return okStatus();
    }
    std::vector<int64_t> dims(t.dims, t.dims + t.rank), strides(t.strides, t.strides + t.rank);
    Status s = gatherOnHost(memory.host.data(), t.data, port.dtype, dims, strides);
    return s.ok() ? s : Status(s.code(), s.message(), inputName(port));
  }
  deviceBusy = true;
  std::vector<int64_t> dims(t.dims, t.dims + t.rank);
  std::vector<int64_t> strides =
      t.strides ? std::vector<int64_t>(t.strides, t.strides + t.rank) : denseStrides(dims);
  return copyToDense(device, target.data(), t.data, port.dtype, dims, strides,
                     wantHost && !isHost ? CopyKind::DeviceToHost : CopyKind::DeviceToDevice);
}

/// Brings staged inputs to the device.
Status Run::stageInputs() {
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    if (placement[i] == Staged) {
      deviceBusy = true;
      LATHE_RETURN_IF_ERROR(device.copy(inputData[i], ports.inputs[i].host.data(),
                                        static_cast<size_t>(inputBytes[i]),
                                        CopyKind::HostToDevice));
    }
  return okStatus();
}

bool Run::overlapsInput(const void *data, size_t bytes) const {
  const char *begin = static_cast<const char *>(data);
  return std::any_of(callersInputs.begin(), callersInputs.end(), [&](const auto &in) {
    return begin < in.first + in.second && in.first < begin + bytes;
  });
}

Status Run::placeOutput(size_t index) {
  const Port &port = plan.outputs[index];
  const Buffer &buffer = plan.buffers[port.buffer];
  const Place &place = layout->places[port.buffer];
  if (buffer.kind != BufferKind::Output || !place.known())
    return okStatus();
  auto bytes = static_cast<size_t>(place.bytes);
  PortMemory &memory = ports.outputs[index];
  bool wantHost = buffer.onHost || device.isHost();
  Block &own = wantHost ? memory.host : memory.device;
  if (outputData[index] && outputData[index] != own.data()) // the caller's, decided before
    return outputs[index].bytes >= bytes
               ? okStatus()
               : runtimeError("the result outgrew the memory given",
                              "output '" + port.name + "'");
  if (!outputData[index] && index < outputs.size() && outputs[index].memory != LATHE_DISCARD &&
      port.dtype != DType::String) {
    const lathe_tensor &t = outputs[index];
    bool isHost = device.isHost() || t.memory == LATHE_HOST;
    if (t.data && isHost == wantHost && t.bytes >= bytes && aligned(t.data, buffer.alignment) &&
        !overlapsInput(t.data, bytes)) {
      outputData[index] = t.data;
      placement[plan.inputs.size() + index] = Callers;
      return okStatus();
    }
  }
  bool moved = false;
  LATHE_RETURN_IF_ERROR(own.reserve(bytes, moved, outputData[index] != nullptr));
  context.generation += moved && !own.ofResults(); // no graph of a whole step knows where such a block lies
  outputData[index] = own.data();
  return okStatus();
}

Status Run::placeArenas() {
  for (std::vector<Block> *list : {&context.arenas, &context.hostArenas})
    while (list->size() < plan.arenas.size()) {
      const size_t number = list->size();
      // Ranks on GPUs exchange what lies there.
      if (context.peers && list == &context.arenas && number < PeerArenas::kContextArenas)
        list->push_back(Block([&context = context, number](size_t bytes) {
          return context.peers->arena(context.rank(), number, int64_t(bytes));
        }));
      else
        list->emplace_back(device, list == &context.hostArenas);
    }
  for (size_t i = 0; i < plan.arenas.size(); ++i) {
    Block &block = (plan.arenas[i].onHost ? context.hostArenas : context.arenas)[i];
    bool moved = false;
    if (layout->arenaBytes[i] >= 0)
      LATHE_RETURN_IF_ERROR(
          block.reserve(static_cast<size_t>(layout->arenaBytes[i]), moved, !program.isStatic));
    context.generation += moved;
    // Blocks that wait for each other read the words of a workspace before anybody has written them.
    for (size_t b = 0; moved && b < plan.buffers.size(); ++b)
      if (plan.buffers[b].kind == BufferKind::Workspace &&
          plan.buffers[b].index == static_cast<int32_t>(i) && layout->places[b].known())
        LATHE_RETURN_IF_ERROR(
            device.zero(static_cast<char *>(block.data()) + layout->places[b].offset,
                        static_cast<size_t>(layout->places[b].bytes)));
  }
  return okStatus();
}

Status Run::placeMemory() {
  if (!shape || !shape->hasArenas)
    LATHE_RETURN_IF_ERROR(placeArenas());
  if (shape)
    shape->hasArenas = true;
  for (size_t i = 0; i < plan.outputs.size(); ++i)
    LATHE_RETURN_IF_ERROR(placeOutput(i));
  // A graph that is found again needs no addresses.
  addresses.clear();
  if (!wantsGraph())
    computeAddresses();
  return okStatus();
}

void *Run::addressOf(int32_t buffer) const {
  if (!layout->places[buffer].known())
    return nullptr;
  const Buffer &root = plan.buffers[program.buffers[buffer].root];
  void *base = nullptr;
  switch (root.kind) {
  case BufferKind::Arena:
  case BufferKind::Workspace:
    base = context.arenas[root.index].data();
    break;
  case BufferKind::Host:
    base = context.hostArenas[root.index].data();
    break;
  case BufferKind::Input:
    base = inputData[root.index];
    break;
  case BufferKind::Output:
    base = outputData[root.index];
    break;
  case BufferKind::Weight:
    base = context.image->weight(plan.weights[root.index], root.onHost,
                                 context.communicator ? context.communicator->rank() : 0);
    break;
  case BufferKind::State:
    base = states[root.index]->memory.data();
    break;
  case BufferKind::View: // a root is no view
    break;
  }
  return base ? static_cast<char *>(base) + layout->places[buffer].offset : nullptr;
}

void Run::computeAddresses() {
  addresses.resize(plan.buffers.size());
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    addresses[i] = addressOf(static_cast<int32_t>(i));
}

} // namespace lathe::runtime
