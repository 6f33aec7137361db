//===- Generator.h - a random model -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TEST_FUZZ_GENERATOR_H
#define LATHE_TEST_FUZZ_GENERATOR_H

#include "lathe/support/HostTensor.h"

#include <string>
#include <vector>

namespace lathe::fuzz {

/// A serialized ModelProto and values for its inputs.
struct TestModel {
  std::string bytes;    ///< sizes of inputs are numbers
  std::string symbolic; ///< the same, sizes of inputs are names; empty: there is no such form
  std::vector<HostTensor> inputs; ///< in the order of the model's
  int64_t nodes = 0;
};

/// The same model for the same seed on all machines. RuntimeFailure where ONNX's checker or its shape inference
/// refuse it: a defect of the generator.
Result<TestModel> generate(uint64_t seed);

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_GENERATOR_H
