//===- Pch.cpp - the translation unit that owns the precompiled header ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
