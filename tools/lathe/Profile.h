//===- Profile.h - engines side by side, and times of their kernels -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For verbs that change a model and say what that gained: both engines are run in turn, so that a slower moment of the
// machine meets both, and medians are compared.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_PROFILE_H
#define LATHE_TOOLS_LATHE_PROFILE_H

#include "Session.h"

#include <set>
#include <string>
#include <vector>

namespace lathe::cli {

/// The first entry of an engine, which runs on inputs of its own kind again and again.
struct OpenEngine {
  Model model;
  Session session;
  const engine::Plan *plan;

  static Result<OpenEngine> open(const std::string &path, const CompileOptions &compile, const SessionOptions &session);
  /// Copies of the results; states are afterwards as they were.
  Result<std::vector<HostTensor>> run(const std::vector<HostTensor> &inputs) const;
};

struct KernelTime {
  std::set<std::string> nodes; ///< of ONNX
  std::string config;
  std::string what; ///< the same word for kernels that do the same: what it computes, how, operations, bytes, calls in a run
  double seconds;   ///< a run's calls together: the median, or the least
  std::vector<double> rounds; ///< a run's calls together, by run
  bool computes(const std::string &node) const { return nodes.count(node); }
};

/// The middle one, or the mean of the middle two; 0 of none.
double median(std::vector<double> values);

/// Times of an engine and its kernels, a run each.
class Profile {
public:
  explicit Profile(const OpenEngine &engine) : engine(engine) { lathe_context_profile(engine.session.context(), 1); }

  Status runOnce(const std::vector<HostTensor> &inputs);
  /// Medians of all runs; or the least times, which neighbours on the machine disturbed least.
  enum class Of { Median, Least };
  std::vector<KernelTime> kernels(Of of = Of::Median) const;
  /// Seconds of a run; of least times those of its kernels, and of what is beside them, together.
  double latency(Of of = Of::Median) const;
  size_t rounds() const { return runs.size(); }

private:
  const OpenEngine &engine;
  std::vector<double> sums, runs;
  std::vector<std::vector<double>> each; ///< by row of the profile
};

/// Runs both in turn, 7 times at least, for this many seconds.
Status measureInTurn(Profile &a, Profile &b, const std::vector<HostTensor> &inputs, double seconds);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_PROFILE_H
