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

using namespace mlir;

namespace lathe::codegen {

/// Dead code goes (whole subtrees that no store needs), and what does not
/// depend on a loop leaves it.
static void tidy(ModuleOp module) {
  IRRewriter rewriter(module.getContext());
  DominanceInfo dominance(module);
  eliminateCommonSubExpressions(rewriter, dominance, module);
  module.walk([](LoopLikeOpInterface loop) { moveLoopInvariantCode(loop); });
}

static Schedule scheduleOf(Skeleton::Code code) {
  switch (code) {
  case Skeleton::Code::Pointwise:
    return schedulePointwise;
  case Skeleton::Code::Row:
    return scheduleRow;
  case Skeleton::Code::Scan:
    return scheduleScan;
  case Skeleton::Code::Scatter:
    return scheduleScatter;
  case Skeleton::Code::UnorderedScatter:
    return scheduleUnorderedScatter;
  case Skeleton::Code::Transpose:
    return scheduleTranspose;
  case Skeleton::Code::CpuProduct:
    return scheduleGemm;
  case Skeleton::Code::CpuConv:
    return scheduleConv;
  case Skeleton::Code::CpuAttention:
    return scheduleAttention;
  case Skeleton::Code::Recurrent:
    return scheduleRecurrent;
  case Skeleton::Code::InsertTopK:
    return scheduleInsertTopK;
  case Skeleton::Code::MergeTopK:
    return scheduleMergeTopK;
  case Skeleton::Code::RadixTopK:
    return scheduleRadixTopK;
  case Skeleton::Code::CpuNonzero:
    return scheduleNonzero;
  case Skeleton::Code::Nms:
    return scheduleNms;
  default:
    return nullptr; // a skeleton of CUDA text
  }
}

LogicalResult emitTile(const KernelSource &kernel, ModuleOp into) {
  Operation *yield = kernel.body->getTerminator();
  const KernelSpec &spec = *kernel.spec;
  Location loc = yield->getLoc();
  auto reject = [&](const Twine &why) -> LogicalResult {
    return mlir::emitError(loc, "code generation of kernel '") << kernel.name << "': " << why;
  };
  Result<KernelConfig> parsed = KernelConfig::parse(spec.config);
  if (!parsed)
    return reject(parsed.status().str());
  const KernelConfig &config = *parsed;
  Schedule schedule = scheduleOf(config.form->code);
  if (!schedule)
    return reject("no schedule makes the code of configuration '" + spec.config + "'");
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
  SmallVector<int64_t> shared; // arguments whose memory may be another's too
  for (size_t i = 0; i < spec.buffers.size(); ++i)
    if (spec.buffers[i].aliases >= 0)
      shared.append({static_cast<int64_t>(i), spec.buffers[i].aliases});
  if (!shared.empty())
    fn->setAttr("tile.may_alias", b.getDenseI64ArrayAttr(shared));
  b.setInsertionPointToStart(fn.addEntryBlock());
  func::ReturnOp::create(b, loc);
  b.setInsertionPoint(fn.front().getTerminator());

  // Who reduces together: a block, one of its thread groups, or a cluster. (On a CPU, `rows` is how
  // many rows a block takes one after the other.)
  int64_t cluster = spec.launches[0].cluster[0], group = config.threads * cluster;
  if (kernel.target->isCuda() && config.form->reducesRows && config.rows > 1)
    group = config.threads / config.rows;
  if (group != config.threads)
    fn->setAttr("tile.group", b.getDenseI64ArrayAttr({group, cluster}));
  if (config.form->reducesRows && config.stages > 0)
    fn->setAttr("tile.resident", b.getI64IntegerAttr(config.stages));
  Evaluator e(b, fn, kernel, config.lanes, group);
  schedule(e, config);
  if (e.failed)
    return failure();
  tidy(into);
  if (kernel.target->isCuda() && spec.launches[0].programmaticDependent && shared.empty())
    hoistLoads(fn);
  if (failed(verify(into)))
    return reject("made IR that does not verify");
  return success();
}

} // namespace lathe::codegen
