//===- EmulatedDrawsTest.cpp - what both devices draw ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random numbers are the same bits on a CPU and on a GPU, for any number of threads and in loops.
//
//===----------------------------------------------------------------------===//

#include "EmulatedFixture.h"

#include "lathe/support/Philox.h"

using namespace lathe;
using namespace lathe::test;

namespace {

class EmulatedDraws : public EmulatedFixture {};

/// Compared bit by bit: the tolerance is 0.
TEST_F(EmulatedDraws, AreTheSameBits) {
  fs::path model = folder / "draws.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 22]>
draws (float[N, 37] x) => (float[N, 37] u, float[N, 37] w, float[N, 37] z, float[N, 37] v, float16[5, 7] h,
       double[N, 37] d, double[N, 37] q, float[N, 37] b, float[N, 37] y, bool[N, 37] m)
{
  u = RandomUniformLike(x)
  w = RandomUniformLike<low = -3.0, high = 2.7>(x)
  z = RandomNormalLike(x)
  v = RandomNormalLike<mean = 1.3, scale = 0.7, seed = 4.0>(x)
  h = RandomNormal<shape = [5, 7], dtype = 10>()
  d = RandomUniformLike<dtype = 11>(x)
  q = RandomNormalLike<dtype = 11>(x)
  p = Abs(x)
  b = Bernoulli(p)
  r = Constant<value = float {0.3}>()
  t = Constant<value = bool {1}>()
  y, m = Dropout(x, r, t)
}
)";
  check(model, {{{"N", 1}}, {{"N", 67}}}, 0);
}

/// Each iteration of a loop of the run draws anew.
TEST_F(EmulatedDraws, AreNewInEachIteration) {
  fs::path model = folder / "loop.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 8, opset_import: ["" : 17]>
loop (float[4, 8] x) => (float[4, 8] z, float[4, 8] s) {
  a = Abs(x)
  c = ReduceSum<keepdims = 0>(a)
  n = Cast<to = 7>(c)
  zero = Sub(x, x)
  z, s = Loop<body = body (int64 i, bool go, float[4, 8] v, float[4, 8] sum) => (bool on, float[4, 8] w, float[4, 8] next) {
    on = Identity(go)
    w = RandomUniformLike(v)
    next = Add(sum, w)
  }>(n, , x, zero)
}
)";
  check(model, {{}}, 0);
}

/// What the authors publish of key and counter 0, and of all ones.
TEST(Philox, DrawsWhatItsAuthorsPublish) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

} // namespace
