//===- AtenDialect.td - a graph of torch as it was ---------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "mlir/IR/OpBase.td"

def Aten_Dialect : Dialect {
  let name = "aten";
  let cppNamespace = "::lathe::atenir";
  let summary = "Calls of torch's operators one to one, in generic form";
  let description = [{
    Any op is accepted, so importing never fails for lack of one:
    `"aten.add.Tensor"(%x, %y) {alpha = 1 : i64} : (tensor<…>, tensor<…>) -> tensor<…>`. The name is that
    of the overload, without `.default`. Operands are the tensor arguments in the order of torch's schema, of
    a list each of its tensors; where a schema has lists, `segments` counts the operands of each argument.
    An argument that is not given, or is a number, is a value of `none` type made by `"aten.none"()`. All other arguments
    are attributes under their names, defaults included: i64, f64, i1, strings, types for dtypes,
    `array<i64>`, and `#lathe.dim` where a size is symbolic. `promoted` is the type that torch computes in.

    Results have the types that torch states, with exact sizes. `"aten.weight"() {name = "fc.weight"}` is a
    tensor whose bytes are given beside the text, and becomes `lathe.constant` when it is imported. The
    location carries `module.path/node` and the line of Python. An op that cannot be stated has the reason in `unsupported`.
  }];
  let extraClassDeclaration = [{
    static bool isAten(::mlir::Operation *op);
  }];
  let isExtensible = 0;
}
