//===- HostOps.h - strings as numbers, and ops of the host ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A tensor of strings is a tensor of i64 in `lathe` and below: each string has a number, equal strings the
// same one, so that kernels move and compare them like any integers. The numbers of constants are known when
// compiling; other strings get theirs while a run lasts. Only ops of the host look into strings.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_HOSTOPS_H
#define LATHE_IR_HOSTOPS_H

namespace lathe {

/// On the module: the constant strings, an array in the order of their numbers, "" first. On an argument or
/// a result of an entry, on exec.input and exec.output (a unit): it is strings for the caller.
inline constexpr const char *kStringsAttr = "lathe.strings";

/// On lathe.custom_call (a unit): the target is no function of the application, but an op of
/// the host: of liblathe_host.so, or on lists (runtime/host).
inline constexpr const char *kHostOpAttr = "lathe.host_op";

} // namespace lathe

#endif // LATHE_IR_HOSTOPS_H
