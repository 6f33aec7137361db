//===- math.cuh - scalar and vector functions ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: base
//
// f32 functions are within 5 ULP: they are the compiler's own (at most 2 ULP,
// pow 4). 16-bit types compute in f32 and round once. The `fast` forms use the
// special function unit; they are exact enough for results that are rounded to
// 16 bits.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_MATH
#define LATHE_DEVICE_MATH

#define LATHE_UNARY_VECTOR(name)                                                             \
  template <class T, int N> LATHE_DEV Vec<T, N> name(const Vec<T, N> &x) {                   \
    Vec<T, N> r;                                                                             \
    _Pragma("unroll") for (int i = 0; i < N; ++i) r.v[i] = name(x.v[i]);                     \
    return r;                                                                                \
  }
#define LATHE_UNARY_FLOAT(name, f32Function, f64Function)                                    \
  LATHE_DEV f32 name(f32 x) { return f32Function(x); }                                       \
  LATHE_DEV f64 name(f64 x) { return f64Function(x); }                                       \
  LATHE_DEV f16 name(f16 x) { return convert<f16>(f32Function(toF32(x))); }                  \
  LATHE_DEV bf16 name(bf16 x) { return convert<bf16>(f32Function(toF32(x))); }               \
  LATHE_UNARY_VECTOR(name)
#define LATHE_BINARY_VECTOR(name)                                                            \
  template <class T, int N> LATHE_DEV Vec<T, N> name(const Vec<T, N> &a, const Vec<T, N> &b) { \
    Vec<T, N> r;                                                                             \
    _Pragma("unroll") for (int i = 0; i < N; ++i) r.v[i] = name(a.v[i], b.v[i]);             \
    return r;                                                                                \
  }
#define LATHE_BINARY_FLOAT(name, f32Function, f64Function)                                   \
  LATHE_DEV f32 name(f32 a, f32 b) { return f32Function(a, b); }                             \
  LATHE_DEV f64 name(f64 a, f64 b) { return f64Function(a, b); }                             \
  LATHE_DEV f16 name(f16 a, f16 b) { return convert<f16>(f32Function(toF32(a), toF32(b))); } \
  LATHE_DEV bf16 name(bf16 a, bf16 b) { return convert<bf16>(f32Function(toF32(a), toF32(b))); } \
  LATHE_BINARY_VECTOR(name)

LATHE_UNARY_FLOAT(mathSin, sinf, sin)
LATHE_UNARY_FLOAT(mathCos, cosf, cos)
LATHE_UNARY_FLOAT(mathTan, tanf, tan)
LATHE_UNARY_FLOAT(mathAsin, asinf, asin)
LATHE_UNARY_FLOAT(mathAcos, acosf, acos)
LATHE_UNARY_FLOAT(mathAtan, atanf, atan)
LATHE_UNARY_FLOAT(mathSinh, sinhf, sinh)
LATHE_UNARY_FLOAT(mathCosh, coshf, cosh)
LATHE_UNARY_FLOAT(mathTanh, tanhf, tanh)
LATHE_UNARY_FLOAT(mathAsinh, asinhf, asinh)
LATHE_UNARY_FLOAT(mathAcosh, acoshf, acosh)
LATHE_UNARY_FLOAT(mathAtanh, atanhf, atanh)
LATHE_UNARY_FLOAT(mathExp, expf, exp)
LATHE_UNARY_FLOAT(mathExp2, exp2f, exp2)
LATHE_UNARY_FLOAT(mathExpm1, expm1f, expm1)
LATHE_UNARY_FLOAT(mathLog, logf, log)
LATHE_UNARY_FLOAT(mathLog1p, log1pf, log1p)
LATHE_UNARY_FLOAT(mathLog2, log2f, log2)
LATHE_UNARY_FLOAT(mathLog10, log10f, log10)
LATHE_UNARY_FLOAT(mathErf, erff, erf)
LATHE_UNARY_FLOAT(mathErfc, erfcf, erfc)
LATHE_UNARY_FLOAT(mathSqrt, sqrtf, sqrt)
LATHE_UNARY_FLOAT(mathCbrt, cbrtf, cbrt)
LATHE_UNARY_FLOAT(mathFloor, floorf, floor)
LATHE_UNARY_FLOAT(mathCeil, ceilf, ceil)
LATHE_UNARY_FLOAT(mathTrunc, truncf, trunc)
LATHE_UNARY_FLOAT(mathRound, roundf, round)         // halves away from zero
LATHE_UNARY_FLOAT(mathRoundEven, rintf, rint)       // halves to even
LATHE_UNARY_FLOAT(mathAbs, fabsf, fabs)
LATHE_BINARY_FLOAT(mathPow, powf, pow)
LATHE_BINARY_FLOAT(mathAtan2, atan2f, atan2)
LATHE_BINARY_FLOAT(mathFmod, fmodf, fmod)
LATHE_BINARY_FLOAT(mathCopysign, copysignf, copysign)

/// 1 / sqrt(x), correctly rounded division of a correctly rounded root.
LATHE_DEV f32 mathRsqrt(f32 x) { return 1.0f / sqrtf(x); }
LATHE_DEV f64 mathRsqrt(f64 x) { return 1.0 / sqrt(x); }
LATHE_DEV f16 mathRsqrt(f16 x) { return convert<f16>(mathRsqrt(toF32(x))); }
LATHE_DEV bf16 mathRsqrt(bf16 x) { return convert<bf16>(mathRsqrt(toF32(x))); }
LATHE_UNARY_VECTOR(mathRsqrt)

LATHE_DEV f32 mathFma(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
LATHE_DEV f64 mathFma(f64 a, f64 b, f64 c) { return fma(a, b, c); }
LATHE_DEV f16 mathFma(f16 a, f16 b, f16 c) { return convert<f16>(fmaf(toF32(a), toF32(b), toF32(c))); }
LATHE_DEV bf16 mathFma(bf16 a, bf16 b, bf16 c) { return convert<bf16>(fmaf(toF32(a), toF32(b), toF32(c))); }
template <class T, int N>
LATHE_DEV Vec<T, N> mathFma(const Vec<T, N> &a, const Vec<T, N> &b, const Vec<T, N> &c) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = mathFma(a.v[i], b.v[i], c.v[i]);
  return r;
}

/// a * b, which no sum takes in as a fused multiply-add.
#ifdef LATHE_EMULATE
LATHE_DEV f32 mulRounded(f32 a, f32 b) { return a * b; }
LATHE_DEV f64 mulRounded(f64 a, f64 b) { return a * b; }
#else
LATHE_DEV f32 mulRounded(f32 a, f32 b) { return __fmul_rn(a, b); }
LATHE_DEV f64 mulRounded(f64 a, f64 b) { return __dmul_rn(a, b); }
#endif
template <class T, int N> LATHE_DEV Vec<T, N> mulRounded(const Vec<T, N> &a, const Vec<T, N> &b) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = mulRounded(a.v[i], b.v[i]);
  return r;
}

LATHE_DEV bool isNan(f32 x) { return x != x; }
LATHE_DEV bool isNan(f64 x) { return x != x; }
LATHE_DEV bool isNan(f16 x) { return (x.bits & 0x7fff) > 0x7c00; }
LATHE_DEV bool isNan(bf16 x) { return (x.bits & 0x7fff) > 0x7f80; }
template <class T> LATHE_DEV bool isNan(T) { return false; }

/// maximum and minimum carry NaN of either operand on, as ONNX and numpy do;
/// maxNum and minNum prefer the number, as C does.
template <class T> LATHE_DEV T maximum(T a, T b) { return isNan(a) ? a : isNan(b) ? b : b > a ? b : a; }
template <class T> LATHE_DEV T minimum(T a, T b) { return isNan(a) ? a : isNan(b) ? b : b < a ? b : a; }
#ifndef LATHE_EMULATE
LATHE_DEV f32 maximum(f32 a, f32 b) {
  f32 r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
LATHE_DEV f32 minimum(f32 a, f32 b) {
  f32 r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#endif
/// Elements of 16 bits as they are, of a vector two at a time.
#ifdef LATHE_EMULATE
#define LATHE_MINMAX_16(name, op, type)                                                       \
  LATHE_DEV type name(type a, type b) {                                                       \
    const f32 x = toF32(a), y = toF32(b);                                                     \
    return isNan(a) || (!isNan(b) && name(x, y) == x) ? a : b;                                \
  }
#else
#define LATHE_MINMAX_16(name, op, type)                                                       \
  LATHE_DEV type name(type a, type b) {                                                       \
    type r;                                                                                   \
    asm(op ".NaN." #type " %0, %1, %2;" : "=h"(r.bits) : "h"(a.bits), "h"(b.bits));           \
    return r;                                                                                 \
  }                                                                                           \
  template <int N> LATHE_DEV Vec<type, N> name(Vec<type, N> a, Vec<type, N> b) {              \
    static_assert(N % 2 == 0, "whole words");                                                 \
    u32 x[N / 2], y[N / 2];                                                                   \
    memcpy(x, &a, sizeof x);                                                                  \
    memcpy(y, &b, sizeof y);                                                                  \
    _Pragma("unroll") for (int i = 0; i < N / 2; ++i)                                         \
      asm(op ".NaN." #type "x2 %0, %1, %2;" : "=r"(x[i]) : "r"(x[i]), "r"(y[i]));             \
    memcpy(&a, x, sizeof x);                                                                  \
    return a;                                                                                 \
  }
#endif
LATHE_MINMAX_16(maximum, "max", f16)
LATHE_MINMAX_16(maximum, "max", bf16)
LATHE_MINMAX_16(minimum, "min", f16)
LATHE_MINMAX_16(minimum, "min", bf16)
#undef LATHE_MINMAX_16
template <class T> LATHE_DEV T maxNum(T a, T b) { return isNan(a) ? b : isNan(b) ? a : b > a ? b : a; }
template <class T> LATHE_DEV T minNum(T a, T b) { return isNan(a) ? b : isNan(b) ? a : b < a ? b : a; }
#ifndef LATHE_EMULATE
LATHE_DEV f32 maxNum(f32 a, f32 b) { return fmaxf(a, b); }
LATHE_DEV f32 minNum(f32 a, f32 b) { return fminf(a, b); }
#endif
#define LATHE_MINMAX_VECTOR(name)                                                            \
  template <class T, int N> LATHE_DEV Vec<T, N> name(Vec<T, N> a, Vec<T, N> b) {             \
    Vec<T, N> r;                                                                             \
    _Pragma("unroll") for (int i = 0; i < N; ++i) r.v[i] = name(a.v[i], b.v[i]);             \
    return r;                                                                                \
  }
LATHE_MINMAX_VECTOR(maximum)
LATHE_MINMAX_VECTOR(minimum)
LATHE_MINMAX_VECTOR(maxNum)
LATHE_MINMAX_VECTOR(minNum)
#undef LATHE_MINMAX_VECTOR

/// Absolute value of integers; the smallest one maps to itself.
template <class T> LATHE_DEV T integerAbs(T x) { return x < 0 ? (T)(0 - x) : x; }
LATHE_UNARY_VECTOR(integerAbs)
/// Quotient towards zero; by 0 it is 0 and the smallest by -1 wraps, never a trap.
template <class T> LATHE_DEV T safeDiv(T a, T b) {
  return b == 0 ? (T)0 : (T)-1 < (T)0 && b == (T)-1 ? (T)(0 - a) : (T)(a / b);
}
template <class T> LATHE_DEV T safeRem(T a, T b) {
  return b == 0 || ((T)-1 < (T)0 && b == (T)-1) ? (T)0 : (T)(a % b);
}
template <class T> LATHE_DEV T safeFloorDiv(T a, T b) {
  T q = safeDiv(a, b);
  return b != 0 && (a < 0) != (b < 0) && (T)(q * b) != a ? (T)(q - 1) : q;
}
LATHE_BINARY_VECTOR(safeDiv)
LATHE_BINARY_VECTOR(safeRem)
LATHE_BINARY_VECTOR(safeFloorDiv)

template <class T> LATHE_DEV T divide(T a, T b) { return a / b; }
template <class T, int N> LATHE_DEV Vec<T, N> divide(const Vec<T, N> &a, const Vec<T, N> &b) { return a / b; }

// Comparisons that C++ has no operator for: true as well when an operand is NaN
// (unordered), or false then (ordered).
#define LATHE_COMPARE(name, expr)                                                            \
  template <class T> LATHE_DEV bool name(T a, T b) { return expr; }                          \
  template <class T, int N> LATHE_DEV Vec<bool, N> name(const Vec<T, N> &a, const Vec<T, N> &b) { \
    Vec<bool, N> r;                                                                          \
    _Pragma("unroll") for (int i = 0; i < N; ++i) r.v[i] = name(a.v[i], b.v[i]);             \
    return r;                                                                                \
  }
LATHE_COMPARE(ordered, a == a && b == b)
LATHE_COMPARE(unordered, !(a == a && b == b))
LATHE_COMPARE(orderedNotEqual, a < b || a > b)
LATHE_COMPARE(unorderedOrEqual, !(a < b || a > b))
LATHE_COMPARE(unorderedOrGreater, !(a <= b))
LATHE_COMPARE(unorderedOrGreaterEqual, !(a < b))
LATHE_COMPARE(unorderedOrLess, !(a >= b))
LATHE_COMPARE(unorderedOrLessEqual, !(a > b))
#undef LATHE_COMPARE
template <class T, int N> LATHE_DEV Vec<bool, N> isNan(const Vec<T, N> &x) { return unordered(x, x); }

// ---- Fast forms for results of 16 bits -------------------------------------------
LATHE_DEV f32 fastExp(f32 x) { return fastExp2(x * 1.4426950408889634f); }
LATHE_DEV f32 fastSigmoid(f32 x) { return fastReciprocal(1.0f + fastExp(-x)); }
LATHE_DEV f32 fastTanh(f32 x) {
  f32 a = fabsf(x);
  // Small arguments by the series, so that the relative error stays small near zero.
  f32 s = x * x;
  f32 series = x * fmaf(s, fmaf(s, 0.13333333f, -0.33333333f), 1.0f);
  f32 wide = 1.0f - 2.0f * fastReciprocal(1.0f + fastExp(2.0f * a));
  return a < 0.18f ? series : copysignf(wide, x);
}
/// x N(x^2) / D(x^2) on [-3.3, 3.3], a fit for relative error: 2.5e-6 everywhere. One reciprocal
/// and eleven instructions, so that a GELU stays as fast as memory.
LATHE_DEV f32 fastErf(f32 x) {
  x = minimum(maximum(x, -3.3f), 3.3f); // keeps NaN
  f32 s = x * x;
  f32 n = fmaf(s, 7.446257513947785e-4f, 4.312684386968613e-2f);
  n = fmaf(s, n, 0.154745414853096f);
  n = fmaf(s, n, 1.1283771991729736f);
  f32 d = fmaf(s, 9.254753589630127e-3f, 9.494975954294205e-2f);
  d = fmaf(s, d, 0.4704854190349579f);
  return x * n * fastReciprocal(fmaf(s, d, 1.0f));
}
/// x Phi(x) = max(x, 0) - |x| q with q = erfc(|x| / sqrt 2) / 2 = exp(-x^2 / 2) t P(t), t = 1 / (1 + 0.38 |x|).
/// P is a fit for relative error: q is within 4e-5 of its value (0.08 ULP of f16) wherever it is a normal
/// number, so the negative tail keeps its digits. Two special functions and twelve instructions.
LATHE_DEV f32 fastGelu(f32 x) {
  const f32 a = fminf(fabsf(x), 15.0f); // q is 0 there; infinity times 0 would be NaN
  const f32 t = fastReciprocal(fmaf(a, 0.38f, 1.0f)), e = fastExp2(a * a * -0.72134752044448170f);
  f32 p = fmaf(t, -0.08992831337878335f, 0.18887638724998193f);
  p = fmaf(t, p, 0.09197980669768342f);
  p = fmaf(t, p, 0.15782945313777352f);
  p = fmaf(t, p, 0.15122513875845842f);
  return fmaf(-a * e, p * t, maximum(x, 0.0f)); // NaN by the maximum
}
/// The same for results of f16: the logarithm of q is a polynomial, with one special function and ten
/// instructions. q is within 3e-5 of its value up to |x| = 5.5; from there on x q is below two of the
/// least numbers of f16, and off by a hundredth of one at most.
LATHE_DEV f32 fastGeluF16(f32 x) {
  const f32 a = fminf(fabsf(x), 15.0f);
  f32 p = fmaf(a, 2.6153747967327945e-05f, -0.000660981226246804f);
  p = fmaf(a, p, 0.00748831033706665f);
  p = fmaf(a, p, -0.051970407366752625f);
  p = fmaf(a, p, -0.46032947301864624f);
  p = fmaf(a, p, -1.1505839824676514f);
  p = fmaf(a, p, -1.0000361204147339f);
  return fmaf(-a, fastExp2(p), maximum(x, 0.0f));
}
/// The same for results of bf16, in eight instructions: beside a product each of them takes a quarter of a percent
/// of the time. q is within 8e-4 of its value (a fifth of an ULP of bf16) up to |x| = 4.4; from there on x q is off by
/// 1.6e-8 at most, less than 1 + erf(x) in f32.
LATHE_DEV f32 fastGeluBF16(f32 x) {
  const f32 a = fminf(fabsf(x), 15.0f);
  f32 p = fmaf(a, 0.00225756903f, -0.0343692392f);
  p = fmaf(a, p, -0.485999946f);
  p = fmaf(a, p, -1.13718891f);
  p = fmaf(a, p, -1.00115879f);
  return fmaf(-a, fastExp2(p), maximum(x, 0.0f));
}
LATHE_DEV f32 fastDivide(f32 a, f32 b) { return a * fastReciprocal(b); }
LATHE_BINARY_VECTOR(fastDivide)
/// All by one divisor: its reciprocal is made once.
template <int N> LATHE_DEV Vec<f32, N> fastDivide(const Vec<f32, N> &a, f32 b) {
  Vec<f32, N> r;
  const f32 inverse = fastReciprocal(b);
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = a.v[i] * inverse;
  return r;
}
LATHE_UNARY_VECTOR(fastExp)
LATHE_UNARY_VECTOR(fastSigmoid)
LATHE_UNARY_VECTOR(fastTanh)
LATHE_UNARY_VECTOR(fastErf)
LATHE_UNARY_VECTOR(fastGelu)
LATHE_UNARY_VECTOR(fastGeluF16)
LATHE_UNARY_VECTOR(fastGeluBF16)

#undef LATHE_UNARY_VECTOR
#undef LATHE_UNARY_FLOAT
#undef LATHE_BINARY_VECTOR
#undef LATHE_BINARY_FLOAT

#endif // LATHE_DEVICE_MATH
