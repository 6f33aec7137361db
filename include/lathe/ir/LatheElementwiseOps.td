//===- LatheElementwiseOps.td - one value in, one value out -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shape rule of the family: unary ops keep the type; the others broadcast as
// numpy does (sizes equal, or one of them 1; sizes that are not known to be
// related become bcast(a, b) and are checked at run time).
// Example: %z = lathe.add %x, %y : (tensor<4x1xf32>, tensor<3xf32>) -> tensor<4x3xf32>
//
//===----------------------------------------------------------------------===//
include "lathe/ir/LatheBase.td"

/// `work`: StructuredOpInterface::getWork of one element.
class Lathe_UnaryOp<string mnemonic, string sentence, int work = 1>
    : Lathe_StructuredOp<mnemonic, [Elementwise, SameOperandsAndResultType]> {
  let summary = sentence;
  let extraClassDeclaration = latheWork<work>.text;
  let arguments = (ins Lathe_Tensor:$x);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = lathePointwiseMethods;
}

def Lathe_NegOp : Lathe_UnaryOp<"neg", "y = -x">;
def Lathe_AbsOp : Lathe_UnaryOp<"abs", "y = |x|">;
def Lathe_SignOp : Lathe_UnaryOp<"sign", "y = -1, 0 or 1; NaN stays NaN">;
def Lathe_FloorOp : Lathe_UnaryOp<"floor", "y = the largest integer <= x">;
def Lathe_CeilOp : Lathe_UnaryOp<"ceil", "y = the smallest integer >= x">;
def Lathe_RoundOp : Lathe_UnaryOp<"round", "y = x rounded to the nearest integer, ties to even">;
def Lathe_TruncOp : Lathe_UnaryOp<"trunc", "y = x rounded towards zero">;
def Lathe_ExpOp : Lathe_UnaryOp<"exp", "y = e^x", 16>;
def Lathe_Expm1Op : Lathe_UnaryOp<"expm1", "y = e^x - 1, exact near 0", 16>;
def Lathe_LogOp : Lathe_UnaryOp<"log", "y = ln x", 16>;
def Lathe_Log1pOp : Lathe_UnaryOp<"log1p", "y = ln(1 + x), exact near 0", 16>;
def Lathe_SqrtOp : Lathe_UnaryOp<"sqrt", "y = sqrt(x)", 4>;
def Lathe_RsqrtOp : Lathe_UnaryOp<"rsqrt", "y = 1 / sqrt(x)", 4>;
def Lathe_RecipOp : Lathe_UnaryOp<"recip", "y = 1 / x", 4>;
def Lathe_SinOp : Lathe_UnaryOp<"sin", "y = sin x", 32>;
def Lathe_CosOp : Lathe_UnaryOp<"cos", "y = cos x", 32>;
def Lathe_TanOp : Lathe_UnaryOp<"tan", "y = tan x", 32>;
def Lathe_AsinOp : Lathe_UnaryOp<"asin", "y = arcsin x", 32>;
def Lathe_AcosOp : Lathe_UnaryOp<"acos", "y = arccos x", 32>;
def Lathe_AtanOp : Lathe_UnaryOp<"atan", "y = arctan x", 32>;
def Lathe_SinhOp : Lathe_UnaryOp<"sinh", "y = sinh x", 32>;
def Lathe_CoshOp : Lathe_UnaryOp<"cosh", "y = cosh x", 32>;
def Lathe_TanhOp : Lathe_UnaryOp<"tanh", "y = tanh x", 16>;
def Lathe_AsinhOp : Lathe_UnaryOp<"asinh", "y = arsinh x", 32>;
def Lathe_AcoshOp : Lathe_UnaryOp<"acosh", "y = arcosh x", 32>;
def Lathe_AtanhOp : Lathe_UnaryOp<"atanh", "y = artanh x", 32>;
def Lathe_ErfOp : Lathe_UnaryOp<"erf", "y = 2/sqrt(pi) * integral of e^(-t^2) from 0 to x", 16>;
def Lathe_SigmoidOp : Lathe_UnaryOp<"sigmoid", "y = 1 / (1 + e^-x)", 16>;
def Lathe_QuickGeluOp : Lathe_UnaryOp<"quick_gelu", "y = x / (1 + e^(-alpha x))", 20> {
  let description = "Far to the left y is -0, not the NaN of an infinity by an infinity.";
  let arguments = (ins Lathe_Tensor:$x, F64Attr:$alpha);
}
def Lathe_MishOp : Lathe_UnaryOp<"mish", "y = x tanh(ln(1 + e^x)); -0 far to the left", 20>;
def Lathe_ProbitOp : Lathe_UnaryOp<"probit", "y = the number below which a standard normal number lies with probability x", 64> {
  let description = [{
    -infinity at 0, infinity at 1, NaN outside of [0, 1]. Every target gives the same bits: Wichura,
    "Algorithm AS 241", 1988, in fused multiply-adds.
  }];
}
def Lathe_NotOp : Lathe_UnaryOp<"not", "y = bitwise complement; logical not for i1">;

class Lathe_TestOp<string mnemonic, string sentence> : Lathe_InferredOp<mnemonic, [Elementwise]> {
  let summary = sentence;
  let arguments = (ins Lathe_Tensor:$x);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = !strconcat(lathePointwiseMethods, latheCompatibleTypes, [{
    ::llvm::LogicalResult $cppClass::inferReturnTypes(::mlir::MLIRContext *context,
        std::optional<::mlir::Location>, Adaptor adaptor,
        ::llvm::SmallVectorImpl<::mlir::Type> &types) {
      types.push_back(::lathe::withElementType(adaptor.getX().getType(),
                                               ::mlir::IntegerType::get(context, 1)));
      return ::mlir::success();
    }
  }]);
}
def Lathe_IsNanOp : Lathe_TestOp<"is_nan", "y = whether x is NaN (i1)">;
def Lathe_IsInfOp : Lathe_TestOp<"is_inf", "y = whether x is an infinity of a wanted sign (i1)"> {
  let arguments = (ins Lathe_Tensor:$x, DefaultValuedAttr<BoolAttr, "true">:$negative,
                       DefaultValuedAttr<BoolAttr, "true">:$positive);
}

class Lathe_BinaryOp<string mnemonic, string sentence, list<Trait> traits = [], int work = 1>
    : Lathe_InferredOp<mnemonic, traits> {
  let summary = sentence;
  let extraClassDeclaration = latheWork<work>.text;
  let description = "broadcast_c1: sizes are equal or 1. broadcast_c2: operands have one element type.";
  let arguments = (ins Lathe_Tensor:$a, Lathe_Tensor:$b);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = !strconcat(lathePointwiseMethods, latheCompatibleTypes, [{
    ::llvm::LogicalResult $cppClass::inferReturnTypes(::mlir::MLIRContext *,
        std::optional<::mlir::Location> loc, Adaptor adaptor,
        ::llvm::SmallVectorImpl<::mlir::Type> &types) {
      return ::lathe::inferBroadcast(loc, adaptor.getOperands(), /*sameElement=*/true, types);
    }
  }]);
}
def Lathe_AddOp : Lathe_BinaryOp<"add", "y = a + b", [Commutative]> { let hasFolder = 1; }
def Lathe_SubOp : Lathe_BinaryOp<"sub", "y = a - b"> { let hasFolder = 1; }
def Lathe_MulOp : Lathe_BinaryOp<"mul", "y = a * b", [Commutative]> { let hasFolder = 1; }
def Lathe_DivOp : Lathe_BinaryOp<"div", "y = a / b; integers truncate and wrap, by 0 the result is 0", [], 4> {
  let hasFolder = 1;
}
def Lathe_ModOp : Lathe_BinaryOp<"mod", "y = a mod b with the sign of b, with `fmod` the sign of a; integers by 0: 0", [], 4> {
  let arguments = (ins Lathe_Tensor:$a, Lathe_Tensor:$b, UnitAttr:$fmod);
}
def Lathe_PowOp : Lathe_InferredOp<"pow"> {
  let extraClassDeclaration = latheWork<32>.text;
  let summary = "y = a ^ b; the exponent may have another element type; y has the type of a";
  let description = [{
    Floats as IEEE 754 says: (-0)^1/2 is +0, (-inf)^1/2 is inf. Integers wrap; a negative exponent gives
    1 / a^-b truncated, 0 of 0. An integer to the power of a float is the cast of that power.
  }];
  let arguments = (ins Lathe_Tensor:$a, Lathe_Tensor:$b);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = !strconcat(lathePointwiseMethods, latheCompatibleTypes);
}
def Lathe_MaxOp : Lathe_BinaryOp<"max", "y = the larger; NaN if either is NaN; of +0 and -0 either", [Commutative]>;
def Lathe_MinOp : Lathe_BinaryOp<"min", "y = the smaller; NaN if either is NaN; of +0 and -0 either", [Commutative]>;
def Lathe_AndOp : Lathe_BinaryOp<"and", "y = bitwise and; logical and for i1", [Commutative]>;
def Lathe_OrOp : Lathe_BinaryOp<"or", "y = bitwise or; logical or for i1", [Commutative]>;
def Lathe_XorOp : Lathe_BinaryOp<"xor", "y = bitwise exclusive or", [Commutative]>;
def Lathe_ShlOp : Lathe_BinaryOp<"shl", "y = a shifted left by b bits; 0 when b is negative or >= width">;
def Lathe_ShrOp : Lathe_BinaryOp<"shr", "y = a shifted right by b bits, by its sign where signed; all of them when b is negative or >= width">;
def Lathe_CompareOp : Lathe_InferredOp<"compare"> {
  let summary = "y = whether a PRED b (i1); comparisons with NaN are false, except ne";
  let arguments = (ins Lathe_Tensor:$a, Lathe_Tensor:$b, Lathe_PredicateAttr:$predicate);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = !strconcat(lathePointwiseMethods, latheCompatibleTypes);
}
def Lathe_SelectOp : Lathe_InferredOp<"select"> {
  let summary = "y = a where condition holds, else b";
  let arguments = (ins Lathe_Tensor:$condition, Lathe_Tensor:$a, Lathe_Tensor:$b);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = !strconcat(lathePointwiseMethods, latheCompatibleTypes);
  let hasFolder = 1;
}
def Lathe_RandomBitsOp : Lathe_InferredOp<"random_bits"> {
  let summary = "y = 64 random bits (ui64), a function of element, seed and run";
  let description = [{
    The first two words, the first one low, of Philox4x32-10 (Salmon et al., "Parallel random numbers: as
    easy as 1, 2, 3", 2011) with the counter (element, run) and the key (low half of the seed, high half of
    the seed xor `stream`): nodes that draw have streams of their own. random_bits_c1: all operands are ui64;
    random_bits_c2: 0 <= stream < 2^32. The operands broadcast.
  }];
  let extraClassDeclaration = latheWork<64>.text;
  let arguments = (ins Lathe_Tensor:$element, Lathe_Tensor:$seed, Lathe_Tensor:$run, I64Attr:$stream);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = !strconcat(lathePointwiseMethods, latheCompatibleTypes);
  let hasVerifier = 1;
}
def Lathe_CastOp : Lathe_StructuredOp<"cast"> {
  let summary = "y = x in another element type; float to int truncates, int to i1 tests for non-zero";
  let description = [{
    Floats round to nearest even; `saturate` clamps to the range of 8-bit float results (ONNX
    default), otherwise they become infinities or NaN. cast_c1: same sizes.
    A float becomes an integer through i32, or through i64 for results of 64 bits and u32: it is
    truncated, NaN and what that type does not hold give its least number, and the low bits are the
    result. To i8 300.7 is 44, to u8 -1.5 is 255, to i32 NaN is -2^31. A u64 takes floats up to 2^64.
  }];
  let arguments = (ins Lathe_Tensor:$x, DefaultValuedAttr<BoolAttr, "true">:$saturate);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "bool convertsElements() { return true; }";
  let extraClassDefinition = lathePointwiseMethods;
  let hasVerifier = 1;
  let hasFolder = 1;
}
def Lathe_BitcastOp : Lathe_StructuredOp<"bitcast"> {
  let summary = "y = the bits of x as another element type of the same width";
  let arguments = (ins Lathe_Tensor:$x);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = lathePointwiseMethods;
  let hasVerifier = 1;
}
