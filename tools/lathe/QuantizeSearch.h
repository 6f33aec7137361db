//===- QuantizeSearch.h - a format for each layer, by a budget --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each format is given to all layers, and then to each layer alone, in an engine that is fused as it will be: what that loses
// at the model's results, and what it costs. Neighbours are quantized in pairs: what they cost less, because codes are passed on. Losses and
// costs add up; the best sums are found exactly (lathe/quantize/Assign.h), built and measured, and the measured one counts.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_QUANTIZESEARCH_H
#define LATHE_TOOLS_LATHE_QUANTIZESEARCH_H

#include "FloatTruth.h"
#include "KernelTimes.h"
#include "Resume.h"

#include "lathe/quantize/Assign.h"

#include "llvm/Support/JSON.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lathe::cli {

/// "loss=0.01", "latency=2.5ms", "size=10M"; of the latter two also "80%" of the model's own.
struct Budget {
  enum class Kind { Loss, Latency, Size };
  Kind kind = Kind::Loss;
  double value = 0;   ///< of a loss, seconds, bytes; or a share
  bool share = false; ///< `value` is a part of the float model's
  std::string text;
  /// Usage error for anything else.
  static Result<Budget> parse(const std::string &text);
};

struct SearchRequest {
  std::string model, data, lock; ///< lock: the file of kernel times, or empty
  Budget budget;
  Metric metric;
  CompileOptions compile;
  SessionOptions session;
};

class QuantizeSearch {
public:
  /// `candidates`: whole recipes of one model, a scheme each, without factors.
  QuantizeSearch(const SearchRequest &request, std::vector<quantize::Recipe> candidates)
      : request(request), candidates(std::move(candidates)) {
    this->request.compile.cache = false;
  }

  /// Mismatch where nothing keeps the budget, with the best that there is; or where nothing but the model as it is would.
  /// `resume`: where builds are kept.
  Result<quantize::Recipe> run(ResumeFolder &resume);

  std::string text() const;
  llvm::json::Object object() const;

private:
  using Choices = std::vector<size_t>; ///< of each unit; 0: float
  /// Layers of one weight.
  struct Unit {
    std::string weight;
    std::vector<size_t> candidates; ///< by choice - 1
  };
  struct Built {
    std::optional<double> loss, seconds; ///< where they were asked for
    double bytes = 0;
  };
  struct Measured {
    std::string name;
    Choices choices;
    double loss = 0, seconds = 0, floatSeconds = 0, bytes = 0;
    std::optional<double> predictedLoss, predictedSeconds;
    bool chosen = false;
    double ratio() const { return seconds / floatSeconds; }
  };

  Status findUnits();
  /// Times of the kernels that each format has everywhere, where they will stand: beside others of the format, with what those
  /// leave in caches. Layers alone and pairs then add kernels that only they have.
  Status measureUniform();
  Status measureAlone(ResumeFolder &resume);
  Status measurePairs(ResumeFolder &resume);
  /// One format for all layers that can have it.
  Choices uniformOf(size_t candidate) const;
  /// Sums over layers and pairs: the loss, and seconds or bytes.
  std::pair<double, double> predicted(const Choices &chosen) const;
  Result<Measured> measure(std::string name, const Choices &choices);
  Result<quantize::Recipe> decide();
  /// What is wrong with it by the budget; empty where it is kept.
  std::string broken(const Measured &one) const;
  Result<quantize::Recipe> recipeOf(const Choices &choices) const;
  Result<OpenEngine> open(const Choices &choices, double &bytes) const;
  Result<Built> build(const Choices &choices, bool wantLoss, bool wantSeconds, ResumeFolder &resume);
  double limit() const; ///< of the budget, in its unit
  std::string describe(const Measured &one) const;
  const char *schemeOf(size_t unit, size_t choice) const;
  bool bySize() const { return request.budget.kind == Budget::Kind::Size; }

  SearchRequest request;
  const std::vector<quantize::Recipe> candidates;
  std::vector<std::vector<QuantizedLayer>> layersOf; ///< by candidate
  std::vector<Unit> units;                           ///< in the order of the graph
  std::vector<std::pair<size_t, size_t>> neighbours;
  std::optional<FloatTruth> truth;
  std::optional<OpenEngine> base;
  KernelTimes times;
  double baseSeconds = 0, baseBytes = 0;
  std::vector<std::vector<quantize::Choice>> choices; ///< by unit
  std::vector<std::vector<Built>> alone;              ///< by unit, by choice - 1
  std::vector<quantize::PairCost> pairs;
  std::vector<quantize::Assignment> front;
  std::vector<Measured> measured;
  std::map<std::string, std::string> refused; ///< formats that a layer cannot have, and why
  size_t builds = 0;
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_QUANTIZESEARCH_H
