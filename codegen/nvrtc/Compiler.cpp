//===- Compiler.cpp - NVRTC behind dlopen ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The C functions of NVRTC are declared here by hand: its headers are not
// needed, and a missing library is an error value and not a link error.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/Nvrtc.h"

#include "Cache.h"
#include "lathe/support/CodeFile.h"
#include "lathe/support/Parallel.h"
#include "lathe/support/Sha256.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <thread>

namespace lathe::nvrtc {
namespace fs = std::filesystem;

struct Compiler::Library {
  using Program = void *;
  void *handle = nullptr;
  std::string path, version;
  std::vector<int> architectures;

  int (*versionOf)(int *, int *) = nullptr;
  int (*numArchs)(int *) = nullptr;
  int (*archs)(int *) = nullptr;
  int (*create)(Program *, const char *, const char *, int, const char *const *,
                const char *const *) = nullptr;
  int (*compile)(Program, int, const char *const *) = nullptr;
  int (*logSize)(Program, size_t *) = nullptr;
  int (*log)(Program, char *) = nullptr;
  int (*cubinSize)(Program, size_t *) = nullptr;
  int (*cubin)(Program, char *) = nullptr;
  int (*destroy)(Program *) = nullptr;
  const char *(*errorString)(int) = nullptr;

  // NVRTC keeps threads and global tables: it is never unloaded.
};

namespace {

constexpr const char *kLibraryNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
/// Bumped when the same source and options would give another result.
constexpr const char *kCacheFormat = "lathe-nvrtc-1";

/// Files of the Python package in a folder of packages.
void addFromPackages(const fs::path &packages, std::vector<std::string> &into) {
  std::error_code ec;
  for (const char *folder : {"cu13", "cuda_nvrtc"})
    for (const char *name : kLibraryNames)
      if (fs::path file = packages / "nvidia" / folder / "lib" / name; fs::exists(file, ec))
        into.push_back(file);
}

/// Files of the Python package below a virtual environment.
void addFromEnvironment(const fs::path &venv, std::vector<std::string> &into) {
  std::error_code ec;
  for (const fs::directory_entry &python : fs::directory_iterator(venv / "lib", ec))
    addFromPackages(python.path() / "site-packages", into);
}

std::vector<std::string> candidates() {
  std::vector<std::string> files;
  if (const char *file = std::getenv("LATHE_NVRTC"); file && *file)
    return {file};
  // From the program, or the library that another program (Python) opened, upwards.
  fs::path self = fileOfCode(reinterpret_cast<const void *>(&addFromPackages));
  for (fs::path at = self.parent_path(); !at.empty(); at = at.parent_path()) {
    addFromPackages(at, files); // beside the package `lathe` of a wheel
    addFromEnvironment(at / ".venv", files);
    if (at == at.root_path())
      break;
  }
  if (const char *venv = std::getenv("VIRTUAL_ENV"); venv && *venv)
    addFromEnvironment(venv, files);
  files.insert(files.end(), std::begin(kLibraryNames), std::end(kLibraryNames));
  files.push_back("/usr/local/cuda/lib64/libnvrtc.so");
  return files;
}

template <typename F> bool resolve(void *handle, const char *name, F &into) {
  into = reinterpret_cast<F>(dlsym(handle, name));
  return into != nullptr;
}

bool resolveAll(Compiler::Library &l) {
  return resolve(l.handle, "nvrtcVersion", l.versionOf) &&
         resolve(l.handle, "nvrtcGetNumSupportedArchs", l.numArchs) &&
         resolve(l.handle, "nvrtcGetSupportedArchs", l.archs) &&
         resolve(l.handle, "nvrtcCreateProgram", l.create) &&
         resolve(l.handle, "nvrtcCompileProgram", l.compile) &&
         resolve(l.handle, "nvrtcGetProgramLogSize", l.logSize) &&
         resolve(l.handle, "nvrtcGetProgramLog", l.log) &&
         resolve(l.handle, "nvrtcGetCUBINSize", l.cubinSize) &&
         resolve(l.handle, "nvrtcGetCUBIN", l.cubin) &&
         resolve(l.handle, "nvrtcDestroyProgram", l.destroy) &&
         resolve(l.handle, "nvrtcGetErrorString", l.errorString);
}

/// The fixed part of the command line. One ptxas option each: a list fails.
std::vector<std::string> baseOptions(const std::string &target) {
  return {"-arch=" + target,   "-std=c++17",         "-default-device",
          "--minimal",         "--ptxas-options=-v", "--ptxas-options=--warn-on-spills",
          "-diag-suppress=177"};
}

constexpr int kCompilationFailed = 6; // NVRTC_ERROR_COMPILATION

/// "name(12): error: ..." -> "name:12", the first error's; the name alone when no line is given.
std::string placeOf(const std::string &name, std::string_view log) {
  size_t error = log.find("): error");
  size_t at = log.substr(0, error).rfind(name + "(");
  if (at == std::string::npos)
    return name;
  std::string_view line = log.substr(at + name.size() + 1);
  return name + ":" + std::string(line.substr(0, line.find(')')));
}

/// The log with `file` in the place of `name` wherever that stands for a file.
std::string renamed(std::string_view log, const std::string &name, const std::string &file) {
  std::string out;
  for (size_t at; (at = log.find(name + "(")) != std::string_view::npos;
       log.remove_prefix(at + name.size()))
    out.append(log.substr(0, at)).append(file);
  return out.append(log);
}

/// What NVRTC refused: a defect of the generator, or of the text that a person wrote.
Status refusal(const CompileJob &job, const char *error, const std::string &log) {
  if (job.writtenIn.empty())
    return internalError(std::string("NVRTC: ") + error + "\n" + log, placeOf(job.name, log));
  std::string text = renamed(log, job.name, job.writtenIn);
  return usageError("does not compile for " + job.target + "\n" + text,
                    placeOf(job.writtenIn, text));
}

} // namespace

Result<std::shared_ptr<Compiler>> Compiler::open() {
  std::string tried;
  for (const std::string &file : candidates()) {
    auto l = std::make_unique<Library>();
    l->handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!l->handle || !resolveAll(*l)) {
      const char *why = l->handle ? "not NVRTC" : dlerror();
      tried += "\n  " + file + (why ? std::string(" (") + why + ")" : "");
      continue;
    }
    l->path = file;
    int major = 0, minor = 0, count = 0;
    l->versionOf(&major, &minor);
    l->version = std::to_string(major) + "." + std::to_string(minor);
    l->numArchs(&count);
    l->architectures.resize(count);
    l->archs(l->architectures.data());
    return std::shared_ptr<Compiler>(new Compiler(std::move(l)));
  }
  return unsupportedError("NVRTC was not found; install the Python package nvidia-cuda-nvrtc beside "
                          "lathe, or set LATHE_NVRTC to libnvrtc.so.13. Tried:" +
                              tried,
                          "CUDA targets");
}

Compiler::Compiler(std::unique_ptr<Library> l) : library(std::move(l)) {}
Compiler::~Compiler() = default;
const std::string &Compiler::version() const { return library->version; }
const std::string &Compiler::path() const { return library->path; }

bool Compiler::supports(std::string_view target) const {
  if (target.substr(0, 3) != "sm_")
    return false;
  int version = std::atoi(std::string(target.substr(3)).c_str());
  const std::vector<int> &known = library->architectures;
  return std::find(known.begin(), known.end(), version) != known.end();
}

namespace {

/// Fails on findings that the job does not tolerate.
Status judge(const CompileJob &job, const Cubin &cubin) {
  if (job.tolerateFindings || cubin.report.findings.empty())
    return okStatus();
  const Finding &f = cubin.report.findings.front();
  return unsupportedError(std::string(toString(f.kind)) + ": " + f.text, job.name);
}

} // namespace

Result<Cubin> Compiler::compile(const CompileJob &job) const {
  if (!supports(job.target))
    return unsupportedError("NVRTC " + version() + " does not compile for " + job.target, job.name);
  std::vector<std::string> options = baseOptions(job.target);
  options.insert(options.end(), job.options.begin(), job.options.end());

  Sha256 sha;
  sha.field(kCacheFormat);
  sha.field(version());
  for (const std::string &o : options)
    sha.field(o);
  sha.field(job.name);
  sha.field(job.source);
  std::string key = sha.hex();

  Cubin out;
  if (std::optional<CacheEntry> hit = readCache(key)) {
    out.image = std::move(hit->image);
    out.log = std::move(hit->log);
    out.report = parseLog(out.log);
    out.fromCache = true;
    LATHE_RETURN_IF_ERROR(judge(job, out));
    return out;
  }

  auto start = std::chrono::steady_clock::now();
  const Library &l = *library;
  Library::Program program = nullptr;
  if (int rc = l.create(&program, job.source.c_str(), job.name.c_str(), 0, nullptr, nullptr))
    return internalError(std::string("NVRTC: ") + l.errorString(rc), job.name);
  std::vector<const char *> argv;
  for (const std::string &o : options)
    argv.push_back(o.c_str());
  int rc = l.compile(program, static_cast<int>(argv.size()), argv.data());
  size_t size = 0;
  if (l.logSize(program, &size) == 0 && size > 1) {
    out.log.resize(size);
    l.log(program, out.log.data());
    out.log.resize(size - 1);
  }
  if (rc == 0 && l.cubinSize(program, &size) == 0) {
    out.image.resize(size);
    rc = l.cubin(program, out.image.data());
  }
  l.destroy(&program);
  if (rc == kCompilationFailed)
    return refusal(job, l.errorString(rc), out.log);
  if (rc != 0)
    return internalError(std::string("NVRTC: ") + l.errorString(rc) + "\n" + out.log, job.name);
  if (out.image.empty())
    return internalError("NVRTC made no cubin for " + job.target, job.name);
  out.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  writeCache(key, {out.image, out.log});
  out.report = parseLog(out.log);
  LATHE_RETURN_IF_ERROR(judge(job, out));
  return out;
}

std::vector<Result<Cubin>> Compiler::compileAll(const std::vector<CompileJob> &jobs,
                                                unsigned threads) const {
  std::vector<Result<Cubin>> results(jobs.size(), Result<Cubin>(internalError("not compiled")));
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++)
      results[i] = compile(jobs[i]);
  };
  if (threads == 0)
    threads = usableCores();
  threads = static_cast<unsigned>(std::min<size_t>(threads, jobs.size()));
  std::vector<std::thread> pool;
  for (unsigned t = 1; t < threads; ++t)
    pool.emplace_back(work);
  work();
  for (std::thread &t : pool)
    t.join();
  return results;
}

} // namespace lathe::nvrtc
