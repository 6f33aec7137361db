//===- TensorList.cpp - lists of tensors as tensors of an entry -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/support/TensorList.h"

#include <algorithm>

namespace lathe {

Result<std::vector<HostTensor>> packList(const std::optional<std::vector<HostTensor>> &tensors, DType dtype,
                                         bool hasPresent) {
  std::span<const HostTensor> list;
  if (tensors)
    list = *tensors;
  int64_t columns = 1, elements = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].dtype != dtype)
      return usageError("is of " + std::string(name(list[i].dtype)) + " in a list of " + std::string(name(dtype)),
                        "tensor " + std::to_string(i));
    columns = std::max(columns, 1 + list[i].rank());
    elements += list[i].count();
  }
  HostTensor values(dtype, {elements}), shapes(DType::I64, {int64_t(list.size()), columns});
  auto next = values.data.begin();
  for (size_t i = 0; i < list.size(); ++i) {
    next = std::copy(list[i].data.begin(), list[i].data.end(), next);
    shapes.setInteger(int64_t(i) * columns, list[i].rank());
    for (int64_t d = 0; d < list[i].rank(); ++d)
      shapes.setInteger(int64_t(i) * columns + 1 + d, list[i].dims[d]);
  }
  std::vector<HostTensor> parts = {std::move(values), std::move(shapes)};
  if (hasPresent) {
    parts.emplace_back(DType::Bool, std::vector<int64_t>());
    parts.back().setInteger(0, tensors.has_value());
  }
  return parts;
}

} // namespace lathe
