//===- Run.h - one run of one entry -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In order: symbols from the inputs, guards, layout, memory, steps (or a graph), status
// words, outputs, and at last the lengths of states: an error before that leaves them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_EXEC_RUN_H
#define LATHE_RUNTIME_EXEC_RUN_H

#include "Context.h"

namespace lathe::runtime {

class Run {
public:
  Run(Context &context, const Program &program, std::span<const lathe_tensor> inputs,
      std::span<lathe_tensor> outputs)
      : context(context), program(program), plan(program.plan), device(*context.device),
        entry(context.entries[&program]), inputs(inputs), outputs(outputs) {}
  Status execute();

private:
  // Binding.cpp: before the steps
  Status bindSymbols();
  Status bindSymbol(int32_t symbol, int64_t value, const std::string &what,
                    const std::string &where);
  /// Gives derived symbols their values as far as what they are made of is known.
  Status deriveSymbols();
  Status checkInput(size_t index);
  Status checkStates();
  Status lay();
  Status placeInput(size_t index);
  Status placeMemory();
  Status placeOutput(size_t index);
  void computeAddresses();
  bool overlapsInput(const void *data, size_t bytes) const;

  // Run.cpp: the steps
  Status runToEnd();
  bool isContextMemory(size_t output) const;
  Status runProgram();
  Status runWithGraph();
  Status runBlock(int32_t index);
  Status runStep(const CompiledStep &step);
  Status relay();
  Status launch(const CompiledStep &step);
  Status copy(const engine::CopyStep &step);
  Status bind(const engine::BindStep &step, const std::string &nodes);
  Status loop(const engine::LoopStep &step, const std::string &nodes);
  Status branch(const engine::IfStep &step);
  Status waitForDevice();
  Status startStatus();
  Status checkStatus();

  // Calls.cpp: code of others
  Status hostOp(const CompiledStep &step);
  Status customCall(const CompiledStep &step);
  Status showTap(lathe_tap_kind kind, const std::string &name, const CompiledStep &step,
                 std::span<const int32_t> buffers, const SiteLaunch *site);
  Result<std::vector<int64_t>> dimsOf(int32_t buffer);

  // Outputs.cpp: after the steps
  Status deliver(size_t index);
  Status commitStates();

  Context &context;
  const Program &program;
  const engine::Plan &plan;
  Device &device;
  EntryMemory &entry;
  std::span<const lathe_tensor> inputs;
  std::span<lathe_tensor> outputs;

  std::vector<int64_t> symbols;
  const Layout *layout = nullptr; ///< kept by the entry, or `ownLayout`
  Layout ownLayout;
  std::vector<StateSlot *> states;
  std::vector<void *> inputData;  ///< where the program reads each input
  std::vector<void *> outputData; ///< where it writes each output with an Output buffer
  std::vector<void *> addresses;  ///< per buffer; null while unknown
  std::vector<std::pair<int32_t, int64_t>> advances; ///< states and how far
  std::vector<std::pair<const char *, size_t>> callersInputs;
  bool deviceBusy = false; ///< work was enqueued since the last wait
  uint64_t launches = 0;
  int depth = 0;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_RUN_H
