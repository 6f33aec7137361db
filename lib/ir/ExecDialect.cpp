//===- ExecDialect.cpp - the exec dialect ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/KernelVariants.h"
#include "lathe/ir/Loops.h"
#include "lathe/ir/Roles.h"
#include "lathe/ir/Streams.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "lathe/ir/ExecDialect.cpp.inc"
#include "lathe/ir/ExecEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "lathe/ir/ExecAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "lathe/ir/ExecOps.cpp.inc"

namespace lathe {
void registerLoopOps(exec::ExecDialect &dialect);
} // namespace lathe

namespace lathe::exec {

void ExecDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "lathe/ir/ExecAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "lathe/ir/ExecOps.cpp.inc"
      >();
  registerLoopOps(*this);
}

LogicalResult KernelOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.empty() || !isa<YieldOp>(block.back()))
    return emitOpError("exec_kernel_c1: the body must end in lathe.yield");
  unsigned outputs = block.back().getNumOperands();
  auto verifySpec = [&](const KernelSpec &spec) -> LogicalResult {
    if (spec.numInputs != int(block.getNumArguments()) || spec.numOutputs != int(outputs))
      return emitOpError("exec_kernel_c3: the spec has ")
             << spec.numInputs << " inputs and " << spec.numOutputs << " outputs, the region "
             << block.getNumArguments() << " and " << outputs;
    return success();
  };
  if (getVariants().empty())
    return emitOpError("exec_kernel_c2: a kernel needs a variant");
  for (auto [i, attr] : llvm::enumerate(getVariants())) {
    Result<KernelVariant> variant = parseVariant(attr);
    if (!variant.ok())
      return emitOpError("exec_kernel_c2: ") << variant.status().message();
    if (i + 1 == getVariants().size() && !variant->guard.empty())
      return emitOpError("exec_kernel_c2: the last guard must be empty");
    if (failed(verifySpec(variant->spec)))
      return failure();
    for (const KernelSpec &other : variant->otherwise)
      if (failed(verifySpec(other)))
        return failure();
  }
  if (RolesAttr roles = getRolesAttr())
    return verifyRoles(*this, block, roles.getRoles());
  return success();
}

/// if, else and end_if, and loop and end_loop, stand in this order, nested.
static LogicalResult verifyBranches(Block &block) {
  SmallVector<Operation *> open; // a loop, an if, or the else that followed it
  for (Operation &op : block) {
    if (isa<IfOp, LoopOp>(op)) {
      open.push_back(&op);
    } else if (isa<EndLoopOp>(op)) {
      if (open.empty() || !isa<LoopOp>(open.pop_back_val()))
        return op.emitOpError("has no exec.loop that waits for it");
    } else if (isa<ElseOp, EndIfOp>(op)) {
      if (open.empty() || isa<LoopOp>(open.back()) || isa<ElseOp>(open.back()) == isa<ElseOp>(op))
        return op.emitOpError("has no exec.if that waits for it");
      open.back() = &op;
      if (isa<EndIfOp>(op))
        open.pop_back();
    }
  }
  return open.empty() ? success() : open.back()->emitOpError("has no end");
}

/// Events are signalled once and before they are waited for; where there are several streams, all is
/// enqueued at once.
static LogicalResult verifyStreams(ProgramOp program) {
  bool several = hasStreams(program);
  llvm::SmallDenseSet<int64_t> signalled;
  for (Operation &op : program.getBody().front()) {
    for (const char *name : {kStreamAttr, kSignalAttr})
      if (Attribute attr = op.getAttr(name)) {
        auto number = dyn_cast<IntegerAttr>(attr);
        if (!number || !number.getType().isInteger(64) || number.getInt() < 0)
          return op.emitOpError("'") << name << "' must be an i64 that is not negative";
      }
    if (Attribute attr = op.getAttr(kWaitsAttr); attr && !isa<DenseI64ArrayAttr>(attr))
      return op.emitOpError("'") << kWaitsAttr << "' must be an array<i64>";
    if (several && isa<BindOp, CallOp, IfOp, LoopOp>(op))
      return op.emitOpError("the host takes part in a program of several streams");
    StreamPlace place = streamPlaceOf(&op);
    for (int64_t event : place.waits)
      if (!signalled.contains(event))
        return op.emitOpError("waits for event ") << event << ", which no earlier step signals";
    if (place.signal >= 0 && !signalled.insert(place.signal).second)
      return op.emitOpError("signals event ") << place.signal << " again";
  }
  return success();
}

LogicalResult ProgramOp::verifyRegions() {
  if (getBody().front().getNumArguments())
    return emitOpError("a program has no arguments: exec.buffer makes its values");
  for (Operation &op : getBody().front())
    if (!isa<ExecDialect>(op.getDialect()))
      return op.emitOpError("is no part of a program");
  if (failed(verifyStreams(*this)))
    return failure();
  return verifyBranches(getBody().front());
}

LogicalResult BindOp::verify() {
  if (bool(getBuffer()) == bool(getValue()) || bool(getBuffer()) != bool(getElement()))
    return emitOpError("exec_bind_c1: it needs a buffer and an element, or a value");
  return success();
}

LogicalResult GuardOp::verify() {
  if (!parseComparison(getCondition()).ok())
    return emitOpError("the condition must be one comparison of sizes, not '")
           << getCondition() << "'";
  return success();
}

LogicalResult BufferOp::verify() {
  if ((getKind() == BufferKind::View) != bool(getBase()))
    return emitOpError("exec_buffer_c1: a view has a base buffer and others have none");
  if ((getKind() == BufferKind::Weight) != bool(getValueAttr()))
    return emitOpError("exec_buffer_c2: a weight has a value and others have none");
  return success();
}

} // namespace lathe::exec

namespace lathe {

StreamPlace streamPlaceOf(Operation *step) {
  StreamPlace place;
  if (auto stream = step->getAttrOfType<IntegerAttr>(kStreamAttr))
    place.stream = stream.getInt();
  if (auto waits = step->getAttrOfType<DenseI64ArrayAttr>(kWaitsAttr))
    place.waits.assign(waits.asArrayRef().begin(), waits.asArrayRef().end());
  if (auto signal = step->getAttrOfType<IntegerAttr>(kSignalAttr))
    place.signal = signal.getInt();
  return place;
}

bool hasStreams(exec::ProgramOp program) {
  return llvm::any_of(program.getBody().front(),
                      [](Operation &op) { return streamPlaceOf(&op).stream > 0; });
}

} // namespace lathe
