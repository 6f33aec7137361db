//===- Faults.h - mistakes and failures that only tests compile -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A test that finds nothing proves nothing. A build with LATHE_KV_TEST_HOOKS can switch one of these
// mistakes on, and can let any allocation of the step path fail; the property test must notice each
// mistake. In every other build both are constants, and nothing of this is left.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_MEMORY_KV_FAULTS_H
#define LATHE_RUNTIME_MEMORY_KV_FAULTS_H

namespace lathe::kv {

#define LATHE_KV_FAULTS(X)                                                                         \
  X(SaltIgnored)               /* all spaces have one root */                                      \
  X(ParentIgnored)             /* a hit does not compare the block before */                       \
  X(TokensNotCompared)         /* a hit trusts the hash */                                         \
  X(LastTokenNotCompared)      /* a hit compares all tokens but one */                             \
  X(HitNotCapped)              /* the whole prompt may be a hit */                                 \
  X(HitNotReferenced)          /* a hit leaves the block on the eviction list */                   \
  X(ForkForgetsReference)      /* a fork does not count itself in the tail */                      \
  X(CloseForgetsTail)          /* a closed sequence keeps its last block */                        \
  X(CloseReleasesTwice)        /* ... or gives the first one back twice */                         \
  X(PinnedIsEvictable)         /* a pin holds no reference */                                      \
  X(UnpinForgetsOne)           /* the last block stays pinned */                                   \
  X(StaleHashAfterTruncation)  /* a shortened sequence writes into an indexed block */             \
  X(TruncationKeepsBlocks)     /* blocks behind the new end stay */                                \
  X(TruncationKeepsChain)      /* the chain of hashes goes on from the old end */                  \
  X(RollbackForgetsOne)        /* the first new block of a step stays reserved */                  \
  X(RollbackKeepsTail)         /* a copied tail is not put back */                                 \
  X(RollbackKeepsLength)       /* the sequence has the tokens all the same */                      \
  X(FailureKeepsReservations)  /* a refused call keeps what it had */                              \
  X(CommitForgetsState)        /* a block stays reserved */                                        \
  X(CopyForgotten)             /* a shared tail is replaced without a copy */                      \
  X(SharedTailWritten)         /* no copy-on-write for shared tails */                             \
  X(MergeForgetsOwn)           /* the duplicate of a block is not given back */                    \
  X(MergeForgetsReference)     /* ... or the one that stays is not counted */                      \
  X(EvictedStaysIndexed)       /* the tree still names an evicted block */                         \
  X(EvictsYoungest)            /* the last block of the list goes first */                         \
  X(RanksIgnored)              /* priority and frequency have no effect */                         \
  X(WindowFreesEarly)          /* one block too many leaves the window */                          \
  X(WindowNeverFrees)          /* none does */                                                     \
  X(SinksFreed)                /* sinks leave with the others */                                   \
  X(DraftsIndexed)             /* drafts are cached before they are accepted */                    \
  X(SwapForgetsBlock)          /* the last block is not copied to the host */                      \
  X(ResumeSkipsCopy)           /* a block comes back without its content */                        \
  X(OffloadOfUnwrittenKept)    /* a rolled back step's host copies are used */                     \
  X(DropKeepsIndexed)          /* dropped tokens, but the sequence goes on indexing */             \
  X(DropShiftsPositions)       /* the map of positions is one off */                               \
  X(StateOverwritten)          /* a step reads and writes one state */                             \
  X(TableNotRewritten)         /* merged blocks do not reach the tables */                         \
  X(WasteMiscounted)           /* truncated tokens stay in the counters */                         \
  X(HitsOfPreemptedCounted)    /* a preempted sequence counts its own blocks as hits */            \
  X(DoomedForgotten)           /* a sequence closed in a step stays */

enum class Fault {
  None,
#define X(name) name,
  LATHE_KV_FAULTS(X)
#undef X
      Count
};

#ifdef LATHE_KV_TEST_HOOKS
inline Fault plantedFault = Fault::None;
inline bool planted(Fault fault) { return plantedFault == fault; }

/// Counts down; the allocation at which it reaches 0 fails. Negative: none does.
inline long failAfter = -1;
inline bool injectedFailure() { return failAfter >= 0 && failAfter-- == 0; }

/// What is left of a hash; few bits force collisions.
inline int hashBits = 128;
#else
constexpr bool planted(Fault) { return false; }
constexpr bool injectedFailure() { return false; }
#endif

} // namespace lathe::kv

#endif // LATHE_RUNTIME_MEMORY_KV_FAULTS_H
