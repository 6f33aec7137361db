//===- Check.cpp - one model in several ways ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a result may be off by is measured, not assumed: the reference runs again with noise of a few
// roundings (Interpreter.h), and a result may be off by a small multiple of what the noise does to it. So a
// difference of large numbers may lose digits, and nothing else may. An integer that noise changes is open.
//
//===----------------------------------------------------------------------===//
#include "Check.h"
#include "Interpreter.h"

#include "Localize.h"
#include "Session.h"

#include "lathe/compiler/Compilation.h"
#include "lathe/ir/Collective.h"
#include "lathe/ir/Loops.h"
#include "lathe/ir/Selection.h"
#include "lathe/support/Files.h"
#include "lathe/support/Half.h"

#include "mlir/IR/Builders.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

using namespace mlir;

namespace lathe::fuzz {
namespace {

/// Runs of the reference with rounding errors, this many of which draw the direction of each. Where a single rounding
/// decides (the whole number above a value that is one, but for rounding), half of the draws show it: of four, one in
/// sixteen such elements passes for certain. A mismatch has to stand against many.
constexpr int kUsualDraws = 4, kManyDraws = 40;

std::vector<Noise> noisyRuns(int draws) {
  std::vector<Noise> runs;
  for (int i = 1; i <= draws; ++i)
    runs.push_back({uint64_t(i)});
  runs.push_back({uint64_t(draws + 1), Rounding::Up});
  runs.push_back({uint64_t(draws + 2), Rounding::Down});
  runs.push_back({0, Rounding::Late});
  return runs;
}

/// An engine runs on one thread, and on so many.
constexpr int kThreads = 3;

constexpr double kOpen = std::numeric_limits<double>::infinity();

/// A result of the reference, and by how much each element may be off.
struct Truth {
  HostTensor want;
  std::vector<double> bounds;  ///< kOpen: rounding decides what it is
  bool open = false;           ///< rounding decides its sizes
};

/// The distance of neighbours at `x`.
double spacing(DType dtype, double x) {
  x = std::fabs(x);
  int digits = dtype == DType::F64 ? 52 : dtype == DType::F32 ? 23 : dtype == DType::F16 ? 10 : 7;
  int least = dtype == DType::F64 ? -1074 : dtype == DType::F32 ? -149 : dtype == DType::F16 ? -24 : -133;
  if (!std::isfinite(x) || x == 0)
    return std::ldexp(1, least);
  return std::ldexp(1, std::max(std::ilogb(x) - digits, least));
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

Truth truthOf(const Interpreted &exact, const std::vector<std::vector<Interpreted>> &noisy, size_t output) {
  constexpr double kTimes = 8, kUlps = 16, kDenormals = 4;
  Truth truth{exact.tensor, {}, false};
  const HostTensor &want = truth.want;
  const int64_t n = want.count();
  truth.bounds.assign(size_t(n), 0);
  if (!exact.inexact)
    return truth;
  for (const auto &run : noisy)
    truth.open |= run[output].tensor.dims != want.dims;
  if (truth.open)
    return truth;
  bool real = isFloat(want.dtype);
  std::vector<double> relative;
  for (int64_t i = 0; i < n; ++i) {
    double &bound = truth.bounds[size_t(i)];
    for (const auto &run : noisy) {
      const HostTensor &moved = run[output].tensor;
      if (!real) {
        if (moved.integer(i) != want.integer(i))
          bound = kOpen;
        continue;
      }
      double a = want.real(i), b = moved.real(i);
      if (!same(a, b))
        bound = std::max(bound, std::isfinite(a) && std::isfinite(b) ? std::fabs(a - b) : kOpen);
    }
    if (real && bound < kOpen && std::isfinite(want.real(i)) && want.real(i) != 0)
      relative.push_back(bound / std::fabs(want.real(i)));
  }
  if (!real)
    return truth;
  // Noise may cancel in one element by chance: the others of its tensor tell what is usual.
  double usual = 0;
  if (!relative.empty()) {
    auto middle = relative.begin() + int64_t(relative.size() / 2);
    std::nth_element(relative.begin(), middle, relative.end());
    usual = *middle;
  }
  for (int64_t i = 0; i < n; ++i) {
    double &bound = truth.bounds[size_t(i)], w = want.real(i);
    if (std::isfinite(w))
      bound = kTimes * (bound + usual * std::fabs(w)) + kUlps * spacing(want.dtype, w) +
              kDenormals * spacing(want.dtype, 0);
  }
  return truth;
}

std::string sizesText(const HostTensor &t) {
  std::string text(name(t.dtype));
  text += "[";
  for (size_t i = 0; i < t.dims.size(); ++i)
    text += (i ? "," : "") + std::to_string(t.dims[i]);
  return text + "]";
}

/// Why a result is wrong, or "".
std::string judge(const HostTensor &got, const Truth &truth, const std::string &name) {
  if (truth.open)
    return got.dtype == truth.want.dtype ? "" : "output '" + name + "' has another type";
  const HostTensor &want = truth.want;
  if (got.dtype != want.dtype || got.dims != want.dims)
    return "output '" + name + "' is " + sizesText(got) + ", the reference has " + sizesText(want);
  int64_t wrong = 0, worst = -1;
  double most = 0;
  bool real = isFloat(want.dtype);
  for (int64_t i = 0, n = want.count(); i < n; ++i) {
    double bound = truth.bounds[size_t(i)];
    if (bound == kOpen)
      continue;
    double error;
    if (real) {
      double g = got.real(i), w = want.real(i);
      error = same(g, w) ? 0 : std::isfinite(g) && std::isfinite(w) ? std::fabs(g - w) : kOpen;
      // Beyond the largest number, within the bound of it, is infinity.
      if (error == kOpen && std::isinf(g) && std::isfinite(w) && std::signbit(g) == std::signbit(w) &&
          !std::isfinite(decodeFloat(want.dtype, encodeFloat(want.dtype, w + std::copysign(bound, w)))))
        error = 0;
    } else {
      error = got.integer(i) == want.integer(i) ? 0 : 1;
    }
    if (!(error > bound))
      continue;
    ++wrong;
    if (worst < 0 || error / (bound + 1e-300) > most) {
      most = error / (bound + 1e-300);
      worst = i;
    }
  }
  if (!wrong)
    return "";
  char text[300];
  if (real)
    std::snprintf(text, sizeof text, "%lld of %lld are wrong; at %lld: %.9g, the reference has %.9g, +- %.2g",
                  static_cast<long long>(wrong), static_cast<long long>(want.count()), static_cast<long long>(worst),
                  got.real(worst), want.real(worst), truth.bounds[size_t(worst)]);
  else
    std::snprintf(text, sizeof text, "%lld of %lld are wrong; at %lld: %lld, the reference has %lld",
                  static_cast<long long>(wrong), static_cast<long long>(want.count()), static_cast<long long>(worst),
                  static_cast<long long>(got.integer(worst)), static_cast<long long>(want.integer(worst)));
  return "output '" + name + "', " + sizesText(want) + ": " + text;
}

/// One text for errors that differ in numbers and names alone.
std::string withoutNumbers(const std::string &text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char c = static_cast<unsigned char>(text[i]);
    if (isdigit(c)) {
      if (out.empty() || out.back() != '#')
        out += '#';
    } else {
      out += c == '\n' || c == '\t' ? ' ' : char(c);
    }
  }
  return out.substr(0, 300);
}

func::FuncOp mainOf(Compilation &compilation) {
  return compilation.module().lookupSymbol<func::FuncOp>("main");
}

bool hasHalves(func::FuncOp main) {
  return main
      .walk([](Operation *op) {
        bool half = llvm::any_of(op->getResultTypes(), [](Type type) {
          auto tensor = dyn_cast<TensorType>(type);
          return tensor && (tensor.getElementType().isF16() || tensor.getElementType().isBF16());
        });
        return half ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// A fence behind each op: no pass looks through a claim about sizes, so that each op is simplified and run by
/// itself. Bodies of loops are left alone: what stands in one belongs to it by what it computes.
void fence(func::FuncOp main) {
  auto loops = loopsAround(main.getBody().front());
  main.walk([&](Operation *op) {
    if (op->getName().getDialectNamespace() != "lathe" || loops.count(op) ||
        isa<ConstantOp, DimValueOp, DimFromOp, BindDimsOp, IotaOp, LoopBeginOp, LoopEndOp, ChooseOp, NonzeroOp>(op))
      return;
    OpBuilder b(op->getContext());
    b.setInsertionPointAfter(op);
    for (Value result : op->getResults()) {
      if (result.use_empty() || llvm::any_of(result.getUsers(), [](Operation *user) { return isa<DimFromOp>(user); }))
        continue;
      auto claim = BindDimsOp::create(b, op->getLoc(), result.getType(), result);
      result.replaceAllUsesExcept(claim.getY(), claim);
    }
  });
}

Result<std::unique_ptr<Compilation>> compiledTo(Phase phase, const std::string &path, const std::string &target,
                                                int64_t ranks = 1) {
  CompileOptions options;
  if (ranks > 1)
    options.mesh = {"tp=" + std::to_string(ranks)};
  options.targets = {target};
  options.threads = 1;
  auto compilation = Compilation::open(path, options);
  if (!compilation)
    return compilation.status();
  LATHE_RETURN_IF_ERROR((*compilation)->runTo(phase));
  return compilation;
}

Result<std::unique_ptr<Compilation>> legalized(const std::string &path, const std::string &target) {
  return compiledTo(Phase::Legalize, path, target);
}

Result<std::vector<HostTensor>> runModel(cli::Model &model, const std::vector<HostTensor> &inputs, int threads) {
  cli::SessionOptions how;
  how.threads = threads;
  how.noPinning = true;
  Result<cli::Session> session = cli::Session::open(model, how);
  if (!session)
    return session.status();
  std::vector<lathe_tensor> outputs;
  LATHE_RETURN_IF_ERROR(session->run(model.plans.front(), inputs, outputs));
  std::vector<HostTensor> results;
  for (const lathe_tensor &output : outputs)
    results.push_back(cli::copyOf(output));
  return results;
}

/// Finishes the engine and runs it. `compiled`: there was one.
Result<std::vector<HostTensor>> runCompilation(Compilation &compilation, const std::string &path,
                                               const std::vector<HostTensor> &inputs, bool &compiled) {
  LATHE_RETURN_IF_ERROR(compilation.runTo(Phase::Codegen));
  Result<engine::EngineWriter> writer = compilation.engine();
  if (!writer)
    return writer.status();
  Result<std::string> bytes = writer->str();
  if (!bytes)
    return bytes.status();
  Result<cli::Model> model = cli::Model::fromBytes(path, std::move(*bytes));
  if (!model)
    return model.status();
  compiled = true;
  auto results = runModel(*model, inputs, 1);
  if (!results)
    return results.status();
  // Bits do not depend on the number of threads.
  auto shared = runModel(*model, inputs, kThreads);
  if (!shared)
    return shared.status();
  for (size_t i = 0; i < results->size(); ++i)
    if ((*results)[i].data != (*shared)[i].data || (*results)[i].dims != (*shared)[i].dims)
      return internalError("output " + std::to_string(i) + " is another one on " + std::to_string(kThreads) + " threads");
  return results;
}

Result<std::vector<HostTensor>> runEngine(const std::string &path, const CheckOptions &options, bool fences,
                                          const std::vector<HostTensor> &inputs, bool &compiled) {
  compiled = false;
  auto compilation = legalized(path, options.target);
  if (!compilation)
    return compilation.status();
  if (fences)
    fence(mainOf(**compilation));
  return runCompilation(**compilation, path, inputs, compiled);
}

/// Error text, or "" for a run whose results are right.
struct Judged {
  std::string what, detail;
};

Judged judgeRun(const Result<std::vector<HostTensor>> &got, const Status &reference, const std::vector<Truth> &truths) {
  if (!got) {
    // What the reference refuses to compute, an engine refuses when it runs.
    if (!reference.ok() && got.status().code() == ErrorCode::RuntimeFailure)
      return {};
    return {withoutNumbers(got.status().str()), got.status().str()};
  }
  if (!reference.ok())
    return {"runs, although the reference says: " + withoutNumbers(reference.message()), reference.str()};
  if (got->size() != truths.size())
    return {"another number of outputs", std::to_string(got->size())};
  for (size_t i = 0; i < truths.size(); ++i)
    if (std::string wrong = judge((*got)[i], truths[i], std::to_string(i)); !wrong.empty())
      return {"mismatch", wrong};
  return {};
}

/// A model divided among ranks, whose ops are divided in ways drawn from `options.meshSeed`.
Verdict checkMesh(const TestModel &model, const CheckOptions &options, const std::string &path,
                  const Status &reference, const std::vector<Truth> &truths, Verdict verdict) {
  auto fail = [&](std::string what, std::string detail) {
    verdict.way = "mesh";
    verdict.what = std::move(what);
    verdict.detail = std::move(detail);
    return verdict;
  };
  constexpr int64_t kRanks[] = {2, 3, 4, 8};
  const int64_t ranks = kRanks[options.meshSeed % 4];
  auto compilation = compiledTo(Phase::Simplify, path, options.target, ranks);
  if (!compilation)
    return fail(withoutNumbers(compilation.status().str()), compilation.status().str());
  func::FuncOp main = mainOf(**compilation);
  for (Operation &op : main.getBody().front())
    if (isa<ChooseOp, LoopBeginOp>(op)) {
      verdict.refused = "an If or Loop";
      return verdict;
    }
  // Meeting is cheap, so that what is drawn decides.
  shard::Costs costs;
  costs.meetingSeconds = costs.replicatedByte = 1e-9;
  costs.drawnSeconds = 1e-3;
  costs.drawSeed = options.meshSeed;
  shard::StateLayouts states;
  Result<shard::Choice> choice = shard::choose(main, ranks, costs, {}, std::nullopt, {}, states);
  if (!choice)
    return fail(withoutNumbers(choice.status().str()), choice.status().str());
  if (options.meshSeed / 4 % 2 && choice->bytes > 1) { // with less memory than it takes, where anything fits into that
    const int64_t limit = choice->bytes * 4 / 5;
    shard::StateLayouts others;
    Result<shard::Choice> within = shard::choose(main, ranks, costs, {}, limit, {}, others);
    if (within && within->bytes > limit)
      return fail("more memory than the limit", std::to_string(within->bytes) + " bytes of " + std::to_string(limit));
    if (within)
      choice = std::move(within);
    else if (within.status().code() != ErrorCode::Usage)
      return fail(withoutNumbers(within.status().str()), within.status().str());
  }
  shard::localize(main, ranks, choice->ways);
  main.walk([&](Operation *op) { verdict.collectives += collectiveOf(op).has_value(); });
  Result<std::vector<HostTensor>> results = internalError("no result");
  if (options.mesh == CheckOptions::Mesh::Compiled) {
    bool compiled = false;
    results = runCompilation(**compilation, path, model.inputs, compiled);
    if (!results && !compiled && results.status().code() == ErrorCode::Unsupported) {
      verdict.refused = withoutNumbers(results.status().str());
      return verdict;
    }
  } else if (auto all = interpretRanks(main, ranks, model.inputs)) {
    for (size_t r = 1; r < all->size(); ++r)
      for (size_t i = 0; i < truths.size(); ++i)
        if ((*all)[r][i].data != (*all)[0][i].data)
          return fail("ranks differ", "rank " + std::to_string(r) + " of " + std::to_string(ranks) + ", output " +
                                          std::to_string(i));
    results = std::move((*all)[0]);
  } else {
    results = all.status();
  }
  if (Judged judged = judgeRun(results, reference, truths); !judged.what.empty())
    return fail(judged.what, std::to_string(ranks) + " ranks: " + judged.detail);
  return verdict;
}

Verdict checkAgainst(const TestModel &model, const CheckOptions &options, const std::vector<Noise> &noises) {
  Verdict verdict;
  auto fail = [&](const char *way, std::string what, std::string detail) {
    verdict.way = way;
    verdict.what = std::move(what);
    verdict.detail = std::move(detail);
    return verdict;
  };
  std::string path = options.folder + "/model.onnx", symbolic = options.folder + "/symbolic.onnx";
  if (Status written = writeFileAtomically(path, model.bytes); !written.ok())
    return fail("files", written.message(), written.str());
  auto compilation = legalized(path, options.target);
  if (!compilation)
    return fail("legalize", withoutNumbers(compilation.status().str()), compilation.status().str());
  func::FuncOp main = mainOf(**compilation);
  auto exact = interpret(main, model.inputs, std::nullopt);
  Status reference = exact.status();
  if (!exact && reference.code() != ErrorCode::RuntimeFailure)
    return fail("reference", withoutNumbers(reference.str()), reference.str());
  std::vector<Truth> truths;
  if (exact) {
    std::vector<std::vector<Interpreted>> noisy;
    size_t runs = 0;
    for (const Noise &noise : noises) {
      if (noise.rounding == Rounding::Late && !hasHalves(main))
        continue;
      ++runs;
      if (auto results = interpret(main, model.inputs, noise))
        noisy.push_back(std::move(*results));
    }
    for (size_t i = 0; i < exact->size(); ++i) {
      truths.push_back(truthOf((*exact)[i], noisy, i));
      // A run that noise leads astray (an index beyond its axis) tells nothing of what is right.
      truths.back().open |= (*exact)[i].inexact && noisy.size() < runs;
      int64_t count = truths.back().want.count();
      verdict.elements += count;
      verdict.open += truths.back().open ? count : std::count(truths.back().bounds.begin(), truths.back().bounds.end(), kOpen);
    }
  }
  compilation->reset();
  if (options.mesh != CheckOptions::Mesh::None)
    return checkMesh(model, options, path, reference, truths, std::move(verdict));

  bool compiled = false;
  Judged judged = judgeRun(runEngine(path, options, /*fences=*/false, model.inputs, compiled), reference, truths);
  if (!judged.what.empty())
    return fail("optimized", judged.what, judged.detail);
  if (options.unoptimized) {
    judged = judgeRun(runEngine(path, options, /*fences=*/true, model.inputs, compiled), reference, truths);
    if (!judged.what.empty())
      return fail("unoptimized", judged.what, judged.detail);
  }
  if (options.symbolic && !model.symbolic.empty()) {
    if (Status written = writeFileAtomically(symbolic, model.symbolic); !written.ok())
      return fail("files", written.message(), written.str());
    auto results = runEngine(symbolic, options, /*fences=*/false, model.inputs, compiled);
    if (!results && !compiled && results.status().code() == ErrorCode::Unsupported) {
      verdict.refused = withoutNumbers(results.status().str());
      return verdict;
    }
    judged = judgeRun(results, reference, truths);
    if (!judged.what.empty())
      return fail("symbolic", judged.what, judged.detail);
  }
  return verdict;
}

} // namespace

Result<std::vector<HostTensor>> referenceResults(const std::string &path, const std::vector<HostTensor> &inputs) {
  auto compilation = legalized(path, "x86-64-v3");
  if (!compilation)
    return compilation.status();
  auto results = interpret(mainOf(**compilation), inputs, std::nullopt);
  if (!results)
    return results.status();
  std::vector<HostTensor> tensors;
  for (Interpreted &result : *results)
    tensors.push_back(std::move(result.tensor));
  return tensors;
}

Verdict check(const TestModel &model, const CheckOptions &options) {
  Verdict verdict = checkAgainst(model, options, noisyRuns(kUsualDraws));
  return verdict.what == "mismatch" ? checkAgainst(model, options, noisyRuns(kManyDraws)) : verdict;
}

} // namespace lathe::fuzz
