//===- StreamConflicts.cpp - conflicts of buffers that streams share ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A clock for each step: how many steps of each stream have surely ended when it
// begins. What a buffer's last steps have reached is compared with what its rival's
// first steps know.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/StreamConflicts.h"

#include <algorithm>

namespace lathe::analysis {
namespace {

/// Numbers of steps, one a stream.
using Clock = std::vector<int>;

bool isReached(const Clock &last, const Clock &known) {
  for (size_t s = 0; s < last.size(); ++s)
    if (last[s] > known[s])
      return false;
  return true;
}

Status checkSteps(const std::vector<StreamStep> &steps, int buffers) {
  for (size_t i = 0; i < steps.size(); ++i) {
    std::string at = "step " + std::to_string(i);
    if (steps[i].stream < 0)
      return invalidError("stream " + std::to_string(steps[i].stream) + " is negative", at);
    for (int wait : steps[i].waits)
      if (wait < 0 || wait >= int(i))
        return invalidError("waits for step " + std::to_string(wait) + ", which is not earlier",
                            at);
    for (int buffer : steps[i].touches)
      if (buffer < 0 || buffer >= buffers)
        return invalidError("touches buffer " + std::to_string(buffer) + " of " +
                                std::to_string(buffers),
                            at);
  }
  return okStatus();
}

} // namespace

Result<ConflictList> conflictsOfStreams(const std::vector<StreamStep> &steps, int buffers) {
  if (Status status = checkSteps(steps, buffers); !status.ok())
    return status;
  // Only streams that are used get a place in the clocks.
  std::vector<int> streams;
  for (const StreamStep &step : steps)
    streams.push_back(step.stream);
  std::sort(streams.begin(), streams.end());
  streams.erase(std::unique(streams.begin(), streams.end()), streams.end());

  struct Use {
    Clock last;  ///< number of the last step that touches it, one a stream; 0: none
    Clock known; ///< what has ended before any step touches it
  };
  std::vector<Use> uses(std::max(buffers, 0));
  std::vector<Clock> ended(steps.size()); ///< when the step has ended
  std::vector<int> newest(streams.size(), -1);
  for (size_t i = 0; i < steps.size(); ++i) {
    size_t stream =
        std::lower_bound(streams.begin(), streams.end(), steps[i].stream) - streams.begin();
    Clock clock(streams.size(), 0);
    auto join = [&](int earlier) {
      for (size_t s = 0; s < clock.size(); ++s)
        clock[s] = std::max(clock[s], ended[earlier][s]);
    };
    if (newest[stream] >= 0)
      join(newest[stream]);
    for (int wait : steps[i].waits)
      join(wait);
    ended[i] = clock;
    ++ended[i][stream];
    newest[stream] = int(i);
    for (int buffer : steps[i].touches) {
      Use &use = uses[buffer];
      if (use.last.empty())
        use = {Clock(streams.size(), 0), clock};
      use.last[stream] = ended[i][stream];
      for (size_t s = 0; s < clock.size(); ++s)
        use.known[s] = std::min(use.known[s], clock[s]);
    }
  }

  ConflictList conflicts;
  for (int a = 0; a < buffers; ++a)
    for (int b = a + 1; b < buffers; ++b)
      if (!uses[a].last.empty() && !uses[b].last.empty() &&
          !isReached(uses[a].last, uses[b].known) && !isReached(uses[b].last, uses[a].known))
        conflicts.push_back({a, b});
  return conflicts;
}

} // namespace lathe::analysis
