//===- EmulatedRaces.cpp - accesses of a kernel that race -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For each four bytes, or each byte where accesses are narrower, the last write and the last reads are kept: epochs
// as in FastTrack (Flanagan and Freund, PLDI 2009), with a block's barrier and a warp's as the only clocks.
//
//===----------------------------------------------------------------------===//

#include "EmulatedRaces.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

using namespace lathe_emu;

namespace {

/// Whether `a` comes before `b`, both of one block, `b` being now or later than all that is recorded.
bool isBefore(const Moment &a, const Moment &b) {
  return a.blockSyncs < b.blockSyncs || a.thread == b.thread ||
         (a.thread / 32 == b.thread / 32 && a.warpSyncs < b.warpSyncs);
}

/// The accesses of one launch.
class Races {
public:
  explicit Races(const LaunchMemory &of) : of(of) {}

  /// A block begins, after the one before has ended.
  void begin() { acquired.clear(); }

  void access(const void *p, size_t bytes, AccessKind kind, const Moment &now, const void *code) {
    const uintptr_t address = number(p);
    if (address - number(of.stacks) < of.stackBytes || !message.empty())
      return;
    const bool ofBlock = address - number(of.shared) < of.sharedBytes ||
                         (address >= number(of.statics) && address < number(of.staticsEnd));
    if (kind == AccessKind::Atomic && !ofBlock)
      meet(address, now);
    for (uintptr_t at = address; at < address + bytes;) {
      Page &page = pageOf(at);
      const bool whole = at % 4 == 0 && address + bytes - at >= 4;
      if (!whole && page.step == 4)
        page.refine();
      for (uintptr_t end = std::min<uintptr_t>(address + bytes, at / kPage * kPage + kPage); at < end; at += page.step) {
        if (page.step == 4 && (at % 4 != 0 || end - at < 4))
          break; // of a page that was whole when this loop began
        check(page.cells[at % kPage / page.step], at, kind, now, code, ofBlock);
      }
    }
  }

  /// A copy has ended that those who read it wait for.
  void forgetWrite(const void *p, size_t bytes) {
    for (uintptr_t at = number(p), end = at + bytes; at < end; ++at) {
      Page &page = pageOf(at);
      page.cells[at % kPage / page.step].write = {};
    }
  }

  /// "" or the first race.
  std::string message;

private:
  static constexpr uint32_t kNone = ~0u;
  struct Access {
    Moment by{kNone, 0, 0, 0};
    uint32_t code = 0; ///< in the image
    bool atomic = false;
    bool there() const { return by.block != kNone; }
  };
  /// `read` and `other` are reads by different threads, of different warps if there were any.
  struct Cell {
    Access write, read, other;
  };
  static constexpr uintptr_t kPage = 1024;
  struct Page {
    unsigned step = 4; ///< bytes a cell
    std::vector<Cell> cells{kPage / 4};
    void refine() {
      std::vector<Cell> bytes(kPage);
      for (size_t i = 0; i < kPage; ++i)
        bytes[i] = cells[i / 4];
      cells = std::move(bytes);
      step = 1;
    }
  };

  Page &pageOf(uintptr_t at) {
    if (at / kPage != lastNumber) {
      lastNumber = at / kPage;
      last = &pages[lastNumber];
    }
    return *last;
  }

  /// An atomic operation on global memory: what was before the earlier ones is before what follows this one.
  void meet(uintptr_t place, const Moment &now) {
    std::vector<Moment> &own = meetings[place][now.block];
    if (own.empty() || std::memcmp(&own.back(), &now, sizeof now) != 0)
      own.push_back(now);
    acquired.insert(place);
  }

  /// Whether `a`, an access of another block that has ended, comes before `now`.
  bool isBeforeThisBlock(const Moment &a, const Moment &now) const {
    for (uintptr_t place : acquired) {
      const auto &blocks = meetings.at(place);
      auto theirs = blocks.find(a.block), ours = blocks.find(now.block);
      if (theirs == blocks.end() || ours == blocks.end())
        continue;
      bool released = false, taken = false;
      for (const Moment &m : theirs->second)
        released |= isBefore(a, m);
      for (const Moment &m : ours->second)
        taken |= isBefore(m, now);
      if (released && taken)
        return true;
    }
    return false;
  }

  bool races(const Access &a, const Moment &now, bool ofBlock) const {
    if (!a.there())
      return false;
    if (a.by.block == now.block)
      return !isBefore(a.by, now);
    return !ofBlock && !isBeforeThisBlock(a.by, now);
  }

  void check(Cell &cell, uintptr_t at, AccessKind kind, const Moment &now, const void *code, bool ofBlock) {
    const bool atomic = kind == AccessKind::Atomic;
    const Access mine{now, static_cast<uint32_t>(number(code) - number(of.image)), atomic};
    if (!(atomic && cell.write.atomic) && races(cell.write, now, ofBlock))
      tell(cell.write, "wrote", mine, kind, at, ofBlock);
    if (kind == AccessKind::Read) {
      // A read that nothing recorded orders is kept beside one of another warp.
      if (!cell.read.there() || cell.read.by.block != now.block || isBefore(cell.read.by, now)) {
        cell.read = mine;
      } else if (!cell.other.there() || cell.other.by.block != now.block || isBefore(cell.other.by, now) ||
                 cell.other.by.thread / 32 == cell.read.by.thread / 32) {
        cell.other = mine;
      }
      return;
    }
    for (const Access *read : {&cell.read, &cell.other})
      if (races(*read, now, ofBlock))
        tell(*read, "read", mine, kind, at, ofBlock);
    cell.write = mine;
  }

  /// The line of the code at this place of this image.
  std::string lineOf(uint32_t code) const {
    Dl_info image;
    if (!dladdr(of.image, &image) || !image.dli_fname)
      return "?";
    char command[600], line[300];
    std::snprintf(command, sizeof command, "llvm-symbolizer-22 --no-inlines --obj='%s' 0x%x 2>/dev/null", image.dli_fname,
                  code - 1);
    std::string text; // function, then file, line and column
    if (FILE *f = popen(command, "r")) {
      while (std::fgets(line, sizeof line, f) && line[0] != '\n')
        text += (text.empty() ? "" : " at ") + std::string(line, std::strcspn(line, "\n"));
      pclose(f);
    }
    return text.empty() ? "code + " + std::to_string(code) : text;
  }
  static std::string name(const Moment &m) {
    return "thread " + std::to_string(m.thread) + " of block " + std::to_string(m.block);
  }
  void tell(const Access &before, const char *did, const Access &now, AccessKind kind, uintptr_t at, bool ofBlock) {
    if (!message.empty())
      return;
    static const char *const does[] = {"reads", "writes", "changes atomically"};
    message = "a race: " + name(now.by) + " " + does[static_cast<int>(kind)] + " a place of " +
              (ofBlock ? "shared" : "global") + " memory (" + lineOf(now.code) + ") that " + name(before.by) + " " + did +
              " (" + lineOf(before.code) + "), and nothing orders the two";
    if (at - number(of.shared) < of.sharedBytes)
      message += "; byte " + std::to_string(at - number(of.shared)) + " of the dynamic part";
  }

  static uintptr_t number(const void *p) { return reinterpret_cast<uintptr_t>(p); }

  const LaunchMemory of;
  std::unordered_map<uintptr_t, Page> pages;
  uintptr_t lastNumber = ~uintptr_t(0);
  Page *last = nullptr;
  /// Place, block, atomic operations.
  std::unordered_map<uintptr_t, std::unordered_map<uint32_t, std::vector<Moment>>> meetings;
  std::unordered_set<uintptr_t> acquired; ///< places of this block's atomic operations
};

thread_local std::optional<Races> races; // of the launch that this thread runs

const RaceHooks hooks = {
    [](const LaunchMemory &of) { races.emplace(of); },
    [] { races->begin(); },
    [](const void *p, size_t bytes, AccessKind kind, const Moment &now, const void *code) {
      races->access(p, bytes, kind, now, code);
    },
    [](const void *p, size_t bytes) { races->forgetWrite(p, bytes); },
    [] { return races->message.c_str(); },
};

} // namespace

const RaceHooks *lathe::test::findRaces() { return &hooks; }
