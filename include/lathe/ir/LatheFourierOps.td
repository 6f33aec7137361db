//===- LatheFourierOps.td - Fourier transforms -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "lathe/ir/LatheBase.td"

def Lathe_DftOp : Lathe_InferredOp<"dft"> {
  let summary = "y[.., k] = sum over t < length of x[.., t] e^(-2 pi i t k / length); the inverse of that";
  let description = [{
    `lathe.dft %x, %roots {length = 8 : i64, onesided} : (tensor<3x8x1xf64>, tensor<8x2xf64>) -> tensor<3x5x2xf64>`.
    x [.., T, 1] is real, [.., T, 2] has real and imaginary parts; beyond `length` it is cut, and filled up with zeros.
    roots [length, 2] (f64) are e^(-2 pi i j / length). With `onesided` the first length / 2 + 1 of y [.., length, 2] are
    given. `inverse` takes e^(2 pi i t k / length) and divides by the length; with `onesided`, too, x is the first
    length / 2 + 1 of a spectrum whose other half mirrors it, and y [.., length, 1] is real: imaginary parts of
    what is its own mirror image do not count. All is computed in the element type, and no row reads another.
    dft_c1: x is f32 or f64, T is known, its last dimension 1 or 2; dft_c2: the length is 1 or more, and roots are as many.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$roots, I64Attr:$length, UnitAttr:$inverse, UnitAttr:$onesided);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = [{
    ::lathe::OperandAccess getAccess(unsigned operand);
    /// Of a fast transform: 5 N log2 N a row.
    ::lathe::DimExpr getFlops();
    /// Whether x is half of a spectrum.
    bool fromHalf() { return getInverse() && getOnesided(); }
    /// Whether rows of x are complex numbers, neither real nor half of a spectrum.
    bool isComplex();
  }];
  let extraClassDefinition = latheCompatibleTypes;
}
