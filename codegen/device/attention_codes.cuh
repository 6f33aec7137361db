//===- attention_codes.cuh - keys and values of 8 and 4 bits for attention_split -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, mma
//
// Sixteen keys or values whose elements are codes with one f32 scale a row, as lathe.kv_append stores them: of 8 bits
// signed bytes; of 4 bits the codes d and d + D / 2, both + 8, in one byte. They lie in shared memory as in global
// memory, and become the left operands of attention_split.cuh's two products in registers. Which element of a head a
// place of an operand has is free, as long as queries and results know it, so that a lane reads words of neighbours,
// and no instruction transposes. Scales go to scores and weights, not to elements. Few instructions are left for a code:
//
// keys     stay bytes (codes of 4 bits times 16), in a product of integers, which is exact. A query is two bytes an
//          element, its part of the largest of the row in units of 2^-15 (QueryBytes);
// values   become f16 numbers by their bits alone: those of an integer up to 255, + EXCESS, are the f16 number of so
//          many 2^-24. The excess times the sum of the weights, a product with ones, is taken away in the end.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_CODES
#define LATHE_DEVICE_ATTENTION_CODES

template <int BITS, int D> struct CodeRows {
  static constexpr int ROW = D * BITS / 8, BYTES = 16 * ROW;
  static_assert((BITS == 8 || BITS == 4) && ROW % 32 == 0, "whole words for all lanes");
  static constexpr int most(int words) { return words % 4 == 0 ? 4 : words % 2 == 0 ? 2 : 1; }
  // Words of a lane in a row, and of them what one load has: four lanes share a key, eight a value.
  static constexpr u32 KEY_MASK = 0xf0f0f0f0u, VALUE_MASK = 0x00ff00ffu;
  static constexpr f32 KEY_UNIT = BITS == 8 ? 1.0f : 1.0f / 16; ///< of a key's bytes
  static constexpr f32 EXCESS = BITS == 8 ? 128.0f : 8.0f;      ///< of a value
  static constexpr int KEY_WORDS = ROW / 16, KEY_LOAD = most(KEY_WORDS), VALUE_WORDS = ROW / 32, VALUE_LOAD = most(VALUE_WORDS);

  /// Offset of a byte; pieces of 16 bytes are permuted so that a load of keys, or one of values, meets each bank once.
  template <bool VALUES> static LATHE_METHOD u32 offset(int row, int byte) {
    const u32 at = row * ROW + byte;
    if constexpr (ROW % 128 == 0) return at ^ (VALUES ? row & 6 : (row & 1) << 2 | (row >> 1 & 3)) << 4;
    else if constexpr (ROW == 64 && VALUES) return at ^ (row & 6) << 4;
    else return at;
  }
  static LATHE_METHOD int keyByte(int word, int t) { return word / KEY_LOAD * (16 * KEY_LOAD) + t * (4 * KEY_LOAD) + word % KEY_LOAD * 4; }
  static LATHE_METHOD int valueByte(int word, int g) {
    return word / VALUE_LOAD * (32 * VALUE_LOAD) + g * (4 * VALUE_LOAD) + word % VALUE_LOAD * 4;
  }
  /// The element at column 16 half + 4 t + e of step i of 32, in keys and queries.
  static LATHE_METHOD int keyElement(int i, int half, int e, int t) {
    return BITS == 8 ? keyByte(2 * i + half, t) + e : keyByte(i, t) + e + half * (D / 2);
  }
  /// The element at row 8 half + g of the tile number m of sixteen, in values and results.
  static LATHE_METHOD int valueElement(int m, int half, int g) {
    return BITS == 8 ? valueByte(m / 2, g) + m % 2 * 2 + half : valueByte(m / 4, g) + m % 4 + half * (D / 2);
  }

  /// What a result of rows 8 half to 8 half + 7 of a tile is multiplied by.
  static LATHE_METHOD f32 valueUnit(int half) { return BITS == 4 && half ? 0x1p20f : 0x1p24f; }

  /// Copies 16 bytes. Blocks of neighbouring heads share the lines of short rows: who comes first brings them whole,
  /// for memory reads pieces of 64 bytes at two thirds of its rate.
  static LATHE_METHOD void copyPiece(SharedAddr to, const void *from) {
    if constexpr (ROW < 128) cpAsync16Line(to, from, 16);
    else cpAsync16(to, from, 16);
  }
  /// Copies sixteen rows that lie `stride` bytes apart.
  template <bool VALUES> static LATHE_METHOD void copy(SharedAddr to, const u8 *from, i64 stride) {
    constexpr int PIECES = ROW / 16;
#pragma unroll
    for (int i = 0; i < PIECES / 2; ++i) {
      const int p = i * 32 + (int)threadIdx.x % 32, row = p / PIECES, byte = p % PIECES * 16;
      copyPiece(to + offset<VALUES>(row, byte), from + row * stride + byte);
    }
  }
  template <bool VALUES, int WORDS, int LOAD> static LATHE_METHOD void words(u32 (&w)[WORDS], const u8 *rows, int row, int first) {
#pragma unroll
    for (int l = 0; l < WORDS / LOAD; ++l) {
      const int byte = VALUES ? valueByte(l * LOAD, first) : keyByte(l * LOAD, first);
      const Vec<u32, LOAD> some = loadShared<u32, LOAD>((const u32 *)(rows + offset<VALUES>(row, byte)));
#pragma unroll
      for (int e = 0; e < LOAD; ++e) w[l * LOAD + e] = some.v[e];
    }
  }
  /// The left operands of a product of keys, one for each 32 of D: `use(i, a)`.
  /// `mask`: inRegister(KEY_MASK).
  template <class Use> static LATHE_METHOD void keys(const u8 *rows, int g, int t, u32 mask, Use use) {
    u32 low[KEY_WORDS], high[KEY_WORDS]; // of rows g and g + 8
    words<false, KEY_WORDS, KEY_LOAD>(low, rows, g, t);
    words<false, KEY_WORDS, KEY_LOAD>(high, rows, g + 8, t);
    if constexpr (BITS == 8) {
#pragma unroll
      for (int w = 0; w < KEY_WORDS; w += 2) {
        const u32 a[4] = {low[w], high[w], low[w + 1], high[w + 1]};
        use(w / 2, a);
      }
    } else {
      auto nibble = [&](u32 word) { return (word & mask) ^ 0x80808080u; }; // n - 8, times 16
#pragma unroll
      for (int w = 0; w < KEY_WORDS; ++w) {
        const u32 a[4] = {nibble(low[w] << 4), nibble(high[w] << 4), nibble(low[w]), nibble(high[w])};
        use(w, a);
      }
    }
  }
  /// The left operands of a product of transposed values of f16, one for each sixteen of D: `use(m, a)`.
  /// `mask`: inRegister(VALUE_MASK).
  template <class Use> static LATHE_METHOD void values(const u8 *rows, int g, int t, u32 mask, Use use) {
    u32 w[4][VALUE_WORDS];
#pragma unroll
    for (int i = 0; i < 4; ++i) words<true, VALUE_WORDS, VALUE_LOAD>(w[i], rows, 2 * t + i % 2 + i / 2 * 8, g);
#pragma unroll
    for (int v = 0; v < VALUE_WORDS; ++v)
#pragma unroll
      for (int half = 0; half < 2; ++half) { // of the words' bytes, two of neighbouring values each
        const u32 two = half ? 0x7632 : 0x5410;
        const u32 x = __byte_perm(w[0][v], w[1][v], two), y = __byte_perm(w[2][v], w[3][v], two);
        if constexpr (BITS == 8) {
          auto widened = [&](u32 pair) { return (pair & mask) ^ 0x00800080u; };
          const u32 a[4] = {widened(x), widened(x >> 8), widened(y), widened(y >> 8)};
          use(2 * v + half, a);
        } else { // the upper four bits of a byte are sixteen times as much
          const u32 up = x >> 8, upY = y >> 8;
          const u32 low[4] = {x & 0x000f000fu, x & 0x00f000f0u, y & 0x000f000fu, y & 0x00f000f0u};
          const u32 high[4] = {up & 0x000f000fu, up & 0x00f000f0u, upY & 0x000f000fu, upY & 0x00f000f0u};
          use(4 * v + 2 * half, low);
          use(4 * v + 2 * half + 1, high);
        }
      }
  }
};

/// A column of queries as the right operands of products of bytes, one for each 32 of D: 256 * high + low.
template <class Codes, int STEPS> struct QueryBytes {
  u32 high[STEPS][2], low[STEPS][2];

  /// Takes `element(d)` of the column g; the result is the unit of the column. Not finite: NaN.
  template <class Element> LATHE_METHOD f32 take(int t, Element element) {
    constexpr f32 MOST = 32512.0f; // 127 * 256: both bytes are signed
    f32 x[STEPS][2][4], most = 0.0f;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < 8 * STEPS; ++i) {
      const f32 e = x[i / 8][i / 4 % 2][i % 4] = element(Codes::keyElement(i / 8, i / 4 % 2, i % 4, t));
      finite = finite && fabsf(e) <= 3.4028235e38f;
      most = fmaxf(most, fabsf(e));
    }
    if (!finite) most = bitsToF32(0x7f800000u);
    most = fmaxf(most, shuffleXor(most, 1));
    most = fmaxf(fmaxf(most, shuffleXor(most, 2)), 1e-30f);
    const f32 unit = most / MOST, each = MOST / most;
#pragma unroll
    for (int i = 0; i < 2 * STEPS; ++i) {
      u32 first = 0, second = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        // Rounded by the addition of a number whose unit in the last place is 1.
        const i32 all = (i32)(f32ToBits(fmaf(x[i / 2][i % 2][e], each, 12582912.0f)) - 0x4b400000u), upper = (all + 128) >> 8;
        first |= (u32)(upper & 255) << 8 * e;
        second |= (u32)(all & 255) << 8 * e;
      }
      high[i / 2][i % 2] = first;
      low[i / 2][i % 2] = second;
    }
    return most <= 3.4028235e38f ? unit * Codes::KEY_UNIT : bitsToF32(0x7fc00000u);
  }
};

/// Where sixteen keys and values lie, and the scales of each.
struct CodedSixteen { const u8 *k, *v; const f32 *scaleK, *scaleV; };

#endif // LATHE_DEVICE_ATTENTION_CODES
