//===- LatheQuantizeOps.td - numbers as codes of few bits -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ONNX states of quantized numbers stays one op until code generation: a
// product may then read the codes (lathe/ir/StorageOperand.h). Shape rule:
// without `block` all operands broadcast as numpy does. With `block`, one number
// a dimension of the data, the result has the sizes of the data, and a parameter
// (scale, zero) has ceildiv(size, block) elements along each dimension, or 1.
//
//===----------------------------------------------------------------------===//
include "lathe/ir/LatheBase.td"

class Lathe_CodeOp<string mnemonic, list<Trait> traits = []>
    : Lathe_StructuredOp<mnemonic, traits> {
  let results = (outs Lathe_Tensor:$y);
  let hasVerifier = 1;
}

def Lathe_DequantizeOp : Lathe_CodeOp<"dequantize", [AttrSizedOperandSegments]> {
  let summary = "y = (data - zero) * (scale * outer), or codebook[data] * (scale * outer)";
  let description = [{
    `%y = lathe.dequantize %q scale(%s) zero(%z) {block = array<i64: 1, 32>} :
    (tensor<64x128xi4>, tensor<64x4xf16>, tensor<64x4xi4>) -> tensor<64x128xf16>`.
    Computed in f32 (f64 where the result is), in this order, and rounded once to the result's type.
    Integer results, which have no scales, wrap. `outer` is a second-level scale: one number.
    `codebook` has a number for each code. dequantize_c1: block is empty or has a positive number
    a dimension; dequantize_c2: sizes of data, scale and zero give those of the result;
    dequantize_c3: an outer scale is one float, beside a scale; dequantize_c4: a codebook has 2^bits
    floats, for integers of at most 8 bits, and no zero point beside it; dequantize_c5: scales are
    floats, and so is a result that has one.
  }];
  let arguments = (ins Lathe_Tensor:$data, Optional<Lathe_Tensor>:$scale,
                       Optional<Lathe_Tensor>:$zero, Optional<Lathe_Tensor>:$outer,
                       Optional<Lathe_Tensor>:$codebook,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$block);
  let assemblyFormat = [{
    $data (`scale` `(` $scale^ `)`)? (`zero` `(` $zero^ `)`)? (`outer` `(` $outer^ `)`)?
    (`codebook` `(` $codebook^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
  let hasCanonicalizer = 1;
}

def Lathe_QuantizeOp : Lathe_CodeOp<"quantize"> {
  let summary = "y = saturate(round(x / scale) + zero)";
  let description = [{
    `%q = lathe.quantize %x scale(%s) zero(%z) : (tensor<4x8xf32>, tensor<f32>, tensor<ui8>) ->
    tensor<4x8xui8>`. x is converted to the type of the scale and divided there. Integers: rounded to
    even, then the zero point added and the sum clamped to the type's range, in f32 (f64 for f64).
    Floats: rounded to the result's type; `saturate` clamps those of 8 bits. quantize_c1: block is
    empty or has a positive number a dimension; quantize_c2: sizes of x, scale and zero give those of
    the result; quantize_c3: the scale is a float of 16 bits or more; quantize_c4: the result is an
    integer, or a float without a zero point.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$scale, Optional<Lathe_Tensor>:$zero,
                       DefaultValuedAttr<BoolAttr, "true">:$saturate,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$block);
  let assemblyFormat = [{
    $x `scale` `(` $scale `)` (`zero` `(` $zero^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
}
