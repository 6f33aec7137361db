//===- Calibrate.h - examples, and what is seen of values -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_CALIBRATE_H
#define LATHE_TOOLS_LATHE_CALIBRATE_H

#include "Profile.h"
#include "Resume.h"

#include "lathe/import/ObserveModel.h"
#include "lathe/import/QuantizeModel.h"
#include "lathe/quantize/Ranges.h"
#include "lathe/quantize/Weights.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lathe::cli {

using Example = std::vector<HostTensor>; ///< in the order of the entry's inputs

/// Examples of `data`: rows of an archive of arrays, as many at once as the model's batch (16 where that is free); or a
/// folder of input_N.pb, or of such folders, or of archives that are an example each. Each is finite, and no input is one
/// number everywhere. Errors name the file, and the input or the batch.
Result<std::vector<Example>> readExamples(const std::string &data, const engine::Plan &plan);

/// What codes of a layer's operands do to its results, over all examples. Sums of squares, as LossPart has them.
struct LayerLosses {
  double signal = 0, weight = 0, clipping = 0, rounding = 0, all = 0;
  double clipped = 0, elements = 0; ///< of what it reads: how many lie outside of their range
  quantize::Range seen;             ///< of what it reads
};

/// The layers in their order, in parts: the differences of weights that codes make become constants of an observed
/// model, of which a part has some 256 MB, or one layer.
std::vector<std::vector<QuantizedLayer>> partsOf(const std::vector<QuantizedLayer> &layers);

/// Runs of a model over examples, whose values are summed up in the engine. A file of examples is read once.
class Calibration {
public:
  Calibration(std::string path, std::string data, CompileOptions compile, SessionOptions session)
      : path(std::move(path)), data(std::move(data)), compile(std::move(compile)), session(std::move(session)) {
    this->compile.cache = false;
  }

  /// Where sums go now and then, and where those of a stopped run are looked for: by what is observed, of which recipe.
  void keepIn(const ResumeFolder &folder) { resume = &folder; }
  const ResumeFolder *kept() const { return resume; }

  /// The ranges of the recipe's activations by a method. Those that have no range are erased and printed.
  Status observeRanges(quantize::Recipe &recipe, const quantize::RangeMethod &method);
  /// Of the elements of these values of the model, by name. Unsupported where the model does not run on the CPU.
  Result<std::map<std::string, quantize::Histogram>> observeHistograms(const quantize::Recipe &recipe,
                                                                       const std::vector<std::string> &values);
  /// Of the activations of these layers, by name.
  Result<std::map<std::string, quantize::Channels>> observeChannels(const quantize::Recipe &recipe,
                                                                    const std::vector<QuantizedLayer> &layers);
  /// Of the results of these layers, by name: f32 [channels], what corrects the mean that codes shift.
  Result<std::map<std::string, HostTensor>> observeBiases(const quantize::Recipe &recipe, const std::vector<QuantizedLayer> &layers);
  Result<std::map<std::string, quantize::Gram>> observeGrams(const quantize::Recipe &recipe,
                                                             const std::vector<QuantizedLayer> &layers);
  /// Of these layers by the name of their results, with the recipe as it is now.
  Result<std::map<std::string, LayerLosses>> observeLosses(const quantize::Recipe &recipe,
                                                           const std::vector<QuantizedLayer> &layers);

private:
  using Batch = std::function<Status(size_t batch, const std::string &where, const std::vector<lathe_tensor> &results)>;
  /// What has been summed up so far, as numbers, and back; false where these are not of its form.
  struct Sums {
    std::function<std::vector<double>()> save;
    std::function<bool(const std::vector<double> &)> restore;
  };
  struct Seen {
    std::vector<quantize::Range> ranges;
    std::vector<quantize::Histogram> histograms; ///< none where the method needs none
  };
  Result<Seen> observeElements(const quantize::Recipe &recipe, const std::vector<std::string> &values,
                               const quantize::RangeMethod &method);
  Status run(const quantize::Recipe &recipe, const std::vector<Observation> &observations, const std::string &what,
             lathe_call_function call, void *user, const Batch &seen, const Sums &sums);

  const std::string path, data;
  CompileOptions compile;
  const SessionOptions session;
  std::vector<Example> examples;
  std::vector<std::string> names; ///< of inputs, where `fixesSizes`
  bool fixesSizes = false; ///< engines are compiled for the sizes of the examples alone: these have few
  const ResumeFolder *resume = nullptr;
};

/// Chooses factors by "smoothquant" or "awq" for the products' activations, into the recipe; prints for which there are
/// none.
Status chooseFactors(Calibration &calibration, const std::string &path, const std::string &method, quantize::Recipe &recipe);

/// Cross-layer equalization's factors for the activations between two layers, into the recipe, which must have none; prints how many.
Status equalizeLayers(const std::string &path, quantize::Recipe &recipe);

/// What corrects the means of results, into the recipe, whose ranges and codes are known: the mean error over the examples
/// (Nagel et al., 2019, section 4.2, of inputs as the float model has them).
Status correctBiases(Calibration &calibration, const std::string &path, quantize::Recipe &recipe);

/// Chooses codes by GPTQ for the recipe's matrices; prints what damping was needed where it was more than `damping`.
Status chooseCodes(Calibration &calibration, const std::string &path, double damping, quantize::Recipe &recipe);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_CALIBRATE_H
