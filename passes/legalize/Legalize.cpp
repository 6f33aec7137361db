//===- Legalize.cpp - the pass and its report -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/passes/Legalize.h"

#include "Legalizer.h"

#include "lathe/ir/Onnx.h"
#include "lathe/passes/Passes.h"

#include "llvm/Support/JSON.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_LEGALIZEPASS
#include "lathe/passes/Passes.h.inc"

static constexpr llvm::StringLiteral kErrorAttr = "lathe.error"; ///< the kind of error by its name

ErrorCode LegalizeReport::code() const {
  if (nodes.empty())
    return ErrorCode::Ok;
  return llvm::any_of(nodes, [](const UnsupportedNode &n) { return n.invalid; })
             ? ErrorCode::Invalid
             : ErrorCode::Unsupported;
}

std::string LegalizeReport::json() const {
  llvm::json::Array array;
  for (const UnsupportedNode &n : nodes) {
    llvm::json::Array operands;
    for (const std::string &type : n.operands)
      operands.push_back(llvm::json::fixUTF8(type));
    llvm::json::Array needs;
    for (const std::string &input : n.needs)
      needs.push_back(llvm::json::fixUTF8(input));
    array.push_back(llvm::json::Object{{"node", llvm::json::fixUTF8(n.node)},
                                       {"op", llvm::json::fixUTF8(n.opType)},
                                       {"domain", llvm::json::fixUTF8(n.domain)},
                                       {"opset", n.opset},
                                       {"operands", std::move(operands)},
                                       {"cause", n.cause},
                                       {"message", llvm::json::fixUTF8(n.message)},
                                       {"nearest", llvm::json::fixUTF8(n.nearest)},
                                       {"remedy", llvm::json::fixUTF8(n.remedy)},
                                       {"needs", std::move(needs)},
                                       {"invalid", n.invalid}});
  }
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(array));
  return text;
}

const std::string &atenOperators() {
  static const std::string names = [] {
    std::vector<std::string> found;
    for (const auto &handler : legal::handlers())
      if (StringRef name = handler.getKey(); name.consume_front("aten."))
        found.push_back(name.str());
    llvm::sort(found);
    return llvm::join(found, "\n") + "\n";
  }();
  return names;
}

LogicalResult legalize(ModuleOp module, LegalizeReport &report) {
  bool ok = true;
  for (auto func : module.getOps<func::FuncOp>())
    if (!func.isExternal())
      ok &= succeeded(legal::Legalizer(module, func, report).run());
  if (ok && succeeded(legal::settleOptima(module, report)))
    return success();
  OpBuilder b(module.getContext());
  module->setAttr("lathe.unsupported", b.getStringAttr(report.json()));
  module->setAttr(kErrorAttr, b.getStringAttr(toString(report.code())));
  return failure();
}

ErrorCode legalizeError(ModuleOp module) {
  auto kind = module->getAttrOfType<StringAttr>(kErrorAttr);
  return kind && kind.getValue() == toString(ErrorCode::Invalid) ? ErrorCode::Invalid : ErrorCode::Unsupported;
}

namespace {

struct LegalizePass : impl::LegalizePassBase<LegalizePass> {
  void runOnOperation() final {
    LegalizeReport report;
    if (failed(legalize(getOperation(), report)))
      signalPassFailure();
  }
};

} // namespace

} // namespace lathe
