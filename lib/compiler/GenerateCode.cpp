//===- GenerateCode.cpp - the source of every kernel variant --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks codegen for the text of each variant: LLVM IR for a CPU, CUDA C++ for a
// GPU. The text is part of the IR, so that it can be read, edited and put back,
// and `replace` of `lathe.options` takes the place of what was generated.
//
//   exec.kernel @relu_0 attributes {variants = [{guard = "", spec = "..."}]} {...}
//                                          =>  ... {guard = "", source = "...", spec = "..."}
//
//===----------------------------------------------------------------------===//
#include "lathe/codegen/Codegen.h"
#include "lathe/ir/Exec.h"
#include "lathe/ir/Tile.h"
#include "lathe/passes/Passes.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace lathe {
namespace {

struct GenerateCodePass : PassWrapper<GenerateCodePass, OperationPass<ModuleOp>> {
  StringRef getArgument() const final { return "lathe-generate-code"; }
  StringRef getDescription() const final { return "Write the source of every kernel variant"; }

  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<tile::TileDialect, arith::ArithDialect, math::MathDialect, scf::SCFDialect,
                    memref::MemRefDialect, vector::VectorDialect, func::FuncDialect>();
  }

  void runOnOperation() override {
    bool failedAny = false;
    for (ModuleOp module : getOperation().getOps<ModuleOp>()) {
      auto name = module->getAttrOfType<StringAttr>(kTargetAttr);
      if (!name)
        continue;
      auto target = Target::parse(std::string_view(name.getValue()));
      if (!target.ok()) {
        module.emitError(target.status().message());
        return signalPassFailure();
      }
      int64_t id = 0;
      for (exec::KernelOp kernel : module.getOps<exec::KernelOp>())
        failedAny |= failed(generate(kernel, *target, id++));
    }
    // All kernels are tried first: one message each is worth more than the first alone.
    if (failedAny)
      signalPassFailure();
  }

  LogicalResult generate(exec::KernelOp kernel, const Target &target, int64_t id) {
    Builder builder(kernel.getContext());
    SmallVector<Attribute> variants;
    for (Attribute attr : kernel.getVariants()) {
      auto variant = cast<DictionaryAttr>(attr);
      auto spec = KernelSpec::parse(variant.getAs<StringAttr>("spec").getValue().str());
      if (!spec.ok())
        return kernel.emitError(spec.status().message());
      codegen::KernelSource source{kernel.getSymName(), &kernel.getBody().front(), &*spec, &target, id};
      FailureOr<std::string> text = failure();
      NamedAttrList entries(variant);
      if (auto given = replacement(kernel, target)) {
        text = given.str();
        entries.erase("otherwise"); // what was given is kept whatever becomes of it
      } else if (auto users = userText(kernel)) {
        text = users.str();
      } else {
        text = target.isCuda() ? codegen::cudaText(source) : cpuText(source);
      }
      if (failed(text))
        return kernel.emitError("no code for the configuration '") << spec->config << "'";
      entries.set("source", builder.getStringAttr(*text));
      variants.push_back(entries.getDictionary(kernel.getContext()));
    }
    kernel.setVariantsAttr(builder.getArrayAttr(variants));
    return success();
  }

  StringAttr replacement(exec::KernelOp kernel, const Target &target) {
    auto options = getOperation()->getAttrOfType<DictionaryAttr>(kOptionsAttr);
    auto texts = options ? options.getAs<DictionaryAttr>("replace") : DictionaryAttr();
    return texts && target.isCuda() ? texts.getAs<StringAttr>(kernel.getSymName()) : StringAttr();
  }

  /// The text that a custom call brings.
  static StringAttr userText(exec::KernelOp kernel) {
    for (CustomCallOp call : kernel.getBody().front().getOps<CustomCallOp>())
      return call.getConfig().getAs<StringAttr>("cuda_source");
    return {};
  }

  static FailureOr<std::string> cpuText(const codegen::KernelSource &source) {
    OwningOpRef<ModuleOp> tiles =
        ModuleOp::create(source.body->getParentOp()->getLoc(), StringRef(source.name));
    if (failed(codegen::emitTile(source, *tiles)))
      return failure();
    return codegen::tileToLLVMText(*tiles, *source.target);
  }
};

} // namespace

std::unique_ptr<Pass> createGenerateCodePass() { return std::make_unique<GenerateCodePass>(); }

} // namespace lathe
