//===- Register.cpp - the dialects that lathe's tools know ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Register.h"

#include "lathe/ir/Aten.h"
#include "lathe/ir/Exec.h"
#include "lathe/ir/Lathe.h"
#include "lathe/ir/Onnx.h"
#include "lathe/ir/Tile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace lathe {

void registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<onnxir::OnnxDialect, atenir::AtenDialect, LatheDialect, tile::TileDialect,
                  exec::ExecDialect, mlir::func::FuncDialect, mlir::arith::ArithDialect,
                  mlir::math::MathDialect, mlir::scf::SCFDialect, mlir::memref::MemRefDialect,
                  mlir::vector::VectorDialect>();
}

} // namespace lathe
