//===- Entries.cpp - named entries by binding dimensions ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One graph serves several uses: `entries` of `lathe.options` names them, each
// with dimensions bound to numbers or formulas. The original makes place.
//
//   entries = ["prefill", "decode:S=1"]
//   func @main(%ids : [B, S])   =>   func @prefill(%ids : [B, S])
//                                    func @decode(%ids : [B, 1])
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_ENTRIESPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct EntriesPass : impl::EntriesPassBase<EntriesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<std::string> wanted = optionStrings(module, "entries");
    auto main = module.lookupSymbol<func::FuncOp>("main");
    if (wanted.empty() || !main)
      return;
    OpBuilder builder(main);
    for (const std::string &text : wanted) {
      auto [name, bindings] = StringRef(text).split(':');
      if (name.empty() || name == "main" || module.lookupSymbol(name)) {
        module.emitError("usage: entry '") << text << "': the name is empty, 'main' or taken";
        return signalPassFailure();
      }
      std::map<std::string, DimExpr> by;
      if (failed(parse(module, text, bindings, by)))
        return signalPassFailure();
      auto clone = cast<func::FuncOp>(builder.clone(*main));
      clone.setSymName(name);
      clone->setAttr("lathe.entry", builder.getUnitAttr());
      substituteSymbols(clone, by);
    }
    main.erase();
  }

  static LogicalResult parse(ModuleOp module, StringRef text, StringRef bindings,
                             std::map<std::string, DimExpr> &by) {
    std::map<std::string, DimRange> ranges = symbolRanges(module);
    SmallVector<StringRef> parts;
    bindings.split(parts, ',', -1, /*KeepEmpty=*/false);
    for (StringRef part : parts) {
      auto [dim, value] = part.split('=');
      auto range = ranges.find(dim.str());
      if (range == ranges.end())
        return module.emitError("usage: entry '") << text << "': no dimension is called '" << dim << "'";
      auto expr = DimExpr::parse(std::string_view(value.data(), value.size()));
      if (!expr.ok())
        return module.emitError("usage: entry '") << text << "': " << expr.status().message();
      if (auto number = expr->constant();
          number && (*number < range->second.lo || *number > range->second.hi))
        return module.emitError("usage: entry '")
               << text << "': " << *number << " is outside the bounds of '" << dim << "'";
      by.emplace(dim.str(), *expr);
    }
    return success();
  }
};

} // namespace

} // namespace lathe
