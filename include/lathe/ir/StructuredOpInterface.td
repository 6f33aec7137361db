//===- StructuredOpInterface.td - how an op iterates -------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_STRUCTUREDOPINTERFACE
#define LATHE_IR_STRUCTUREDOPINTERFACE

include "mlir/IR/OpBase.td"

def StructuredOpInterface : OpInterface<"StructuredOpInterface"> {
  let cppNamespace = "::lathe";
  let description = [{
    What generic passes know of an op: fusion, cost, roofline and sharding are
    written against this and never against op names.
  }];
  let methods = [
    InterfaceMethod<"What the op is to fusion.", "::lathe::OpClass", "getOpClass">,
    InterfaceMethod<[{
      The iteration space: parallel iterators first (one per dimension of the
      first result, in order), then reduction iterators.
    }], "::llvm::SmallVector<::mlir::utils::IteratorType>", "getIterators">,
    InterfaceMethod<[{
      One map per operand, then one per result, from the iteration space to that
      tensor's index; a null map where the access is not affine (gathers).
    }], "::llvm::SmallVector<::mlir::AffineMap>", "getAccessMaps">,
    InterfaceMethod<"Floating-point or integer operations of the whole op.",
      "::lathe::DimExpr", "getFlops", (ins), [{}], [{
        return ::lathe::defaultFlops($_op.getOperation());
      }]>,
    InterfaceMethod<"Bytes read and written when nothing is fused.",
      "::lathe::DimExpr", "getBytes", (ins), [{}], [{
        return ::lathe::defaultBytes($_op.getOperation());
      }]>,
    InterfaceMethod<[{
      Whether the sizes of operands are those of the iteration space, or 1. A
      slice iterates over a part of its operand.
    }], "bool", "coversOperands", (ins), [{}], [{ return true; }]>,
    InterfaceMethod<"Whether the operand's values are needed on the host (sizes, axes).",
      "bool", "isHostOperand", (ins "unsigned":$index), [{}], [{ return false; }]>,
  ];
}

#endif // LATHE_IR_STRUCTUREDOPINTERFACE
