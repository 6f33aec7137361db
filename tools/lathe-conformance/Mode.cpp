//===- Mode.cpp - how a test's inputs are known to the compiler -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mode.h"

#include "lathe/support/Npy.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>

namespace fs = std::filesystem;

namespace lathe::conformance {
namespace {

constexpr Mode kModes[] = {Mode::AsGiven, Mode::AllSymbolic, Mode::AllConstant};

/// "?x3": sizes as --shape has them; any sizes where `isAny`.
std::string sizesOf(const HostTensor &tensor, bool isAny) {
  std::string text;
  for (int64_t size : tensor.dims)
    text += (text.empty() ? "" : "x") + (isAny ? "?" : std::to_string(size));
  return text;
}

using Values = std::optional<std::vector<HostTensor>>;

} // namespace

const char *toString(Mode mode) {
  switch (mode) {
  case Mode::AsGiven: return "as-given";
  case Mode::AllSymbolic: return "all-symbolic";
  case Mode::AllConstant: return "all-constant";
  }
  return "";
}

std::optional<Mode> parseMode(std::string_view name) {
  for (Mode mode : kModes)
    if (name == toString(mode))
      return mode;
  return std::nullopt;
}

std::string inputFile(const std::string &folder, int set, size_t i) {
  return folder + "/test_data_set_" + std::to_string(set) + "/input_" + std::to_string(i) + ".pb";
}

Status giveSizes(Mode mode, const std::string &folder, const ModelPorts &ports, CompileOptions &compile) {
  const bool isAny = mode == Mode::AllSymbolic;
  for (auto [i, port] : llvm::enumerate(ports.inputs)) {
    // A sequence is of the length that a run gives it, unless it is a constant.
    if (port.kind == ValueKind::Tensor ? !isAny : mode != Mode::AllConstant)
      continue;
    std::string file = inputFile(folder, 0, i);
    std::error_code error;
    if (port.kind == ValueKind::Tensor && !fs::exists(file, error))
      continue;
    Result<Values> value = readValueProto(file, port.kind);
    if (!value)
      return value.status();
    auto give = [&](const std::string &name, const HostTensor &tensor) {
      compile.shapes.push_back(name + "=" + sizesOf(tensor, isAny));
    };
    if (port.kind == ValueKind::Tensor) {
      give(port.name, (*value)->front());
      continue;
    }
    if (!*value) {
      compile.shapes.push_back(port.name + "=none");
    } else if (port.kind == ValueKind::Optional) {
      give(port.name, (*value)->front());
    } else {
      compile.shapes.push_back(port.name + "=[" + std::to_string((*value)->size()) + "]");
      for (auto [k, tensor] : llvm::enumerate(**value))
        give(port.name + "[" + std::to_string(k) + "]", tensor);
    }
  }
  return okStatus();
}

Result<std::string> keepLengths(const std::string &folder, const ModelPorts &ports, CompileOptions &compile) {
  std::string names;
  for (auto [i, port] : llvm::enumerate(ports.inputs)) {
    auto given = llvm::find(compile.shapes, port.name + "=?");
    if (port.kind != ValueKind::Tensor || given == compile.shapes.end())
      continue;
    Result<Values> value = readValueProto(inputFile(folder, 0, i), port.kind);
    if (!value)
      return value.status();
    const HostTensor &tensor = (*value)->front();
    if (tensor.dtype != DType::I64 && tensor.dtype != DType::I32)
      continue;
    *given = port.name + "=" + sizesOf(tensor, false);
    names += (names.empty() ? "" : " ") + port.name;
  }
  return names;
}

Status giveConstants(const std::string &folder, int set, const ModelPorts &ports, const std::string &scratch,
                     CompileOptions &compile) {
  for (auto [i, port] : llvm::enumerate(ports.inputs)) {
    std::string file = inputFile(folder, set, i);
    if (port.kind == ValueKind::Tensor) {
      compile.constants.push_back(port.name + "=" + file);
      continue;
    }
    Result<Values> value = readValueProto(file, port.kind);
    if (!value)
      return value.status();
    if (!*value)
      continue;
    for (auto [k, tensor] : llvm::enumerate(**value)) {
      std::string path = scratch + "/" + std::to_string(i) + "_" + std::to_string(k) + ".npy";
      LATHE_RETURN_IF_ERROR(writeNpy(path, tensor));
      bool isOne = port.kind == ValueKind::Optional;
      compile.constants.push_back(port.name + (isOne ? "" : "[" + std::to_string(k) + "]") + "=" + path);
    }
  }
  return okStatus();
}

} // namespace lathe::conformance
