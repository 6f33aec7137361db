//===- Reduce.cpp - the arithmetic of collectives ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Communicator.h"

#include "lathe/support/Half.h"

#include <cmath>
#include <cstring>
#include <type_traits>

namespace lathe::runtime {

namespace {

using Reduction = Exchange::Reduction;

template <typename T> T combine(Reduction reduction, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (reduction) {
    case Reduction::Sum:
      return a + b;
    case Reduction::Prod:
      return a * b;
    case Reduction::Max: // NaN where either is
      return std::isnan(a) || a > b ? a : b;
    case Reduction::Min:
      return std::isnan(a) || a < b ? a : b;
    }
  } else {
    using U = std::make_unsigned_t<T>; // sums and products wrap
    // The product of two 16-bit numbers would be computed as an int, which does not wrap.
    using Wide = std::conditional_t<sizeof(U) < 4, uint32_t, U>;
    switch (reduction) {
    case Reduction::Sum:
      return T(U(Wide(U(a)) + Wide(U(b))));
    case Reduction::Prod:
      return T(U(Wide(U(a)) * Wide(U(b))));
    case Reduction::Max:
      return a > b ? a : b;
    case Reduction::Min:
      return a < b ? a : b;
    }
  }
  return a;
}

/// The place of element `i` of a part in the memory of an input, or of the output of `member`.
int64_t placeOf(const Exchange &x, size_t member, size_t members, int64_t i) {
  if (x.kind != Exchange::Kind::ReduceScatter)
    return i;
  return (i / x.run * int64_t(members) + int64_t(member)) * x.run + i % x.run;
}

/// T: as stored; load and store: to and from what is added.
template <typename T, typename Load, typename Store>
void reduce(const Exchange &x, size_t member, std::span<const void *const> ins,
            std::span<void *const> outs, int64_t begin, int64_t end, Load load, Store store) {
  for (int64_t i = begin; i < end; ++i) {
    int64_t at = placeOf(x, member, ins.size(), i);
    auto sum = load(static_cast<const T *>(ins[0])[at]);
    for (size_t m = 1; m < ins.size(); ++m)
      sum = combine(x.reduction, sum, load(static_cast<const T *>(ins[m])[at]));
    for (void *out : outs)
      static_cast<T *>(out)[i] = store(sum);
  }
}

template <typename T>
void reduceAs(const Exchange &x, size_t member, std::span<const void *const> ins,
              std::span<void *const> outs, int64_t begin, int64_t end) {
  auto same = [](T value) { return value; };
  reduce<T>(x, member, ins, outs, begin, end, same, same);
}

} // namespace

bool isReducible(DType dtype) {
  switch (dtype) {
  case DType::F64:
  case DType::F32:
  case DType::F16:
  case DType::BF16:
  case DType::I8:
  case DType::I16:
  case DType::I32:
  case DType::I64:
  case DType::UI8:
  case DType::UI16:
  case DType::UI32:
  case DType::UI64:
    return true;
  default:
    return false;
  }
}

void reduceElements(const Exchange &x, size_t member, std::span<const void *const> ins,
                    std::span<void *const> outs, int64_t begin, int64_t end) {
  switch (x.dtype) {
  case DType::F64:
    return reduceAs<double>(x, member, ins, outs, begin, end);
  case DType::F32:
    return reduceAs<float>(x, member, ins, outs, begin, end);
  case DType::F16:
    return reduce<uint16_t>(x, member, ins, outs, begin, end, f16ToFloat, floatToF16);
  case DType::BF16:
    return reduce<uint16_t>(x, member, ins, outs, begin, end, bf16ToFloat, floatToBf16);
  case DType::I8:
    return reduceAs<int8_t>(x, member, ins, outs, begin, end);
  case DType::I16:
    return reduceAs<int16_t>(x, member, ins, outs, begin, end);
  case DType::I32:
    return reduceAs<int32_t>(x, member, ins, outs, begin, end);
  case DType::I64:
    return reduceAs<int64_t>(x, member, ins, outs, begin, end);
  case DType::UI8:
    return reduceAs<uint8_t>(x, member, ins, outs, begin, end);
  case DType::UI16:
    return reduceAs<uint16_t>(x, member, ins, outs, begin, end);
  case DType::UI32:
    return reduceAs<uint32_t>(x, member, ins, outs, begin, end);
  default:
    return reduceAs<uint64_t>(x, member, ins, outs, begin, end);
  }
}

} // namespace lathe::runtime
