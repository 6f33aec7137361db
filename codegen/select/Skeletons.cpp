//===- Skeletons.cpp - the registry of families ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Skeleton.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace lathe {

const std::vector<const Skeleton *> &skeletons() {
  static const std::vector<const Skeleton *> all = {
#define LATHE_SKELETON(NAME) &NAME,
#include "lathe/codegen/Skeletons.def"
#undef LATHE_SKELETON
  };
  return all;
}

const Skeleton *skeletonNamed(std::string_view family) {
  for (const Skeleton *skeleton : skeletons())
    if (skeleton->family == family)
      return skeleton;
  return nullptr;
}

//===- Names of configurations ---------------------------------------------------===//

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

std::string_view KernelConfig::family() const { return form ? form->family : std::string_view(); }

std::string KernelConfig::str() const {
  std::string out(family());
  KernelConfig defaults;
  for (const Field &f : kFields)
    if (this->*f.member != defaults.*f.member)
      out += std::string(".") + f.letter + std::to_string(this->*f.member);
  return out;
}

Result<KernelConfig> KernelConfig::parse(std::string_view name) {
  KernelConfig config;
  std::string family;
  std::string_view rest = name;
  while (!rest.empty()) {
    size_t dot = rest.find('.');
    std::string_view word = rest.substr(0, dot);
    rest.remove_prefix(dot == std::string_view::npos ? rest.size() : dot + 1);
    if (!isParameter(word)) {
      family += (family.empty() ? "" : ".") + std::string(word);
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
  if (family.empty())
    return invalidError("a configuration without a family", "configuration " + std::string(name));
  config.form = skeletonNamed(family);
  if (!config.form)
    return invalidError("no family of kernels is named '" + family + "'",
                        "configuration " + std::string(name));
  return config;
}

} // namespace lathe
