//===- Metric.cpp - what counts as a loss of results ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Metric.h"

#include "Loss.h"
#include "Python.h"

#include "lathe/support/Files.h"
#include "lathe/support/Npy.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

namespace json = llvm::json;

namespace lathe::cli {

namespace {

constexpr const char *kNames[] = {"mse", "kl", "cosine", "top1"}; ///< in the order of Kind

/// Ends with 1 and a line "LINE MESSAGE" in the file `error` where the script is to blame.
constexpr const char *kScript = R"py(
import importlib.util, json, os, sys, traceback
import numpy
path, folder = sys.argv[1:]
with open(os.path.join(folder, "about.json")) as f:
    about = json.load(f)
want, got = ([{name: numpy.load(os.path.join(folder, "%s_%d_%d.npy" % (kind, i, o))) for o, name in enumerate(about["outputs"])}
              for i in range(about["examples"])] for kind in ("want", "got"))
try:
    spec = importlib.util.spec_from_file_location("metric", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    value = module.loss(want, got)
    loss = float(value)
    if not loss >= 0:
        raise ValueError("loss() returned %r, not a number of 0 or more" % (value,))
except BaseException as error:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else 1
    with open(os.path.join(folder, "error"), "w") as f:
        f.write("%d %s: %s" % (line or 1, type(error).__name__, error))
    sys.exit(1)
with open(os.path.join(folder, "loss"), "w") as f:
    f.write(repr(loss))
)py";

/// Rows along the last dimension, as probabilities where they are some, else their softmax.
std::vector<double> probabilitiesOf(const HostTensor &tensor, int64_t begin, int64_t count) {
  std::vector<double> row(size_t(count), 0.0);
  double sum = 0, most = -INFINITY;
  bool any = true;
  for (int64_t i = 0; i < count; ++i) {
    row[size_t(i)] = tensor.real(begin + i);
    any &= row[size_t(i)] >= 0;
    sum += row[size_t(i)];
    most = std::max(most, row[size_t(i)]);
  }
  constexpr double kRounding = 1e-3;
  if (!any || std::fabs(sum - 1) > kRounding) {
    sum = 0;
    for (double &v : row)
      sum += v = std::exp(v - most);
  }
  for (double &v : row)
    v /= sum;
  return row;
}

/// The sum over the rows of one result.
double lossOfRows(Metric::Kind kind, const HostTensor &want, const HostTensor &got, int64_t rows, int64_t depth) {
  double all = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t begin = r * depth;
    if (kind == Metric::Kind::Kl) {
      const std::vector<double> p = probabilitiesOf(want, begin, depth), q = probabilitiesOf(got, begin, depth);
      double sum = 0;
      for (size_t i = 0; i < p.size(); ++i)
        if (p[i] > 0)
          sum += p[i] * std::log(p[i] / std::max(q[i], 1e-30));
      all += std::max(sum, 0.0);
    } else if (kind == Metric::Kind::Cosine) {
      double product = 0, a = 0, b = 0;
      for (int64_t i = begin; i < begin + depth; ++i)
        product += want.real(i) * got.real(i), a += want.real(i) * want.real(i), b += got.real(i) * got.real(i);
      all += a == 0 && b == 0 ? 0 : a == 0 || b == 0 ? 1 : std::max(0.0, 1 - product / std::sqrt(a * b));
    } else {
      auto greatest = [&](const HostTensor &tensor) {
        int64_t best = begin;
        for (int64_t i = begin; i < begin + depth; ++i)
          if (tensor.real(i) > tensor.real(best))
            best = i;
        return best;
      };
      all += greatest(want) != greatest(got);
    }
  }
  return all;
}

} // namespace

Result<Metric> Metric::parse(const std::string &text) {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (text == kNames[i])
      return Metric(Kind(i), text);
  if (!text.ends_with(".py"))
    return usageError("wants mse, kl, cosine, top1 or FILE.py, not '" + text + "'", "--metric");
  std::error_code error;
  if (!std::filesystem::is_regular_file(text, error))
    return usageError("there is no file '" + text + "'", "--metric");
  return Metric(Kind::Script, text);
}

Result<double> Metric::of(const std::vector<std::string> &outputs, const std::vector<std::vector<HostTensor>> &want,
                          const std::vector<std::vector<HostTensor>> &got) const {
  for (size_t e = 0; e < want.size(); ++e)
    for (size_t o = 0; o < outputs.size(); ++o) {
      const HostTensor &a = want[e][o], &b = got[e][o];
      if (a.dims != b.dims || a.dtype != b.dtype)
        return INFINITY;
      for (int64_t i = 0, n = isFloat(b.dtype) ? b.count() : 0; i < n; ++i)
        if (!std::isfinite(b.real(i)) && std::isfinite(a.real(i)))
          return INFINITY;
    }
  if (metric != Kind::Script) {
    double worst = 0;
    for (size_t o = 0; o < outputs.size(); ++o) {
      double sum = 0, rows = 0;
      Loss others; // of what has no rows of floats
      for (size_t e = 0; e < want.size(); ++e) {
        const HostTensor &a = want[e][o];
        if (metric == Kind::Mse || !isFloat(a.dtype) || a.dims.empty() || !a.count()) {
          others.add(a, got[e][o]);
          continue;
        }
        const int64_t depth = a.dims.back();
        sum += lossOfRows(metric, a, got[e][o], a.count() / depth, depth);
        rows += double(a.count() / depth);
      }
      worst = std::max({worst, rows > 0 ? sum / rows : 0, others.share(others.error).value_or(INFINITY)});
    }
    return worst;
  }
  TemporaryFolder folder;
  json::Array names;
  for (const std::string &output : outputs)
    names.push_back(json::fixUTF8(output));
  const json::Value about = json::Object{{"outputs", std::move(names)}, {"examples", int64_t(want.size())}};
  LATHE_RETURN_IF_ERROR(writeFileAtomically(folder.path + "/about.json", llvm::formatv("{0}", about).str()));
  for (size_t e = 0; e < want.size(); ++e)
    for (size_t o = 0; o < outputs.size(); ++o) {
      const std::string end = "_" + std::to_string(e) + "_" + std::to_string(o) + ".npy";
      LATHE_RETURN_IF_ERROR(writeNpy(folder.path + "/want" + end, want[e][o]));
      LATHE_RETURN_IF_ERROR(writeNpy(folder.path + "/got" + end, got[e][o]));
    }
  Result<PythonRun> ran = runPython(kScript, {name, folder.path}, folder, "--metric=" + name, "numpy");
  if (!ran)
    return ran.status();
  if (Result<std::string> raised = readFile(folder.path + "/error"); ran->code == 1 && raised) {
    const size_t space = raised->find(' ');
    return invalidError(raised->substr(space + 1), name + ":" + raised->substr(0, space));
  }
  Result<std::string> said = readFile(folder.path + "/loss");
  if (ran->code != 0 || !said)
    return unsupportedError("did not run: " + ran->said, "--metric=" + name);
  return std::strtod(said->c_str(), nullptr);
}

} // namespace lathe::cli
