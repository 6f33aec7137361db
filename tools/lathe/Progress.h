//===- Progress.h - a line on the terminal while it takes long --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_PROGRESS_H
#define LATHE_TOOLS_LATHE_PROGRESS_H

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace lathe::cli {

/// Shows the present step on stderr once a second has passed, if it is a terminal.
class Progress {
public:
  Progress();
  ~Progress() { finish(); }
  void show(std::string what, int number, int total);
  /// Removes the line. May be called twice.
  void finish();

private:
  void loop();
  std::mutex mutex;
  std::condition_variable changed;
  std::string line;
  bool ended = false;
  std::thread thread;
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_PROGRESS_H
