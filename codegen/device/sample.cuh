//===- sample.cuh - tokens drawn from logits --------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce
//
// The next token of each of several draws, the same bits as runtime/serve/Sampler.cpp, whose head says what is
// applied in which order: probabilities are integers, whose sums have no order. And the likeliest tokens of a row of
// logits with what their probabilities follow from.
//
// The blocks of a cluster take a row, a part each, and keep the keys of their part in shared memory, so that logits
// are read once: unsigned numbers in the order of logits, 0 for NaN. What top-k and top-p keep ends at some logit
// (the pivot). It is found by counting, or by adding probabilities, in bins: first over equal steps of logits, then
// over what keys the bin that has the pivot really holds, until that is one. Of those equal to it the first ones are
// kept. No step depends on how many candidates there are.
//
// `Peers` says who shares a row: OneBlock here, or a cluster (sample_cluster.cuh).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_SAMPLE
#define LATHE_DEVICE_SAMPLE

/// One draw, as include/lathe/engine/SampleAbi.h has it. Lists are places in the words that come with the draws.
struct SampleDraw {
  u64 row;                 // of the logits
  u64 seed, index, sample; // what Philox gets
  f64 scale;               // log2(e) / temperature; 0: the greatest is the token
  f64 topP;
  u64 topK;        // 0: all
  u64 leastWeight; // in units of 2^-40
  f32 repetition, presence, frequency;
  u32 bias, biasCount;     // {token, bits of what is added}, in the order of tokens
  u32 counts, countsCount; // {token, times in the answer}, in the order of tokens, each once
  u32 out, outCount;       // tokens that may not come
  u32 mask, maskWords, masked; // bits of the tokens that may; masked: whether there is one
};
/// A row whose likeliest tokens are wanted.
struct RankDraw {
  u32 row;
  u32 token, draw; // the token to be ranked: `token`, or what draw number `draw` - 1 gave
  u32 top;         // how many of the likeliest, at most 20
};
struct RankedToken { u32 token; f32 logit; };
struct RankResult {
  u64 sum;        // of exp(logit - greatest), in units of 2^-40
  f32 greatest;
  f32 logit;      // of the token
  u32 rank;       // 1: the likeliest
  u32 topCount;
  RankedToken top[20];
};

/// A block that has a row for itself.
struct OneBlock {
  static constexpr int BLOCKS = 1;
  static LATHE_METHOD u32 rank() { return 0; }
  static LATHE_METHOD void sync() { __syncthreads(); }
  template <class T> static LATHE_METHOD T load(const T *of, u32) { return *of; }
};

constexpr int kSampleFixedBytes = 16384;     // of dynamic shared memory, ahead of the keys
constexpr int kPowers = 128;                 // 2^(i / 128)
constexpr u64 kSampleUnit = 1ull << 40;      // weight of the likeliest token
constexpr u32 kLowestNumber = 0x00800000u;   // the least key above that of -infinity

LATHE_DEV u32 keyOf(f32 logit) {
  if (logit != logit) return 0;
  const u32 bits = f32ToBits(logit + 0.0f); // -0 is 0
  return bits >> 31 ? ~bits : bits | 1u << 31;
}
LATHE_DEV f32 logitOf(u32 key) { return bitsToF32(key >> 31 ? key & 0x7fffffffu : ~key); }

/// 2^y in units of 2^-40 for y <= 0, rounded down: fixedExp2 of Sampler.cpp, operation by operation.
LATHE_DEV u64 fixedExp2(f64 y, const f64 *powers) {
  const bool none = !(y > -41.0); // computed all the same: lanes wait for each other anyway
  y = none ? -41.0 : y;
  const f64 steps = __dmul_rn(y, 128.0), shifted = __dadd_rn(steps, 6755399441055744.0);
  const i32 n = (i32)(u32)bitCast<u64>(shifted);
  const f64 t = __dmul_rn(__dadd_rn(steps, -__dadd_rn(shifted, -6755399441055744.0)), 0.69314718055994530942 / 128);
  f64 sum = __dadd_rn(__dmul_rn(1.0 / 24, t), 1.0 / 6);
  sum = __dadd_rn(__dmul_rn(sum, t), 0.5);
  sum = __dadd_rn(__dmul_rn(sum, t), 1.0);
  sum = __dadd_rn(__dmul_rn(sum, t), 1.0);
  const u64 scaled = (u64)__dmul_rn(__dmul_rn(sum, powers[n & 127]), 4503599627370496.0);
  const u64 weight = scaled >> (12 - (n >> 7));
  return none ? 0 : weight < kSampleUnit ? weight : kSampleUnit;
}

/// Philox4x32-10, the first two words.
LATHE_DEV u64 philox(u64 low, u64 high, u64 key) {
  u32 c[4] = {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)}, k[2] = {(u32)key, (u32)(key >> 32)};
  for (int round = 0; round < 10; ++round) {
    const u64 a = (u64)0xD2511F53u * c[0], b = (u64)0xCD9E8D57u * c[2];
    const u32 second = (u32)b, fourth = (u32)a;
    c[0] = (u32)(b >> 32) ^ c[1] ^ k[0];
    c[2] = (u32)(a >> 32) ^ c[3] ^ k[1];
    c[1] = second;
    c[3] = fourth;
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return (u64)c[1] << 32 | c[0];
}

/// The greatest elements of a row: all with a key above `key`, and of those equal to it the ones up to place `last`.
struct Cut {
  u32 key, last;
  LATHE_METHOD bool keeps(u32 k, u32 place) const { return k > key || (k == key && place <= last); }
};

template <class Peers, int THREADS> struct SampledRow {
  static constexpr int BINS = THREADS < 512 ? 1024 : THREADS, WARPS = THREADS / 32, EACH = BINS / THREADS, FEW = THREADS < 256 ? THREADS : 256;
  static_assert(THREADS % 32 == 0 && BINS % THREADS == 0, "whole bins a thread");

  /// What the other blocks read of one.
  struct Part { u64 sum; u32 low, high, count, place; };
  struct Shared {
    f64 powers[kPowers];
    u32 low[BINS], high[BINS]; // sums of 64 bits
    Part parts[2];
    u64 warpSums[WARPS];
    u64 few[FEW], all[FEW], sorted[FEW]; // keys and places that a block found, those of all blocks, numbers of these
    u64 above;
    u32 found, bin, place;
  };

  static_assert(sizeof(Shared) <= kSampleFixedBytes, "what stands ahead of the keys");

  Shared &s;
  u32 *keys;          // of this block's part
  u32 first, length;  // of the part: places first .. first + length - 1 of the row
  u32 vocabulary;
  f64 scale;
  u32 greatestKey = 0;
  f32 greatest = 0;
  f32 binsPerLogit = 0;
  u64 collectedTarget = 0; // what collect() has found the bin of s.bin for, or 0
  int turn = 0;

  LATHE_METHOD SampledRow(Shared &s, u32 *memory, u32 *spare, i64 vocabulary, i64 inShared, f64 scale)
      : s(s), vocabulary((u32)vocabulary), scale(scale) {
    const u32 part = partOf(vocabulary);
    first = Peers::rank() * part;
    length = first >= (u32)vocabulary ? 0 : (u32)vocabulary - first < part ? (u32)vocabulary - first : part;
    keys = inShared ? memory : spare + first;
  }
  /// Whole vectors of any type of logits.
  static LATHE_METHOD u32 partOf(i64 vocabulary) {
    return (u32)((vocabulary + Peers::BLOCKS * 32 - 1) / (Peers::BLOCKS * 32) * 32);
  }

  // ---- What the blocks tell each other -----------------------------------------------

  /// Calls read(part of rank r) for all ranks. Two parts take turns: who writes one again has met all who read it.
  template <class Read> LATHE_METHOD void exchange(const Part &mine, Read read) {
    if (threadIdx.x == 0) s.parts[turn] = mine;
    Peers::sync();
    for (int r = 0; r < Peers::BLOCKS; ++r) read(Peers::load(&s.parts[turn], r), r);
    turn ^= 1;
  }
  LATHE_METHOD u64 addOverRow(u64 mine) {
    mine = blockReduce<SumOp, THREADS>(mine);
    u64 all = 0;
    exchange(Part{mine, 0, 0, 0, 0}, [&](const Part &p, int) { all += p.sum; });
    return all;
  }

  // ---- Logits -------------------------------------------------------------------------

  /// Calls use(place in the part, logit) for all of it.
  template <class T, class Use> LATHE_METHOD void forLogits(const T *row, Use use) {
    constexpr int L = 16 / (int)sizeof(T);
    const T *from = row + first;
    if ((u64)from % 16 == 0) {
      const u32 vectors = length / L;
#pragma unroll 4
      for (u32 v = threadIdx.x; v < vectors; v += THREADS) {
        const Bits16 bits = loadGlobal16(from + (u64)v * L);
        Vec<T, L> x;
        memcpy(&x, &bits, 16);
#pragma unroll
        for (int l = 0; l < L; ++l) use(v * L + l, toF32(x[l]));
      }
      for (u32 i = vectors * L + threadIdx.x; i < length; i += THREADS) use(i, toF32(from[i]));
    } else {
#pragma unroll 8
      for (u32 i = threadIdx.x; i < length; i += THREADS) use(i, toF32(from[i]));
    }
  }

  /// Keys of the logits as they are, kept if `keep`; the place of the greatest.
  template <class T> LATHE_METHOD u32 load(const T *row, bool keep = true) {
    constexpr int L = 16 / (int)sizeof(T);
    const T *from = row + first;
    u64 best = 0;
    u32 done = 0;
    // Four keys at a time, the lanes in such an order that eight of them write to all banks of shared memory.
    if ((u64)from % 16 == 0 && (u64)keys % 16 == 0) {
      const u32 vectors = length / L, odd = threadIdx.x / (32 / L) % (L / 4);
#pragma unroll 4
      for (u32 v = threadIdx.x; v < vectors; v += THREADS) {
        const Bits16 bits = loadGlobal16(from + (u64)v * L);
        Vec<T, L> x;
        memcpy(&x, &bits, 16);
        Vec<u32, 4> four[L / 4];
#pragma unroll
        for (int l = 0; l < L; ++l) {
          four[l / 4].v[l % 4] = keyOf(toF32(x[l]));
          best = better(best, four[l / 4].v[l % 4], v * L + l);
        }
        if (!keep) continue;
#pragma unroll
        for (u32 i = 0; i < L / 4; ++i) {
          const u32 part = i ^ odd;
          Vec<u32, 4> one = four[0];
#pragma unroll
          for (u32 p = 1; p < L / 4; ++p)
            if (part == p) one = four[p];
          *(Vec<u32, 4> *)(keys + v * L + 4 * part) = one;
        }
      }
      done = vectors * L;
    }
#pragma unroll 8
    for (u32 i = done + threadIdx.x; i < length; i += THREADS) {
      const u32 key = keyOf(toF32(from[i]));
      if (keep) keys[i] = key;
      best = better(best, key, i);
    }
    return settle(best);
  }
  /// Keys of the logits after bias, penalties and what may not come; the place of the greatest.
  template <class T> LATHE_METHOD u32 load(const T *row, const SampleDraw &d, const u32 *words) {
    if (!d.biasCount && !d.countsCount && !d.outCount && !d.masked) return load(row, d.scale != 0 && d.topK != 1);
    forLogits(row, [&](u32 i, f32 logit) { keys[i] = f32ToBits(logit); });
    __syncthreads();
    const u32 *bias = words + d.bias, *counts = words + d.counts, *out = words + d.out, *mask = words + d.mask;
    for (u32 n = threadIdx.x; n < d.biasCount; n += THREADS) {
      const u32 token = bias[2 * n], i = token - first;
      if (i >= length || (n && bias[2 * n - 2] == token)) continue;
      f32 logit = bitsToF32(keys[i]);
      for (u32 m = n; m < d.biasCount && bias[2 * m] == token; ++m) logit += bitsToF32(bias[2 * m + 1]);
      keys[i] = f32ToBits(logit);
    }
    __syncthreads();
    for (u32 n = threadIdx.x; n < d.countsCount; n += THREADS) {
      const u32 i = counts[2 * n] - first, times = counts[2 * n + 1];
      if (i >= length) continue;
      f32 logit = bitsToF32(keys[i]);
      logit = logit > 0 ? logit / d.repetition : __fmul_rn(logit, d.repetition);
      logit = __fadd_rn(logit, -__fadd_rn(__fmul_rn(d.frequency, (f32)times), times ? d.presence : 0.0f));
      keys[i] = f32ToBits(logit);
    }
    __syncthreads();
    for (u32 n = threadIdx.x; n < d.outCount; n += THREADS)
      if (out[n] - first < length) keys[out[n] - first] = 0xff800000u;
    __syncthreads();
    u64 best = 0;
    for (u32 i = threadIdx.x; i < length; i += THREADS) {
      const u32 token = first + i;
      const bool may = !d.masked || (token / 32 < d.maskWords && mask[token / 32] >> token % 32 & 1);
      const u32 key = may ? keyOf(bitsToF32(keys[i])) : kLowestNumber - 1;
      keys[i] = key;
      best = better(best, key, i);
    }
    return settle(best);
  }
  LATHE_METHOD u64 better(u64 best, u32 key, u32 i) {
    const u64 mine = (u64)key << 32 | (u32)~(first + i);
    return mine > best ? mine : best;
  }
  LATHE_METHOD u32 settle(u64 best) {
    best = blockReduce<MaxOp, THREADS>(best);
    u64 all = 0;
    exchange(Part{best, 0, 0, 0, 0}, [&](const Part &p, int) { all = p.sum > all ? p.sum : all; });
    greatestKey = (u32)(all >> 32);
    greatest = logitOf(greatestKey);
    const f64 bins = scale * (BINS / 41.0); // below 2^-41 nothing weighs
    binsPerLogit = bins < 1e30 ? (f32)bins : 1e30f;
    return ~(u32)all;
  }

  /// Without branches: lanes wait for each other anyway, and the weights of several keys are computed at a time.
  LATHE_METHOD u64 weightOf(u32 key) const {
    const u64 weight = fixedExp2(__dmul_rn(__dadd_rn((f64)logitOf(key), -(f64)greatest), scale), s.powers);
    return key == greatestKey ? kSampleUnit : weight;
  }

  // ---- Pivots -------------------------------------------------------------------------

  /// Falls as keys rise, in equal steps of logits.
  LATHE_METHOD u32 binOf(u32 key) const {
    if (key == greatestKey) return 0;
    const f32 bin = (greatest - logitOf(key)) * binsPerLogit;
    return bin < (f32)(BINS - 1) ? (u32)bin : BINS - 1; // NaN too
  }
  /// Adds to a sum of 64 bits in two words: what overflows the low one is carried by whoever causes it.
  template <bool WEIGHED> LATHE_METHOD void addTo(u32 bin, u64 measure) {
    const u32 low = (u32)measure, before = atomicAdd(&s.low[bin], low);
    if constexpr (WEIGHED) {
      const u32 high = (u32)(measure >> 32) + (before + low < before);
      if (high) atomicAdd(&s.high[bin], high);
    }
  }
  LATHE_METHOD void clearBins() {
    for (int b = threadIdx.x; b < BINS; b += THREADS) s.low[b] = s.high[b] = 0;
    __syncthreads();
  }
  /// The bin in which sums, from the first bin on, come to targetOf(all of them); s.above: the sum of those before it. All
  /// threads of all blocks come to the same. False where the target is beyond the sum.
  template <bool WEIGHED, class Target> LATHE_METHOD bool findBin(Target targetOf) {
    Peers::sync();
    u64 mine[EACH], sum = 0;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const u32 bin = threadIdx.x * EACH + e;
      mine[e] = 0;
#pragma unroll
      for (int r = 0; r < Peers::BLOCKS; ++r) {
        mine[e] += Peers::load(&s.low[bin], r);
        if constexpr (WEIGHED) mine[e] += (u64)Peers::load(&s.high[bin], r) << 32;
      }
      sum += mine[e];
    }
    u64 total, before = sumAhead(sum, total);
    const u64 target = targetOf(total);
    if (threadIdx.x == 0) s.bin = BINS;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      if (before < target && target <= before + mine[e]) {
        s.bin = threadIdx.x * EACH + e;
        s.above = before;
      }
      before += mine[e];
    }
    __syncthreads();
    return s.bin < BINS;
  }
  /// The sum over the threads ahead of this one, and over all.
  LATHE_METHOD u64 sumAhead(u64 mine, u64 &total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 sum = warpSum(mine);
    if (lane == 31) s.warpSums[warp] = sum;
    __syncthreads();
    u64 before = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      if (w < warp) before += s.warpSums[w];
      total += s.warpSums[w];
    }
    __syncthreads();
    return before + sum - mine;
  }
  /// Over the lanes up to this one.
  static LATHE_METHOD u64 warpSum(u64 sum) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int from = lane < d ? lane : lane - d;
      const u64 other = (u64)shuffleFrom32((u32)(sum >> 32), from) << 32 | shuffleFrom32((u32)sum, from);
      if (lane >= d) sum += other;
    }
    return sum;
  }

  /// What keys of the set lie where `in` says: least, greatest, and how many in this block and those ahead of it.
  struct Extent { u32 low, high, count, ahead; };
  template <class In> LATHE_METHOD Extent extentOf(Cut set, In in) {
    u32 low = ~0u, high = 0, count = 0;
    for (u32 i = threadIdx.x; i < length; i += THREADS) {
      const u32 key = keys[i];
      if (!in(key) || !set.keeps(key, first + i)) continue;
      low = key < low ? key : low;
      high = key > high ? key : high;
      ++count;
    }
    low = blockReduce<MinOp, THREADS>(low);
    high = blockReduce<MaxOp, THREADS>(high);
    count = blockReduce<SumOp, THREADS>(count);
    Extent e{~0u, 0, 0, 0};
    exchange(Part{0, low, high, count, 0}, [&](const Part &p, int r) {
      e.low = p.low < e.low ? p.low : e.low;
      e.high = p.high > e.high ? p.high : e.high;
      if (r < (int)Peers::rank()) e.ahead += p.count;
      e.count += p.count;
    });
    return e;
  }

  /// findBin among equal steps of logits.
  template <bool WEIGHED, class Target> LATHE_METHOD bool findFirstBin(Cut set, Target targetOf) {
    clearBins();
#pragma unroll 4
    for (u32 i = threadIdx.x; i < length; i += THREADS)
      if (const u32 key = keys[i]; set.keeps(key, first + i))
        if (const u64 m = WEIGHED ? weightOf(key) : 1) addTo<WEIGHED>(binOf(key), m);
    const bool found = findBin<WEIGHED>(targetOf);
    if (!found) Peers::sync(); // others may still read the bins
    return found;
  }

  /// The greatest elements of the set, those whose measures come to the target among them, where they are FEW at most: how
  /// many they are, or 0. The first block has their keys and places, `key << 32 | ~place`, in s.all, in any order.
  template <bool WEIGHED, class Target> LATHE_METHOD u32 collect(Cut set, Target targetOf) {
    if (threadIdx.x == 0) s.found = 0;
    u64 target = 0;
    if (!findFirstBin<WEIGHED>(set, [&](u64 total) { return target = targetOf(total); })) return 0;
    collectedTarget = target;
    const u32 bin = s.bin;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < length; i += THREADS)
      if (const u32 key = keys[i]; set.keeps(key, first + i) && binOf(key) <= bin)
        if (const u32 slot = atomicAdd(&s.found, 1u); slot < FEW) s.few[slot] = (u64)key << 32 | (u32)~(first + i);
    Peers::sync();
    u32 total = 0, ahead = 0, from = 0;
    for (int r = 0; r < Peers::BLOCKS; ++r) {
      const u32 found = Peers::load(&s.found, r);
      if (threadIdx.x >= total) from = r, ahead = total;
      total += found;
    }
    if (total > FEW) return 0;
    if (Peers::rank() == 0 && threadIdx.x < total) s.all[threadIdx.x] = Peers::load(&s.few[threadIdx.x - ahead], from);
    __syncthreads();
    return total;
  }
  /// Of the first n elements of s.all, how many are greater.
  LATHE_METHOD u32 rankAmong(u32 n, u64 mine) const {
    u32 rank = 0;
    for (u32 m = 0; m < n; ++m) rank += s.all[m] > mine;
    return rank;
  }

  /// The fewest greatest elements of the set whose measures, weights or 1 each, come to targetOf(the sum of all), above
  /// 0; the set itself where they do not. Behind a collect() of the same that found too many it goes on from its bin.
  template <bool WEIGHED, class Target> LATHE_METHOD Cut findPivot(Cut set, Target targetOf) {
    auto measure = [&](u32 key) { return WEIGHED ? weightOf(key) : 1; };
    u64 target = collectedTarget;
    if (!collectedTarget && !findFirstBin<WEIGHED>(set, [&](u64 total) { return target = targetOf(total); })) return set;
    collectedTarget = 0;
    u32 bin = s.bin;
    u64 above = s.above;
    Extent e = extentOf(set, [&](u32 key) { return binOf(key) == bin; });
    while (e.low < e.high) {
      const u32 width = e.high - e.low, high = e.high, low = e.low;
      u32 shift = 0;
      while (width >> shift >= BINS) ++shift;
      clearBins();
      for (u32 i = threadIdx.x; i < length; i += THREADS)
        if (const u32 key = keys[i]; key >= low && key <= high && set.keeps(key, first + i))
          addTo<WEIGHED>((high - key) >> shift, measure(key));
      findBin<WEIGHED>([&](u64) { return target - above; });
      bin = s.bin;
      above += s.above;
      e = extentOf(set, [&](u32 key) { return key >= low && key <= high && (high - key) >> shift == bin; });
    }
    // All are equal now: the first of them, in their order.
    const u64 one = measure(e.low), rest = target - above;
    u64 fewer = 0; // the most that do not come to the rest
    for (u32 step = 1u << 22; step; step >>= 1)
      if ((fewer + step) * one < rest) fewer += step;
    const u64 wanted = fewer + 1;
    if (wanted >= e.count) return {e.low, e.low == set.key ? set.last : vocabulary};
    return {e.low, placeOf(e, wanted)};
  }

  /// The place in the row of the n-th of the elements with this key, from 1 on.
  LATHE_METHOD u32 placeOf(const Extent &e, u64 n) {
    u32 mine = 0;
    forSegment([&](u32 i) { mine += i < length && keys[i] == e.low; });
    u64 total, before = sumAhead(mine, total); // of lanes in order of warps: what a warp's first lane has ahead is in order
    const u64 ahead = e.ahead + ((u64)shuffleFrom32((u32)(before >> 32), 0) << 32 | shuffleFrom32((u32)before, 0));
    const u64 ofWarp = (u32)warpReduce<SumOp>(mine);
    u32 place = 0;
    if (ahead < n && n <= ahead + ofWarp) {
      u64 seen = ahead;
      forSegment([&](u32 i) {
        const u32 is = i < length && keys[i] == e.low;
        const u64 upTo = seen + warpSum(is);
        if (is && upTo == n) place = first + i + 1;
        seen += (u32)warpReduce<SumOp>(is);
      });
    }
    place = blockReduce<MaxOp, THREADS>(place);
    u32 all = 0;
    exchange(Part{0, 0, 0, 0, place}, [&](const Part &p, int) { all = p.place > all ? p.place : all; });
    return all - 1;
  }
  /// Calls use(place in the part, or beyond it) for this lane's places: warps have stretches one after another.
  template <class Use> LATHE_METHOD void forSegment(Use use) {
    const u32 steps = (length + THREADS - 1) / THREADS, from = threadIdx.x / 32 * steps * 32 + threadIdx.x % 32;
    for (u32 step = 0; step < steps; ++step) use(from + 32 * step);
  }

  // ---- Draws --------------------------------------------------------------------------

  /// The token in whose part of [0, sum of the weights) the random number lies, parts in the order of tokens.
  LATHE_METHOD void draw(Cut set, u64 least, u64 random, i64 *token) {
    auto weight = [&](u32 i) -> u64 {
      const u32 key = keys[i];
      const u64 w = weightOf(key);
      return w < least || !set.keeps(key, first + i) ? 0 : w;
    };
    // A stretch a thread; of an odd number, so that lanes read different banks of shared memory.
    const u32 each = (length + THREADS - 1) / THREADS | 1;
    auto endOf = [&](u32 thread) { return (thread + 1) * each < length ? (thread + 1) * each : length; };
    u64 mine = 0;
#pragma unroll 4
    for (u32 i = threadIdx.x * each; i < endOf(threadIdx.x); ++i) mine += weight(i);
    u64 ofBlock, before = sumAhead(mine, ofBlock), total = 0, ahead = 0;
    exchange(Part{ofBlock, 0, 0, 0, 0}, [&](const Part &p, int r) {
      if (r < (int)Peers::rank()) ahead += p.sum;
      total += p.sum;
    });
    u64 at = __umul64hi(random, total);
    if (at < ahead || at >= ahead + ofBlock) return; // another block's
    at -= ahead;
    if (at >= before && at < before + mine) {
      s.place = threadIdx.x;
      s.above = before;
    }
    __syncthreads();
    if (threadIdx.x >= 32) return;
    u64 upTo = s.above;
    for (u32 from = s.place * each, end = endOf(s.place); from < end; from += 32) {
      const u32 i = from + threadIdx.x;
      const u64 w = i < end ? weight(i) : 0, sum = upTo + warpSum(w);
      if (at < sum && at >= sum - w) *token = first + i;
      upTo += warpReduce<SumOp>(w);
    }
  }

  /// The same among the n elements that collect() found, after top-k and top-p. `total`: of the row, where there is no
  /// top-k. For the first block.
  LATHE_METHOD void drawFew(u32 n, const SampleDraw &d, bool counts, u64 total, i64 *token) {
    const u32 t = threadIdx.x;
    const u64 mine = t < n ? s.all[t] : 0;
    const u32 rank = rankAmong(n, mine);
    u64 weight = t < n && (!counts || rank < d.topK) ? weightOf((u32)(mine >> 32)) : 0;
    if (d.topP < 1) {
      if (t < n) s.sorted[rank] = weight;
      __syncthreads();
      u64 kept;
      const u64 before = sumAhead(t < n ? s.sorted[t] : 0, kept);
      if (t < n) s.sorted[t] = before;
      __syncthreads();
      if (t < n && s.sorted[rank] >= shareOf(d.topP, counts ? kept : total)) weight = 0;
      __syncthreads(); // the sums are read
    }
    if (weight < d.leastWeight) weight = 0;
    if (t < n) s.sorted[t] = weight;
    __syncthreads();
    u64 before = 0, all = 0;
    for (u32 m = 0; m < n; ++m) {
      const u64 w = s.sorted[m];
      if ((u32)s.all[m] > (u32)mine) before += w; // a lower place
      all += w;
    }
    const u64 at = __umul64hi(philox(d.index, d.sample, d.seed), all);
    if (weight && at >= before && at < before + weight) *token = (u32)~(u32)mine;
  }
  /// What top-p wants of a sum.
  static LATHE_METHOD u64 shareOf(f64 topP, u64 total) {
    const u64 share = (u64)ceil(__dmul_rn(topP, (f64)total));
    return share < 1 ? 1 : share > total ? total : share;
  }

  /// The `count` greatest of the row in their order, at most FEW.
  LATHE_METHOD void storeTop(u32 count, RankResult *to) {
    const Cut everything{0, vocabulary};
    auto wanted = [&](u64) { return (u64)count; };
    u32 n = collect<false>(everything, wanted);
    if (n == 0) { // many are equal, or nearly
      const Cut cut = findPivot<false>(everything, wanted);
      if (threadIdx.x == 0) s.found = 0;
      __syncthreads();
      for (u32 i = threadIdx.x; i < length; i += THREADS)
        if (cut.keeps(keys[i], first + i)) s.few[atomicAdd(&s.found, 1u)] = (u64)keys[i] << 32 | (u32)~(first + i);
      Peers::sync();
      n = 0;
      for (int r = 0; r < Peers::BLOCKS; ++r) {
        const u32 found = Peers::load(&s.found, r);
        if (threadIdx.x >= n && threadIdx.x < n + found) s.all[threadIdx.x] = Peers::load(&s.few[threadIdx.x - n], r);
        n += found;
      }
      __syncthreads();
    }
    if (Peers::rank() != 0) return;
    if (threadIdx.x == 0) to->topCount = count;
    if (threadIdx.x >= n) return;
    const u64 mine = s.all[threadIdx.x];
    const u32 rank = rankAmong(n, mine);
    if (rank < count) to->top[rank] = RankedToken{~(u32)mine, logitOf((u32)(mine >> 32))};
  }
};

/// tokens[n]: of draw n, or -1 where no logit is a number above -infinity. Peers::BLOCKS blocks a draw.
template <class Peers, int THREADS, class T>
LATHE_DEV void sampleTokens(const T *logits, const SampleDraw *draws, const u32 *words, const f64 *powers, u8 *memory,
                            u32 *spare, i64 *tokens, i64 vocabulary, i64 inShared) {
  typedef SampledRow<Peers, THREADS> Row;
  typename Row::Shared &shared = *(typename Row::Shared *)memory;
  const u32 n = blockIdx.x / Peers::BLOCKS;
  const SampleDraw d = draws[n];
  for (int i = threadIdx.x; i < kPowers; i += THREADS) shared.powers[i] = powers[i];
  Row row(shared, (u32 *)(memory + kSampleFixedBytes), spare + (u64)n * vocabulary, vocabulary, inShared, d.scale);
  const u32 best = row.load(logits + (i64)d.row * vocabulary, d, words);
  const bool none = row.greatestKey < kLowestNumber;
  if (none || d.scale == 0 || d.topK == 1) {
    if (Peers::rank() == 0 && threadIdx.x == 0) tokens[n] = none ? -1 : (i64)best;
  } else {
    Cut cut{kLowestNumber, (u32)vocabulary};
    const bool counts = d.topK && d.topK < (u64)vocabulary, shares = d.topP < 1;
    auto wanted = [&](u64) { return d.topK; };
    u64 total = 0;
    auto share = [&](u64 sum) { return Row::shareOf(d.topP, total = sum); };
    u32 few = 0;
    if (counts) few = row.template collect<false>(cut, wanted);
    else if (shares) few = row.template collect<true>(cut, share);
    if (few) {
      if (Peers::rank() == 0) row.drawFew(few, d, counts, total, &tokens[n]);
    } else {
      if (counts) cut = row.template findPivot<false>(cut, wanted);
      if (shares) cut = row.template findPivot<true>(cut, share);
      row.draw(cut, d.leastWeight, philox(d.index, d.sample, d.seed), &tokens[n]);
    }
  }
  Peers::sync(); // nobody leaves while its memory is read
}

/// Peers::BLOCKS blocks a row.
template <class Peers, int THREADS, class T>
LATHE_DEV void rankTokens(const T *logits, const RankDraw *draws, const f64 *powers, u8 *memory, u32 *spare,
                          const i64 *tokens, RankResult *results, i64 vocabulary, i64 inShared) {
  typedef SampledRow<Peers, THREADS> Row;
  typename Row::Shared &shared = *(typename Row::Shared *)memory;
  const u32 n = blockIdx.x / Peers::BLOCKS;
  const RankDraw d = draws[n];
  RankResult *to = results + n;
  for (int i = threadIdx.x; i < kPowers; i += THREADS) shared.powers[i] = powers[i];
  Row row(shared, (u32 *)(memory + kSampleFixedBytes), spare + (u64)n * vocabulary, vocabulary, inShared, 1.4426950408889634074);
  const T *from = logits + (i64)d.row * vocabulary;
  row.load(from);
  const u32 token = d.draw ? (u32)tokens[d.draw - 1] : d.token;
  const bool known = token < (u32)vocabulary; // a draw may have given none
  const f32 logit = known ? toF32(from[token]) : 0.0f;
  const Cut before{keyOf(logit), token};
  u64 sum = 0, likelier = 0;
  for (u32 i = threadIdx.x; i < row.length; i += THREADS) {
    const u32 key = row.keys[i];
    sum += row.weightOf(key);
    likelier += before.keeps(key, row.first + i) && row.first + i != token;
  }
  sum = row.addOverRow(sum);
  likelier = row.addOverRow(likelier);
  if (Peers::rank() == 0 && threadIdx.x == 0) {
    to->sum = sum;
    to->greatest = row.greatest;
    to->logit = logit;
    to->rank = 1 + (u32)likelier;
    to->topCount = 0;
  }
  __syncthreads();
  if (d.top) row.storeTop(d.top < (u32)vocabulary ? d.top : (u32)vocabulary, to);
  Peers::sync();
}

/// Puts what a step gives into the tokens of the one behind it: a token ~i is best[i], ~(2^32 + i) is drawn[i].
LATHE_DEV void feedStep(i64 *next, const i64 *best, const i64 *drawn, i64 count) {
  const i64 t = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= count || next[t] >= 0) return;
  const i64 place = ~next[t];
  const i64 token = place >> 32 ? drawn[place - (1ll << 32)] : best[place];
  next[t] = token < 0 ? 0 : token; // nobody reads what follows from none
}

#endif // LATHE_DEVICE_SAMPLE
