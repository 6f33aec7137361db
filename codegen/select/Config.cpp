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
constexpr std::array<Field, 8> kFields{{{'t', &KernelConfig::threads},
                                        {'v', &KernelConfig::lanes},
                                        {'r', &KernelConfig::rows},
                                        {'m', &KernelConfig::tileM},
                                        {'n', &KernelConfig::tileN},
                                        {'k', &KernelConfig::tileK},
                                        {'s', &KernelConfig::stages},
                                        {'c', &KernelConfig::cluster}}};

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

bool wgmmaStartsLate(const KernelConfig &c, int64_t k) {
  constexpr int64_t kLong = 2048;
  return (c.family == "gemm.pingpong" || c.family == "gemm.cooperative") && c.tileM == 128 &&
         c.rows == 1 && k >= kLong;
}

int64_t wgmmaStagedColumns(int64_t tileN, int64_t resultBytes) {
  if (tileN % 64 == 0 && resultBytes <= 2)
    return 64;
  return tileN % 32 == 0 ? 32 : 16;
}

int64_t wgmmaStagedRows(int64_t tileM) {
  for (int64_t rows : {64, 48, 32})
    if (tileM % rows == 0)
      return rows;
  return 16;
}

int64_t wgmmaSharedBytes(const KernelConfig &c, int64_t resultBytes, bool pair, bool heads) {
  constexpr int64_t kHeadColumns = 32;
  int64_t columns = heads ? kHeadColumns * (pair ? 2 : 1)
                    : c.family.ends_with(".swapped")
                        ? wgmmaStagedRows(c.tileM)
                        : wgmmaStagedColumns(pair ? c.tileN / 2 : c.tileN, resultBytes);
  return c.stages * (c.tileM + c.tileN) * 128 + 4 * 64 * columns * resultBytes + 16 * c.stages +
         4 * 8 + 1024;
}

int64_t splitSharedBytes(const KernelConfig &c) {
  int64_t rows = c.rows > 1 ? c.rows : 64;
  return std::max(c.stages * (rows + c.tileN) * 128, rows * (c.tileN + 8) * 4) + 16 * c.stages +
         1024;
}

int64_t widenedSharedBytes(const KernelConfig &c) {
  return std::max(c.stages * (c.tileM * 128 + c.tileN * 64), c.tileM * (c.tileN + 4) * 4) +
         16 * c.stages + 1024;
}

int64_t streamDepth(const KernelConfig &c) { return c.threads / 32 * 64; }

int64_t streamSharedBytes(const KernelConfig &c) {
  constexpr int64_t kStage = 16 * 64 * 2, kSums = 4 * 33 * 4; // of a warp; of 16 x 8 sums
  return c.threads / 32 * (c.stages * kStage + 2 * (c.rows / 8) * kSums);
}

int64_t attentionSharedBytes(const KernelConfig &config, int64_t headQK, int64_t headV) {
  int64_t queries = config.threads / 32 * config.rows, keys = 32;
  int64_t stride = std::max(headQK, headV) + 1;
  return 4 * (2 * keys * stride + queries * headQK + queries * keys);
}

/// Columns in memory: a power of two.
static int64_t powerFrom(int64_t head) {
  int64_t columns = 16;
  while (columns < head)
    columns *= 2;
  return columns;
}

int64_t attentionMmaSharedBytes(const KernelConfig &config, int64_t headQK, int64_t headV) {
  int64_t queries = config.threads / 2;
  return 2 * ((queries + config.tileN) * powerFrom(headQK) + config.tileN * powerFrom(headV));
}

int64_t attentionSplitSharedBytes(const KernelConfig &config, int64_t headQK, int64_t headV) {
  int64_t step = 16 * 2 * (powerFrom(headQK) + powerFrom(headV));
  int64_t part = 4 * config.tileN * ((headV + 15) / 16 * 16 + 4 + 2);
  int64_t warp = std::max(config.tileK * step, (part + 127) / 128 * 128);
  int64_t share = (config.tileN * (headV / 8) + config.rows - 1) / config.rows;
  int64_t sent = config.rows > 1 ? config.rows * 4 * (share * 8 + 2 * config.tileN) : 0;
  return config.threads / 32 * warp + sent;
}

int64_t attentionWgmmaSharedBytes(const KernelConfig &config, int64_t headQK, int64_t headV,
                                  bool mask) {
  constexpr int64_t kStages = 2, kRowBytes = 128, kMost = 232448; // of a block of sm_90
  const int64_t teams = config.threads / 128 - 1, queries = teams * 64;
  const bool row = config.family.ends_with(".keymask");
  auto chunks = [](int64_t head) { return (head + 63) / 64; };
  const int64_t masks = mask ? teams : row ? kStages : 0;
  const int64_t maskBytes = mask ? 64 * kRowBytes * chunks(config.tileN) : 4 * config.tileN;
  const int64_t results = queries * (2 * headV + 16);
  auto bytes = [&](int64_t copies) { // of the queries
    return kRowBytes * (copies * queries * chunks(headQK) +
                        kStages * config.tileN * (chunks(headQK) + chunks(headV))) +
           masks * maskBytes + 16 * (copies * teams + masks + 2 * kStages);
  };
  const int64_t staged = bytes(1) + results <= kMost ? results : 0;
  return staged + bytes(std::max<int64_t>(config.stages, 1));
}

DimExpr attentionScratchBytes(const KernelConfig &config, const DimExpr &keys,
                              const DimExpr &head) {
  DimExpr rows(config.rows), n(config.tileN);
  DimExpr padded = DimExpr::ceilDiv(keys, n) * n;
  return DimExpr(4) * (rows * head + head * n + rows * padded + rows + padded * n);
}

} // namespace lathe
