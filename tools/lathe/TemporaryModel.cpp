//===- TemporaryModel.cpp - an edited model on its way to an engine -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TemporaryModel.h"

#include "lathe/import/QuantizeModel.h"
#include "lathe/support/Files.h"

#include <filesystem>
#include <system_error>
#include <unistd.h>

namespace fs = std::filesystem;

namespace lathe::cli {

Result<std::unique_ptr<TemporaryModel>> TemporaryModel::write(const std::string &name, const std::string &bytes) {
  std::error_code error;
  std::string pattern = (fs::temp_directory_path(error) / "lathe-model-XXXXXX").string();
  if (error || !mkdtemp(pattern.data()))
    return runtimeError("cannot be made", pattern);
  std::unique_ptr<TemporaryModel> model(new TemporaryModel(pattern, name));
  LATHE_RETURN_IF_ERROR(writeFileAtomically(model->path, bytes, FileSync::None));
  return model;
}

TemporaryModel::~TemporaryModel() {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

Result<std::unique_ptr<TemporaryModel>> quantizedByRecipe(const std::string &model, const std::string &file) {
  Result<quantize::Recipe> recipe = quantize::Recipe::read(file);
  if (!recipe)
    return recipe.status();
  Result<bool> external = hasExternalWeights(model);
  if (!external)
    return external.status();
  if (*external)
    return unsupportedError("has weights in other files: `lathe quantize --recipe` writes a model beside them", model);
  Result<std::string> bytes = quantizedModel(model, *recipe, file);
  if (!bytes)
    return bytes.status();
  return TemporaryModel::write(fs::path(model).filename().string(), *bytes);
}

Status checkBesideWeights(const std::string &model, const std::string &output) {
  Result<bool> external = hasExternalWeights(model);
  if (!external)
    return external.status();
  std::error_code error;
  auto folderOf = [&](const std::string &file) { return fs::weakly_canonical(fs::absolute(file, error), error).parent_path(); };
  if (*external && folderOf(model) != folderOf(output))
    return usageError("the model's external weights lie beside it: the new one must be in the same folder", output);
  return okStatus();
}

} // namespace lathe::cli
