//===- CpuKernel.cpp - compile and call one kernel in a test ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CpuKernel.h"

#include "lathe/ir/Register.h"
#include "lathe/passes/Passes.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <thread>
#include <unistd.h>

using namespace mlir;

namespace lathe::test {
namespace {

double truncate(double x) { return std::trunc(x); }
double even(double x) { return std::nearbyint(x); }
double powerOf(double x, double y) { return std::pow(x, y); }
double angle(double y, double x) { return std::atan2(y, x); }
double remainderOf(double x, double y) { return std::fmod(x, y); }

const LatheHelpers kHelpers = {
    {[](double x) { return std::sin(x); },   [](double x) { return std::cos(x); },
     [](double x) { return std::tan(x); },   [](double x) { return std::asin(x); },
     [](double x) { return std::acos(x); },  [](double x) { return std::atan(x); },
     [](double x) { return std::sinh(x); },  [](double x) { return std::cosh(x); },
     [](double x) { return std::tanh(x); },  [](double x) { return std::asinh(x); },
     [](double x) { return std::acosh(x); }, [](double x) { return std::atanh(x); },
     [](double x) { return std::exp(x); },   [](double x) { return std::expm1(x); },
     [](double x) { return std::log(x); },   [](double x) { return std::log1p(x); },
     [](double x) { return std::log2(x); },  [](double x) { return std::erf(x); },
     [](double x) { return std::sqrt(x); },  [](double x) { return std::cbrt(x); },
     [](double x) { return std::floor(x); }, [](double x) { return std::ceil(x); }, even, truncate},
    {powerOf, angle, remainderOf}};

constexpr size_t kGuard = 64; ///< bytes behind every buffer that must stay as they were
constexpr std::byte kGuardByte{0xA5};

/// 64-byte aligned memory with a guard zone behind it.
struct Memory {
  explicit Memory(size_t bytes) : size(bytes) {
    size_t whole = (bytes + kGuard + 63) / 64 * 64;
    data = static_cast<std::byte *>(std::aligned_alloc(64, whole));
    std::fill(data, data + whole, kGuardByte);
  }
  ~Memory() { std::free(data); }
  Memory(const Memory &) = delete;
  bool intact() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (data[size + i] != kGuardByte)
        return false;
    return true;
  }
  std::byte *data;
  size_t size;
};

struct Seat : LatheCpuTeam {
  std::barrier<> *all;
};

} // namespace

CpuKernel::CpuKernel(const std::string &text, const std::string &config,
                     const std::string &targetName, const std::string &grid,
                     const std::function<void(KernelSpec &)> &adjust) {
  DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &d) {
    error += d.str() + "\n";
    return success();
  });
  auto module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return;
  (*module)->setAttr(kTargetAttr, StringAttr::get(&context, targetName));
  PassManager passes(&context);
  passes.addPass(createAssignRolesPass({/*functions=*/true}));
  if (failed(passes.run(*module)))
    return;
  Result<Target> target = Target::parse(targetName);
  Result<DimExpr> blocks = DimExpr::parse(grid);
  if (!target || !blocks) {
    error = (target ? blocks.status() : target.status()).str();
    return;
  }
  auto fn = *module->getOps<func::FuncOp>().begin();
  auto made = codegen::specOfFunction(fn, config, *blocks);
  if (failed(made))
    return;
  spec = *made;
  if (adjust)
    adjust(spec);
  codegen::KernelSource source{fn.getName(), &fn.front(), &spec, &*target, 7, codegen::rolesOfFunction(fn)};
  OwningOpRef<ModuleOp> tile(ModuleOp::create(UnknownLoc::get(&context)));
  if (failed(codegen::emitTile(source, *tile))) {
    error += "no tile function";
    return;
  }
  if (std::getenv("LATHE_TEST_PRINT"))
    tile->dump();
  auto llvmText = codegen::tileToLLVMText(*tile, *target);
  if (failed(llvmText)) {
    error += "no LLVM text";
    return;
  }
  Result<std::string> object = codegen::compileLLVMText(*llvmText, *target);
  if (!object) {
    error = object.status().str();
    return;
  }
  Result<std::string> linked = codegen::linkImage({*object});
  if (!linked) {
    error = linked.status().str();
    return;
  }
  if (const char *dir = std::getenv("LATHE_TEST_IMAGE"))
    if (FILE *f = std::fopen((std::string(dir) + "/" + fn.getName().str() + ".so").c_str(), "wb")) {
      std::fwrite(linked->data(), 1, linked->size(), f);
      std::fclose(f);
    }
  char path[] = "/tmp/lathe-test-XXXXXX";
  int fd = mkstemp(path);
  if (write(fd, linked->data(), linked->size()) != static_cast<ssize_t>(linked->size())) {
    error = "cannot write the image";
    return;
  }
  image = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  close(fd);
  unlink(path);
  if (!image) {
    error = dlerror();
    return;
  }
  kernel = reinterpret_cast<LatheCpuKernel>(dlsym(image, spec.launches[0].function.c_str()));
  if (!kernel)
    error = "the image has no such function";
}

CpuKernel::~CpuKernel() {
  if (image)
    dlclose(image);
}

std::vector<Bytes> CpuKernel::run(const std::vector<Bytes> &inputs,
                                  const std::map<std::string, int64_t> &symbols) {
  std::vector<Bytes> outputs;
  if (!error.empty())
    return outputs;
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<void *> buffers;
  for (const Bytes &in : inputs) {
    memory.push_back(std::make_unique<Memory>(in.size()));
    std::copy(in.begin(), in.end(), memory.back()->data);
  }
  for (size_t i = spec.numInputs; i < spec.buffers.size(); ++i) {
    int64_t count = *product(spec.buffers[i].physical).evaluate(symbols);
    memory.push_back(std::make_unique<Memory>(byteSize(spec.buffers[i].dtype, count)));
  }
  for (auto &m : memory)
    buffers.push_back(m->data);
  std::vector<int64_t> values;
  for (const std::string &s : spec.symbols)
    values.push_back(symbols.at(s));
  Memory scratch(*spec.scratchBytes.evaluate(symbols));
  status = {0, 0};
  std::barrier<> all(members);
  LatheCpuArgs args{buffers.data(), values.data(), &kHelpers, &status, scratch.data, nullptr};
  const LaunchSpec &launch = spec.launches[0];
  int64_t blocks = *(launch.cluster[1] > 1 ? launch.grid[0]
                                           : launch.grid[0] * launch.grid[1] * launch.grid[2])
                        .evaluate(symbols);
  auto member = [&](int number) {
    Seat seat{{number, members,
               [](const LatheCpuTeam *t) { static_cast<const Seat *>(t)->all->arrive_and_wait(); }},
              &all};
    LatheCpuArgs own = args;
    own.team = &seat;
    // Two calls, the later blocks first: nothing may depend on their order.
    kernel(&own, blocks / 2, blocks);
    kernel(&own, 0, blocks / 2);
  };
  seconds = 1e9;
  for (int r = 0; r < repeat; ++r) {
    auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (int m = 1; m < members; ++m)
      others.emplace_back(member, m);
    member(0);
    for (std::thread &t : others)
      t.join();
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds = std::min(seconds, took.count());
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i]->intact())
      error = "wrote behind buffer " + std::to_string(i);
    if (i >= static_cast<size_t>(spec.numInputs) &&
        i < static_cast<size_t>(spec.numInputs + spec.numOutputs))
      outputs.emplace_back(memory[i]->data, memory[i]->data + memory[i]->size);
  }
  if (!scratch.intact())
    error = "wrote behind the scratch memory";
  return outputs;
}

} // namespace lathe::test
