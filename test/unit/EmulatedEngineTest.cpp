//===- EmulatedEngineTest.cpp - engines for a GPU without one ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole models for sm_90a on the fake device, whose kernels are the generated
// CUDA text under emulation: plan, launches, arguments, device memory and
// kernels together, compared with the CPU's results of the same engine.
//
//===----------------------------------------------------------------------===//

#include "EmulatedFixture.h"

#include "lathe/engine/KvLayout.h"
#include "lathe/runtime/KvCache.h"
#include "lathe/support/Half.h"

#include <memory>
#include <set>

using namespace lathe;
using namespace lathe::test;

namespace {

class EmulatedEngine : public EmulatedFixture {
protected:
  void checkHeadsOfOneRow(const std::string &angles, int64_t count, const std::string &sizes,
                          const std::string &rotations);
};

TEST_F(EmulatedEngine, SmallNetwork) {
  fs::path model = folder / "net.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 20]>
net (float[N,3,9,8] x, float[4,3,3,3] w, float[4] b, float[288,12] d, float[12] e)
  => (float[N,12] y, float[N,9,8,4] t)
{
  c = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(x, w, b)
  r = Relu(c)
  f = Flatten<axis = 1>(r)
  l = MatMul(f, d)
  m = Add(l, e)
  y = Softmax<axis = -1>(m)
  t = Transpose<perm = [0,2,3,1]>(r)
}
)";
  check(model, {{{"N", 1}}, {{"N", 5}}, {{"N", 67}}}, 1e-5);
}

/// Products of one block each leave the GPU idle: chains of them run on streams.
TEST_F(EmulatedEngine, ChainsOnStreams) {
  fs::path model = folder / "chains.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 20]>
chains (float[N,1024] x, float[1024,64] a, float[1024,64] b, float[1024,64] c, float[64,64] d)
  => (float[N,64] y, float[N,64] z)
{
  p = MatMul(x, a)
  q = MatMul(p, d)
  s = MatMul(x, b)
  t = Transpose<perm = [1,0]>(s)
  y = MatMul(q, d)
  u = MatMul(x, c)
  v = MatMul(p, t)
  z = MatMul(v, u)
}
)";
  check(model, {{{"N", 64}}, {{"N", 17}}}, 1e-5, {"N=1:64:64"});
  std::set<int> streams;
  for (const auto &launch : runtime::cuda::fakeGpu().launches)
    streams.insert(launch.stream);
  EXPECT_GT(streams.size(), 1u);
}

/// Recurrences of more steps than are written out, and of as many as the run says.
TEST_F(EmulatedEngine, RecurrencesOfAnyLength) {
  fs::path model = folder / "cells.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 8, opset_import: ["" : 17]>
cells (float[S, B, 3] x, float[1, 12, 3] w, float[1, 12, 4] r, float[1, 24] b, float[1, 16, 4] v,
       float[1, 16, 4] q) => (float[S, 1, B, 4] y, float[1, B, 4] h, float[S, 1, B, 4] z, float[1, B, 4] c)
{
  y, h = GRU<hidden_size = 4, direction = "reverse", linear_before_reset = 1>(x, w, r, b)
  axes = Constant<value = int64[1] {1}>()
  flat = Squeeze(y, axes)
  z, last, c = LSTM<hidden_size = 4>(flat, v, q)
}
)";
  check(model, {{{"S", 1}, {"B", 1}}, {{"S", 70}, {"B", 3}}}, 1e-5);
  check(model, {{{"B", 2}}}, 1e-5, {"S=70"});
}

/// A view of a part of a product, behind which dimensions change their order: a kernel of its own.
TEST_F(EmulatedEngine, PartsOfAProduct) {
  fs::path model = folder / "parts.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 8, opset_import: ["" : 17]>
parts (float[2, 6, 4] x, float[2, 4, 5] w) => (float[5, 6] y)
{
  p = MatMul(x, w)
  zero = Constant<value = int64[1] {0}>()
  one = Constant<value = int64[1] {1}>()
  s = Slice(p, zero, one, zero)
  f = Squeeze(s, zero)
  y = Transpose<perm = [1, 0]>(f)
}
)";
  check(model, {{}}, 1e-5);
}

/// The variance of rows around 10^4 that hardly vary, as exporters write it.
TEST_F(EmulatedEngine, NormsOfNearlyConstantRows) {
  fs::path model = folder / "norm.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 8, opset_import: ["" : 17]>
norm (float[N, 96] noise) => (float[N, 96] y, float[N, 96] z)
{
  spread = Constant<value = float {0.05}>()
  middle = Constant<value = float {10000.0}>()
  epsilon = Constant<value = float {0.00001}>()
  ones = Constant<value = float {1.0}>()
  size = Constant<value = int64[1] {96}>()
  scale = Expand(ones, size)
  scaled = Mul(noise, spread)
  x = Add(scaled, middle)
  mean = ReduceMean<axes = [-1]>(x)
  square = Mul(x, x)
  squares = ReduceMean<axes = [-1]>(square)
  of_mean = Mul(mean, mean)
  variance = Sub(squares, of_mean)
  safe = Add(variance, epsilon)
  deviation = Sqrt(safe)
  centred = Sub(x, mean)
  y = Div(centred, deviation)
  z = LayerNormalization(x, scale)
}
)";
  // The mean has a spacing of 1e-3, a thirtieth of the deviation: both devices take the same one.
  check(model, {{{"N", 1}}, {{"N", 37}}}, 0.05);
}

/// Numbers that are half-way between two of the narrower type, but for bits that f32 does not hold.
TEST_F(EmulatedEngine, WideNumbersRoundOnceToHalfPrecision) {
  fs::path model = folder / "narrow.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 8, opset_import: ["" : 17]>
narrow (float[N, 4] x) => (float16[N, 4] h, bfloat16[N, 4] b, bfloat16[N, 4] i) {
  nothing = Constant<value = float {0.0}>()
  z = Mul(x, nothing)
  zeros = Cast<to = 11>(z)
  ties = Constant<value = double[4] {1.00048828125090949, 1.00048828124909051, -1.00390625000090949, 1.00390624999909051}>()
  d = Add(zeros, ties)
  h = Cast<to = 10>(d)
  b = Cast<to = 16>(d)
  whole = Cast<to = 7>(z)
  large = Constant<value = int64[4] {4629700416936869889, 4629700416936869887, -4629700416936869889, 1077936129}>()
  n = Add(whole, large)
  i = Cast<to = 16>(n)
}
)";
  check(model, {{{"N", 3}}}, 1e-6);
}

/// Trips and conditions that the run computes: the host reads them back and goes on in segments.
TEST_F(EmulatedEngine, LoopsAndBranchesOfTheRun) {
  fs::path model = folder / "flow.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 8, opset_import: ["" : 17]>
flow (float[4, 8] x) => (float[4, 8] z) {
  a = Abs(x)
  s = ReduceSum<keepdims = 0>(a)
  n = Cast<to = 7>(s)
  half = Constant<value = float {0.5}>()
  two = Constant<value = float {2.0}>()
  limit = Constant<value = float {40.0}>()
  yes = Constant<value = bool {1}>()
  b = Loop<body = counted (int64 i, bool go, float[4, 8] v) => (bool on, float[4, 8] w) {
    on = Identity(go)
    f = Cast<to = 1>(i)
    u = Mul(v, half)
    w = Add(u, f)
  }>(n, , x)
  c = Loop<body = conditioned (int64 j, bool again, float[4, 8] p) => (bool more, float[4, 8] q) {
    q = Mul(p, two)
    m = Abs(q)
    t = ReduceMax<keepdims = 0>(m)
    more = Less(t, limit)
  }>(, yes, x)
  k = ReduceSum<keepdims = 0>(x)
  zero = Constant<value = float {0.0}>()
  cond = Greater(k, zero)
  z = If(cond)<then_branch = yes_side () => (float[4, 8] d) { d = Add(b, c) },
               else_branch = no_side () => (float[4, 8] e) { e = Sub(b, c) }>
}
)";
  check(model, {{}, {}}, 1e-5);
}

/// Flags are marked and counted by one kernel, and behind the size that comes of it another one stores their places.
TEST_F(EmulatedEngine, PlacesOfWhatIsSet) {
  fs::path model = folder / "places.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 20]>
places (float[300, N] x) => (int64[2, K] y, int64[1, L] z, float[M] v)
{
  y = NonZero(x)
  limit = Constant<value = float {0.5}>()
  above = Greater(x, limit)
  minus = Constant<value = int64[1] {-1}>()
  flags = Reshape(above, minus)
  flat = Reshape(x, minus)
  z = NonZero(flags)
  v = Compress(flat, flags)
}
)";
  check(model, {{{"N", 1}}, {{"N", 70}}}, 0);
}

/// Volumes are pictures of the planes of their results; a maximum of 16-bit elements is taken as they lie.
TEST_F(EmulatedEngine, VolumesAndMaxima) {
  fs::path model = folder / "volumes.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 20]>
volumes (float[N,4,6,9,8] x, float[6,2,3,2,3] w, float[6] b, float[N,6,5,7,6] v, float[6,1,3,3,3] d, float16[2,9,11,16] h)
  => (float[N,6,3,9,8] y, float[N,6,5,7,6] z, float16[2,5,6,16] p)
{
  c = Conv<group = 2, pads = [1,0,1,1,1,1], strides = [2,1,1]>(x, w, b)
  y = Relu(c)
  z = Conv<group = 6, pads = [2,1,1,2,1,1], dilations = [2,1,1]>(v, d)
  first = Transpose<perm = [0,3,1,2]>(h)
  m = MaxPool<kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]>(first)
  p = Transpose<perm = [0,2,3,1]>(m)
}
)";
  check(model, {{{"N", 1}}, {{"N", 3}}}, 1e-5);
}

/// Attention reads what a product left behind, tokens before heads, by strides.
TEST_F(EmulatedEngine, AttentionOfPackedHeads) {
  fs::path model = folder / "packed.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 24]>
packed (float[2,21,24] x, float[24,96] w) => (float[2,21,32] y)
<int64[4] heads = {2, 21, 2, 16}, int64[3] flat = {2, 21, 32}>
{
  m = MatMul(x, w)
  a, b, c = Split<axis = 2, num_outputs = 3>(m)
  ar = Reshape(a, heads)
  br = Reshape(b, heads)
  cr = Reshape(c, heads)
  q = Transpose<perm = [0,2,1,3]>(ar)
  k = Transpose<perm = [0,2,1,3]>(br)
  v = Transpose<perm = [0,2,1,3]>(cr)
  o = Attention(q, k, v)
  t = Transpose<perm = [0,2,1,3]>(o)
  y = Reshape(t, flat)
}
)";
  check(model, {{}}, 1e-5);
  // No kernel but the product and the attention: nothing was copied.
  EXPECT_EQ(runtime::cuda::fakeGpu().launches.size(), 2u);
}

/// Scores of all kinds, each attention one kernel that stores no score: a sink of each head, joined to the
/// scores and cut off the weights, with the log-sum-exp of all; ALiBi; a window; documents; a soft cap.
TEST_F(EmulatedEngine, AttentionOfManyScores) {
  fs::path model = folder / "scores.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 24]>
scores (float[2,4,37,16] q, float[2,4,70,16] k, float[2,4,70,16] v, float[1,1,37,70] mask, float[4] sinks,
        float[4,1,1] slopes, int32[2,37] mine, int32[2,70] theirs)
  => (float[2,4,37,16] y, float[2,4,37] l, float[2,4,37,16] a, float[2,4,37,16] w, float[2,4,37,16] d, float[2,4,37,16] c)
<float quarter = {0.25}, int64[4] heads = {1, 4, 1, 1}, int64[4] wide = {2, 4, 37, 1}, int64[1] zeros = {0},
 int64[1] ones = {1}, int64[1] twos = {2}, int64[1] minus = {-1}, int64[1] last = {3},
 int64 zero = {0}, int64 one = {1}, int64 queries = {37}, int64 keys = {70}, int64 reach = {9}>
{
  kt = Transpose<perm = [0,1,3,2]>(k)
  s = MatMul(q, kt)
  scaled = Mul(s, quarter)
  m = Add(scaled, mask)
  r = Reshape(sinks, heads)
  e = Expand(r, wide)
  j = Concat<axis = 3>(m, e)
  most = ReduceMax<keepdims = 1>(j, last)
  less = Sub(j, most)
  weights = Softmax<axis = -1>(less)
  p = Slice(weights, zeros, minus, last)
  y = MatMul(p, v)
  l = ReduceLogSumExp<keepdims = 0>(j, last)
  rows = Range(zero, queries, one)
  columns = Range(zero, keys, one)
  row = Unsqueeze(rows, ones)
  distance = Sub(columns, row)
  real = Cast<to = 1>(distance)
  bias = Mul(slopes, real)
  a = Attention(q, k, v, bias)
  far = Abs(distance)
  near = Less(far, reach)
  w = Attention(q, k, v, near)
  mine1 = Unsqueeze(mine, twos)
  theirs1 = Unsqueeze(theirs, ones)
  same = Equal(mine1, theirs1)
  document = Unsqueeze(same, ones)
  d = Attention(q, k, v, document)
  c = Attention<softcap = 2.0, is_causal = 1>(q, k, v)
}
)";
  check(model, {{}}, 1e-5);
  EXPECT_EQ(runtime::cuda::fakeGpu().launches.size(), 5u);
}

/// Numbers that look random, as the text of an initializer.
std::string numbers(size_t count, unsigned seed, double middle) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<double> uniform(middle - 1, middle + 1);
  std::string out;
  for (size_t i = 0; i < count; ++i)
    out += (i ? ", " : "") + std::to_string(uniform(gen));
  return "{" + out + "}";
}

/// One product of a row for the gate and what it gates.
TEST_F(EmulatedEngine, GatesOfOneRow) {
  fs::path model = folder / "row.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 23]>
row (float[1,600] x) => (float[1,44] y, float[1,600] s)
<float[600] g = )" << numbers(600, 1, 1)
                       << ", float[44,600] a = " << numbers(44 * 600, 2, 0)
                       << ", float[44,600] b = " << numbers(44 * 600, 3, 0)
                       << ", float[44,44] c = " << numbers(44 * 44, 4, 0) << R"(>
{
  xh = Cast<to = 10>(x)
  gh = Cast<to = 10>(g)
  ah = Cast<to = 10>(a)
  bh = Cast<to = 10>(b)
  ch = Cast<to = 10>(c)
  xx = Add(xh, xh)
  n = RMSNormalization<axis = -1, epsilon = 0.001>(xx, gh)
  p = Gemm<transB = 1>(n, ah)
  q = Gemm<transB = 1>(n, bh)
  ps = Sigmoid(p)
  pq = Mul(ps, q)
  r = Gemm<transB = 1>(pq, ch)
  y = Cast<to = 1>(r)
  s = Cast<to = 1>(xx)
}
)";
  check(model, {{}}, 2e-3);
  // The norm of the doubled row, the row in f32, the products of both gates, the third.
  EXPECT_EQ(runtime::cuda::fakeGpu().launches.size(), 4u);
}

/// Queries and keys of one row, rotated by their positions, and values: results of one product. `rotations` makes qh and
/// kh of their heads ra and rb by s and t, of `angles` each.
void EmulatedEngine::checkHeadsOfOneRow(const std::string &angles, int64_t count, const std::string &sizes,
                                        const std::string &rotations) {
  fs::path model = folder / "heads.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 11, opset_import: ["" : 23]>
heads (float[1,256] x) => (float[1,3,1,64] q, float[1,2,1,64] k, float[1,2,1,64] v)
<float[192,256] a = )" << numbers(192 * 256, 1, 0)
                       << ", float[128,256] b = " << numbers(128 * 256, 2, 0)
                       << ", float[128,256] c = " << numbers(128 * 256, 3, 0) << ", float[" << angles
                       << "] s = " << numbers(count, 4, 0) << ", float[" << angles
                       << "] t = " << numbers(count, 5, 0) << R"(,
 int64[4] three = {1,3,1,64}, int64[4] two = {1,2,1,64}, int64[1] none = {0}, int64[1] half = {32}, int64[1] all = {64}, int64[1] last = {3})"
                       << sizes << R"(>
{
  xh = Cast<to = 10>(x)
  ah = Cast<to = 10>(a)
  bh = Cast<to = 10>(b)
  ch = Cast<to = 10>(c)
  sh = Cast<to = 10>(s)
  th = Cast<to = 10>(t)
  ya = Gemm<transB = 1>(xh, ah)
  yb = Gemm<transB = 1>(xh, bh)
  yc = Gemm<transB = 1>(xh, ch)
  ra = Reshape(ya, three)
  rb = Reshape(yb, two)
  rc = Reshape(yc, two)
)" << rotations << R"(
  q = Cast<to = 1>(qh)
  k = Cast<to = 1>(kh)
  v = Cast<to = 1>(rc)
}
)";
  check(model, {{}}, 2e-3);
  // The row in 16 bits, and the product.
  EXPECT_EQ(runtime::cuda::fakeGpu().launches.size(), 2u);
}

TEST_F(EmulatedEngine, HeadsOfOneRow) {
  checkHeadsOfOneRow("1,64", 64, "", R"(  qs = Mul(ra, sh)
  qlow = Slice(ra, none, half, last)
  qhigh = Slice(ra, half, all, last)
  qminus = Neg(qhigh)
  qturned = Concat<axis = 3>(qminus, qlow)
  qt = Mul(qturned, th)
  qh = Add(qs, qt)
  ks = Mul(rb, sh)
  klow = Slice(rb, none, half, last)
  khigh = Slice(rb, half, all, last)
  kminus = Neg(khigh)
  kturned = Concat<axis = 3>(kminus, klow)
  kt = Mul(kturned, th)
  kh = Add(ks, kt))");
}

/// Neighbours that are turned together: of the op, and of half of each head alone by slices with steps.
TEST_F(EmulatedEngine, NeighboursOfOneRow) {
  checkHeadsOfOneRow("1,1,32", 32, R"(, int64[4] part = {1,2,1,32}, int64[1] one = {1}, int64[1] step = {2}, int64[1] end = {4})", R"(  qh = RotaryEmbedding<interleaved = 1>(ra, sh, th)
  turned = Slice(rb, none, half, last)
  rest = Slice(rb, half, all, last)
  even = Slice(turned, none, half, last, step)
  odd = Slice(turned, one, half, last, step)
  minus = Neg(odd)
  minusend = Unsqueeze(minus, end)
  evenend = Unsqueeze(even, end)
  pairs = Concat<axis = 4>(minusend, evenend)
  other = Reshape(pairs, part)
  os = Mul(other, th)
  ts = Mul(turned, sh)
  kt = Add(ts, os)
  kh = Concat<axis = 3>(kt, rest))");
}

/// Results of several sizes of one kernel have blocks of their own.
TEST_F(EmulatedEngine, SmallKernelsOverOneValueAreOne) {
  fs::path model = folder / "stacked.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 20]>
stacked (float[N,24] x, float[24,48] w) => (float[N,20] a, float[N,7] b, float[48,N] c)
<int64[1] zero = {0}, int64[1] five = {5}, int64[1] twelve = {12}, int64[1] twentyfive = {25}, int64[1] one = {1}>
{
  m = MatMul(x, w)
  p = Slice(m, five, twentyfive, one)
  q = Slice(m, five, twelve, one)
  a = Exp(p)
  b = Neg(q)
  t = Transpose<perm = [1,0]>(m)
  c = Abs(t)
}
)";
  check(model, {{{"N", 1}}, {{"N", 5}}, {{"N", 300}}}, 1e-5);
  // The product, its two slices together, the turned one by tiles.
  EXPECT_EQ(runtime::cuda::fakeGpu().launches.size(), 3 * 3u);
}

/// Rows that vectors do not divide, single elements, indices that count from the end, updates and
/// indices that are computed where they are written.
TEST_F(EmulatedEngine, ScattersWriteAllUpdatesAtOnce) {
  fs::path model = folder / "scatters.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 20]>
scatters (float[9,7] x, float[N,7] u, float[2,7] v, float[3] e, float[5,7] w) => (float[9,7] a, float[9,7] b, float[9,7] c, float[9,7] d)
<int64[5,1] others = {8, 3, -9, 1, 6}, int64[3,1] rows = {4, 0, 7}, int64[2,7] places = {0,1,2,3,4,5,6, -1,2,1,0,-2,8,3}, int64[3,2] at = {0,6, 8,-1, -9,0}, int64 one = {1}>
{
  n = Neg(u)
  shifted = Add(rows, one)
  a = ScatterND(x, shifted, n)
  grown = Exp(v)
  b = ScatterElements<axis = 0>(x, places, grown)
  c = ScatterND(x, at, e)
  d = ScatterND(x, others, w)
}
)";
  check(model, {{{"N", 3}}}, 1e-6, {"N=3"});
}

/// Updates of which several have a place, into the memory of what they change; windows of small groups; elements
/// beside their places; few columns that become rows.
TEST_F(EmulatedEngine, PiecesGroupsAndBoxes) {
  fs::path model = folder / "pieces.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 20]>
pieces (float[9,7] x, float[70,7] u, float16[2,16,9,18] image, float[1,3000] row, float[5,37,8] box)
  => (float[9,7] a, float[2,16,9,18] b, float[1,3000] c, int64[1,3000] order, float[37,8,5] d)
<int64 zero = {0}, int64 all = {490}, int64 one = {1}, int64 nine = {9}, int64[2] shape = {70, 7}, int64[1] many = {3000},
 int64[4] filters = {16, 8, 3, 3}, int64 weights = {1152}, float small = {0.01}, int64 eleven = {11}>
{
  counted = Range(zero, all, one)
  wrapped = Mod(counted, nine)
  places = Reshape(wrapped, shape)
  a = ScatterElements<axis = 0, reduction = "add">(x, places, u)
  numbers = Range(zero, weights, one)
  turned = Mod(numbers, eleven)
  numbered = Cast<to = 1>(turned)
  scaled = Mul(numbered, small)
  halves = Cast<to = 10>(scaled)
  w = Reshape(halves, filters)
  sums = Conv<group = 2, pads = [1,1,1,1]>(image, w)
  b = Cast<to = 1>(sums)
  c, order = TopK(row, many)
  d = Transpose<perm = [1,2,0]>(box)
}
)";
  check(model, {{}}, 2e-3);
}

/// Columns of updates that blocks share; depthwise rows of channels first; groups of four; neighbours along two axes.
TEST_F(EmulatedEngine, PartsRowsPairsAndNeighbours) {
  fs::path model = folder / "shared.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 20]>
shared (float[9,3] x, float[22000,3] u, float[2,16,9,18] image, float[2,6,77] line, float[1,3,17,20] small)
  => (float[9,3] a, float[2,16,9,18] b, float[2,6,77] c, float[1,3,34,30] d)
<int64 zero = {0}, int64 all = {66000}, int64 one = {1}, int64 nine = {9}, int64[2] shape = {22000, 3}, int64 weights = {576},
 int64[4] filters = {16, 4, 3, 3}, float hundredth = {0.01}, int64 eleven = {11}, int64 taps = {30}, int64[3] row = {6, 1, 5},
 float[4] scales = {1, 1, 2, 1.5}>
{
  counted = Range(zero, all, one)
  wrapped = Mod(counted, nine)
  places = Reshape(wrapped, shape)
  a = ScatterElements<axis = 0, reduction = "add">(x, places, u)
  numbers = Range(zero, weights, one)
  turned = Mod(numbers, eleven)
  numbered = Cast<to = 1>(turned)
  scaled = Mul(numbered, hundredth)
  halves = Cast<to = 10>(scaled)
  w = Reshape(halves, filters)
  narrow = Cast<to = 10>(image)
  sums = Conv<group = 4, pads = [1,1,1,1]>(narrow, w)
  b = Cast<to = 1>(sums)
  few = Range(zero, taps, one)
  counts = Cast<to = 1>(few)
  ofRow = Mul(counts, hundredth)
  v = Reshape(ofRow, row)
  c = Conv<group = 6, pads = [2,2]>(line, v)
  d = Resize<mode = "cubic">(small, "", scales)
}
)";
  check(model, {{}}, 5e-3);
}

TEST_F(EmulatedEngine, TextClassifier) {
  fs::path model = LATHE_CLS_MODEL;
  if (!fs::exists(model))
    GTEST_SKIP() << "no model at " << model;
  check(model, {{{"x_0", 1}, {"x_2", 48}, {"x_3", 96}}, {{"x_0", 2}, {"x_2", 48}, {"x_3", 61}}},
        1e-4);
}

constexpr int64_t kSequences = 17, kHeads = 16, kKeyHeads = 8, kHead = 16, kBlocks = 160, kStride = 6;

/// Gathers of a pool by a table, as an exporter writes them.
constexpr const char *kPagedModel = R"(<ir_version: 10, opset_import: ["" : 24]>
decode (float16[17,16,1,16] q, float16[160,2,8,16,16] pool, int32[17,6] table, int64[17] lengths)
  => (float16[17,16,1,16] y)
<int64 zero = {0}, int64 one = {1}, int64[4] flat = {17, 8, 96, 16}>
{
  kp = Gather<axis = 1>(pool, zero)
  vp = Gather<axis = 1>(pool, one)
  kg = Gather<axis = 0>(kp, table)
  vg = Gather<axis = 0>(vp, table)
  kt = Transpose<perm = [0,2,1,3,4]>(kg)
  vt = Transpose<perm = [0,2,1,3,4]>(vg)
  k = Reshape(kt, flat)
  v = Reshape(vt, flat)
  y = Attention(q, k, v, , , , lengths)
}
)";

struct Half {
  uint16_t bits;
  float value() const { return static_cast<float>(decodeFloat(DType::F16, bits)); }
};

std::vector<Half> noise(size_t count, unsigned seed) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<Half> out(count);
  for (Half &h : out)
    h.bits = static_cast<uint16_t>(encodeFloat(DType::F16, uniform(gen)));
  return out;
}

/// One query of each sequence over the tokens that its row of the table names.
void expectAttention(const Half *y, const std::vector<Half> &q, const Half *pool,
                     const std::vector<int32_t> &table, const std::vector<int64_t> &lengths) {
  for (int64_t s = 0; s < int64_t(lengths.size()); ++s)
    for (int64_t h = 0; h < kHeads; ++h) {
      auto at = [&](int64_t token, int64_t part, int64_t d) {
        int64_t block = table[s * kStride + token / 16];
        return double(pool[(((block * 2 + part) * kKeyHeads + h / 2) * 16 + token % 16) * kHead + d].value());
      };
      std::vector<double> weights(lengths[s]);
      double most = -INFINITY, total = 0;
      for (int64_t t = 0; t < lengths[s]; ++t) {
        for (int64_t d = 0; d < kHead; ++d)
          weights[t] += q[(s * kHeads + h) * kHead + d].value() * at(t, 0, d) / 4;
        most = std::max(most, weights[t]);
      }
      for (double &w : weights)
        total += w = std::exp(w - most);
      for (int64_t d = 0; d < kHead; ++d) {
        double want = 0;
        for (int64_t t = 0; t < lengths[s]; ++t)
          want += weights[t] / total * at(t, 1, d);
        ASSERT_NEAR(y[(s * kHeads + h) * kHead + d].value(), want, 2e-3) << "sequence " << s << " head " << h;
      }
    }
}

/// Keys and values lie where runtime/memory/kv put them: its TableWriter makes the tables, whose
/// entries beyond a sequence's length are as they happened to be.
TEST_F(EmulatedEngine, DecodingReadsTheBlocksOfTheCache) {
  // The cache: sequences of different lengths, blocks taken and given back in between.
  kv::Config config;
  engine::KvLayout &layout = config.groups[0].layout;
  layout.dtype = DType::F16;
  layout.heads = kKeyHeads;
  layout.headSizeK = layout.headSizeV = kHead;
  layout.alignment = 16;
  config.blocks = kBlocks;
  config.maxSequences = 64;
  config.maxSequenceTokens = kStride * 16;
  auto cache = kv::Cache::create(config);
  ASSERT_TRUE(cache.ok()) << cache.status().str();
  // The model's pool is what the layout says: keys, then values, head by head.
  Result<engine::KvOffsets> offsets = engine::kvOffsets(layout);
  ASSERT_TRUE(offsets.ok());
  ASSERT_EQ(offsets->values, kKeyHeads * 16 * kHead * 2);
  ASSERT_EQ(offsets->bytes, 2 * offsets->values);
  std::vector<kv::SeqId> ids;
  std::vector<int64_t> lengths;
  auto add = [&](uint32_t tokens) {
    kv::SeqId id;
    ASSERT_TRUE((*cache)->open({}, id).ok());
    ASSERT_TRUE((*cache)->begin().ok());
    std::vector<kv::Token> text(tokens);
    for (uint32_t i = 0; i < tokens; ++i)
      text[i] = static_cast<kv::Token>(1000 * ids.size() + i);
    kv::Append append{id, tokens};
    ASSERT_TRUE((*cache)->reserve({&append, 1}, text).ok());
    (*cache)->clearTransfers();
    ASSERT_TRUE((*cache)->commit().ok());
    ids.push_back(id);
    lengths.push_back(tokens);
  };
  for (uint32_t i = 0; i < kSequences + 3; ++i)
    add(1 + i * 37 % 96);
  for (int i = 0; i < 3; ++i) { // their blocks are elsewhere than in order from here on
    ASSERT_TRUE((*cache)->close(ids[2 * i]).ok());
    ids.erase(ids.begin() + 2 * i);
    lengths.erase(lengths.begin() + 2 * i);
  }
  std::vector<int32_t> table(kSequences * kStride, 0x7fffffff);
  kv::TableWriter writer(**cache, 0, table.data(), kSequences, kStride);
  writer.update(ids);

  fs::path model = folder / "decode.onnxtxt";
  std::ofstream(model) << kPagedModel;
  CompileOptions options;
  options.targets = {"sm_90a"};
  options.dumpDir = folder / "dump";
  Result<CompileResult> compiled = compileModel(model, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status().str();
  ASSERT_EQ(installKernels(folder / "dump", folder), "");
  EXPECT_EQ(runtime::cuda::fakeGpu().kernels.size(), 1u) << "pages are read where they lie";

  lathe_engine *engine = nullptr;
  ASSERT_EQ(lathe_engine_open_memory(compiled->bytes.data(), compiled->bytes.size(), &engine), nullptr);
  lathe_options run{};
  run.size = sizeof run;
  run.no_graphs = 1;
  lathe_context *context = nullptr;
  ASSERT_EQ(lathe_context_create(engine, "fake:0", &run, &context), nullptr);
  std::vector<Half> q = noise(kSequences * kHeads * kHead, 1), pool = noise(kBlocks * 2 * kKeyHeads * 16 * kHead, 2);
  const int64_t qd[] = {kSequences, kHeads, 1, kHead}, pd[] = {kBlocks, 2, kKeyHeads, 16, kHead},
                td[] = {kSequences, kStride}, ld[] = {kSequences};
  lathe_tensor in[] = {{q.data(), q.size() * 2, LATHE_F16, LATHE_HOST, 4, qd, nullptr},
                       {pool.data(), pool.size() * 2, LATHE_F16, LATHE_HOST, 5, pd, nullptr},
                       {table.data(), table.size() * 4, LATHE_I32, LATHE_HOST, 2, td, nullptr},
                       {lengths.data(), lengths.size() * 8, LATHE_I64, LATHE_HOST, 1, ld, nullptr}};
  lathe_tensor out{};
  lathe_error *e = lathe_run(context, nullptr, in, 4, &out, 1);
  ASSERT_EQ(e, nullptr) << lathe_error_message(e);
  const auto *y = static_cast<const Half *>(out.data);
  expectAttention(y, q, pool.data(), table, lengths);
  lathe_context_destroy(context);
  lathe_engine_close(engine);
}

/// Two steps that store keys and values into the pages that the attention then reads, in the memory
/// of the caller: nothing else of the pool is touched, and nothing is copied.
TEST_F(EmulatedEngine, DecodingWritesTheBlocksInPlace) {
  constexpr int64_t kSteps = 2;
  fs::path model = folder / "step.onnxtxt";
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 24]>
step (float16[17,16,1,16] q, float16[17,8,16] k, float16[17,8,16] v, float16[160,2,8,16,16] pool,
      int32[17,6] table, int64[17] positions) => (float16[17,16,1,16] y, float16[160,2,8,16,16] next)
<int64 zero = {0}, int64 one = {1}, int64 page = {16}, int64[1] last = {1}, int64[1] third = {2},
 int64[2] behind = {1, 2}, int64[4] flat = {17, 8, 96, 16}, int64[4] first = {1, 0, 0, 0}, int64[4] fourth = {0, 0, 0, 1},
 int64[1,8,4] keys = {0,0,0,0, 0,0,1,0, 0,0,2,0, 0,0,3,0, 0,0,4,0, 0,0,5,0, 0,0,6,0, 0,0,7,0},
 int64[4] values = {0, 1, 0, 0}>
{
  ordinal = Div(positions, page)
  column = Unsqueeze(ordinal, last)
  block32 = GatherElements<axis = 1>(table, column)
  block = Cast<to = 7>(block32)
  block3 = Unsqueeze(block, third)
  slot = Mod(positions, page)
  slot3 = Unsqueeze(slot, behind)
  b = Mul(block3, first)
  s = Mul(slot3, fourth)
  place = Add(b, s)
  kplace = Add(place, keys)
  vplace = Add(kplace, values)
  pool1 = ScatterND(pool, kplace, k)
  next = ScatterND(pool1, vplace, v)
  kp = Gather<axis = 1>(next, zero)
  vp = Gather<axis = 1>(next, one)
  kg = Gather<axis = 0>(kp, table)
  vg = Gather<axis = 0>(vp, table)
  kt = Transpose<perm = [0,2,1,3,4]>(kg)
  vt = Transpose<perm = [0,2,1,3,4]>(vg)
  ka = Reshape(kt, flat)
  va = Reshape(vt, flat)
  lengths = Add(positions, one)
  y = Attention(q, ka, va, , , , lengths)
}
)";
  CompileOptions options;
  options.targets = {"sm_90a"};
  options.donate = {"pool=next"};
  options.dumpDir = folder / "dump";
  Result<CompileResult> compiled = compileModel(model, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status().str();
  ASSERT_EQ(installKernels(folder / "dump", folder), "");
  lathe_engine *engine = nullptr;
  ASSERT_EQ(lathe_engine_open_memory(compiled->bytes.data(), compiled->bytes.size(), &engine), nullptr);
  EXPECT_EQ(lathe_engine_input(engine, nullptr, 3)->donated_to, 1);
  lathe_options run{};
  run.size = sizeof run;
  run.no_graphs = 1;
  lathe_context *context = nullptr;
  ASSERT_EQ(lathe_context_create(engine, "fake:0", &run, &context), nullptr);

  constexpr size_t kPool = kBlocks * 2 * kKeyHeads * 16 * kHead, kRow = kSequences * kKeyHeads * kHead;
  std::vector<Half> want = noise(kPool, 2);
  std::unique_ptr<Half, decltype(&std::free)> pool(
      static_cast<Half *>(std::aligned_alloc(256, kPool * sizeof(Half))), std::free);
  std::copy(want.begin(), want.end(), pool.get());
  std::vector<int32_t> table(kSequences * kStride);
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<int32_t>(i * 37 % kBlocks);
  std::vector<int64_t> positions(kSequences); // pages end and begin between the steps
  for (int64_t s = 0; s < kSequences; ++s)
    positions[s] = s * 47 % 95;
  positions[0] = 15;
  const int64_t qd[] = {kSequences, kHeads, 1, kHead}, kd[] = {kSequences, kKeyHeads, kHead},
                pd[] = {kBlocks, 2, kKeyHeads, 16, kHead}, td[] = {kSequences, kStride}, ld[] = {kSequences};
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<Half> q = noise(kSequences * kHeads * kHead, 3 + 3 * step), k = noise(kRow, 4 + 3 * step),
                      v = noise(kRow, 5 + 3 * step);
    lathe_tensor caller{pool.get(), kPool * sizeof(Half), LATHE_F16, LATHE_DEVICE, 5, pd, nullptr};
    lathe_tensor in[] = {{q.data(), q.size() * 2, LATHE_F16, LATHE_HOST, 4, qd, nullptr},
                         {k.data(), k.size() * 2, LATHE_F16, LATHE_HOST, 3, kd, nullptr},
                         {v.data(), v.size() * 2, LATHE_F16, LATHE_HOST, 3, kd, nullptr},
                         caller,
                         {table.data(), table.size() * 4, LATHE_I32, LATHE_HOST, 2, td, nullptr},
                         {positions.data(), positions.size() * 8, LATHE_I64, LATHE_HOST, 1, ld, nullptr}};
    lathe_tensor out[] = {{}, caller};
    lathe_error *e = lathe_run(context, nullptr, in, 6, out, 2);
    ASSERT_EQ(e, nullptr) << lathe_error_message(e);
    EXPECT_EQ(out[1].data, pool.get());
    std::vector<int64_t> lengths;
    for (int64_t s = 0; s < kSequences; ++s) {
      int64_t block = table[s * kStride + positions[s] / 16];
      for (int64_t h = 0; h < kKeyHeads; ++h)
        for (int64_t d = 0; d < kHead; ++d)
          for (int64_t part : {0, 1})
            want[(((block * 2 + part) * kKeyHeads + h) * 16 + positions[s] % 16) * kHead + d] =
                (part ? v : k)[(s * kKeyHeads + h) * kHead + d];
      lengths.push_back(++positions[s]);
    }
    EXPECT_EQ(std::memcmp(want.data(), pool.get(), kPool * sizeof(Half)), 0) << "step " << step;
    expectAttention(static_cast<const Half *>(out[0].data), q, pool.get(), table, lengths);
  }
  lathe_context_destroy(context);
  lathe_engine_close(engine);
}

} // namespace
