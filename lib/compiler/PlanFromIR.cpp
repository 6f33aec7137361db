//===- PlanFromIR.cpp - exec.program as engine::Plan ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanFromIR.h"
#include "VariantNames.h"

#include "lathe/support/Packing.h"
#include "lathe/ir/Collective.h"
#include "lathe/ir/HostOps.h"
#include "lathe/ir/KernelVariants.h"
#include "lathe/ir/Loops.h"
#include "lathe/ir/States.h"
#include "lathe/ir/Streams.h"
#include "lathe/passes/Passes.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lathe {

namespace {

engine::Condition convert(const DimCondition &condition) {
  return {static_cast<engine::Condition::Kind>(condition.kind), condition.lhs, condition.rhs};
}

std::vector<std::string> featuresOf(const Target &target) {
  if (target.isCuda())
    return {};
  std::vector<std::string> features = {"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"};
  if (target.triple.starts_with("aarch64"))
    features = {"fp-armv8", "neon"};
  if (target.vectorBits == 512)
    for (const char *feature : {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"})
      features.push_back(feature);
  if (target.hasByteProducts())
    features.push_back(target.features.substr(1)); // "+avxvnni", "+dotprod"
  return features;
}

class PlanWriter {
public:
  PlanWriter(exec::ProgramOp program, const Target &target, WeightStore &store,
             engine::EngineWriter &writer)
      : program(program), target(target), store(store), writer(writer),
        symbols(program->getParentOfType<ModuleOp>()) {}

  Result<engine::Plan> run() {
    plan.entry = program.getSymName().str();
    plan.target = target.name;
    plan.cuda = target.isCuda();
    plan.cpuFeatures = featuresOf(target);
    plan.ranks = meshRanks(program->getParentOfType<ModuleOp>());
    for (Operation *outer = program; outer && plan.strings.empty(); outer = outer->getParentOp())
      if (auto strings = outer->getAttrOfType<ArrayAttr>(kStringsAttr))
        for (Attribute text : strings)
          plan.strings.push_back(cast<StringAttr>(text).str());
    plan.blocks.emplace_back();
    for (Operation &op : program.getBody().front())
      LATHE_RETURN_IF_ERROR(add(op));
    return std::move(plan);
  }

private:
  Status add(Operation &op) {
    return llvm::TypeSwitch<Operation *, Status>(&op)
        .Case([&](exec::SizeOp size) { return addSize(size); })
        .Case([&](exec::GuardOp guard) { return addGuard(guard); })
        .Case([&](exec::ArenaOp arena) {
          plan.arenas.push_back({arena.getBytes().expr(), arena.getOnHost()});
          return okStatus();
        })
        .Case([&](exec::StateOp state) { return addState(state); })
        .Case([&](exec::BufferOp buffer) { return addBuffer(buffer); })
        .Case([&](exec::InputOp input) {
          plan.inputs.push_back(port(input, input.getName(), input.getBuffer()));
          plan.inputs.back().donatedTo = input.getDonatedTo();
          return okStatus();
        })
        .Case([&](exec::OutputOp output) {
          plan.outputs.push_back(port(output, output.getName(), output.getBuffer()));
          return okStatus();
        })
        .Case([&](exec::LaunchOp launch) { return addLaunch(launch); })
        .Case([&](exec::CopyOp copy) {
          return step(copy, engine::CopyStep{indexOf(copy.getSource()), indexOf(copy.getTarget())});
        })
        .Case([&](exec::BindOp bind) {
          if (!sizes.count(bind.getSymbol().str()))
            return invalidError("no size is called '" + bind.getSymbol().str() + "'");
          int32_t symbol = sizes[bind.getSymbol().str()];
          if (bind.getValue())
            return step(bind, engine::BindStep{symbol, -1, 0, bind.getValue()->expr()});
          int32_t buffer = indexOf(bind.getBuffer());
          plan.buffers[buffer].onHost = true;
          return step(bind, engine::BindStep{symbol, buffer, int64_t(*bind.getElement())});
        })
        .Case([&](exec::AdvanceOp advance) {
          if (!states.count(advance.getState().str()))
            return invalidError("no state is called '" + advance.getState().str() + "'");
          return step(advance, engine::AdvanceStateStep{states[advance.getState().str()],
                                                        advance.getBy().expr()});
        })
        .Case([&](exec::TapOp tap) {
          return step(tap, engine::TapStep{indexOf(tap.getBuffer()), tap.getName().str()});
        })
        .Case([&](exec::CallOp call) { return addCall(call); })
        .Case([&](exec::CollectiveOp collective) { return addCollective(collective); })
        .Case([&](exec::LoopOp loop) { return beginLoop(loop); })
        .Case([&](exec::IfOp branch) { return beginIf(branch); })
        .Case([&](exec::ElseOp) {
          block = newBlock();
          ifStep(open.back()).elseBlock = block;
          return okStatus();
        })
        .Case<exec::EndIfOp, exec::EndLoopOp>([&](Operation *) {
          block = open.pop_back_val().first;
          return okStatus();
        })
        .Default([&](Operation *other) {
          return internalError("the engine has no form for " + other->getName().getStringRef().str());
        });
  }

  int32_t indexOf(Value buffer) const { return buffers.lookup(buffer); }

  int32_t newBlock() {
    plan.blocks.emplace_back();
    return plan.blocks.size() - 1;
  }
  engine::IfStep &ifStep(std::pair<int32_t, size_t> place) {
    return std::get<engine::IfStep>(plan.blocks[place.first][place.second].op);
  }
  /// Steps go to the then-block from here on.
  Status beginIf(exec::IfOp branch) {
    int32_t condition = indexOf(branch.getCondition());
    plan.buffers[condition].onHost = true;
    LATHE_RETURN_IF_ERROR(step(branch, engine::IfStep{condition, -1, -1}));
    open.push_back({block, plan.blocks[block].size() - 1});
    block = newBlock();
    ifStep(open.back()).thenBlock = block;
    return okStatus();
  }

  /// Steps go to the body from here on.
  Status beginLoop(exec::LoopOp loop) {
    engine::LoopStep made;
    for (auto [memory, index] : {std::pair(loop.getTrips(), &made.tripCount),
                                 std::pair(loop.getCondition(), &made.condition)})
      if (memory) {
        *index = indexOf(memory);
        plan.buffers[*index].onHost = true;
      }
    if (auto name = loop.getIteration()) {
      if (!sizes.count(name->str()))
        return invalidError("no size is called '" + name->str() + "'");
      made.iteration = sizes[name->str()];
    }
    made.body = newBlock();
    LATHE_RETURN_IF_ERROR(step(loop, made));
    open.push_back({block, plan.blocks[block].size() - 1});
    block = made.body;
    return okStatus();
  }

  Status step(Operation *op, decltype(engine::Step::op) what, ArrayAttr names = {}) {
    engine::Step made;
    made.op = std::move(what);
    if (names)
      for (Attribute name : names)
        made.nodes.push_back(cast<StringAttr>(name).str());
    else
      for (StringRef name : nodeNames(op->getLoc()))
        made.nodes.push_back(name.str());
    StreamPlace place = streamPlaceOf(op);
    made.stream = place.stream;
    made.waits.assign(place.waits.begin(), place.waits.end());
    made.signal = place.signal;
    engine::Resources &resources = plan.resources;
    resources.streams.resize(std::max<size_t>(resources.streams.size(), place.stream + 1), 0);
    resources.events = std::max<int32_t>(resources.events, place.signal + 1);
    plan.blocks[block].push_back(std::move(made));
    return okStatus();
  }

  Status addSize(exec::SizeOp op) {
    engine::Symbol symbol;
    symbol.name = op.getName().str();
    symbol.min = op.getMin();
    symbol.max = int64_t(op.getMax()) < 0 ? DimRange::kUnbounded : int64_t(op.getMax());
    symbol.opt = op.getOpt();
    symbol.multipleOf = op.getMultipleOf();
    symbol.origin = static_cast<engine::SymbolOrigin>(op.getOrigin());
    symbol.index = int64_t(op.getIndex());
    symbol.axis = int64_t(op.getAxis());
    if (auto value = op.getValue())
      symbol.value = value->expr();
    sizes[symbol.name] = plan.symbols.size();
    plan.symbols.push_back(std::move(symbol));
    return okStatus();
  }

  Status addGuard(exec::GuardOp op) {
    Result<DimCondition> condition = parseComparison(op.getCondition());
    if (!condition.ok())
      return condition.status();
    engine::Guard guard{convert(*condition), op.getMessage().str(), op.getWhere().str()};
    if (plan.blocks[0].empty())
      plan.guards.push_back(std::move(guard));
    else
      plan.blocks[block].push_back({engine::GuardStep{std::move(guard)}, {}});
    return okStatus();
  }

  Status addState(exec::StateOp op) {
    auto declared = symbols.lookup<StateOp>(op.getState());
    if (!declared)
      return internalError("no state is called " + op.getState().str());
    engine::State state;
    state.name = declared.getSymName().str();
    state.dtype = *dtypeOf(cast<TensorType>(declared.getType()).getElementType());
    state.physical = dimsOf(declared.getType());
    if (isOverwritten(declared)) {
      if (auto initial = declared->getAttrOfType<TypedAttr>(kInitialAttr)) {
        engine::Buffer unpacked;
        unpacked.dtype = state.dtype;
        state.initial = plan.weights.size();
        LATHE_RETURN_IF_ERROR(addWeight(declared.getSymName(), initial, "", unpacked));
      }
    } else {
      state.axis = int32_t(declared.getAxis());
      state.lengthSymbol = declared.getLength().str();
      state.capacity = state.physical[state.axis];
    }
    states[state.name] = plan.states.size();
    plan.states.push_back(std::move(state));
    return okStatus();
  }

  Status addBuffer(exec::BufferOp op) {
    if (op.getValue() && op.getMemory().use_empty())
      return okStatus(); // every kernel reads the weight packed
    engine::Buffer buffer;
    buffer.name = op.getName().str();
    buffer.kind = static_cast<engine::BufferKind>(op.getKind());
    buffer.index = int64_t(op.getIndex());
    auto dtype = dtypeOf(elementTypeOf(op.getMemory()));
    if (!dtype)
      return internalError("a buffer of a type that no memory can hold");
    buffer.dtype = *dtype;
    buffer.dims = dimsOf(op.getMemory());
    buffer.physical = physicalDimsOf(op.getMemory().getType());
    buffer.bytes = bytesOf(buffer);
    if (auto offset = op.getOffset())
      buffer.offset = offset->expr();
    buffer.onHost = op.getOnHost();
    if (op.getBase()) {
      buffer.index = indexOf(op.getBase());
      buffer.onHost = plan.buffers[buffer.index].onHost;
      buffer.alignment = alignmentOf(buffer);
      // A strided view that starts inside ends with its base: only its low corner is used.
      if (buffer.physical != buffer.dims)
        buffer.bytes = plan.buffers[buffer.index].bytes - buffer.offset;
    }
    if (op.getValue()) {
      buffer.index = plan.weights.size();
      LATHE_RETURN_IF_ERROR(addWeight(op.getName(), *op.getValue(), op.getPacking().value_or("").str(), buffer));
    }
    buffers[op.getMemory()] = plan.buffers.size();
    plan.buffers.push_back(std::move(buffer));
    return okStatus();
  }

  static DimExpr bytesOf(const engine::Buffer &buffer) {
    DimExpr count = product(buffer.physical);
    int64_t bits = bitWidth(buffer.dtype);
    return bits % 8 ? DimExpr::ceilDiv(count * DimExpr(bits), 8) : count * DimExpr(bits / 8);
  }

  /// Largest power of two up to 64 that divides a view's offset.
  static int64_t alignmentOf(const engine::Buffer &view) {
    int64_t alignment = 64;
    for (const DimExpr::Term &term : view.offset.terms())
      while (alignment > 1 && term.coefficient % alignment)
        alignment /= 2;
    return alignment;
  }

  /// Where the parts of a random weight lie, those of all ranks; empty when bytes of it are known.
  static std::vector<RandomPart> randomParts(Attribute value) {
    const int64_t shards = shardsOf(value);
    if (!shards)
      return randomPartsOf(value, 0);
    std::vector<RandomPart> all;
    for (int32_t rank = 0; rank < shards; ++rank) {
      std::vector<RandomPart> parts = randomPartsOf(value, rank);
      if (parts.empty()) // bytes are known, or a rank has padding alone
        return {};
      for (RandomPart &part : parts) {
        part.rank = rank;
        all.push_back(part);
      }
    }
    return all;
  }

  /// `buffer`, whose dtype is said, gets the sizes of what is packed.
  Status addWeight(StringRef name, TypedAttr value, const std::string &packing, engine::Buffer &buffer) {
    engine::Weight weight;
    weight.name = name.str();
    weight.section = WeightStore::kArchive;
    weight.dtype = buffer.dtype;
    auto type = cast<TensorType>(value.getType());
    weight.dims.assign(type.getShape().begin(), type.getShape().end());
    if (std::vector<RandomPart> parts = randomParts(value);
        packing.empty() && !parts.empty()) {
      weight.shards = shardsOf(value);
      weight.section = engine::kRandomSection;
      weight.bytes = byteSize(weight.dtype, type.getNumElements());
      weight.offset = writer.addRandomWeight(weight.dtype, parts, weight.bytes);
      weight.random = std::move(parts);
      plan.weights.push_back(std::move(weight));
      return okStatus();
    }
    std::string key;
    llvm::raw_string_ostream(key) << value << packing;
    std::optional<WeightPacker> packer;
    if (!packing.empty()) {
      auto made = WeightPacker::of(packing, weight.dtype, weight.dims);
      if (!made.ok())
        return made.status();
      packer = *made;
      weight.dims = {packer->elements()};
      weight.packing = packing;
      buffer.dims.assign(weight.dims.begin(), weight.dims.end());
      buffer.physical = buffer.dims;
      buffer.bytes = bytesOf(buffer);
    }
    if (const int64_t shards = shardsOf(value)) {
      weight.shards = shards;
      for (int64_t rank = 0; rank < shards; ++rank)
        LATHE_RETURN_IF_ERROR(addShard(value, rank, key, packer, weight));
      plan.weights.push_back(std::move(weight));
      return okStatus();
    }
    // The bytes stay where they are until the engine is written.
    std::span<const std::byte> bytes;
    std::shared_ptr<const std::vector<std::byte>> owner;
    if (auto known = dyn_cast<WeightAttr>(value)) {
      auto found = store.get(known);
      if (!found.ok())
        return found.status();
      bytes = *found;
    } else {
      auto made = constantBytes(value, store);
      if (!made.ok())
        return made.status();
      owner = std::make_shared<const std::vector<std::byte>>(std::move(*made));
      bytes = *owner;
    }
    Result<engine::WeightBytes> source = packed(bytes, owner, packer, packing);
    if (!source)
      return source.status();
    weight.bytes = source->bytes;
    auto offset = writer.addWeight(weight.section, key, std::move(*source));
    if (!offset.ok())
      return offset.status();
    weight.offset = *offset;
    plan.weights.push_back(std::move(weight));
    return okStatus();
  }

  /// What the engine has of these bytes. `owner` keeps them alive, where they are no archive's.
  static Result<engine::WeightBytes> packed(std::span<const std::byte> bytes,
                                            std::shared_ptr<const std::vector<std::byte>> owner,
                                            const std::optional<WeightPacker> &packer,
                                            const std::string &packing) {
    engine::WeightBytes source;
    source.bytes = bytes.size();
    if (!packer) {
      source.make = [bytes, owner](uint64_t at, std::span<std::byte> out) {
        std::memcpy(out.data(), bytes.data() + at, out.size());
      };
      return source;
    }
    if (packer->sourceBytes() != bytes.size())
      return internalError("the weight has " + std::to_string(bytes.size()) +
                               " bytes, not those of its sizes",
                           "packing " + packing);
    source.bytes = packer->bytes();
    WeightPacker prepared = *packer;
    LATHE_RETURN_IF_ERROR(prepared.prepare(bytes));
    source.make = [bytes, owner, packer = std::move(prepared)](uint64_t at, std::span<std::byte> out) {
      packer.pack(bytes, at, out);
    };
    return source;
  }

  /// What `rank` has of a weight, at the same offset as the others in a section of its own.
  Status addShard(Attribute value, int64_t rank, const std::string &key,
                  const std::optional<WeightPacker> &packer, engine::Weight &weight) {
    auto made = bytesOnRank(value, rank, store);
    if (!made.ok())
      return made.status();
    auto owner = std::make_shared<const std::vector<std::byte>>(std::move(*made));
    Result<engine::WeightBytes> source = packed(*owner, owner, packer, weight.packing);
    if (!source)
      return source.status();
    weight.bytes = source->bytes;
    auto offset = writer.addWeight(engine::shardSection(weight.section, rank), key, std::move(*source));
    if (!offset.ok())
      return offset.status();
    if (rank && weight.offset != *offset)
      return internalError("shards of a weight have different places", "weight '" + weight.name + "'");
    weight.offset = *offset;
    return okStatus();
  }

  engine::Port port(Operation *op, StringRef name, Value buffer) const {
    engine::Port made;
    made.name = name.str();
    made.buffer = indexOf(buffer);
    made.dtype = op->hasAttr(kStringsAttr) ? DType::String : plan.buffers[made.buffer].dtype;
    made.dims = plan.buffers[made.buffer].dims;
    return made;
  }

  Status addLaunch(exec::LaunchOp op) {
    auto kernel = symbols.lookup<exec::KernelOp>(op.getKernel());
    if (!kernel)
      return internalError("no kernel is called " + op.getKernel().str());
    auto [it, isNew] = kernels.try_emplace(kernel.getOperation(), plan.kernels.size());
    if (isNew)
      LATHE_RETURN_IF_ERROR(addKernel(kernel, op));
    engine::LaunchStep launch;
    launch.kernel = it->second;
    for (Value buffer : op.getBuffers())
      launch.buffers.push_back(indexOf(buffer));
    for (const std::string &name : plan.kernels[it->second].symbols) {
      auto value = op.getSymbols().getAs<DimAttr>(name);
      if (!value)
        return invalidError("a launch gives no value to the size '" + name + "'",
                            "kernel " + kernel.getSymName().str());
      launch.symbols.push_back(value.expr());
    }
    return step(op, std::move(launch), op.getNodesAttr());
  }

  Status addKernel(exec::KernelOp op, exec::LaunchOp launch) {
    engine::Kernel kernel;
    kernel.name = op.getSymName().str();
    kernel.flops = op.getFlops().expr();
    kernel.bytes = op.getBytes().expr();
    kernel.numBuffers = launch.getBuffers().size();
    for (NamedAttribute symbol : launch.getSymbols())
      kernel.symbols.push_back(symbol.getName().str());
    FailureOr<std::vector<KernelVariant>> variants = variantsOf(op);
    if (failed(variants))
      return internalError("kernel " + kernel.name + " has variants that cannot be read");
    std::vector<OwnPacking> own = ownPackings(*variants);
    const int32_t shared = kernel.numBuffers - int32_t(own.size()); // of all variants
    for (auto [i, variant] : llvm::enumerate(*variants)) {
      const KernelSpec *spec = &variant.spec;
      engine::KernelVariant made;
      for (const DimCondition &condition : variant.guard)
        made.guard.push_back(convert(condition));
      auto place = [&](int b) { return int32_t(operandOf(variant, b, own, *variants, shared)); };
      LATHE_RETURN_IF_ERROR(addVariant(*spec, kernel, place, made));
      if (target.isCuda())
        made.image = variantName(op, i);
      if (i == 0) {
        for (int32_t b = 0; b < kernel.numBuffers; ++b)
          kernel.writes.push_back(b >= spec->numInputs && b < shared);
        kernel.aliases.assign(kernel.numBuffers, -1);
        for (int32_t b = spec->numInputs; b < spec->numInputs + spec->numOutputs; ++b)
          kernel.aliases[b] = spec->buffers[b].aliases;
      }
      for (int32_t b = spec->numInputs; b < spec->numInputs + spec->numOutputs; ++b)
        if (kernel.aliases[b] != spec->buffers[b].aliases)
          kernel.aliases[b] = -1;
      kernel.variants.push_back(std::move(made));
    }
    plan.kernels.push_back(std::move(kernel));
    return okStatus();
  }

  /// `place`: which operand of the launch a buffer of the spec is.
  Status addVariant(const KernelSpec &spec, const engine::Kernel &kernel,
                    llvm::function_ref<int32_t(int)> place, engine::KernelVariant &made) {
    made.config = spec.config;
    made.workspaceBytes = spec.workspaceBytes;
    made.scratchBytes = spec.scratchBytes;
    made.status = spec.status;
    for (const TensorMapArg &map : spec.tensorMaps)
      made.tensorMaps.push_back({place(map.buffer), map.dims, map.strides, map.box, map.swizzleBytes,
                                 map.im2col, map.lowerCorner, map.upperCorner, map.steps,
                                 map.elementBytes});
    for (const LaunchSpec &launch : spec.launches) {
      engine::Launch out;
      out.function = launch.function;
      for (int d = 0; d < 3; ++d) {
        out.grid[d] = launch.grid[d];
        out.block[d] = launch.block[d];
        out.cluster[d] = launch.cluster[d];
      }
      out.sharedBytes = launch.sharedBytes;
      out.programmaticDependent = launch.programmaticDependent;
      using Kind = engine::KernelArg::Kind;
      if (launch.buffers.empty()) {
        int32_t count = spec.buffers.size();
        for (int32_t b = 0; b < count; ++b)
          out.args.push_back({Kind::Buffer, place(b)});
      } else {
        for (int b : launch.buffers)
          out.args.push_back({Kind::Buffer, place(b)});
      }
      for (int32_t m = 0; m < int32_t(spec.tensorMaps.size()); ++m)
        out.args.push_back({Kind::TensorMap, m});
      for (const std::string &symbol : spec.symbols) {
        auto found = llvm::find(kernel.symbols, symbol);
        if (found == kernel.symbols.end())
          return internalError("kernel " + kernel.name + " has no size '" + symbol + "'");
        out.args.push_back({Kind::Symbol, int32_t(found - kernel.symbols.begin())});
      }
      // CUDA kernels always have the parameter; without a channel it is null.
      if (spec.status || target.isCuda())
        out.args.push_back({Kind::Status, 0});
      made.launches.push_back(std::move(out));
    }
    return okStatus();
  }

  Status addCollective(exec::CollectiveOp op) {
    static_assert(int(engine::Reduction::Prod) == int(ReduceKind::Prod) &&
                  int(engine::Reduction::Max) == int(ReduceKind::Max) &&
                  int(engine::Reduction::Min) == int(ReduceKind::Min));
    return step(op, engine::CollectiveStep{op.getName().str(), collectives++, {indexOf(op.getInput())},
                                           {indexOf(op.getOutput())},
                                           static_cast<engine::Reduction>(op.getKind()),
                                           int32_t(op.getDim())});
  }

  Status addCall(exec::CallOp op) {
    engine::CustomCallStep call;
    call.name = op.getName().str();
    for (auto [i, buffer] : llvm::enumerate(op.getBuffers()))
      (i < size_t(op.getNumInputs()) ? call.inputs : call.outputs).push_back(indexOf(buffer));
    for (NamedAttribute entry : op.getConfig()) {
      engine::Attribute attribute;
      attribute.name = entry.getName().str();
      if (auto text = dyn_cast<StringAttr>(entry.getValue()))
        attribute.text = text.str();
      else if (auto integer = dyn_cast<IntegerAttr>(entry.getValue()))
        attribute.ints = {integer.getInt()};
      else if (auto real = dyn_cast<FloatAttr>(entry.getValue()))
        attribute.floats = {real.getValueAsDouble()};
      else if (auto list = dyn_cast<DenseI64ArrayAttr>(entry.getValue()))
        attribute.ints.assign(list.asArrayRef().begin(), list.asArrayRef().end());
      else if (auto reals = dyn_cast<DenseF32ArrayAttr>(entry.getValue()))
        attribute.floats.assign(reals.asArrayRef().begin(), reals.asArrayRef().end());
      call.attributes.push_back(std::move(attribute));
    }
    if (op.getCustom())
      return step(op, std::move(call));
    return step(op, engine::HostOpStep{call.name, call.attributes, call.inputs, call.outputs});
  }

  exec::ProgramOp program;
  const Target &target;
  WeightStore &store;
  engine::EngineWriter &writer;
  SymbolTable symbols;
  engine::Plan plan;
  llvm::DenseMap<Value, int32_t> buffers;
  llvm::DenseMap<Operation *, int32_t> kernels;
  std::map<std::string, int32_t> sizes, states;
  int32_t collectives = 0; ///< so far
  int32_t block = 0; ///< where steps go
  SmallVector<std::pair<int32_t, size_t>> open; ///< block and step of each exec.if around
};

} // namespace

Result<engine::Plan> planFromIR(exec::ProgramOp program, const Target &target, WeightStore &weights,
                                engine::EngineWriter &writer) {
  return PlanWriter(program, target, weights, writer).run();
}

} // namespace lathe
