//===- ResolveFreeOps.cpp - what is computed where it is read -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the results backwards, each op that no kernel owns is put inside its
// readers (index maps and cheap arithmetic are recomputed there), becomes one
// more output of a reader with the same sizes, or starts a kernel of its own.
// The measure is bytes: storing a value costs a write and a read per reader,
// computing it again costs its operands per reader.
//
//   %t = transpose %x                       kernel { add (transpose %x), %z }
//   %y = add %t, %z                     =>
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

#include "../MixedInputProducts.h"

#include "lathe/ir/AttentionOperands.h"

using namespace mlir;

namespace lathe::fuse {

namespace {

/// Recomputation beyond this factor is refused whatever the bytes.
constexpr double kMaxRepeats = 4;
constexpr unsigned kMaxMovementReaders = 8;
/// Places of a computed value that one element of a reader may need: between two axes of a cubic resize there
/// are 4, before a third one 16, and a fourth one makes kernels that take minutes to compile.
constexpr unsigned kMaxPlaces = 8;
/// Elements that a value may be made of where a reduction reads it, which computes it in each of its passes: a cubic resize
/// of two axes reads 16, and compiles for a minute in a kernel of three passes.
constexpr size_t kMaxReads = 8;
/// Elements from which on a transpose ahead of reductions along its rows is a kernel of its own on a CPU.
constexpr double kTransposedAlone = 16 << 10;
/// Operations that take about as long as a launch.
constexpr double kFreeWork = 64 << 10;
/// Elements of a mask that a core of a CPU no longer finds in its cache.
constexpr double kUncachedMask = 1 << 20;
/// Operations on whole masks that are worth doing for each score.
constexpr double kMaskWork = 16;

class Resolver {
public:
  Resolver(FusionGraph &graph, const Target &target, ModuleOp module)
      : graph(graph), target(target), mixed(target, module),
        computeMasks(target.isCuda()) {}

  Resolution run() {
    for (Operation *op : llvm::reverse(graph.ops()))
      if (graph.isFree(op) && !op->use_empty())
        resolve(op);
    return std::move(result);
  }

private:
  /// Who reads an op's result.
  struct Readers {
    llvm::SetVector<Group *> groups;
    bool memory = false; ///< someone needs it in memory
  };

  Readers readersOf(Operation *op) const {
    Readers readers;
    for (OpOperand &use : op->getUses()) {
      Operation *user = use.getOwner();
      if (Group *group = graph.ownerOf(user)) {
        bool contracts = group->anchor == user || isClass(user, OpClass::Conv);
        if (contracts && needsMemory(*group) && !isStemPrologue(op, use) && !(isImageOfCodes(op) && !computeMasks) &&
            !isUpcastWeight(op, use) && !isStoredOperand(use) && !maskParts.contains(op) && !isPageWay(op, use) &&
            !isTransposedView(op, use) && !isUpdate(use) && !(computeMasks && group->kind == RegionKind::Scan && readsOnce(use)))
          readers.memory = true;
        else
          readers.groups.insert(group);
        continue;
      }
      auto inlined = result.inlined.find(user);
      if (isWalked(use)) {
        readers.memory = true;
        continue;
      }
      // What is behind the codes of an image is the convolution's operand as much as they are.
      bool image = !computeMasks && isImageOfCodes(user) && !hasStemChannels(op);
      if (inlined == result.inlined.end() || transposedViews.contains(user) || image || isMultipliedAsCodes(user, target))
        readers.memory = true;
      else
        readers.groups.insert(inlined->second.begin(), inlined->second.end());
    }
    return readers;
  }

  /// What is read at places that reads before have named, many for each result (trees).
  static bool isWalked(OpOperand &use) {
    auto structured = dyn_cast<StructuredOpInterface>(use.getOwner());
    return structured && structured.getOpClass() == OpClass::Gather &&
           structured.getAccess(use.getOperandNumber()).kind == OperandAccess::Kind::Whole;
  }

  /// On a CPU, a large transpose whose neighbours were none before: whoever reads its rows gathers them.
  bool gathersRows(Operation *op) const {
    auto permutation = permutationOf(op);
    return !computeMasks && permutation && !keepsLastDim(*permutation) && graph.count(dimsOf(op->getResult(0))) >= kTransposedAlone;
  }
  static bool isReduction(const Group *group) { return group->kind == RegionKind::Reduction; }

  /// Anchors that read their operands many times or in an order of their own.
  static bool needsMemory(const Group &group) {
    return group.isContraction() || group.kind == RegionKind::Scan ||
           isClass(group.anchor, OpClass::Scatter) || isClass(group.anchor, OpClass::Window);
  }

  /// An image of few channels is gathered pixel by pixel whatever its layout: the first
  /// convolution reads it as the caller stores it.
  static bool isStemPrologue(Operation *op, OpOperand &use) {
    return isClass(use.getOwner(), OpClass::Conv) && use.getOperandNumber() == 0 && hasStemChannels(op);
  }
  static bool hasStemChannels(Operation *op) {
    constexpr int64_t kMaxStemChannels = 4;
    if (!permutationOf(op))
      return false;
    auto channels = dimsOf(op->getResult(0)).back().constant();
    return channels && *channels <= kMaxStemChannels;
  }

  /// Weights kept in 16 bits that a CPU's product upcasts as it reads its panels.
  bool isUpcastWeight(Operation *op, OpOperand &use) const {
    if (computeMasks || !isConversion(op) || !isClass(use.getOwner(), OpClass::Gemm) ||
        use.getOperandNumber() != 1 || !op->getOperand(0).getDefiningOp<ConstantOp>())
      return false;
    Type stored = elementTypeOf(op->getOperand(0));
    return (stored.isF16() || stored.isBF16()) && elementTypeOf(op->getResult(0)).isF32();
  }

  /// Weights that a product reads as they are stored, or codes of either operand whose sums it scales.
  bool isStoredOperand(OpOperand &use) const {
    auto matmul = dyn_cast<MatmulOp>(use.getOwner());
    return matmul && (multipliesBlocks(matmul, target) || (use.getOperandNumber() == 1 && mixed.takes(matmul)));
  }

  /// Keys and values in pages that a table names are read where they lie: by an attention of few queries, at
  /// most sixteen columns of queries and heads that share keys, or by TMA. A GPU does so for operands of 16 bits.
  bool isPageWay(Operation *op, OpOperand &use) const {
    auto attention = dyn_cast<AttentionOp>(use.getOwner());
    if (!attention || use.getOperandNumber() < 1 || use.getOperandNumber() > 2)
      return false;
    constexpr int64_t kColumns = 16;
    std::vector<DimExpr> q = dimsOf(attention.getQ()), k = dimsOf(attention.getK());
    auto queries = q[2].constant(), heads = q[1].constant(), keyHeads = k[1].constant();
    auto depth = q[3].constant(), width = dimOf(attention.getV(), 3).constant();
    Type element = elementTypeOf(use.get());
    if (!heads || !keyHeads || *keyHeads == 0 || !depth || !width || *depth % 8 || *width % 8 ||
        !(element.isF16() || element.isBF16() || (element.isF32() && !computeMasks)) ||
        elementTypeOf(attention.getQ()) != element)
      return false;
    bool few = queries && *queries * (*heads / *keyHeads) <= kColumns;
    bool engine = computeMasks && target.hasWgmma() && *depth % 16 == 0 &&
                  *width % 16 == 0 && std::max(*depth, *width) <= 256;
    if (!few && !engine)
      return false;
    std::optional<CodedRows> keyCodes = codedRows(attention.getK()), valueCodes = codedRows(attention.getV());
    if ((keyCodes || valueCodes) && computeMasks && !(few && target.hasClusters()))
      return false;
    std::optional<RowsInMemory> keys = rowsInMemory(keyCodes ? keyCodes->codes : attention.getK()),
                                values = rowsInMemory(valueCodes ? valueCodes->codes : attention.getV());
    return keys && keys->gathered && isStored(keys->memory) && values && values->gathered &&
           isStored(values->memory);
  }

  /// Updates without an order, and where they go: a thread of a GPU that writes some computes them.
  bool isUpdate(OpOperand &use) const {
    return computeMasks && isClass(use.getOwner(), OpClass::Scatter) && use.getOperandNumber() > 0 &&
           !use.getOwner()->hasAttr("reduction");
  }

  /// Attention reads rows of tokens as they lie (MergeProducts).
  bool isTransposedView(Operation *op, OpOperand &use) const {
    Value view = computeMasks && isa<AttentionOp>(use.getOwner()) && use.getOperandNumber() < 3
                     ? tokensFirst(op->getResult(0))
                     : Value();
    return view && view.getDefiningOp<SliceOp>() && isView(view.getDefiningOp());
  }

  /// A sink, or where the keys of a sequence begin, end and meet the queries: a number for a head or a
  /// batch that takes no longer to make than to read.
  bool isPlacePart(Operation *op) const {
    return isCheapScorePart(op) && llvm::all_of(op->getUses(), [&](OpOperand &use) {
             auto attention = dyn_cast<AttentionOp>(use.getOwner());
             Value v = use.get();
             return placeParts.contains(use.getOwner()) ||
                    (attention && (v == attention.getStarts() || v == attention.getLengths() ||
                                   v == attention.getOffset() || v == attention.getSink()));
           });
  }

  bool isCheapScorePart(Operation *op) const {
    constexpr double kMaxWork = 2;
    OpClass kind = *classOf(op);
    return kind == OpClass::Source || kind == OpClass::Movement ||
           (kind == OpClass::Pointwise && graph.workOfElement(op) <= kMaxWork);
  }

  /// Whether an op is worth computing for each score of an attention instead of being read: a few
  /// operations on at most one operand of about its size, or that all follow from smaller ones, for what comes to the
  /// scores alone. On a CPU where the mask is large: whole blocks that it hides need neither be computed nor read then.
  bool isMaskPart(Operation *op) const {
    double size = graph.count(dimsOf(op->getResult(0)));
    if (!isCheapMaskPart(op) || !llvm::all_of(op->getUses(), [&](OpOperand &use) {
          return maskParts.contains(use.getOwner()) ||
                 (comesToScores(use) && (computeMasks || isUncached(op)));
        }))
      return false;
    return llvm::count_if(op->getOperands(), [&](Value operand) { return isAsLarge(operand, size); }) <= 1 ||
           workFromSmaller(op, size) <= kMaskWork;
  }
  bool isCheapMaskPart(Operation *op) const {
    constexpr double kMaxWork = 4; // a remainder: masks of every n-th block
    return isCheapScorePart(op) || (isClass(op, OpClass::Pointwise) && graph.workOfElement(op) <= kMaxWork);
  }
  static bool comesToScores(OpOperand &use) { return isa<AttentionOp>(use.getOwner()) && use.getOperandNumber() >= 3; }
  /// Whether a mask leaves the cache before the next head reads it: that of one text, which all its heads read.
  bool isUncached(Operation *op) const {
    const std::vector<DimExpr> dims = dimsOf(op->getResult(0));
    return graph.count(ArrayRef<DimExpr>(dims).take_back(2)) >= kUncachedMask;
  }
  /// What comes to scores, of a size at which it had better be computed with them.
  bool isLargeMask(Operation *op) const { return isUncached(op) && llvm::any_of(op->getUses(), comesToScores); }
  bool isAsLarge(Value operand, double size) const {
    constexpr double kSmaller = 64;
    return graph.count(dimsOf(operand)) * kSmaller > size;
  }
  /// Operations for an element of what follows from operands much smaller than `size` alone; more than kMaskWork
  /// where something else is among them.
  double workFromSmaller(Operation *op, double size) const {
    double work = isClass(op, OpClass::Pointwise) ? graph.workOfElement(op) : 0;
    for (Value operand : op->getOperands()) {
      if (work > kMaskWork || !isAsLarge(operand, size))
        continue;
      Operation *producer = operand.getDefiningOp();
      if (!producer || isa<ConstantOp>(producer) || !graph.isFree(producer) || !isCheapMaskPart(producer))
        return kMaskWork + 1;
      work += workFromSmaller(producer, size);
    }
    return work;
  }

  /// Numbers of pages that attentions read in place: they are read once a page, and a kernel that finds them
  /// by its rows knows which rows share keys (keysFoundBy), however many layers there are.
  bool isPageNumber(Operation *op) const {
    const bool cheap = isClass(op, OpClass::Gather) || isCheapScorePart(op);
    return cheap && llvm::all_of(op->getUses(), [&](OpOperand &use) {
             if (pageNumbers.contains(use.getOwner()))
               return true;
             auto readers = result.inlined.find(use.getOwner());
             return isClass(use.getOwner(), OpClass::Gather) && use.getOperandNumber() == 1 &&
                    readers != result.inlined.end() && llvm::all_of(readers->second, [](const Group *group) {
                      return group->kind == RegionKind::Attention;
                    });
           });
  }

  /// In memory already, densely: a view of it costs nothing.
  bool isStored(Value value) const {
    if (physicalDimsOf(value.getType()) != dimsOf(value))
      return false;
    Operation *producer = value.getDefiningOp();
    if (!producer || graph.ownerOf(producer) || !classOf(producer))
      return true;
    return isa<ConstantOp>(producer) && !isNumber(producer);
  }

  void resolve(Operation *op) {
    OpClass kind = *classOf(op);
    if (!isa<ConstantOp>(op) && !(isView(op) && isStored(op->getOperand(0)))) {
      if (isPlacePart(op))
        placeParts.insert(op);
      if (placeParts.contains(op) || isMaskPart(op))
        maskParts.insert(op);
    }
    if (isPageNumber(op))
      pageNumbers.insert(op);
    if (llvm::all_of(op->getUses(), [&](OpOperand &use) { return isTransposedView(op, use); }))
      transposedViews.insert(op);
    places[op] = placesOf(op);
    Readers readers = readersOf(op);
    if (isa<ConstantOp>(op))
      return; // numbers go into the text of kernels, other constants stay weights
    if (isView(op) && (isStored(op->getOperand(0)) ||
                       (readers.memory && physicalDimsOf(op->getOperand(0).getType()) ==
                                              dimsOf(op->getOperand(0)))))
      return; // stays as a view between kernels
    if (readers.memory) {
      store(op, readers, isLargeMask(op) ? "attention reads it for each score, and computing it there takes operands of its size or more than " +
                                               std::to_string(int64_t(kMaskWork)) + " operations"
                                         : "something outside kernels, or a contraction, reads it from memory");
      return;
    }
    std::string reason;
    if (kind == OpClass::Source || maskParts.contains(op) || pageNumbers.contains(op) || (!computeMasks && isImageOfCodes(op)) || isMultipliedAsCodes(op, target) ||
        worthRepeating(op, kind, readers, reason)) {
      result.inlined[op] = readers.groups;
      return;
    }
    store(op, readers, reason);
  }

  /// At how many places an element of a reader needs the result of `op`: whoever moves elements asks for one of
  /// its own, all others for that of their own result.
  unsigned placesOf(Operation *op) const {
    unsigned same = 0, moved = 0;
    for (Operation *user : llvm::SetVector<Operation *>(op->user_begin(), op->user_end())) {
      unsigned of = result.inlined.count(user) ? places.lookup(user) : 1;
      if (isClass(user, OpClass::Movement) || isClass(user, OpClass::Gather))
        moved += of;
      else
        same = std::max(same, of);
    }
    return std::min(same + moved, 1u << 16); // chains multiply
  }

  /// Elements in memory that one element of a value is made of, up to one more than kMaxReads: of an op that moves elements
  /// those of one operand, at a place of its own; indices are not counted.
  struct Reads {
    llvm::DenseSet<std::pair<Value, unsigned>> elements; ///< value, number of the place
    llvm::DenseSet<std::pair<Operation *, unsigned>> seen;
    llvm::DenseMap<std::pair<Operation *, unsigned>, unsigned> places; ///< of ops that move, seen from a place
  };
  void addReads(Value value, unsigned place, Reads &reads) const {
    Operation *op = value.getDefiningOp();
    if (reads.elements.size() > kMaxReads || (op && (isNumber(op) || !reads.seen.insert({op, place}).second)))
      return;
    std::optional<OpClass> kind = op && !isa<ConstantOp>(op) && graph.isFree(op) ? classOf(op) : std::nullopt;
    if (kind == OpClass::Pointwise) {
      for (Value operand : op->getOperands())
        addReads(operand, place, reads);
    } else if (kind == OpClass::Movement || kind == OpClass::Gather) {
      unsigned next = reads.places.try_emplace({op, place}, reads.places.size() + 1).first->second;
      addReads(op->getOperand(0), next, reads);
    } else if (kind != OpClass::Source) {
      reads.elements.insert({value, place});
    }
  }
  bool readsMany(Operation *op) const {
    Reads reads;
    addReads(op->getResult(0), 0, reads);
    return reads.elements.size() > kMaxReads;
  }

  /// A cast to a wider type of floats that lie in memory.
  bool upcastsStored(Operation *op) const {
    if (!isConversion(op))
      return false;
    Value stored = op->getOperand(0);
    while (stored.getDefiningOp() && isView(stored.getDefiningOp()))
      stored = stored.getDefiningOp()->getOperand(0);
    if (!isStored(stored))
      return false;
    Type from = elementTypeOf(op->getOperand(0)), to = elementTypeOf(op->getResult(0));
    return isa<FloatType>(from) && from.getIntOrFloatBitWidth() >= 16 &&
           from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth();
  }

  /// Places for gathers alone that follow from much smaller operands in one step: a GPU has computed one sooner than read it.
  bool isPlace(Operation *op, double size) const {
    return computeMasks && isClass(op, OpClass::Pointwise) && graph.workOfElement(op) <= 1 &&
           llvm::none_of(op->getOperands(), [&](Value operand) { return isAsLarge(operand, size); }) &&
           llvm::all_of(op->getUses(), [](OpOperand &use) { return isClass(use.getOwner(), OpClass::Gather) && use.getOperandNumber() == 1; });
  }

  bool worthRepeating(Operation *op, OpClass kind, const Readers &readers, std::string &reason) {
    double size = std::max(1.0, graph.count(dimsOf(op->getResult(0))));
    double repeats = 0;
    for (Group *group : readers.groups)
      repeats += std::max(1.0, graph.count(group->space) / size);
    bool single = readers.groups.size() == 1;
    unsigned data = llvm::count_if(op->getOperands(), [](Value operand) {
      return !operand.getDefiningOp() || !isNumber(operand.getDefiningOp());
    });
    if (kind == OpClass::Pointwise && places.lookup(op) > kMaxPlaces) {
      reason = "each element of a reader would need it at " + std::to_string(places.lookup(op)) + " places";
      return false;
    }
    if (llvm::any_of(readers.groups, isReduction) && gathersRows(op)) {
      reason = "a reduction would gather its rows in each pass";
      return false;
    }
    if (kind == OpClass::Movement && data == 1) {
      if (readers.groups.size() <= kMaxMovementReaders)
        return true;
      reason = "more than " + std::to_string(kMaxMovementReaders) + " kernels read it";
      return false;
    }
    // Reading the type of fewer bits and upcasting again is cheaper than reading the other.
    if (upcastsStored(op))
      return true;
    if (kind == OpClass::Pointwise && llvm::any_of(readers.groups, isReduction) && readsMany(op)) {
      reason = "a reduction would make it of more than " + std::to_string(kMaxReads) + " elements in each pass";
      return false;
    }
    // A launch costs more than a little arithmetic, however often it is repeated.
    if (repeats * size * graph.workOfElement(op) <= kFreeWork)
      return true;
    if (isPlace(op, size))
      return true;
    if (repeats > kMaxRepeats) {
      reason = "it would be computed " + std::to_string(int64_t(repeats)) + " times";
      return false;
    }
    if (single)
      return true;
    // Two readers: computing again pays if it reads no more than the stored value would be.
    unsigned large = llvm::count_if(op->getOperands(), [&](Value operand) {
      return graph.count(dimsOf(operand)) * 2 > size;
    });
    if (kind == OpClass::Pointwise && large <= 1 && readers.groups.size() <= 2)
      return true;
    reason = std::to_string(readers.groups.size()) + " kernels read it";
    return false;
  }

  void store(Operation *op, const Readers &readers, const std::string &reason) {
    // A kernel over the same sizes that reads it anyway can store it too.
    for (Operation *user : op->getResult(0).getUsers()) {
      Group *group = graph.ownerOf(user);
      if (!group || group->isContraction() || group->kind == RegionKind::Scan || (isReduction(group) && (readsMany(op) || gathersRows(op))) ||
          group->kind == RegionKind::Copy || isClass(group->anchor, OpClass::Window) ||
          !isClass(user, OpClass::Pointwise) || !hasDims(op->getResult(0), group->space) ||
          !graph.mayOwn(op, *group))
        continue;
      graph.own(op, *group);
      passedRemark(op->getLoc(), "Store") << "computed and stored by a kernel that reads it";
      return;
    }
    if (Group *sibling = findSibling(op)) {
      graph.own(op, *sibling);
      passedRemark(op->getLoc(), "Store") << "computed by a kernel that reads the same";
      return;
    }
    missedRemark(op->getLoc(), "Store") << "stored by a kernel of its own: " + reason;
    bool computes = isClass(op, OpClass::Pointwise) || isClass(op, OpClass::Pairwise);
    graph.create(op, computes ? RegionKind::Pointwise : RegionKind::Copy);
  }

  /// A kernel over the same sizes that reads one of the op's operands as well.
  Group *findSibling(Operation *op) {
    if (!isClass(op, OpClass::Pointwise))
      return nullptr;
    for (Value operand : op->getOperands()) {
      if (operand.getDefiningOp() && isNumber(operand.getDefiningOp()))
        continue;
      for (Operation *reader : operand.getUsers()) {
        Group *group = graph.ownerOf(reader);
        if (group && group->kind == RegionKind::Pointwise && isClass(reader, OpClass::Pointwise) &&
            !isClass(group->anchor, OpClass::Window) && hasDims(op->getResult(0), group->space) &&
            graph.mayOwn(op, *group))
          return group;
      }
    }
    return nullptr;
  }

  FusionGraph &graph;
  const Target &target;
  const MixedInputProducts mixed;
  const bool computeMasks;
  llvm::DenseSet<Operation *> maskParts;  ///< computed score by score
  llvm::DenseSet<Operation *> placeParts; ///< ... or row by row
  llvm::DenseMap<Operation *, unsigned> places; ///< of ops that are resolved
  llvm::DenseSet<Operation *> pageNumbers; ///< computed where pages are read
  llvm::DenseSet<Operation *> transposedViews; ///< read through strides
  Resolution result;
};

} // namespace

bool readsOnce(OpOperand &use) {
  auto structured = dyn_cast<StructuredOpInterface>(use.getOwner());
  AffineMap map = structured ? structured.getAccessMaps()[use.getOperandNumber()] : AffineMap();
  return map && map.isIdentity();
}

Resolution resolveFreeOps(FusionGraph &graph, const Target &target, ModuleOp module) {
  return Resolver(graph, target, module).run();
}

} // namespace lathe::fuse
