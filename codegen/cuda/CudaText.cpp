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
  switch (config->form->code) {
  case Skeleton::Code::Product:
    return gemmText(kernel, *config);
  case Skeleton::Code::ImageProduct:
    return convHopperText(kernel, *config);
  case Skeleton::Code::Conv:
    return convText(kernel, *config);
  case Skeleton::Code::Attention:
    return attentionText(kernel, *config);
  case Skeleton::Code::Columns:
    return columnsText(kernel, *config);
  case Skeleton::Code::Transpose:
    return transposeText(kernel, *config);
  case Skeleton::Code::TopK:
    return topKText(kernel, *config);
  case Skeleton::Code::Scan:
    return config->tileM ? scanText(kernel, *config) : tileText(kernel);
  case Skeleton::Code::OrderedScatter:
    return scatterText(kernel, *config);
  case Skeleton::Code::Nonzero:
    return nonzeroText(kernel, *config);
  case Skeleton::Code::Fourier:
    return fourierText(kernel, *config);
  case Skeleton::Code::Interpolation:
    return interpolationText(kernel, *config);
  default:
    return tileText(kernel);
  }
}

} // namespace lathe::codegen
