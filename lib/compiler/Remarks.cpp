//===- Remarks.cpp - what was done, and what was not and why --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Remarks.h"

#include "Diagnostics.h"

#include "lathe/ir/Lathe.h"

#include "mlir/IR/Remarks.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace lathe {
namespace {

const char *kindName(llvm::remarks::Type type) {
  switch (type) {
  case llvm::remarks::Type::Passed:
    return "passed";
  case llvm::remarks::Type::Missed:
    return "missed";
  case llvm::remarks::Type::Failure:
    return "failure";
  case llvm::remarks::Type::Analysis:
    return "analysis";
  default:
    return "unknown";
  }
}

class Streamer final : public remark::detail::MLIRRemarkStreamerBase {
public:
  explicit Streamer(std::shared_ptr<RemarkLog> log) : log(std::move(log)) {}

  void streamOptimizationRemark(const remark::detail::Remark &remark) final {
    llvm::json::Array nodes;
    for (StringRef name : nodeNames(remark.getLocation()))
      nodes.push_back(llvm::json::fixUTF8(name));
    // Text streamed into a remark has the key "Remark"; the rest are metrics.
    std::string message;
    llvm::json::Object values;
    for (const remark::detail::Remark::Arg &arg : remark.getArgs())
      if (arg.key == "Remark")
        message += arg.val;
      else
        values[llvm::json::fixUTF8(arg.key)] = llvm::json::fixUTF8(arg.val);
    log->add(llvm::json::Object{{"kind", kindName(remark.getRemarkType())},
                                {"name", remark.getRemarkName()},
                                {"nodes", std::move(nodes)},
                                {"location", llvm::json::fixUTF8(describe(remark.getLocation()))},
                                {"message", llvm::json::fixUTF8(message)},
                                {"values", std::move(values)}});
  }

private:
  std::shared_ptr<RemarkLog> log;
};

} // namespace

std::shared_ptr<RemarkLog> RemarkLog::attach(MLIRContext &context) {
  auto log = std::make_shared<RemarkLog>();
  remark::RemarkCategories categories;
  // A kind of remark without a filter of its own is not emitted, whatever `all` says.
  categories.all = categories.passed = categories.missed = categories.analysis =
      categories.failed = "lathe";
  if (failed(remark::enableOptimizationRemarks(context, std::make_unique<Streamer>(log),
                                               std::make_unique<remark::RemarkEmittingPolicyAll>(),
                                               categories)))
    return nullptr;
  return log;
}

void RemarkLog::setPhase(Phase next) {
  std::lock_guard<std::mutex> lock(mutex);
  phase = next;
}

void RemarkLog::add(llvm::json::Object remark) {
  std::lock_guard<std::mutex> lock(mutex);
  remark["phase"] = llvm::StringRef(toString(phase).data(), toString(phase).size());
  list.push_back(std::move(remark));
}

std::string RemarkLog::json() const {
  std::lock_guard<std::mutex> lock(mutex);
  return llvm::formatv("{0:2}\n", llvm::json::Value(llvm::json::Array(list))).str();
}

} // namespace lathe
