//===- CheckElfTest.cpp - images that would run code on loading -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults are planted into images that load well: each must be refused before the loader sees it.
//
//===----------------------------------------------------------------------===//

#include "../../runtime/device/CheckElf.h"
#include "../../runtime/device/CpuImage.h"
#include "RuntimeFixture.h"

#include <cstring>
#include <elf.h>
#include <functional>

using namespace lathe;
using namespace lathe::runtime;

namespace {

std::string fileAt(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// An image whose parts can be changed.
class Image {
public:
  explicit Image(std::string content) : bytes(std::move(content)) {}

  Elf64_Ehdr &header() { return *at<Elf64_Ehdr>(0); }
  Elf64_Phdr &segment(uint32_t type, int skip = 0) {
    for (unsigned i = 0; i < header().e_phnum; ++i)
      if (auto *p = at<Elf64_Phdr>(header().e_phoff + i * sizeof(Elf64_Phdr)); p->p_type == type)
        if (skip-- == 0)
          return *p;
    ADD_FAILURE() << "no segment of type " << type;
    return *at<Elf64_Phdr>(header().e_phoff);
  }
  Elf64_Dyn &entry(int64_t tag) {
    for (auto *d = at<Elf64_Dyn>(segment(PT_DYNAMIC).p_offset);; ++d)
      if (d->d_tag == tag || d->d_tag == DT_NULL) {
        EXPECT_EQ(d->d_tag, tag);
        return *d;
      }
  }
  /// What lies at an address.
  template <typename T> T *mapped(uint64_t address) {
    for (unsigned i = 0; i < header().e_phnum; ++i)
      if (auto *p = at<Elf64_Phdr>(header().e_phoff + i * sizeof(Elf64_Phdr));
          p->p_type == PT_LOAD && address >= p->p_vaddr && address < p->p_vaddr + p->p_filesz)
        return at<T>(p->p_offset + (address - p->p_vaddr));
    ADD_FAILURE() << "nothing at " << address;
    return at<T>(0);
  }
  Elf64_Rela &relocation(size_t i) {
    return mapped<Elf64_Rela>(entry(DT_RELA).d_un.d_ptr)[i];
  }
  Elf64_Sym &symbol(size_t i) { return mapped<Elf64_Sym>(entry(DT_SYMTAB).d_un.d_ptr)[i]; }

  std::string bytes;

private:
  template <typename T> T *at(uint64_t offset) {
    return reinterpret_cast<T *>(bytes.data() + offset);
  }
};

#if defined(__aarch64__)
constexpr uint32_t kIrelative = R_AARCH64_IRELATIVE, kCopy = R_AARCH64_COPY;
#else
constexpr uint32_t kIrelative = R_X86_64_IRELATIVE, kCopy = R_X86_64_COPY;
#endif

TEST(CheckElf, TakesWhatLinkersMakeOfKernels) {
  for (const char *path : {LATHE_TEST_IMAGE, LATHE_TEST_RELOCATED}) {
    Status status = checkElf(fileAt(path));
    EXPECT_TRUE(status.ok()) << path << ": " << status.str();
    EXPECT_TRUE(CpuImage::load(fileAt(path)).ok()) << path;
  }
  auto image = CpuImage::load(fileAt(LATHE_TEST_RELOCATED));
  ASSERT_TRUE(image.ok()) << image.status().str();
  auto call = reinterpret_cast<int (*)(int, int)>(image->symbol("call"));
  EXPECT_EQ(call(0, 2), 3 + 2);
  EXPECT_EQ(call(1, 2), 3 + 4);
}

TEST(CheckElf, RefusesWhatRunsCodeOnLoading) {
  Status status = checkElf(fileAt(LATHE_TEST_IFUNC));
  EXPECT_EQ(status.code(), ErrorCode::Invalid);
  EXPECT_NE(status.message().find("IFUNC"), std::string::npos) << status.str();
}

struct Fault {
  const char *name, *said; ///< said: part of the message
  std::function<void(Image &)> plant;
};

const Fault kFaults[] = {
    // The loader reads the dynamic section by address: one that is elsewhere by offset would be a
    // decoy, and the true one could name libraries.
    {"decoy of the dynamic section", "not mapped where it lies",
     [](Image &i) {
       Elf64_Phdr old = i.segment(PT_DYNAMIC);
       std::string decoy = i.bytes.substr(old.p_offset, old.p_filesz);
       i.entry(DT_STRSZ).d_tag = DT_NEEDED;
       i.segment(PT_DYNAMIC).p_offset = i.bytes.size();
       i.bytes += decoy;
     }},
    {"dynamic section that is not mapped", "not mapped where it lies",
     [](Image &i) { i.segment(PT_DYNAMIC).p_vaddr = 1 << 30; }},
    {"dynamic section without an end", "has no end",
     [](Image &i) {
       Elf64_Phdr &p = i.segment(PT_DYNAMIC);
       p.p_filesz = p.p_memsz = 16;
     }},
    {"two dynamic sections", "two dynamic sections",
     [](Image &i) { i.segment(PT_GNU_RELRO) = i.segment(PT_DYNAMIC); }},
    {"IRELATIVE", "IRELATIVE",
     [](Image &i) { i.relocation(0).r_info = ELF64_R_INFO(0, kIrelative); }},
    {"relocation that copies from elsewhere", "relocation of type",
     [](Image &i) { i.relocation(0).r_info = ELF64_R_INFO(1, kCopy); }},
    {"relocation into another library", "writes outside",
     [](Image &i) { i.relocation(0).r_offset = uint64_t(-4096); }},
    {"relocation into the code", "writes outside",
     [](Image &i) { i.relocation(0).r_offset = i.symbol(1).st_value; }},
    {"relocation into the dynamic section", "writes outside",
     [](Image &i) { i.relocation(0).r_offset = i.segment(PT_DYNAMIC).p_vaddr + 8; }},
    {"relocation without a symbol", "names no symbol",
     [](Image &i) {
       i.relocation(0).r_info = ELF64_R_INFO(1 << 20, R_X86_64_64);
#if defined(__aarch64__)
       i.relocation(0).r_info = ELF64_R_INFO(1 << 20, R_AARCH64_ABS64);
#endif
     }},
    {"relocations outside the image", "a table lies outside",
     [](Image &i) { i.entry(DT_RELASZ).d_un.d_val = uint64_t(1) << 40; }},
    {"relocations where they can be written", "a table lies outside",
     [](Image &i) { i.entry(DT_RELA).d_un.d_ptr = i.segment(PT_DYNAMIC).p_vaddr; }},
    {"IFUNC", "IFUNC",
     [](Image &i) {
       for (int n : {1, 2})
         i.symbol(n).st_info = ELF64_ST_INFO(STB_GLOBAL, STT_GNU_IFUNC);
     }},
    {"undefined symbol", "does not define", [](Image &i) { i.symbol(1).st_shndx = SHN_UNDEF; }},
    {"symbol outside the image", "does not define",
     [](Image &i) { i.symbol(1).st_value = uint64_t(1) << 30; }},
    {"name outside the text", "does not define", [](Image &i) { i.symbol(1).st_name = 1 << 30; }},
    {"needed library", "needs libraries",
     [](Image &i) { i.entry(DT_SYMENT).d_tag = DT_NEEDED; }},
    {"filter", "needs libraries", [](Image &i) { i.entry(DT_SYMENT).d_tag = DT_FILTER; }},
    {"code on loading", "needs libraries",
     [](Image &i) { i.entry(DT_SYMENT).d_tag = DT_INIT; }},
    {"hash table without an end", "a table lies outside",
     [](Image &i) {
       auto *hash = i.mapped<uint32_t>(i.entry(DT_GNU_HASH).d_un.d_ptr);
       hash[0] = 1 << 30;
     }},
    {"segment over another", "lie over each other",
     [](Image &i) { i.segment(PT_LOAD, 1).p_vaddr = i.segment(PT_LOAD, 1).p_offset; }},
    {"code that can be written", "both code and data",
     [](Image &i) { i.segment(PT_LOAD, 1).p_flags = PF_R | PF_W | PF_X; }},
    {"stack that can be executed", "stack",
     [](Image &i) { i.segment(PT_GNU_STACK).p_flags = PF_R | PF_W | PF_X; }},
    {"thread-local data", "thread-local",
     [](Image &i) { i.segment(PT_GNU_STACK).p_type = PT_TLS; }},
    {"protection of foreign pages", "outside the image",
     [](Image &i) { i.segment(PT_GNU_RELRO).p_memsz = 1 << 30; }},
};

TEST(CheckElf, RefusesPlantedFaults) {
  for (const Fault &fault : kFaults) {
    Image image(fileAt(LATHE_TEST_RELOCATED));
    fault.plant(image);
    Status status = checkElf(image.bytes);
    EXPECT_EQ(status.code(), ErrorCode::Invalid) << fault.name;
    EXPECT_NE(status.message().find(fault.said), std::string::npos)
        << fault.name << ": " << status.str();
  }
}

/// Whatever a byte becomes, the check itself reads nothing but the image: for sanitizers.
TEST(CheckElf, SurvivesAnyByte) {
  const std::string good = fileAt(LATHE_TEST_RELOCATED);
  std::string bytes = good;
  for (size_t i = 0; i < std::min<size_t>(good.size(), 8192); ++i) {
    for (int value : {0, 1, 0x7f, 0x80, 0xff}) {
      bytes[i] = static_cast<char>(value);
      (void)checkElf(bytes);
    }
    bytes[i] = good[i];
  }
  for (size_t n = 0; n < good.size(); n += 7)
    (void)checkElf(std::string_view(good).substr(0, n));
}

} // namespace
