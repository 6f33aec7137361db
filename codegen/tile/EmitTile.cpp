//===- EmitTile.cpp - kernel region and spec to a tile function --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes the function, picks the schedule by the config's name and tidies up.
//
// Before:  a region  ^bb(%x): %y = lathe.exp %x ; lathe.yield %y
//          config "pointwise.t1.v16"
// After:   func.func @k(%x: memref<?xf32>, %y: memref<?xf32>, %B: index)
//            attributes {tile.kernel = #tile.launch<threads = 1, target = "x86-64-v4">}
//          with loops, tile.load, math.exp, tile.store
//
//===----------------------------------------------------------------------===//

#include "Schedule.h"

#include "mlir/Transforms/CSE.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/LoopInvariantCodeMotionUtils.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace lathe::codegen {

Config Config::parse(StringRef text) {
  Config c;
  SmallVector<StringRef> parts;
  text.split(parts, '.');
  c.schedule = parts[0].str();
  for (StringRef p : llvm::drop_begin(parts)) {
    int64_t n;
    if (p.consume_front("t") && !p.getAsInteger(10, n))
      c.threads = n;
    else if (p.consume_front("v") && !p.getAsInteger(10, n))
      c.lanes = n;
    else
      c.options.push_back(p.str());
  }
  return c;
}

int64_t Config::option(StringRef name, int64_t otherwise) const {
  for (StringRef o : options) {
    int64_t n;
    if (o.consume_front(name) && !o.getAsInteger(10, n))
      return n;
  }
  return otherwise;
}

/// Dead code goes (whole subtrees that no store needs), and what does not
/// depend on a loop leaves it.
static void tidy(ModuleOp module) {
  IRRewriter rewriter(module.getContext());
  DominanceInfo dominance(module);
  eliminateCommonSubExpressions(rewriter, dominance, module);
  module.walk([](LoopLikeOpInterface loop) { moveLoopInvariantCode(loop); });
}

static Schedule findSchedule(StringRef name) {
  return llvm::StringSwitch<Schedule>(name)
      .Cases({"pointwise", "serial"}, schedulePointwise)
      .Case("row", scheduleRow)
      .Case("scan", scheduleScan)
      .Case("scatter", scheduleScatter)
      .Default(nullptr);
}

LogicalResult emitTile(const KernelSource &kernel, ModuleOp into) {
  Operation *yield = kernel.body->getTerminator();
  const KernelSpec &spec = *kernel.spec;
  Location loc = yield->getLoc();
  auto reject = [&](const Twine &why) -> LogicalResult {
    return mlir::emitError(loc, "code generation of kernel '") << kernel.name << "': " << why;
  };
  Config config = Config::parse(spec.config);
  Schedule schedule = findSchedule(config.schedule);
  if (!schedule)
    return reject("no schedule is named '" + config.schedule + "' (config '" + spec.config + "')");
  if (spec.launches.size() != 1)
    return reject("a tile schedule has exactly one launch");
  size_t named = spec.numInputs + spec.numOutputs;
  if (kernel.body->getNumArguments() != static_cast<unsigned>(spec.numInputs) ||
      yield->getNumOperands() != static_cast<unsigned>(spec.numOutputs) ||
      spec.buffers.size() < named)
    return reject("the spec's buffers do not match the region's inputs and outputs");

  MLIRContext *context = into.getContext();
  OpBuilder b(context);
  SmallVector<Type> args;
  auto bufferType = [&](Type element) {
    return MemRefType::get({ShapedType::kDynamic}, Evaluator::storageType(element));
  };
  for (size_t i = 0; i < spec.buffers.size(); ++i) {
    Type element = i < static_cast<size_t>(spec.numInputs)
                       ? elementTypeOf(kernel.body->getArgument(i))
                   : i < named ? elementTypeOf(yield->getOperand(i - spec.numInputs))
                               : typeOf(context, spec.buffers[i].dtype);
    // Packing may change what memory holds.
    if (!spec.buffers[i].packing.empty())
      element = typeOf(context, spec.buffers[i].dtype);
    if (!Evaluator::storageType(element).isIntOrFloat())
      return reject("kernels cannot hold elements of this type");
    args.push_back(bufferType(element));
  }
  args.append(spec.symbols.size(), b.getIndexType());

  b.setInsertionPointToEnd(into.getBody());
  auto fn = func::FuncOp::create(b, loc, spec.launches[0].function, b.getFunctionType(args, {}));
  fn->setAttr("tile.kernel", tile::LaunchAttr::get(context, config.threads, kernel.target->name));
  fn->setAttr("tile.step", b.getI64IntegerAttr(kernel.stepId));
  b.setInsertionPointToStart(fn.addEntryBlock());
  func::ReturnOp::create(b, loc);
  b.setInsertionPoint(fn.front().getTerminator());

  Evaluator e(b, fn, kernel, config.lanes, config.threads);
  schedule(e, config);
  if (e.failed)
    return failure();
  tidy(into);
  if (failed(verify(into)))
    return reject("made IR that does not verify");
  return success();
}

} // namespace lathe::codegen
