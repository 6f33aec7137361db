//===- Metric.h - what counts as a loss of results --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_METRIC_H
#define LATHE_TOOLS_LATHE_METRIC_H

#include "lathe/support/HostTensor.h"

#include <string>
#include <vector>

namespace lathe::cli {

/// How far results are from what they should be: 0 where they are the same, growing with the difference.
class Metric {
public:
  enum class Kind {
    Mse,    ///< the sum of squares of the error, as a share of the result's own
    Kl,     ///< mean Kullback-Leibler divergence of the rows along the last dimension, in nats: of probabilities where they are
            ///< some, else of the softmax of logits
    Cosine, ///< 1 - mean cosine of the rows
    Top1,   ///< share of rows whose greatest element is another one
    Script  ///< loss(want, got) of a file of Python
  };
  /// "mse", "kl", "cosine", "top1", or FILE.py, which must exist. Usage error otherwise.
  static Result<Metric> parse(const std::string &text);
  Kind kind() const { return metric; }
  const std::string &text() const { return name; }

  /// By example and output, all of one form. The worst output counts; a script gets lists, an entry an example, of
  /// mappings from outputs to arrays, and returns a number. Infinite for results that are not finite. Invalid, located in the
  /// script's line, where it raises or returns something else; Unsupported without Python or numpy.
  Result<double> of(const std::vector<std::string> &outputs, const std::vector<std::vector<HostTensor>> &want,
                    const std::vector<std::vector<HostTensor>> &got) const;

private:
  Metric(Kind metric, std::string name) : metric(metric), name(std::move(name)) {}
  Kind metric;
  std::string name;
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_METRIC_H
