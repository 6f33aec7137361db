//===- Wgmma.cpp - text of the Hopper product instruction --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Wgmma.h"

namespace lathe::codegen {

std::string wgmmaMethod(std::string_view name, const WgmmaShape &s) {
  const int count = s.n / 2;
  auto number = [](int i) { return std::to_string(i); };
  // %0.. are the accumulators, then a, b and the predicate's word.
  std::string sums, outputs, a, inputs;
  for (int i = 0; i < count; ++i) {
    sums += (i ? ",%" : "%") + number(i);
    outputs += (i ? (i % 8 ? ", " : ",\n          ") : "") + ("\"+f\"(d[" + number(i) + "])");
  }
  int next = count;
  if (s.aInRegisters) {
    for (int i = 0; i < 4; ++i) {
      a += (i ? ",%" : "{%") + number(next++);
      inputs += "\"r\"(a[" + number(i) + "]), ";
    }
    a += "}";
  } else {
    a = "%" + number(next++);
    inputs = "\"l\"(a), ";
  }
  std::string b = "%" + number(next++), add = "%" + number(next);
  std::string element(s.element);
  std::string flags = s.aInRegisters ? "" : s.aAcrossK ? ", 1" : ", 0";
  return "static LATHE_METHOD void " + std::string(name) + "(f32 (&d)[" + number(count) + "], " +
         (s.aInRegisters ? "const u32 (&a)[4]" : "u64 a") + ", u64 b, u32 add) {\n" +
         "    asm volatile(\"{ .reg .pred p; setp.ne.b32 p, " + add + ", 0;\\n\"\n" +
         "        \"wgmma.mma_async.sync.aligned.m64n" + number(s.n) + "k16.f32." + element + "." +
         element + "\\n\"\n        \"{" + sums + "},\\n\"\n        \"" + a + ", " + b +
         ", p, 1, 1" + flags + (s.bAcrossK ? ", 1" : ", 0") + "; }\"\n        : " + outputs +
         "\n        : " + inputs + "\"l\"(b), \"r\"(add));\n  }";
}

} // namespace lathe::codegen
