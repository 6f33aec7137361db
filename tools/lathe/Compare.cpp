//===- Compare.cpp - lathe compare ----------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the model with a tap around every kernel, and computes each kernel's region
// again through the reference on the inputs that the kernel really got. So an error
// does not spread: the kernels that are wrong are those that made it wrong.
//
//===----------------------------------------------------------------------===//
#include "CompareFloat.h"
#include "Inputs.h"
#include "OnnxRuntime.h"
#include "Results.h"
#include "Verbs.h"

#include "lathe/compiler/Compilation.h"
#include "lathe/ir/Collective.h"
#include "lathe/ir/Exec.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"
#include "lathe/passes/Passes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OwningOpRef.h"

#include <cmath>
#include <cstdio>

using namespace mlir;

namespace lathe::cli {
namespace {

struct CompareOptions {
  CompileOptions compile;
  InputOptions inputs;
  SessionOptions session;
  std::vector<std::string> entries;
  std::string against = "reference", fault;
  FloatComparison withFloat; ///< if it names a model
};

/// What one kernel may differ by on the same inputs, of its largest result: the
/// reference sums in f64.
double boundOf(DType dtype) {
  switch (dtype) {
  case DType::F64:
    return 1e-11;
  case DType::F32:
    return 5e-5;
  case DType::F16:
    return 2e-3;
  case DType::BF16:
    return 1.6e-2;
  default:
    return isFloat(dtype) ? 0.13 : 0;
  }
}

/// Largest |got - want| as a part of max |want|; infinity where one is special.
double errorOf(const HostTensor &got, const HostTensor &want, int64_t &at) {
  double scale = 0, worst = 0;
  at = -1;
  for (int64_t i = 0, n = want.count(); i < n; ++i) {
    double g = isFloat(want.dtype) ? got.real(i) : double(got.integer(i));
    double w = isFloat(want.dtype) ? want.real(i) : double(want.integer(i));
    if (std::isfinite(w))
      scale = std::max(scale, std::fabs(w));
    double error = g == w || (std::isnan(g) && std::isnan(w)) ? 0
                   : std::isfinite(g) && std::isfinite(w)      ? std::fabs(g - w)
                                                               : INFINITY;
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  return worst == 0 ? 0 : scale > 0 ? worst / scale : INFINITY;
}

/// The launches of a block, and of what runs in it, in the order of the plan's text, by their numbers in the runtime,
/// which has one block after the other.
void numberLaunches(const engine::Plan &plan, int32_t block, const std::vector<size_t> &firstOf,
                    std::vector<size_t> &order) {
  size_t number = firstOf[block];
  for (const engine::Step &step : plan.blocks[block]) {
    if (std::holds_alternative<engine::LaunchStep>(step.op)) {
      order.push_back(number++);
    } else if (const auto *branch = std::get_if<engine::IfStep>(&step.op)) {
      for (int32_t inner : {branch->thenBlock, branch->elseBlock})
        if (inner >= 0)
          numberLaunches(plan, inner, firstOf, order);
    } else if (const auto *loop = std::get_if<engine::LoopStep>(&step.op)) {
      numberLaunches(plan, loop->body, firstOf, order);
    }
  }
}

/// Kernels and launches of one entry on one target, as the plan's IR has them; launches by their numbers in the
/// runtime.
class Program {
public:
  static Result<Program> find(ModuleOp top, const engine::Plan &plan, const std::string &target) {
    Program result;
    std::vector<size_t> firstOf, order;
    size_t count = 0;
    for (const auto &block : plan.blocks) {
      firstOf.push_back(count);
      count += llvm::count_if(block, [](const engine::Step &step) {
        return std::holds_alternative<engine::LaunchStep>(step.op);
      });
    }
    numberLaunches(plan, 0, firstOf, order);
    const std::string &entry = plan.entry;
    for (auto module : top.getOps<ModuleOp>()) {
      auto name = module->getAttrOfType<StringAttr>(kTargetAttr);
      if (!name || name.getValue() != target)
        continue;
      for (auto program : module.getOps<exec::ProgramOp>())
        if (program.getSymName() == entry) {
          result.module = module;
          SmallVector<exec::LaunchOp> inText;
          program.walk([&](exec::LaunchOp launch) { inText.push_back(launch); });
          if (inText.size() != order.size() || inText.size() != count)
            return internalError("the plan has " + std::to_string(order.size()) + " launches, its text " +
                                 std::to_string(inText.size()));
          result.launches.resize(count);
          for (auto [number, launch] : llvm::zip(order, inText))
            result.launches[number] = launch;
          return result;
        }
    }
    return internalError("the module has no program '" + entry + "' for " + target);
  }

  exec::LaunchOp launch(size_t i) const { return launches[i]; }
  exec::KernelOp kernel(exec::LaunchOp launch) const {
    return SymbolTable::lookupNearestSymbolFrom<exec::KernelOp>(module, launch.getKernelAttr());
  }

private:
  ModuleOp module;
  SmallVector<exec::LaunchOp> launches;
};

/// Collects what the taps show and judges each kernel when it has run.
class Judge {
public:
  Judge(const Program &program, const engine::Plan &plan, int64_t rank)
      : program(program), plan(plan), rank(rank) {}

  static void tap(void *self, const lathe_tap *tap) { static_cast<Judge *>(self)->see(*tap); }

  struct Wrong {
    size_t launch;
    std::string kernel, config, nodes, what;
  };
  std::vector<Wrong> wrong;
  std::vector<std::string> skipped;
  double worst = 0;
  size_t launched = 0, judged = 0; ///< a launch in a loop counts in each iteration

private:
  void see(const lathe_tap &tap) {
    if (tap.kind == LATHE_TAP_BEFORE) {
      before.clear();
      for (size_t i = 0; i < tap.count; ++i)
        before.push_back(copyOf(tap.tensors[i]));
    } else if (tap.kind == LATHE_TAP_AFTER) {
      ++launched;
      judge(tap);
    }
  }

  void judge(const lathe_tap &tap) {
    const size_t number = size_t(tap.step);
    exec::LaunchOp launch = program.launch(number);
    exec::KernelOp kernel = program.kernel(launch);
    Block &body = kernel.getBody().front();
    std::map<std::string, int64_t> symbols;
    for (const engine::Kernel &k : plan.kernels)
      if (k.name == tap.name)
        for (size_t i = 0; i < k.symbols.size() && i < tap.symbol_count; ++i)
          symbols[k.symbols[i]] = tap.symbols[i];
    std::vector<HostTensor> inputs(before.begin(), before.begin() + body.getNumArguments());
    for (size_t i = 0; i < inputs.size(); ++i) {
      // A packed weight lies in an order of its own, the region means the model's; and a rank may have been given a
      // part that is not the model's.
      auto buffer = launch.getBuffers()[i].getDefiningOp<exec::BufferOp>();
      if (!buffer || !buffer.getValue() || !(buffer.getPacking() || isa<ShardedAttr>(*buffer.getValue())))
        continue;
      Result<HostTensor> weight =
          hostTensorOf(*buffer.getValue(), body.getArgument(unsigned(i)).getType(),
                       kernel->getContext(), rank);
      if (!weight)
        return skip(tap, weight.status().str());
      inputs[i] = std::move(*weight);
    }
    Result<std::vector<HostTensor>> want = evaluateRegion(body, inputs, symbols);
    if (!want)
      return skip(tap, want.status().str());
    ++judged;
    std::vector<double> sensitivity;
    for (size_t i = 0; i < want->size(); ++i) {
      HostTensor got = copyOf(tap.tensors[inputs.size() + i]);
      std::string what = checkOne(got, (*want)[i], 0);
      if (what.empty())
        continue;
      if (sensitivity.empty())
        sensitivity = sensitivityOf(body, inputs, symbols, *want);
      what = checkOne(got, (*want)[i], 32 * sensitivity[i]);
      if (what.empty())
        continue;
      // Of a loop one iteration, the first that is wrong, says enough.
      if (llvm::any_of(wrong, [&](const Wrong &w) { return w.launch == number; }))
        break;
      wrong.push_back({number, tap.name, tap.config ? tap.config : "", tap.nodes ? tap.nodes : "",
                       "result " + std::to_string(i) + " " + describeType((*want)[i]) + ": " +
                           what});
      break;
    }
  }

  /// How far each result moves, as a part of its largest value, when the inputs move by
  /// one unit in the last place: the model asked for this much (a difference of large
  /// numbers, say), no kernel can do better.
  static std::vector<double> sensitivityOf(Block &body, const std::vector<HostTensor> &inputs,
                                           const std::map<std::string, int64_t> &symbols,
                                           const std::vector<HostTensor> &want) {
    std::vector<double> worst(want.size());
    uint64_t state = 1;
    for (int round = 0; round < 2; ++round) {
      std::vector<HostTensor> moved = inputs;
      for (HostTensor &input : moved) {
        if (!isFloat(input.dtype))
          continue;
        double unit = input.dtype == DType::F64    ? 0x1p-52
                      : input.dtype == DType::F32  ? 0x1p-23
                      : input.dtype == DType::BF16 ? 0x1p-7
                                                   : 0x1p-10;
        for (int64_t i = 0, n = input.count(); i < n; ++i) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          input.setReal(i, input.real(i) * (1 + (state >> 63 ? unit : -unit)));
        }
      }
      Result<std::vector<HostTensor>> results = evaluateRegion(body, moved, symbols);
      int64_t at = -1;
      for (size_t i = 0; results && i < want.size(); ++i)
        worst[i] = std::max(worst[i], errorOf((*results)[i], want[i], at));
    }
    return worst;
  }

  std::string checkOne(const HostTensor &got, const HostTensor &want, double slack) {
    if (got.dtype != want.dtype || got.count() != want.count())
      return "is " + describeType(got);
    int64_t at = -1;
    double error = errorOf(got, want, at);
    if (error <= boundOf(want.dtype) + slack) {
      worst = std::max(worst, error);
      return "";
    }
    char text[200];
    bool real = isFloat(want.dtype);
    std::snprintf(text, sizeof text,
                  "worst at %lld: %.9g, the reference has %.9g; %.2g of the largest value, %.2g "
                  "are allowed",
                  static_cast<long long>(at), real ? got.real(at) : double(got.integer(at)),
                  real ? want.real(at) : double(want.integer(at)), error,
                  boundOf(want.dtype) + slack);
    return text;
  }

  void skip(const lathe_tap &tap, const std::string &why) {
    skipped.push_back(std::string(tap.name) + ": " + why);
  }

  const Program &program;
  const engine::Plan &plan;
  const int64_t rank;
  std::vector<HostTensor> before;
};

/// Makes a kernel of the plan compute something else: floats y * 1.25 + 1, integers
/// y + 1, bools the opposite.
Status injectFault(ModuleOp top, const std::string &name) {
  bool found = false;
  top.walk([&](exec::KernelOp kernel) {
    if (kernel.getSymName() != name)
      return;
    found = true;
    Operation *yield = kernel.getBody().front().getTerminator();
    OpBuilder b(yield);
    Location loc = yield->getLoc();
    for (OpOperand &operand : yield->getOpOperands()) {
      Value value = operand.get();
      Type element = elementTypeOf(value);
      auto constant = [&](double number) -> Value {
        auto type = tensorType(element, ArrayRef<int64_t>());
        TypedAttr scalar = llvm::isa<FloatType>(element) ? TypedAttr(b.getFloatAttr(element, number))
                                                         : b.getIntegerAttr(element, int64_t(number));
        return ConstantOp::create(b, loc, type, DenseElementsAttr::get(type, Attribute(scalar)));
      };
      if (element.isInteger(1)) {
        value = NotOp::create(b, loc, value.getType(), value);
      } else {
        if (llvm::isa<FloatType>(element))
          value = MulOp::create(b, loc, value.getType(), value, constant(1.25));
        value = AddOp::create(b, loc, value.getType(), value, constant(1));
      }
      operand.set(value);
    }
  });
  return found ? okStatus() : usageError("the plan has no such kernel", "'" + name + "'");
}

/// Negates what one rank has of a weight, NAME@RANK: the engine's section of that rank is wrong.
Status damageShard(ModuleOp top, StringRef name, StringRef rankText) {
  int64_t rank = 0;
  if (rankText.getAsInteger(10, rank))
    return usageError("wants WEIGHT@RANK", "--inject-fault");
  Status status =
      usageError("no rank " + rankText.str() + " has a part of a weight of this name", "'" + name.str() + "'");
  top.walk([&](exec::BufferOp buffer) {
    auto sharded = dyn_cast_or_null<ShardedAttr>(buffer.getValueAttr());
    if (!sharded || buffer.getNameAttr().getValue() != name || rank < 0 || rank >= sharded.getParts())
      return;
    auto type = cast<RankedTensorType>(cast<TypedAttr>(sharded.getValue()).getType());
    Result<HostTensor> whole = hostTensorOf(sharded.getValue(), type, top.getContext());
    if (!whole) {
      status = whole.status();
      return;
    }
    const int64_t parts = sharded.getParts(), size = type.getDimSize(sharded.getAxis());
    int64_t run = 1, begin = 0;
    for (int64_t d = sharded.getAxis() + 1; d < type.getRank(); ++d)
      run *= type.getDimSize(d);
    for (int64_t block : sharded.getBlocks()) {
      const int64_t first = begin + shardBegin(block, parts, rank);
      const int64_t last = std::min(first + shardSize(block, parts), begin + block);
      for (int64_t i = 0, n = whole->count(); i < n; ++i)
        if (int64_t at = i / run % size; at >= first && at < last)
          whole->setReal(i, -whole->real(i));
      begin += block;
    }
    auto &store = top.getContext()->getOrLoadDialect<LatheDialect>()->weights();
    buffer.setValueAttr(ShardedAttr::get(top.getContext(), sharded.getAxis(), sharded.getParts(), sharded.getBlocks(),
                                         constantAttr(type, whole->data, store), sharded.getType()));
    status = okStatus();
  });
  return status;
}

Status execute(const CompareOptions &options, const std::string &path) {
  CompileOptions compile = options.inputs.fixing(options.compile, path);
  LATHE_RETURN_IF_ERROR(completeTarget(compile, options.session.device));
  if (isEngineFile(path))
    return usageError("compare wants the model: an engine has no kernel regions to replay", path);
  if (!compile.parameters.empty())
    return usageError("changes how weights come to kernels, not what they compute: compare without it", "--parameter");
  Result<std::unique_ptr<Compilation>> compilation = Compilation::open(path, compile);
  if (!compilation)
    return compilation.status();
  LATHE_RETURN_IF_ERROR((*compilation)->runTo(Phase::Plan));
  OwningOpRef<ModuleOp> truth((*compilation)->module().clone());
  const auto [fault, faultRank] = StringRef(options.fault).rsplit('@');
  if (!faultRank.empty())
    LATHE_RETURN_IF_ERROR(damageShard((*compilation)->module(), fault, faultRank));
  else if (!fault.empty())
    LATHE_RETURN_IF_ERROR(injectFault((*compilation)->module(), options.fault));
  LATHE_RETURN_IF_ERROR((*compilation)->runTo(Phase::Codegen));
  Result<engine::EngineWriter> writer = (*compilation)->engine();
  if (!writer)
    return writer.status();
  Result<std::string> bytes = writer->str();
  if (!bytes)
    return bytes.status();
  Result<Model> model = Model::fromBytes(path, std::move(*bytes));
  if (!model)
    return model.status();
  Result<Session> session = Session::open(*model, options.session);
  if (!session)
    return session.status();
  Result<std::vector<std::string>> names = expandEntries(options.entries, *model);
  if (!names)
    return names.status();

  bool anyWrong = false;
  for (size_t round = 0; round < names->size(); ++round) {
    Result<EntryRun> run =
        prepareRun(options.inputs, *model, *session, (*names)[round], round);
    if (!run)
      return run.status();
    const engine::Plan &plan = *run->plan;
    Result<Program> program = Program::find(*truth, plan, session->target());
    if (!program)
      return program.status();
    std::vector<lathe_tensor> out;
    const std::map<std::string, int64_t> lengths = session->stateLengths(plan);
    std::optional<Judge::Wrong> first; // of all ranks: the one that is launched first
    size_t firstRank = 0;
    // The ranks of a mesh one after another: the reference is of one thread.
    for (size_t rank = 0; rank < session->ranks(); ++rank) {
      if (rank)
        LATHE_RETURN_IF_ERROR(session->truncateStates(lengths));
      Judge judge(*program, plan, int64_t(rank));
      lathe_context_set_tap(session->rank(rank), &Judge::tap, &judge);
      Status ran = session->run(plan, run->inputs, out);
      lathe_context_set_tap(session->rank(rank), nullptr, nullptr);
      // Ranks that differ from each other are what is looked for here: the kernels tell more.
      if (!ran.ok() && judge.wrong.empty() && !first)
        return ran;
      const std::string where = session->ranks() > 1 ? ", rank " + std::to_string(rank) : "";
      std::printf("%s%s: %zu kernel launches, %zu replayed, worst error %.2g of the largest value\n",
                  plan.entry.c_str(), where.c_str(), judge.launched, judge.judged, judge.worst);
      for (const std::string &text : judge.skipped)
        std::printf("  not replayed: %s\n", text.c_str());
      for (size_t i = 0; i < judge.wrong.size(); ++i) {
        const Judge::Wrong &w = judge.wrong[i];
        std::printf("  %s: launch %zu, kernel %s (%s), ONNX nodes %s\n    %s\n",
                    i ? "also wrong" : "first wrong", w.launch, w.kernel.c_str(), w.config.c_str(),
                    w.nodes.empty() ? "-" : w.nodes.c_str(), w.what.c_str());
      }
      anyWrong |= !judge.wrong.empty();
      if (!judge.wrong.empty() && (!first || judge.wrong[0].launch < first->launch)) {
        first = judge.wrong[0];
        firstRank = rank;
      }
    }
    if (first && session->ranks() > 1)
      std::printf("%s: the first that is wrong is kernel %s on rank %zu, ONNX nodes %s\n", plan.entry.c_str(),
                  first->kernel.c_str(), firstRank, first->nodes.empty() ? "-" : first->nodes.c_str());
    if (options.against == "onnxruntime") {
      std::vector<HostTensor> outputs;
      for (const lathe_tensor &tensor : out)
        outputs.push_back(copyOf(tensor));
      Result<bool> agrees = compareWithOnnxRuntime(path, plan, run->inputs, outputs);
      if (!agrees)
        return agrees.status();
      anyWrong |= !*agrees;
    }
  }
  std::printf("%s\n", anyWrong ? "FAILED" : "PASSED");
  return anyWrong ? Status(ErrorCode::Mismatch, "") : okStatus();
}

} // namespace

Status compareVerb(const std::vector<std::string> &arguments) {
  Parser parser("compare", "MODEL [OPTIONS]",
                "Runs a model, taps every kernel, replays each on the inputs it got through the "
                "reference, and names the first that is wrong with its ONNX nodes.");
  CompareOptions options;
  parser.add("against", "reference|onnxruntime",
             "What is right (default: reference). onnxruntime: the model's outputs as well, by "
             "the Python package",
             [&](const std::string &value) {
               options.against = value;
               return value == "reference" || value == "onnxruntime"
                          ? okStatus()
                          : usageError("wants reference or onnxruntime, not '" + value + "'",
                                       "--against");
             });
  parser.add("float", "MODEL",
             "Compare outputs with this model's instead: MODEL is then a quantized form of it, or a recipe of `lathe quantize` "
             "(.json), and --data may be what `lathe quantize` takes",
             options.withFloat.model);
  parser.flag("bisect",
              "With --float and a recipe: find the layers that lose too much, by builds in which only some are quantized",
              options.withFloat.bisect);
  parser.add("loss", "X",
             "With --float: what an output may lose, the sum of squares of its error as a share of its own (default 0.01, "
             "which is 20 dB)",
             options.withFloat.loss);
  parser.add("entry", "NAME[*COUNT]", "The entries to run, in one context", options.entries);
  parser.add("device", "cpu|cuda:0", "Where to run (default: cpu)", options.session.device);
  parser.add("threads", "N", "CPU threads (default: all cores)", options.session.threads);
  options.inputs.addTo(parser);
  addCompileOptions(parser, options.compile, /*withEntries=*/false);
  parser.hidden("inject-fault", options.fault);
  parser.example("lathe compare model.onnx");
  parser.example("lathe compare model.onnx --data test_data_set_0 --device cuda:0");
  parser.example("lathe compare --float model.onnx q.onnx --data examples.npz");
  parser.example("lathe compare --float model.onnx q.json --bisect --data examples.npz");
  parser.example("lathe compare model.onnx --shape x=1x3x48x97 --against=onnxruntime");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1)
    return usageError("wants one model; `lathe compare --help` has examples", "lathe compare");
  reproducer().files.push_back(positional->front());
  FloatComparison &withFloat = options.withFloat;
  if (withFloat.model.empty() && withFloat.bisect)
    return usageError("wants the float model, as --float=MODEL", "--bisect");
  if (!withFloat.model.empty()) {
    if (!options.entries.empty() || options.against != "reference" || !options.fault.empty())
      return usageError("compares the first entry's outputs, without --entry and --against", "--float");
    if (!(withFloat.loss >= 0))
      return usageError("wants a number of 0 or more", "--loss");
    reproducer().files.push_back(withFloat.model);
  }
  reproduceOnCrash(reproducer());
  if (withFloat.model.empty())
    return execute(options, positional->front());
  withFloat.compile = options.compile;
  withFloat.inputs = options.inputs;
  withFloat.session = options.session;
  return compareWithFloat(withFloat, positional->front());
}

} // namespace lathe::cli
