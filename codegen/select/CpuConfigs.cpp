//===- CpuConfigs.cpp - what a kernel on a CPU could run as ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/CpuConfigs.h"

#include "lathe/codegen/Skeleton.h"

#include <algorithm>

namespace lathe {
namespace {

/// Sizes of a unit of work. Between neighbours times differ little.
constexpr int64_t kRegisterTiles[] = {1, 2, 4, 8, 16}; ///< of rows
constexpr int64_t kWinogradTiles[] = {2, 4, 8, 16};    ///< register tiles of rows that are tiles of results
constexpr int64_t kRows[] = {1, 4, 16, 64};            ///< of a reduction, which have no tiles
constexpr int64_t kPanels[] = {1, 4, 16};
constexpr int64_t kRowsOfBlock[] = {1, 2, 4, 8, 16, 32};
constexpr int64_t kRowsOfRecurrence[] = {1, 2, 4};

struct Names {
  const KernelConfig &chosen;
  std::vector<std::string> list;

  void add(const KernelConfig &config) {
    std::string name = config.str();
    if (!(config == chosen) && std::find(list.begin(), list.end(), name) == list.end())
      list.push_back(std::move(name));
  }

  template <size_t N> void addRows(const int64_t (&each)[N]) {
    KernelConfig config = chosen;
    for (int64_t rows : each) {
      config.rows = rows;
      add(config);
    }
  }

  /// With each number of panels where there are panels.
  void addPanels(KernelConfig config) {
    std::vector<int64_t> panels(std::begin(kPanels), std::end(kPanels));
    panels.insert(panels.begin(), chosen.tileK);
    for (int64_t k : panels)
      if ((k > 0) == (chosen.tileK > 0)) {
        config.tileK = k;
        add(config);
      }
  }

  /// Rows as they lie, or copied.
  void addChunks(KernelConfig config) {
    config.stages = 0;
    for (int64_t tiles : kRegisterTiles) {
      config.rows = tiles * config.tileM;
      addPanels(config);
    }
  }
  void addBlocks(KernelConfig config) {
    config.rows = 1;
    for (int64_t rows : kRowsOfBlock) {
      config.stages = rows;
      addPanels(config);
    }
  }
  void addWinograd(KernelConfig config, const Skeleton &form) {
    config.form = &form;
    for (int64_t tiles : kWinogradTiles) {
      config.rows = tiles * config.tileM;
      for (int64_t k : {chosen.tileK, int64_t(4), int64_t(16)}) {
        config.tileK = k;
        for (int64_t together : {int64_t(0), k}) {
          config.stages = together > 1 ? together : 0;
          add(config);
        }
      }
    }
  }
};

} // namespace

std::vector<std::string> cpuConfigsBeside(const KernelConfig &chosen) {
  Names names{chosen, {}};
  if (!chosen.form || chosen.threads != 1)
    return {}; // of a GPU
  using Code = Skeleton::Code;
  switch (chosen.form->code) {
  case Code::CpuConv:
    if (chosen.form->conv.products) { // may be a convolution of 3 x 3
      KernelConfig direct = chosen;
      direct.form = &kCpuConv;
      names.addBlocks(direct);
      names.addChunks(direct);
      names.addWinograd(chosen, kCpuConvWinograd2);
      names.addWinograd(chosen, kCpuConvWinograd4);
    } else if (chosen.stages) {
      names.addBlocks(chosen);
    } else {
      names.addChunks(chosen);
    }
    break;
  case Code::CpuProduct:
    if (chosen.tileM > 1)
      for (int64_t tiles : kRegisterTiles) {
        KernelConfig config = chosen; // `stages` says how it sums
        config.rows = tiles * config.tileM;
        names.addPanels(config);
      }
    break;
  case Code::CpuAttention:
    if (!chosen.stages)
      for (int64_t tiles : kRegisterTiles) {
        KernelConfig config = chosen;
        config.rows = tiles * config.tileM;
        names.add(config);
      }
    break;
  case Code::Row:
    names.addRows(kRows);
    break;
  case Code::Recurrent:
    names.addRows(kRowsOfRecurrence);
    break;
  default: // there is one configuration, whatever the sizes
    break;
  }
  return names.list;
}

} // namespace lathe
