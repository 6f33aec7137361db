//===- CudaText.cpp - the CUDA C++ of a kernel variant -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contractions fill a skeleton of the device library; everything else is a
// tile function, printed.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"

#include "lathe/codegen/DeviceLibrary.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

FailureOr<std::string> tileText(const KernelSource &kernel) {
  OwningOpRef<ModuleOp> tiles = ModuleOp::create(kernel.body->getTerminator()->getLoc());
  if (failed(emitTile(kernel, *tiles)))
    return failure();
  bool cluster = kernel.spec->launches[0].cluster[0] > 1;
  std::string text = devicePrelude({cluster ? "cluster" : "reduce"}) + "\n// Kernel " + kernel.name.str() +
                     ", configuration " + kernel.spec->config + "\n";
  llvm::raw_string_ostream os(text);
  Printer::Options options;
  options.fastMath = Holes::halfResults(kernel);
  options.programmatic = kernel.spec->launches.back().programmaticDependent;
  ArgumentNames args = ArgumentNames::of(kernel);
  if (options.programmatic)
    args.shareAll();
  for (func::FuncOp fn : tiles->getOps<func::FuncOp>())
    if (failed(Printer(os, options).kernel(fn, args)))
      return failure();
  return text;
}

} // namespace

FailureOr<std::string> cudaText(const KernelSource &kernel) {
  Result<KernelConfig> config = KernelConfig::parse(kernel.spec->config);
  if (!config)
    return mlir::emitError(kernel.body->getTerminator()->getLoc()) << config.status().str();
  StringRef family = config->family;
  if (family.starts_with("gemm.") || family.starts_with("gemv."))
    return gemmText(kernel, *config);
  if (family.starts_with("conv.pingpong") || family.starts_with("conv.cooperative") ||
      family == "conv.split" || family == "conv.stem")
    return convHopperText(kernel, *config);
  if (family.starts_with("conv."))
    return convText(kernel, *config);
  if (family.starts_with("attention."))
    return attentionText(kernel, *config);
  if (family == "columns")
    return columnsText(kernel, *config);
  if (family == "transpose")
    return transposeText(kernel, *config);
  return tileText(kernel);
}

} // namespace lathe::codegen
