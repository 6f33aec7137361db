//===- Target.cpp - facts of CPU levels and GPU architectures ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One table row a target. The figures of a GPU are those of its data-centre
// card (A100, L40, H100 and H200, B200); a run on another card of the same
// architecture is right, only its tile choice may not be the best.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/Target.h"

#include <algorithm>
#include <array>

namespace lathe {
namespace {

struct CpuRow {
  const char *name, *triple, *cpu;
  int vectorBits, vectorRegisters;
};
constexpr std::array<CpuRow, 3> kCpus{{
    {"x86-64-v3", "x86_64-unknown-linux-gnu", "x86-64-v3", 256, 16},
    {"x86-64-v4", "x86_64-unknown-linux-gnu", "x86-64-v4", 512, 32},
    {"aarch64", "aarch64-unknown-linux-gnu", "neoverse-n1", 128, 32}, // NEON
}};

struct GpuRow {
  const char *name;
  int version;
  bool archSpecific;
  int smCount;
  int64_t sharedPerBlock, sharedPerSm;
  int maxThreadsPerSm;
};
constexpr std::array<GpuRow, 5> kGpus{{
    {"sm_80", 80, false, 108, 163 << 10, 164 << 10, 2048},
    {"sm_86", 86, false, 84, 99 << 10, 100 << 10, 1536},
    {"sm_89", 89, false, 142, 99 << 10, 100 << 10, 1536},
    {"sm_90a", 90, true, 132, 227 << 10, 228 << 10, 2048},
    {"sm_100a", 100, true, 148, 227 << 10, 228 << 10, 2048},
}};

bool hostHasV3() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("x86-64-v3");
#else
  return false;
#endif
}

bool hostHasV4() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("x86-64-v4");
#else
  return false;
#endif
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ')
    s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ')
    s.remove_suffix(1);
  return s;
}

} // namespace

int Target::lanes(DType type) const {
  int64_t bits = bitWidth(type);
  int64_t width = isCuda() ? 128 : vectorBits;
  return bits < 8 || bits > width ? 1 : static_cast<int>(width / bits);
}

Result<Target> Target::parse(std::string_view text) {
  std::string wanted(trim(text));
  if (wanted == "native") {
    if (!hostHasV3())
      return unsupportedError("this CPU lacks the features of x86-64-v3 (AVX2, FMA), "
                              "the oldest level that lathe generates code for",
                              "target native");
    wanted = hostHasV4() ? "x86-64-v4" : "x86-64-v3";
  }
  for (const CpuRow &row : kCpus)
    if (wanted == row.name) {
      Target t;
      t.name = row.name;
      t.triple = row.triple;
      t.cpu = row.cpu;
      t.vectorBits = row.vectorBits;
      t.vectorRegisters = row.vectorRegisters;
      return t;
    }
  // sm_90 without the suffix means the same card; its code is for sm_90a.
  std::string gpu = wanted == "sm_90" || wanted == "sm_100" ? wanted + "a" : wanted;
  for (const GpuRow &row : kGpus)
    if (gpu == row.name) {
      Target t;
      t.kind = Kind::Cuda;
      t.name = row.name;
      t.triple = t.cpu = "";
      t.vectorBits = 128;
      t.vectorRegisters = 255;
      t.l1Bytes = row.sharedPerSm;
      t.l2Bytes = 40 << 20;
      t.smVersion = row.version;
      t.archSpecific = row.archSpecific;
      t.smCount = row.smCount;
      t.sharedPerBlock = row.sharedPerBlock;
      t.sharedPerSm = row.sharedPerSm;
      t.maxThreadsPerSm = row.maxThreadsPerSm;
      return t;
    }
  std::string known;
  for (const std::string &name : knownNames())
    known += (known.empty() ? "" : ", ") + name;
  return usageError("unknown target '" + wanted + "'; known: " + known, "--target");
}

Result<std::vector<Target>> Target::parseList(std::string_view names) {
  std::vector<Target> list;
  while (true) {
    size_t comma = names.find(',');
    Result<Target> one = parse(names.substr(0, comma));
    if (!one)
      return one.status();
    if (std::find(list.begin(), list.end(), *one) == list.end())
      list.push_back(std::move(*one));
    if (comma == std::string_view::npos)
      return list;
    names.remove_prefix(comma + 1);
  }
}

std::vector<std::string> Target::knownNames() {
  std::vector<std::string> names{"native"};
  for (const CpuRow &row : kCpus)
    names.push_back(row.name);
  for (const GpuRow &row : kGpus)
    names.push_back(row.name);
  return names;
}

Status Target::supportedByHostCpu() const {
  if (isCuda())
    return usageError("not a CPU target", "target " + name);
  bool has = name == "x86-64-v4" ? hostHasV4() : name == "x86-64-v3" && hostHasV3();
#if defined(__aarch64__)
  has |= name == "aarch64";
#endif
  if (has)
    return okStatus();
  return unsupportedError("this CPU lacks features of " + name, "target " + name);
}

} // namespace lathe
