//===- ExecDialect.cpp - the exec dialect ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Loops.h"

#include "lathe/codegen/KernelSpec.h"

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
  auto verifySpec = [&](StringAttr text) -> LogicalResult {
    if (!text)
      return emitOpError("exec_kernel_c2: 'otherwise' lists texts");
    auto parsed = KernelSpec::parse(text.getValue());
    if (!parsed.ok())
      return emitOpError("exec_kernel_c3: ") << parsed.status().message();
    if (parsed->numInputs != int(block.getNumArguments()) || parsed->numOutputs != int(outputs))
      return emitOpError("exec_kernel_c3: the spec has ")
             << parsed->numInputs << " inputs and " << parsed->numOutputs << " outputs, the region "
             << block.getNumArguments() << " and " << outputs;
    return success();
  };
  if (getVariants().empty())
    return emitOpError("exec_kernel_c2: a kernel needs a variant");
  for (auto [i, attr] : llvm::enumerate(getVariants())) {
    auto variant = dyn_cast<DictionaryAttr>(attr);
    auto guard = variant ? variant.getAs<StringAttr>("guard") : StringAttr();
    auto spec = variant ? variant.getAs<StringAttr>("spec") : StringAttr();
    if (!guard || !spec)
      return emitOpError("exec_kernel_c2: a variant has the texts 'guard' and 'spec'");
    if (i + 1 == getVariants().size() && !guard.empty())
      return emitOpError("exec_kernel_c2: the last guard must be empty");
    if (failed(verifySpec(spec)))
      return failure();
    if (auto others = variant.getAs<ArrayAttr>("otherwise"))
      for (Attribute other : others)
        if (failed(verifySpec(dyn_cast<StringAttr>(other))))
          return failure();
  }
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

LogicalResult ProgramOp::verifyRegions() {
  if (getBody().front().getNumArguments())
    return emitOpError("a program has no arguments: exec.buffer makes its values");
  for (Operation &op : getBody().front())
    if (!isa<ExecDialect>(op.getDialect()))
      return op.emitOpError("is no part of a program");
  return verifyBranches(getBody().front());
}

LogicalResult GuardOp::verify() {
  auto parsed = parseGuard(getCondition());
  if (!parsed.ok() || parsed->size() != 1)
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
