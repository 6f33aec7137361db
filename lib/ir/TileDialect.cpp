//===- TileDialect.cpp - the tile dialect ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "lathe/ir/TileDialect.cpp.inc"
#include "lathe/ir/TileEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "lathe/ir/TileAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "lathe/ir/TileOps.cpp.inc"

namespace lathe::tile {

void TileDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "lathe/ir/TileAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "lathe/ir/TileOps.cpp.inc"
      >();
}

/// load_c1, store_c1: a value, or the elements of a vector, have the buffer's element type.
static LogicalResult verifyElements(Operation *op, Type value, Type buffer, StringRef constraint) {
  Type element = llvm::cast<MemRefType>(buffer).getElementType();
  if (getElementTypeOrSelf(value) != element)
    return op->emitOpError() << constraint << ": value of " << value << " in a buffer of " << element;
  return success();
}

LogicalResult LoadOp::verify() {
  return verifyElements(*this, getValue().getType(), getBuffer().getType(), "load_c1");
}

LogicalResult StoreOp::verify() {
  return verifyElements(*this, getValue().getType(), getBuffer().getType(), "store_c1");
}

LogicalResult DotOp::verify() {
  VectorType sums = getAcc().getType(), parts = getA().getType();
  if (parts.getNumElements() * parts.getElementTypeBitWidth() != sums.getNumElements() * 32)
    return emitOpError() << "dot_c1: " << parts << " does not fill the lanes of " << sums;
  return success();
}

} // namespace lathe::tile
