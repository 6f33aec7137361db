//===- OverlapCollectives.cpp - compute beside all-reduces ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An all-reduce of many rows keeps the links busy, and products the multiprocessors, but each waits for the other.
// Where steps around it treat rows alike (RowDim.h), as all do from the product behind one attention to that ahead of
// the next, they are divided into two parts of the rows, which nothing orders: while the sums of one part are
// exchanged, the other computes. Each part has a stream, and the collectives, whose order is the same on all ranks,
// have one of their own. Streams.cpp adds the events. The second part is a quarter of the rows: nothing hides the last
// exchange of all, and a quarter was faster than a half (test/perf/gpu/results/ranks/tp-overlap-h200.log).
//
//   launch @down(%h, %w, %p)              launch @down(%h.0, %w, %p.0)
//   collective "all_reduce" %p to %s      collective "all_reduce" %p.0 to %s.0   stream 2
//   launch @up(%s, %v, %u)           =>   launch @down(%h.1, %w, %p.1)           stream 1
//                                         collective "all_reduce" %p.1 to %s.1   stream 2
//                                         launch @up(%s.0, %v, %u.0)
//                                         launch @up(%s.1, %v, %u.1)             stream 1
//
// Both parts launch the kernels of the whole, at other values of their size. So the number of rows is a size that the
// run knows: kernels for a constant number are left whole. So is an entry whose usual rows are so few that an estimate
// says that nothing is gained. Where a run has too few, all of them are in the first part, and as no other stream has a
// launch then, the run takes one stream (runtime/exec/Layout.h).
//
//===----------------------------------------------------------------------===//
#include "LaunchTime.h"
#include "RowDim.h"

#include "lathe/ir/Streams.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_OVERLAPCOLLECTIVESPASS
#include "lathe/passes/Passes.h.inc"

namespace {

using plan::Point, plan::RowDim;

constexpr int kSecondPart = 1, kCollectives = 2; ///< streams
/// Rows of the second part are multiples of it, so that tiles of products are whole, and one of so many of all rows.
constexpr int64_t kRowsOfTile = 128, kPart = 4;
/// What of exchanges is hidden, measured over NVLink: products have all multiprocessors, and blocks that begin late end
/// late.
constexpr double kHidden = 0.5;
/// What must be gained of the time of the program.
constexpr double kGain = 0.02;

/// Steps one behind another in the program that are divided together.
using Region = SmallVector<Operation *>;

/// The buffers of the parts of the rows of other buffers.
class RowParts {
public:
  RowParts(const RowDim &rows, const DimExpr &first, const DimExpr &second, const llvm::DenseSet<Operation *> &divided)
      : rows(rows), sizes{first, second}, divided(divided) {}

  DimExpr inPart(const DimExpr &expr, int part) const { return expr.substitute({{rows.symbol(), sizes[part]}}); }

  Value of(Value buffer, int part) {
    const int64_t dim = rows.inMemory(buffer.getType()).value_or(-1);
    if (dim < 0)
      return buffer;
    auto known = made.find({buffer, part});
    if (known != made.end())
      return known->second;
    auto op = buffer.getDefiningOp<exec::BufferOp>();
    Value result;
    if (isDivided(plan::rootOf(buffer))) {
      // Memory of its own: nothing orders what one part writes and the other reads.
      Value base = op.getBase() ? of(op.getBase(), part) : Value();
      result = make(op, inPart(op.getMemory().getType(), part), base, op.getKind(), 0);
    } else {
      DimExpr offset = part ? sizes[0] * bytesOfRow(buffer.getType(), dim) : DimExpr(0);
      result = make(op, inPart(buffer.getType(), part), buffer, exec::BufferKind::View, offset);
    }
    return made[{buffer, part}] = result;
  }

  /// Memory of a kernel alone, whose size follows from its own sizes.
  Value workspace(Value buffer, int part) {
    auto op = buffer.getDefiningOp<exec::BufferOp>();
    return make(op, inPart(buffer.getType(), part), Value(), op.getKind(), 0);
  }

private:
  Type inPart(Type type, int part) const {
    std::vector<DimExpr> dims = dimsOf(type);
    for (DimExpr &dim : dims)
      dim = inPart(dim, part);
    return tensorType(cast<TensorType>(type).getElementType(), dims);
  }

  static DimExpr bytesOfRow(Type type, int64_t dim) {
    std::vector<DimExpr> dims = dimsOf(type);
    dims[dim] = 1;
    return plan::bytesOf(tensorType(cast<TensorType>(type).getElementType(), dims));
  }

  /// Beside the buffer that it is of.
  static Value make(exec::BufferOp op, Type type, Value base, exec::BufferKind kind, const DimExpr &offset) {
    OpBuilder builder(op->getContext());
    Operation *behind = op;
    while (isa_and_nonnull<exec::BufferOp>(behind->getNextNode()))
      behind = behind->getNextNode();
    builder.setInsertionPointAfter(behind);
    auto at = offset == DimExpr(0) ? DimAttr() : DimAttr::get(builder.getContext(), offset);
    return exec::BufferOp::create(builder, op.getLoc(), type, base, op.getNameAttr(),
                                  exec::BufferKindAttr::get(builder.getContext(), kind), builder.getI64IntegerAttr(0),
                                  at, TypedAttr(), StringAttr(), DenseI64ArrayAttr(), UnitAttr())
        .getMemory();
  }

  /// Whether divided steps alone use the memory, by its rows.
  bool isDivided(exec::BufferOp root) {
    if (root.getKind() != exec::BufferKind::Arena)
      return false;
    auto [known, isNew] = apart.try_emplace(root, false);
    if (isNew)
      known->second = areRowsAlone(root);
    return known->second;
  }
  bool areRowsAlone(exec::BufferOp buffer) const {
    return rows.inMemory(buffer.getMemory().getType()).value_or(-1) >= 0 &&
           llvm::all_of(buffer->getUsers(), [&](Operation *user) {
             auto view = dyn_cast<exec::BufferOp>(user);
             return view ? !view.getOffset() && areRowsAlone(view) : divided.contains(user);
           });
  }

  const RowDim &rows;
  const DimExpr sizes[2];
  const llvm::DenseSet<Operation *> &divided;
  llvm::DenseMap<std::pair<Value, int>, Value> made;
  llvm::DenseMap<Operation *, bool> apart; ///< of roots
};

class Program {
public:
  Program(exec::ProgramOp program, ModuleOp module, const Target &target)
      : program(program), module(module), kernels(module), target(target), rates(ratesOf(target)),
        ranks(meshRanks(module)), optima(symbolOptima(module)) {}

  LogicalResult run() {
    std::optional<std::string> symbol = findRows();
    if (!symbol)
      return success();
    rows.emplace(*symbol);
    if (failed(findRegions()))
      return failure();
    if (regions.empty())
      return success();
    const int64_t usual = optima[*symbol];
    llvm::erase_if(regions, [&](const Region &region) { return gainOf(region, usual) <= 0; });
    int64_t least = kPart * kRowsOfTile;
    while (least <= usual && gainAt(least) < kGain * wholeTime(least))
      least *= 2;
    // With fewer rows nothing hides what the streams cost: 512 rows took a third longer on two cards.
    if (regions.empty() || least > usual) {
      missedRemark(program.getLoc(), "OverlapCollectives")
          << llvm::formatv("entry '{0}': {1} rows are too few to compute beside all-reduces", program.getSymName(), usual)
                 .str();
      return success();
    }
    const double gain = gainAt(usual), whole = wholeTime(usual);
    divide(symbolRanges(module)[*symbol].lo < least ? least : 0);
    passedRemark(program.getLoc(), "OverlapCollectives")
        << llvm::formatv("entry '{0}': parts of the rows compute beside each other's all-reduces from {1} rows on; "
                         "{2:F1} us less by estimate with {3}, of {4:F1} us",
                         program.getSymName(), least, gain * 1e6, usual, whole * 1e6)
               .str();
    return success();
  }

private:
  Block &body() { return program.getBody().front(); }

  /// The size that is the number of rows of all-reduces.
  std::optional<std::string> findRows() {
    std::optional<std::string> found;
    for (Operation &op : body()) {
      if (isa<exec::BindOp, exec::CallOp, exec::IfOp, exec::LoopOp, exec::TapOp>(op))
        return std::nullopt; // the host takes part
      for (Value operand : op.getOperands())
        if (exec::BufferOp root = plan::isStep(&op) ? plan::rootOf(operand) : exec::BufferOp(); root && root.getOnHost())
          return std::nullopt;
      if (auto collective = dyn_cast<exec::CollectiveOp>(op); collective && isAllReduce(collective) && !found)
        for (const DimExpr &dim : dimsOf(collective.getInput().getType()))
          if (dim != DimExpr(1)) {
            found = dim.symbolName();
            break;
          }
    }
    return found;
  }

  static bool isAllReduce(exec::CollectiveOp op) { return op.getName() == "all_reduce"; }

  /// Whether a step may be done for a part of the rows.
  FailureOr<bool> mayDivide(Operation &op) {
    auto areRows = [&](Value buffer) { return rows->inMemory(buffer.getType()).value_or(-1) >= 0; };
    if (auto collective = dyn_cast<exec::CollectiveOp>(op))
      return isAllReduce(collective) && areRows(collective.getInput()) && areRows(collective.getOutput());
    auto launch = dyn_cast<exec::LaunchOp>(op);
    if (!launch)
      return false;
    auto kernel = kernels.lookup<exec::KernelOp>(launch.getKernel());
    if (!kernel) {
      launch.emitOpError("launches a kernel that does not exist");
      return failure();
    }
    auto [known, isNew] = alike.try_emplace(kernel, false);
    if (isNew) {
      FailureOr<std::vector<KernelVariant>> found = variantsOf(kernel);
      if (failed(found))
        return failure();
      variants[kernel] = std::move(*found);
      known->second = rows->treatsRowsAlike(kernel.getBody().front());
    }
    if (!known->second)
      return false;
    const KernelSpec &spec = variants[kernel].front().spec;
    const size_t shared = spec.numInputs + spec.numOutputs;
    bool has = false;
    for (auto [i, buffer] : llvm::enumerate(launch.getBuffers())) {
      if (i >= shared && buffer.getDefiningOp<exec::BufferOp>().getKind() == exec::BufferKind::Workspace)
        continue;
      std::optional<int64_t> dim = rows->inMemory(buffer.getType());
      if (!dim)
        return false;
      has |= *dim >= 0;
      if (i >= size_t(spec.numInputs) && i < shared && *dim < 0)
        return false; // both parts would write it
    }
    return has;
  }

  /// Runs of steps that may be divided, from what makes the operand of their first all-reduce on.
  LogicalResult findRegions() {
    Region run;
    auto close = [&] {
      auto first = llvm::find_if(run, [](Operation *op) { return isa<exec::CollectiveOp>(op); });
      if (first != run.end()) {
        exec::BufferOp operand = plan::rootOf(cast<exec::CollectiveOp>(*first).getInput());
        auto isOperand = [&](Value buffer) { return plan::rootOf(buffer) == operand; };
        while (first != run.begin() && llvm::none_of((*--first)->getOperands(), isOperand)) {
        }
        regions.emplace_back(first, run.end());
      }
      run.clear();
    };
    for (Operation &op : body()) {
      if (!plan::isStep(&op))
        continue;
      FailureOr<bool> may = mayDivide(op);
      if (failed(may))
        return failure();
      if (*may)
        run.push_back(&op);
      else
        close();
    }
    close();
    return success();
  }

  Point at(int64_t count) const {
    Point point = optima;
    point[rows->symbol()] = count;
    return point;
  }
  double timeOf(exec::LaunchOp launch, int64_t count) {
    auto kernel = kernels.lookup<exec::KernelOp>(launch.getKernel());
    return plan::launchTime(launch, kernel, variants[kernel], target, rates, at(count)).seconds;
  }
  double exchangeTime(exec::CollectiveOp op, int64_t count) const {
    const double bytes = double(plan::valueAt(plan::bytesOf(op.getInput().getType()), at(count)).value_or(0));
    return bytes * 2 * double(ranks - 1) / double(ranks) / rates.exchangedBytesPerSecond;
  }

  double wholeTime(int64_t count) {
    double seconds = 0;
    for (const Region &region : regions)
      for (Operation *op : region) {
        auto launch = dyn_cast<exec::LaunchOp>(op);
        seconds += launch ? timeOf(launch, count) : exchangeTime(cast<exec::CollectiveOp>(op), count);
      }
    return seconds;
  }

  /// Seconds that are gained with so many rows: a part of the exchanges is hidden behind what there is to compute, and
  /// kernels begin twice, reading all weights.
  double gainOf(const Region &region, int64_t count) {
    double computing = 0, exchanging = 0, lost = 0;
    for (Operation *op : region) {
      lost += rates.eventSeconds;
      if (auto launch = dyn_cast<exec::LaunchOp>(op)) {
        const double whole = timeOf(launch, count);
        computing += whole;
        lost += std::max(0.0, timeOf(launch, count - count / kPart) + timeOf(launch, count / kPart) - whole);
      } else {
        exchanging += exchangeTime(cast<exec::CollectiveOp>(op), count);
      }
    }
    return std::min(computing, kHidden * exchanging) - lost;
  }
  double gainAt(int64_t count) {
    double seconds = 0;
    for (const Region &region : regions)
      seconds += gainOf(region, count);
    return seconds;
  }

  /// `least`: of so many rows on; 0: of any number.
  void divide(int64_t least) {
    const DimExpr size = DimExpr::symbol(rows->symbol());
    DimExpr second = DimExpr::floorDiv(size, kPart * kRowsOfTile) * DimExpr(kRowsOfTile);
    if (least > kPart * kRowsOfTile) // else fewer rows have no second part anyway
      second = second * DimExpr::min(DimExpr::floorDiv(size, least), 1);
    llvm::DenseSet<Operation *> divided;
    for (const Region &region : regions)
      divided.insert(region.begin(), region.end());
    RowParts parts(*rows, size - second, second, divided);
    auto onStream = [](Operation *op, int64_t stream) {
      op->setAttr(kStreamAttr, IntegerAttr::get(IntegerType::get(op->getContext(), 64), stream));
    };
    for (const Region &region : regions) {
      // Up to the next collective one part, then the other: a launch behind another on its stream may begin early.
      OpBuilder builder(region.back());
      for (auto first = region.begin(), end = first; first != region.end(); first = end) {
        while (end != region.end() && !isa<exec::CollectiveOp>(*end++)) {
        }
        for (int part : {0, 1})
          for (Operation *op : llvm::make_range(first, end)) {
            SmallVector<Value> operands;
            for (Value whole : op->getOperands())
              operands.push_back(isWorkspace(whole) ? parts.workspace(whole, part) : parts.of(whole, part));
            Operation *made = builder.clone(*op);
            made->setOperands(operands);
            if (auto launch = dyn_cast<exec::LaunchOp>(made))
              launch.setSymbolsAttr(symbolsIn(parts, launch, part));
            if (part)
              onStream(made, kSecondPart);
          }
      }
    }
    for (Operation *op : divided)
      op->erase();
    for (auto collective : body().getOps<exec::CollectiveOp>())
      onStream(collective, kCollectives);
    // From the last on: views use what they are of.
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body())))
      if (isa<exec::BufferOp>(op) && op.use_empty())
        op.erase();
  }

  static bool isWorkspace(Value buffer) {
    return buffer.getDefiningOp<exec::BufferOp>().getKind() == exec::BufferKind::Workspace;
  }

  static DictionaryAttr symbolsIn(const RowParts &parts, exec::LaunchOp launch, int part) {
    SmallVector<NamedAttribute> values;
    for (NamedAttribute value : launch.getSymbols()) {
      auto formula = dyn_cast<DimAttr>(value.getValue());
      values.push_back(formula ? NamedAttribute(value.getName(), DimAttr::get(launch.getContext(),
                                                                              parts.inPart(formula.expr(), part)))
                               : value);
    }
    return DictionaryAttr::get(launch.getContext(), values);
  }

  exec::ProgramOp program;
  ModuleOp module;
  SymbolTable kernels;
  const Target &target;
  const TargetRates rates;
  const int64_t ranks;
  Point optima;
  std::optional<RowDim> rows;
  llvm::DenseMap<Operation *, bool> alike; ///< kernels that may be launched for a part of the rows
  llvm::DenseMap<Operation *, std::vector<KernelVariant>> variants;
  std::vector<Region> regions;
};

struct OverlapCollectivesPass : impl::OverlapCollectivesPassBase<OverlapCollectivesPass> {
  void runOnOperation() override {
    SmallVector<std::string> streams = optionStrings(getOperation(), kStreamsOption);
    if (int64_t most = 0; !streams.empty() && !StringRef(streams[0]).getAsInteger(10, most) && most <= kCollectives)
      return;
    for (ModuleOp module : targetModules(getOperation())) {
      auto target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      if (!target->isCuda() || meshRanks(module) < 2)
        continue;
      for (auto program : module.getOps<exec::ProgramOp>())
        if (failed(Program(program, module, *target).run()))
          return signalPassFailure();
    }
  }
};

} // namespace

} // namespace lathe
