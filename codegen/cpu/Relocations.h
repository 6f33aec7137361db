//===- Relocations.h - what an object asks its linker for -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The relocations that LLVM writes for the kernels of a processor architecture: where each goes and
// what is stored there. Sources: System V ABI, AMD64 supplement; ELF for the Arm 64-bit Architecture.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CPU_RELOCATIONS_H
#define LATHE_CODEGEN_CPU_RELOCATIONS_H

#include <cstdint>

namespace lathe::codegen {

/// A processor architecture as far as an image of kernels shows it.
struct Architecture {
  uint16_t machine;      ///< e_machine
  uint64_t page;         ///< the largest page of a machine: changes of access are as far apart
  uint32_t relative;     ///< the relocation that adds the image's address when it is loaded
  char betweenFunctions; ///< bytes that trap
};

/// Of an object with this e_machine; null for one that lathe writes no code for.
const Architecture *findArchitecture(uint16_t machine);

struct Relocation {
  enum class Of {
    Nothing, ///< it is to be skipped
    Loader,  ///< the image's address is added when it is loaded
    Symbol,  ///< the symbol's address is known when the image is linked, from where it is used
    Slot,    ///< as Symbol, of the symbol's slot in .got
    Unknown  ///< LLVM writes none such for kernels
  };
  Of of = Of::Unknown;
  unsigned bytes = 4; ///< that are written
};

Relocation findRelocation(const Architecture &architecture, uint32_t type);

/// Writes a relocation of a symbol or slot. `field`: as many bytes as the relocation writes, which will
/// be at address `place`; `value`: address of symbol or slot, with the addend. False when the two are too far apart
/// or the value is not aligned as the instruction wants it.
bool applyRelocation(const Architecture &architecture, uint32_t type, char *field, uint64_t place,
                     uint64_t value);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CPU_RELOCATIONS_H
