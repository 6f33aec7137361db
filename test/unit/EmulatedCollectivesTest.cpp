//===- EmulatedCollectivesTest.cpp - collective kernels on the host -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of codegen/device/collective.cuh for 2 to 8 ranks, which are threads of the host: all ranks get the bits of
// runtime/comm/Reduce.cpp, over many calls of changing kinds and sizes on one arena, and a rank that does not come is an
// error on all others.
//
//===----------------------------------------------------------------------===//

#define LATHE_EMULATE
#include "../../codegen/device/emulate.h"

#undef __shared__
#define __shared__ static thread_local // a block of each rank runs at the same time
#include "../../codegen/device/base.cuh"
#include "../../codegen/device/math.cuh"
#include "../../codegen/device/reduce.cuh"
#include "../../codegen/device/peers.cuh"
#include "../../codegen/device/collective.cuh"

#include "../../runtime/comm/Communicator.h"
#include "lathe/engine/CollectiveAbi.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

namespace {

namespace engine = lathe::engine;
using namespace collective;
using engine::AllReduceForm;
using engine::CollectiveShape;
using lathe::DType;
using lathe::runtime::Exchange;

static_assert(sizeof(ArenaHeader) == sizeof(engine::ArenaHeader) && offsetof(ArenaHeader, ended) == offsetof(engine::ArenaHeader, ended));
static_assert(kMostRanks == engine::kMostCollectiveRanks && kArenaBlocks == engine::kCollectiveBlocks && kSlotBytes == engine::kSlotBytes &&
              kArenaHeaderBytes == engine::kArenaHeaderBytes && kStatusPeerLost == engine::kStatusPeerLost && kAbortByHost == engine::kAbortByHost);

using Bytes = std::vector<unsigned char>;
constexpr i64 kOperandBytes = 1 << 20; // of an arena; two of them, and memory of a rank's own

template <int N> struct Host {
  i64 arenaBytes = engine::arenaOperandOffset(N) + 2 * kOperandBytes;
  std::unique_ptr<unsigned char[]> memory, own;
  unsigned char *arenas, *locals;
  StatusWord status[N] = {};
  i64 timeout = i64(60) * 1000000000;

  Host() : memory(new unsigned char[N * arenaBytes + 256]), own(new unsigned char[N * 2 * kOperandBytes + 256]) {
    arenas = aligned(memory.get());
    locals = aligned(own.get());
    for (int r = 0; r < N; ++r) {
      std::memset(arenas + r * arenaBytes, 0, engine::kArenaHeaderBytes);
      std::memset(arenas + r * arenaBytes + engine::kArenaHeaderBytes, 0xFF, engine::arenaSlotBytes(N));
    }
  }
  static unsigned char *aligned(unsigned char *p) { return p + (256 - reinterpret_cast<uintptr_t>(p) % 256) % 256; }
  /// Memory `which` (0 or 1) of a rank, in its arena or beside it.
  unsigned char *operand(int rank, int which, bool inArena) {
    return inArena ? arenas + rank * arenaBytes + engine::arenaOperandOffset(N) + which * kOperandBytes
                   : locals + (rank * 2 + which) * kOperandBytes;
  }
  Peers<N> peers(int rank) { return {arenas, arenaBytes, rank, u64(timeout), 7, &status[rank]}; }
  ArenaHeader &header(int rank) { return *reinterpret_cast<ArenaHeader *>(arenas + rank * arenaBytes); }

  /// kernel(rank, peers) on all ranks at once but those in `absent`.
  template <class Kernel> void run(CollectiveShape shape, Kernel kernel, unsigned absent = 0) {
    std::vector<std::thread> ranks;
    std::string errors[N];
    for (int r = 0; r < N; ++r)
      if (!(absent >> r & 1))
        ranks.emplace_back([&, r] {
          errors[r] = lathe_emu::launch(unsigned(shape.blocks), unsigned(shape.threads), 0, [&] { kernel(r, peers(r)); });
        });
    for (std::thread &rank : ranks)
      rank.join();
    for (const std::string &error : errors)
      EXPECT_EQ(error, "");
  }
};

Bytes randomFloats(std::mt19937 &random, DType dtype, i64 count) {
  std::normal_distribution<float> normal;
  Bytes bytes(count * lathe::bitWidth(dtype) / 8);
  for (i64 i = 0; i < count; ++i) {
    float x = normal(random);
    if (random() % 64 == 0)
      x = random() % 2 ? -0.0f : INFINITY;
    unsigned bits = dtype == DType::F32 ? f32ToBits(x) : dtype == DType::F16 ? f16Bits(x) : bf16Bits(x);
    if (random() % 64 == 0)
      bits = ~0u; // a NaN, and what an empty slot has
    std::memcpy(bytes.data() + i * (lathe::bitWidth(dtype) / 8), &bits, lathe::bitWidth(dtype) / 8);
  }
  return bytes;
}
Bytes randomBytes(std::mt19937 &random, i64 count) {
  Bytes bytes(count);
  for (unsigned char &b : bytes)
    b = static_cast<unsigned char>(random());
  return bytes;
}

/// NaN are all one here: which is open.
template <class T> Bytes withOneNan(Bytes bytes) {
  if constexpr (sizeof(T) <= 4 && !IsSame<T, i32>::value)
    for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
      T x;
      std::memcpy(&x, &bytes[i], sizeof(T));
      const float value = toF32(x);
      const unsigned nan = IsSame<T, f32>::value ? 0x7fc00000u : 0x7fff;
      if (value != value)
        std::memcpy(&bytes[i], &nan, sizeof(T));
    }
  return bytes;
}

template <class T> constexpr DType kType = DType::F32;
template <> constexpr DType kType<f16> = DType::F16;
template <> constexpr DType kType<bf16> = DType::BF16;
template <> constexpr DType kType<i32> = DType::I32;

// Not inlined, this and what follows: all of them in one function take a quarter longer to compile.
template <int N, class T, class Op> [[gnu::noinline]] void allReduce(Host<N> &host, std::mt19937 &random, AllReduceForm form, i64 count) {
  const bool direct = form == AllReduceForm::Direct, inPlace = random() % 2;
  std::vector<Bytes> given;
  std::vector<const void *> ins;
  for (int r = 0; r < N; ++r) {
    given.push_back(kType<T> == DType::I32 ? randomBytes(random, count * 4) : randomFloats(random, kType<T>, count));
    std::memcpy(host.operand(r, 0, direct), given[r].data(), given[r].size());
    std::memset(host.operand(r, 1, direct), 0xEE, given[r].size() + 64);
    ins.push_back(given[r].data());
  }
  Exchange exchange;
  exchange.dtype = kType<T>;
  exchange.reduction = IsSame<Op, SumOp>::value ? Exchange::Reduction::Sum : Exchange::Reduction::Max;
  exchange.run = count;
  Bytes want(given[0].size());
  void *outs[] = {want.data()};
  lathe::runtime::reduceElements(exchange, 0, ins, outs, 0, count);

  CollectiveShape shape = engine::allReduceShape(form, i64(want.size()), N);
  shape.threads = 64; // fewer fibers
  if (form == AllReduceForm::OneShot)
    while (shape.blocks * kSlotBytes < i64(want.size()))
      ++shape.blocks;
  if (shape.blocks > 8 && random() % 2)
    shape.blocks = 8;
  if (form == AllReduceForm::OneShot)
    shape.blocks = std::max<i64>(shape.blocks, (i64(want.size()) + kSlotBytes - 1) / kSlotBytes);
  if (form == AllReduceForm::TwoShot)
    shape.blocks = std::max<i64>(shape.blocks, (i64(want.size()) / N + kSlotBytes / 2) / (kSlotBytes / 2) + 1);
  host.run(shape, [&](int r, const Peers<N> &peers) {
    auto *in = reinterpret_cast<const T *>(host.operand(r, 0, direct));
    auto *out = reinterpret_cast<T *>(host.operand(r, inPlace ? 0 : 1, direct));
    if (form == AllReduceForm::OneShot)
      allReduceOneShot<N, T, Op>(in, out, count, peers);
    else if (form == AllReduceForm::TwoShot)
      allReduceTwoShot<N, T, Op>(in, out, count, peers);
    else
      allReduceDirect<N, T, Op>(in, out, count, peers);
  });
  Bytes first;
  for (int r = 0; r < N; ++r) {
    unsigned char *out = host.operand(r, inPlace ? 0 : 1, direct);
    Bytes got(out, out + want.size());
    if (r == 0)
      first = got;
    ASSERT_EQ(got, first) << "ranks 0 and " << r << " differ";
    ASSERT_EQ(withOneNan<T>(got), withOneNan<T>(want)) << "count " << count << ", form " << int(form);
    if (!inPlace)
      ASSERT_EQ(out[want.size()], 0xEE) << "written behind the end";
    ASSERT_EQ(host.status[r].code, 0u);
  }
}

template <int N> [[gnu::noinline]] void gather(Host<N> &host, std::mt19937 &random, i64 rows, i64 run) {
  std::vector<Bytes> given;
  for (int r = 0; r < N; ++r) {
    given.push_back(randomBytes(random, rows * run));
    std::memcpy(host.operand(r, 0, false), given[r].data(), given[r].size());
  }
  host.run({2, 64}, [&](int r, const Peers<N> &peers) {
    allGather<N>(host.operand(r, 0, false), host.operand(r, 1, true), rows, run, peers);
  });
  for (int r = 0; r < N; ++r)
    for (i64 row = 0; row < rows; ++row)
      for (int from = 0; from < N; ++from)
        ASSERT_EQ(std::memcmp(host.operand(r, 1, true) + (row * N + from) * run, given[from].data() + row * run, run), 0);
}

template <int N, class T> [[gnu::noinline]] void scatter(Host<N> &host, std::mt19937 &random, i64 rows, i64 run) {
  std::vector<Bytes> given;
  std::vector<const void *> ins;
  for (int r = 0; r < N; ++r) {
    given.push_back(randomFloats(random, kType<T>, rows * N * run));
    std::memcpy(host.operand(r, 0, true), given[r].data(), given[r].size());
    ins.push_back(given[r].data());
  }
  host.run({3, 64}, [&](int r, const Peers<N> &peers) {
    reduceScatter<N, T, SumOp>(reinterpret_cast<T *>(host.operand(r, 0, true)), reinterpret_cast<T *>(host.operand(r, 1, false)), rows, run, peers);
  });
  Exchange exchange;
  exchange.kind = Exchange::Kind::ReduceScatter;
  exchange.dtype = kType<T>;
  exchange.rows = rows;
  exchange.run = run;
  for (int r = 0; r < N; ++r) {
    Bytes want(rows * run * sizeof(T));
    void *outs[] = {want.data()};
    lathe::runtime::reduceElements(exchange, r, ins, outs, 0, rows * run);
    ASSERT_EQ(withOneNan<T>(Bytes(host.operand(r, 1, false), host.operand(r, 1, false) + want.size())), withOneNan<T>(want));
  }
}

/// Sums are exact, and the norm is near that of f64.
template <int N, class T> [[gnu::noinline]] void norm(Host<N> &host, std::mt19937 &random, i64 rows, i64 columns, bool withResidual) {
  const i64 count = rows * columns;
  std::normal_distribution<float> normal;
  auto values = [&](i64 n) {
    std::vector<T> made(n);
    for (T &x : made)
      x = convert<T>(normal(random));
    return made;
  };
  std::vector<std::vector<T>> in, residuals(N, values(count)), normed(N, std::vector<T>(count)), sums = normed;
  for (int r = 0; r < N; ++r)
    in.push_back(values(count));
  const std::vector<T> weight = values(columns);
  CollectiveShape shape = engine::allReduceNormShape(rows, columns, sizeof(T));
  if (columns * i64(sizeof(T)) <= 4096) // few blocks, of several rows each
    shape.blocks = std::min<i64>(rows, 3);
  auto copy = [](unsigned char *to, const std::vector<T> &from) { std::memcpy(to, from.data(), from.size() * sizeof(T)); };
  for (int r = 0; r < N; ++r) {
    copy(host.operand(r, 0, false), in[r]);
    copy(host.operand(r, 1, false), residuals[r]);
  }
  Bytes scale(columns * sizeof(T) + 256);
  T *aligned = reinterpret_cast<T *>(Host<N>::aligned(scale.data()));
  std::memcpy(aligned, weight.data(), columns * sizeof(T));
  host.run(shape, [&](int r, const Peers<N> &peers) {
    T *residual = reinterpret_cast<T *>(host.operand(r, 1, false));
    allReduceNorm<N, T>(reinterpret_cast<T *>(host.operand(r, 0, false)), withResidual ? residual : nullptr, aligned, residual,
                        reinterpret_cast<T *>(host.operand(r, 0, true)), rows, columns, 1e-5f, peers);
  });
  for (i64 row = 0; row < rows; ++row) {
    std::vector<float> sum(columns);
    double squares = 0;
    for (i64 c = 0; c < columns; ++c) {
      float x = toF32(in[0][row * columns + c]);
      for (int r = 1; r < N; ++r)
        x += toF32(in[r][row * columns + c]);
      if (withResidual)
        x += toF32(residuals[0][row * columns + c]);
      sum[c] = x;
      squares += double(x) * x;
    }
    const double factor = 1 / std::sqrt(squares / double(columns) + 1e-5);
    for (i64 c = 0; c < columns; ++c)
      for (int r = 0; r < N; ++r) {
        const T *gotSum = reinterpret_cast<T *>(host.operand(r, 1, false)), *got = reinterpret_cast<T *>(host.operand(r, 0, true));
        ASSERT_EQ(toF32(gotSum[row * columns + c]), toF32(convert<T>(sum[c])));
        const float want = float(sum[c] * factor * toF32(weight[c]));
        ASSERT_NEAR(toF32(got[row * columns + c]), want, std::abs(want) * (sizeof(T) == 4 ? 1e-6f : 1e-2f) + 1e-6f);
        ASSERT_EQ(toF32(got[row * columns + c]), toF32(reinterpret_cast<T *>(host.operand(0, 0, true))[row * columns + c]));
      }
  }
}

template <int N> void manyCalls(unsigned seed) {
  std::mt19937 random(seed);
  Host<N> host;
  for (int call = 0; call < 60; ++call) {
    i64 count = 1 + i64(random() % (random() % 4 ? 300 : 20000));
    if (random() % 3 == 0)
      count = (count + 7) / 8 * 8;
    const auto form = AllReduceForm(random() % 3);
    switch (random() % 9) {
    case 0:
      allReduce<N, f32, SumOp>(host, random, form, count);
      break;
    case 1:
    case 2:
      allReduce<N, bf16, SumOp>(host, random, form, count);
      break;
    case 3:
      allReduce<N, f16, SumOp>(host, random, form, count);
      break;
    case 4:
      allReduce<N, bf16, MaxOp>(host, random, form, count);
      break;
    case 5:
      allReduce<N, i32, SumOp>(host, random, AllReduceForm::Direct, count);
      break;
    case 6:
      gather<N>(host, random, 1 + random() % 5, 16 * (1 + random() % 300));
      break;
    case 7:
      scatter<N, bf16>(host, random, 1 + random() % 5, 8 * (1 + random() % 100));
      break;
    case 8:
      if (random() % 2)
        norm<N, bf16>(host, random, 1 + random() % 12, 8 * (1 + random() % 250), random() % 2);
      else
        norm<N, f32>(host, random, 1 + random() % 12, 4 * (1 + random() % 250), random() % 2);
      break;
    }
    if (::testing::Test::HasFatalFailure())
      return;
  }
}

TEST(EmulatedCollectives, ManyCallsOnTwoRanks) { manyCalls<2>(1); }
TEST(EmulatedCollectives, ManyCallsOnThreeRanks) { manyCalls<3>(2); }
TEST(EmulatedCollectives, ManyCallsOnFourRanks) { manyCalls<4>(3); }
TEST(EmulatedCollectives, ManyCallsOnEightRanks) { manyCalls<8>(4); }

TEST(EmulatedCollectives, RowsOfTwoVectorsAThread) {
  Host<2> host;
  std::mt19937 random(5);
  norm<2, bf16>(host, random, 9, 8 * 300, true);
  norm<2, f32>(host, random, 8, 4 * 512, false);
}

/// Calls one behind the other on each rank, which none waits for the others between.
template <int N> void chain(unsigned seed) {
  enum Kind { OneShot, TwoShot, Direct, Gather, Scatter };
  struct Call {
    Kind kind;
    i64 count; // of what a rank gives
  };
  std::mt19937 random(seed);
  std::vector<Call> calls(100);
  for (Call &call : calls) {
    call.kind = Kind(random() % 5);
    call.count = 8 * N * (1 + random() % 40);
    if (random() % 2) // threads run one after another here, so a rank gets furthest ahead where one has all
      call = {Kind(random() % 2), 1 + i64(random() % 4)};
  }
  auto given = [&](int rank, int call) {
    std::mt19937 own(seed * 1000 + rank * 100 + call);
    std::vector<float> values(calls[call].count);
    for (float &v : values)
      v = float(int(own() % 2001) - 1000);
    return values;
  };
  Host<N> host;
  host.timeout = i64(20) * 1000000000;
  std::vector<std::vector<float>> got[N];
  std::string errors[N];
  std::vector<std::thread> ranks;
  for (int r = 0; r < N; ++r)
    ranks.emplace_back([&, r] {
      std::mt19937 own(r);
      for (size_t i = 0; i < calls.size(); ++i) {
        const Call call = calls[i];
        auto *in = reinterpret_cast<f32 *>(host.operand(r, 0, call.kind == Direct || call.kind == Scatter));
        auto *out = reinterpret_cast<f32 *>(host.operand(r, 1, call.kind == Direct || call.kind == Gather));
        std::memcpy(in, given(r, int(i)).data(), call.count * 4);
        if (own() % 3 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(own() % 1000));
        const Peers<N> peers = host.peers(r);
        errors[r] += lathe_emu::launch(2, 32, 0, [&] {
          switch (call.kind) {
          case OneShot:
            return allReduceOneShot<N, f32, SumOp>(in, out, call.count, peers);
          case TwoShot:
            return allReduceTwoShot<N, f32, SumOp>(in, out, call.count, peers);
          case Direct:
            return allReduceDirect<N, f32, SumOp>(in, out, call.count, peers);
          case Gather:
            return allGather<N>(reinterpret_cast<u8 *>(in), reinterpret_cast<u8 *>(out), 1, call.count * 4, peers);
          case Scatter:
            return reduceScatter<N, f32, SumOp>(in, out, 1, call.count / N, peers);
          }
        });
        const i64 results = call.kind == Gather ? call.count * N : call.kind == Scatter ? call.count / N : call.count;
        got[r].emplace_back(out, out + results);
      }
    });
  for (std::thread &rank : ranks)
    rank.join();
  for (int r = 0; r < N; ++r)
    EXPECT_EQ(errors[r], "");
  for (size_t i = 0; i < calls.size(); ++i) {
    std::vector<float> sum(calls[i].count), all;
    for (int r = 0; r < N; ++r) {
      const std::vector<float> values = given(r, int(i));
      all.insert(all.end(), values.begin(), values.end());
      for (size_t k = 0; k < sum.size(); ++k)
        sum[k] += values[k];
    }
    for (int r = 0; r < N; ++r) {
      const i64 part = calls[i].count / N;
      if (calls[i].kind == Scatter)
        ASSERT_EQ(got[r][i], std::vector<float>(sum.begin() + r * part, sum.begin() + (r + 1) * part)) << i;
      else
        ASSERT_EQ(got[r][i], calls[i].kind == Gather ? all : sum) << i;
    }
  }
}

TEST(EmulatedCollectives, RanksRunAheadOfEachOther) {
  lathe_emu::beforeSystem = [] {
    static thread_local std::mt19937 random(std::hash<std::thread::id>()(std::this_thread::get_id()));
    if (random() % 256 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(50 + random() % 300));
  };
  for (unsigned seed = 1; seed <= 5 && !HasFatalFailure(); ++seed) {
    chain<2>(seed);
    chain<4>(seed);
  }
  chain<8>(6);
  lathe_emu::beforeSystem = nullptr;
}

TEST(EmulatedCollectives, SlotsAndEpochsWrap) {
  Host<2> host;
  std::mt19937 random(5);
  for (int r = 0; r < 2; ++r)
    std::fill_n(host.header(r).epochs, kArenaBlocks, ~0u - 3);
  for (int r = 0; r < 2; ++r)
    for (int b = 0; b < kArenaBlocks; ++b)
      for (int other = 0; other < kMostRanks; ++other)
        host.header(r).begun[b][other] = host.header(r).ended[b][other] = ~0u - 3;
  for (int call = 0; call < 8; ++call) {
    allReduce<2, bf16, SumOp>(host, random, AllReduceForm(call % 3), 500);
    ASSERT_FALSE(HasFatalFailure());
  }
}

template <class Kernel> void expectLost(Host<4> &host, Kernel kernel) {
  host.timeout = 1000 * 1000000; // a busy machine delays ranks that come, too
  const auto before = std::chrono::steady_clock::now();
  host.run({2, 64}, kernel, 1 << 2);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(host.header(r).abort, 3u) << r;
    if (r != 2) {
      EXPECT_EQ(host.status[r].code, engine::kStatusPeerLost);
      EXPECT_EQ(host.status[r].detail, u64(2) << 32 | 7);
    }
  }
  // What comes after that does not wait for a deadline of its own.
  host.timeout = i64(3600) * 1000000000;
  host.run({2, 64}, kernel, 1 << 2);
}

TEST(EmulatedCollectives, ALostPeerIsAnErrorOnAll) {
  {
    Host<4> host;
    expectLost(host, [&](int r, const Peers<4> &peers) {
      allReduceOneShot<4, bf16, SumOp>(reinterpret_cast<bf16 *>(host.operand(r, 0, false)), reinterpret_cast<bf16 *>(host.operand(r, 1, false)), 1000, peers);
    });
  }
  {
    Host<4> host;
    expectLost(host, [&](int r, const Peers<4> &peers) {
      allReduceTwoShot<4, bf16, SumOp>(reinterpret_cast<bf16 *>(host.operand(r, 0, false)), reinterpret_cast<bf16 *>(host.operand(r, 1, false)), 1000, peers);
    });
  }
  Host<4> host;
  expectLost(host, [&](int r, const Peers<4> &peers) {
    allReduceDirect<4, bf16, SumOp>(reinterpret_cast<bf16 *>(host.operand(r, 0, true)), reinterpret_cast<bf16 *>(host.operand(r, 1, true)), 1000, peers);
  });
}

TEST(EmulatedCollectives, AHostEndsWaits) {
  Host<2> host;
  host.timeout = i64(3600) * 1000000000;
  host.header(0).abort = kAbortByHost;
  host.run({1, 64}, [&](int r, const Peers<2> &peers) {
    allGather<2>(host.operand(r, 0, false), host.operand(r, 1, true), 1, 64, peers);
  }, 1 << 1);
  EXPECT_EQ(host.status[0].code, engine::kStatusPeerLost);
  EXPECT_EQ(host.status[0].detail >> 32, 1u);
}

TEST(EmulatedCollectives, ShapesFitTheSlots) {
  for (i64 ranks = 2; ranks <= 8; ++ranks)
    for (i64 bytes = 16; bytes <= 64 << 20; bytes += bytes / 3 / 16 * 16 + 16)
      for (bool inArena : {false, true}) {
        const AllReduceForm form = engine::allReduceForm(bytes, ranks, DType::BF16, inArena);
        const CollectiveShape shape = engine::allReduceShape(form, bytes, ranks);
        ASSERT_GE(shape.blocks, 1);
        ASSERT_LE(shape.blocks, engine::kCollectiveBlocks);
        ASSERT_LE(shape.threads, engine::kCollectiveThreads);
        const i64 vectors = form == AllReduceForm::TwoShot ? (bytes / 16 + ranks - 1) / ranks : bytes / 16;
        const i64 turns = (vectors + shape.blocks * shape.threads - 1) / (shape.blocks * shape.threads);
        const i64 used = turns * shape.threads * 16;
        if (form == AllReduceForm::OneShot)
          ASSERT_LE(used, engine::kSlotBytes) << bytes;
        if (form == AllReduceForm::TwoShot)
          ASSERT_LE(used, engine::kSlotBytes / 2) << bytes;
      }
}

} // namespace
