//===- Target.cpp - facts of CPU levels and GPU architectures ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One table row a target. The figures of a GPU are those of one card; a run on
// another card of the same architecture is right, only its tile choice may not be
// the best.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/HostCpu.h"
#include "lathe/codegen/TargetRates.h"

#include <algorithm>
#include <array>
#include <charconv>

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
constexpr double kEventSeconds = 1.664e-6, kExchangedBytesPerSecond = 3e11;

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

//===- Facts of a CPU ---------------------------------------------------------------===//

struct Fact {
  const char *name;
  int64_t Target::*member;
  bool bytes; ///< else a count
  int64_t least, most;
};
constexpr std::array<Fact, 4> kFacts{{
    {"l1", &Target::l1Bytes, true, 8 << 10, 1 << 20},
    {"l2", &Target::l2Bytes, true, 64 << 10, 64 << 20},
    {"l3", &Target::l3Bytes, true, 64 << 10, int64_t(1) << 30},
    {"cores", &Target::cores, false, 1, 1024},
}};

std::string valueText(const Fact &fact, int64_t value) {
  if (fact.bytes && value % (1 << 20) == 0)
    return std::to_string(value >> 20) + "M";
  return fact.bytes ? std::to_string(value >> 10) + "K" : std::to_string(value);
}

/// ":l2=2M:cores=2": what differs from a level by itself.
std::string factsOf(const Target &target) {
  static const Target level;
  std::string text;
  for (const Fact &fact : kFacts)
    if (int64_t value = target.*fact.member; value != level.*fact.member)
      text += std::string(":") + fact.name + "=" + valueText(fact, value);
  return text;
}

/// "l2=512K:cores=1".
Status readFacts(Target &target, std::string_view text) {
  while (true) {
    size_t end = std::min(text.find(':'), text.size()), equals = text.substr(0, end).find('=');
    std::string one(text.substr(0, end));
    auto fact = std::find_if(kFacts.begin(), kFacts.end(),
                             [&](const Fact &f) { return one.substr(0, equals) == f.name; });
    if (equals == std::string_view::npos || fact == kFacts.end())
      return usageError("'" + one + "' is no fact of a CPU: l1=SIZE, l2=SIZE, l3=SIZE (K or M, a core's share) or "
                        "cores=N", "--target");
    int64_t value = 0;
    auto [at, error] = std::from_chars(one.data() + equals + 1, one.data() + one.size(), value);
    std::string_view unit(at, size_t(one.data() + one.size() - at));
    bool known = error == std::errc() && (fact->bytes ? unit == "K" || unit == "M" : unit.empty());
    if (known && fact->bytes && value > 0 && value < (1 << 24))
      value <<= unit == "K" ? 10 : 20;
    if (!known || value < fact->least || value > fact->most)
      return usageError("'" + one + "' is not from " + valueText(*fact, fact->least) + " to " +
                        valueText(*fact, fact->most), "--target");
    target.*fact->member = value;
    if (end == text.size())
      return okStatus();
    text.remove_prefix(end + 1);
  }
}

/// What this machine has, within what choices can go by; what it does not say stays as of a level by itself.
void describeHost(Target &target) {
  const HostCpu host = HostCpu::read();
  // A virtual machine is told of the whole cache, but not who else has a share of it.
  constexpr int64_t kMostOfThird = 8 << 20;
  for (size_t level = 0; level < 3; ++level) {
    const Fact &fact = kFacts[level];
    if (int64_t share = host.share(int(level) + 1))
      target.*fact.member = std::clamp(share, fact.least, level == 2 ? kMostOfThird : fact.most);
  }
  const Fact &cores = kFacts[3];
  target.*cores.member = std::clamp(host.usableCores(), cores.least, cores.most);
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
  text = trim(text);
  size_t colon = text.find(':');
  std::string wanted(text.substr(0, colon));
  std::string_view facts = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  bool isNative = wanted == "native";
  if (isNative) {
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
      if (isNative)
        describeHost(t);
      if (colon != std::string_view::npos)
        LATHE_RETURN_IF_ERROR(readFacts(t, facts));
      t.name += factsOf(t);
      return t;
    }
  if (colon != std::string_view::npos)
    return usageError("facts are of CPU levels: '" + wanted + "' takes none", "--target");
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
      return {row.bytesPerSecond, row.fmaFlops, row.tensorCoreFlops, kEventSeconds, kExchangedBytesPerSecond, row.card};
  return {};
}

LaunchTime launchTime(const Target &target, const LaunchWork &work, double flopsPerSecond, double bytesPerSecond) {
  const double units = std::min(1.0, work.blocks / std::max(target.smCount, 1)), memory = std::min(1.0, 2 * units);
  const double computing = work.flops / (units * flopsPerSecond), moving = work.bytes / (memory * bytesPerSecond);
  return {std::max(computing, moving), computing >= moving ? units : memory};
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
  if (hostHas(level()))
    return okStatus();
  return unsupportedError("this CPU lacks features of " + level(), "target " + name);
}

std::string Target::factsText() const {
  if (isCuda())
    return "";
  return "caches of " + valueText(kFacts[0], l1Bytes) + ", " + valueText(kFacts[1], l2Bytes) + " and " +
         valueText(kFacts[2], l3Bytes) + " a core, " + std::to_string(cores) + (cores == 1 ? " core" : " cores");
}

} // namespace lathe
