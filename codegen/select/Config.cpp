//===- Config.cpp - configurations by name -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace lathe {
namespace {

struct Field {
  char letter;
  int64_t KernelConfig::*member;
};
constexpr std::array<Field, 7> kFields{{{'t', &KernelConfig::threads},
                                        {'v', &KernelConfig::lanes},
                                        {'r', &KernelConfig::rows},
                                        {'m', &KernelConfig::tileM},
                                        {'n', &KernelConfig::tileN},
                                        {'k', &KernelConfig::tileK},
                                        {'s', &KernelConfig::stages}}};

/// A letter and digits only: a parameter and not a part of the family's name.
bool isParameter(std::string_view word) {
  return word.size() >= 2 &&
         std::all_of(word.begin() + 1, word.end(), [](unsigned char c) { return std::isdigit(c); });
}

} // namespace

std::string KernelConfig::str() const {
  std::string out = family;
  KernelConfig defaults;
  for (const Field &f : kFields)
    if (this->*f.member != defaults.*f.member)
      out += std::string(".") + f.letter + std::to_string(this->*f.member);
  return out;
}

Result<KernelConfig> KernelConfig::parse(std::string_view name) {
  KernelConfig config;
  std::string_view rest = name;
  while (!rest.empty()) {
    size_t dot = rest.find('.');
    std::string_view word = rest.substr(0, dot);
    rest.remove_prefix(dot == std::string_view::npos ? rest.size() : dot + 1);
    if (!isParameter(word)) {
      config.family += (config.family.empty() ? "" : ".") + std::string(word);
      continue;
    }
    auto field = std::find_if(kFields.begin(), kFields.end(),
                              [&](const Field &f) { return f.letter == word[0]; });
    int64_t value = 0;
    auto [end, ec] = std::from_chars(word.data() + 1, word.data() + word.size(), value);
    if (field == kFields.end() || ec != std::errc() || value < 0)
      return invalidError("unknown parameter '" + std::string(word) + "'",
                          "configuration " + std::string(name));
    config.*field->member = value;
  }
  if (config.family.empty())
    return invalidError("a configuration without a family", "configuration " + std::string(name));
  return config;
}

MmaWarps mmaWarps(const KernelConfig &config) {
  int64_t warps = config.threads / 32;
  // As square as it goes, wider than high: the rows of B are the longer ones.
  for (int64_t m = warps; m > 1; --m)
    if (warps % m == 0 && m * m <= warps && config.tileM % (16 * m) == 0)
      return {m, warps / m};
  return {1, warps};
}

int64_t mmaSharedBytes(const KernelConfig &config) {
  int64_t pipeline = config.stages * (config.tileM + config.tileN) * config.tileK * 2;
  int64_t epilogue = config.tileM * (config.tileN + 8) * 4;
  return std::max(pipeline, epilogue);
}

int64_t attentionSharedBytes(const KernelConfig &config, int64_t headQK, int64_t headV) {
  int64_t queries = config.threads / 32 * config.rows, keys = 32;
  int64_t stride = std::max(headQK, headV) + 1;
  return 4 * (2 * keys * stride + queries * headQK + queries * keys);
}

DimExpr attentionScratchBytes(const KernelConfig &config, const DimExpr &keys,
                              const DimExpr &head) {
  DimExpr rows(config.rows), n(config.tileN);
  DimExpr padded = DimExpr::ceilDiv(keys, n) * n;
  return DimExpr(4) * (rows * head + head * n + rows * padded + rows + padded * n);
}

} // namespace lathe
