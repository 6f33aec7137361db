//===- OnnxDialect.cpp - the onnx dialect ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Onnx.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectImplementation.h"

#include "lathe/ir/OnnxDialect.cpp.inc"

using namespace mlir;

namespace lathe::onnxir {

void OnnxDialect::initialize() {
  allowUnknownOperations();
  addTypes<StringType>();
}

bool OnnxDialect::isOnnx(Operation *op) {
  return op->getName().getDialectNamespace() == getDialectNamespace();
}

Type OnnxDialect::parseType(DialectAsmParser &parser) const {
  StringRef keyword;
  SMLoc at = parser.getCurrentLocation();
  if (failed(parser.parseKeyword(&keyword)))
    return {};
  if (keyword == "string")
    return StringType::get(getContext());
  parser.emitError(at, "the onnx dialect has no type '") << keyword << "'";
  return {};
}

void OnnxDialect::printType(Type type, DialectAsmPrinter &printer) const { printer << "string"; }

bool isStrings(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && isa<StringType>(shaped.getElementType());
}

} // namespace lathe::onnxir

MLIR_DEFINE_EXPLICIT_TYPE_ID(lathe::onnxir::StringType)
