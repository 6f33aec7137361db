//===- Wanted.h - a family with one configuration for each kernel -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_DEVICE_WANTED_H
#define LATHE_CODEGEN_DEVICE_WANTED_H

#include "lathe/codegen/Choice.h"

namespace lathe::select {

/// Whether nothing but `c` is asked for by --config. A usage error where another configuration of its family is.
inline Result<bool> isWanted(const KernelDesc &desc, const KernelConfig &c) {
  if (desc.wanted.empty() || desc.wanted == c.str())
    return true;
  if (Result<KernelConfig> wanted = KernelConfig::parse(desc.wanted); wanted && wanted->form == c.form)
    return usageError("this convolution cannot run as '" + desc.wanted + "', but as '" + c.str() + "'",
                      "--config, kernel " + desc.name);
  return false;
}

} // namespace lathe::select

#endif // LATHE_CODEGEN_DEVICE_WANTED_H
