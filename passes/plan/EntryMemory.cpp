//===- EntryMemory.cpp - where the values of an entry lie -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EntryMemory.h"

#include "lathe/ir/HostOps.h"
#include "lathe/ir/States.h"
#include "lathe/ir/WeightStore.h"

using namespace mlir;

namespace lathe::plan {

using exec::BufferKind;

Value EntryMemory::buffer(Location loc, Type type, StringRef name, BufferKind kind, int64_t index,
             Value base, DimExpr offset) {
  auto at = offset == DimExpr(0) ? DimAttr() : DimAttr::get(builder.getContext(), offset);
  return exec::BufferOp::create(builder, loc, type, base, builder.getStringAttr(name),
                                exec::BufferKindAttr::get(builder.getContext(), kind),
                                builder.getI64IntegerAttr(index), at, TypedAttr(), StringAttr(),
                                DenseI64ArrayAttr(), UnitAttr())
      .getMemory();
}

std::string EntryMemory::nameOf(Value value) {
  SmallVector<StringRef> nodes = nodeNames(value.getLoc());
  return nodes.empty() ? std::string() : nodes.back().str();
}

void EntryMemory::declare() {
  declareInputs();
  for (StateOp state : states)
    stateBuffers[state.getSymName()] =
        buffer(state.getLoc(), state.getType(), state.getSymName(), BufferKind::State,
               stateBuffers.size());
  for (BlockArgument argument : func.getArguments())
    if (auto state = func.getArgAttrOfType<FlatSymbolRefAttr>(argument.getArgNumber(), kStateAttr))
      buffers[argument] = stateBuffers.lookup(state.getValue());
  declareOutputs();
}

void EntryMemory::declareInputs() {
  for (BlockArgument argument : func.getArguments()) {
    int64_t number = inputPort(argument);
    if (number < 0)
      continue;
    std::string name = inputName(func, argument.getArgNumber());
    Value input = buffer(argument.getLoc(), argument.getType(), name, BufferKind::Input, number);
    auto donated = updates.donated.find(argument);
    int64_t output = -1; // its number among those that are no states
    if (donated != updates.donated.end())
      for (unsigned i = 0; i <= donated->second; ++i)
        output += !func.getResultAttr(i, kStateAttr);
    auto port = exec::InputOp::create(builder, argument.getLoc(), name, input, output);
    if (func.getArgAttr(argument.getArgNumber(), kStringsAttr))
      port->setAttr(kStringsAttr, builder.getUnitAttr());
    buffers[argument] = input;
    if (Attribute is = func.getArgAttr(argument.getArgNumber(), kParameterAttr)) {
      Attribute packing = func.getArgAttr(argument.getArgNumber(), kPackingAttr);
      if (!packing)
        is = builder.getStringAttr(*WeightStore::parameterOf(is));
      parameters[{is, packing}] = input;
    }
    if (llvm::any_of(argument.getUses(), isHostOperand))
      placeOnHost(argument);
  }
}

/// Outputs: the kernel that makes a value writes it into the caller's memory, and an update of a state into that. What
/// else a state becomes waits: the old value may still be read.
void EntryMemory::declareOutputs() {
  llvm::DenseMap<unsigned, Value> outputs;
  for (auto [argument, output] : updates.donated)
    outputs[output] = buffers[argument];
  int64_t number = 0;
  Operation *end = func.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(end->getOperands())) {
    std::string name = outputName(func, i);
    Value made = value;
    while (made.getDefiningOp() && isView(made.getDefiningOp()))
      made = made.getDefiningOp()->getOperand(0);
    Operation *maker = made.getDefiningOp();
    bool packs = func->hasAttr(kPrepareAttr) && isa_and_nonnull<CustomCallOp>(maker);
    bool isFree = (isa_and_nonnull<KernelOp, ChooseOp, LoopEndOp>(maker) || packs) && !buffers.count(made);
    auto state = func.getResultAttrOfType<FlatSymbolRefAttr>(i, kStateAttr);
    Value input = outputs.lookup(i);
    if (state && !input) {
      overwrites.push_back({value, stateBuffers.lookup(state.getValue())});
      if (!isFree)
        continue;
    }
    BufferKind kind = input ? BufferKind::View : state ? BufferKind::Arena : BufferKind::Output;
    outputs[i] = buffer(value.getLoc(), value.getType(), name, kind, kind == BufferKind::Output ? number : 0, input);
    if (!state) {
      ++number;
      auto port = exec::OutputOp::create(builder, value.getLoc(), name, outputs[i]);
      if (func.getResultAttr(i, kStringsAttr))
        port->setAttr(kStringsAttr, builder.getUnitAttr());
    }
    if (isFree)
      buffers[made] = made.getType() == value.getType()
                          ? outputs[i]
                          : buffer(made.getLoc(), made.getType(), nameOf(made), BufferKind::View,
                                   0, outputs[i]);
    else
      copies.push_back({value, outputs[i]});
  }
  for (auto [value, output] : updates.memory)
    buffers[value] = buffer(value.getLoc(), value.getType(), nameOf(value), BufferKind::View, 0,
                            outputs[output]);
}

/// An input whose elements are sizes is wanted by the host. Kernels of a GPU read a copy.
void EntryMemory::placeOnHost(BlockArgument argument) {
  Value input = buffers[argument];
  input.getDefiningOp<exec::BufferOp>().setOnHost(true);
  bool onlySizes = llvm::all_of(argument.getUses(), isHostOperand);
  if (onlySizes || !cuda)
    return;
  Value copy = buffer(argument.getLoc(), argument.getType(), nameOf(argument),
                      BufferKind::Arena, 0);
  hostInputs[argument] = input;
  buffers[argument] = copy;
}

Value EntryMemory::hostLine(Value value) {
  int64_t first = hostLines;
  hostLines += DimExpr::ceilDiv(bytesOf(value.getType()), kHostLine).constant().value_or(1);
  return exec::BufferOp::create(
                     builder, value.getLoc(), value.getType(), Value(),
                     builder.getStringAttr(nameOf(value)),
                     exec::BufferKindAttr::get(builder.getContext(), BufferKind::Host),
                     builder.getI64IntegerAttr(0),
                     DimAttr::get(builder.getContext(), DimExpr(kHostLine * first)),
                     TypedAttr(), StringAttr(), DenseI64ArrayAttr(), builder.getUnitAttr())
                     .getMemory();
}

DimExpr EntryMemory::startOf(Operation *view) {
  auto slice = dyn_cast<SliceOp>(view);
  if (!slice)
    return 0;
  std::vector<DimExpr> physical = physicalDimsOf(slice.getX().getType());
  DimExpr stride = int64_t(bitWidth(*dtypeOf(elementTypeOf(slice.getX()))) / 8), start = 0;
  for (size_t d = physical.size(); d-- > 0; stride = stride * physical[d])
    start = start + stride * cast<DimAttr>(slice.getStarts()[d]).expr();
  return start;
}

StateOp EntryMemory::stateOf(StringRef name) {
  return *llvm::find_if(states, [&](StateOp state) { return state.getSymName() == name; });
}

Value EntryMemory::resultBuffer(OpResult result) {
  if (Value known = buffers.lookup(result))
    return known;
  if (Value taken = inPlace.lookup(result))
    return buffer(result.getLoc(), result.getType(), nameOf(result), BufferKind::View, 0,
                  buffers.lookup(taken));
  if (result.hasOneUse())
    if (auto whole = dyn_cast<KernelOp>(*result.user_begin());
        whole && whole->hasAttr(kPlacedAttr))
      return sliceOf(whole, result);
  if (result.hasOneUse())
    if (auto append = dyn_cast<StateAppendOp>(*result.user_begin())) {
      StateOp state = stateOf(append.getState());
      std::vector<DimExpr> physical = dimsOf(state.getType());
      DimExpr stride = int64_t(bitWidth(*dtypeOf(elementTypeOf(result))) / 8);
      for (size_t d = state.getAxis() + 1; d < physical.size(); ++d)
        stride = stride * physical[d];
      return buffer(result.getLoc(), result.getType(), nameOf(result), BufferKind::View, 0,
                    stateBuffers.lookup(append.getState()),
                    DimExpr::symbol(state.getLength().str()) * stride);
    }
  return buffer(result.getLoc(), result.getType(), nameOf(result), BufferKind::Arena, 0);
}

Value EntryMemory::placeOf(Value memory) {
  auto op = memory.getDefiningOp<exec::BufferOp>();
  while (op.getBase() && (!op.getOffset() || op.getOffset()->expr() == DimExpr(0)))
    op = op.getBase().getDefiningOp<exec::BufferOp>();
  return op.getMemory();
}

/// The place of one input in the memory of a placed kernel's result.
Value EntryMemory::sliceOf(KernelOp whole, OpResult input) {
  Value memory = resultBuffer(whole->getResult(0));
  buffers[whole->getResult(0)] = memory;
  int64_t axis = whole->getAttrOfType<IntegerAttr>(kPlacedAttr).getInt();
  DimExpr before = 0;
  for (Value other : whole.getInputs()) {
    if (other == input)
      break;
    before = before + dimOf(other, axis);
  }
  std::vector<DimExpr> dims = dimsOf(whole->getResult(0));
  DimExpr stride = int64_t(bitWidth(*dtypeOf(elementTypeOf(input))) / 8);
  for (size_t d = axis + 1; d < dims.size(); ++d)
    stride = stride * dims[d];
  return buffer(input.getLoc(), input.getType(), nameOf(input), BufferKind::View, 0, memory,
                before * stride);
}

Value EntryMemory::parameter(ConstantOp constant) {
  auto name = builder.getStringAttr(*WeightStore::parameterOf(constant.getValue()));
  Value input = parameters.lookup({name, Attribute()});
  if (!input || input.getType() == constant.getType())
    return input;
  return buffer(constant.getLoc(), constant.getType(), name, BufferKind::View, 0, input);
}

LogicalResult EntryMemory::pack(KernelOp kernel, size_t i, const std::string &packing, Value &memory) {
  auto constant = kernel.getInputs()[i].getDefiningOp<ConstantOp>();
  if (constant && WeightStore::parameterOf(constant.getValue())) {
    if (!packing.empty())
      memory = parameters.lookup({constant.getValue(), builder.getStringAttr(packing)});
    return memory ? success() : kernel.emitError("input ") << i << " is a parameter, which the entry has no input for";
  }
  if (!memory)
    return kernel.emitError("input ") << i << " has no memory";
  if (packing.empty())
    return success();
  auto weight = memory.getDefiningOp<exec::BufferOp>();
  if (!weight || weight.getKind() != BufferKind::Weight)
    return kernel.emitError("input ") << i << " is packed but no weight";
  Value &packed = packedWeights[{weight.getOperation(), packing}];
  if (!packed) {
    auto clone = cast<exec::BufferOp>(builder.clone(*weight));
    clone.setPacking(packing);
    packed = clone.getMemory();
  }
  memory = packed;
  return success();
}

} // namespace lathe::plan
