//===- ModelFolder.h - a test model as files --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The form of the ONNX corpus: model.onnx and test_data_set_0/input_N.pb.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_FUZZ_MODELFOLDER_H
#define LATHE_TEST_FUZZ_MODELFOLDER_H

#include "Generator.h"

#include "lathe/support/Status.h"

namespace lathe::fuzz {

Status save(const TestModel &model, const std::string &folder);
/// The model of a folder, and its symbolic form.
Result<TestModel> load(const std::string &folder);

/// The values of one input.
Result<HostTensor> loadTensor(const std::string &folder, size_t input);

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_MODELFOLDER_H
