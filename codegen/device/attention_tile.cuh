//===- attention_tile.cuh - attention on tensor cores: the shared parts -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce
//
// What the skeletons of attention with 16-bit operands have in common. A warp holds 16 queries;
// tiles of scores and of results lie as the tensor cores leave them: lane l has rows l / 4 and
// l / 4 + 8 and of each 8 columns those at 2 (l % 4), as v[4 j + 2 (row half) + (column & 1)].
// Holes:
//
//   typedef ... Element;               f16 or bf16, of queries, keys and values
//   static constexpr int kHeadQK, kHeadV;
//   static constexpr bool kRowsQ, kRowsK, kRowsV;   rows lie in memory, in whole pieces of 16 bytes:
//   const Element *rowQ(i64 b, i64 h, i64 q);       ... their start; h is always the query head
//   Element elementQ(i64 b, i64 h, i64 q, i64 d);   else: any expression; the same for K and V
//   static constexpr bool kPlainScore;  scores are kScale times the product, kScale > 0
//   static constexpr f32 kScale;
//   static constexpr bool kMaskOnly;    they are so where a boolean mask lets them through:
//   bool seen(i64 b, i64 h, i64 q, i64 k);
//   f32 score(i64 b, i64 h, i64 q, i64 k, f32 dot); else: scale, mask, bias, soft cap; -inf: not seen
//   static constexpr bool kPairs;       also for two keys, the first of them even, and none beyond an even end:
//   Vec<bool, 2> seenPair(i64 b, i64 h, i64 q, i64 pair);
//   Vec<f32, 2> scorePair(i64 b, i64 h, i64 q, i64 pair, Vec<f32, 2> dots);
//   static constexpr bool kKeyMask;     the mask is the same for all queries, and nothing but a scale > 0 comes to
//                                      the scores beside it; -inf: not seen
//                                      (not with a log-sum-exp)
//   f32 keyMask(i64 b, i64 h, i64 k);
//   static constexpr bool kWholeTiles;  all tiles of keys are full
//   i64 keyEnd(i64 b, i64 h, i64 q);    keys from here on are not seen; grows with q
//   i64 keyBegin(i64 b, i64 h, i64 q);  keys before are not seen; grows with q
//   static constexpr bool kCausal;      it does grow
//   static constexpr bool kZeroMasked;  a query that sees no key gives zeros, else NaN
//   static constexpr bool kSink;        a score without a key takes part in the sum of each row:
//   f32 sink(i64 b, i64 h, i64 q);
//   static constexpr bool kLogSumExp;   the logarithm of a row's sum of exponentials is a result too:
//   void storeLogSumExp(i64 b, i64 h, i64 q, f32 value);
//   static constexpr int kLanes;        8, or 1 when kHeadV is no multiple of 8
//   void store(i64 b, i64 h, i64 q, i64 d, Vec<Element, kLanes>);   rounded, as the graph has them
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_ATTENTION_TILE
#define LATHE_DEVICE_ATTENTION_TILE

// Written out, because masks use hundreds of these, and NVRTC would spend a fifth of its time on loops.
#define LATHE_PAIR(op)                                                                           \
  template <class T> LATHE_DEV Vec<T, 2> operator op(const Vec<T, 2> &a, const Vec<T, 2> &b) {   \
    return {{(T)(a.v[0] op b.v[0]), (T)(a.v[1] op b.v[1])}};                                     \
  }
LATHE_PAIR(+)
LATHE_PAIR(-)
LATHE_PAIR(*)
#undef LATHE_PAIR
template <class To, class From> LATHE_DEV Vec<To, 2> convert(const Vec<From, 2> &x) {
  if constexpr (IsHalf<To>::value || IsHalf<From>::value) return convert<To, From, 2>(x); // by words
  else return {{convert<To>(x.v[0]), convert<To>(x.v[1])}};
}

constexpr f32 kLog2e = 1.4426950408889634f;
constexpr int roundedUp(int n, int to) { return (n + to - 1) / to * to; }
constexpr int powerFrom(int n) { return n <= 16 ? 16 : 2 * powerFrom((n + 1) / 2); }

/// Whether products are kept unscaled, the scale being applied in the exponential. Other scores are kept
/// scaled: a mask may add the lowest bfloat16 or float, and a finite score must stay finite then, because a
/// query that sees nothing else weighs all keys alike, as in the graph.
template <class H> struct KeepsProducts { static constexpr bool value = (H::kPlainScore || H::kMaskOnly) && !H::kKeyMask; };
/// With a mask for all queries scores are kept as exponents of two: what a product takes to become one is one
/// instruction, and the mask has been made one before.
template <class H> struct KeepsExponents { static constexpr bool value = H::kKeyMask; };
/// What multiplies a kept score to make it an exponent of two.
template <class H> LATHE_DEV f32 scoreFactor() {
  if constexpr (KeepsProducts<H>::value) return H::kScale * kLog2e;
  else return KeepsExponents<H>::value ? 1.0f : kLog2e;
}
/// The sink of a row, as scores are kept.
template <class H> LATHE_DEV f32 keptSink(const H &h, i64 b, i64 head, i64 q) {
  const f32 score = h.sink(b, head, q);
  return KeepsProducts<H>::value ? score / H::kScale : KeepsExponents<H>::value ? score * kLog2e : score;
}
/// What a mask adds, as an exponent of two. A finite number stays finite, so that a query that sees nothing
/// else weighs all keys alike.
LATHE_DEV f32 keyExponent(f32 added) {
  const f32 most = bitsToF32(0x7f7fffffu), exponent = added * kLog2e;
  return fabsf(added) <= most && fabsf(exponent) > most ? (added < 0.0f ? -most : most) : exponent;
}
LATHE_DEV f32 quadMax(f32 v) { v = fmaxf(v, shuffleXor(v, 1)); return fmaxf(v, shuffleXor(v, 2)); }
LATHE_DEV f32 quadSum(f32 v) { v += shuffleXor(v, 1); return v + shuffleXor(v, 2); }

template <class T> LATHE_DEV u32 packPair(f32 low, f32 high) {
  if constexpr (IsSame<T, bf16>::value) return bf16Pair(low, high);
  else return f16Pair(low, high);
}

/// tanh within 3e-7, whatever its value: for soft caps.
LATHE_DEV f32 scoreTanh(f32 x) {
  return fmaf(-2.0f, fastReciprocal(1.0f + fastExp2(x * (2.0f * kLog2e))), 1.0f);
}

/// A kept score of a product; -inf where the mask does not let it through.
template <class H> LATHE_DEV f32 oneScore(const H &h, i64 b, i64 head, i64 q, i64 k, f32 dot) {
  if constexpr (H::kPlainScore) return dot;
  else if constexpr (H::kMaskOnly) return h.seen(b, head, q, k) ? dot : bitsToF32(0xff800000u);
  else return h.score(b, head, q, k, dot);
}

/// The place of a lane's rows.
struct AttentionPlace { i32 b, head, q, queries; };

/// Turns products with the keys from k0 on into kept scores; -inf where a key is not seen. `whole`:
/// all of the tile's keys are before the ends of all of its queries; `open`: and a boolean mask lets
/// all of them through. ALIGNED: k0 is a multiple of the tile's keys.
template <bool ALIGNED = false, class H, int N>
LATHE_DEV void keepScores(const H &h, const AttentionPlace &at, f32 (&s)[N], i32 k0, i32 keys, bool whole, bool open) {
  if (KeepsProducts<H>::value && whole && (H::kPlainScore || open)) return;
  const f32 hidden = bitsToF32(0xff800000u);
  const int column = threadIdx.x % 4 * 2;
  const i32 q0 = at.q < at.queries ? at.q : at.queries - 1, q1 = at.q + 8 < at.queries ? at.q + 8 : at.queries - 1;
  // Keys of the tile that a row sees; without a test for each where that is all of them, so that
  // what scores read is under way together.
  int last0 = 2 * N, last1 = 2 * N;
  auto score = [&](int i, bool test) {
    const int k = i / 4 * 8 + column + (i & 1), last = (i & 2) ? last1 : last0;
    const i32 q = (i & 2) ? q1 : q0;
    // By bits the compiler sees which keys of a tile are in the same block of a mask's table, and looks that up once.
    const i32 key = ALIGNED && (2 * N & (2 * N - 1)) == 0 ? k0 | k : k0 + k;
    // What keys behind the last would read may not be there.
    auto place = [&](i32 most) { return !H::kWholeTiles && test && key > most ? most : key; };
    if constexpr (H::kPlainScore) {
      s[i] = k < last ? s[i] : hidden;
    } else if constexpr (H::kPairs && H::kMaskOnly) {
      if (i & 1) return;
      const Vec<bool, 2> two = h.seenPair(at.b, at.head, q, place(keys - 2) >> 1);
      s[i] = two.v[0] && (!test || k < last) ? s[i] : hidden;
      s[i + 1] = two.v[1] && (!test || k + 1 < last) ? s[i + 1] : hidden;
    } else if constexpr (H::kMaskOnly) {
      s[i] = h.seen(at.b, at.head, q, place(keys - 1)) && (!test || k < last) ? s[i] : hidden;
    } else if constexpr (H::kPairs) {
      if (i & 1) return;
      const Vec<f32, 2> two = h.scorePair(at.b, at.head, q, place(keys - 2) >> 1, Vec<f32, 2>{{s[i], s[i + 1]}});
      s[i] = !test || k < last ? two.v[0] : hidden;
      s[i + 1] = !test || k + 1 < last ? two.v[1] : hidden;
    } else {
      const f32 kept = h.score(at.b, at.head, q, place(keys - 1), s[i]);
      s[i] = !test || k < last ? kept : hidden;
    }
  };
  if (!KeepsProducts<H>::value && whole) {
#pragma unroll
    for (int i = 0; i < N; ++i) score(i, false);
    return;
  }
  last0 = (i32)minIndex(keys, h.keyEnd(at.b, at.head, q0)) - k0;
  last1 = H::kCausal ? (i32)minIndex(keys, h.keyEnd(at.b, at.head, q1)) - k0 : last0;
#pragma unroll
  for (int i = 0; i < N; ++i) score(i, true);
}

/// The running maximum (as kept) and sum of two rows; lanes of a row hold parts of the sum.
struct SoftmaxState { f32 most[2], total[2]; };
template <class H> LATHE_DEV SoftmaxState softmaxStart(const H &h, const AttentionPlace &at) {
  const f32 hidden = bitsToF32(0xff800000u);
  SoftmaxState state{{hidden, hidden}, {0.0f, 0.0f}};
  if constexpr (H::kSink)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const i32 q = at.q + 8 * r;
      state.most[r] = keptSink(h, at.b, at.head, q < at.queries ? q : at.queries - 1);
      state.total[r] = threadIdx.x % 4 == 0 ? 1.0f : 0.0f;
    }
  return state;
}
/// 2^x for x <= 0 in ordinary instructions, within 8e-5 of its value: the special functions are
/// the slowest part of a softmax, and weights are rounded to 16 bits. Below 2^-126 it is that.
LATHE_DEV f32 polynomialExp2(f32 x) {
  x = fmaxf(x, -126.0f);
  const f32 shifted = x + 12582912.0f, f = x - (shifted - 12582912.0f); // |f| <= 0.5
  f32 p = fmaf(f, 0.05517167f, 0.24261112f);
  p = fmaf(f, p, 0.69326099f);
  p = fmaf(f, p, 0.99992807f);
  return bitsToF32(f32ToBits(p) + (f32ToBits(shifted) << 23));
}

/// Scores become weights; what was summed before is to be multiplied by `keep`. Of each 4 SHARE
/// weights four are made by polynomialExp2; none for 0. SAFE: scores may be as large as numbers
/// get, and differ before they are scaled. `between` is called when 4 `first` of the weights have been
/// made, or behind all of them if that is less than 0.
template <int SHARE, bool SAFE, int N, class Between>
LATHE_DEV void softmaxStep(SoftmaxState &state, f32 (&s)[N], f32 factor, f32 (&keep)[2], int first, Between between) {
  const f32 hidden = bitsToF32(0xff800000u);
  f32 base[2] = {0.0f, 0.0f}, sum[2], most[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) most[e] = s[e];
#pragma unroll
  for (int i = 4; i < N; i += 4)
#pragma unroll
    for (int e = 0; e < 4; ++e) most[e] = fmaxf(most[e], s[i + e]);
  auto exponent = [&](f32 score, int r) {
    if constexpr (SAFE) return (score - base[r]) * factor;
    else return fmaf(score, factor, -base[r]);
  };
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const f32 largest = quadMax(fmaxf(state.most[r], fmaxf(most[2 * r], most[2 * r + 1])));
    base[r] = largest == hidden ? 0.0f : SAFE ? largest : largest * factor; // nothing seen so far: all weights are 0
    keep[r] = fastExp2(exponent(state.most[r], r));
    state.most[r] = largest;
    sum[r] = 0.0f;
  }
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    if (i == first * 4) between();
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const f32 x = exponent(s[i + e], e >> 1);
      s[i + e] = SHARE > 0 && i / 4 % (SHARE > 0 ? SHARE : 1) == SHARE - 1 ? polynomialExp2(x) : fastExp2(x);
    }
    sum[0] += s[i] + s[i + 1];
    sum[1] += s[i + 2] + s[i + 3];
  }
  if (first * 4 >= N || first < 0) between();
  state.total[0] = fmaf(state.total[0], keep[0], sum[0]);
  state.total[1] = fmaf(state.total[1], keep[1], sum[1]);
}
template <int SHARE, bool SAFE, int N>
LATHE_DEV void softmaxStep(SoftmaxState &state, f32 (&s)[N], f32 factor, f32 (&keep)[2]) {
  softmaxStep<SHARE, SAFE>(state, s, factor, keep, -1, [] {});
}
/// 1 / sum of each row.
template <class H> LATHE_DEV void softmaxEnd(SoftmaxState &state, f32 (&inverse)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state.total[r] = quadSum(state.total[r]);
    const bool none = state.most[r] == bitsToF32(0xff800000u); // 0 / 0 where that is asked for
    inverse[r] = none ? (H::kZeroMasked ? 0.0f : bitsToF32(0x7fc00000u)) : fastReciprocal(state.total[r]);
  }
}
/// The logarithm of a row's sum of exponentials, of its largest kept score and what the others sum up
/// to beside it; -inf where nothing is seen.
template <class H> LATHE_DEV f32 logSumExp(f32 most, f32 total) {
  return (KeepsProducts<H>::value ? most * H::kScale : most) + logf(total);
}
/// Stores those of a warp's rows, behind softmaxEnd.
template <class H> LATHE_DEV void storeLogSums(const H &h, const AttentionPlace &at, const SoftmaxState &state) {
  if constexpr (H::kLogSumExp)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (threadIdx.x % 4 == 0 && at.q + 8 * r < at.queries)
        h.storeLogSumExp(at.b, at.head, at.q + 8 * r, logSumExp<H>(state.most[r], state.total[r]));
}
/// Joins WIDTH results of COUNT parts: `largest(p)` and `total(p)` of the column, `result(p, e)`.
template <int COUNT, int WIDTH, class Largest, class Total, class Part>
LATHE_DEV void joinParts(f32 (&sum)[WIDTH], f32 &most, f32 &all, f32 factor, Largest largest, Total total, Part result) {
  const f32 hidden = bitsToF32(0xff800000u);
  f32 of[COUNT];
  most = hidden;
#pragma unroll
  for (int p = 0; p < COUNT; ++p) most = fmaxf(most, of[p] = largest(p));
  const f32 base = most == hidden ? 0.0f : most;
  all = 0.0f;
#pragma unroll
  for (int e = 0; e < WIDTH; ++e) sum[e] = 0.0f;
#pragma unroll
  for (int p = 0; p < COUNT; ++p) {
    const f32 keep = fastExp2((of[p] - base) * factor);
    all = fmaf(keep, total(p), all);
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) sum[e] = fmaf(keep, result(p, e), sum[e]);
  }
}
/// Weights as the left operand of the next product: 16 keys are 8 values of each lane.
template <class T, int N> LATHE_DEV void packWeights(const f32 (&s)[N], u32 (&p)[N / 8][4]) {
#pragma unroll
  for (int k = 0; k < N / 8; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) p[k][i] = packPair<T>(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
}

template <int STEP> LATHE_DEV void exchangeHalf(u32 (&v)[4]) {
  const bool upper = threadIdx.x & STEP;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (!(i & STEP)) {
      const u32 low = v[i], high = v[i + STEP], got = shuffleXor(upper ? low : high, STEP);
      v[i] = upper ? got : low;
      v[i + STEP] = upper ? high : got;
    }
}
/// Stores a warp's 16 rows of results, multiplied by `inverse`. Four lanes hold two columns each of
/// four tiles of eight; exchanged, lane t has all of tile t.
template <class H, int N>
LATHE_DEV void storeResults(const H &h, const AttentionPlace &at, const f32 (&o)[N], const f32 (&inverse)[2]) {
  typedef typename H::Element T;
  constexpr int TILES = N / 4;
#pragma unroll
  for (int first = 0; first < TILES; first += 4)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      u32 v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int tile = first + i < TILES ? first + i : 0;
        v[i] = packPair<T>(o[4 * tile + 2 * r] * inverse[r], o[4 * tile + 2 * r + 1] * inverse[r]);
      }
      exchangeHalf<1>(v);
      exchangeHalf<2>(v);
      const i32 q = at.q + 8 * r;
      const int d = (first + (int)threadIdx.x % 4) * 8;
      Vec<T, 8> row;
      memcpy(&row, v, sizeof row);
      if (q >= at.queries) continue;
      if constexpr (H::kLanes == 8) {
        if (d < H::kHeadV) h.store(at.b, at.head, q, d, row);
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (d + e < H::kHeadV) h.store(at.b, at.head, q, d + e, Vec<T, 1>{{row.v[e]}});
      }
    }
}

#endif // LATHE_DEVICE_ATTENTION_TILE
