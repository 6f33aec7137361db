//===- Wgmma.cpp - text of the Hopper product instruction --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Wgmma.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;

namespace lathe::codegen {

StringRef multipliedName(Type element) {
  if (auto integer = dyn_cast<IntegerType>(element); integer && integer.getWidth() == 8)
    return integer.isUnsigned() ? "u8" : "s8";
  return llvm::TypeSwitch<Type, StringRef>(element)
      .Case<BFloat16Type>([](Type) { return "bf16"; })
      .Case<Float16Type>([](Type) { return "f16"; })
      .Case<Float32Type>([](Type) { return "tf32"; })
      .Case<Float8E4M3FNType>([](Type) { return "e4m3"; })
      .Case<Float8E5M2Type>([](Type) { return "e5m2"; })
      .Default([](Type) { return ""; });
}

static bool isByte(std::string_view element) { return element == "s8" || element == "u8"; }

/// Two products by 64 bytes of k each. Of 16-bit elements threads 0 and 1, then 2 and 3 of each four have their words; of
/// 8-bit elements each thread has a word of each product.
static std::string sparseMethod(std::string_view name, const WgmmaShape &s) {
  const int count = s.n / 2;
  const std::string element(s.element), elementB(s.elementB.empty() ? s.element : s.elementB);
  const bool integers = isByte(element), halves = element == "bf16" || element == "f16";
  const std::string sum = integers ? "s32" : "f32", words = halves ? "1" : "2";
  auto operand = [&](int i) { return "%" + std::to_string(count + i); };
  std::string sums, outputs;
  for (int i = 0; i < count; ++i) {
    sums += (i ? ",%" : "%") + std::to_string(i);
    outputs += std::string(i ? (i % 8 ? ", " : ",\n          ") : "") + (integers ? "\"+r\"(d[" : "\"+f\"(d[") + std::to_string(i) + "])";
  }
  auto product = [&](const std::string &a, const std::string &b, int number) {
    return "wgmma.mma_async.sp.sync.aligned.m64n" + std::to_string(s.n) + (halves ? "k32." : "k64.") + sum + "." + element + "." +
           elementB + "\\n\"\n        \"{" + sums + "},\\n\"\n        \"" + a + ", " + b + ", " + operand(halves ? 3 : 3 + number) +
           ", " + std::to_string(halves ? number : 0) + ", p" + (integers ? "" : ", 1, 1") + (halves ? ", 0, 0;" : ";");
  };
  return "static LATHE_METHOD void " + std::string(name) + (integers ? "(i32 (&d)[" : "(f32 (&d)[") + std::to_string(count) +
         "], u64 a, u64 b, const u32 (&places)[" + words +
         "], u32 add) {\n    asm volatile(\"{ .reg .pred p; .reg .b64 x, y; setp.ne.b32 p, " +
         operand(2) + ", 0;\\n\"\n        \"" + product(operand(0), operand(1), 0) +
         "\\n\"\n        \"setp.eq.b32 p, 0, 0; add.s64 x, " + operand(0) + ", 16; add.s64 y, " + operand(1) +
         ", 4;\\n\"\n        \"" + product("x", "y", 1) + " }\"\n        : " + outputs +
         "\n        : \"l\"(a), \"l\"(b), \"r\"(add), \"r\"(places[0])" + (halves ? "" : ", \"r\"(places[1])") + ");\n  }";
}

std::string wgmmaMethod(std::string_view name, const WgmmaShape &s) {
  if (s.sparse)
    return sparseMethod(name, s);
  const int count = s.n / 2;
  const std::string element(s.element), elementB(s.elementB.empty() ? s.element : s.elementB);
  const bool integers = isByte(element);
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
  const size_t steps = std::max<size_t>(s.steps.size(), 1);
  std::vector<std::string> inRegisters; // of each step
  if (s.aInRegisters) {
    for (size_t step = 0; step < steps; ++step) {
      a = "{";
      for (int i = 0; i < 4; ++i) {
        a += (i ? ",%" : "%") + number(next++);
        inputs += "\"r\"(a" + (s.steps.empty() ? "" : "[" + number(step) + "]") + "[" + number(i) + "]), ";
      }
      inRegisters.push_back(a += "}");
    }
    a = inRegisters[0];
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
  std::string product = "\"wgmma.mma_async.sync.aligned.m64n" + number(s.n) + depth +
                        (integers ? ".s32." : ".f32.") + element + "." + elementB +
                        "\\n\"\n        \"{" + sums + "},\\n\"\n        \"";
  std::string text = product + a + ", " + b + ", p" + flags;
  for (size_t step = 1; step < s.steps.size(); ++step) {
    text += ";\\n\"\n        \"";
    if (step == 1)
      text += "setp.eq.b32 p, 0, 0; ";
    if (!s.aInRegisters)
      text += "add.s64 x, " + a + ", " + number(s.steps[step].first) + "; ";
    text += "add.s64 y, " + b + ", " + number(s.steps[step].second) + ";\\n\"\n        " + product +
            (s.aInRegisters ? inRegisters[step] : "x") + ", y, p" + flags;
  }
  std::string registers = s.steps.size() > 1 ? " .reg .b64 x, y;" : "";
  std::string words = s.steps.empty() ? "[4]" : "[" + number(steps) + "][4]";
  return "static LATHE_METHOD void " + std::string(name) + (integers ? "(i32" : "(f32") + " (&d)[" +
         number(count) + "], " + (s.aInRegisters ? "const u32 (&a)" + words : "u64 a") +
         ", u64 b, u32 add) {\n" + "    asm volatile(\"{ .reg .pred p;" + registers + " setp.ne.b32 p, " + add +
         ", 0;\\n\"\n        " + text + "; }\"\n        : " + outputs +
         "\n        : " + inputs + "\"l\"(b), \"r\"(add));\n  }";
}

} // namespace lathe::codegen
