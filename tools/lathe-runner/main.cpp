//===- main.cpp - lathe-runner: engines of a program elsewhere ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   lathe-runner [--device=cpu] [--threads=N]
//
// Answers the requests of Protocol.h until its input ends.
//
//===----------------------------------------------------------------------===//
#include "Protocol.h"

#include "lathe/runtime/lathe.hpp"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace rt = lathe::rt;
using namespace lathe::runner;

namespace {

struct Options {
  std::string device = "cpu";
  int threads = 1;
};

/// Elements in row-major order, where a result lies otherwise: views of a state do.
std::string rowMajor(const lathe_tensor &t) {
  const int64_t one = 1;
  uint64_t element = lathe_tensor_bytes(t.dtype, 1, &one); // types below a byte are never strided
  std::string bytes(lathe_tensor_bytes(t.dtype, t.rank, t.dims), '\0');
  std::vector<int64_t> index(size_t(t.rank));
  for (size_t to = 0; to < bytes.size(); to += element) {
    int64_t from = 0;
    for (int32_t d = 0; d < t.rank; ++d)
      from += index[size_t(d)] * t.strides[d];
    std::memcpy(&bytes[to], static_cast<const char *>(t.data) + from * int64_t(element), element);
    for (size_t d = index.size(); d-- && ++index[d] == t.dims[d];)
      index[d] = 0;
  }
  return bytes;
}

bool isRowMajor(const lathe_tensor &t) {
  int64_t expected = 1;
  for (int32_t d = t.rank; d-- > 0; expected *= t.dims[d])
    if (t.strides && t.dims[d] > 1 && t.strides[d] != expected)
      return false;
  return true;
}

class Runner {
public:
  explicit Runner(Options options) : options(std::move(options)) {}

  std::string answer(std::string_view request) {
    MessageReader reader(request);
    uint8_t kind = 0;
    if (!reader.number(kind))
      return malformed();
    switch (Request(kind)) {
    case Request::Open:
      return open(reader);
    case Request::Seed:
      return seed(reader);
    case Request::Run:
      return run(reader);
    }
    return malformed();
  }

private:
  static std::string status(lathe_code code, std::string_view message) {
    MessageWriter writer;
    writer.number<uint32_t>(code);
    writer.block(message.data(), message.size());
    return writer.bytes;
  }
  static std::string malformed() { return status(LATHE_USAGE, "lathe-runner: a request is malformed"); }
  static std::string statusOf(const rt::Error &error) {
    return error ? status(error.code(), error.message()) : status(LATHE_OK, "");
  }

  std::string open(MessageReader &reader) {
    std::string_view bytes;
    if (!reader.block(bytes) || !reader.atEnd())
      return malformed();
    // The one before ends when the next is there: a GPU that nobody uses in between starts anew, which takes long.
    rt::Context last = std::exchange(context, {});
    rt::Engine lastEngine = std::exchange(engine, {});
    if (rt::Error e = engine.openMemory(std::as_bytes(std::span(bytes))))
      return statusOf(e);
    lathe_options how = {};
    how.size = sizeof how;
    how.threads = options.threads;
    how.no_pinning = 1;
    rt::Error failed = context.create(engine, options.device, how);
    last = {};
    return statusOf(failed);
  }

  std::string seed(MessageReader &reader) {
    uint64_t value = 0;
    if (!reader.number(value) || !reader.atEnd())
      return malformed();
    if (!context.get())
      return status(LATHE_USAGE, "lathe-runner: no engine is open");
    return statusOf(context.seed(value));
  }

  std::string run(MessageReader &reader) {
    uint32_t inputCount = 0, outputCount = 0;
    if (!reader.number(inputCount))
      return malformed();
    std::vector<std::vector<int64_t>> dims;
    // Where elements lie in a message says nothing of their alignment.
    std::vector<std::vector<std::max_align_t>> data;
    std::vector<lathe_tensor> inputs;
    for (uint32_t i = 0; i < inputCount; ++i) {
      lathe_dtype dtype;
      std::string_view elements;
      if (!reader.tensor(dtype, dims.emplace_back(), elements))
        return malformed();
      data.emplace_back(elements.size() / sizeof(std::max_align_t) + 1);
      std::memcpy(data.back().data(), elements.data(), elements.size());
      inputs.push_back({data.back().data(), elements.size(), dtype, LATHE_HOST, int32_t(dims.back().size()),
                        nullptr, nullptr});
    }
    if (!reader.number(outputCount) || outputCount > 65536 || !reader.atEnd())
      return malformed();
    for (size_t i = 0; i < inputs.size(); ++i)
      inputs[i].dims = dims[i].data();
    if (!context.get())
      return status(LATHE_USAGE, "lathe-runner: no engine is open");
    std::vector<lathe_tensor> outputs(outputCount);
    if (rt::Error e = context.run("", inputs, outputs))
      return statusOf(e);
    MessageWriter writer;
    writer.bytes = status(LATHE_OK, "");
    for (lathe_tensor &t : outputs) {
      std::string moved;
      if (t.dtype != LATHE_STRING && !isRowMajor(t)) {
        moved = rowMajor(t);
        t.data = moved.data();
      }
      // Of memory that a context owns there may be more.
      if (t.dtype != LATHE_STRING)
        t.bytes = lathe_tensor_bytes(t.dtype, t.rank, t.dims);
      writer.tensor(t);
    }
    return writer.bytes;
  }

  Options options;
  rt::Engine engine;
  rt::Context context;
};

} // namespace

int main(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string_view word = argv[i];
    if (word.starts_with("--device=")) {
      options.device = word.substr(9);
    } else if (word.starts_with("--threads=")) {
      options.threads = std::atoi(argv[i] + 10);
    } else {
      std::fprintf(word == "--help" ? stdout : stderr,
                   "usage: lathe-runner [--device=cpu] [--threads=1]\n"
                   "Runs engines for a program that sends requests to its standard input, such as\n"
                   "lathe-conformance --runner=\"ssh board lathe-runner\".\n");
      return word == "--help" ? LATHE_OK : LATHE_USAGE;
    }
  }
  // What a library prints is not to come between two answers.
  int out = dup(STDOUT_FILENO);
  if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    return LATHE_RUNTIME_FAILURE;
  Runner runner(std::move(options));
  for (std::string request; receiveMessage(STDIN_FILENO, request);)
    if (!sendMessage(out, runner.answer(request)))
      return LATHE_RUNTIME_FAILURE;
  return LATHE_OK;
}
