//===- Quantize.cpp - reference of quantize and dequantize -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers to codes of few bits and back. Steps are rounded to f32 as the definition
// says (f64 where the result, or the scale that divides, is f64).
//
//===----------------------------------------------------------------------===//
#include "Call.h"

#include <algorithm>
#include <cmath>

namespace lathe::reference {
namespace {

/// The operands that are there, by the segments of the op: null where one is not; the first is.
std::vector<const Tensor *> segments(Call &call, size_t count) {
  std::vector<int64_t> sizes = call.integers("operandSegmentSizes", count);
  std::vector<const Tensor *> operands(count);
  size_t next = 0;
  for (size_t i = 0; i < count; ++i)
    if (sizes[i] == 1 && call.require(next < call.inputs.size(), "lacks an operand"))
      operands[i] = &call.in(next++);
  call.require(next == call.inputs.size(), "has operands beyond its segments");
  call.require(operands[0] != nullptr, "lacks its data");
  return operands;
}

void noComplex(Call &call) {
  for (const Tensor &input : call.inputs)
    call.require(!isComplex(input.dtype), "computes no complex numbers");
  call.require(!isComplex(call.out().dtype), "computes no complex numbers");
}

/// Place of the parameter of an element.
struct Blocks {
  std::vector<int64_t> block; ///< empty: as numpy broadcasts

  int64_t at(const Tensor &parameter, const Index &index) const {
    if (block.empty())
      return broadcastPosition(parameter.dims, index);
    Index of = index;
    for (size_t d = 0; d < of.size(); ++d)
      of[d] /= block[d];
    return broadcastPosition(parameter.dims, of);
  }
};

Blocks blocksOf(Call &call, const Tensor &data) {
  Blocks blocks{call.has("block") ? call.integers("block") : std::vector<int64_t>()};
  if (blocks.block.empty())
    return blocks;
  call.require(blocks.block.size() == data.dims.size() && data.dims == call.out().dims,
               "block needs a number a dimension of equal operand and result");
  for (int64_t b : blocks.block)
    call.require(b > 0, "block sizes are positive");
  return blocks;
}

/// Whether a parameter has an element for each that is asked for.
void checkParameter(Call &call, const Blocks &blocks, const Tensor *parameter,
                    const std::vector<int64_t> &dims) {
  if (!parameter || !call.ok())
    return;
  std::vector<int64_t> of = dims;
  for (size_t d = 0; d < blocks.block.size(); ++d)
    of[d] = (of[d] + blocks.block[d] - 1) / blocks.block[d];
  call.require(broadcastsTo(parameter->dims, of), "a parameter does not fit the blocks");
}

void dequantize(Call &call) {
  if (!call.expectInputs(1, 5))
    return;
  std::vector<const Tensor *> operands = segments(call, 5);
  noComplex(call);
  if (!call.ok())
    return;
  const Tensor &data = *operands[0], *scale = operands[1], *zero = operands[2],
               *outer = operands[3], *codebook = operands[4];
  Tensor &y = call.out();
  Blocks blocks = blocksOf(call, data);
  call.require(broadcastsTo(data.dims, y.dims), "operand does not broadcast to result");
  checkParameter(call, blocks, scale, y.dims);
  checkParameter(call, blocks, zero, y.dims);
  call.require(!outer || (scale && outer->count() == 1), "the outer scale is one number beside a scale");
  call.require(!codebook || (!isFloat(data.dtype) && bitWidth(data.dtype) <= 8 &&
                             codebook->count() == int64_t(1) << bitWidth(data.dtype)),
               "the codebook needs a number for each code");
  if (!call.ok())
    return;
  bool wide = y.dtype == DType::F64;
  auto step = [&](double v) { return wide ? v : double(float(v)); };
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    int64_t at = broadcastPosition(data.dims, index);
    if (!isFloat(y.dtype)) {
      int64_t from = zero ? zero->integer(blocks.at(*zero, index)) : 0;
      y.setInteger(i, static_cast<int64_t>(uint64_t(data.integer(at)) - uint64_t(from)));
      return;
    }
    double v;
    if (codebook) {
      int64_t mask = codebook->count() - 1;
      v = step(codebook->real(data.integer(at) & mask));
    } else {
      v = step(data.real(at));
      if (zero)
        v = step(v - step(zero->real(blocks.at(*zero, index))));
    }
    if (scale) {
      double by = step(scale->real(blocks.at(*scale, index)));
      v = step(v * (outer ? step(by * step(outer->real(0))) : by));
    }
    y.setReal(i, v);
  });
}

/// First and last number of an integer type.
std::pair<double, double> rangeOf(DType type) {
  double span = std::exp2(double(bitWidth(type)) - (isUnsigned(type) ? 0 : 1));
  return {isUnsigned(type) ? 0 : -span, span - 1};
}

void quantize(Call &call) {
  bool saturate = call.integerOr("saturate", 1);
  if (!call.expectInputs(2, 3))
    return;
  noComplex(call);
  const Tensor &x = call.in(0), &scale = call.in(1), *zero = call.hasInput(2) ? &call.in(2) : nullptr;
  Tensor &y = call.out();
  Blocks blocks = blocksOf(call, x);
  call.require(broadcastsTo(x.dims, y.dims), "operand does not broadcast to result");
  checkParameter(call, blocks, &scale, y.dims);
  checkParameter(call, blocks, zero, y.dims);
  call.require(isFloat(scale.dtype), "the scale is no float");
  if (!call.ok())
    return;
  bool wide = scale.dtype == DType::F64;
  auto step = [&](double v) { return wide ? v : double(float(v)); };
  Tensor rounded(scale.dtype, {1}); // x in the scale's type
  Overflow overflow =
      saturate && bitWidth(y.dtype) <= 8 ? Overflow::Saturate : Overflow::Special;
  forEachIndex(y.dims, [&](const Index &index, int64_t i) {
    rounded.setReal(0, x.real(broadcastPosition(x.dims, index)));
    double v = step(rounded.real(0) / scale.real(blocks.at(scale, index)));
    if (isFloat(y.dtype)) {
      y.setReal(i, v, overflow);
      return;
    }
    v = std::nearbyint(v);
    if (zero)
      v = step(v + step(zero->real(blocks.at(*zero, index))));
    auto [low, high] = rangeOf(y.dtype);
    y.setReal(i, std::min(std::max(v, low), high));
  });
}

constexpr Entry kOps[] = {{"dequantize", dequantize}, {"quantize", quantize}};

} // namespace

std::span<const Entry> quantizeOps() { return kOps; }

} // namespace lathe::reference
