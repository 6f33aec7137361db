//===- embed.cpp - runs an engine inside a program of one's own -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   embed MODEL.lathe [cpu|cuda:0]
//
// Feeds zeros of the sizes the engine was optimised for and prints the sizes and the
// first values of each output. Links against liblathe_runtime.so alone.
//
//===----------------------------------------------------------------------===//

#include "lathe/runtime/lathe.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace rt = lathe::rt;

static int fail(const rt::Error &error) {
  std::fprintf(stderr, "embed: %s\n", error.message().c_str());
  return error.code();
}

/// Dimensions are formulas; this program understands numbers and single symbols.
static int64_t sizeOf(const lathe_engine *engine, const char *formula) {
  for (size_t i = 0; i < lathe_engine_symbol_count(engine, nullptr); ++i) {
    const lathe_symbol *s = lathe_engine_symbol(engine, nullptr, i);
    if (!std::strcmp(s->name, formula))
      return s->opt;
  }
  return std::atoll(formula);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: embed MODEL.lathe [cpu|cuda:0]\n");
    return LATHE_USAGE;
  }
  rt::Engine engine;
  rt::Context context;
  if (rt::Error e = engine.open(argv[1]))
    return fail(e);
  if (rt::Error e = context.create(engine, argc > 2 ? argv[2] : "cpu"))
    return fail(e);

  size_t inputCount = lathe_engine_input_count(engine.get(), nullptr);
  std::vector<std::vector<int64_t>> dims(inputCount);
  std::vector<std::vector<char>> data(inputCount);
  std::vector<lathe_tensor> inputs;
  for (size_t i = 0; i < inputCount; ++i) {
    const lathe_port *port = lathe_engine_input(engine.get(), nullptr, i);
    for (int32_t axis = 0; axis < port->rank; ++axis)
      dims[i].push_back(sizeOf(engine.get(), port->dims[axis]));
    data[i].resize(lathe_tensor_bytes(port->dtype, port->rank, dims[i].data()));
    inputs.push_back({data[i].data(), data[i].size(), port->dtype, LATHE_HOST, port->rank,
                      dims[i].data(), nullptr});
  }
  std::vector<lathe_tensor> outputs(lathe_engine_output_count(engine.get(), nullptr));
  if (rt::Error e = context.run("", inputs, outputs))
    return fail(e);

  for (size_t i = 0; i < outputs.size(); ++i) {
    const lathe_tensor &t = outputs[i];
    std::printf("%s %s[", lathe_engine_output(engine.get(), nullptr, i)->name,
                lathe_dtype_name(t.dtype));
    for (int32_t axis = 0; axis < t.rank; ++axis)
      std::printf("%s%lld", axis ? "," : "", static_cast<long long>(t.dims[axis]));
    std::printf("]");
    for (uint64_t k = 0; t.dtype == LATHE_F32 && k < 4 && k < t.bytes / 4; ++k)
      std::printf(" %g", static_cast<double>(static_cast<const float *>(t.data)[k]));
    std::printf("\n");
  }
  return 0;
}
