//===- Phase.h - the phases of a compilation --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one list of phases, in order. `--stop-after` takes their names, and every
// phase's output is text that a fresh process continues from: the module
// attribute `lathe.phase` names the last phase that ran.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_COMPILER_PHASE_H
#define LATHE_COMPILER_PHASE_H

#include <array>
#include <optional>
#include <string_view>

namespace lathe {

enum class Phase {
  Import, Legalize, Simplify, Quantize, Sparsify, Shard, Layout, Fuse, Select, Plan, Codegen, Engine,
};

inline constexpr std::array<std::string_view, 12> kPhaseNames = {
    "import", "legalize", "simplify", "quantize", "sparsify", "shard",
    "layout", "fuse",     "select",   "plan",     "codegen",  "engine"};

inline std::string_view toString(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

inline std::optional<Phase> parsePhase(std::string_view name) {
  for (size_t i = 0; i < kPhaseNames.size(); ++i)
    if (kPhaseNames[i] == name)
      return static_cast<Phase>(i);
  return std::nullopt;
}

inline std::optional<Phase> next(Phase phase) {
  if (phase == Phase::Engine)
    return std::nullopt;
  return static_cast<Phase>(static_cast<int>(phase) + 1);
}

} // namespace lathe

#endif // LATHE_COMPILER_PHASE_H
