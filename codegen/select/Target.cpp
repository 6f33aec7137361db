//===- Target.cpp - facts of CPU levels and GPU architectures ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One table row a target. The figures of a GPU are those of one card; a run on
// another card of the same architecture is right, only its tile choice may not be
// the best.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/TargetRates.h"

#include <algorithm>
#include <array>

namespace lathe {
namespace {

struct CpuRow {
  const char *name, *triple, *cpu, *features;
  int vectorBits, vectorRegisters;
};
constexpr std::array<CpuRow, 6> kCpus{{
    {"x86-64-v3", "x86_64-unknown-linux-gnu", "x86-64-v3", "", 256, 16},
    {"x86-64-v3-vnni", "x86_64-unknown-linux-gnu", "x86-64-v3", "+avxvnni", 256, 16},
    {"x86-64-v4", "x86_64-unknown-linux-gnu", "x86-64-v4", "", 512, 32},
    {"x86-64-v4-vnni", "x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512vnni", 512, 32},
    // What every 64-bit ARM processor has: NEON with fused multiply-adds. 32 registers.
    {"armv8-a", "aarch64-unknown-linux-gnu", "generic", "", 128, 32},
    {"armv8-a-dotprod", "aarch64-unknown-linux-gnu", "generic", "+dotprod", 128, 32},
}};

struct GpuRow {
  const char *name;
  int version;
  bool archSpecific;
  int smCount;
  int64_t sharedPerBlock, sharedPerSm;
  int maxThreadsPerSm;
  double bytesPerSecond, fmaFlops, tensorCoreFlops;
  const char *card;
};
constexpr std::array<GpuRow, 5> kGpus{{
    {"sm_80", 80, false, 108, 163 << 10, 164 << 10, 2048, 2.039e12, 19.5e12, 312e12, "A100"},
    {"sm_86", 86, false, 84, 99 << 10, 100 << 10, 1536, 0.768e12, 38.7e12, 155e12, "A6000"},
    {"sm_89", 89, false, 142, 99 << 10, 100 << 10, 1536, 0.864e12, 90.5e12, 181e12, "L40"},
    {"sm_90a", 90, true, 132, 227 << 10, 228 << 10, 2048, 4.8e12, 67e12, 989e12, "H200"},
    {"sm_100a", 100, true, 148, 227 << 10, 228 << 10, 2048, 8e12, 75e12, 2250e12, "B200"},
}};
constexpr double kEventSeconds = 1.664e-6;

bool hostHas(std::string_view name) {
#if defined(__x86_64__)
  bool v3 = __builtin_cpu_supports("x86-64-v3"), v4 = __builtin_cpu_supports("x86-64-v4");
  if (name == "x86-64-v3-vnni")
    return v3 && __builtin_cpu_supports("avxvnni");
  if (name == "x86-64-v4-vnni")
    return v4 && __builtin_cpu_supports("avx512vnni");
  return name == "x86-64-v4" ? v4 : name == "x86-64-v3" && v3;
#elif defined(__aarch64__)
  return name == "armv8-a";
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

bool Target::hasPairProducts() const { return triple.starts_with("x86_64") || hasByteProducts(); }
bool Target::hasByteProducts() const {
  return features.find("vnni") != std::string::npos || features.find("dotprod") != std::string::npos;
}
bool Target::hasTensorCores() const { return smVersion >= 80; }
bool Target::hasAsyncCopy() const { return smVersion >= 80; }
bool Target::hasClusters() const { return smVersion >= 90; }
bool Target::hasProgrammaticLaunch() const { return smVersion >= 90; }
// What the `a` stands for is in no later architecture; sm_100a's TMA has no skeleton here yet.
bool Target::hasTma() const { return smVersion == 90 && archSpecific; }
bool Target::hasWgmma() const { return smVersion == 90 && archSpecific; }
bool Target::hasFp8TensorCores() const { return hasWgmma(); }
bool Target::paysToStreamWeights() const { return smVersion == 90; }

Result<Target> Target::parse(std::string_view text) {
  std::string wanted(trim(text));
  if (wanted == "native") {
    for (const CpuRow &row : kCpus) // of an architecture in ascending order
      if (hostHas(row.name))
        wanted = row.name;
    if (wanted == "native")
      return unsupportedError("this CPU lacks the features of x86-64-v3 (AVX2, FMA) and of armv8-a, "
                              "the oldest levels that lathe generates code for",
                              "target native");
  }
  for (const CpuRow &row : kCpus)
    if (wanted == row.name) {
      Target t;
      t.name = row.name;
      t.triple = row.triple;
      t.cpu = row.cpu;
      t.features = row.features;
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

TargetRates ratesOf(const Target &target) {
  for (const GpuRow &row : kGpus)
    if (target.name == row.name)
      return {row.bytesPerSecond, row.fmaFlops, row.tensorCoreFlops, kEventSeconds, row.card};
  return {};
}

Target Target::forGpu(int major, int minor) {
  const GpuRow *found = &kGpus.front();
  for (const GpuRow &row : kGpus) // in ascending order
    if (row.version <= 10 * major + minor)
      found = &row;
  return *parse(found->name);
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
  if (hostHas(name))
    return okStatus();
  return unsupportedError("this CPU lacks features of " + name, "target " + name);
}

} // namespace lathe
