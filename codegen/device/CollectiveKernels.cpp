//===- CollectiveKernels.cpp - kernels through which GPUs exchange -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/CollectiveKernels.h"

#include "lathe/codegen/DeviceLibrary.h"

namespace lathe {
namespace {

/// The type of base.cuh; signs count, for the least and the greatest.
const char *deviceType(DType dtype) {
  switch (dtype) {
  case DType::I8:
    return "i8";
  case DType::I16:
    return "i16";
  case DType::I32:
    return "i32";
  case DType::I64:
    return "i64";
  case DType::UI8:
    return "u8";
  case DType::UI16:
    return "u16";
  case DType::UI32:
    return "u32";
  case DType::UI64:
    return "u64";
  case DType::F16:
    return "f16";
  case DType::BF16:
    return "bf16";
  case DType::F32:
    return "f32";
  case DType::F64:
    return "f64";
  default:
    return nullptr;
  }
}
const char *deviceReduction(std::string_view reduction) {
  return reduction == "sum" ? "SumOp" : reduction == "prod" ? "ProdOp" : reduction == "max" ? "MaxOp" : reduction == "min" ? "MinOp" : nullptr;
}

class Writer {
public:
  Writer(int64_t ranks, bool programmatic) : ranks(std::to_string(ranks)), programmatic(programmatic) {}

  /// A kernel that calls the template of its name with `arguments` of `types`.
  void kernel(const std::string &name, const std::string &buffers, const std::string &numbers, const std::string &types,
              const std::string &arguments) {
    text += "\nextern \"C\" __global__ void __launch_bounds__(512, 1) " + name + "(" + buffers +
            ", u8 *arenas,\n    i64 arenaBytes, i64 rank, " + numbers + ", i64 timeout, i64 step, StatusWord *status) {\n" +
            (programmatic ? "  dependentsMayStart();\n  dependenciesWait();\n" : "") + "  const Peers<" + ranks +
            "> peers{arenas, arenaBytes, (int)rank, (u64)timeout, (u32)step, status};\n  collective::" + name + "<" + ranks + types +
            ">(" + arguments + ", peers);\n}\n";
  }
  std::string text;

private:
  const std::string ranks;
  const bool programmatic;
};

} // namespace

std::string collectiveKernelText(int64_t ranks, std::string_view reduction, DType dtype, bool programmatic) {
  const char *type = deviceType(dtype), *op = deviceReduction(reduction);
  if (ranks < 2 || ranks > 8 || !type || !op)
    return {};
  const bool slots = dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
  const std::string t = type, reduced = ", " + t + ", " + op, inOut = "const " + t + " *in, " + t + " *out";
  Writer writer(ranks, programmatic);
  writer.text = devicePrelude({"collective"}) + "\n// Collectives of " + std::to_string(ranks) + " ranks\n";
  if (slots) {
    writer.kernel("allReduceOneShot", inOut, "i64 count", reduced, "in, out, count");
    writer.kernel("allReduceTwoShot", inOut, "i64 count", reduced, "in, out, count");
  }
  writer.kernel("allReduceDirect", inOut, "i64 count", reduced, "in, out, count");
  writer.kernel("reduceScatter", inOut, "i64 rows, i64 run", reduced, "in, out, rows, run");
  writer.kernel("allGather", "const u8 *in, u8 *out", "i64 rows, i64 run", "", "in, out, rows, run");
  return std::move(writer.text);
}

} // namespace lathe
