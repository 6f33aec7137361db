//===- Limits.cpp - what a verb may take ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A process cannot be relied upon to bound itself: the code that takes too long or too much is as
// likely a library's. So another process watches, as `timeout` does, and cleans up behind it: what is
// written is beside its place under a temporary name until it is whole (support/ByteSink.h), and other
// temporary files lie in a folder made for the purpose.
//
//===----------------------------------------------------------------------===//
#include "Limits.h"

#include "Results.h"

#include "lathe/support/ByteSize.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace lathe::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// The processes of a group.
std::vector<pid_t> membersOf(pid_t group) {
  std::vector<pid_t> members;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator("/proc", error)) {
    pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && getpgid(pid) == group)
      members.push_back(pid);
  }
  return members;
}

/// Resident bytes that are not of files.
uint64_t ownBytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  uint64_t size = 0, resident = 0, shared = 0;
  if (!(file >> size >> resident >> shared) || shared > resident)
    return 0;
  return (resident - shared) * uint64_t(sysconf(_SC_PAGESIZE));
}

/// Files of temporary names that the process has open: halves of what it was writing.
std::vector<std::string> unfinishedFiles(pid_t pid) {
  std::vector<std::string> files;
  std::string mark = ".tmp." + std::to_string(pid) + ".";
  std::error_code error;
  for (const fs::directory_entry &entry :
       fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    std::string target = fs::read_symlink(entry.path(), error).string();
    if (!error && target.find(mark) != std::string::npos)
      files.push_back(std::move(target));
  }
  return files;
}

class Watch {
public:
  Watch(const Limits &limits, std::string verb, pid_t child, std::string folder, sigset_t signals)
      : limits(limits), verb(std::move(verb)), child(child), folder(std::move(folder)),
        signals(signals) {}

  /// Ends this process as the child ends.
  [[noreturn]] void untilItEnds() {
    Clock::time_point begin = Clock::now(), listed{};
    std::vector<pid_t> members;
    for (;;) {
      const timespec pause = {0, 5000000};
      int signal = sigtimedwait(&signals, nullptr, &pause);
      if (signal > 0 && signal != SIGCHLD)
        kill(-child, signal);
      int state = 0;
      if (waitpid(child, &state, WNOHANG) == child)
        finish(state);
      Clock::time_point now = Clock::now();
      if (limits.seconds > 0 && now - begin > std::chrono::duration<double>(limits.seconds)) {
        char text[32];
        std::snprintf(text, sizeof text, "%g", limits.seconds);
        stop({ErrorCode::Deadline, "the time is over; nothing was left half written",
              "lathe " + verb + " --max-seconds=" + text});
      }
      if (!limits.bytes)
        continue;
      if (now - listed > std::chrono::milliseconds(100)) {
        members = membersOf(child);
        listed = now;
      }
      uint64_t taken = 0;
      for (pid_t pid : members)
        taken += ownBytes(pid);
      if (taken > limits.bytes)
        stop({ErrorCode::RuntimeFailure,
              "takes more memory, " + describeBytes(double(taken)) +
                  " so far; nothing was left half written",
              "lathe " + verb + " --max-memory=" + limits.bytesText});
    }
  }

private:
  /// Whatever the group is doing ends here.
  [[noreturn]] void stop(const Status &why) {
    kill(-child, SIGSTOP); // so that the list of files stays true
    std::vector<std::string> files;
    for (pid_t pid : membersOf(child))
      for (std::string &file : unfinishedFiles(pid))
        files.push_back(std::move(file));
    kill(-child, SIGKILL);
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    for (const std::string &file : files)
      ::unlink(file.c_str());
    removeFolder();
    std::fprintf(stderr, "lathe: %s\n", why.str().c_str());
    _exit(int(why.code()));
  }

  [[noreturn]] void finish(int state) {
    removeFolder();
    if (WIFSIGNALED(state)) {
      std::signal(WTERMSIG(state), SIG_DFL);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      raise(WTERMSIG(state));
      _exit(128 + WTERMSIG(state));
    }
    _exit(WEXITSTATUS(state));
  }

  void removeFolder() {
    std::error_code error;
    fs::remove_all(folder, error);
  }

  const Limits &limits;
  std::string verb;
  pid_t child;
  std::string folder;
  sigset_t signals;
};

} // namespace

void Limits::addTo(Parser &parser) {
  parser.add("max-memory", "SIZE",
             "End with an error when more memory than this is taken, as 512M or 8G",
             [this](const std::string &text) {
               bytesText = text;
               bytes = parseBytes(text);
               return bytes ? okStatus()
                            : usageError("wants bytes, as 512M or 8G, not '" + text + "'",
                                         "--max-memory");
             });
  parser.add("max-seconds", "S", "End with an error after this time", [this](const std::string &text) {
    char *end = nullptr;
    seconds = std::strtod(text.c_str(), &end);
    return !text.empty() && !*end && seconds > 0 && seconds < 1e9
               ? okStatus()
               : usageError("wants a number of seconds above 0, not '" + text + "'",
                            "--max-seconds");
  });
}

Status goOnWithin(const Limits &limits, const std::string &verb) {
  if (!limits.bytes && limits.seconds <= 0)
    return okStatus();
  std::error_code error;
  std::string folder = (fs::temp_directory_path(error) / "lathe-XXXXXX").string();
  if (error || !mkdtemp(folder.data()))
    return runtimeError("a temporary folder cannot be made: " + std::string(std::strerror(errno)),
                        folder);
  sigset_t signals, before;
  sigemptyset(&signals);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, &before);
  std::fflush(nullptr);
  pid_t watcher = getpid(), child = fork();
  if (child < 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    fs::remove_all(folder, error);
    return runtimeError("no process can be started: " + std::string(std::strerror(errno)),
                        "lathe " + verb);
  }
  // In both, so that the group is there whoever comes first.
  setpgid(child, child);
  if (child > 0)
    Watch(limits, verb, child, folder, signals).untilItEnds();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != watcher)
    _exit(int(ErrorCode::Cancelled));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  setenv("TMPDIR", folder.c_str(), 1);
  return okStatus();
}

} // namespace lathe::cli
