//===- CpuRecurrentTest.cpp - LSTM and GRU kernels on the CPU -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All steps against plain loops, by one thread and by several that share a
// block: the number of threads changes no bit.
//
//===----------------------------------------------------------------------===//

#include "CpuSkeleton.h"

#include <cmath>

using namespace lathe;
using namespace lathe::test;

namespace {

struct Cell {
  bool lstm;
  int64_t steps, batch, hidden;
  bool reverse, resetLast;
  int64_t gates() const { return lstm ? 4 : 3; }
};

struct Data {
  std::vector<float> x, r, h, c, bias;
  explicit Data(const Cell &k)
      : x(noise(k.steps * k.batch * k.gates() * k.hidden, 1)),
        r(noise(k.gates() * k.hidden * k.hidden, 2)), h(noise(k.batch * k.hidden, 3)),
        c(noise(k.batch * k.hidden, 4)), bias(noise(k.hidden, 5)) {
    for (float &w : r)
      w /= std::sqrt(float(k.hidden)); // steps forget, so that rounding does not grow
  }
};

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

/// All hidden states, and the last cell of an LSTM behind them.
std::vector<float> result(const Cell &k, const Data &d) {
  std::vector<double> h(d.h.begin(), d.h.end()), c(d.c.begin(), d.c.end());
  std::vector<float> out(k.steps * k.batch * k.hidden);
  const int64_t H = k.hidden, G = k.gates();
  for (int64_t i = 0; i < k.steps; ++i) {
    int64_t s = k.reverse ? k.steps - 1 - i : i;
    std::vector<double> before = h;
    for (int64_t b = 0; b < k.batch; ++b) {
      auto product = [&](int64_t g, int64_t j, auto state) {
        double sum = 0;
        for (int64_t m = 0; m < H; ++m)
          sum += d.r[(g * H + j) * H + m] * state(m);
        return sum;
      };
      auto old = [&](int64_t m) { return before[b * H + m]; };
      auto in = [&](int64_t g, int64_t j) {
        return double(d.x[((s * k.batch + b) * G + g) * H + j]);
      };
      auto gate = [&](int64_t g, int64_t j) { return sigmoid(in(g, j) + product(g, j, old)); };
      for (int64_t j = 0; j < H; ++j) {
        double &to = h[b * H + j];
        if (k.lstm) {
          double &cell = c[b * H + j];
          cell = gate(2, j) * cell + gate(0, j) * std::tanh(in(3, j) + product(3, j, old));
          to = gate(1, j) * std::tanh(cell);
        } else {
          double n = k.resetLast
                         ? gate(1, j) * (product(2, j, old) + d.bias[j])
                         : product(2, j, [&](int64_t m) { return gate(1, m) * old(m); });
          double z = gate(0, j);
          to = (1 - z) * std::tanh(in(2, j) + n) + z * before[b * H + j];
        }
        out[(s * k.batch + b) * H + j] = float(to);
      }
    }
  }
  if (k.lstm)
    out.insert(out.end(), c.begin(), c.end());
  return out;
}

std::string textOf(const Cell &k) {
  auto s = [](int64_t v) { return std::to_string(v); };
  std::string gates = s(k.gates() * k.hidden);
  std::string state = "tensor<" + s(k.batch) + "x" + s(k.hidden) + "xf32>";
  std::string x = "tensor<" + s(k.steps) + "x" + s(k.batch) + "x" + gates + "xf32>";
  std::string r = "tensor<" + gates + "x" + s(k.hidden) + "xf32>";
  std::string last = "tensor<" + s(k.hidden) + "xf32>";
  std::string y = "tensor<" + s(k.steps) + "x" + s(k.batch) + "x" + s(k.hidden) + "xf32>";
  std::string extra = k.lstm ? state : k.resetLast ? last : "";
  std::string types = x + ", " + r + ", " + state + (extra.empty() ? "" : ", " + extra);
  std::string results = k.lstm ? "(" + y + ", " + state + ")" : y;
  std::string segments = k.lstm ? "1, 0" : k.resetLast ? "0, 1" : "0, 0";
  return "func.func @f(%x: " + x + ", %r: " + r + ", %h: " + state +
         (extra.empty() ? "" : ", %e: " + extra) + ") -> " + results + " {\n %0" +
         (k.lstm ? ":2" : "") + " = lathe.recurrent %x, %r, %h" + (extra.empty() ? "" : ", %e") +
         " {" + (k.reverse ? "reverse, " : "") + (k.resetLast ? "reset_last, " : "") +
         "operandSegmentSizes = array<i32: 1, 1, 1, " + segments + ">} : (" + types + ") -> " +
         results + "\n return " + (k.lstm ? "%0#0, %0#1 : " + y + ", " + state : "%0 : " + y) +
         "\n}";
}

TEST(CpuRecurrent, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Machine &m : machines())
    for (const Cell &k : {Cell{true, 9, 1, 37, false, false}, Cell{true, 6, 5, 64, true, false},
                          Cell{true, 0, 2, 16, false, false}, Cell{true, 3, 1, 7, false, false},
                          Cell{false, 8, 1, 48, false, true}, Cell{false, 7, 3, 21, true, false},
                          Cell{false, 5, 4, 80, false, false}}) {
      Data d(k);
      std::string packing = "gates" + std::to_string(k.gates()) + "x" + std::to_string(m.lanes);
      Bytes weights =
          packed(packing, bytesOf(d.r), DType::F32, {k.gates() * k.hidden, k.hidden});
      std::vector<Bytes> in = {bytesOf(d.x), weights, bytesOf(d.h)};
      if (k.lstm || k.resetLast)
        in.push_back(bytesOf(k.lstm ? d.c : d.bias));
      int64_t rows = m.lanes == 16 ? 4 : 2;
      int64_t padded = (k.hidden + m.lanes - 1) / m.lanes * m.lanes;
      auto s = [](int64_t v) { return std::to_string(v); };
      std::string config = "recurrent.v" + s(m.lanes) + ".r" + s(rows);
      std::vector<float> first;
      for (int64_t together : {1, 16}) {
        CpuKernel kernel(textOf(k), config, m.target, s((k.batch + rows - 1) / rows),
                         [&](KernelSpec &spec) {
                           spec.buffers[1].packing = packing;
                           spec.scratchBytes = DimExpr(3 * rows * padded * 4);
                           spec.launches[0].cluster[1] = together;
                         });
        ASSERT_EQ(kernel.error, "") << textOf(k);
        for (int members : {1, 2, 3, 7}) {
          if (members > together)
            break;
          kernel.members = members;
          std::vector<float> got;
          for (const Bytes &out : kernel.run(in))
            for (float v : valuesOf<float>(out))
              got.push_back(v);
          ASSERT_EQ(kernel.error, "");
          std::string what = textOf(k) + m.target + " by " + std::to_string(members);
          if (first.empty()) {
            first = got;
            expectNear(got, result(k, d), 3e-6f, what);
          }
          ASSERT_EQ(got, first) << what;
        }
      }
    }
}

} // namespace
