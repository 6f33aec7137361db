//===- Executor.cpp - where a test's engine runs --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Executor.h"

#include "../lathe-runner/Protocol.h"

#include <csignal>
#include <fcntl.h>
#include <optional>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

namespace lathe::cli {
namespace {

class LocalExecutor : public Executor {
public:
  explicit LocalExecutor(SessionOptions options) : options(std::move(options)) {}

  Status open(const Model &model) override {
    session.reset();
    Result<Session> opened = Session::open(model, options);
    if (!opened)
      return opened.status();
    session.emplace(std::move(*opened));
    return okStatus();
  }
  Status seed(uint64_t seed) override { return toStatus(lathe_context_seed(session->context(), seed)); }
  Result<std::vector<HostTensor>> run(const engine::Plan &plan, const std::vector<HostTensor> &inputs) override {
    std::vector<lathe_tensor> out;
    LATHE_RETURN_IF_ERROR(session->run(plan, inputs, out));
    std::vector<HostTensor> results;
    for (const lathe_tensor &tensor : out)
      results.push_back(copyOf(tensor));
    return results;
  }

private:
  SessionOptions options;
  std::optional<Session> session;
};

class RunnerExecutor : public Executor {
public:
  RunnerExecutor(std::string command, int patience) : command(std::move(command)), patience(patience) {}
  ~RunnerExecutor() override { stop(); }

  Status open(const Model &model) override {
    if (pid < 0)
      LATHE_RETURN_IF_ERROR(start());
    runner::MessageWriter request;
    request.number(runner::Request::Open);
    request.block(model.bytes.data(), model.bytes.size());
    std::string answer;
    Result<runner::MessageReader> reader = ask(request, answer);
    return reader ? okStatus() : reader.status();
  }

  Status seed(uint64_t seed) override {
    runner::MessageWriter request;
    request.number(runner::Request::Seed);
    request.number(seed);
    std::string answer;
    Result<runner::MessageReader> reader = ask(request, answer);
    return reader ? okStatus() : reader.status();
  }

  Result<std::vector<HostTensor>> run(const engine::Plan &plan, const std::vector<HostTensor> &inputs) override {
    runner::MessageWriter request;
    request.number(runner::Request::Run);
    request.number<uint32_t>(uint32_t(inputs.size()));
    for (const HostTensor &tensor : inputs)
      request.tensor(viewOf(tensor));
    request.number<uint32_t>(uint32_t(plan.outputs.size()));
    std::string answer;
    Result<runner::MessageReader> reader = ask(request, answer);
    if (!reader)
      return reader.status();
    std::vector<HostTensor> results;
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      lathe_dtype dtype;
      std::vector<int64_t> dims;
      std::string_view data;
      if (!reader->tensor(dtype, dims, data) || !checkedElementCount(dims))
        return malformed();
      HostTensor tensor(DType(dtype), dims);
      if (tensor.dtype != DType::String && tensor.data.size() != data.size())
        return malformed();
      const auto *first = reinterpret_cast<const std::byte *>(data.data());
      tensor.data.assign(first, first + data.size());
      results.push_back(std::move(tensor));
    }
    return results;
  }

private:
  static Status malformed() { return internalError("the runner's answer is malformed"); }

  Status start() {
    int down[2], up[2]; // requests, answers
    if (pipe2(down, O_CLOEXEC) != 0)
      return runtimeError(std::strerror(errno), "pipe");
    if (pipe2(up, O_CLOEXEC) != 0) {
      close(down[0]), close(down[1]);
      return runtimeError(std::strerror(errno), "pipe");
    }
    std::signal(SIGPIPE, SIG_IGN); // a runner that dies is an error of its test
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, down[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, up[1], STDOUT_FILENO);
    std::string line = "exec " + command;
    char shell[] = "sh", option[] = "-c";
    char *arguments[] = {shell, option, line.data(), nullptr};
    int failed = posix_spawn(&pid, "/bin/sh", &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(down[0]), close(up[1]);
    if (failed) {
      close(down[1]), close(up[0]);
      pid = -1;
      return runtimeError(std::strerror(failed), command);
    }
    to = down[1], from = up[0];
    return okStatus();
  }

  /// What became of the process, for people.
  std::string stop() {
    if (pid < 0)
      return "";
    close(to), close(from);
    int status = 0;
    // One that waits for requests sees the end of its input; another is in a kernel, or hangs.
    bool ended = false;
    for (int i = 0; i < 100 && !ended; ++i) {
      ended = waitpid(pid, &status, WNOHANG) != 0;
      if (!ended)
        usleep(10000);
    }
    if (!ended) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
    }
    pid = -1;
    if (!ended)
      return "in " + std::to_string(patience) + " s";
    if (WIFSIGNALED(status))
      return std::string("and died: ") + strsignal(WTERMSIG(status));
    return "and ended with exit code " + std::to_string(WEXITSTATUS(status));
  }

  /// Sends a request; the rest of its answer, which lies in `answer`, or the error that it names.
  Result<runner::MessageReader> ask(const runner::MessageWriter &request, std::string &answer) {
    if (pid < 0)
      return internalError("the runner has ended");
    if (!runner::sendMessage(to, request.bytes) || !runner::receiveMessage(from, answer, 1000 * patience))
      return internalError("the runner gave no answer " + stop());
    runner::MessageReader reader(answer);
    uint32_t code = 0;
    std::string_view message;
    if (!reader.number(code) || !reader.block(message))
      return malformed();
    if (code != LATHE_OK)
      return Status(ErrorCode(code), std::string(message));
    return reader;
  }

  std::string command;
  int patience; ///< seconds
  pid_t pid = -1;
  int to = -1, from = -1;
};

} // namespace

std::unique_ptr<Executor> Executor::local(const SessionOptions &options) {
  return std::make_unique<LocalExecutor>(options);
}
std::unique_ptr<Executor> Executor::runner(const std::string &command, int patience) {
  return std::make_unique<RunnerExecutor>(command, patience);
}

} // namespace lathe::cli
