//===- Relocations.cpp - what an object asks its linker for -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Relocations.h"

#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"

namespace lathe::codegen {

using namespace llvm::ELF;
using namespace llvm::support::endian;

// A page of 64-bit ARM is 4, 16 or 64 KiB, as the system was built.
static constexpr Architecture kX86{EM_X86_64, 4096, R_X86_64_RELATIVE, '\xcc'};          // int3
static constexpr Architecture kAArch64{EM_AARCH64, 65536, R_AARCH64_RELATIVE, '\0'};     // udf #0

const Architecture *findArchitecture(uint16_t machine) {
  for (const Architecture *architecture : {&kX86, &kAArch64})
    if (architecture->machine == machine)
      return architecture;
  return nullptr;
}

static Relocation findX86(uint32_t type) {
  using Of = Relocation::Of;
  switch (type) {
  case R_X86_64_NONE:
    return {Of::Nothing};
  case R_X86_64_64:
    return {Of::Loader, 8};
  case R_X86_64_PC64:
    return {Of::Symbol, 8};
  case R_X86_64_PC32:
  case R_X86_64_PLT32:
    return {Of::Symbol};
  case R_X86_64_GOTPCREL:
  case R_X86_64_GOTPCRELX:
  case R_X86_64_REX_GOTPCRELX:
    return {Of::Slot};
  default:
    return {};
  }
}

static Relocation findAArch64(uint32_t type) {
  using Of = Relocation::Of;
  switch (type) {
  case R_AARCH64_NONE:
    return {Of::Nothing};
  case R_AARCH64_ABS64:
    return {Of::Loader, 8};
  case R_AARCH64_PREL64:
    return {Of::Symbol, 8};
  case R_AARCH64_PREL32:
  case R_AARCH64_CALL26:
  case R_AARCH64_JUMP26:
  case R_AARCH64_ADR_PREL_PG_HI21:
  case R_AARCH64_ADD_ABS_LO12_NC:
  case R_AARCH64_LDST8_ABS_LO12_NC:
  case R_AARCH64_LDST16_ABS_LO12_NC:
  case R_AARCH64_LDST32_ABS_LO12_NC:
  case R_AARCH64_LDST64_ABS_LO12_NC:
  case R_AARCH64_LDST128_ABS_LO12_NC:
    return {Of::Symbol};
  case R_AARCH64_ADR_GOT_PAGE:
  case R_AARCH64_LD64_GOT_LO12_NC:
    return {Of::Slot};
  default:
    return {};
  }
}

Relocation findRelocation(const Architecture &architecture, uint32_t type) {
  return architecture.machine == EM_AARCH64 ? findAArch64(type) : findX86(type);
}

/// Sets the bits of an instruction from `shift` on.
static bool setBits(char *field, uint64_t value, unsigned shift, unsigned width) {
  uint32_t mask = llvm::maskTrailingOnes<uint32_t>(width) << shift;
  write32le(field, (read32le(field) & ~mask) | (uint32_t(value << shift) & mask));
  return true;
}

/// The low 12 bits of an address as the offset of a load or store of 1 << `scale` bytes.
static bool setLow12(char *field, uint64_t value, unsigned scale) {
  uint64_t low = value & 0xfff;
  return (low & llvm::maskTrailingOnes<uint64_t>(scale)) == 0 && setBits(field, low >> scale, 10, 12);
}

static bool applyAArch64(uint32_t type, char *field, uint64_t place, uint64_t value) {
  auto distance = int64_t(value - place);
  switch (type) {
  case R_AARCH64_PREL64:
    write64le(field, uint64_t(distance));
    return true;
  case R_AARCH64_PREL32:
    write32le(field, uint32_t(distance));
    return llvm::isInt<32>(distance);
  case R_AARCH64_CALL26:
  case R_AARCH64_JUMP26:
    return llvm::isShiftedInt<26, 2>(distance) && setBits(field, uint64_t(distance) >> 2, 0, 26);
  case R_AARCH64_ADR_PREL_PG_HI21:
  case R_AARCH64_ADR_GOT_PAGE: {
    // Pages of adrp have 4 KiB whatever the system's have.
    int64_t pages = int64_t(value >> 12) - int64_t(place >> 12);
    return llvm::isInt<21>(pages) && setBits(field, uint64_t(pages), 29, 2) &&
           setBits(field, uint64_t(pages) >> 2, 5, 19);
  }
  case R_AARCH64_ADD_ABS_LO12_NC:
  case R_AARCH64_LDST8_ABS_LO12_NC:
    return setLow12(field, value, 0);
  case R_AARCH64_LDST16_ABS_LO12_NC:
    return setLow12(field, value, 1);
  case R_AARCH64_LDST32_ABS_LO12_NC:
    return setLow12(field, value, 2);
  case R_AARCH64_LDST64_ABS_LO12_NC:
  case R_AARCH64_LD64_GOT_LO12_NC:
    return setLow12(field, value, 3);
  case R_AARCH64_LDST128_ABS_LO12_NC:
    return setLow12(field, value, 4);
  default:
    return false;
  }
}

bool applyRelocation(const Architecture &architecture, uint32_t type, char *field, uint64_t place,
                     uint64_t value) {
  if (architecture.machine == EM_AARCH64)
    return applyAArch64(type, field, place, value);
  auto distance = int64_t(value - place);
  if (type == R_X86_64_PC64) {
    write64le(field, uint64_t(distance));
    return true;
  }
  write32le(field, uint32_t(distance));
  return llvm::isInt<32>(distance);
}

} // namespace lathe::codegen
