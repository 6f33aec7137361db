//===- ListOps.h - ops on lists of tensors ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_HOST_LISTOPS_H
#define LATHE_RUNTIME_HOST_LISTOPS_H

#include "HostOps.h"

namespace lathe::runtime {

/// Null for an unknown name. HostCall::lists must be there.
HostOp findListOp(std::string_view name);
/// All names, sorted; each begins with "list_".
std::vector<std::string> listOpNames();

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_HOST_LISTOPS_H
