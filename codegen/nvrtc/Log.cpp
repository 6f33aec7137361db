//===- Log.cpp - the log of ptxas as data ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The log of one compilation with -v looks like this:
//
//   ptxas info    : Compiling entry function 'k' for 'sm_90a'
//   ptxas info    : Function properties for k
//       16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
//   ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem
//   ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async ...
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/Nvrtc.h"

#include <cctype>
#include <cstdlib>

namespace lathe::nvrtc {
namespace {

/// The number that stands directly before `unit`, or 0.
int64_t numberBefore(std::string_view line, std::string_view unit) {
  size_t at = line.find(unit);
  if (at == std::string_view::npos)
    return 0;
  size_t start = at;
  while (start > 0 && std::isdigit(static_cast<unsigned char>(line[start - 1])))
    --start;
  return std::atoll(std::string(line.substr(start, at - start)).c_str());
}

std::string_view between(std::string_view line, std::string_view open, std::string_view close) {
  size_t from = line.find(open);
  if (from == std::string_view::npos)
    return {};
  line.remove_prefix(from + open.size());
  return line.substr(0, line.find(close));
}

/// The number of a code such as "C7510", or 0.
int codeOf(std::string_view line) {
  for (size_t i = 0; i + 5 <= line.size(); ++i)
    if (line[i] == 'C' && line[i + 1] == '7' && (line[i + 2] == '5' || line[i + 2] == '6') &&
        std::isdigit(static_cast<unsigned char>(line[i + 3])) &&
        std::isdigit(static_cast<unsigned char>(line[i + 4])))
      return std::atoi(std::string(line.substr(i + 1, 4)).c_str());
  return 0;
}

} // namespace

const char *toString(Finding::Kind kind) {
  switch (kind) {
  case Finding::Kind::Spills:
    return "register spills";
  case Finding::Kind::IgnoredSetMaxNReg:
    return "ignored setmaxnreg";
  case Finding::Kind::SerializedWgmma:
    return "serialized wgmma";
  case Finding::Kind::RegisterAllocation:
    return "register allocation";
  }
  return "finding";
}

LogReport parseLog(std::string_view log) {
  LogReport report;
  while (!log.empty()) {
    size_t end = log.find('\n');
    std::string_view line = log.substr(0, end);
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
    if (std::string_view entry = between(line, "Compiling entry function '", "'"); !entry.empty()) {
      report.kernels.emplace_back().name = std::string(entry);
      continue;
    }
    if (int code = codeOf(line)) {
      Finding::Kind kind = code == 7508                   ? Finding::Kind::IgnoredSetMaxNReg
                           : code >= 7510 && code <= 7519 ? Finding::Kind::SerializedWgmma
                                                          : Finding::Kind::RegisterAllocation;
      report.findings.push_back({kind, std::string(line)});
    }
    if (report.kernels.empty())
      continue;
    KernelResources &k = report.kernels.back();
    if (line.find(" bytes stack frame") != std::string_view::npos) {
      // Device functions that were not inlined have a line of their own: add up.
      k.stackBytes += numberBefore(line, " bytes stack frame");
      k.spillStoreBytes += numberBefore(line, " bytes spill stores");
      k.spillLoadBytes += numberBefore(line, " bytes spill loads");
    }
    if (line.find("Used ") != std::string_view::npos && line.find(" registers") != line.npos) {
      k.registers = static_cast<int>(numberBefore(line, " registers"));
      k.sharedBytes = numberBefore(line, " bytes smem");
    }
  }
  // A 64-bit division is a call, and a few registers are saved around it: no loss.
  constexpr int64_t kHarmless = 64;
  for (const KernelResources &k : report.kernels)
    if (k.spillStoreBytes > kHarmless || k.spillLoadBytes > kHarmless)
      report.findings.push_back(
          {Finding::Kind::Spills, k.name + ": " + std::to_string(k.spillStoreBytes) +
                                      " bytes spill stores, " + std::to_string(k.spillLoadBytes) +
                                      " bytes spill loads, " + std::to_string(k.registers) +
                                      " registers"});
  return report;
}

} // namespace lathe::nvrtc
