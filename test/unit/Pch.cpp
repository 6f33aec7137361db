//===- Pch.cpp - the file that the tests' precompiled header is made with -===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
