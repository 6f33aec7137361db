//===- LaunchTime.cpp - how long a launch takes by estimate ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "LaunchTime.h"

using namespace mlir;

namespace lathe::plan {
namespace {

bool holds(const DimCondition &condition, const Point &point) {
  std::optional<int64_t> lhs = valueAt(condition.lhs, point), rhs = valueAt(condition.rhs, point);
  if (!lhs || !rhs)
    return false;
  switch (condition.kind) {
  case DimCondition::Kind::LessEqual:
    return *lhs <= *rhs;
  case DimCondition::Kind::Equal:
    return *lhs == *rhs;
  case DimCondition::Kind::Divisible:
    return *rhs > 0 && *lhs % *rhs == 0;
  }
  return false;
}

bool isOnTensorCores(exec::KernelOp kernel, const KernelSpec &spec) {
  bool multiplies = llvm::is_contained({RegionKind::Gemm, RegionKind::Conv, RegionKind::Attention}, kernel.getKind());
  return multiplies && spec.numInputs > 0 && bitWidth(spec.buffers[0].dtype) <= 16;
}

} // namespace

std::optional<int64_t> valueAt(const DimExpr &expr, const Point &point) {
  Result<int64_t> value = expr.evaluate(point);
  return value.ok() ? std::optional(*value) : std::nullopt;
}

LaunchTime launchTime(exec::LaunchOp launch, exec::KernelOp kernel, ArrayRef<KernelVariant> variants,
                      const Target &target, const TargetRates &rates, const Point &point) {
  Point own;
  for (NamedAttribute symbol : launch.getSymbols())
    if (auto formula = dyn_cast<DimAttr>(symbol.getValue()))
      own[symbol.getName().str()] = valueAt(formula.expr(), point).value_or(0);
  const KernelSpec *spec = &variants.back().spec;
  for (const KernelVariant &variant : llvm::reverse(variants))
    if (llvm::all_of(variant.guard, [&](const DimCondition &c) { return holds(c, own); }))
      spec = &variant.spec;
  double blocks = 1;
  for (const LaunchSpec &one : spec->launches) {
    double grid = 1;
    for (const DimExpr &size : one.grid)
      grid *= double(std::max<int64_t>(1, valueAt(size, own).value_or(1)));
    blocks = std::max(blocks, grid);
  }
  auto amount = [&](const DimExpr &expr) { return double(std::max<int64_t>(0, valueAt(expr, own).value_or(0))); };
  const LaunchWork work = {blocks, amount(kernel.getFlops().expr()), amount(kernel.getBytes().expr())};
  return launchTime(target, work, isOnTensorCores(kernel, *spec) ? rates.tensorCoreFlops : rates.fmaFlops,
                    rates.bytesPerSecond);
}

} // namespace lathe::plan
