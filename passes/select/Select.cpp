//===- Select.cpp - how each kernel will run ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes every kernel without MLIR and lets codegen/select choose: an
// ordered list of guarded KernelSpecs, stored as text. The only bridge from
// passes to codegen's choices.
//
//   lathe.kernel "k" gemm (...)  =>  lathe.kernel "k" gemm (...) attributes {variants =
//                                      [{guard = "M <= 1", spec = "..."}, {guard = "", spec = "..."}]}
//
//===----------------------------------------------------------------------===//
#include "Describe.h"

#include "lathe/codegen/Skeleton.h"
#include "lathe/ir/KernelVariants.h"
#include "lathe/support/BlockSteps.h"

#include "llvm/Support/Format.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_SELECTPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct SelectPass : impl::SelectPassBase<SelectPass> {
  void runOnOperation() override {
    std::set<std::string> named;
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      std::map<std::string, DimRange> ranges = symbolRanges(module);
      std::map<std::string, int64_t> optima = symbolOptima(module);
      std::map<std::string, ArrayAttr> chosen; // equal names are equal kernels
      double tolerance = winogradTolerance();
      WalkResult walked = module.walk([&](KernelOp kernel) {
        ArrayAttr &variants = chosen[kernel.getName().str()];
        named.insert(kernel.getName().str());
        if (!variants && failed(select(kernel, *target, ranges, optima, wanted(kernel), tolerance, variants)))
          return WalkResult::interrupt();
        kernel.setVariantsAttr(variants);
        return WalkResult::advance();
      });
      if (walked.wasInterrupted())
        return signalPassFailure();
    }
    for (NamedAttribute config : configs())
      if (config.getName() != "*" && !named.count(config.getName().str())) {
        getOperation()->emitError("no kernel is called '")
            << config.getName().getValue() << "', for which --config or a lockfile has a configuration";
        return signalPassFailure();
      }
  }

  /// Configurations by kernel that the user asked for.
  DictionaryAttr configs() {
    auto options = getOperation()->getAttrOfType<DictionaryAttr>(kOptionsAttr);
    auto configs = options ? options.getAs<DictionaryAttr>("configs") : DictionaryAttr();
    return configs ? configs : DictionaryAttr::get(&getContext());
  }

  /// The configuration that the user asked for, or "".
  StringRef wanted(KernelOp kernel) {
    auto config = configs().getAs<StringAttr>(kernel.getName());
    if (!config && kernel.getKind() == RegionKind::Gemm)
      config = configs().getAs<StringAttr>("*");
    return config ? config.getValue() : StringRef();
  }

  /// The largest error that Winograd's F(4,3) may be expected to make; 0: not asked for.
  double winogradTolerance() {
    auto options = getOperation()->getAttrOfType<DictionaryAttr>(kOptionsAttr);
    auto given = options ? options.getAs<ArrayAttr>(kWinogradToleranceOption) : ArrayAttr();
    double value = 0;
    if (given && !given.empty())
      if (auto text = dyn_cast<StringAttr>(given[0]); text && text.getValue().getAsDouble(value))
        value = 0;
    return value;
  }

  /// A user's CUDA kernel runs as its config says: cuda_function (else the call's name),
  /// cuda_grid (up to three formulas over sizes, else 1), cuda_block (else 128 threads).
  static Result<std::vector<KernelVariant>> customVariant(KernelOp kernel, const KernelDesc &desc) {
    auto calls = kernel.getBodyBlock().getOps<CustomCallOp>();
    if (calls.empty())
      return invalidError("a custom kernel without a custom_call");
    CustomCallOp call = *calls.begin();
    DictionaryAttr config = call.getConfig();
    KernelSpec spec;
    spec.config = "custom";
    spec.buffers = desc.buffers;
    spec.numInputs = desc.numInputs;
    spec.numOutputs = desc.numOutputs;
    for (const auto &[symbol, range] : desc.symbols)
      spec.symbols.push_back(symbol);
    LaunchSpec launch;
    auto function = config.getAs<StringAttr>("cuda_function");
    launch.function = function ? function.str() : call.getTarget().str();
    launch.block[0] = 128;
    if (auto block = config.getAs<DenseI64ArrayAttr>("cuda_block"))
      for (size_t d = 0; d < 3 && d < size_t(block.size()); ++d)
        launch.block[d] = block[d];
    if (auto grid = config.getAs<ArrayAttr>("cuda_grid"))
      for (size_t d = 0; d < 3 && d < grid.size(); ++d) {
        auto text = dyn_cast<StringAttr>(grid[d]);
        auto blocks = text ? DimExpr::parse(std::string_view(text.getValue()))
                           : Result<DimExpr>(invalidError("cuda_grid is no list of texts"));
        if (!blocks.ok())
          return invalidError("cuda_grid: " + blocks.status().message());
        std::set<std::string> used;
        blocks->collectSymbols(used);
        for (const std::string &name : used)
          if (!desc.symbols.count(name))
            return invalidError("cuda_grid: no size of the call's tensors is called '" + name + "'");
        launch.grid[d] = *blocks;
      }
    spec.launches.push_back(std::move(launch));
    return std::vector<KernelVariant>{{{}, std::move(spec)}};
  }

  /// What became of the zeros in a product's weights.
  static void remarkBlocks(KernelOp kernel, const KernelDesc &desc, const Target &target,
                           ArrayRef<KernelVariant> variants) {
    std::optional<BlockGain> gain = blockGain(desc, target);
    if (!gain)
      return;
    std::string text;
    llvm::raw_string_ostream stream(text);
    stream << kernel.getName();
    if (target.isCuda() || !gain->why.empty()) {
      stream << ": blocks of zeros in its weights are multiplied: "
             << (target.isCuda() ? "there is no kernel without them on this target" : gain->why);
      missedRemark(kernel.getLoc(), "SparseWeights") << text;
      return;
    }
    stream << llvm::format(": %.0f %% of the blocks of 1x16 of its weights are zero; without those of %dx16 it takes "
                           "%.2f of its time by estimate",
                           100 * gain->zeros, int(gain->rows), gain->share);
    Result<KernelConfig> config = KernelConfig::parse(variants.back().spec.config);
    if (config && config->form->product.leavesOutZeros)
      passedRemark(kernel.getLoc(), "SparseWeights") << text;
    else
      missedRemark(kernel.getLoc(), "SparseWeights") << (text + ": they are multiplied");
  }

  template <typename Holds> static bool anyForm(ArrayRef<KernelVariant> variants, Holds holds) {
    return llvm::any_of(variants, [&](const KernelVariant &variant) {
      Result<KernelConfig> config = KernelConfig::parse(variant.spec.config);
      return config && holds(config->form->product);
    });
  }

  /// Why a GPU multiplies zeros that it could leave out.
  static const char *whyMultiplied(const KernelDesc &desc) {
    return !desc.alwaysSparse       ? "; --sparse-weights=always leaves their zeros out"
           : desc.batchInvariant    ? ", because --batch-invariant has one order of sums"
           : !desc.wanted.empty()   ? ", as the configuration that was asked for does"
                                    : ", because no kernel without the zeros takes these sizes, types and epilogue";
  }

  /// What became of blocks of 64 x 64 on a GPU.
  static void remarkBlocks64(KernelOp kernel, const KernelDesc &desc, ArrayRef<KernelVariant> variants) {
    const int64_t most = BlockSteps::most(desc.reduction[0].constant().value_or(1), desc.parallel.back().constant().value_or(1)).first;
    std::string text;
    llvm::raw_string_ostream(text) << kernel.getName()
                                   << llvm::format(": %.0f %% of the blocks of 64x64 of its weights are zero: ",
                                                   100 * (1 - double(desc.operands[1].blocks64) / double(most)));
    if (anyForm(variants, [](const ProductForm &form) { return form.blockSparse; }))
      passedRemark(kernel.getLoc(), "SparseWeights") << (text + "they are left out");
    else
      missedRemark(kernel.getLoc(), "SparseWeights") << (text + "they are multiplied as they are" + whyMultiplied(desc));
  }

  /// What became of two zeros of each four.
  static void remarkTwoOfFour(KernelOp kernel, const KernelDesc &desc, const Target &target, ArrayRef<KernelVariant> variants) {
    if (desc.operands.size() < 2 || !desc.operands[1].twoOfFour || !target.isCuda())
      return;
    if (anyForm(variants, [](const ProductForm &form) { return form.sparse; }))
      passedRemark(kernel.getLoc(), "SparseWeights")
          << (kernel.getName().str() + ": its weights are 2:4 sparse: their zeros are left out");
    else
      missedRemark(kernel.getLoc(), "SparseWeights")
          << (kernel.getName().str() + ": its weights are 2:4 sparse: they are multiplied as they are" +
              whyMultiplied(desc));
  }

  /// What became of inputs that are often zero.
  static void remarkInactive(KernelOp kernel, const KernelDesc &desc, const Target &target, ArrayRef<KernelVariant> variants) {
    if (desc.operands.empty() || !desc.operands[0].inactive)
      return;
    if (anyForm(variants, [](const ProductForm &form) { return form.leavesOutInputs; })) {
      passedRemark(kernel.getLoc(), "InactiveInputs")
          << (kernel.getName().str() + ": of one row the weights of inputs that are zero are not read");
      return;
    }
    const char *why = desc.batchInvariant     ? "--batch-invariant has one order of sums"
                      : !desc.wanted.empty()  ? "the configuration that was asked for reads them"
                      : target.isCuda()       ? "it has not always one row, its weights are few, or its operands are no floats of 32 or 16 bits"
                                              : "it has not always one row, or its operands are no floats of 32 or 16 bits";
    missedRemark(kernel.getLoc(), "InactiveInputs")
        << (kernel.getName().str() + ": weights of inputs that are zero are read: " + why);
  }

  static LogicalResult select(KernelOp kernel, const Target &target,
                              const std::map<std::string, DimRange> &ranges,
                              const std::map<std::string, int64_t> &optima, StringRef wanted,
                              double winogradTolerance, ArrayAttr &variants) {
    FailureOr<KernelDesc> desc = describe(kernel, ranges);
    if (failed(desc))
      return failure();
    desc->usual = optima;
    desc->wanted = wanted.str();
    desc->winogradTolerance = winogradTolerance;
    auto top = kernel->getParentOfType<ModuleOp>();
    if (auto outer = top->getParentOfType<ModuleOp>())
      top = outer;
    SmallVector<std::string> allowed = optionStrings(top, "allow");
    desc->allowTf32 = llvm::is_contained(allowed, "tf32");
    desc->allowReducedSums = llvm::is_contained(allowed, "reduced-sums");
    desc->alwaysSparse = sparseWeights(top) == "always";
    auto llm = top->getAttrOfType<DictionaryAttr>(kLlmAttr);
    desc->batchInvariant = llm && llm.contains("batch_invariant");
    describeInPlace(kernel, *desc);
    auto answer = desc->kind == KernelDesc::Kind::Custom ? customVariant(kernel, *desc)
                                                         : chooseVariants(*desc, target);
    if (!answer.ok())
      return kernel.emitError(answer.status().message()) << " (target " << target.name << ")";
    if (answer->empty() || !answer->back().guard.empty())
      return kernel.emitError("the choices for this kernel do not cover all sizes");
    if (target.isCuda() && desc->operands.size() > 1 && desc->operands[1].blocks64 >= 0)
      remarkBlocks64(kernel, *desc, *answer);
    else
      remarkBlocks(kernel, *desc, target, *answer);
    remarkTwoOfFour(kernel, *desc, target, *answer);
    remarkInactive(kernel, *desc, target, *answer);
    for (const KernelVariant &variant : *answer)
      passedRemark(kernel.getLoc(), "Select")
          << (kernel.getName().str() + ": " + variant.spec.config +
              (variant.guard.empty() ? "" : " when " + str(variant.guard)));
    variants = attrOf(kernel.getContext(), *answer);
    return success();
  }
};

} // namespace

} // namespace lathe
