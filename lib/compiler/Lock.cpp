//===- Lock.cpp - choices that were measured ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/compiler/Lock.h"

#include "lathe/codegen/Config.h"
#include "lathe/codegen/Target.h"
#include "lathe/support/Files.h"
#include "lathe/support/Sha256.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

namespace lathe {
namespace {

constexpr llvm::StringLiteral kHead = "lathe-lock 2";

} // namespace

std::string Lock::str() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << kHead << "\ntarget " << target << "\ndevice " << device << "\nmodel " << model << "\n";
  for (const LockedKernel &k : kernels)
    os << "kernel " << k.name << " " << k.config << " " << llvm::format("%.2f", k.microseconds)
       << " us, instead of " << k.otherwise << " " << llvm::format("%.2f", k.otherwiseMicroseconds)
       << " us\n";
  for (const auto &[kernel, microseconds] : times)
    os << "time " << kernel << " " << llvm::format("%.3f", microseconds) << " us\n";
  return text;
}

Result<Lock> Lock::parse(std::string_view text, const std::string &where) {
  Lock lock;
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(text).split(lines, '\n');
  for (auto [number, line] : llvm::enumerate(lines)) {
    auto wrong = [&](const std::string &why) {
      return invalidError(why, where + ":" + std::to_string(number + 1));
    };
    if (number == 0) {
      if (line.starts_with("lathe-lock ") && line != kHead)
        return wrong("has version " + line.drop_front(11).str() + ", this lathe reads version 2: names of configurations "
                     "have changed, tune again");
      if (line != kHead)
        return wrong("is no lockfile: it should begin with '" + kHead.str() + "'");
      continue;
    }
    if (line.empty())
      continue;
    auto [word, rest] = line.split(' ');
    if (word == "target") {
      lock.target = rest.str();
    } else if (word == "device") {
      lock.device = rest.str();
    } else if (word == "model") {
      lock.model = rest.str();
    } else if (word == "kernel") {
      LockedKernel k;
      auto [name, afterName] = rest.split(' ');
      auto [config, afterConfig] = afterName.split(' ');
      auto [time, afterTime] = afterConfig.split(" us, instead of ");
      auto [other, otherTime] = afterTime.split(' ');
      k.name = name.str();
      k.config = config.str();
      k.otherwise = other.str();
      otherTime.consume_back(" us");
      if (name.empty() || time.getAsDouble(k.microseconds) ||
          otherTime.getAsDouble(k.otherwiseMicroseconds))
        return wrong("wants 'kernel NAME CONFIGURATION TIME us, instead of CONFIGURATION TIME us'");
      if (Result<KernelConfig> parsed = KernelConfig::parse(k.config); !parsed)
        return wrong(parsed.status().message());
      lock.kernels.push_back(std::move(k));
    } else if (word == "time") {
      auto [kernel, time] = rest.rsplit(' ').second == "us" ? rest.rsplit(' ').first.split(' ')
                                                            : std::pair<llvm::StringRef, llvm::StringRef>();
      if (double microseconds = 0; kernel.empty() || time.getAsDouble(microseconds) || !(microseconds >= 0))
        return wrong("wants 'time KERNEL TIME us'");
      else
        lock.times[kernel.str()] = microseconds;
    } else {
      return wrong("has no '" + word.str() + "'");
    }
  }
  if (lock.target.empty() || lock.model.empty())
    return invalidError("lacks a target or a model", where);
  return lock;
}

Result<std::string> lockKey(const std::string &model, const CompileOptions &options) {
  Result<std::string> bytes = readFile(model);
  if (!bytes)
    return bytes.status();
  Sha256 hash;
  hash.field(*bytes);
  for (const auto *list :
       {&options.dims, &options.shapes, &options.entries, &options.donate, &options.allow}) {
    hash.field(std::to_string(list->size()));
    for (const std::string &text : *list)
      hash.field(text);
  }
  for (const std::string &name : options.parameters)
    hash.field("parameter " + name);
  if (options.paged)
    hash.field(options.batchInvariant ? "paged, batch-invariant" : "paged");
  if (!options.kvCodes.empty())
    hash.field("kv " + options.kvCodes);
  if (!options.kvWindow.empty())
    hash.field("kv-window " + options.kvWindow);
  for (const std::string &text : options.mesh)
    hash.field("mesh " + text);
  for (const std::string &text : options.shard)
    hash.field("shard " + text);
  if (options.rankMemory)
    hash.field("rank-memory " + std::to_string(options.rankMemory));
  return hash.hex();
}

Status applyLock(const std::string &model, CompileOptions &options) {
  if (options.lock.empty())
    return okStatus();
  std::string where = "--lock " + options.lock;
  Result<std::string> text = readFile(options.lock);
  if (!text)
    return text.status();
  Result<Lock> lock = Lock::parse(*text, options.lock);
  if (!lock)
    return lock.status();
  // The same description in other words is the same target: `native` on a machine like the one of the lockfile.
  Result<std::vector<Target>> targets = Target::parseList(llvm::join(options.targets, ","));
  if (!targets || targets->size() != 1 || targets->front().name != lock->target)
    return usageError("was measured for " + lock->target + ": compile for it alone (--target=" +
                          lock->target + "), or tune again",
                      where);
  Result<std::string> key = lockKey(model, options);
  if (!key)
    return key.status();
  if (*key != lock->model)
    return usageError("was measured for another model, or for other sizes or entries (model " +
                          lock->model + ", this is " + *key + "): tune again, or compile without it",
                      where);
  for (const LockedKernel &k : lock->kernels) {
    bool given = llvm::any_of(options.configs, [&](const std::string &pair) {
      return llvm::StringRef(pair).starts_with(k.name + "=");
    });
    if (!given)
      options.configs.push_back(k.name + "=" + k.config);
  }
  return okStatus();
}

} // namespace lathe
