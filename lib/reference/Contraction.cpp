//===- Contraction.cpp - reference of matmul -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products summed over an inner dimension, in double; integers exactly.
//
//===----------------------------------------------------------------------===//
#include "Call.h"

namespace lathe::reference {
namespace {

/// Matrices [rows, columns], transposed.
std::vector<double> turned(const std::vector<double> &x, int64_t rows, int64_t columns) {
  std::vector<double> y(x.size());
  for (size_t at = 0; at < x.size(); at += rows * columns)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        y[at + j * rows + i] = x[at + i * columns + j];
  return y;
}

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
  std::vector<double> x, w, sums;
  if (real) {
    x = reals(a);
    w = transposeB ? turned(reals(b), n, depth) : reals(b);
  }
  forEachIndex(batch, [&](const Index &index, int64_t p) {
    int64_t baseA = broadcastPosition(batchA, index) * m * depth;
    int64_t baseB = broadcastPosition(batchB, index) * n * depth;
    for (int64_t i = 0; i < m; ++i) {
      auto atA = [&](int64_t k) { return baseA + (transposeA ? k * m + i : i * depth + k); };
      int64_t row = (p * m + i) * n;
      if (!real) {
        for (int64_t j = 0; j < n; ++j) {
          uint64_t sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += static_cast<uint64_t>(a.integer(atA(k))) *
                   static_cast<uint64_t>(b.integer(baseB + (transposeB ? j * depth + k : k * n + j)));
          y.setInteger(row + j, static_cast<int64_t>(sum));
        }
        continue;
      }
      // A row at a time, so that rows of b are read as they lie; each sum still goes by ascending k.
      sums.assign(n, 0);
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t j = 0; j < n; ++j)
          sums[j] += x[atA(k)] * w[baseB + k * n + j];
      for (int64_t j = 0; j < n; ++j)
        y.setReal(row + j, sums[j]);
    }
  });
}

constexpr Entry kOps[] = {{"matmul", matmul}};

} // namespace

std::span<const Entry> contractionOps() { return kOps; }

} // namespace lathe::reference
