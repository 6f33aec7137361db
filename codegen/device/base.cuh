//===- base.cuh - types, conversions, vectors, memory, status -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every kernel starts with. No header is included: element types are our
// own, and everything that needs PTX stands in one block below, which the host
// emulation (emulate.h) replaces by ordinary C++.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_BASE
#define LATHE_DEVICE_BASE

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };

#define LATHE_DEV static __device__ __forceinline__
#define LATHE_METHOD __device__ __forceinline__

// ---- PTX ---------------------------------------------------------------------
#ifndef LATHE_EMULATE

#define LATHE_DYNAMIC_SHARED(name) extern __shared__ __align__(128) u8 name[]
typedef u32 SharedAddr; // an address in shared memory, as PTX takes it

LATHE_DEV u16 bf16Bits(f32 x) { u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
LATHE_DEV u16 f16Bits(f32 x) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
LATHE_DEV f32 f16Value(u16 b) { f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(b)); return r; }
LATHE_DEV f32 bitsToF32(u32 b) { return __uint_as_float(b); }
LATHE_DEV u32 f32ToBits(f32 x) { return __float_as_uint(x); }
/// 2^x and 1/x by the special function unit: about 2 ULP of f32, denormals flushed.
LATHE_DEV f32 fastExp2(f32 x) { f32 r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
LATHE_DEV f32 fastReciprocal(f32 x) { f32 r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

LATHE_DEV u32 shuffleXor32(u32 v, int mask) {
  u32 r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=r"(r) : "r"(v), "r"(mask));
  return r;
}
LATHE_DEV u32 shuffleFrom32(u32 v, int lane) {
  u32 r;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(r) : "r"(v), "r"(lane));
  return r;
}
/// Whether `is` holds for any thread of the block; a barrier.
LATHE_DEV bool blockAny(bool is) {
  u32 any;
  asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.red.or.pred q, 0, p; selp.u32 %0, 1, 0, q; }"
               : "=r"(any) : "r"((u32)is) : "memory");
  return any != 0;
}
/// A bit for each lane of the warp.
LATHE_DEV u32 warpBits(bool is) {
  u32 bits;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, -1; }" : "=r"(bits) : "r"((u32)is));
  return bits;
}
LATHE_DEV int countBits(u32 v) { int n; asm("popc.b32 %0, %1;" : "=r"(n) : "r"(v)); return n; }
LATHE_DEV SharedAddr sharedAddr(const void *p) {
  u32 a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}
/// Two results rounded to 16 bits in one word, `low` in its low half.
LATHE_DEV u32 bf16Pair(f32 low, f32 high) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
LATHE_DEV u32 f16Pair(f32 low, f32 high) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
/// Two integers as bytes, `low` in the low one; what a byte does not have becomes the nearest that it has.
LATHE_DEV u16 u8Pair(i32 low, i32 high) { u32 r; asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(r) : "r"(high), "r"(low)); return (u16)r; }
LATHE_DEV u16 i8Pair(i32 low, i32 high) { u32 r; asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(r) : "r"(high), "r"(low)); return (u16)r; }
#if __CUDA_ARCH__ >= 890
#define LATHE_FLOAT8_UNITS
/// Two 8-bit floats from and to their bits; what is too large becomes the largest finite number.
LATHE_DEV u16 e4m3Pair(f32 low, f32 high) { u16 r; asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low)); return r; }
LATHE_DEV u16 e5m2Pair(f32 low, f32 high) { u16 r; asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low)); return r; }
LATHE_DEV u32 e4m3Halves(u16 pair) { u32 r; asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(pair)); return r; }
#endif
struct Bits16 { u32 w[4]; };
LATHE_DEV Bits16 loadGlobal16(const void *p) {
  Bits16 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p) : "memory");
  return v;
}
LATHE_DEV void storeGlobal16(void *p, const Bits16 &v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]) : "memory");
}
/// Read once and not kept: weights of matrix-vector products. The memory must be constant
/// for the whole kernel.
LATHE_DEV Bits16 loadGlobal16Streaming(const void *p) {
  Bits16 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p));
  return v;
}
/// Between blocks, a word by itself: what else the thread wrote need not be there yet.
LATHE_DEV u32 loadRelaxed(const u32 *from) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
LATHE_DEV void storeRelaxed(u32 *to, u32 v) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory"); }
/// Keeps the loads written above it there. ptxas moves each load towards its use to save
/// registers, and one or two are left in flight; it does not move them over a branch, which
/// this one is, never taken.
LATHE_DEV void pinLoads() {
  u32 z;
  asm volatile("mov.u32 %0, %%nctaid.z;" : "=r"(z));
  if (z == 0) asm volatile("nanosleep.u32 1;" ::: "memory");
}
/// A constant that stays in a register: an instruction takes one constant itself, and for the second ptxas would
/// make a register anew each time, of whatever it knows to be one. (Blocks have one layer of threads.)
LATHE_DEV u32 inRegister(u32 v) {
  u32 layers;
  asm volatile("mov.u32 %0, %%ntid.z;" : "=r"(layers));
  return v - 1 + layers;
}
/// The value is needed here: loads that it follows from are over, and what they read is cached.
LATHE_DEV void needValue(f32 x) { asm volatile("" ::"f"(x)); }
#endif // LATHE_EMULATE

// ---- Conversions ---------------------------------------------------------------
// convert<To>(x): floats to integers truncate, to bool compare with zero. What an integer does not hold is
// open here: generated code decides it with comparisons, as all targets do.

LATHE_DEV f32 toF32(f32 x) { return x; }
LATHE_DEV f32 toF32(bf16 x) { return bitsToF32((u32)x.bits << 16); }
LATHE_DEV f32 toF32(f16 x) { return f16Value(x.bits); }
template <class T> LATHE_DEV f32 toF32(T x) { return (f32)x; }

/// Floats that are computed with as f32.
template <class T> struct IsHalf { static constexpr bool value = false; };
template <> struct IsHalf<f16> { static constexpr bool value = true; };
template <> struct IsHalf<bf16> { static constexpr bool value = true; };
template <class A, class B> struct IsSame { static constexpr bool value = false; };
template <class A> struct IsSame<A, A> { static constexpr bool value = true; };

template <class To> struct Converter {
  template <class From> static LATHE_METHOD To from(From x) {
    if constexpr (IsHalf<From>::value) return (To)toF32(x);
    else return (To)x;
  }
};
template <> struct Converter<bool> {
  template <class From> static LATHE_METHOD bool from(From x) {
    if constexpr (IsHalf<From>::value) return toF32(x) != 0.0f;
    else return x != (From)0;
  }
};
template <> struct Converter<bf16> {
  template <class From> static LATHE_METHOD bf16 from(From x) { bf16 r; r.bits = bf16Bits(toF32(x)); return r; }
  static LATHE_METHOD bf16 from(bf16 x) { return x; }
};
template <> struct Converter<f16> {
  template <class From> static LATHE_METHOD f16 from(From x) { f16 r; r.bits = f16Bits(toF32(x)); return r; }
  static LATHE_METHOD f16 from(f16 x) { return x; }
};

// 8-bit floats are storage only: EXPONENT bits over MANTISSA bits. FINITE types have no
// infinity; UNSIGNED_ZERO ones have their NaN where minus zero would be.
template <int EXPONENT, int MANTISSA, int BIAS, bool FINITE, bool UNSIGNED_ZERO> struct Float8 { u8 bits; };
typedef Float8<4, 3, 7, true, false> f8e4m3fn;
typedef Float8<5, 2, 15, false, false> f8e5m2;
typedef Float8<4, 3, 8, true, true> f8e4m3fnuz;
typedef Float8<5, 2, 16, true, true> f8e5m2fnuz;

template <int E, int M, int B, bool F, bool U> LATHE_DEV f32 toF32(Float8<E, M, B, F, U> x) {
  if constexpr (E == 5 && !U) return f16Value((u16)(x.bits << 8)); // the upper half of an f16
#ifdef LATHE_FLOAT8_UNITS
  if constexpr (E == 4 && !U) return f16Value((u16)e4m3Halves(x.bits));
#endif
  const u32 sign = (u32)(x.bits & 0x80) << 24, magnitude = x.bits & 0x7f, exponent = magnitude >> M;
  const u32 mantissa = magnitude & ((1 << M) - 1);
  const bool special = U ? x.bits == 0x80 : F ? magnitude == 0x7f : exponent == (1 << E) - 1;
  if (special) return bitsToF32(sign | (!F && mantissa == 0 ? 0x7f800000u : 0x7fc00000u));
  if (exponent == 0) { // mantissa * 2^(1 - B - M)
    const f32 value = (f32)mantissa * bitsToF32((u32)(127 + 1 - B - M) << 23);
    return bitsToF32(sign | f32ToBits(value));
  }
  return bitsToF32(sign | (exponent + 127 - B) << 23 | mantissa << (23 - M));
}
/// Rounds to nearest, ties to even; too large is infinity, or NaN where there is none.
template <class T> struct Float8Encoder;
template <int E, int M, int B, bool F, bool U> struct Float8Encoder<Float8<E, M, B, F, U>> {
  static LATHE_METHOD u8 encode(f32 x) {
    const u32 bits = f32ToBits(x), magnitude = bits & 0x7fffffffu;
    const u8 sign = (u8)(bits >> 24 & 0x80);
    const u8 nan = U ? (u8)0x80 : (u8)(sign | 0x7f), over = F ? nan : (u8)(sign | 0x7c);
    constexpr u32 largest = U ? 0x7f : F ? 0x7e : 0x7b;
#ifdef LATHE_FLOAT8_UNITS
    if constexpr (!U) {
      // From 61440 on, half a step behind the largest, e5m2 is infinite; behind 464 e4m3 is NaN.
      const u8 code = (u8)(F ? e4m3Pair(x, 0.0f) : e5m2Pair(x, 0.0f));
      if (F) return magnitude > 0x43e80000u ? nan : code;
      return magnitude > 0x7f800000u ? nan : magnitude >= 0x47700000u ? over : code;
    }
#endif
    if (magnitude > 0x7f800000u) return nan;
    if (magnitude == 0x7f800000u) return over;
    u32 code;
    if (magnitude < (u32)(128 - B) << 23) // below the smallest normal number
      code = (u32)rintf(bitsToF32(magnitude) * bitsToF32((u32)(127 + B - 1 + M) << 23));
    else
      code = ((magnitude + ((1u << (22 - M)) - 1) + (magnitude >> (23 - M) & 1)) >> (23 - M)) - ((u32)(127 - B) << M);
    if (code > largest) return over;
    return U && code == 0 ? 0 : (u8)(sign | code);
  }
};
template <int E, int M, int B, bool F, bool U> struct IsHalf<Float8<E, M, B, F, U>> { static constexpr bool value = true; };
template <int E, int M, int B, bool F, bool U> struct Converter<Float8<E, M, B, F, U>> {
  typedef Float8<E, M, B, F, U> To;
  template <class From> static LATHE_METHOD To from(From x) { return To{Float8Encoder<To>::encode(toF32(x))}; }
  static LATHE_METHOD To from(To x) { return x; }
};

template <class To, class From> LATHE_DEV To bitCast(From x) {
  static_assert(sizeof(To) == sizeof(From), "bitCast keeps the size");
  To r;
  memcpy(&r, &x, sizeof(To));
  return r;
}

// Arithmetic of 16-bit floats: each operation in f32, rounded once.
#define LATHE_HALF_OPERATORS(T)                                                              \
  LATHE_DEV T operator+(T a, T b) { return Converter<T>::from(toF32(a) + toF32(b)); }        \
  LATHE_DEV T operator-(T a, T b) { return Converter<T>::from(toF32(a) - toF32(b)); }        \
  LATHE_DEV T operator*(T a, T b) { return Converter<T>::from(toF32(a) * toF32(b)); }        \
  LATHE_DEV T operator/(T a, T b) { return Converter<T>::from(toF32(a) / toF32(b)); }        \
  LATHE_DEV T operator-(T a) { T r; r.bits = a.bits ^ 0x8000; return r; }                    \
  LATHE_DEV bool operator<(T a, T b) { return toF32(a) < toF32(b); }                         \
  LATHE_DEV bool operator<=(T a, T b) { return toF32(a) <= toF32(b); }                       \
  LATHE_DEV bool operator>(T a, T b) { return toF32(a) > toF32(b); }                         \
  LATHE_DEV bool operator>=(T a, T b) { return toF32(a) >= toF32(b); }                       \
  LATHE_DEV bool operator==(T a, T b) { return toF32(a) == toF32(b); }                       \
  LATHE_DEV bool operator!=(T a, T b) { return toF32(a) != toF32(b); }
LATHE_HALF_OPERATORS(f16)
LATHE_HALF_OPERATORS(bf16)
#undef LATHE_HALF_OPERATORS

// ---- Vectors -------------------------------------------------------------------
// Vec<T, N>: N values in registers. In memory it is N consecutive elements, moved
// 16 bytes at a time where its size allows.

constexpr int vecAlignment(int bytes) {
  return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1;
}
template <class T, int N> struct alignas(vecAlignment(sizeof(T) * N)) Vec {
  T v[N];
  LATHE_METHOD T &operator[](int i) { return v[i]; }
  LATHE_METHOD const T &operator[](int i) const { return v[i]; }
};

/// Where the columns of pair n stand in their matrix: `half` 0 or 1, N apart, or half a head of HEAD.
template <int HEAD> LATHE_DEV i64 pairColumn(i64 n, i64 half, i64 N) {
  if constexpr (HEAD == 0) return n + half * N;
  else return n / (HEAD / 2) * HEAD + n % (HEAD / 2) + half * (HEAD / 2);
}

template <int N, class T> LATHE_DEV Vec<T, N> splat(T x) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = x;
  return r;
}
/// {x, x + 1, ..., x + N - 1}
template <int N, class T> LATHE_DEV Vec<T, N> iota(T x) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = x + (T)i;
  return r;
}

template <class To, class From> LATHE_DEV To convert(From x) { return Converter<To>::from(x); }
template <class To, class From, int N> LATHE_DEV Vec<To, N> convert(const Vec<From, N> &x) {
  Vec<To, N> r;
  if constexpr (N % 2 == 0 && (IsSame<To, bf16>::value || IsSame<To, f16>::value) && IsSame<From, f32>::value) {
    u32 words[N / 2];
#pragma unroll
    for (int i = 0; i < N; i += 2)
      words[i / 2] = IsSame<To, bf16>::value ? bf16Pair(x.v[i], x.v[i + 1]) : f16Pair(x.v[i], x.v[i + 1]);
    memcpy(&r, words, sizeof r);
    return r;
  }
  if constexpr (N % 2 == 0 && IsSame<To, f32>::value && IsSame<From, bf16>::value) {
    u32 words[N / 2];
    memcpy(words, &x, sizeof x);
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      r.v[i] = bitsToF32(words[i / 2] << 16);
      r.v[i + 1] = bitsToF32(words[i / 2] & 0xffff0000u);
    }
    return r;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = Converter<To>::from(x.v[i]);
  return r;
}

#define LATHE_VECTOR_BINARY(op)                                                              \
  template <class T, int N> LATHE_DEV auto operator op(const Vec<T, N> &a, const Vec<T, N> &b) \
      -> Vec<decltype(a.v[0] op b.v[0]), N> {                                                \
    Vec<decltype(a.v[0] op b.v[0]), N> r;                                                    \
    _Pragma("unroll") for (int i = 0; i < N; ++i) r.v[i] = a.v[i] op b.v[i];                 \
    return r;                                                                                \
  }
LATHE_VECTOR_BINARY(<)
LATHE_VECTOR_BINARY(<=)
LATHE_VECTOR_BINARY(>)
LATHE_VECTOR_BINARY(>=)
LATHE_VECTOR_BINARY(==)
LATHE_VECTOR_BINARY(!=)
#undef LATHE_VECTOR_BINARY
// Integer promotion must not widen the elements: i8 + i8 is i8 here.
#define LATHE_VECTOR_BINARY(op)                                                              \
  template <class T, int N> LATHE_DEV Vec<T, N> operator op(const Vec<T, N> &a, const Vec<T, N> &b) { \
    Vec<T, N> r;                                                                             \
    _Pragma("unroll") for (int i = 0; i < N; ++i) r.v[i] = (T)(a.v[i] op b.v[i]);            \
    return r;                                                                                \
  }
LATHE_VECTOR_BINARY(+)
LATHE_VECTOR_BINARY(-)
LATHE_VECTOR_BINARY(*)
LATHE_VECTOR_BINARY(/)
LATHE_VECTOR_BINARY(%)
LATHE_VECTOR_BINARY(&)
LATHE_VECTOR_BINARY(|)
LATHE_VECTOR_BINARY(^)
LATHE_VECTOR_BINARY(<<)
LATHE_VECTOR_BINARY(>>)
#undef LATHE_VECTOR_BINARY
template <class T, int N> LATHE_DEV Vec<T, N> operator-(const Vec<T, N> &a) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = -a.v[i];
  return r;
}

template <class T> LATHE_DEV T select(bool c, T a, T b) { return c ? a : b; }
template <class T, int N>
LATHE_DEV Vec<T, N> select(const Vec<bool, N> &c, const Vec<T, N> &a, const Vec<T, N> &b) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = c.v[i] ? a.v[i] : b.v[i];
  return r;
}
template <class T, int N>
LATHE_DEV Vec<T, N> select(bool c, const Vec<T, N> &a, const Vec<T, N> &b) { return c ? a : b; }

// ---- Signs -----------------------------------------------------------------------
// The IR has integers without sign; an operation says how it sees them.

template <class T> struct SignOf { typedef T Signed; typedef T Unsigned; };
template <> struct SignOf<i8> { typedef i8 Signed; typedef u8 Unsigned; };
template <> struct SignOf<u8> { typedef i8 Signed; typedef u8 Unsigned; };
template <> struct SignOf<i16> { typedef i16 Signed; typedef u16 Unsigned; };
template <> struct SignOf<u16> { typedef i16 Signed; typedef u16 Unsigned; };
template <> struct SignOf<i32> { typedef i32 Signed; typedef u32 Unsigned; };
template <> struct SignOf<u32> { typedef i32 Signed; typedef u32 Unsigned; };
template <> struct SignOf<i64> { typedef i64 Signed; typedef u64 Unsigned; };
template <> struct SignOf<u64> { typedef i64 Signed; typedef u64 Unsigned; };
template <class T> LATHE_DEV typename SignOf<T>::Unsigned asUnsigned(T x) { return (typename SignOf<T>::Unsigned)x; }
template <class T> LATHE_DEV typename SignOf<T>::Signed asSigned(T x) { return (typename SignOf<T>::Signed)x; }
template <class T, int N> LATHE_DEV Vec<typename SignOf<T>::Unsigned, N> asUnsigned(const Vec<T, N> &x) {
  return convert<typename SignOf<T>::Unsigned>(x);
}
template <class T, int N> LATHE_DEV Vec<typename SignOf<T>::Signed, N> asSigned(const Vec<T, N> &x) {
  return convert<typename SignOf<T>::Signed>(x);
}
/// As bytes of type T, the nearest that it has; given as signed ones.
template <class T, int N> LATHE_DEV Vec<i8, N> saturate(const Vec<i32, N> &x) {
  constexpr bool UNSIGNED = IsSame<T, u8>::value;
  Vec<i8, N> r;
#pragma unroll
  for (int i = 0; i + 1 < N; i += 2) {
    const u16 pair = UNSIGNED ? u8Pair(x.v[i], x.v[i + 1]) : i8Pair(x.v[i], x.v[i + 1]);
    memcpy(&r.v[i], &pair, 2);
  }
  if constexpr (N % 2 == 1) r.v[N - 1] = (i8)(UNSIGNED ? u8Pair(x.v[N - 1], 0) : i8Pair(x.v[N - 1], 0));
  return r;
}
template <class T> LATHE_DEV i8 saturate(i32 x) { return saturate<T>(Vec<i32, 1>{{x}}).v[0]; }
template <class T> LATHE_DEV bool lowBit(T x) { return (x & 1) != 0; }
template <class T, int N> LATHE_DEV Vec<bool, N> lowBit(const Vec<T, N> &x) {
  Vec<bool, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = (x.v[i] & 1) != 0;
  return r;
}

// ---- Memory --------------------------------------------------------------------
// Vectors of 16 bytes and more are moved whole when `p` is aligned to them; the
// caller knows. Other vectors go element by element.

template <class T, int N> LATHE_DEV Vec<T, N> loadVec(const T *p) {
  Vec<T, N> r;
  if constexpr (sizeof(T) * N % 16 == 0) {
    constexpr int parts = sizeof(T) * N / 16;
    Bits16 raw[parts];
#pragma unroll
    for (int i = 0; i < parts; ++i) raw[i] = loadGlobal16((const u8 *)p + 16 * i);
    memcpy(&r, raw, sizeof r);
  } else {
    r = *(const Vec<T, N> *)p;
  }
  return r;
}
/// From memory that nothing writes while the kernel runs (a __restrict__ argument). Written as
/// a plain access, so that equal loads become one and a row that is walked three times stays
/// in registers; PTX in a string would be repeated.
template <class T, int N> LATHE_DEV Vec<T, N> loadVecConst(const T *p) {
  Vec<T, N> r;
  if constexpr (sizeof(T) * N % 16 == 0) {
    struct alignas(16) Words { u32 w[4]; };
    constexpr int parts = sizeof(T) * N / 16;
    Words raw[parts];
#pragma unroll
    for (int i = 0; i < parts; ++i) raw[i] = ((const Words *)p)[i];
    memcpy(&r, raw, sizeof r);
  } else {
    r = *(const Vec<T, N> *)p;
  }
  return r;
}
/// 16 bytes that one thread reads, once, in a kernel that reads and writes far more than the
/// second-level cache holds. Said to be kept there longest, such data leaves the places that are used
/// again to the results, which go to memory soon then and in the order in which they were made: 1 to
/// 3 % of the time of rows on an H200.
template <class T, int N> LATHE_DEV Vec<T, N> loadVecOnce(const T *p) {
#ifdef LATHE_EMULATE
  return loadVec<T, N>(p);
#else
  static_assert(sizeof(T) * N == 16, "one load");
  u64 kept;
  u32 w[4];
  Vec<T, N> r;
  asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(kept));
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p), "l"(kept));
  memcpy(&r, w, sizeof r);
  return r;
#endif
}
/// 4, 8 or 16 bytes, aligned, that are read once and not kept in the first-level cache. `CONSTANT`:
/// nothing writes them while the kernel runs, and it does not start before those ahead of it end.
template <bool CONSTANT, class T, int N> LATHE_DEV Vec<T, N> loadVecStreaming(const T *p) {
#ifdef LATHE_EMULATE
  return loadVec<T, N>(p);
#else
  constexpr int BYTES = sizeof(T) * N;
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "one load");
  u32 w[4];
  Vec<T, N> r;
#define LATHE_STREAM(how)                                                                         \
  if constexpr (BYTES == 16)                                                                      \
    asm volatile("ld.global" how ".L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"                   \
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p) : "memory");           \
  else if constexpr (BYTES == 8)                                                                  \
    asm volatile("ld.global" how ".L1::no_allocate.v2.u32 {%0,%1}, [%2];"                         \
                 : "=r"(w[0]), "=r"(w[1]) : "l"(p) : "memory");                                   \
  else                                                                                            \
    asm volatile("ld.global" how ".L1::no_allocate.u32 %0, [%1];" : "=r"(w[0]) : "l"(p) : "memory");
  if constexpr (CONSTANT) { LATHE_STREAM(".nc") } else { LATHE_STREAM("") }
#undef LATHE_STREAM
  memcpy(&r, w, sizeof r);
  return r;
#endif
}
/// The same values, of which the compiler does not know that it has converted them before: what is
/// kept over a reduction are the 16 bits of an element, not the 32 it was computed with.
template <class T, int N> LATHE_DEV Vec<T, N> again(Vec<T, N> x) {
#ifndef LATHE_EMULATE
  if constexpr (sizeof x % 4 == 0) {
    u32 w[sizeof x / 4];
    memcpy(w, &x, sizeof x);
#pragma unroll
    for (int i = 0; i < (int)(sizeof x / 4); ++i) asm volatile("" : "+r"(w[i]));
    memcpy(&x, w, sizeof x);
  }
#endif
  return x;
}
/// By the instruction: written as an assignment, elements of 16 bits sometimes become stores of
/// 16 bits each.
template <class T, int N> LATHE_DEV void storeVec(T *p, const Vec<T, N> &v) {
  if constexpr (sizeof(T) * N % 16 == 0) {
    constexpr int parts = sizeof(T) * N / 16;
    Bits16 raw[parts];
    memcpy(raw, &v, sizeof v);
#pragma unroll
    for (int i = 0; i < parts; ++i) storeGlobal16((u8 *)p + 16 * i, raw[i]);
  } else {
    *(Vec<T, N> *)p = v;
  }
}
/// The same in shared memory.
template <class T, int N> LATHE_DEV Vec<T, N> loadShared(const T *p) { return *(const Vec<T, N> *)p; }
template <class T, int N> LATHE_DEV void storeShared(T *p, const Vec<T, N> &v) { *(Vec<T, N> *)p = v; }

/// For addresses that are aligned to one element only.
template <class T, int N> LATHE_DEV Vec<T, N> loadVecUnaligned(const T *p) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = p[i];
  return r;
}
template <class T, int N> LATHE_DEV void storeVecUnaligned(T *p, const Vec<T, N> &v) {
#pragma unroll
  for (int i = 0; i < N; ++i) p[i] = v.v[i];
}
/// The first `count` elements; the others are T{}.
template <class T, int N> LATHE_DEV Vec<T, N> loadVecPartial(const T *p, i64 count) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = i < count ? p[i] : T{};
  return r;
}
template <class T, int N> LATHE_DEV void storeVecPartial(T *p, const Vec<T, N> &v, i64 count) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) p[i] = v.v[i];
}

// ---- Integer arithmetic with the signs of dimension expressions ----------------
// Divisors are positive.

LATHE_DEV i64 floorDiv(i64 a, i64 b) { i64 q = a / b; return q * b > a ? q - 1 : q; }
LATHE_DEV i64 ceilDiv(i64 a, i64 b) { i64 q = a / b; return q * b < a ? q + 1 : q; }
LATHE_DEV i64 floorMod(i64 a, i64 b) { i64 r = a % b; return r < 0 ? r + b : r; }
/// Quotient and remainder of numbers that are never negative. A division of 64 bits takes
/// some hundred instructions; sizes and offsets mostly fit into 32.
LATHE_DEV i64 divIndex(i64 a, i64 b) {
  return (((u64)a | (u64)b) >> 32) == 0 ? (i64)((u32)a / (u32)b) : a / b;
}
LATHE_DEV i64 remIndex(i64 a, i64 b) {
  return (((u64)a | (u64)b) >> 32) == 0 ? (i64)((u32)a % (u32)b) : a % b;
}
template <u64 D> LATHE_DEV i64 divBy(i64 a) { return (i64)((u64)a / D); }
template <u64 D> LATHE_DEV i64 remBy(i64 a) { return (i64)((u64)a % D); }
#define LATHE_INDEX_VECTOR(name)                                                             \
  template <int N> LATHE_DEV Vec<i64, N> name(const Vec<i64, N> &a, const Vec<i64, N> &b) {  \
    Vec<i64, N> r;                                                                           \
    _Pragma("unroll") for (int i = 0; i < N; ++i) r.v[i] = name(a.v[i], b.v[i]);             \
    return r;                                                                                \
  }
LATHE_INDEX_VECTOR(floorDiv)
LATHE_INDEX_VECTOR(ceilDiv)
LATHE_INDEX_VECTOR(divIndex)
LATHE_INDEX_VECTOR(remIndex)
#undef LATHE_INDEX_VECTOR
LATHE_DEV i64 broadcastSize(i64 a, i64 b) { return a == 1 ? b : a; }
LATHE_DEV i64 minIndex(i64 a, i64 b) { return a < b ? a : b; }
LATHE_DEV i64 maxIndex(i64 a, i64 b) { return a > b ? a : b; }

// ---- Status channel ------------------------------------------------------------
// The first failure wins; the run goes on and the host looks at the word after it.

struct StatusWord { u64 code, detail; };
constexpr u64 kStatusIndexOutOfRange = 1, kStatusDivisionByZero = 2;

LATHE_DEV void latheFail(StatusWord *status, u64 code, u32 step, i64 value) {
  if (atomicCAS(&status->code, 0ull, code) == 0)
    status->detail = (u64)step | (u64)value << 32;
}
/// An index into a dimension of `size`, negative ones counted from the end where
/// `wrap` says so. Out of range: reports, and gives 0 so that no access goes astray.
LATHE_DEV i64 checkIndex(StatusWord *status, u32 step, i64 index, i64 size, bool wrap) {
  i64 i = wrap && index < 0 ? index + size : index;
  if (i >= 0 && i < size) return i;
  latheFail(status, kStatusIndexOutOfRange, step, index);
  return 0;
}

/// Lets the next kernel of the stream start when it was launched programmatically (sm_90 and up)...
/// ... which calls the second before it touches what the kernels before it read or write. Both do
/// nothing in an ordinary launch.
#ifdef LATHE_EMULATE
LATHE_DEV void dependentsMayStart() {}
LATHE_DEV void dependenciesWait() { lathe_emu::waitForDependencies(); }
#else
LATHE_DEV void dependentsMayStart() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
LATHE_DEV void dependenciesWait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#endif

#endif // LATHE_DEVICE_BASE
