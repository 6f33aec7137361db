//===- Paths.cpp - the ways that compute a group -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Paths.h"

#include "lathe/compiler/Compilation.h"
#include "lathe/ir/Lathe.h"
#include "lathe/ir/Register.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"
#include "lathe/passes/Passes.h"
#include "lathe/runtime/lathe.h"
#include "lathe/support/Files.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <cstring>

using namespace mlir;

namespace lathe::special {
namespace {

struct Parsed {
  MLIRContext context;
  std::string messages;
  OwningOpRef<ModuleOp> module;
  func::FuncOp main;

  explicit Parsed(const Group &group) : context(MLIRContext::Threading::DISABLED) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.getDiagEngine().registerHandler([this](Diagnostic &d) { messages += d.str() + "\n"; });
    module = parseSourceString<ModuleOp>(group.text, &context);
    if (module)
      main = *module->getOps<func::FuncOp>().begin();
  }
};

Status takeError(lathe_error *error) {
  if (!error)
    return okStatus();
  Status status = runtimeError(lathe_error_message(error), lathe_error_location(error));
  lathe_error_free(error);
  return status;
}

struct Opened {
  lathe_engine *engine = nullptr;
  lathe_context *context = nullptr;
  ~Opened() {
    if (context)
      lathe_context_destroy(context);
    if (engine)
      lathe_engine_close(engine);
  }
};

} // namespace

Result<Results> byReference(const Group &group) {
  Parsed parsed(group);
  if (!parsed.module)
    return internalError(parsed.messages, group.name);
  Block &body = parsed.main.getBody().front();
  llvm::DenseMap<Value, HostTensor> values;
  for (auto [argument, input] : llvm::zip(body.getArguments(), group.inputs))
    values[argument] = input;
  for (Operation &op : body.without_terminator()) {
    std::vector<HostTensor> operands;
    for (Value operand : op.getOperands())
      operands.push_back(values.at(operand));
    Result<std::vector<HostTensor>> results = evaluateOp(&op, operands);
    if (!results)
      return results.status();
    values[op.getResult(0)] = std::move(results->front());
  }
  Results all;
  for (Value result : body.getTerminator()->getOperands())
    all.push_back(values.at(result));
  return all;
}

Result<Results> byFolder(const Group &group) {
  Parsed parsed(group);
  if (!parsed.module)
    return internalError(parsed.messages, group.name);
  Block &body = parsed.main.getBody().front();
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  auto &weights = parsed.context.getLoadedDialect<LatheDialect>()->weights();
  for (auto [argument, input] : llvm::zip(body.getArguments(), group.inputs)) {
    TypedAttr value = constantAttr(cast<TensorType>(argument.getType()), input.data, weights);
    argument.replaceAllUsesWith(ConstantOp::create(b, parsed.main.getLoc(), value));
  }
  PassManager passes(&parsed.context);
  buildPipeline(passes, Phase::Legalize, Phase::Simplify);
  if (failed(passes.run(*parsed.module)))
    return internalError(parsed.messages, group.name);
  parsed.main = *parsed.module->getOps<func::FuncOp>().begin();
  Results all;
  for (auto [i, result] : llvm::enumerate(parsed.main.getBody().front().getTerminator()->getOperands())) {
    auto constant = result.getDefiningOp<ConstantOp>();
    Result<HostTensor> value = constant ? hostTensorOf(constant.getValue(), constant.getType(), &parsed.context)
                                        : HostTensor(group.cases[i].dtype, {0});
    if (!value)
      return value.status();
    all.push_back(std::move(*value));
  }
  return all;
}

Result<std::string> compile(const Group &group, const std::vector<std::string> &targets,
                            const std::filesystem::path &folder, bool dump) {
  std::string model = (folder / (group.name + ".mlir")).string();
  LATHE_RETURN_IF_ERROR(writeFileAtomically(model, group.text));
  CompileOptions options;
  options.targets = targets;
  options.cache = false;
  if (dump)
    options.dumpDir = (folder / (group.name + ".dump")).string();
  Result<CompileResult> compiled = compileModel(model, options);
  if (!compiled)
    return compiled.status();
  return std::move(compiled->bytes);
}

Result<Results> byEngine(const Group &group, const std::string &engine, const std::string &device,
                         const std::string &target) {
  Opened opened;
  LATHE_RETURN_IF_ERROR(takeError(lathe_engine_open_memory(engine.data(), engine.size(), &opened.engine)));
  lathe_options options{};
  options.size = sizeof options;
  options.threads = 1;
  options.no_pinning = 1;
  options.no_graphs = 1; // on the fake device a captured launch keeps no parameters
  options.target = target.c_str();
  LATHE_RETURN_IF_ERROR(
      takeError(lathe_context_create(opened.engine, device.c_str(), &options, &opened.context)));
  std::vector<lathe_tensor> inputs, outputs(group.cases.size());
  for (const HostTensor &input : group.inputs)
    inputs.push_back({const_cast<std::byte *>(input.data.data()), input.data.size(),
                      static_cast<lathe_dtype>(input.dtype), LATHE_HOST,
                      static_cast<int32_t>(input.rank()), input.dims.data(), nullptr});
  LATHE_RETURN_IF_ERROR(takeError(lathe_run(opened.context, nullptr, inputs.data(), inputs.size(),
                                            outputs.data(), outputs.size())));
  Results all;
  for (const lathe_tensor &t : outputs) {
    HostTensor result(static_cast<DType>(t.dtype), std::vector<int64_t>(t.dims, t.dims + t.rank));
    if (result.data.size() != t.bytes)
      return internalError("a result of another size", group.name);
    std::memcpy(result.data.data(), t.data, t.bytes);
    all.push_back(std::move(result));
  }
  return all;
}

} // namespace lathe::special
