//===- Inputs.h - what an entry is fed with ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_INPUTS_H
#define LATHE_TOOLS_LATHE_INPUTS_H

#include "Options.h"
#include "Session.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lathe::cli {

/// The options of run, bench and compare that say what the inputs are.
struct InputOptions {
  std::vector<std::string> files;  ///< NAME=FILE.npy or FILE.pb
  std::vector<std::string> shapes; ///< NAME=1x3x224x224, of --shape and --input-shape
  std::vector<std::string> fixed;  ///< those of --shape: what a model is compiled for
  std::string dataFolder;          ///< test_data_set_N
  int seed = 0;
  std::set<size_t> skip; ///< numbers of input_N.pb that are constants of the engine
  void addTo(Parser &parser);
  /// The options of a model, with the sizes that --shape fixes; those of an engine are as they are.
  CompileOptions fixing(CompileOptions options, const std::string &path) const;
};

/// Files that were read, and expectations.
struct InputFiles {
  std::map<std::string, HostTensor> named;
  std::vector<HostTensor> byPosition; ///< input_N.pb without a name that fits
  std::map<std::string, std::vector<int64_t>> shapes;
  std::vector<std::optional<HostTensor>> expected; ///< output_N.pb, in graph order
};

/// The tensors of a model's sequence or optional as the parts of a list that the entry has under this name
/// (lathe/support/TensorList.h); none where it has no list.
Result<std::optional<std::vector<HostTensor>>> partsOfList(const std::vector<engine::Port> &ports, const std::string &name,
                                                           const std::optional<std::vector<HostTensor>> &tensors);

/// Reads all files. Types come from the plan where a file does not say (.npy of bf16).
Result<InputFiles> readInputs(const InputOptions &options, const engine::Plan &plan);

/// The inputs of a run in the plan's order. What no file gives is random: floats in
/// [-1, 1), integers and bools 0 or 1 (an index, a mask and a token all allow those). A
/// dimension that nothing decides has the size it was optimised for. The same seed,
/// entry and `round` give the same values.
Result<std::vector<HostTensor>> makeInputs(const InputOptions &options, const InputFiles &files,
                                           const engine::Plan &plan,
                                           const std::map<std::string, int64_t> &stateLengths,
                                           int round);

/// "entry*COUNT" texts as a list of names. When there is none, the model's first entry, and `prepare` ahead of it in
/// an engine with parameters.
Result<std::vector<std::string>> expandEntries(const std::vector<std::string> &texts,
                                               const Model &model);

/// One run of a chain of entries, ready to go.
struct EntryRun {
  const engine::Plan *plan = nullptr;
  InputFiles files;
  std::vector<HostTensor> inputs;
};
/// States must have the lengths at which the entry is to run. A file for an input that no entry
/// of the model has is a usage error.
Result<EntryRun> prepareRun(const InputOptions &options, const Model &model,
                            const Session &session, const std::string &entry, size_t round);

/// What the entry `prepare` was given and gave, which are, by name, inputs of the entries behind it in a chain.
class PreparedValues {
public:
  /// Ahead of a run: its inputs become these values.
  void give(EntryRun &run) const;
  /// Behind a run with these results.
  void take(const EntryRun &run, const std::vector<lathe_tensor> &results);

private:
  std::map<std::string, HostTensor> values;
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_INPUTS_H
