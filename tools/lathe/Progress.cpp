//===- Progress.cpp - a line on the terminal while it takes long ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Progress.h"

#include <chrono>
#include <cstdio>
#include <unistd.h>

namespace lathe::cli {

Progress::Progress() {
  if (isatty(STDERR_FILENO))
    thread = std::thread([this] { loop(); });
}

void Progress::show(std::string what, int number, int total) {
  std::lock_guard<std::mutex> lock(mutex);
  line = "[" + std::to_string(number + 1) + "/" + std::to_string(total) + "] " + std::move(what);
}

void Progress::finish() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ended = true;
  }
  changed.notify_all();
  if (thread.joinable())
    thread.join();
}

void Progress::loop() {
  auto begin = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(mutex);
  if (changed.wait_for(lock, std::chrono::seconds(1), [this] { return ended; }))
    return;
  do {
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::fprintf(stderr, "\r\x1b[K%s, %.0f s", line.c_str(), seconds);
  } while (!changed.wait_for(lock, std::chrono::milliseconds(200), [this] { return ended; }));
  std::fputs("\r\x1b[K", stderr);
}

} // namespace lathe::cli
