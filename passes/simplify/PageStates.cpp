//===- PageStates.cpp - a decoder as a step over pages --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A decoder as an exporter wrote it takes rows of tokens with their past keys and values. With `paged` in
// `lathe.options` it becomes a step that takes tokens of any sequences one after another, whose keys and
// values lie in the pages of one pool, where what that needs is proved of it; what is not proved is an
// error at its node. README.md lists the obligations.
//
//   func @main(%ids: [B, S], %pos: [B, S], %mask: [B, P + S], %k0: [B, G, P, D], %v0: ...)
//     %k = concat %k0, %new                          (and values)
//     %y = attention %q, %k, %v mask %m {causal}
//     return %logits: [B, S, V], %k, ...
//   =>
//   func @step(%tokens: [T], %positions: [T], %requests: [T], %slots: [T], %tables: [R, M], %rows: [R],
//              %pool: [N, L, 2, 16, G, D] {lathe.donated_to = "next_pool"})
//     %p = kv_append %pool, %slots, %new_k, %new_v {layer = 0}
//     %y = paged_attention %q, %p, %tables, %requests, %positions {layer = 0}
//     return %logits: [R, V], %best: [R], %p         (logits of the tokens %rows, and the greatest of each)
//
// Layers of several windows are groups (PageStatesGroups.cpp), which have %slots1, %tables1 and so on, and share the pool;
// with a window %places1 are the positions of tokens among those that its tables name.
// With `kv=int8` or `kv=int4` the pool has codes, and %scales [N, L, 2, G, 16] go beside it the same way.
//
//===----------------------------------------------------------------------===//
#include "PageStates.h"

#include "lathe/ir/Paged.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_PAGESTATESPASS
#include "lathe/passes/Passes.h.inc"

namespace paging {

bool Decoder::isPositions(Value value) const {
  auto input = dyn_cast<BlockArgument>(value);
  std::vector<DimExpr> dims = dimsOf(value);
  return input && input != ids && isa<IntegerType>(elementTypeOf(value)) && !isPadding(value) && !dims.empty() &&
         dims.size() <= 2 && dims.back() == tokens && (dims.size() == 1 || dims[0] == batch || dims[0] == DimExpr(1));
}
/// Whether all that comes of a value are operands of attention that hide keys.
static bool masksAlone(Value value) {
  SmallVector<Value> work{value};
  llvm::DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!seen.insert(v).second)
      continue;
    for (OpOperand &use : v.getUses()) {
      auto attention = dyn_cast<AttentionOp>(use.getOwner());
      unsigned operand = use.getOperandNumber();
      if (attention && operand != attention.getQMutable().getOperandNumber() &&
          operand != attention.getKMutable().getOperandNumber() && operand != attention.getVMutable().getOperandNumber())
        continue;
      if (attention || use.getOwner()->hasTrait<OpTrait::IsTerminator>())
        return false;
      llvm::append_range(work, use.getOwner()->getResults());
    }
  }
  return true;
}
bool Decoder::isPadding(Value value) const {
  auto input = dyn_cast<BlockArgument>(value);
  std::vector<DimExpr> dims = dimsOf(value);
  if (!input || input == ids || !isa<IntegerType>(elementTypeOf(value)) || dims.size() != 2 || dims[0] != batch)
    return false;
  if (dims[1] == tokens)
    return keys == tokens && masksAlone(value);
  return dims[1].substitute(known) == keys || !dims[1].isConstant();
}
std::optional<std::string> Decoder::numberName(Value value) const {
  auto input = dyn_cast<BlockArgument>(value);
  std::vector<DimExpr> dims = dimsOf(value);
  bool single = dims.empty() || (dims.size() == 1 && (dims[0] == batch || dims[0] == DimExpr(1)));
  if (!input || input == ids || !isa<IntegerType>(elementTypeOf(value)) || !single)
    return std::nullopt;
  return kNumberPrefix + std::to_string(input.getArgNumber());
}

InFlightDiagnostic refuse(Location loc, Obligation obligation) {
  constexpr const char *names[] = {"O1, tokens stay apart", "O2, present is past and new", "O3, masks",
                                   "O4, positions",         "O5, sizes are no data",       "O6, logits",
                                   "O7, states"};
  return emitError(loc) << "cannot be paged (" << names[size_t(obligation)] << "): ";
}
std::string nameOf(BlockArgument argument) {
  return inputName(cast<func::FuncOp>(argument.getOwner()->getParentOp()), argument.getArgNumber());
}

namespace {

/// Sizes of the step.
DimExpr sizeT() { return DimExpr::symbol("T"); } // tokens
DimExpr sizeR() { return DimExpr::symbol("R"); } // requests
/// Pages of a row of a group's tables.
DimExpr sizeM(size_t group) { return DimExpr::symbol(group ? "M" + std::to_string(group) : "M"); }
DimExpr sizeN() { return DimExpr::symbol("N"); } // pages of the pool

/// What `paged` in `lathe.options` says.
struct How {
  int64_t pageTokens = 0;
  bool batchInvariant = false;
  int64_t codeBits = 0; ///< of keys and values, 8 or 4; 0: as the decoder has them
  int64_t window = 0, sinks = 0; ///< tokens that layers see, their own included, and first ones beside those; 0: as proved
};

/// Layers see no more than is asked for, which the model does not say.
LogicalResult narrow(Decoder &decoder, const How &how) {
  std::string narrowed;
  for (auto [i, layer] : llvm::enumerate(decoder.layers)) {
    if (layer.window && *layer.window < how.window)
      continue;
    if (layer.slopes && how.sinks)
      return layer.attention.emitError("usage: scores of this layer fall with distance (ALiBi), which is not kept for the first "
                                       "tokens of --kv-window");
    // First tokens that a window of the model's own hides stay hidden.
    layer.sinks = layer.window ? std::min(layer.sinks, how.sinks) : how.sinks;
    layer.window = how.window - 1;
    narrowed += (narrowed.empty() ? "" : ", ") + std::to_string(i);
  }
  if (!narrowed.empty())
    decoder.assumptions.push_back("a token sees the last " + std::to_string(how.window) + " tokens and the first " +
                                  std::to_string(how.sinks) + " in layers (from 0) " + narrowed +
                                  ", as --kv-window has it; in the model it sees more");
  return success();
}

/// Takes a decoder that is proved to be one apart and puts the step in its place.
class Rewriter {
public:
  Rewriter(Decoder &decoder, const How &how)
      : decoder(decoder), func(decoder.func), b(decoder.func.getContext()), pageTokens(how.pageTokens),
        codeBits(how.codeBits), batchInvariant(how.batchInvariant) {}

  LogicalResult run() {
    if (codeBits == 4 && *dimOf(decoder.layers.front().attention.getK(), 3).constant() % 2 != 0)
      return decoder.layers.front().attention.emitError("usage: --kv=int4 keeps two numbers of a head in a byte, and heads "
                                                        "of an odd size have one over; use --kv=int8");
    addInputs();
    readPages();
    if (failed(dropInputs()))
      return failure();
    gatherLogits();
    func.setSymName("step");
    replaceSymbols();
    return success();
  }

private:
  BlockArgument addInput(StringRef name, Type type) {
    unsigned index = func.getNumArguments();
    auto attrs = b.getDictionaryAttr(b.getNamedAttr("lathe.name", b.getStringAttr(name)));
    (void)func.insertArgument(index, type, attrs, func.getLoc());
    return func.getArgument(index);
  }

  void addInputs() {
    Type integer = b.getI64Type();
    AttentionOp front = decoder.layers.front().attention;
    heads = *dimOf(front.getK(), 1).constant();
    depth = *dimOf(front.getK(), 3).constant();
    tokens = addInput("tokens", tensorType(integer, {sizeT()}));
    positions = addInput("positions", tensorType(integer, {sizeT()}));
    requests = addInput("requests", tensorType(integer, {sizeT()}));
    int64_t layers = 0; // of a page, which is any group's
    for (auto [i, group] : llvm::enumerate(decoder.groups)) {
      const std::string number = i ? std::to_string(i) : "";
      slots.push_back(addInput("slots" + number, tensorType(integer, {sizeT()})));
      tables.push_back(addInput("tables" + number, tensorType(integer, {sizeR(), sizeM(i)})));
      // Tables of a window name what is left.
      places.push_back(group.window ? addInput("places" + number, tensorType(integer, {sizeT()})) : positions);
      layers = std::max(layers, group.layers);
    }
    rows = addInput("rows", tensorType(integer, {sizeR()}));
    Type stored = codeBits == 8   ? b.getIntegerType(8)
                  : codeBits == 4 ? b.getIntegerType(8, /*isSigned=*/false)
                                  : elementTypeOf(front.getK());
    pool = addInput("pool", tensorType(stored, {sizeN(), DimExpr(layers), DimExpr(2), DimExpr(pageTokens),
                                                DimExpr(heads), DimExpr(codeBits == 4 ? depth / 2 : depth)}));
    func.setArgAttr(func.getNumArguments() - 1, kDonatedToAttr, b.getStringAttr("next_pool"));
    if (!codeBits)
      return;
    scales = addInput("scales", tensorType(b.getF32Type(), {sizeN(), DimExpr(layers), DimExpr(2), DimExpr(heads), DimExpr(pageTokens)}));
    func.setArgAttr(func.getNumArguments() - 1, kDonatedToAttr, b.getStringAttr("next_scales"));
  }

  Value reshape(Location loc, Value v, ArrayRef<DimExpr> to) {
    return ReshapeOp::create(b, loc, tensorType(elementTypeOf(v), to), v);
  }
  /// A number for each head, or one for all, as [H].
  Value perHead(AttentionOp op, Value v) {
    if (!v)
      return {};
    DimExpr heads = dimOf(op.getQ(), 1);
    if (product(dimsOf(v)) == DimExpr(1))
      v = BroadcastToOp::create(b, op.getLoc(), tensorType(elementTypeOf(v), {heads}),
                                reshape(op.getLoc(), v, {DimExpr(1)}));
    return reshape(op.getLoc(), v, {heads});
  }
  /// What a cache is given, [B, G, S, D].
  Value addedRows(Location loc, const Cache &cache) {
    const int64_t inOrder[] = {0, 1, 2, 3};
    return ArrayRef<int64_t>(cache.order) == ArrayRef(inOrder) ? cache.added
                                                              : TransposeOp::create(b, loc, cache.added, cache.order);
  }
  /// [B, H, S, D] as a row for each token, [T, H, D]. The sizes of the operand are still the decoder's: they
  /// become the step's with all others (dropInputs).
  Value tokenRows(Location loc, Value v) {
    if (auto rope = v.getDefiningOp<RopeOp>())
      if (Value rotated = rotatedRows(loc, rope))
        return rotated;
    Value transposed = TransposeOp::create(b, loc, v, ArrayRef<int64_t>{0, 2, 1, 3});
    return reshape(loc, transposed, {sizeT(), dimOf(v, 1), dimOf(v, 3)});
  }

  /// The same of what a rotation gives: rows are rotated as they lie, so that heads need not go before
  /// tokens and back, and products of queries, keys and values become heads alike (MergeProducts). Nothing
  /// where the angles are not a row for each token.
  Value rotatedRows(Location loc, RopeOp rope) {
    std::vector<DimExpr> dims = dimsOf(rope.getX()), angles = dimsOf(rope.getCos());
    if (dims.size() != 4 || angles.size() > 4)
      return {};
    angles.insert(angles.begin(), 4 - angles.size(), DimExpr(1));
    if (angles[1] != DimExpr(1) || angles[2] != decoder.tokens)
      return {};
    const DimExpr to[] = {sizeT(), DimExpr(1), angles[3]};
    Value cos = reshape(loc, rope.getCos(), to), sin = rope.getSin() ? reshape(loc, rope.getSin(), to) : Value();
    return RopeOp::create(b, loc, tokenRows(loc, rope.getX()), cos, sin, rope.getRotaryAttr(),
                          rope.getInterleavedAttr());
  }

  void readPages() {
    Value memory = pool, by = scales;
    for (const Layer &layer : decoder.layers) {
      AttentionOp op = layer.attention;
      Location loc = op.getLoc();
      b.setInsertionPoint(op);
      auto number = b.getI64IntegerAttr(int64_t(layer.number));
      auto append = KvAppendOp::create(b, loc, memory, slots[layer.group], tokenRows(loc, addedRows(loc, layer.keys)),
                                       tokenRows(loc, addedRows(loc, layer.values)), by, number);
      memory = append.getY();
      by = append.getNextScales();
      Value y = PagedAttentionOp::create(b, loc, tokenRows(loc, op.getQ()), memory, tables[layer.group], requests, places[layer.group],
                                         perHead(op, op.getSink()), perHead(op, layer.slopes), by, number,
                                         op.getScaleAttr(), op.getSoftcapAttr(),
                                         layer.window ? b.getI64IntegerAttr(*layer.window) : IntegerAttr(),
                                         layer.sinks ? b.getI64IntegerAttr(layer.sinks) : IntegerAttr());
      std::vector<DimExpr> dims = dimsOf(op.getY());
      Value transposed = reshape(loc, y, {dims[0], dims[2], dims[1], dims[3]});
      op.getY().replaceAllUsesWith(TransposeOp::create(b, loc, transposed, ArrayRef<int64_t>{0, 2, 1, 3}));
      op.erase();
    }
    next = memory;
    nextScales = by;
  }

  LogicalResult dropInputs() {
    Operation *end = func.getBody().front().getTerminator();
    Value logits = end->getOperand(decoder.logits);
    llvm::BitVector presents(func.getNumResults(), true);
    presents.reset(decoder.logits);
    end->setOperands({logits});
    if (failed(func.eraseResults(presents)))
      return failure();
    IRRewriter rewriter(func.getContext());
    (void)runRegionDCE(rewriter, func->getRegions());
    llvm::SetVector<Value> places;
    if (failed(findPositions(decoder, places)))
      return failure();
    b.setInsertionPointToStart(&func.getBody().front());
    for (Value place : places) {
      Value same = reshape(place.getLoc(), positions, dimsOf(place));
      place.replaceAllUsesWith(same);
    }
    decoder.proofs.push_back("O4: positions are P + i");
    decoder.ids.replaceAllUsesWith(reshape(func.getLoc(), tokens, dimsOf(decoder.ids)));
    (void)runRegionDCE(rewriter, func->getRegions());
    std::map<std::string, DimExpr> by{{*decoder.tokens.symbolName(), sizeT()}};
    if (auto batch = decoder.batch.symbolName())
      by.emplace(*batch, DimExpr(1));
    // What names a size of before by the caller's number has no other use.
    for (DimFromOp from : llvm::make_early_inc_range(func.getBody().front().getOps<DimFromOp>()))
      if (from->use_empty() && llvm::all_of(from.getSymbols(), [&](Attribute name) {
            return decoder.known.count(cast<StringAttr>(name).str());
          }))
        from.erase();
    (void)runRegionDCE(rewriter, func->getRegions());
    llvm::BitVector old(func.getNumArguments(), false);
    for (BlockArgument input : func.getArguments())
      if (input.getArgNumber() < tokens.getArgNumber()) {
        if (!input.use_empty())
          return refuse((*input.getUsers().begin())->getLoc(), Obligation::Tokens)
                 << "it reads input '" << nameOf(input) << "', which is neither tokens, positions, padding nor a cache";
        old.set(input.getArgNumber());
      }
    if (failed(checkSizes(decoder)))
      return failure();
    decoder.proofs.push_back("O5: no size of rows, past or new tokens is data");
    if (failed(func.eraseArguments(old)))
      return failure();
    substituteSymbols(func, by);
    return success();
  }

  /// Ops behind the last attention that nothing but the logits needs work on the last rows alone.
  void gatherLogits() {
    Block &block = func.getBody().front();
    Operation *end = block.getTerminator();
    auto tokensAt = [](Value v) -> std::optional<size_t> {
      for (auto [d, dim] : llvm::enumerate(dimsOf(v)))
        if (dim == sizeT())
          return d;
      return std::nullopt;
    };
    llvm::SetVector<Operation *> behind;
    for (Operation &op : llvm::reverse(block.without_terminator())) {
      bool alone = !op.use_empty() && !isa<PagedAttentionOp, KvAppendOp>(op) &&
                   llvm::all_of(op.getResults(), [&](Value v) { return tokensAt(v).has_value(); }) &&
                   llvm::all_of(op.getUsers(), [&](Operation *user) { return user == end || behind.contains(user); }) &&
                   llvm::all_of(op.getOperands(), [&](Value v) {
                     std::set<std::string> used;
                     for (const DimExpr &dim : dimsOf(v))
                       dim.collectSymbols(used);
                     return !used.count("T") || tokensAt(v);
                   });
      if (alone)
        behind.insert(&op);
    }
    llvm::DenseMap<Value, Value> taken;
    auto take = [&](OpOperand &operand) {
      Value v = operand.get();
      auto axis = tokensAt(v);
      if (!axis || (v.getDefiningOp() && behind.contains(v.getDefiningOp())))
        return;
      Value &last = taken[v];
      if (!last) {
        b.setInsertionPointAfterValue(v);
        last = GatherOp::create(b, v.getLoc(), v, rows, *axis);
      }
      operand.set(last);
    };
    for (Operation *op : behind)
      for (OpOperand &operand : op->getOpOperands())
        take(operand);
    for (OpOperand &operand : end->getOpOperands())
      take(operand);
    for (Operation *op : behind)
      substituteSymbols(op, {{"T", sizeR()}});
    Value logits = end->getOperand(0);
    b.setInsertionPoint(end);
    vocabulary = *dimOf(logits, 2).constant();
    logits = reshape(logits.getLoc(), logits, {sizeR(), DimExpr(vocabulary)});
    // Who takes the most likely token needs no logits.
    Value best = ArgReduceOp::create(b, logits.getLoc(), tensorType(b.getI64Type(), {sizeR()}), logits,
                                     ReduceKind::Max, /*axis=*/1, /*keepdims=*/false, /*last=*/false);
    SmallVector<Value> results{logits, best, next};
    SmallVector<DictionaryAttr> names;
    auto named = [&](StringRef name) {
      return b.getDictionaryAttr(b.getNamedAttr("lathe.name", b.getStringAttr(name)));
    };
    for (StringRef name : {"logits", "best", "next_pool"})
      names.push_back(named(name));
    if (nextScales) {
      results.push_back(nextScales);
      names.push_back(named("next_scales"));
    }
    end->setOperands(results);
    func.setType(b.getFunctionType(func.getBody().getArgumentTypes(), end->getOperandTypes()));
    func.setAllResultAttrs(names);
  }

  void replaceSymbols() {
    auto module = func->getParentOfType<ModuleOp>();
    Operation *at = nullptr;
    for (SymbolOp old : llvm::make_early_inc_range(module.getOps<SymbolOp>())) {
      at = old->getNextNode();
      old.erase();
    }
    b.setInsertionPoint(at ? at : func.getOperation());
    auto add = [&](const DimExpr &symbol, int64_t usual, StringRef origin) {
      SymbolOp::create(b, func.getLoc(), *symbol.symbolName(), 1, -1, usual, 1, origin, DimAttr());
    };
    add(sizeT(), 16, "tokens[0]");
    add(sizeR(), 4, "tables[0]");
    for (size_t i = 0; i < decoder.groups.size(); ++i)
      add(sizeM(i), 16, "tables" + (i ? std::to_string(i) : "") + "[1]");
    add(sizeN(), 64, "pool[0]");
    SmallVector<NamedAttribute> facts;
    auto number = [&](StringRef name, int64_t value) {
      facts.push_back(b.getNamedAttr(name, b.getI64IntegerAttr(value)));
    };
    auto texts = [&](StringRef name, const std::vector<std::string> &values) {
      facts.push_back(b.getNamedAttr(name, b.getStrArrayAttr(llvm::to_vector_of<StringRef>(values))));
    };
    number("page_tokens", pageTokens);
    number("heads", heads);
    number("head_size", depth);
    number("vocabulary", vocabulary);
    SmallVector<Attribute> groups;
    for (const Group &group : decoder.groups) {
      SmallVector<NamedAttribute> of{b.getNamedAttr("layers", b.getI64IntegerAttr(group.layers))};
      if (group.window) // its own token included
        of.push_back(b.getNamedAttr("window", b.getI64IntegerAttr(*group.window + 1)));
      if (group.sinks)
        of.push_back(b.getNamedAttr("sinks", b.getI64IntegerAttr(group.sinks)));
      groups.push_back(b.getDictionaryAttr(of));
    }
    facts.push_back(b.getNamedAttr("groups", b.getArrayAttr(groups)));
    facts.push_back(b.getNamedAttr(
        "dtype", b.getStringAttr(codeBits == 4 ? "i4" : StringRef(name(*dtypeOf(elementTypeOf(pool)))))));
    if (codeBits)
      facts.push_back(b.getNamedAttr("scales", b.getUnitAttr()));
    if (batchInvariant)
      facts.push_back(b.getNamedAttr("batch_invariant", b.getUnitAttr()));
    texts("proofs", decoder.proofs);
    texts("assumptions", decoder.assumptions);
    module->setAttr(kLlmAttr, b.getDictionaryAttr(facts));
  }

  Decoder &decoder;
  func::FuncOp func;
  OpBuilder b;
  int64_t pageTokens, codeBits, heads = 0, depth = 0, vocabulary = 0;
  bool batchInvariant;
  BlockArgument tokens;
  SmallVector<Value> slots, tables, places; // a group each
  Value positions, requests, rows, pool, scales, next, nextScales;
};

} // namespace
} // namespace paging

namespace {

struct PageStatesPass : impl::PageStatesPassBase<PageStatesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<std::string> wanted = optionStrings(module, kPagedOption);
    if (wanted.empty() || module->hasAttr(kLlmAttr))
      return; // not asked for, or text that has been through here
    paging::How how;
    if (StringRef(wanted[0]).getAsInteger(10, how.pageTokens) || how.pageTokens < 1) {
      module.emitError("usage: a page of '") << wanted[0] << "' tokens";
      return signalPassFailure();
    }
    how.batchInvariant = llvm::is_contained(wanted, "batch-invariant");
    how.codeBits = llvm::is_contained(wanted, "kv=int8") ? 8 : llvm::is_contained(wanted, "kv=int4") ? 4 : 0;
    for (StringRef text : wanted)
      if (text.consume_front("kv-window=")) {
        auto [window, sinks] = text.split(':');
        if (window.getAsInteger(10, how.window) || how.window < 1 || sinks.getAsInteger(10, how.sinks) || how.sinks < 0) {
          module.emitError("usage: a window of '") << text << "' tokens and first ones";
          return signalPassFailure();
        }
      }
    if (failed(page(module, how)))
      return signalPassFailure();
    // Transposes into rows of tokens meet those of heads.
    OpPassManager rest(ModuleOp::getOperationName());
    rest.addPass(createSimplifyPass());
    if (failed(runPipeline(rest, module)))
      signalPassFailure();
  }

  /// Sizes of the decoder that are called as the step's get another name.
  static void makeRoom(ModuleOp module, func::FuncOp func) {
    std::map<std::string, DimExpr> by;
    for (SymbolOp symbol : module.getOps<SymbolOp>())
      if (paging::isStepSize(symbol.getSymName())) {
        std::string name = symbol.getSymName().str() + "_";
        while (module.lookupSymbol(name))
          name += "_";
        by.emplace(symbol.getSymName().str(), DimExpr::symbol(name));
        symbol.setSymName(name);
      }
    if (!by.empty())
      substituteSymbols(func, by);
  }

  static LogicalResult page(ModuleOp module, const paging::How &how) {
    SmallVector<func::FuncOp> entries(module.getOps<func::FuncOp>());
    if (entries.size() != 1 || !module.getOps<StateOp>().empty())
      return module.emitError("usage: --paged makes the one entry of a decoder and its states by itself; leave "
                              "--entry and --donate away");
    paging::Decoder decoder;
    decoder.func = entries.front();
    makeRoom(module, decoder.func);
    bool all = succeeded(paging::findCaches(decoder)) && succeeded(paging::followTokens(decoder)) &&
               succeeded(paging::proveMasks(decoder));
    if (all && how.window)
      all = succeeded(paging::narrow(decoder, how));
    if (all) {
      paging::groupLayers(decoder);
      all = succeeded(paging::Rewriter(decoder, how).run());
    }
    // `lathe explain` shows what was proved before something was not.
    for (const std::string &proof : decoder.proofs)
      passedRemark(decoder.func.getLoc(), "PageStates") << proof;
    for (const std::string &assumption : decoder.assumptions)
      passedRemark(decoder.func.getLoc(), "PageStatesAssumes") << assumption;
    if (!all)
      return failure();
    passedRemark(decoder.func.getLoc(), "PageStates")
        << (std::to_string(decoder.layers.size()) + " layers read keys and values in pages");
    return success();
  }
};

} // namespace

} // namespace lathe
