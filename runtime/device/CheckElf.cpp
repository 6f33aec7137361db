//===- CheckElf.cpp - what a kernel image may hold --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loader finds everything by address: it maps the PT_LOAD segments, and reads the dynamic
// section, the relocations and the symbols where they then lie. So that is how they are found here,
// too; offsets into the file, which the loader does not look at, must say the same. The tables must
// not change between this check and their use: relocations may write neither into them nor into the
// dynamic section.
//
// ELF and its dynamic section: the System V ABI, chapters 4 and 5, and its supplements for x86-64 and
// AArch64; DT_GNU_HASH as the GNU linkers write it.
//
//===----------------------------------------------------------------------===//

#include "CheckElf.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

namespace lathe::runtime {
namespace {

#if defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
constexpr uint32_t kRelative = R_AARCH64_RELATIVE;
constexpr uint32_t kOfSymbols[] = {R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT};
#else
constexpr int kMachine = EM_X86_64;
constexpr uint32_t kRelative = R_X86_64_RELATIVE;
constexpr uint32_t kOfSymbols[] = {R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
#endif
#ifndef DT_RELR
#define DT_RELRSZ 35
#define DT_RELR 36
#define DT_RELRENT 37
#endif

/// Entries of the dynamic section that only describe tables. All others (needed libraries, filters,
/// auditors, functions that run on loading) are refused.
constexpr int64_t kHarmlessTags[] = {
    DT_HASH, DT_GNU_HASH, DT_STRTAB, DT_STRSZ, DT_SYMTAB,   DT_SYMENT, DT_RELA, DT_RELASZ, DT_RELAENT,
    DT_RELACOUNT, DT_JMPREL, DT_PLTRELSZ, DT_PLTREL, DT_PLTGOT, DT_RELR, DT_RELRSZ, DT_RELRENT,
    DT_SONAME, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1};

/// No image of kernels is larger, and sums of two addresses below do not overflow.
constexpr uint64_t kMaxAddress = uint64_t(1) << 40;

class Checker {
public:
  explicit Checker(std::string_view bytes) : bytes(bytes) {}

  Status check() {
    LATHE_RETURN_IF_ERROR(readHeaders());
    LATHE_RETURN_IF_ERROR(checkSegments());
    LATHE_RETURN_IF_ERROR(readDynamic());
    LATHE_RETURN_IF_ERROR(checkSymbols());
    LATHE_RETURN_IF_ERROR(checkRelocations(DT_RELA, DT_RELASZ));
    LATHE_RETURN_IF_ERROR(checkRelocations(DT_JMPREL, DT_PLTRELSZ));
    return checkRelativeWords();
  }

private:
  static Status bad(const std::string &why) { return invalidError("kernel image: " + why); }

  template <typename T> T get(uint64_t offset) const {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }

  Status readHeaders() {
    if (bytes.size() < sizeof(Elf64_Ehdr))
      return bad("too short");
    auto header = get<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_type != ET_DYN)
      return bad("not an ELF shared object");
    if (header.e_machine != kMachine)
      return unsupportedError("kernel image: made for another kind of CPU");
    if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > bytes.size() ||
        header.e_phnum * sizeof(Elf64_Phdr) > bytes.size() - header.e_phoff)
      return bad("program headers outside the file");
    for (unsigned i = 0; i < header.e_phnum; ++i)
      segments.push_back(get<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr)));
    return okStatus();
  }

  Status checkSegments() {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    uint64_t end = 0; // of the pages that are taken
    for (const Elf64_Phdr &p : segments) {
      if (p.p_offset > bytes.size() || p.p_filesz > bytes.size() - p.p_offset)
        return bad("a segment lies outside the file");
      if (p.p_vaddr > kMaxAddress || p.p_memsz > kMaxAddress || p.p_filesz > p.p_memsz)
        return bad("a segment lies outside the image");
      if (p.p_type != PT_LOAD)
        continue;
      if ((p.p_flags & PF_W) && (p.p_flags & PF_X))
        return bad("a segment is both code and data");
      // Pages are what is mapped: a later segment on the same page would hide an earlier one.
      if (p.p_vaddr / page * page < end || (p.p_vaddr - p.p_offset) % page != 0)
        return bad("segments lie over each other");
      end = (p.p_vaddr + p.p_memsz + page - 1) / page * page;
      loads.push_back(p);
    }
    for (const Elf64_Phdr &p : segments)
      switch (p.p_type) {
      case PT_LOAD:
      case PT_NULL:
        break;
      case PT_GNU_STACK:
        if (p.p_flags & PF_X)
          return bad("it wants a stack that can be executed");
        break;
      case PT_GNU_RELRO: {
        const Elf64_Phdr *load = loadAt(p.p_vaddr, p.p_memsz, /*inFile=*/false);
        if (!load || !(load->p_flags & PF_W))
          return bad("a segment lies outside the image");
        break;
      }
      case PT_DYNAMIC:
        if (dynamic.p_type == PT_DYNAMIC)
          return bad("two dynamic sections");
        dynamic = p;
        [[fallthrough]];
      case PT_PHDR:
      case PT_NOTE:
      case PT_GNU_EH_FRAME:
      case PT_GNU_PROPERTY: {
        const Elf64_Phdr *load = loadAt(p.p_vaddr, p.p_filesz, /*inFile=*/true);
        if (!load || p.p_offset - load->p_offset != p.p_vaddr - load->p_vaddr ||
            p.p_filesz != p.p_memsz)
          return bad("a segment is not mapped where it lies in the file");
        break;
      }
      default:
        return bad("it has an interpreter, thread-local data or another segment of its own kind");
      }
    if (dynamic.p_type != PT_DYNAMIC)
      return bad("no dynamic section");
    return okStatus();
  }

  /// The segment that holds these addresses; `inFile`: with bytes from the file.
  const Elf64_Phdr *loadAt(uint64_t address, uint64_t size, bool inFile) const {
    for (const Elf64_Phdr &p : loads) {
      uint64_t length = inFile ? p.p_filesz : p.p_memsz;
      if (address >= p.p_vaddr && size <= length && address - p.p_vaddr <= length - size)
        return &p;
    }
    return nullptr;
  }

  /// Offset in the file of a table that nothing writes to.
  Result<uint64_t> table(uint64_t address, uint64_t size) const {
    const Elf64_Phdr *load = loadAt(address, size, /*inFile=*/true);
    if (!load || (load->p_flags & PF_W))
      return bad("a table lies outside the image or where it can be written");
    return load->p_offset + (address - load->p_vaddr);
  }

  Status readDynamic() {
    for (uint64_t at = 0;; at += sizeof(Elf64_Dyn)) {
      if (at + sizeof(Elf64_Dyn) > dynamic.p_filesz)
        return bad("the dynamic section has no end");
      auto d = get<Elf64_Dyn>(dynamic.p_offset + at);
      if (d.d_tag == DT_NULL)
        return checkTags();
      if (std::find(std::begin(kHarmlessTags), std::end(kHarmlessTags), d.d_tag) ==
          std::end(kHarmlessTags))
        return bad("it needs libraries or runs code on loading (dynamic entry " +
                   std::to_string(d.d_tag) + ")");
      if (!tags.emplace(d.d_tag, d.d_un.d_val).second)
        return bad("a dynamic entry is there twice");
    }
  }

  Status checkTags() const {
    if (value(DT_FLAGS) & (DF_TEXTREL | DF_STATIC_TLS) || !tags.count(DT_SYMTAB) ||
        !tags.count(DT_STRTAB) || (tags.count(DT_PLTREL) && value(DT_PLTREL) != DT_RELA))
      return bad("the dynamic section is not that of kernels");
    for (auto [tag, size] : {std::pair(DT_SYMENT, sizeof(Elf64_Sym)),
                             std::pair(DT_RELAENT, sizeof(Elf64_Rela)),
                             std::pair(DT_RELRENT, sizeof(Elf64_Relr))})
      if (tags.count(tag) && value(tag) != size)
        return bad("a table has entries of another size");
    if (value(DT_RELACOUNT) > value(DT_RELASZ) / sizeof(Elf64_Rela))
      return bad("a table is shorter than it says");
    return okStatus();
  }

  uint64_t value(int64_t tag) const {
    auto it = tags.find(tag);
    return it == tags.end() ? 0 : it->second;
  }

  /// Symbols that the loader may look up: those of the hash tables.
  Result<uint64_t> countSymbols() const {
    uint64_t count = 0;
    if (tags.count(DT_HASH)) {
      Result<uint64_t> at = table(value(DT_HASH), 8);
      if (!at)
        return at;
      count = get<uint32_t>(*at + 4);
    }
    if (!tags.count(DT_GNU_HASH))
      return count;
    uint64_t address = value(DT_GNU_HASH);
    Result<uint64_t> at = table(address, 16);
    if (!at)
      return at;
    uint64_t buckets = get<uint32_t>(*at), first = get<uint32_t>(*at + 4),
             bloom = get<uint32_t>(*at + 8), last = 0;
    Result<uint64_t> list = table(address + 16 + bloom * 8, buckets * 4);
    if (!list)
      return list;
    for (uint64_t i = 0; i < buckets; ++i)
      last = std::max<uint64_t>(last, get<uint32_t>(*list + i * 4));
    if (buckets == 0 || (last != 0 && last < first))
      return bad("the hash table is malformed");
    // Every chain ends at or before the end of the one that begins last.
    for (uint64_t chains = address + 16 + bloom * 8 + buckets * 4; last != 0; ++last) {
      Result<uint64_t> link = table(chains + (last - first) * 4, 4);
      if (!link)
        return link;
      if (get<uint32_t>(*link) & 1)
        break;
    }
    return std::max({count, first, last + 1});
  }

  /// Each is defined here, and finding it runs no code.
  Status checkSymbols() {
    Result<uint64_t> count = countSymbols();
    if (!count)
      return count.status();
    symbolCount = *count;
    Result<uint64_t> symbols = table(value(DT_SYMTAB), symbolCount * sizeof(Elf64_Sym));
    if (!symbols)
      return symbols.status();
    uint64_t textBytes = value(DT_STRSZ);
    Result<uint64_t> text = table(value(DT_STRTAB), textBytes);
    if (!text)
      return text.status();
    if (textBytes == 0 || bytes[*text + textBytes - 1] != 0)
      return bad("the names of symbols have no end");
    for (uint64_t i = 1; i < symbolCount; ++i) {
      auto s = get<Elf64_Sym>(*symbols + i * sizeof(Elf64_Sym));
      if (ELF64_ST_TYPE(s.st_info) == STT_GNU_IFUNC)
        return bad("it has a function that chooses its code when it is looked up (IFUNC)");
      if (ELF64_ST_TYPE(s.st_info) == STT_TLS || s.st_shndx == SHN_UNDEF ||
          s.st_name >= textBytes || !loadAt(s.st_value, 0, /*inFile=*/false))
        return bad("it has a symbol that it does not define");
    }
    return okStatus();
  }

  /// A word that relocations may write.
  Status checkTarget(uint64_t address) const {
    const Elf64_Phdr *load = loadAt(address, 8, /*inFile=*/false);
    bool inDynamic =
        address + 8 > dynamic.p_vaddr && address < dynamic.p_vaddr + dynamic.p_memsz;
    if (!load || !(load->p_flags & PF_W) || inDynamic)
      return bad("a relocation writes outside the image's data");
    return okStatus();
  }

  Status checkRelocations(int64_t tableTag, int64_t sizeTag) const {
    uint64_t size = value(sizeTag);
    if (!tags.count(tableTag) || size == 0)
      return okStatus();
    Result<uint64_t> at = table(value(tableTag), size);
    if (!at)
      return at.status();
    for (uint64_t i = 0; i < size / sizeof(Elf64_Rela); ++i) {
      auto r = get<Elf64_Rela>(*at + i * sizeof(Elf64_Rela));
      uint32_t type = ELF64_R_TYPE(r.r_info);
      bool ofSymbol =
          std::find(std::begin(kOfSymbols), std::end(kOfSymbols), type) != std::end(kOfSymbols);
      if (type != kRelative && !ofSymbol)
        return bad("relocation of type " + std::to_string(type) +
                   ", which may run code on loading (IRELATIVE, say)");
      if (ofSymbol && (ELF64_R_SYM(r.r_info) == 0 || ELF64_R_SYM(r.r_info) >= symbolCount))
        return bad("a relocation names no symbol");
      if (r.r_offset > kMaxAddress)
        return bad("a relocation writes outside the image's data");
      LATHE_RETURN_IF_ERROR(checkTarget(r.r_offset));
    }
    return okStatus();
  }

  /// DT_RELR: an address, then bit maps of the 63 words behind the last one.
  Status checkRelativeWords() const {
    uint64_t size = value(DT_RELRSZ), next = 0;
    if (!tags.count(DT_RELR) || size == 0)
      return okStatus();
    Result<uint64_t> at = table(value(DT_RELR), size);
    if (!at)
      return at.status();
    for (uint64_t i = 0; i < size / sizeof(Elf64_Relr); ++i) {
      auto word = get<Elf64_Relr>(*at + i * sizeof(Elf64_Relr));
      bool isMap = word & 1;
      if (!isMap)
        next = word;
      if (next > kMaxAddress)
        return bad("a relocation writes outside the image's data");
      if (!isMap)
        LATHE_RETURN_IF_ERROR(checkTarget(next));
      for (int bit = 0; isMap && bit < 63; ++bit)
        if (word >> (bit + 1) & 1)
          LATHE_RETURN_IF_ERROR(checkTarget(next + static_cast<uint64_t>(bit) * 8));
      next += isMap ? 63 * 8 : 8;
    }
    return okStatus();
  }

  std::string_view bytes;
  std::vector<Elf64_Phdr> segments, loads;
  Elf64_Phdr dynamic = {};
  std::map<int64_t, uint64_t> tags;
  uint64_t symbolCount = 0;
};

} // namespace

Status checkElf(std::string_view bytes) { return Checker(bytes).check(); }

} // namespace lathe::runtime
