//===- Pch.cpp - the file that the precompiled header is made with --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
