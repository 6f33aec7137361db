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
      tensor's index; a null map where the access is not affine (getAccess says how it is).
    }], "::llvm::SmallVector<::mlir::AffineMap>", "getAccessMaps">,
    InterfaceMethod<[{
      How the op reads an operand; Whole is the explicit answer that nothing finer is promised.
    }], "::lathe::OperandAccess", "getAccess", (ins "unsigned":$operand), [{}], [{
        return ::lathe::defaultAccess($_op.getOperation(), operand);
      }]>,
    InterfaceMethod<[{
      What combines the points of the reduction iterators: partial results of parts of them
      combine so too. None where there is no such iterator, or partial results need more (a softmax).
    }], "std::optional<::lathe::ReduceKind>", "getCombiner", (ins), [{}], [{
        return std::nullopt;
      }]>,
    InterfaceMethod<"Whether the result has the operand's elements in another type.",
      "bool", "convertsElements", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<"Conditions on sizes beside those of the iterators.",
      "void", "getSizeRules", (ins "::llvm::SmallVectorImpl<::lathe::SizeRule> &":$rules), [{}], [{
        (void)rules; // none
      }]>,
    InterfaceMethod<[{
      Operations of one point of the iteration space, an addition being 1: polynomials and
      divisions keep a core busy for longer. An op of more than 1 declares `kWork`
      (latheWork in LatheBase.td).
    }], "int64_t", "getWork", (ins), [{}], [{
        if constexpr (requires { ConcreteOp::kWork; })
          return ConcreteOp::kWork;
        else
          return 1;
      }]>,
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
  ];
}

def HostOperandsInterface : OpInterface<"HostOperandsInterface"> {
  let cppNamespace = "::lathe";
  let description = [{
    Ops that need values of their operands on the host, as sizes. Structured ops need none: their
    sizes are expressions, their axes attributes.
  }];
  let methods = [
    InterfaceMethod<"Whether the operand's values are needed on the host.",
      "bool", "isHostOperand", (ins "unsigned":$operand)>,
  ];
}

#endif // LATHE_IR_STRUCTUREDOPINTERFACE
