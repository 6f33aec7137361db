//===- EmulatedKernels.cpp - generated CUDA text on the fake device ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "EmulatedKernels.h"

#include "EmulatedRaces.h"

#include "../../runtime/device/FakeDriver.h"

#include "lathe/codegen/DeviceLibrary.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <regex>

namespace fs = std::filesystem;

namespace lathe::test {
namespace {

std::string readFile(const fs::path &p) {
  std::ifstream in(p, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

/// What stands ahead of every kernel.
std::string prelude() {
  std::string text = "#define LATHE_EMULATE\n#include \"" LATHE_EMULATE_HEADER "\"\n";
  for (std::string_view m : deviceModules())
    text += deviceModule(m);
  return text;
}

/// "" or what the compiler says.
std::string compile(const std::string &arguments, const fs::path &log) {
  std::string command = LATHE_HOST_COMPILER " -std=c++20 -w -fPIC " + arguments + " > " + log.string() + " 2>&1";
  return std::system(command.c_str()) == 0 ? "" : readFile(log);
}

} // namespace

std::string EmulatedKernels::precompile(const fs::path &file, const std::string &options) {
  fs::path header = file;
  header.replace_extension(".h");
  std::ofstream(header) << prelude();
  return compile(options + " -x c++-header -o " + file.string() + " " + header.string(),
                 file.string() + ".log");
}

std::string EmulatedKernels::build(const fs::path &dump, const fs::path &folder,
                                   const std::string &options, const fs::path &precompiled) {
  std::string text = precompiled.empty() ? prelude() : "";
  std::vector<fs::path> files;
  for (const fs::directory_entry &e : fs::recursive_directory_iterator(dump / "kernels"))
    if (e.path().extension() == ".cu")
      files.push_back(e.path());
  for (const fs::path &file : files) {
    std::string source = readFile(file), own = source.substr(source.find("\n// Kernel "));
    std::string space = "kernel_" + std::to_string(names.size());
    text += "namespace " + space + " {\n" + own + "}\n";
    static const std::regex signature(R"(__launch_bounds__\(\d+(?:, \d+)?\)\s+(\w+)\()");
    for (std::sregex_iterator it(own.begin(), own.end(), signature), end; it != end; ++it) {
      std::string name = (*it)[1];
      names.push_back(name);
      text += "extern \"C\" const char *run_" + name +
              "(const unsigned *g, const unsigned *b, unsigned shared, void **parameters) {\n"
              "  static std::string e;\n  e = run_emulated_parameters(" +
              space + "::" + name +
              ", dim3(g[0], g[1], g[2]), dim3(b[0], b[1], b[2]), shared, parameters);\n  return "
              "e.c_str();\n}\n";
    }
  }
  std::ofstream(folder / "kernels.cpp") << text;
  // The loader takes images of one path for one image.
  static int images = 0;
  image = folder / ("kernels" + std::to_string(images++) + ".so");
  std::string with = precompiled.empty() ? "" : " -include-pch " + precompiled.string();
  return compile(options + with + " -shared -o " + image.string() + " " + (folder / "kernels.cpp").string(),
                 folder / "log");
}

std::string
EmulatedKernels::install(std::function<void(const std::string &, const std::string &)> failed) const {
  void *library = dlopen(image.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return dlerror();
  if (auto setHooks = reinterpret_cast<void (*)(const lathe_emu::RaceHooks *)>(dlsym(library, "lathe_race_hooks")))
    setHooks(findRaces());
  using Run = const char *(*)(const unsigned *, const unsigned *, unsigned, void **);
  runtime::cuda::fakeGpu().reset();
  for (const std::string &name : names) {
    auto run = reinterpret_cast<Run>(dlsym(library, ("run_" + name).c_str()));
    if (!run)
      return "the image has no function for " + name;
    runtime::cuda::fakeGpu().kernels[name] = [run, name, failed](const runtime::cuda::FakeLaunch &l,
                                                                 void **p) {
      if (const char *message = run(l.grid, l.block, l.sharedBytes, p); *message)
        failed(name, message);
    };
  }
  return "";
}

} // namespace lathe::test
