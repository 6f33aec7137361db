//===- Contraction.cpp - reference of matmul -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products summed over an inner dimension, in double; integers exactly.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

namespace lathe::reference {
namespace {

void matmul(Call &call) {
  bool transposeA = call.integerOr("transpose_a", 0), transposeB = call.integerOr("transpose_b", 0);
  if (!call.expectInputs(2, 2))
    return;
  const Tensor &a = call.in(0), &b = call.in(1);
  Tensor &y = call.out();
  call.require(!isComplex(a.dtype) && !isComplex(b.dtype), "needs real numbers");
  if (!call.require(a.rank() >= 2 && b.rank() >= 2 && y.rank() >= 2, "ranks are below 2"))
    return;
  int64_t rowsA = a.dims[a.rank() - 2], colsA = a.dims.back();
  int64_t rowsB = b.dims[b.rank() - 2], colsB = b.dims.back();
  int64_t m = transposeA ? colsA : rowsA, depth = transposeA ? rowsA : colsA;
  int64_t n = transposeB ? rowsB : colsB, depthB = transposeB ? colsB : rowsB;
  std::vector<int64_t> batchA(a.dims.begin(), a.dims.end() - 2);
  std::vector<int64_t> batchB(b.dims.begin(), b.dims.end() - 2);
  std::vector<int64_t> batch(y.dims.begin(), y.dims.end() - 2);
  call.require(depth == depthB, "depths differ");
  call.require(y.dims[y.rank() - 2] == m && y.dims.back() == n, "result sizes do not fit");
  call.require(broadcastsTo(batchA, batch) && broadcastsTo(batchB, batch),
               "batch dimensions do not broadcast");
  if (!call.ok())
    return;
  bool real = isFloat(a.dtype) || isFloat(b.dtype);
  std::vector<double> x, w;
  if (real) {
    x = reals(a);
    w = reals(b);
  }
  forEachIndex(batch, [&](const Index &index, int64_t p) {
    int64_t baseA = broadcastPosition(batchA, index) * m * depth;
    int64_t baseB = broadcastPosition(batchB, index) * n * depth;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        uint64_t integerSum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          int64_t atA = baseA + (transposeA ? k * m + i : i * depth + k);
          int64_t atB = baseB + (transposeB ? j * depth + k : k * n + j);
          if (real)
            sum += x[atA] * w[atB];
          else
            integerSum += static_cast<uint64_t>(a.integer(atA)) *
                          static_cast<uint64_t>(b.integer(atB));
        }
        int64_t to = (p * m + i) * n + j;
        if (real)
          y.setReal(to, sum);
        else
          y.setInteger(to, static_cast<int64_t>(integerSum));
      }
  });
}

constexpr Entry kOps[] = {{"matmul", matmul}};

} // namespace

std::span<const Entry> contractionOps() { return kOps; }

} // namespace lathe::reference
