//===- Wgmma.cpp - text of the Hopper product instruction --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Wgmma.h"

namespace lathe::codegen {

std::string wgmmaMethod(std::string_view name, const WgmmaShape &s) {
  const int count = s.n / 2;
  const std::string element(s.element), elementB(s.elementB.empty() ? s.element : s.elementB);
  const bool integers = element == "s8" || element == "u8";
  const bool halves = element == "bf16" || element == "f16";
  const char *depth = halves ? "k16" : element == "tf32" ? "k8" : "k32";
  auto number = [](int i) { return std::to_string(i); };
  // %0.. are the accumulators, then a, b and the predicate's word.
  std::string sums, outputs, a, inputs;
  for (int i = 0; i < count; ++i) {
    sums += (i ? ",%" : "%") + number(i);
    outputs += std::string(i ? (i % 8 ? ", " : ",\n          ") : "") +
               (integers ? "\"+r\"(d[" : "\"+f\"(d[") + number(i) + "])";
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
  // Signs of the operands, which integers have none of, then whether they lie across k.
  std::string flags = integers ? "" : ", 1, 1";
  if (halves)
    flags += std::string(s.aInRegisters ? ""
                         : s.aAcrossK   ? ", 1"
                                        : ", 0") +
             (s.bAcrossK ? ", 1" : ", 0");
  return "static LATHE_METHOD void " + std::string(name) + (integers ? "(i32" : "(f32") + " (&d)[" +
         number(count) + "], " + (s.aInRegisters ? "const u32 (&a)[4]" : "u64 a") +
         ", u64 b, u32 add) {\n" + "    asm volatile(\"{ .reg .pred p; setp.ne.b32 p, " + add +
         ", 0;\\n\"\n" + "        \"wgmma.mma_async.sync.aligned.m64n" + number(s.n) + depth +
         (integers ? ".s32." : ".f32.") + element + "." + elementB + "\\n\"\n        \"{" + sums +
         "},\\n\"\n        \"" + a + ", " + b + ", p" + flags + "; }\"\n        : " + outputs +
         "\n        : " + inputs + "\"l\"(b), \"r\"(add));\n  }";
}

} // namespace lathe::codegen
