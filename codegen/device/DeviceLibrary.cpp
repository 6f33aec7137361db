//===- DeviceLibrary.cpp - the embedded device library -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/DeviceLibrary.h"

#include <algorithm>

namespace lathe {
namespace {

struct Module {
  std::string_view name, text;
};
constexpr Module kModules[] = {
#include "DeviceSources.inc"
};

struct Dependence {
  std::string_view module, needs;
};
constexpr Dependence kDependences[] = {
    {"math", "base"}, {"random", "base"}, {"hopper", "base"}, {"reduce", "math"}, {"mma", "base"},       {"gemm", "mma"},
    {"gemm", "math"}, {"gemv", "reduce"}, {"conv", "gemm"}, {"conv_hopper", "gemm_hopper"},      {"attention", "reduce"},
    {"gemv", "gemm"},     {"transpose", "math"}, {"gemm_hopper", "hopper"}, {"gemm_shares", "hopper"},
    {"gemm_hopper", "gemm_shares"},
    {"gemm_hopper", "gemm"}, {"gemm_narrow", "gemm_hopper"}, {"gemm_split", "gemm_hopper"}, {"gemm_widened", "gemm_hopper"}, {"gemm_widened", "widen"}, {"skinny", "widen"}, {"stream", "gemm"}, {"stream", "hopper"}, {"widen", "mma"}, {"skinny", "gemm"}, {"skinny", "reduce"}, {"skinny", "hopper"}, {"columns", "reduce"}, {"cluster", "reduce"}, {"cluster", "hopper"}, {"columns", "hopper"},
    {"attention_tile", "reduce"}, {"attention_mma", "attention_tile"}, {"attention_mma", "mma"},
    {"attention_blocks", "reduce"}, {"attention_wgmma", "attention_copies"},
    {"attention_copies", "attention_tile"}, {"attention_copies", "hopper"},
    {"attention_split", "attention_tile"}, {"attention_split", "mma"}, {"attention_split", "hopper"},
};

void require(std::string_view name, std::vector<std::string_view> &set) {
  if (std::find(set.begin(), set.end(), name) != set.end())
    return;
  set.push_back(name);
  for (const Dependence &d : kDependences)
    if (d.module == name)
      require(d.needs, set);
}

} // namespace

std::string_view deviceModule(std::string_view name) {
  for (const Module &m : kModules)
    if (m.name == name)
      return m.text;
  return {};
}

std::vector<std::string_view> deviceModules() {
  std::vector<std::string_view> names;
  for (const Module &m : kModules)
    names.push_back(m.name);
  return names;
}

std::string devicePrelude(std::initializer_list<std::string_view> modules) {
  std::vector<std::string_view> needed;
  for (std::string_view m : modules)
    require(m, needed);
  std::string text;
  for (const Module &m : kModules)
    if (std::find(needed.begin(), needed.end(), m.name) != needed.end())
      text += m.text;
  return text;
}

} // namespace lathe
