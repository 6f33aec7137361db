//===- CpuFeatures.cpp - what this CPU can do -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// x86-64: CPUID bits, plus what the operating system saves (XCR0): AVX registers that it does
// not save are not there. AArch64: the kernel's word (AT_HWCAP), which says both.
//
//===----------------------------------------------------------------------===//

#include "CpuFeatures.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace lathe::runtime {
#if defined(__x86_64__)
namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool has(const std::string &name) {
  struct Row {
    const char *name;
    unsigned leaf, subleaf;
    unsigned Registers::*reg;
    unsigned bit;
    unsigned state; ///< bits of XCR0 that must be set
  };
  constexpr unsigned kAvx = 0x6, kAvx512 = 0xe6, kAmx = 0x60000;
  static constexpr Row rows[] = {
      {"sse3", 1, 0, &Registers::ecx, 0, 0},
      {"pclmul", 1, 0, &Registers::ecx, 1, 0},
      {"ssse3", 1, 0, &Registers::ecx, 9, 0},
      {"fma", 1, 0, &Registers::ecx, 12, kAvx},
      {"cx16", 1, 0, &Registers::ecx, 13, 0},
      {"sse4.1", 1, 0, &Registers::ecx, 19, 0},
      {"sse4.2", 1, 0, &Registers::ecx, 20, 0},
      {"movbe", 1, 0, &Registers::ecx, 22, 0},
      {"popcnt", 1, 0, &Registers::ecx, 23, 0},
      {"aes", 1, 0, &Registers::ecx, 25, 0},
      {"xsave", 1, 0, &Registers::ecx, 26, 0},
      {"avx", 1, 0, &Registers::ecx, 28, kAvx},
      {"f16c", 1, 0, &Registers::ecx, 29, kAvx},
      {"rdrnd", 1, 0, &Registers::ecx, 30, 0},
      {"cmov", 1, 0, &Registers::edx, 15, 0},
      {"mmx", 1, 0, &Registers::edx, 23, 0},
      {"fxsr", 1, 0, &Registers::edx, 24, 0},
      {"sse", 1, 0, &Registers::edx, 25, 0},
      {"sse2", 1, 0, &Registers::edx, 26, 0},
      {"cx8", 1, 0, &Registers::edx, 8, 0},
      {"fsgsbase", 7, 0, &Registers::ebx, 0, 0},
      {"bmi", 7, 0, &Registers::ebx, 3, 0},
      {"avx2", 7, 0, &Registers::ebx, 5, kAvx},
      {"bmi2", 7, 0, &Registers::ebx, 8, 0},
      {"avx512f", 7, 0, &Registers::ebx, 16, kAvx512},
      {"avx512dq", 7, 0, &Registers::ebx, 17, kAvx512},
      {"rdseed", 7, 0, &Registers::ebx, 18, 0},
      {"adx", 7, 0, &Registers::ebx, 19, 0},
      {"avx512ifma", 7, 0, &Registers::ebx, 21, kAvx512},
      {"clflushopt", 7, 0, &Registers::ebx, 23, 0},
      {"clwb", 7, 0, &Registers::ebx, 24, 0},
      {"avx512cd", 7, 0, &Registers::ebx, 28, kAvx512},
      {"sha", 7, 0, &Registers::ebx, 29, 0},
      {"avx512bw", 7, 0, &Registers::ebx, 30, kAvx512},
      {"avx512vl", 7, 0, &Registers::ebx, 31, kAvx512},
      {"avx512vbmi", 7, 0, &Registers::ecx, 1, kAvx512},
      {"avx512vbmi2", 7, 0, &Registers::ecx, 6, kAvx512},
      {"gfni", 7, 0, &Registers::ecx, 8, 0},
      {"vaes", 7, 0, &Registers::ecx, 9, kAvx},
      {"vpclmulqdq", 7, 0, &Registers::ecx, 10, kAvx},
      {"avx512vnni", 7, 0, &Registers::ecx, 11, kAvx512},
      {"avx512bitalg", 7, 0, &Registers::ecx, 12, kAvx512},
      {"avx512vpopcntdq", 7, 0, &Registers::ecx, 14, kAvx512},
      {"amx-bf16", 7, 0, &Registers::edx, 22, kAmx},
      {"avx512fp16", 7, 0, &Registers::edx, 23, kAvx512},
      {"amx-tile", 7, 0, &Registers::edx, 24, kAmx},
      {"amx-int8", 7, 0, &Registers::edx, 25, kAmx},
      {"avxvnni", 7, 1, &Registers::eax, 4, kAvx},
      {"avx512bf16", 7, 1, &Registers::eax, 5, kAvx512},
      {"sahf", 0x80000001, 0, &Registers::ecx, 0, 0},
      {"lzcnt", 0x80000001, 0, &Registers::ecx, 5, 0},
      {"sse4a", 0x80000001, 0, &Registers::ecx, 6, 0},
      {"prfchw", 0x80000001, 0, &Registers::ecx, 8, 0},
      {"crc32", 1, 0, &Registers::ecx, 20, 0},
      {"64bit", 0x80000001, 0, &Registers::edx, 29, 0},
  };
  for (const Row &row : rows) {
    if (name != row.name)
      continue;
    if (!(cpuid(row.leaf, row.subleaf).*row.reg >> row.bit & 1))
      return false;
    if (!row.state)
      return true;
    if (!(cpuid(1).ecx >> 27 & 1)) // OSXSAVE
      return false;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & row.state) == row.state;
  }
  return false;
}

} // namespace
#elif defined(__aarch64__)
namespace {

bool has(const std::string &name) {
  struct Row {
    const char *name;
    unsigned bit; ///< of AT_HWCAP: the kernel's arch/arm64 elf_hwcaps
  };
  static constexpr Row rows[] = {{"fp-armv8", 0}, {"neon", 1}, {"aes", 3}, {"sha2", 6}, {"crc", 7}, {"lse", 8},
                                 {"fullfp16", 10}, {"rdm", 12}, {"dotprod", 20}, {"sve", 22}};
  for (const Row &row : rows)
    if (name == row.name)
      return getauxval(AT_HWCAP) >> row.bit & 1;
  return false;
}

} // namespace
#else
namespace {
bool has(const std::string &) { return false; }
} // namespace
#endif

std::string missingCpuFeature(const std::vector<std::string> &features) {
  for (const std::string &f : features)
    if (!has(f))
      return f;
  return {};
}

} // namespace lathe::runtime
