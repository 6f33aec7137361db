//===- OnnxDialect.td - the model as it was ----------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "mlir/IR/OpBase.td"

def Onnx_Dialect : Dialect {
  let name = "onnx";
  let cppNamespace = "::lathe::onnxir";
  let summary = "ONNX nodes one to one, in generic form";
  let description = [{
    Any op is accepted, so importing never fails for lack of one:
    `"onnx.Conv"(%x, %w) {onnx.attrs...} : (tensor<…>, tensor<…>) -> tensor<…>`. A missing
    optional operand is a value of `none` type made by `"onnx.NoValue"()`. The location carries
    the node's name; `onnx_domain` and `onnx_opset` the schema that gives it meaning. A tensor of
    strings has the element type `!onnx.string`.
  }];
  let useDefaultTypePrinterParser = 1;
  let extraClassDeclaration = [{
    static bool isOnnx(::mlir::Operation *op);
  }];
  let isExtensible = 0;
}
