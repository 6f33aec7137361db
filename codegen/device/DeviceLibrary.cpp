//===- DeviceLibrary.cpp - the embedded device library -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each module says in a line of its head what it needs ("// Needs: mma, math"); it
// comes behind that, in the order in which it is named there.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/DeviceLibrary.h"

#include <algorithm>

using namespace std::string_view_literals;

namespace lathe {
namespace {

struct Module {
  std::string_view name, text;
};
constexpr Module kModules[] = {
#include "DeviceSources.inc"
};

/// Adds what a module needs, then the module, unless it is there.
void require(std::string_view name, std::vector<std::string_view> &order) {
  if (std::find(order.begin(), order.end(), name) != order.end())
    return;
  constexpr std::string_view kNeeds = "\n// Needs: ";
  std::string_view text = deviceModule(name);
  if (size_t at = text.find(kNeeds); at != std::string_view::npos) {
    std::string_view line = text.substr(at + kNeeds.size());
    line = line.substr(0, line.find('\n'));
    while (!line.empty()) {
      size_t comma = line.find(", ");
      require(line.substr(0, comma), order);
      line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 2);
    }
  }
  order.push_back(name);
}

} // namespace

std::string_view deviceModule(std::string_view name) {
  for (const Module &m : kModules)
    if (m.name == name)
      return m.text;
  return {};
}

std::vector<std::string_view> deviceModules() {
  std::vector<std::string_view> order;
  for (const Module &m : kModules)
    require(m.name, order);
  return order;
}

std::string devicePrelude(const std::vector<std::string_view> &modules) {
  std::vector<std::string_view> order;
  for (std::string_view m : modules)
    require(m, order);
  std::string text;
  for (std::string_view m : order)
    text += deviceModule(m);
  return text;
}

} // namespace lathe
