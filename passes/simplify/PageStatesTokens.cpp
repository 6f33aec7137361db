//===- PageStatesTokens.cpp - where tokens go -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the input of tokens on, each value has at most one dimension of rows and one of tokens, or both
// merged. An op that reads them at the place where it writes them keeps tokens apart; one that sums over
// them, moves them or meets two of them mixes tokens, which only attention may.
//
//===----------------------------------------------------------------------===//
#include "PageStates.h"

using namespace mlir;

namespace lathe::paging {

namespace {

constexpr unsigned kRows = 1, kTokens = 2;
/// Of each dimension of a value: rows, tokens, both or none.
using Marks = SmallVector<unsigned>;

class Flow {
public:
  explicit Flow(Decoder &decoder) : decoder(decoder) {}

  Marks of(Value value) const {
    auto it = marks.find(value);
    return it != marks.end() ? it->second : Marks(dimsOf(value).size(), 0);
  }

  LogicalResult run() {
    marks[decoder.ids] = kept({kRows, kTokens});
    for (Operation &op : decoder.func.getBody().front().without_terminator())
      if (failed(visit(&op)))
        return failure();
    return success();
  }

  /// Without rows where there is but one.
  Marks kept(Marks wanted) const {
    if (decoder.batch == DimExpr(1))
      for (unsigned &mark : wanted)
        mark &= ~kRows;
    return wanted;
  }

private:
  static bool isMarked(ArrayRef<unsigned> marks) {
    return llvm::any_of(marks, [](unsigned mark) { return mark != 0; });
  }

  LogicalResult mixed(Operation *op, const Twine &why) {
    return refuse(op->getLoc(), Obligation::Tokens) << why.str();
  }

  LogicalResult visit(Operation *op) {
    const Marks heads = kept({kRows, 0, kTokens, 0});
    for (Layer &layer : decoder.layers) {
      if (op == layer.attention.getOperation()) {
        for (Cache *cache : {&layer.keys, &layer.values}) {
          Marks added = of(cache->added), inOrder;
          for (int64_t d : cache->order)
            inOrder.push_back(added[d]);
          if (inOrder != heads)
            return mixed(op, "what it adds to a cache is not a row for each token");
        }
        if (of(layer.attention.getQ()) != heads)
          return mixed(op, "its queries are not a row for each token");
        marks[layer.attention.getY()] = heads;
        return success();
      }
    }
    if (decoder.writes.contains(op))
      return success(); // checkReaders: past and new keys go nowhere but to attention, and out
    if (llvm::none_of(op->getOperands(), [&](Value operand) { return isMarked(of(operand)); }))
      return success();
    auto structured = dyn_cast<StructuredOpInterface>(op);
    if (!structured || op->getNumResults() != 1)
      return mixed(op, "it reads all tokens");
    Marks result(dimsOf(op->getResult(0)).size(), 0);
    for (OpOperand &operand : op->getOpOperands()) {
      Marks mine = of(operand.get());
      if (!isMarked(mine))
        continue;
      if (failed(readsInPlace(structured, operand.getOperandNumber(), mine, result)))
        return failure();
    }
    Elements elements(decoder);
    for (auto [mark, dim] : llvm::zip(result, dimsOf(op->getResult(0)))) {
      DimExpr whole = (mark & kRows ? decoder.batch : DimExpr(1)) * (mark & kTokens ? decoder.tokens : DimExpr(1));
      if (mark && elements.known(dim) != whole)
        return mixed(op, "it takes a part of the tokens or rows");
    }
    unsigned all = 0;
    for (unsigned mark : result) {
      if (mark & all)
        return mixed(op, "tokens of two operands meet");
      all |= mark;
    }
    marks[op->getResult(0)] = result;
    return success();
  }

  /// Adds to `result` where the operand's marks come to.
  LogicalResult readsInPlace(StructuredOpInterface op, unsigned operand, const Marks &mine, Marks &result) {
    OperandAccess access = op.getAccess(operand);
    auto put = [&](int64_t d, unsigned mark) -> LogicalResult {
      if (d < 0 || d >= int64_t(result.size()) || (result[d] && result[d] != mark))
        return mixed(op, "it moves tokens to another place");
      result[d] = mark;
      return success();
    };
    switch (access.kind) {
    case OperandAccess::Kind::InOrder:
      return reshaped(op, mine, result);
    case OperandAccess::Kind::Affine:
      for (auto [d, mark] : llvm::enumerate(mine)) {
        if (!mark)
          continue;
        auto iterator = dyn_cast<AffineDimExpr>(access.map.getResult(d));
        if (!iterator)
          return mixed(op, "it reads tokens at other places than it writes");
        if (op.getIterators()[iterator.getPosition()] != utils::IteratorType::parallel)
          return mixed(op, "it sums over tokens or rows");
        if (failed(put(iterator.getPosition(), mark)))
          return failure();
      }
      return success();
    case OperandAccess::Kind::Piece:
    case OperandAccess::Kind::Rows: {
      const int64_t shift = int64_t(result.size()) - int64_t(mine.size());
      for (auto [d, mark] : llvm::enumerate(mine)) {
        if (!mark)
          continue;
        bool whole = access.kind == OperandAccess::Kind::Rows
                         ? llvm::is_contained(access.dims, int64_t(d))
                         : dimOf(op->getOperand(operand), d) != dimOf(op->getResult(0), d + shift);
        if (whole)
          return mixed(op, access.kind == OperandAccess::Kind::Rows ? "it reads all tokens of a row"
                                                                   : "it puts other tokens beside these");
        if (failed(put(int64_t(d) + shift, mark)))
          return failure();
      }
      return success();
    }
    case OperandAccess::Kind::Data:
      return mixed(op, "which tokens it reads depends on data");
    case OperandAccess::Kind::Whole:
      return mixed(op, "it reads all tokens");
    }
    return failure();
  }

  /// Groups of dimensions that are split or merged, in order.
  LogicalResult reshaped(Operation *op, const Marks &mine, Marks &result) {
    std::vector<DimExpr> from = dimsOf(op->getOperand(0)), to = dimsOf(op->getResult(0));
    auto skipOnes = [](const std::vector<DimExpr> &dims, size_t d) {
      while (d < dims.size() && dims[d] == DimExpr(1))
        ++d;
      return d;
    };
    size_t f = skipOnes(from, 0), t = skipOnes(to, 0);
    while (f < from.size() && t < to.size()) {
      SmallVector<size_t> sources{f}, targets{t};
      DimExpr left = from[f], right = to[t];
      auto more = [&](const std::vector<DimExpr> &dims, SmallVector<size_t> &group, DimExpr &size) {
        size_t next = skipOnes(dims, group.back() + 1);
        if (next == dims.size())
          return false;
        group.push_back(next);
        size = size * dims[next];
        return true;
      };
      // The side that divides the other grows.
      while (left != right)
        if (!(right.exactDiv(left) ? more(from, sources, left) : more(to, targets, right)))
          return mixed(op, "it takes rows of tokens apart");
      SmallVector<unsigned> found;
      for (size_t d : sources)
        if (mine[d])
          found.push_back(mine[d]);
      if (!found.empty()) {
        const bool allMarked = found.size() == sources.size();
        if (sources.size() == 1 && targets.size() == 1)
          result[targets[0]] = found[0];
        else if (targets.size() == 1 && allMarked && found == SmallVector<unsigned>{kRows, kTokens})
          result[targets[0]] = kRows | kTokens;
        else if (sources.size() == 1 && found[0] == (kRows | kTokens) && targets.size() == 2 &&
                 to[targets[0]] == decoder.batch && to[targets[1]] == decoder.tokens) {
          result[targets[0]] = kRows;
          result[targets[1]] = kTokens;
        } else if (!(sources.size() == 2 && targets.size() == 2 && allMarked && to[targets[0]] == decoder.batch &&
                     to[targets[1]] == decoder.tokens))
          return mixed(op, "it merges tokens with something else");
        else
          for (auto [d, mark] : llvm::zip(targets, found))
            result[d] = mark;
      }
      f = skipOnes(from, sources.back() + 1);
      t = skipOnes(to, targets.back() + 1);
    }
    return success();
  }

  Decoder &decoder;
  llvm::DenseMap<Value, Marks> marks;
};

/// The input of tokens: what takes rows of a table with a row for each logit.
FailureOr<BlockArgument> tokensInput(const Decoder &decoder) {
  func::FuncOp func = decoder.func;
  Value logits = func.getBody().front().getTerminator()->getOperand(decoder.logits);
  BlockArgument found;
  for (BlockArgument input : func.getArguments()) {
    std::vector<DimExpr> dims = dimsOf(input);
    if (!isa<IntegerType>(elementTypeOf(input)) || dims != std::vector<DimExpr>{decoder.batch, decoder.tokens})
      continue;
    bool embeds = llvm::any_of(input.getUsers(), [&](Operation *user) {
      auto gather = dyn_cast<GatherOp>(user);
      return gather && gather.getIndices() == input && gather.getAxis() == 0 &&
             isa<FloatType>(elementTypeOf(gather.getX())) && !dimsOf(logits).empty() &&
             dimOf(gather.getX(), 0) == dimsOf(logits).back();
    });
    if (!embeds)
      continue;
    if (found) {
      refuse(func.getLoc(), Obligation::Tokens)
          << "inputs '" << nameOf(found) << "' and '" << nameOf(input) << "' both take rows of tables as tokens do";
      return failure();
    }
    found = input;
  }
  if (!found) {
    refuse(logits.getLoc(), Obligation::Logits)
        << "no input of tokens takes rows of a table with a row for each of the logits, "
        << (dimsOf(logits).empty() ? DimExpr(1) : dimsOf(logits).back()).str();
    return failure();
  }
  return found;
}

} // namespace

LogicalResult followTokens(Decoder &decoder) {
  FailureOr<BlockArgument> ids = tokensInput(decoder);
  if (failed(ids))
    return failure();
  decoder.ids = *ids;
  Flow flow(decoder);
  if (failed(flow.run()))
    return failure();
  Value logits = decoder.func.getBody().front().getTerminator()->getOperand(decoder.logits);
  if (dimsOf(logits).size() != 3 || flow.of(logits) != flow.kept({kRows, kTokens, 0}) ||
      !isa<FloatType>(elementTypeOf(logits)) || !dimOf(logits, 2).constant())
    return refuse(logits.getLoc(), Obligation::Logits)
           << "output '" << outputName(decoder.func, decoder.logits) << "' is not [rows, tokens, vocabulary]";
  decoder.proofs.push_back("O1: nothing but attention mixes tokens or rows");
  decoder.proofs.push_back("O6: a token's logits follow from its own row; the last rows alone are computed behind "
                           "the last attention");
  return success();
}

} // namespace lathe::paging
