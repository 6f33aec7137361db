//===- Plan.cpp - what a step takes -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lathe::serve {

static void insertInOrder(std::vector<Request *> &list, Request *request) {
  list.insert(std::upper_bound(list.begin(), list.end(), request, precedes), request);
}

/// Decodes first: none waits for a prompt. Then prompts, those that wait behind those that began unless their
/// priority is greater.
Status Scheduler::plan() {
  for (Request *request : running) {
    // One that a step under way brings to its end, or to samples of its prompt, waits for it.
    const bool ends = request->answer().size() + request->promised >= request->options.maxTokens;
    request->planned = request->promised && (ends || !request->held.empty());
    if (request->promised && !request->planned && request->source < 0)
      LATHE_RETURN_IF_ERROR(awaitTokens());
  }
  LATHE_RETURN_IF_ERROR(makeRoom());
  // Those before `at` are not looked at again, unless requests came or went.
  size_t at = 0, known = running.size();
  auto next = [&](bool decodes) -> Request * {
    if (running.size() != known) {
      at = 0;
      known = running.size();
    }
    for (; at < known; ++at)
      if (!running[at]->planned && (running[at]->pending() == 1) == decodes)
        return running[at];
    return nullptr;
  };
  if (!takeDecodes())
    while (Request *request = next(/*decodes=*/true))
      LATHE_RETURN_IF_ERROR(planPart(request));
  at = 0;
  while (budget) {
    Request *begun = next(/*decodes=*/false);
    Result<bool> more = admitNext(begun);
    if (!more)
      return more.status();
    if (*more) {
      at = 0;
      continue;
    }
    if (!begun)
      break;
    LATHE_RETURN_IF_ERROR(planPart(begun));
  }
  return okStatus();
}

/// Where one that waits has a greater priority than some that run and does not fit beside them, those give way.
Status Scheduler::makeRoom() {
  Tenant *tenant = nextTenant();
  if (!tenant)
    return okStatus();
  const Request *first = tenant->waiting.front();
  while (!running.empty() && running.back()->options.priority < first->options.priority &&
         (running.size() == limits.requests || !fits(*first))) {
    LATHE_RETURN_IF_ERROR(awaitTokens());
    LATHE_RETURN_IF_ERROR(preempt(running.back()));
  }
  return okStatus();
}

/// An error while a step is under way, which makes this one wait until its tokens are known: what takes blocks from
/// requests, and what needs a token on the host.
Status Scheduler::awaitTokens() {
  awaitsTokens = flying != nullptr;
  return flying ? runtimeError("the step needs what the one under way gives") : okStatus();
}

/// The pending tokens of a request that runs, or as many as have room. Where there is no block, the last in order of
/// precedence that this step does not need yet gives its blocks up, and at last the request itself.
Status Scheduler::planPart(Request *request) {
  for (;;) {
    Result<bool> taken = take(request, std::min(request->pending(), budget));
    if (!taken)
      return taken.status();
    if (*taken)
      return okStatus();
    admits = false;
    LATHE_RETURN_IF_ERROR(awaitTokens());
    Request *victim = *std::find_if(running.rbegin(), running.rend(), [](const Request *r) { return !r->planned; });
    LATHE_RETURN_IF_ERROR(preempt(victim));
    if (victim == request)
      return okStatus();
  }
}

/// Of the tenants that have somebody waiting and may run more, the one whose next request has the greatest priority,
/// and of those the one that had the fewest tokens.
Scheduler::Tenant *Scheduler::nextTenant() {
  Tenant *best = nullptr;
  for (auto &[id, tenant] : tenants) {
    if (tenant->waiting.empty())
      continue;
    const Request *first = tenant->waiting.front();
    const TenantOptions &quota = tenant->options;
    if ((quota.maxRequests && tenant->running >= quota.maxRequests) ||
        (quota.maxTokens && tenant->running &&
         tenant->runningTokens + first->options.prompt.size() + first->options.maxTokens > quota.maxTokens))
      continue;
    if (!best) {
      best = tenant.get();
      continue;
    }
    const Request *other = best->waiting.front();
    if (first->options.priority != other->options.priority
            ? first->options.priority > other->options.priority
            : tenant->virtualTokens != best->virtualTokens ? tenant->virtualTokens < best->virtualTokens
                                                           : first->id < other->id)
      best = tenant.get();
  }
  return best;
}

/// Whether all its tokens have room beside a block for each that runs, and so many blocks stay free that those will
/// not soon be short; alone it always fits.
bool Scheduler::fits(const Request &request) const {
  if (running.empty())
    return true;
  const size_t groups = cache->config().groups.size(); // of which each takes a block where a sequence gets one
  const uint64_t need = blocksOf(uint32_t(request.tokens.size()) + 1) + request.held.size() * groups;
  const auto spare = uint64_t(std::ceil(limits.watermark * double(cache->config().blocks)));
  return need + std::max<uint64_t>(running.size() * groups, spare) <= cache->availableBlocks();
}

/// Blocks that so many tokens of one sequence hold at most: the rest behind a window needs no more.
uint64_t Scheduler::blocksOf(uint32_t tokens) const {
  uint64_t blocks = 0;
  for (const engine::KvGroup &group : cache->config().groups)
    blocks += engine::kvBlocksPerSequence(group, tokens, limits.stepTokens);
  return blocks;
}

/// Begins one that waits, where `before`, which runs already, does not go first; false: none has room.
Result<bool> Scheduler::admitNext(const Request *before) {
  if (!admits || running.size() >= limits.requests)
    return false;
  Tenant *tenant = nextTenant();
  if (!tenant)
    return false;
  Request *request = tenant->waiting.front();
  if ((before && before->options.priority >= request->options.priority) || !fits(*request))
    return false;
  Result<bool> begun = begin(request);
  if (!begun || !*begun) {
    admits = false;
    return begun;
  }
  tenant->waiting.erase(tenant->waiting.begin());
  ++tenant->running;
  tenant->runningTokens += request->options.prompt.size() + request->options.maxTokens;
  insertInOrder(running, request);
  admitted.push_back(request);
  request->planned = false;
  Result<bool> taken = take(request, std::min(request->pending(), budget));
  if (taken && !*taken) { // what it found is held now and was counted as available
    admits = false;
    LATHE_RETURN_IF_ERROR(preempt(request));
  }
  return taken;
}

/// Gives it a sequence with what is there of its tokens: all it had where it was swapped, or else what the prefix
/// cache finds. False where what was swapped has no room.
Result<bool> Scheduler::begin(Request *request) {
  if (request->swapped != kv::kNoSequence) {
    kv::Outcome resumed = cache->resume(request->swapped);
    if (resumed.code == kv::Code::NoBlocks)
      return false;
    if (!resumed.ok())
      return toStatus(resumed);
    request->sequence = std::exchange(request->swapped, kv::kNoSequence);
    --swapped;
    return true;
  }
  if (kv::Outcome opened = cache->open({}, request->sequence); !opened.ok())
    return toStatus(opened);
  if (request->promptLogprobsLeft()) // what is in the cache has no logits
    return true;
  kv::Outcome attached = cache->attach(request->sequence, request->tokens, request->computed);
  if (attached.ok())
    return true;
  (void)cache->close(std::exchange(request->sequence, kv::kNoSequence));
  return toStatus(attached);
}

/// Adds `count` tokens of a request to the step; false when there are no blocks.
Result<bool> Scheduler::take(Request *request, uint32_t count) {
  kv::Append append{request->sequence, count, 0};
  std::span<const uint32_t> tokens(&kv::kUnknownToken, 1);
  if (!request->isFed())
    tokens = std::span(request->tokens).subspan(request->computed, count);
  kv::Outcome reserved = cache->reserve({&append, 1}, tokens, slotsFor(count));
  if (reserved.code == kv::Code::NoBlocks)
    return false;
  if (!reserved.ok())
    return toStatus(reserved);
  addPart(request, tokens, 0);
  return true;
}

/// Where the cache writes the slots of so many tokens.
kv::Slots Scheduler::slotsFor(size_t tokens) {
  const size_t groups = cache->config().groups.size();
  slotStride = tokens;
  slots.resize(tokens * groups);
  kv::Slots out;
  for (size_t g = 0; g < groups; ++g)
    out.slots[g] = slots.data() + g * tokens;
  return out;
}

/// All that have one token to come, with one look at the blocks; false, and none of them, where that does not go.
bool Scheduler::takeDecodes() {
  decodes.clear();
  appends.clear();
  known.clear();
  for (Request *request : running)
    if (!request->planned && request->pending() == 1) {
      decodes.push_back(request);
      appends.push_back({request->sequence, 1, 0});
      known.push_back(request->isFed() ? kv::kUnknownToken : request->tokens[request->computed]);
    }
  if (!decodes.empty() && !cache->reserve(appends, known, slotsFor(decodes.size())).ok())
    return false;
  for (size_t i = 0; i < decodes.size(); ++i)
    addPart(decodes[i], std::span(known).subspan(i, 1), i);
  return true;
}

/// A part of so many tokens, which have their slots from `firstSlot` on.
void Scheduler::addPart(Request *request, std::span<const uint32_t> tokens, size_t firstSlot) {
  Batch &batch = next->batch;
  std::vector<Part> &parts = next->parts;
  const auto count = uint32_t(tokens.size());
  // Rows of the tokens of the prompt whose successors' logprobs are not known yet.
  const uint32_t first = request->computed, asked = request->promptLogprobsAsked();
  const uint32_t skipped = asked > first ? asked - first : 0;
  const uint32_t wanted = count > skipped ? std::min(count - skipped, request->promptLogprobsLeft()) : 0;
  const bool fed = request->isFed();
  Part part{request, first, count};
  part.completes = count == request->pending();
  part.fed = fed;
  part.index = uint32_t(request->answer().size()) + request->promised;
  part.takesBest = takesBest(*request, part.index);
  part.ranked = request->options.logprobs.has_value();
  part.firstLogprob = asked;
  part.firstRow = uint32_t(batch.rows.size());
  part.logprobRows = wanted;
  const auto begin = int64_t(batch.tokens.size());
  for (uint32_t i = 0; i < count; ++i) {
    batch.tokens.push_back(fed ? ~request->source : int64_t(tokens[i]));
    batch.positions.push_back(first + i);
    batch.requests.push_back(int64_t(parts.size()));
    if ((i >= skipped && i < skipped + wanted) || i + 1 == count)
      batch.rows.push_back(begin + i);
  }
  for (size_t g = 0; g < batch.groups.size(); ++g) {
    const auto from = slots.begin() + ptrdiff_t(g * slotStride + firstSlot);
    batch.groups[g].slots.insert(batch.groups[g].slots.end(), from, from + count);
  }
  part.lastRow = uint32_t(batch.rows.size()) - 1;
  parts.push_back(part);
  request->planned = true;
  budget -= count;
}

Status Scheduler::preempt(Request *request) {
  Result<bool> moved = swapOut(request);
  if (!moved || !*moved) {
    (void)cache->preempt(request->sequence, kv::Preempt::Recompute); // which counts it
    giveUp(request);
  }
  enqueue(request);
  ++total.preemptions;
  return moved.status();
}

/// Whether copying there and back takes less time than computing again, by what both took lately. What was not
/// measured yet is tried.
bool Scheduler::swapCostsLess(const Request &request) const {
  const auto blocks = double(blocksOf(request.computed));
  return tokenCost == 0 || 2 * blocks * blockCost < request.computed * tokenCost;
}

/// Moves what it has to host memory, right now: a step that fails later leaves it there. False where it is computed
/// again instead: by its cost, or for want of room.
Result<bool> Scheduler::swapOut(Request *request) {
  const bool wanted = limits.swap == Swap::Always || (limits.swap == Swap::ByCost && swapCostsLess(*request));
  // What the step under way writes may come to nothing.
  if (flying || !wanted || !request->computed || !cache->config().hostBlocks ||
      swapped + limits.requests >= cache->config().maxSequences ||
      !cache->preempt(request->sequence, kv::Preempt::Swap).ok())
    return false;
  LATHE_RETURN_IF_ERROR(transfer());
  request->swapped = request->sequence;
  ++swapped;
  ++total.swaps;
  leave(request);
  return true;
}

/// It runs no more and holds nothing. Its full blocks stay cached until others need them.
void Scheduler::giveUp(Request *request) {
  (void)cache->close(request->sequence);
  request->computed = 0;
  leave(request);
}

/// It runs no more; what becomes of its sequence is the caller's business.
void Scheduler::leave(Request *request) {
  request->sequence = kv::kNoSequence;
  std::erase(running, request);
  std::erase(admitted, request);
  Tenant &tenant = tenantOf(request);
  --tenant.running;
  tenant.runningTokens -= request->options.prompt.size() + request->options.maxTokens;
}

void Scheduler::enqueue(Request *request) { insertInOrder(tenantOf(request).waiting, request); }

/// What a part's tokens see of a group, of the pages that its sequence has with them: its sinks, and those from the window
/// of its first token on.
struct Scheduler::PagesSeen {
  uint32_t sinks, from, end;
  uint32_t count() const { return sinks + end - from; }
};

Scheduler::PagesSeen Scheduler::pagesSeen(const Part &part, const engine::KvGroup &group) const {
  const uint32_t blockTokens = group.layout.blockTokens;
  PagesSeen seen{0, 0, (part.first + part.count + blockTokens - 1) / blockTokens};
  if (group.kind != engine::KvGroupKind::Window)
    return seen;
  const uint32_t sinks = (group.sinks + blockTokens - 1) / blockTokens;
  const uint32_t from = part.first >= group.window ? (part.first - group.window + 1) / blockTokens : 0;
  if (from > sinks)
    seen.sinks = sinks, seen.from = from;
  return seen;
}

void Scheduler::writeTable(const Part &part, uint32_t number, int64_t *to) const {
  const engine::KvGroup &group = cache->config().groups[number];
  const std::span<const kv::BlockId> row = cache->table(part.request->sequence, number);
  const PagesSeen seen = pagesSeen(part, group);
  if (group.kind != engine::KvGroupKind::Window) {
    std::copy_n(row.begin(), seen.end, to);
    return;
  }
  const uint32_t sinks = (group.sinks + group.layout.blockTokens - 1) / group.layout.blockTokens;
  const uint32_t ring = cache->tableWidth(number) - sinks;
  to = std::copy_n(row.begin(), seen.sinks, to);
  for (uint32_t page = seen.from; page < seen.end; ++page)
    *to++ = row[page < sinks ? page : sinks + (page - sinks) % ring];
}

/// The tables of a group, and the places of tokens among those that they name.
void Scheduler::finishTables(uint32_t number) {
  const engine::KvGroup &group = cache->config().groups[number];
  Batch &batch = next->batch;
  Batch::Places &places = batch.groups[number];
  places.pages = 0;
  for (const Part &part : next->parts)
    places.pages = std::max<int64_t>(places.pages, pagesSeen(part, group).count());
  places.pages = model.roundedPages(places.pages);
  // As many as rows of logits; those behind the requests are nobody's.
  places.tables.resize(batch.rows.size() * size_t(places.pages));
  int64_t *row = places.tables.data();
  for (const Part &part : next->parts) {
    writeTable(part, number, row);
    std::fill(row + pagesSeen(part, group).count(), row + places.pages, 0);
    row += places.pages;
  }
  std::fill(row, places.tables.data() + places.tables.size(), 0);
  if (group.kind != engine::KvGroupKind::Window)
    return;
  places.places.clear();
  for (const Part &part : next->parts) {
    const PagesSeen seen = pagesSeen(part, group);
    const int64_t first = int64_t(part.first) - int64_t(seen.from - seen.sinks) * group.layout.blockTokens;
    for (uint32_t i = 0; i < part.count; ++i)
      places.places.push_back(first + i);
  }
}

} // namespace lathe::serve
