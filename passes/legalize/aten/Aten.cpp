//===- Aten.cpp - torch's operators -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Aten.h"

namespace lathe::legal {

void addAten(Handlers &h) {
  aten::addElementwise(h);
  aten::addMovement(h);
  aten::addGathers(h);
  aten::addReductions(h);
  aten::addProducts(h);
  aten::addWindows(h);
  aten::addNormalizations(h);
  aten::addFourier(h);
}

} // namespace lathe::legal
