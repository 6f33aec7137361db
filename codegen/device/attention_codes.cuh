//===- attention_codes.cuh - keys and values of 8 and 4 bits for attention_split -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: mma, widen
//
// Sixteen keys or values whose elements are codes with one f32 scale a row, as lathe.kv_append stores them: of 8 bits
// signed bytes; of 4 bits the codes d and d + D / 2, both + 8, in one byte. They lie in shared memory as in global
// memory, and become the left operands of attention_split.cuh's two products in registers, exactly: codes are small
// integers. Which element of a head a place of an operand has is free, as long as queries and results know it, so that
// a lane reads words of neighbours, and no instruction transposes. Scales go to scores and weights, not to elements.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_CODES
#define LATHE_DEVICE_ATTENTION_CODES

template <int BITS, int D> struct CodeRows {
  static constexpr int ROW = D * BITS / 8, BYTES = 16 * ROW;
  static_assert((BITS == 8 || BITS == 4) && ROW % 32 == 0, "whole words for all lanes");
  static constexpr int most(int words) { return words % 4 == 0 ? 4 : words % 2 == 0 ? 2 : 1; }
  // Words of a lane in a row, and of them what one load has: four lanes share a key, eight a value.
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
  /// The element at column 8 half + 2 t + e of step i of sixteen, in keys and queries.
  static LATHE_METHOD int keyElement(int i, int half, int e, int t) {
    return BITS == 8 ? keyByte(i, t) + 2 * e + half : keyByte(i / 2, t) + 2 * e + half + i % 2 * (D / 2);
  }
  /// The element at row 8 half + g of the tile number m of sixteen, in values and results.
  static LATHE_METHOD int valueElement(int m, int half, int g) {
    return BITS == 8 ? valueByte(m / 2, g) + m % 2 * 2 + half : valueByte(m / 4, g) + m % 4 + half * (D / 2);
  }

  /// Copies rows that lie `stride` bytes apart; behind the first `inside` they are 0.
  template <bool VALUES> static LATHE_METHOD void copy(SharedAddr to, const u8 *from, i64 stride, int inside) {
    constexpr int PIECES = ROW / 16;
#pragma unroll
    for (int i = 0; i < PIECES / 2; ++i) {
      const int p = i * 32 + (int)threadIdx.x % 32, row = p / PIECES, byte = p % PIECES * 16;
      cpAsync16(to + offset<VALUES>(row, byte), from + (row < inside ? row * stride + byte : 0), row < inside ? 16 : 0);
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
  /// Codes of 4 bits of a word as numbers: 0 and 4, 1 and 5, 2 and 6, 3 and 7.
  template <class T> static LATHE_METHOD void widen(u32 (&a)[4], u32 word) {
    const u32 much = twice<T>((IsSame<T, bf16>::value ? 128.0f : 1024.0f) + 8.0f);
    widenFragment<T, false>(a, word, 0x000f000fu, much, much);
  }

  /// The left operands of a product of keys, one for each sixteen of D: `use(i, a)`.
  template <class T, class Use> static LATHE_METHOD void keys(const u8 *rows, int g, int t, Use use) {
    u32 low[KEY_WORDS], high[KEY_WORDS]; // of rows g and g + 8
    words<false, KEY_WORDS, KEY_LOAD>(low, rows, g, t);
    words<false, KEY_WORDS, KEY_LOAD>(high, rows, g + 8, t);
#pragma unroll
    for (int w = 0; w < KEY_WORDS; ++w) {
      if constexpr (BITS == 8) {
        u32 x[4];
        widenFragment<T, true>(x, low[w], high[w]);
        const u32 a[4] = {x[0], x[2], x[1], x[3]};
        use(w, a);
      } else {
        u32 x[4], y[4];
        widen<T>(x, low[w]);
        widen<T>(y, high[w]);
        const u32 even[4] = {x[0], y[0], x[2], y[2]}, odd[4] = {x[1], y[1], x[3], y[3]};
        use(2 * w, even);
        use(2 * w + 1, odd);
      }
    }
  }
  /// The left operands of a product of transposed values, one for each sixteen of D: `use(m, a)`.
  template <class T, class Use> static LATHE_METHOD void values(const u8 *rows, int g, int t, Use use) {
    u32 w[4][VALUE_WORDS];
#pragma unroll
    for (int i = 0; i < 4; ++i) words<true, VALUE_WORDS, VALUE_LOAD>(w[i], rows, 2 * t + i % 2 + i / 2 * 8, g);
#pragma unroll
    for (int v = 0; v < VALUE_WORDS; ++v)
#pragma unroll
      for (int half = 0; half < 2; ++half) { // of the words' bytes, two of neighbouring values each
        const u32 bytes = half ? 0x7632 : 0x5410;
        const u32 first = __byte_perm(w[0][v], w[1][v], bytes), second = __byte_perm(w[2][v], w[3][v], bytes);
        if constexpr (BITS == 8) {
          u32 a[4];
          widenFragment<T, true>(a, first, second);
          use(2 * v + half, a);
        } else {
          u32 x[4], y[4];
          widen<T>(x, first);
          widen<T>(y, second);
          const u32 low[4] = {x[0], x[1], y[0], y[1]}, high[4] = {x[2], x[3], y[2], y[3]};
          use(4 * v + 2 * half, low);
          use(4 * v + 2 * half + 1, high);
        }
      }
  }
};

/// Where sixteen keys and values lie, and the scales of each.
struct CodedSixteen { const u8 *k, *v; const f32 *scaleK, *scaleV; };

#endif // LATHE_DEVICE_ATTENTION_CODES
