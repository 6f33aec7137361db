//===- WeightStore.h - bytes of constants -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The weight archive: a sequence of 64-byte aligned pieces that stay where they
// are (a mapped model file, a mapped weights.bin, or memory that a fold made).
// `#lathe.weight` names a piece by offset; nothing copies it until packing.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_WEIGHTSTORE_H
#define LATHE_IR_WEIGHTSTORE_H

#include "lathe/ir/Lathe.h"
#include "lathe/support/RandomWeights.h"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace lathe {

/// Thread-safe. The key of the one archive that a compilation has is "model".
class WeightStore {
public:
  static constexpr const char *kArchive = "model";
  /// The key of weights that are in no archive: instead of a digest they have the text of the
  /// spread that their elements are made from when somebody asks for them.
  static constexpr const char *kRandom = "random";
  /// What the keys of parameters begin with; the name follows.
  static constexpr const char *kParameter = "parameter:";

  static WeightAttr random(TensorType type, const RandomSpread &spread);
  /// The spread of a random weight; none for others.
  static std::optional<RandomSpread> spreadOf(WeightAttr weight);

  /// A parameter: an input that changes seldom, or what the entry `prepare` makes of such. It is a constant to
  /// all passes, but nobody can ask for its bytes, which are there only when an engine runs.
  static WeightAttr parameter(TensorType type, llvm::StringRef name);
  /// The name of a parameter; none for other constants.
  static std::optional<llvm::StringRef> parameterOf(mlir::Attribute constant);

  /// Adds bytes kept alive by `owner`; equal bytes (by hash) give the same
  /// piece. Returns the attribute that names them.
  WeightAttr add(TensorType type, std::span<const std::byte> bytes,
                 std::shared_ptr<const void> owner);
  /// Copies and adds.
  WeightAttr addCopy(TensorType type, std::span<const std::byte> bytes);
  /// The bytes of an attribute; an error when the archive holds no such piece.
  Result<std::span<const std::byte>> get(WeightAttr weight) const;
  /// For text that names pieces of an opened archive: checks that the bytes are there
  /// and have the attribute's hash, and makes `add` find them. Invalid otherwise.
  Status adopt(WeightAttr weight);

  /// Total size of the archive file.
  uint64_t size() const;
  /// Writes the archive; `open` maps one whose pieces the IR text names.
  Status write(const std::string &path) const;
  Status open(const std::string &path);

private:
  struct Piece {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };
  mutable std::mutex mutex;
  mutable std::map<std::string, std::vector<std::byte>> made; ///< random weights, by text and type
  std::map<uint64_t, Piece> pieces; ///< by offset
  std::map<std::string, uint64_t> byHash;
  std::span<const std::byte> file;  ///< of an opened archive
  std::shared_ptr<const void> fileOwner;
  uint64_t end = 0;
};

/// Elements of a constant attribute (inline or weight) as packed bytes in
/// ONNX's memory order; splats are expanded. An error for missing weights and parameters.
Result<std::vector<std::byte>> constantBytes(mlir::Attribute value, WeightStore &store);
/// The bytes of joined constants, with those of each.
Result<std::vector<std::byte>> joinedBytes(JoinedAttr joined,
                                           llvm::function_ref<Result<std::vector<std::byte>>(mlir::Attribute)> bytesOf);
/// A constant attribute of these bytes: inline up to 256 bytes, else a weight.
mlir::TypedAttr constantAttr(TensorType type, std::span<const std::byte> bytes, WeightStore &store);
/// Integer elements of a small constant, when the value is one.
std::optional<std::vector<int64_t>> constantInts(mlir::Value value);

} // namespace lathe

#endif // LATHE_IR_WEIGHTSTORE_H
