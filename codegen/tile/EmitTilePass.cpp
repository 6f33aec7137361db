//===- EmitTilePass.cpp - lathe-emit-tile, for tests --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces each function by its scheduled form, so that schedules can be read
// and checked without a plan around them.
//
// Before:  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> { %y = lathe.neg %x ... }
// After:   func.func @f(%x: memref<?xf32>, %y: memref<?xf32>) attributes {tile.kernel = ...}
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/FunctionKernel.h"
#include "lathe/ir/Tile.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace lathe::codegen {

FailureOr<KernelSpec> specOfFunction(func::FuncOp fn, StringRef config, const DimExpr &grid) {
  KernelSpec spec;
  spec.config = config.str();
  std::set<std::string> symbols;
  AttrTypeWalker walker;
  walker.addWalk([&](DimAttr dim) { dim.expr().collectSymbols(symbols); });
  auto add = [&](Type type, BufferArg::Access access) -> LogicalResult {
    auto tensor = dyn_cast<RankedTensorType>(type);
    auto dtype = tensor ? dtypeOf(tensor.getElementType()) : std::nullopt;
    if (!dtype)
      return fn.emitError("no buffer can hold ") << type;
    BufferArg arg;
    arg.dtype = *dtype;
    arg.access = access;
    arg.dims = dimsOf(type);
    arg.physical = physicalDimsOf(type);
    spec.buffers.push_back(std::move(arg));
    walker.walk(type);
    return success();
  };
  for (Type type : fn.getArgumentTypes())
    if (failed(add(type, BufferArg::Access::Read)))
      return failure();
  for (Type type : fn.getResultTypes())
    if (failed(add(type, BufferArg::Access::Write)))
      return failure();
  fn.walk([&](Operation *op) {
    walker.walk(op->getAttrDictionary());
    for (Type type : op->getResultTypes())
      walker.walk(type);
  });
  spec.numInputs = fn.getNumArguments();
  spec.numOutputs = fn.getNumResults();
  spec.symbols.assign(symbols.begin(), symbols.end());
  spec.status = true;
  LaunchSpec launch;
  launch.function = fn.getName().str();
  launch.grid[0] = grid;
  spec.launches.push_back(std::move(launch));
  return spec;
}

KernelRoles rolesOfFunction(func::FuncOp fn) {
  auto roles = fn->getAttrOfType<RolesAttr>(kRolesAttr);
  return roles ? roles.getRoles() : KernelRoles();
}

namespace {

struct EmitTilePass : PassWrapper<EmitTilePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(EmitTilePass)
  EmitTilePass() = default;
  EmitTilePass(const EmitTilePass &other) : PassWrapper(other) {}
  StringRef getArgument() const override { return "lathe-emit-tile"; }
  StringRef getDescription() const override {
    return "Replace each function by its scheduled tile form (for tests)";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<tile::TileDialect, arith::ArithDialect, math::MathDialect, scf::SCFDialect,
                    vector::VectorDialect, memref::MemRefDialect>();
  }
  Option<std::string> config{*this, "config", llvm::cl::desc("configuration by name"),
                             llvm::cl::init("pointwise.v8")};
  Option<std::string> targetName{*this, "target", llvm::cl::desc("target by name"),
                                 llvm::cl::init("x86-64-v3")};
  Option<std::string> grid{*this, "grid", llvm::cl::desc("number of blocks, an expression"),
                           llvm::cl::init("1")};

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Result<Target> target = Target::parse(targetName);
    Result<DimExpr> blocks = DimExpr::parse(grid);
    if (!target || !blocks) {
      module.emitError((target ? blocks.status() : target.status()).str());
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
    OwningOpRef<ModuleOp> made(ModuleOp::create(module.getLoc()));
    for (func::FuncOp fn : functions) {
      FailureOr<KernelSpec> spec = specOfFunction(fn, config, *blocks);
      if (failed(spec))
        return signalPassFailure();
      KernelSource source{fn.getName(), &fn.front(), &*spec, &*target, 0, rolesOfFunction(fn)};
      if (failed(emitTile(source, *made)))
        return signalPassFailure();
    }
    for (func::FuncOp fn : functions)
      fn.erase();
    for (Operation &op : llvm::make_early_inc_range(*made->getBody())) {
      op.remove();
      module.push_back(&op);
    }
  }
};

} // namespace

void registerEmitTilePass() { PassRegistration<EmitTilePass>(); }

} // namespace lathe::codegen
