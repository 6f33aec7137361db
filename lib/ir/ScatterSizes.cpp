//===- ScatterSizes.cpp - what a scatter's indices name -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/ir/ScatterSizes.h"

using namespace mlir;

namespace lathe {

ScatterSizes ScatterSizes::of(Operation *scatter) {
  ScatterSizes sizes;
  const std::vector<DimExpr> dims = dimsOf(scatter->getResult(0)), from = dimsOf(scatter->getOperand(2));
  const int64_t rank = dims.size();
  auto elements = dyn_cast<ScatterElementsOp>(scatter);
  if (elements) {
    sizes.updates = {from[elements.getAxis()]};
  } else {
    sizes.updates = dimsOf(scatter->getOperand(1));
    sizes.updates.pop_back(); // the tuple
  }
  const int64_t tuple = rank - (int64_t(from.size()) - int64_t(sizes.updates.size())); // of scatter_nd
  for (int64_t d = 0; d < rank; ++d)
    if (elements ? d == int64_t(elements.getAxis()) : d < tuple) {
      sizes.named.push_back(d);
      sizes.places.push_back(dims[d]);
    } else {
      sizes.beside.push_back(d);
      sizes.columns.push_back(elements ? from[d] : dims[d]);
    }
  return sizes;
}

} // namespace lathe
