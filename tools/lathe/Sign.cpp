//===- Sign.cpp - lathe keygen, sign, verify ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verbs.h"

#include "lathe/engine/EngineFile.h"
#include "lathe/support/Files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace lathe::cli {
namespace {

constexpr const char *kTrust = "An engine is a program: who loads it runs it. ";

/// A new file that nobody else may read.
Status writeSecret(const std::string &path, const std::string &text) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return errno == EEXIST ? usageError("is there already; a key is never written over", path)
                           : runtimeError(std::strerror(errno), path);
  bool worked = ::write(fd, text.data(), text.size()) == ssize_t(text.size()) && fsync(fd) == 0;
  int error = errno;
  ::close(fd);
  if (worked)
    return okStatus();
  ::unlink(path.c_str());
  return runtimeError(std::strerror(error), path);
}

Result<std::string> onlyEngine(const std::vector<std::string> &positional, const char *verb) {
  if (positional.size() == 1)
    return positional.front();
  return usageError(std::string("wants one engine; `lathe ") + verb + " --help` has examples",
                    std::string("lathe ") + verb);
}

} // namespace

Status keygenVerb(const std::vector<std::string> &arguments) {
  Parser parser("keygen", "FILE [OPTIONS]",
                "Makes a pair of Ed25519 keys: FILE.key signs and is nobody else's to read, FILE.pub "
                "verifies. Public keys in one file, a line each, are a key ring.");
  std::string name;
  parser.add("name", "TEXT", "What stands behind the keys, for people (default: FILE)", name);
  parser.example("lathe keygen release --name 'release builds of ACME'");
  parser.example("cat release.pub nightly.pub > ring");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  if (positional->size() != 1)
    return usageError("wants one name for the files; `lathe keygen --help` has examples",
                      "lathe keygen");
  const std::string &file = positional->front();
  if (std::error_code error; std::filesystem::exists(file + ".pub", error))
    return usageError("is there already; a key is never written over", file + ".pub");
  Result<engine::KeyPair> pair = engine::KeyPair::make(
      name.empty() ? std::filesystem::path(file).filename().string() : name);
  if (!pair)
    return pair.status();
  LATHE_RETURN_IF_ERROR(writeSecret(file + ".key", pair->secretText()));
  LATHE_RETURN_IF_ERROR(writeFileAtomically(file + ".pub", pair->publicText()));
  std::printf("%s.key %s.pub: %s\n", file.c_str(), file.c_str(), pair->open.hex().c_str());
  return okStatus();
}

Status signVerb(const std::vector<std::string> &arguments) {
  Parser parser("sign", "ENGINE --key=FILE [OPTIONS]",
                std::string(kTrust) +
                    "Signs an engine with a key of `lathe keygen`; a signature that it has is "
                    "replaced. The engine itself stays the same, byte for byte.");
  std::string key, output;
  parser.add("key", "FILE", "The secret key", key);
  parser.add("o", "FILE", "The signed engine (default: ENGINE itself)", output);
  parser.example("lathe sign model.lathe --key release.key");
  parser.example("lathe run model.lathe --trust release.pub");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  Result<std::string> path = onlyEngine(*positional, "sign");
  if (!path)
    return path.status();
  if (key.empty())
    return usageError("wants a secret key: --key=FILE", "lathe sign");
  Result<engine::KeyPair> pair = engine::KeyPair::read(key);
  if (!pair)
    return pair.status();
  if (output.empty())
    output = *path;
  LATHE_RETURN_IF_ERROR(engine::signEngine(*path, *pair, output));
  std::printf("%s: signed by %s %s\n", output.c_str(), pair->open.hex().c_str(),
              pair->open.name.c_str());
  return okStatus();
}

Status verifyVerb(const std::vector<std::string> &arguments) {
  Parser parser("verify", "ENGINE [--trust=KEYRING]",
                std::string(kTrust) +
                    "Checks every digest of an engine and, with a key ring, that one of its keys "
                    "signed it; without, no more than that the file is whole is known.");
  std::string trust;
  parser.add("trust", "KEYRING", "A file of public keys", trust);
  parser.example("lathe verify model.lathe --trust release.pub");
  bool done = false;
  Result<std::vector<std::string>> positional = parseOrHelp(parser, arguments, done);
  if (!positional || done)
    return positional.status();
  Result<std::string> path = onlyEngine(*positional, "verify");
  if (!path)
    return path.status();
  engine::KeyRing ring;
  engine::EngineReader::Options options;
  if (!trust.empty()) {
    Result<engine::KeyRing> found = engine::KeyRing::read(trust);
    if (!found)
      return found.status();
    ring = std::move(*found);
    options.trusted = &ring;
  }
  auto file = engine::EngineReader::open(*path, options);
  if (!file)
    return file.status();
  if (Result<std::vector<engine::Plan>> plans = (*file)->plans(); !plans)
    return plans.status();
  const engine::Signature *signature = (*file)->signature();
  if (!trust.empty())
    std::printf("%s: whole, signed by %s %s\n", path->c_str(), signature->key.hex().c_str(),
                ring.find(signature->key)->name.c_str());
  else if (signature)
    std::printf("%s: whole; says that it is signed by %s, which only --trust checks\n",
                path->c_str(), signature->key.hex().c_str());
  else
    std::printf("%s: whole, not signed\n", path->c_str());
  return okStatus();
}

} // namespace lathe::cli
