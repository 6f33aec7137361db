//===- widen.cuh - weights of 8 bits as 16 or 32 ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: mma
//
// Conversion of codes in registers: of 4 bits to bytes, and of sixteen codes of 8 bits to the floats
// that they stand for, which is exact because none has more than 8 bits of mantissa. Two floats of 16
// bits are made in one word: the byte is put into the mantissa of a number whose unit in the last place
// is 1, and the excess of that number is subtracted. That takes 1 to 2 instructions a code, half of
// those of a conversion through f32.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_WIDEN
#define LATHE_DEVICE_WIDEN

/// The 16 codes of 4 bits in one half of 16 bytes, a byte each, the lower ones first.
LATHE_DEV Vec<i8, 16> nibbles(const Vec<i8, 16> &packed, int half) {
  Vec<i8, 16> r;
#pragma unroll
  for (int i = 0; i < 16; ++i) r.v[i] = (i8)((u8)packed.v[half * 8 + i / 2] >> i % 2 * 4 & 15);
  return r;
}

/// Two halves one behind the other.
template <class T> LATHE_DEV Vec<T, 32> joined(const Vec<T, 16> &first, const Vec<T, 16> &second) {
  Vec<T, 32> r;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    r.v[i] = first.v[i];
    r.v[16 + i] = second.v[i];
  }
  return r;
}

/// Bytes, some of their bits flipped, behind the exponent of 2^23, less `much`. (The conversion of
/// the machine takes a quarter longer in a product of one row.)
LATHE_DEV Vec<f32, 16> widenBytes(const Vec<i8, 16> &codes, u32 flipped, f32 much) {
  u32 words[4];
  memcpy(words, &codes, sizeof codes);
  Vec<f32, 16> r;
#pragma unroll
  for (int i = 0; i < 16; ++i)
    r.v[i] = bitsToF32(__byte_perm(words[i / 4] ^ flipped, 0x4b000000u, 0x7540 | i % 4)) - much;
  return r;
}

/// Bytes, some of their bits flipped, two to a word behind the exponents of 2^7 (bf16) or 2^10 (f16);
/// less(word) takes away what the two numbers have too much.
template <class T, class Less>
LATHE_DEV Vec<T, 16> widenPairs(const Vec<i8, 16> &codes, u32 flipped, Less less) {
  u32 words[4], out[8];
  memcpy(words, &codes, sizeof codes);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    out[i] = less(__byte_perm(words[i / 2] ^ flipped, IsSame<T, bf16>::value ? 0x43434343u : 0x64646464u,
                              i % 2 ? 0x4342 : 0x4140));
  Vec<T, 16> r;
  memcpy(&r, out, sizeof r);
  return r;
}

/// Integers between -128 and 127.
template <class T> LATHE_DEV Vec<T, 16> widenCodes(const Vec<i8, 16> &codes) {
  if constexpr (IsSame<T, bf16>::value) // 128 + the low seven bits, less 128, or less 256 where the eighth is set
    return widenPairs<T>(codes, 0, [](u32 pair) { return bf16Difference(pair & 0xff7fff7fu, pair & 0xff80ff80u); });
  else if constexpr (IsSame<T, f16>::value) // 1024 + 128 + the code
    return widenPairs<T>(codes, 0x80808080u, [](u32 pair) { return f16Difference(pair, 0x64806480u); });
  else
    return convert<T>(widenBytes(codes, 0x80808080u, 8388736.0f));
}

/// Integers between 0 and 255.
template <class T> LATHE_DEV Vec<T, 16> widenUnsigned(const Vec<i8, 16> &codes) {
  if constexpr (IsSame<T, bf16>::value) // 128 + the low seven bits, less 128, or nothing where the eighth is set
    return widenPairs<T>(codes, 0, [](u32 pair) {
      const u32 eighth = pair & 0x00800080u;
      return bf16Difference(pair & 0xff7fff7fu, 0x43004300u - eighth * 0x86u);
    });
  else if constexpr (IsSame<T, f16>::value) // 1024 + the code
    return widenPairs<T>(codes, 0, [](u32 pair) { return f16Difference(pair, 0x64006400u); });
  else
    return convert<T>(widenBytes(codes, 0, 8388608.0f));
}

/// Floats.
template <class T, int E, int M, int B, bool F, bool U>
LATHE_DEV Vec<T, 16> widenCodes(const Vec<Float8<E, M, B, F, U>, 16> &codes) {
#ifdef LATHE_FLOAT8_UNITS
  if constexpr (E == 4 && !U) { // two at a time
    u16 pairs[8];
    u32 out[8];
    memcpy(pairs, &codes, sizeof codes);
    Vec<f32, 16> wide;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out[i] = e4m3Halves(pairs[i]);
      wide.v[2 * i] = f16Value((u16)out[i]);
      wide.v[2 * i + 1] = f16Value((u16)(out[i] >> 16));
    }
    if constexpr (IsSame<T, f16>::value) {
      Vec<T, 16> r;
      memcpy(&r, out, sizeof r);
      return r;
    } else {
      return convert<T>(wide);
    }
  }
#endif
  return convert<T>(convert<f32>(codes));
}

// ---- Packed fragments (`fragments4`, `fragments8` of lathe/codegen/Packing.h) ------------------------------

/// A small integer as two 16-bit floats of a word.
template <class T> LATHE_DEV u32 twice(f32 v) { return IsSame<T, bf16>::value ? bf16Pair(v, v) : f16Pair(v, v); }
template <class T> LATHE_DEV u32 pairDifference(u32 a, u32 b) {
  return IsSame<T, bf16>::value ? bf16Difference(a, b) : f16Difference(a, b);
}
#ifndef LATHE_EMULATE
template <class T> LATHE_DEV u32 pairProduct(u32 a, u32 b) {
  return IsSame<T, bf16>::value ? bf16Product(a, b) : f16Product(a, b);
}
#endif
/// Eight codes of 4 bits as the four registers of a product's operand of 16 x 16: 128 (bf16) or 1024 (f16) more than
/// they are, and 8 where they are signed, whose highest bit is flipped.
/// `nibble`: 0x000f000f, best in a register.
template <class T, bool SIGNED> LATHE_DEV void exponentFragment(u32 (&a)[4], u32 codes, u32 nibble) {
  constexpr u32 UNITS = (IsSame<T, bf16>::value ? 0x43004300u : 0x64006400u) | (SIGNED ? 0x00080008u : 0u);
#pragma unroll
  for (int r = 0; r < 4; ++r) a[r] = (codes >> 4 * r & nibble) ^ UNITS;
}
/// The same less `low` in column g and `high` in column g + 8, two numbers a word.
template <class T, bool SIGNED> LATHE_DEV void widenFragment(u32 (&a)[4], u32 codes, u32 nibble, u32 low, u32 high) {
  exponentFragment<T, SIGNED>(a, codes, nibble);
#pragma unroll
  for (int r = 0; r < 4; ++r) a[r] = pairDifference<T>(a[r], r % 2 ? high : low);
}
/// Eight codes of 8 bits, registers 0 and 1 in `first`.
template <class T, bool SIGNED> LATHE_DEV void widenFragment(u32 (&a)[4], u32 first, u32 second) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const u32 pair = (r < 2 ? first : second) >> 8 * (r % 2) & 0x00ff00ffu;
    if constexpr (IsSame<T, f16>::value) // 1024 + the code, + 128 where its highest bit was flipped
      a[r] = f16Difference(pair ^ (SIGNED ? 0x64806480u : 0x64006400u), SIGNED ? 0x64806480u : 0x64006400u);
    else if constexpr (SIGNED) // as widenCodes
      a[r] = bf16Difference((pair & 0x007f007fu) | 0x43004300u, (pair & 0x00800080u) | 0x43004300u);
    else // 128 + the low seven bits, less 128 or, where the eighth is set, nothing
      a[r] = bf16Difference((pair & 0x007f007fu) | 0x43004300u, 0x43004300u - (pair & 0x00800080u) * 0x86u);
  }
}
/// The sum of a tile at a column of 16 and a row, over the warps in their order. `parts`: of each warp its
/// accumulators of rows 8 b.., [4 b + e][lane].
template <int WARPS, class Parts> LATHE_DEV f32 sumOfWarps(const Parts &parts, int column, int m) {
  const int at = m / 8 * 4 + column / 8 * 2 + m % 2, place = column % 8 * 4 + m % 8 / 2;
  f32 sum = parts[0][at][place];
#pragma unroll
  for (int w = 1; w < WARPS; ++w) sum += parts[w][at][place];
  return sum;
}

#endif // LATHE_DEVICE_WIDEN
