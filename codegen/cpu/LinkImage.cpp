//===- LinkImage.cpp - objects to one freestanding shared image ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The little of a linker that kernels need, so that a machine without one can compile. What
// compileLLVMText writes is position-independent and complete in itself: sections are laid one behind
// the other, names are bound, and what is left for the loader are addresses in constant tables.
//
//   file: headers | .hash .dynsym .dynstr .rela.dyn .rodata | .text | .dynamic .got .data (.bss)
//
// The result depends on the objects' bytes and order alone: no build id, no paths, no symbol but the
// exported ones. Formats: System V ABI and its supplements; Relocations.h has what differs between
// processors.
//
//===----------------------------------------------------------------------===//

#include "Relocations.h"

#include "lathe/codegen/Codegen.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Object/ELF.h"
#include "llvm/Object/ELFTypes.h"
#include "llvm/Support/Endian.h"

namespace lathe::codegen {
namespace {

using namespace llvm::ELF;
using llvm::object::ELF64LE;
using File = llvm::object::ELFFile<ELF64LE>;

/// A section of the image. Sections of the same access are neighbours and become a segment.
struct Output {
  const char *name;
  uint32_t type;
  uint64_t flags, entrySize = 0;
  uint64_t align = 8;
  std::string bytes = {};
  uint64_t size = 0; ///< in memory
  uint64_t offset = 0, address = 0;
};

enum Place { Hash, Symbols, Strings, Relocations, Constants, Code, Dynamic, Got, Data, Zeros, kPlaces };

/// Where a section of an object went.
struct Piece {
  int place = -1; ///< none: it is not loaded
  uint64_t at = 0;
};

struct Object {
  File file;
  File::Elf_Shdr_Range sections;
  std::vector<Piece> pieces; ///< by section
  const File::Elf_Shdr *table = nullptr;
  File::Elf_Sym_Range symbols;
  llvm::StringRef names;
};

class Linker {
public:
  Status add(llvm::StringRef bytes);
  Result<std::string> link();

private:
  template <typename T> Status take(llvm::Expected<T> from, T &into);
  Status defineSymbols();
  Result<std::pair<const Object *, const File::Elf_Sym *>> definition(const Object &object,
                                                                     uint32_t index);
  Result<uint64_t> address(const Object &object, uint32_t index);
  template <typename Visit> Status eachRelocation(Visit visit);
  Status reserve();
  Status relocate();
  void layOut();
  void writeDynamic();
  std::string file();

  Output out[kPlaces] = {
      {".hash", SHT_HASH, SHF_ALLOC, 4},
      {".dynsym", SHT_DYNSYM, SHF_ALLOC, sizeof(File::Elf_Sym)},
      {".dynstr", SHT_STRTAB, SHF_ALLOC, 0, 1},
      {".rela.dyn", SHT_RELA, SHF_ALLOC, sizeof(File::Elf_Rela)},
      {".rodata", SHT_PROGBITS, SHF_ALLOC},
      {".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, 16},
      {".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, sizeof(File::Elf_Dyn)},
      {".got", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 8},
      {".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE},
      {".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE}};
  const Architecture *architecture = nullptr; ///< of all objects
  std::vector<std::unique_ptr<Object>> objects;
  /// Definitions that other objects may name, and of these the exported ones.
  llvm::StringMap<std::pair<const Object *, const File::Elf_Sym *>> defined;
  std::vector<std::pair<llvm::StringRef, std::pair<const Object *, const File::Elf_Sym *>>> exported;
  llvm::MapVector<std::pair<const Object *, const File::Elf_Sym *>, uint64_t> slots; ///< of .got
  uint64_t relative = 0; ///< number of addresses that the loader fills in
};

Status broken(const llvm::Twine &what) { return internalError("linking kernels: " + what.str()); }

template <typename T> Status Linker::take(llvm::Expected<T> from, T &into) {
  if (!from)
    return broken(llvm::toString(from.takeError()));
  into = *from;
  return okStatus();
}

bool isLoaded(const File::Elf_Shdr &section) {
  // Unwinding tables are left out: nothing throws or unwinds through a kernel.
  return section.sh_flags & SHF_ALLOC && section.sh_type != SHT_X86_64_UNWIND &&
         section.sh_type != SHT_NOTE;
}

/// Copies the sections of an object to where they will be.
Status Linker::add(llvm::StringRef bytes) {
  llvm::Expected<File> parsed = File::create(bytes);
  if (!parsed)
    return broken(llvm::toString(parsed.takeError()));
  auto object = std::make_unique<Object>(Object{*parsed, {}, {}, {}, {}, {}});
  const File &file = object->file;
  const Architecture *its = findArchitecture(file.getHeader().e_machine);
  if (file.getHeader().e_type != ET_REL || !its || (architecture && architecture != its))
    return broken("an object is of no processor that lathe knows, or of another than the first");
  architecture = its;
  LATHE_RETURN_IF_ERROR(take(file.sections(), object->sections));
  for (const File::Elf_Shdr &section : object->sections) {
    Piece &piece = object->pieces.emplace_back();
    if (section.sh_type == SHT_SYMTAB) {
      object->table = &section;
      LATHE_RETURN_IF_ERROR(take(file.symbols(&section), object->symbols));
      LATHE_RETURN_IF_ERROR(take(file.getStringTableForSymtab(section), object->names));
    }
    llvm::StringRef name;
    LATHE_RETURN_IF_ERROR(take(file.getSectionName(section), name));
    if (!isLoaded(section) || name == ".eh_frame")
      continue;
    if (section.sh_flags & SHF_TLS || section.sh_addralign > architecture->page)
      return broken(llvm::Twine("section ") + name + " is thread-local or aligned to more than a page");
    piece.place = section.sh_type == SHT_NOBITS      ? Zeros
                  : section.sh_flags & SHF_EXECINSTR ? Code
                  : section.sh_flags & SHF_WRITE     ? Data
                                                     : Constants;
    Output &to = out[piece.place];
    uint64_t align = std::max<uint64_t>(section.sh_addralign, 1);
    to.align = std::max(to.align, align);
    piece.at = llvm::alignTo(to.size, align);
    to.size = piece.at + section.sh_size;
    if (section.sh_type == SHT_NOBITS)
      continue;
    llvm::ArrayRef<uint8_t> content;
    LATHE_RETURN_IF_ERROR(take(file.getSectionContents(section), content));
    to.bytes.resize(piece.at, piece.place == Code ? architecture->betweenFunctions : '\0');
    to.bytes.append(reinterpret_cast<const char *>(content.data()), content.size());
  }
  objects.push_back(std::move(object));
  return okStatus();
}

Status Linker::defineSymbols() {
  for (const auto &object : objects)
    for (const File::Elf_Sym &symbol : object->symbols) {
      if (symbol.getBinding() == STB_LOCAL || symbol.st_shndx == SHN_UNDEF)
        continue;
      llvm::StringRef name;
      LATHE_RETURN_IF_ERROR(take(symbol.getName(object->names), name));
      auto [found, isNew] = defined.try_emplace(name, object.get(), &symbol);
      if (!isNew && symbol.getBinding() != STB_WEAK) {
        if (found->second.second->getBinding() != STB_WEAK)
          return broken("two kernels define " + name);
        found->second = {object.get(), &symbol};
      }
      if (isNew && symbol.getVisibility() == STV_DEFAULT)
        exported.push_back({name, {}});
    }
  for (auto &[name, definition] : exported)
    definition = defined[name];
  return okStatus();
}

/// The definition behind symbol `index` of an object: its own, or another object's.
Result<std::pair<const Object *, const File::Elf_Sym *>> Linker::definition(const Object &object,
                                                                           uint32_t index) {
  if (index >= object.symbols.size())
    return broken("a relocation names a symbol that is not there");
  const File::Elf_Sym &symbol = object.symbols[index];
  if (symbol.getBinding() == STB_LOCAL)
    return std::pair(&object, &symbol);
  llvm::StringRef name;
  LATHE_RETURN_IF_ERROR(take(symbol.getName(object.names), name));
  auto found = defined.find(name);
  if (found == defined.end())
    return broken("undefined symbol: " + name);
  return found->second;
}

Result<uint64_t> Linker::address(const Object &object, uint32_t index) {
  auto found = definition(object, index);
  if (!found)
    return found.status();
  auto [owner, symbol] = *found;
  if (symbol->st_shndx == SHN_ABS)
    return uint64_t(symbol->st_value);
  if (symbol->st_shndx >= owner->pieces.size() || owner->pieces[symbol->st_shndx].place < 0)
    return broken("a symbol lies in a section that is not loaded");
  const Piece &piece = owner->pieces[symbol->st_shndx];
  return out[piece.place].address + piece.at + symbol->st_value;
}

/// Calls `visit(object, place of the section, its piece, relocation)`, with bounds checked.
template <typename Visit> Status Linker::eachRelocation(Visit visit) {
  for (const auto &object : objects)
    for (const File::Elf_Shdr &section : object->sections) {
      if (section.sh_type != SHT_RELA)
        continue;
      if (section.sh_info >= object->pieces.size())
        return broken("relocations of a section that is not there");
      const Piece &piece = object->pieces[section.sh_info];
      if (piece.place < 0)
        continue;
      File::Elf_Rela_Range relocations;
      LATHE_RETURN_IF_ERROR(take(object->file.relas(section), relocations));
      for (const File::Elf_Rela &relocation : relocations) {
        uint64_t size = object->sections[section.sh_info].sh_size;
        if (relocation.r_offset > size || size - relocation.r_offset < 4)
          return broken("a relocation lies outside its section");
        LATHE_RETURN_IF_ERROR(visit(*object, piece, relocation));
      }
    }
  return okStatus();
}

/// Sizes of what depends on the relocations.
Status Linker::reserve() {
  LATHE_RETURN_IF_ERROR(eachRelocation(
      [&](const Object &object, const Piece &, const File::Elf_Rela &relocation) -> Status {
        Relocation::Of of = findRelocation(*architecture, relocation.getType(false)).of;
        relative += of == Relocation::Of::Loader;
        if (of != Relocation::Of::Slot)
          return okStatus();
        auto found = definition(object, relocation.getSymbol(false));
        if (!found)
          return found.status();
        slots.insert({*found, slots.size() * 8});
        return okStatus();
      }));
  relative += slots.size();
  out[Got].size = slots.size() * 8;
  out[Relocations].size = relative * sizeof(File::Elf_Rela);
  out[Symbols].size = (exported.size() + 1) * sizeof(File::Elf_Sym);
  // One bucket a symbol: a header of two words, buckets, chains.
  out[Hash].size = 4 * (2 + 2 * (exported.size() + 1));
  out[Strings].bytes = std::string(1, '\0');
  for (const auto &[name, definition] : exported)
    out[Strings].bytes += name.str() + '\0';
  out[Strings].size = out[Strings].bytes.size();
  out[Dynamic].size = 9 * sizeof(File::Elf_Dyn);
  return okStatus();
}

/// Each change of access begins a page in memory, not in the file: addresses and offsets differ by
/// whole pages.
void Linker::layOut() {
  constexpr unsigned kHeaders = 5;
  uint64_t offset = sizeof(File::Elf_Ehdr) + kHeaders * sizeof(File::Elf_Phdr), pages = 0;
  for (int i = 0; i < kPlaces; ++i) {
    pages += i > 0 && out[i].flags != out[i - 1].flags;
    offset = llvm::alignTo(offset, out[i].align);
    out[i].offset = offset;
    out[i].address = offset + pages * architecture->page;
    offset += out[i].size;
    if (i != Zeros)
      out[i].bytes.resize(out[i].size);
  }
}

template <typename T> void store(std::string &bytes, uint64_t at, T value) {
  llvm::support::endian::write<T, llvm::endianness::little>(&bytes[at], value);
}

Status Linker::relocate() {
  uint64_t next = 0;
  auto leaveToLoader = [&](uint64_t where, uint64_t value) {
    File::Elf_Rela entry = {};
    entry.r_offset = where;
    entry.setSymbolAndType(0, architecture->relative, false);
    entry.r_addend = int64_t(value);
    std::memcpy(&out[Relocations].bytes[next], &entry, sizeof entry);
    next += sizeof entry;
  };
  LATHE_RETURN_IF_ERROR(eachRelocation([&](const Object &object, const Piece &piece,
                                           const File::Elf_Rela &relocation) -> Status {
    Output &to = out[piece.place];
    uint64_t at = piece.at + relocation.r_offset, place = to.address + at;
    uint32_t type = relocation.getType(false), index = relocation.getSymbol(false);
    Relocation asked = findRelocation(*architecture, type);
    if (asked.of == Relocation::Of::Nothing)
      return okStatus();
    if (asked.of == Relocation::Of::Unknown)
      return broken("relocations of type " + llvm::Twine(type) + " are not expected");
    if (to.bytes.size() - at < asked.bytes)
      return broken("a relocation lies outside its section");
    Result<uint64_t> symbol = address(object, index);
    if (!symbol)
      return symbol.status();
    uint64_t value = *symbol + uint64_t(relocation.r_addend);
    if (asked.of == Relocation::Of::Loader) {
      // The loader writes where memory may be written; elsewhere code would need relocations.
      if (piece.place != Data)
        return broken("an address in memory that is only read");
      leaveToLoader(place, value);
      return okStatus();
    }
    if (asked.of == Relocation::Of::Slot) {
      auto slot = definition(object, index);
      value = out[Got].address + slots.lookup(*slot) + uint64_t(relocation.r_addend);
    }
    if (!applyRelocation(*architecture, type, &to.bytes[at], place, value))
      return broken("kernels that are too large for their distances, or data that are not aligned");
    return okStatus();
  }));
  for (const auto &[key, slot] : slots) {
    Result<uint64_t> symbol = address(*key.first, uint32_t(key.second - key.first->symbols.begin()));
    if (!symbol)
      return symbol.status();
    leaveToLoader(out[Got].address + slot, *symbol);
  }
  uint64_t name = 1;
  for (size_t i = 0; i < exported.size(); ++i) {
    const auto &[text, definition] = exported[i];
    auto [owner, symbol] = definition;
    Result<uint64_t> value = address(*owner, uint32_t(symbol - owner->symbols.begin()));
    if (!value)
      return value.status();
    File::Elf_Sym entry = *symbol;
    entry.st_name = uint32_t(name);
    entry.st_value = *value;
    // Any section of the image will do: the loader asks only whether there is one.
    entry.st_shndx = 1;
    std::memcpy(&out[Symbols].bytes[(i + 1) * sizeof entry], &entry, sizeof entry);
    name += text.size() + 1;
  }
  return okStatus();
}

void Linker::writeDynamic() {
  uint32_t buckets = uint32_t(exported.size() + 1);
  store<uint32_t>(out[Hash].bytes, 0, buckets);
  store<uint32_t>(out[Hash].bytes, 4, buckets);
  for (uint32_t i = 0; i + 1 < buckets; ++i) {
    uint64_t bucket = 8 + 4 * uint64_t(llvm::object::hashSysV(exported[i].first) % buckets);
    uint32_t first = llvm::support::endian::read32le(&out[Hash].bytes[bucket]);
    store<uint32_t>(out[Hash].bytes, 8 + 4 * uint64_t(buckets + i + 1), first);
    store<uint32_t>(out[Hash].bytes, bucket, i + 1);
  }
  const std::pair<int64_t, uint64_t> entries[] = {
      {DT_HASH, out[Hash].address},         {DT_STRTAB, out[Strings].address},
      {DT_SYMTAB, out[Symbols].address},    {DT_STRSZ, out[Strings].size},
      {DT_SYMENT, sizeof(File::Elf_Sym)},   {DT_RELA, out[Relocations].address},
      {DT_RELASZ, out[Relocations].size},   {DT_RELAENT, sizeof(File::Elf_Rela)},
      {DT_NULL, 0}};
  uint64_t at = 0;
  for (auto [tag, value] : entries) {
    store<int64_t>(out[Dynamic].bytes, at, tag);
    store<uint64_t>(out[Dynamic].bytes, at + 8, value);
    at += sizeof(File::Elf_Dyn);
  }
}

/// Headers and sections. Section headers are for people's tools; the loader reads segments.
std::string Linker::file() {
  std::string names(1, '\0');
  std::vector<File::Elf_Shdr> sections(1);
  for (const Output &o : out) {
    File::Elf_Shdr s = {};
    s.sh_name = uint32_t(names.size());
    names += std::string(o.name) + '\0';
    s.sh_type = o.type, s.sh_flags = o.flags, s.sh_addr = o.address, s.sh_offset = o.offset;
    s.sh_size = o.size, s.sh_addralign = o.align, s.sh_entsize = o.entrySize;
    s.sh_link = o.type == SHT_HASH                                ? Symbols + 1
                : o.type == SHT_DYNSYM || o.type == SHT_DYNAMIC ? Strings + 1
                                                                : 0;
    s.sh_info = o.type == SHT_DYNSYM; // the first that is not local
    sections.push_back(s);
  }
  File::Elf_Shdr strings = {};
  strings.sh_name = uint32_t(names.size());
  names += std::string(".shstrtab") + '\0';
  strings.sh_type = SHT_STRTAB, strings.sh_addralign = 1, strings.sh_size = names.size();
  strings.sh_offset = out[Data].offset + out[Data].size;
  sections.push_back(strings);

  auto segment = [&](int first, int last, uint32_t flags) {
    bool zeros = last == Zeros;
    File::Elf_Phdr p = {};
    p.p_type = PT_LOAD, p.p_flags = flags, p.p_align = architecture->page;
    p.p_offset = out[first].offset;
    p.p_vaddr = out[first].address, p.p_paddr = out[first].address;
    p.p_filesz = out[zeros ? Data : last].offset + out[zeros ? Data : last].size - p.p_offset;
    p.p_memsz = out[last].address + out[last].size - p.p_vaddr;
    return p;
  };
  File::Elf_Phdr programs[5] = {segment(Hash, Constants, PF_R), segment(Code, Code, PF_R | PF_X),
                                segment(Dynamic, Zeros, PF_R | PF_W),
                                segment(Dynamic, Dynamic, PF_R | PF_W), {}};
  // The first has the headers too.
  programs[0].p_filesz += programs[0].p_offset, programs[0].p_memsz += programs[0].p_offset;
  programs[0].p_offset = 0, programs[0].p_vaddr = 0, programs[0].p_paddr = 0;
  programs[3].p_type = PT_DYNAMIC, programs[3].p_align = 8;
  programs[4].p_type = PT_GNU_STACK, programs[4].p_flags = PF_R | PF_W;

  File::Elf_Ehdr header = {};
  std::memcpy(header.e_ident, "\177ELF", 4);
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN, header.e_machine = architecture->machine, header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header, header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(File::Elf_Phdr), header.e_phnum = uint16_t(std::size(programs));
  header.e_shentsize = sizeof(File::Elf_Shdr), header.e_shnum = uint16_t(sections.size());
  header.e_shstrndx = uint16_t(sections.size() - 1);
  header.e_shoff = llvm::alignTo(strings.sh_offset + names.size(), 8);

  std::string file(header.e_shoff + sections.size() * sizeof(File::Elf_Shdr), '\0');
  auto put = [&](uint64_t at, const void *from, size_t size) { std::memcpy(&file[at], from, size); };
  put(0, &header, sizeof header);
  put(header.e_phoff, programs, sizeof programs);
  for (const Output &o : out)
    put(o.offset, o.bytes.data(), o.bytes.size());
  put(strings.sh_offset, names.data(), names.size());
  put(header.e_shoff, sections.data(), sections.size() * sizeof(File::Elf_Shdr));
  return file;
}

Result<std::string> Linker::link() {
  LATHE_RETURN_IF_ERROR(defineSymbols());
  LATHE_RETURN_IF_ERROR(reserve());
  layOut();
  LATHE_RETURN_IF_ERROR(relocate());
  writeDynamic();
  return file();
}

} // namespace

Result<std::string> linkImage(llvm::ArrayRef<std::string> objects) {
  Linker linker;
  for (const std::string &object : objects)
    LATHE_RETURN_IF_ERROR(linker.add(object));
  if (objects.empty())
    return broken("there are none");
  return linker.link();
}

} // namespace lathe::codegen
