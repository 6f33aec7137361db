//===- EngineFile.h - the file that holds compiled models -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layout, little-endian:
//
//   128 bytes  header: magic, format version, sizes, build id, digest
//   256 bytes  per section: type, offset, length, SHA-256, name, entry, target
//   sections   each from a multiple of 4096, zero bytes between
//
// The header's digest covers header and table, a section's digest its bytes, and the
// bytes between sections must be zero: no bit of the file can flip unnoticed. The
// reader checks all of it before anything is parsed. A signed engine has 128 bytes more,
// behind all of this (Signature.h).
//
// Sections are sorted, apart from plans, which keep the order in which they were added:
// equal contents make equal files.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ENGINE_ENGINEFILE_H
#define LATHE_ENGINE_ENGINEFILE_H

#include "lathe/engine/Plan.h"
#include "lathe/engine/Signature.h"
#include "lathe/support/ByteSink.h"
#include "lathe/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe::engine {

/// Version of the layout, of plan.fbs and of KernelAbi.h together: an engine of
/// another version is refused.
inline constexpr uint32_t kFormatVersion = 3;
inline constexpr uint64_t kSectionAlignment = 4096;
/// Names, entries and targets of sections are at most this long.
inline constexpr size_t kMaxSectionName = 63;

enum class SectionType : uint32_t {
  Metadata = 1, ///< JSON text: options, versions, remarks of the build; name "options"
  Plan = 2,     ///< serialize()d Plan; entry and target set
  Kernels = 3,  ///< per target: an ELF shared object (CPU), or an archive of cubins by name
  Weights = 4,  ///< raw bytes that plans point into; by name
  Debug = 5,    ///< archive: kernel sources by kernel name, ...; target set
  Llm = 6,      ///< packLlm() of a paged decoder (Llm.h); name "llm"
};

/// Named byte strings in one section: cubins, sources.
using Archive = std::vector<std::pair<std::string, std::string_view>>;
/// Sorted by name; names must be unique.
std::string packArchive(const std::map<std::string, std::string> &items);
/// Views into `bytes`; Invalid for anything that packArchive does not write.
Result<Archive> parseArchive(std::string_view bytes, const std::string &where = {});

/// A weight whose bytes are made when the file is written.
struct WeightBytes {
  uint64_t bytes = 0;
  /// Bytes [at, at + out.size()); called from several threads at once, and not after write().
  std::function<void(uint64_t at, std::span<std::byte> out)> make;
};

/// Collects sections and writes the file.
class EngineWriter {
public:
  /// `buildId`: what made the engine, at most 31 characters.
  explicit EngineWriter(std::string buildId) : buildId(std::move(buildId)) {}

  Status addPlan(const Plan &plan);
  /// CPU: the bytes of the ELF image. CUDA: packArchive() of cubins.
  Status addKernels(std::string target, std::string bytes);
  /// Appends to the Weights section `section`; returns the offset, a multiple of 64. What has the
  /// same `key` is stored once.
  Result<uint64_t> addWeight(const std::string &section, const std::string &key,
                             WeightBytes weight);
  /// A copy of `bytes`; the key is their digest.
  Result<uint64_t> addWeight(const std::string &section, std::string_view bytes);
  /// A place of its own in kRandomSection for a weight that is made when the engine is loaded;
  /// equal parts share one. The offset is a multiple of 256.
  uint64_t addRandomWeight(DType type, const std::vector<RandomPart> &parts, uint64_t bytes);
  Status addDebug(std::string name, std::string target, std::string bytes);
  Status addMetadata(std::string name, std::string json);
  /// Bytes of packLlm().
  Status addLlm(std::string bytes);

  /// Writes the file on all cores, with a few blocks of it in memory at a time, and returns its size;
  /// the writer is empty afterwards. Fails as the sink does.
  Result<uint64_t> write(ByteSink &sink);
  Result<std::string> str();

private:
  struct Section {
    SectionType type;
    std::string name, entry, target, bytes; ///< bytes: of all but Weights
    size_t order = 0; ///< of plans: the first entry is the default
    std::map<uint64_t, WeightBytes> weights; ///< by offset
    uint64_t length = 0;                     ///< of Weights
  };
  struct Block;
  Status add(Section section);
  static std::vector<Block> cutBlocks(Section &section, uint64_t offset);
  static void fill(const Block &block, std::span<std::byte> out);

  std::string buildId;
  std::vector<Section> sections;
  std::map<std::string, std::map<std::string, uint64_t>> weightOffsets; ///< by section, key
  std::map<std::string, uint64_t> randomOffsets;                            ///< by parts
  uint64_t randomEnd = 0;
};

/// A checked engine file. Immutable; any number of threads may use it.
class EngineReader {
public:
  struct Section {
    SectionType type;
    std::string name, entry, target;
    std::string_view bytes; ///< valid as long as the reader
  };
  struct Options {
    /// Off: the digests of Weights sections are not checked, which saves reading them.
    bool checkWeights = true;
    /// Only an engine that a key of this ring has signed is opened, and nothing but its header and
    /// section table is looked at before; null: any. Weights are checked in any case then.
    const KeyRing *trusted = nullptr;
  };

  /// Maps the weights of a file and copies the rest. Errors: RuntimeFailure when it cannot be
  /// read, Invalid with the offset when it is damaged or not signed as it has to be, Unsupported for
  /// another version.
  static Result<std::shared_ptr<const EngineReader>> open(const std::string &path,
                                                          const Options &options);
  static Result<std::shared_ptr<const EngineReader>> open(const std::string &path) {
    return open(path, Options());
  }
  /// Copies `bytes`.
  static Result<std::shared_ptr<const EngineReader>> fromMemory(std::string_view bytes,
                                                                const Options &options);
  static Result<std::shared_ptr<const EngineReader>> fromMemory(std::string_view bytes) {
    return fromMemory(bytes, Options());
  }
  ~EngineReader();
  EngineReader(const EngineReader &) = delete;
  EngineReader &operator=(const EngineReader &) = delete;

  const std::vector<Section> &sections() const { return list; }
  const Section *find(SectionType type, std::string_view name, std::string_view entry = {},
                      std::string_view target = {}) const;
  const Section *kernels(std::string_view target) const;
  const std::string &buildId() const { return build; }
  uint64_t fileBytes() const { return totalBytes; }
  /// Without a signature.
  uint64_t engineBytes() const { return totalBytes - (signedBy ? kSignatureBytes : 0); }
  /// The header's digest, which covers everything.
  const std::array<uint8_t, 32> &digest() const { return headerDigest; }
  /// Who signed it, checked only where a key ring was given; null when nobody did.
  const Signature *signature() const { return signedBy ? &*signedBy : nullptr; }

  /// All plans, parsed and verified against the sections: weights and cubins that a plan
  /// names exist. In the order of the file.
  Result<std::vector<Plan>> plans() const;

private:
  EngineReader() = default;
  friend class EngineLoader;

  std::string where, build;
  uint64_t totalBytes = 0;
  std::array<uint8_t, 32> headerDigest = {};
  std::optional<Signature> signedBy;
  std::vector<Section> list;
  struct Mapping;
  std::vector<std::unique_ptr<Mapping>> mappings;
};

} // namespace lathe::engine

#endif // LATHE_ENGINE_ENGINEFILE_H
