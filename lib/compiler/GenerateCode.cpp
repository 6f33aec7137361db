//===- GenerateCode.cpp - the source of every kernel variant --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks codegen for the text of each variant: LLVM IR for a CPU, CUDA C++ for a
// GPU. The text is part of the IR, so that it can be read, edited and put back,
// and `replace` of `lathe.options` takes the place of what was generated for a GPU:
// of one variant by its name ("gemm_0.1"), or of all variants of a kernel.
//
//   exec.kernel @relu_0 attributes {variants = [{guard = "", spec = "..."}]} {...}
//                                          =>  ... {guard = "", source = "...", spec = "..."}
//
//===----------------------------------------------------------------------===//
#include "VariantNames.h"

#include "lathe/codegen/Codegen.h"
#include "lathe/ir/Exec.h"
#include "lathe/ir/KernelVariants.h"
#include "lathe/ir/Tile.h"
#include "lathe/passes/Passes.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_GENERATECODEPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct GenerateCodePass : impl::GenerateCodePassBase<GenerateCodePass> {
  void runOnOperation() override {
    bool failedAny = false;
    replaced.clear();
    replaceable.clear();
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
    if (failedAny || failed(checkAllReplaced()))
      signalPassFailure();
  }

  /// A text that takes no kernel's place would be dropped in silence.
  LogicalResult checkAllReplaced() {
    LogicalResult result = success();
    for (NamedAttribute given : replacements())
      if (!replaced.contains(given.getName())) {
        // Without a place of its own: the module's is the model's file.
        emitError(UnknownLoc::get(&getContext()))
            << "usage: --replace " << given.getName().getValue() << ": "
            << (replaceable.empty()
                    ? std::string("takes the place of a CUDA kernel, and no target is a GPU")
                    : "there is no such CUDA kernel; there are " +
                          llvm::join(replaceable, ", "));
        result = failure();
      }
    return result;
  }

  LogicalResult generate(exec::KernelOp kernel, const Target &target, int64_t id) {
    Builder builder(kernel.getContext());
    SmallVector<Attribute> variants;
    FailureOr<std::vector<KernelVariant>> parsed = variantsOf(kernel);
    if (failed(parsed))
      return failure();
    const KernelRoles roles = kernel.getRolesAttr() ? kernel.getRolesAttr().getRoles() : KernelRoles();
    for (auto [i, given, variant] : llvm::enumerate(kernel.getVariants(), *parsed)) {
      Attribute attr = given;
      const KernelSpec &spec = variant.spec;
      codegen::KernelSource source{kernel.getSymName(), &kernel.getBody().front(), &spec, &target, id, roles};
      FailureOr<std::string> text = failure();
      if (StringAttr given = replacement(kernel, i, target)) {
        text = given.str();
        variant.otherwise.clear(); // what was given is kept whatever becomes of it
        attr = attrOf(kernel.getContext(), variant);
      } else if (auto users = userText(kernel)) {
        text = users.str();
      } else {
        text = target.isCuda() ? codegen::cudaText(source) : cpuText(source);
      }
      if (succeeded(text) && !target.isCuda())
        remarkLibraryCalls(kernel, *text);
      if (failed(text))
        return kernel.emitError("no code for the configuration '") << spec.config << "'";
      variants.push_back(withSource(attr, *text));
    }
    kernel.setVariantsAttr(builder.getArrayAttr(variants));
    return success();
  }

  /// A function that is called lane by lane is much slower than one in vectors.
  static void remarkLibraryCalls(exec::KernelOp kernel, StringRef text) {
    auto [before, found] = text.split((codegen::kLibraryCallsAttr + llvm::Twine("\"=\"")).str());
    if (!found.empty())
      remark::missed(kernel.getLoc(), remark::RemarkOpts::name("LibraryCalls").category("lathe"))
          << ("not in vectors but by a call for each lane: " + found.split('"').first.str());
  }

  DictionaryAttr replacements() {
    auto options = getOperation()->getAttrOfType<DictionaryAttr>(kOptionsAttr);
    auto texts = options ? options.getAs<DictionaryAttr>(kReplaceOption) : DictionaryAttr();
    return texts ? texts : DictionaryAttr::get(&getContext());
  }

  StringAttr replacement(exec::KernelOp kernel, size_t variant, const Target &target) {
    if (!target.isCuda())
      return {};
    std::string name = variantName(kernel, variant);
    if (!llvm::is_contained(replaceable, name))
      replaceable.push_back(name);
    std::optional<NamedAttribute> given = replacementOf(replacements(), kernel, variant);
    if (!given)
      return {};
    replaced.insert(given->getName());
    return dyn_cast<StringAttr>(given->getValue());
  }

  llvm::DenseSet<StringAttr> replaced;  ///< names of --replace that a kernel has
  std::vector<std::string> replaceable; ///< names that it could have had

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

} // namespace lathe
