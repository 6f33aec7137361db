//===- TemporaryModel.h - an edited model on its way to an engine -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_TEMPORARYMODEL_H
#define LATHE_TOOLS_LATHE_TEMPORARYMODEL_H

#include "lathe/support/Status.h"

#include <memory>
#include <string>

namespace lathe::cli {

/// A file of the model's name in a folder of its own, which goes with it.
class TemporaryModel {
public:
  /// RuntimeFailure where it cannot be written.
  static Result<std::unique_ptr<TemporaryModel>> write(const std::string &name, const std::string &bytes);
  ~TemporaryModel();
  TemporaryModel(const TemporaryModel &) = delete;

  const std::string path; ///< folder/name

private:
  TemporaryModel(std::string folder, const std::string &name) : path(folder + "/" + name), folder(std::move(folder)) {}
  const std::string folder;
};

/// `model` with its operands quantized as the recipe in the file says. Invalid, located in the recipe, where
/// it is of another model; Unsupported for a model whose weights lie in other files.
Result<std::unique_ptr<TemporaryModel>> quantizedByRecipe(const std::string &model, const std::string &recipe);

/// Usage error where `model` has weights in other files, which are looked for beside it, and `output`, an edited form of
/// it, would be in another folder.
Status checkBesideWeights(const std::string &model, const std::string &output);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_TEMPORARYMODEL_H
