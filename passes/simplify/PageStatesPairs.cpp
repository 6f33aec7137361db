//===- PageStatesPairs.cpp - caches that pass from step to step -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A cache is an input that is joined with something new, where the result leaves the function and is
// what an attention reads, whatever the names are:
//
//   %present = concat(%past, %new) {axis = 2}
//   attention .., %present, ..
//   return .., %present, ..
//
//===----------------------------------------------------------------------===//
#include "PageStates.h"

using namespace mlir;

namespace lathe::paging {

/// Keys or values of an attention as a cache; what else they are is refused.
static FailureOr<Cache> cacheOf(AttentionOp attention, Value rows, StringRef what) {
  constexpr int64_t kTokensAxis = 2; // of [B, G, T, D]
  auto present = rows.getDefiningOp<ConcatOp>();
  auto past = present && present.getInputs().size() == 2 ? dyn_cast<BlockArgument>(present.getInputs()[0])
                                                         : BlockArgument();
  if (!past || int64_t(present.getAxis()) != kTokensAxis) {
    Location loc = present ? present.getLoc() : rows.getDefiningOp() ? rows.getLoc() : attention.getLoc();
    refuse(loc, Obligation::Caches) << "attention reads " << what << " that are not an input followed by new ones "
                                    << "along the tokens";
    return failure();
  }
  Cache cache{past, present, present.getInputs()[1], 0};
  Operation *end = attention->getBlock()->getTerminator();
  std::optional<unsigned> output;
  for (OpOperand &use : present->getUses()) {
    if (use.getOwner() == end && !output) {
      output = use.getOperandNumber();
    } else if (use.getOwner() != attention) {
      refuse(use.getOwner()->getLoc(), Obligation::Caches)
          << "it reads the " << what << " of an attention, past ones among them";
      return failure();
    }
  }
  if (!output) {
    refuse(present.getLoc(), Obligation::Caches)
        << "the " << what << " that attention reads do not leave as the present of '" << nameOf(past) << "'";
    return failure();
  }
  for (Operation *user : past.getUsers())
    if (user != present) {
      refuse(user->getLoc(), Obligation::Caches) << "it reads '" << nameOf(past) << "' beside attention";
      return failure();
    }
  cache.output = *output;
  return cache;
}

/// What attention does beside reading its cache: no kernel over pages has it yet.
static LogicalResult checkForm(AttentionOp op) {
  const char *lacks = op.getSink()           ? "a sink"
                      : op.getLogSumExp()    ? "a log-sum-exp"
                      : dimOf(op.getK(), 3) != dimOf(op.getV(), 3) ? "values of another depth than keys"
                                                                  : nullptr;
  if (lacks)
    return refuse(op.getLoc(), Obligation::Caches) << "attention with " << lacks << " does not read pages yet";
  return success();
}

/// Sizes B, S and P, the same for all caches.
static LogicalResult findSizes(Decoder &decoder) {
  for (Layer &layer : decoder.layers) {
    for (Cache *cache : {&layer.keys, &layer.values}) {
      DimExpr batch = dimOf(cache->added, 0), tokens = dimOf(cache->added, 2), past = dimOf(cache->past, 2);
      bool first = cache == &decoder.layers.front().keys;
      if (first) {
        decoder.batch = batch;
        decoder.tokens = tokens;
        decoder.past = past;
        if (!tokens.symbolName() || !past.symbolName() || tokens == past ||
            !(batch.symbolName() || batch == DimExpr(1)))
          return refuse(cache->present.getLoc(), Obligation::Caches)
                 << "rows, past and new tokens have sizes " << batch.str() << ", " << past.str() << " and "
                 << tokens.str() << ": the last two must be sizes that the caller chooses, the first one too, or 1";
      }
      if (batch != decoder.batch || tokens != decoder.tokens || past != decoder.past)
        return refuse(cache->present.getLoc(), Obligation::Caches)
               << "rows, past and new tokens have sizes " << batch.str() << ", " << past.str() << " and "
               << tokens.str() << ", of the first attention " << decoder.batch.str() << ", " << decoder.past.str()
               << " and " << decoder.tokens.str();
    }
    AttentionOp attention = layer.attention, front = decoder.layers.front().attention;
    if (dimOf(attention.getK(), 1) != dimOf(front.getK(), 1) || dimOf(attention.getK(), 3) != dimOf(front.getK(), 3) ||
        elementTypeOf(attention.getK()) != elementTypeOf(front.getK()))
      return refuse(attention.getLoc(), Obligation::Caches)
             << "keys are " << attention.getK().getType() << ", of the first attention " << front.getK().getType()
             << ": layers with caches of several forms are not paged yet";
    if (dimOf(attention.getQ(), 2) != decoder.tokens || dimOf(attention.getQ(), 0) != decoder.batch)
      return refuse(attention.getLoc(), Obligation::Caches)
             << "it has queries of " << dimOf(attention.getQ(), 2).str() << " tokens for " << decoder.tokens.str()
             << " new keys";
  }
  return success();
}

LogicalResult findCaches(Decoder &decoder) {
  func::FuncOp func = decoder.func;
  llvm::DenseSet<unsigned> outputs;
  llvm::DenseSet<Value> inputs;
  WalkResult walked = func.walk([&](AttentionOp op) {
    if (failed(checkForm(op)))
      return WalkResult::interrupt();
    FailureOr<Cache> keys = cacheOf(op, op.getK(), "keys"), values = failure();
    if (failed(keys) || failed(values = cacheOf(op, op.getV(), "values")))
      return WalkResult::interrupt();
    for (const Cache &cache : {*keys, *values})
      if (!inputs.insert(cache.past).second || !outputs.insert(cache.output).second) {
        refuse(op.getLoc(), Obligation::Caches)
            << "'" << nameOf(cache.past) << "' is the cache of two attentions, or of keys and values";
        return WalkResult::interrupt();
      }
    decoder.layers.push_back({op, *keys, *values});
    return WalkResult::advance();
  });
  if (walked.wasInterrupted())
    return failure();
  if (decoder.layers.empty())
    return refuse(func.getLoc(), Obligation::Caches)
           << "no attention was recognised (--remarks says why)";
  if (failed(findSizes(decoder)))
    return failure();
  std::optional<unsigned> logits;
  for (unsigned i = 0; i < func.getNumResults(); ++i) {
    if (outputs.contains(i))
      continue;
    if (logits)
      return refuse(func.getBody().front().getTerminator()->getOperand(i).getLoc(), Obligation::States)
             << "output '" << outputName(func, i) << "' is neither the cache of an attention nor the only other one, "
             << "the logits";
    logits = i;
  }
  if (!logits)
    return refuse(func.getLoc(), Obligation::Logits) << "no output has logits";
  decoder.logits = *logits;
  decoder.proofs.push_back("O2: " + std::to_string(decoder.layers.size()) +
                           " attentions read past and new keys and values, which leave as present");
  decoder.proofs.push_back("O7: beside those the logits alone leave");
  return success();
}

} // namespace lathe::paging
