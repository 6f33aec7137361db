//===- CudaKernel.cpp - generate and emulate CUDA kernels --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CudaKernel.h"

#include "EmulatedRaces.h"

#include "lathe/codegen/Config.h"
#include "lathe/codegen/DeviceLibrary.h"
#include "lathe/support/Half.h"
#include "lathe/support/Packing.h"
#include "lathe/ir/Register.h"
#include "lathe/passes/Passes.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <unistd.h>

using namespace mlir;
namespace fs = std::filesystem;

namespace lathe::test {

CudaKernel cudaKernel(MLIRContext &context, const CudaCase &c, const std::string &targetName) {
  CudaKernel out;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &d) {
    out.error += d.str() + "\n";
    return success();
  });
  auto module = parseSourceString<ModuleOp>(c.text, &context);
  if (!module)
    return out;
  PassManager passes(&context);
  passes.addPass(createAssignRolesPass({/*functions=*/true}));
  if (failed(passes.run(*module)))
    return out;
  Target target = *Target::parse(targetName);
  auto fn = *module->getOps<func::FuncOp>().begin();
  auto spec = codegen::specOfFunction(fn, c.config, *DimExpr::parse(c.grid[0]));
  if (failed(spec))
    return out;
  LaunchSpec &launch = spec->launches[0];
  for (int i : {1, 2})
    launch.grid[i] = c.grid[i].empty() ? DimExpr(1) : *DimExpr::parse(c.grid[i]);
  launch.block[0] = KernelConfig::parse(c.config)->threads;
  // Kernels with tensor maps are compiled only: no case says what select would give their blocks,
  // which the text compares where it is a number.
  launch.sharedBytes = c.maps > 0 ? DimExpr::symbol("shared") : *DimExpr::parse(c.shared);
  launch.programmaticDependent = c.early && target.hasProgrammaticLaunch();
  spec->tensorMaps.resize(c.maps);
  // Behind the operands': results; of products without heads and of windows a residual, of attention a mask.
  using Role = TensorMapArg::Role;
  const bool attention = !fn.getBody().getOps<AttentionOp>().empty();
  const bool heads = codegen::rolesOfFunction(fn).hasHeads();
  const bool sparse = c.packing.starts_with("sparse24"); // elements and words of the weights have a map each
  const bool blockSparse = c.packing.starts_with("bsr64"); // the weights have none
  const size_t operands = attention || sparse ? 3 : blockSparse ? 1 : 2;
  for (size_t i = operands; i < spec->tensorMaps.size(); ++i)
    spec->tensorMaps[i].role = attention ? Role::Mask : i == operands + 1 && !heads ? Role::Residual : Role::Result;
  if (spec->tensorMaps.size() == (attention ? 4 : operands + 2)) // a mask, or what lies beside the results
    spec->tensorMaps.back().buffer = spec->numInputs - 1;
  if (!c.packing.empty())
    spec->buffers[1].packing = c.packing;
  if (c.workspace != "0") {
    BufferArg work;
    work.dtype = DType::UI8;
    work.access = BufferArg::Access::ReadWrite;
    work.dims = work.physical = {spec->workspaceBytes = *DimExpr::parse(c.workspace)};
    spec->buffers.push_back(work);
  }
  LaunchSpec last = launch;
  spec->launches.clear();
  for (const std::string &grid : c.ahead) {
    LaunchSpec first = last;
    first.function += "_" + std::to_string(spec->launches.size());
    first.grid[0] = *DimExpr::parse(grid);
    spec->launches.push_back(first);
  }
  spec->launches.push_back(last);
  codegen::KernelSource source{fn.getName(), &fn.front(), &*spec, &target, 7, codegen::rolesOfFunction(fn)};
  FailureOr<std::string> text = codegen::cudaText(source);
  out.spec = *spec;
  if (succeeded(text))
    out.source = *text;
  else
    out.error += "no CUDA text";
  return out;
}

CudaBatch::CudaBatch() {
  DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
}

CudaBatch::~CudaBatch() {
  if (image)
    dlclose(image);
  if (!dir.empty())
    fs::remove_all(dir);
}

std::string CudaBatch::add(const CudaCase &c, const std::string &target) {
  CudaKernel k = cudaKernel(context, c, target);
  if (k.error.empty())
    addKernel(k);
  return k.error;
}

void CudaBatch::addKernel(CudaKernel kernel) {
  const std::string name = kernel.spec.launches.back().function;
  kernels[name] = std::move(kernel);
}

const CudaKernel *CudaBatch::find(const std::string &name) const {
  auto it = kernels.find(name);
  return it == kernels.end() ? nullptr : &it->second;
}

/// The generated part, behind the device library.
static std::string ownPart(const std::string &source) {
  return source.substr(source.find("\n// Kernel "));
}

std::string CudaBatch::build() {
  char folder[] = "/tmp/lathe-cuda-XXXXXX";
  if (!mkdtemp(folder))
    return "no temporary folder";
  dir = folder;
  std::string text = "#define LATHE_EMULATE\n#include \"" LATHE_EMULATE_HEADER "\"\n";
  for (std::string_view m : deviceModules())
    text += deviceModule(m);
  text += "extern \"C\" void finishLater(void (*finish)(void *), void *what) {\n"
          "  lathe_emu::finishLater([=] { finish(what); });\n}\n";
  for (const auto &[name, kernel] : kernels) {
    text += "namespace kernel_" + name + " {\n" + ownPart(kernel.source) + "}\n";
    for (const LaunchSpec &launch : kernel.spec.launches)
      text +=
          "extern \"C\" const char *run_" + launch.function +
          "(const unsigned *g, unsigned threads, unsigned long long shared, const unsigned long long "
          "*words) {\n"
          "  static std::string error;\n  error = run_emulated_words(kernel_" +
          name + "::" + launch.function +
          ", dim3(g[0], g[1], g[2]), dim3(threads), shared, words);\n  return error.c_str();\n}\n";
  }
  std::ofstream(dir / "kernels.cpp") << text;
  std::string command = LATHE_HOST_COMPILER " -std=c++20 -O1 -w -fPIC " LATHE_RACE_OPTIONS " -shared -o " +
                        (dir / "kernels.so").string() + " " + (dir / "kernels.cpp").string() +
                        " > " + (dir / "log").string() + " 2>&1";
  int rc = std::system(command.c_str());
  std::ifstream log(dir / "log");
  std::string message((std::istreambuf_iterator<char>(log)), {});
  if (rc == 0) {
    image = dlopen((dir / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    message = image ? "" : dlerror();
  }
  if (image)
    reinterpret_cast<void (*)(const lathe_emu::RaceHooks *)>(dlsym(image, "lathe_race_hooks"))(findRaces());
  if (std::getenv("LATHE_TEST_PRINT"))
    std::fputs(text.c_str(), stderr);
  return message;
}

std::vector<Bytes> CudaBatch::run(const std::string &name, std::vector<Bytes> inputs,
                                  const std::map<std::string, int64_t> &symbols) {
  error.clear();
  const CudaKernel *k = find(name);
  using Run =
      const char *(*)(const unsigned *, unsigned, unsigned long long, const unsigned long long *);
  auto runOf = [&](const std::string &function) {
    return image ? reinterpret_cast<Run>(dlsym(image, ("run_" + function).c_str())) : nullptr;
  };
  if (!k || !runOf(name)) {
    error = "no such kernel: " + name;
    return {};
  }
  // Memory as a GPU gives it, with a guard zone behind each buffer.
  constexpr size_t kGuard = 64;
  std::vector<std::unique_ptr<unsigned char, void (*)(void *)>> memory;
  std::vector<size_t> sizes;
  std::vector<unsigned long long> words;
  for (size_t i = 0; i < k->spec.buffers.size(); ++i) {
    const BufferArg &arg = k->spec.buffers[i];
    size_t bytes = byteSize(arg.dtype, *product(arg.physical).evaluate(symbols));
    if (!arg.packing.empty()) {
      std::vector<int64_t> dims;
      for (const DimExpr &dim : arg.dims)
        dims.push_back(*dim.evaluate(symbols));
      Result<WeightPacker> packer = WeightPacker::of(arg.packing, arg.dtype, dims);
      if (!packer) {
        error = packer.status().str();
        return {};
      }
      Bytes packed(bytes = packer->bytes());
      packer->pack(inputs[i], 0, packed);
      inputs[i] = std::move(packed);
    }
    size_t whole = (bytes + kGuard + 255) / 256 * 256;
    memory.emplace_back(static_cast<unsigned char *>(std::aligned_alloc(256, whole)), std::free);
    std::fill_n(memory.back().get(), whole, 0xA5);
    sizes.push_back(bytes);
    words.push_back(reinterpret_cast<uintptr_t>(memory.back().get()));
  }
  for (const std::string &s : k->spec.symbols)
    words.push_back(static_cast<unsigned long long>(symbols.at(s)));
  status[0] = status[1] = 0;
  words.push_back(reinterpret_cast<uintptr_t>(status));
  // The kernels ahead write the inputs: before the launch, or while a programmatic one waits.
  std::function<void()> finish = [&] {
    for (size_t i = 0; i < inputs.size() && i < memory.size(); ++i)
      std::copy_n(inputs[i].begin(), std::min(sizes[i], inputs[i].size()), reinterpret_cast<std::byte *>(memory[i].get()));
  };
  using Later = void (*)(void (*)(void *), void *);
  if (k->spec.launches.back().programmaticDependent)
    reinterpret_cast<Later>(dlsym(image, "finishLater"))(
        [](void *what) { (*static_cast<std::function<void()> *>(what))(); }, &finish);
  else
    finish();
  for (const LaunchSpec &launch : k->spec.launches) {
    unsigned grid[3];
    for (int i = 0; i < 3; ++i)
      grid[i] = static_cast<unsigned>(*launch.grid[i].evaluate(symbols));
    if (error.empty())
      error = runOf(launch.function)(grid, static_cast<unsigned>(launch.block[0]), *launch.sharedBytes.evaluate(symbols),
                                     words.data());
  }
  std::vector<Bytes> outputs;
  for (size_t i = 0; i < memory.size(); ++i) {
    for (size_t g = 0; g < kGuard; ++g)
      if (memory[i].get()[sizes[i] + g] != 0xA5)
        error = "wrote behind buffer " + std::to_string(i);
    auto *p = reinterpret_cast<std::byte *>(memory[i].get());
    if (i >= static_cast<size_t>(k->spec.numInputs) &&
        i < static_cast<size_t>(k->spec.numInputs + k->spec.numOutputs))
      outputs.emplace_back(p, p + sizes[i]);
  }
  return outputs;
}

std::string fn(const std::string &name, const std::string &signature, const std::string &body) {
  return "func.func @" + name + signature + " {\n" + body + "\n}\n";
}

void expectCompiles(nvrtc::Compiler &compiler, const std::vector<nvrtc::CompileJob> &jobs,
                    bool harmlessSpills) {
  size_t job = 0;
  for (const Result<nvrtc::Cubin> &cubin : compiler.compileAll(jobs)) {
    const std::string &name = jobs[job++].name;
    EXPECT_TRUE(cubin.ok()) << cubin.status().str();
    if (cubin.ok() && !harmlessSpills)
      EXPECT_EQ(cubin->report.kernels[0].spillStoreBytes, 0) << name;
  }
}

void expectCompiles(CudaBatch &batch, const std::vector<std::string> &names) {
  Result<std::shared_ptr<nvrtc::Compiler>> compiler = nvrtc::Compiler::open();
  if (!compiler)
    GTEST_SKIP() << compiler.status().str();
  std::vector<nvrtc::CompileJob> jobs;
  for (const std::string &name : names)
    for (const char *target : {"sm_80", "sm_90a"}) {
      nvrtc::CompileJob job;
      job.name = name + ".cu";
      job.source = batch.find(name)->source;
      job.target = target;
      jobs.push_back(job);
    }
  expectCompiles(**compiler, jobs);
}

Bytes randomBytes(const BufferArg &arg, const std::map<std::string, int64_t> &symbols, unsigned seed) {
  int64_t n = *product(arg.dims).evaluate(symbols);
  std::mt19937 gen(seed);
  std::uniform_real_distribution<float> d(-1.5f, 1.5f);
  Bytes out(byteSize(arg.dtype, n));
  for (int64_t i = 0; i < n; ++i) {
    float f = d(gen);
    if (arg.dtype == DType::F32)
      std::memcpy(&out[4 * i], &f, 4);
    else if (arg.dtype == DType::I64) {
      int64_t v = (i * 2 + 1) % 5 - (i == 1 ? 5 : 0);
      std::memcpy(&out[8 * i], &v, 8);
    } else if (bitWidth(arg.dtype) < 8) {
      out[i * bitWidth(arg.dtype) / 8] = static_cast<std::byte>(gen() & 0xff);
    } else if (arg.dtype == DType::F8E8M0) {
      out[i] = static_cast<std::byte>(124 + gen() % 5); // 1/8 to 2
    } else if (bitWidth(arg.dtype) == 8) {
      uint32_t code = isFloat(arg.dtype) ? static_cast<uint32_t>(encodeFloat(arg.dtype, f)) : gen() & 0xff;
      out[i] = static_cast<std::byte>(code);
    } else {
      uint16_t h = arg.dtype == DType::F16 ? static_cast<uint16_t>(encodeFloat(DType::F16, f)) : floatToBf16(f);
      std::memcpy(&out[2 * i], &h, 2);
    }
  }
  return out;
}

} // namespace lathe::test
