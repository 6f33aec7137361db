//===- KernelSpec.h - how a kernel will run ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything that plan and runtime must know of a kernel and all that codegen
// must honour, decided by select before any code exists. Plain data: printable,
// parsable, comparable. A kernel has an ordered list of KernelVariants; the
// first whose guard holds for the run's sizes is launched, and the last guard
// is always true.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_KERNELSPEC_H
#define LATHE_CODEGEN_KERNELSPEC_H

#include "lathe/support/DType.h"
#include "lathe/support/DimExpr.h"

#include <string>
#include <vector>

namespace lathe {

/// `lhs <= rhs` or `lhs == rhs` or `lhs mod rhs == 0` over dims.
struct DimCondition {
  enum class Kind { LessEqual, Equal, Divisible };
  Kind kind = Kind::LessEqual;
  DimExpr lhs, rhs;
  bool operator==(const DimCondition &) const = default;
};

/// One buffer argument of a kernel.
struct BufferArg {
  enum class Access { Read, Write, ReadWrite };
  DType dtype = DType::F32;
  Access access = Access::Read;
  std::vector<DimExpr> dims;     ///< logical sizes
  std::vector<DimExpr> physical; ///< allocated sizes, same rank; strides are their suffix products
  int64_t alignment = 64;        ///< bytes; what codegen may assume of the base address
  /// An output may share the memory of this input argument, or -1; one of Access::ReadWrite does
  /// share it: it holds what the input holds when the kernel starts.
  int aliases = -1;
  /// Weight packing: the recipe's name ("panels32", ...), empty when the weight is
  /// read as stored. Arguments of the recipe are in the config text.
  std::string packing;
  bool operator==(const BufferArg &) const = default;
};

/// A CUtensorMap to encode before the launch (CUDA sm_90 and up).
struct TensorMapArg {
  /// What the kernel does with it: reads an operand of its anchor, stores results, reads what comes to
  /// the results at their own places, or reads what comes to the scores of attention.
  enum class Role { Operand, Result, Residual, Mask };
  int buffer = 0;                  ///< which buffer argument
  std::vector<DimExpr> dims;       ///< innermost first, elements
  std::vector<DimExpr> strides;    ///< bytes, for dims[1..]
  std::vector<int64_t> box;        ///< elements per dimension; im2col: channels and pixels
  int swizzleBytes = 0;            ///< 0, 32, 64, 128
  bool im2col = false;
  std::vector<int64_t> lowerCorner, upperCorner; ///< im2col only
  std::vector<int64_t> steps;      ///< every so many elements of each dimension; empty: all
  int elementBytes = 0;            ///< of the map's elements, several of the buffer's; 0: its own
  Role role = Role::Operand;
  bool operator==(const TensorMapArg &) const = default;
};

/// One launch of a kernel function; most kernels have one.
struct LaunchSpec {
  std::string function;          ///< symbol in the image or cubin
  DimExpr grid[3] = {1, 1, 1};   ///< blocks; the CPU uses the product as its parallel loop
  int64_t block[3] = {1, 1, 1};  ///< threads; 1 on the CPU
  int64_t cluster[3] = {1, 1, 1};
  DimExpr sharedBytes = 0;       ///< dynamic shared memory of a block
  bool programmaticDependent = false; ///< may start before its predecessor ends
  /// Which arguments this launch takes, in order; empty: all buffers, then all
  /// tensor maps, then all symbols, then the status word.
  std::vector<int> buffers;
  bool operator==(const LaunchSpec &) const = default;
};

struct KernelSpec {
  std::string config;                 ///< the chosen configuration by name, e.g. "row.t128.v8"
  std::vector<BufferArg> buffers;     ///< inputs, then outputs, then workspace
  int numInputs = 0, numOutputs = 0;
  std::vector<std::string> symbols;   ///< symbol arguments, i64, in order
  std::vector<TensorMapArg> tensorMaps;
  std::vector<LaunchSpec> launches;
  DimExpr workspaceBytes = 0;         ///< one buffer behind the outputs when not 0
  DimExpr scratchBytes = 0;           ///< CPU: per worker thread
  bool status = false;                ///< has a status channel (indices from data)
  bool operator==(const KernelSpec &) const = default;

  /// Places in `tensorMaps` of those with this role.
  std::vector<int> mapsOf(TensorMapArg::Role role) const;
  /// The first of them; null where there is none.
  const TensorMapArg *mapOf(TensorMapArg::Role role) const;

  /// One line per item, the text that `inspect --kernels` prints and `#lathe.spec` holds.
  std::string str() const;
  static Result<KernelSpec> parse(std::string_view text);
};

struct KernelVariant {
  std::vector<DimCondition> guard; ///< all must hold; empty: always
  KernelSpec spec;
  /// What takes the place of `spec` when its code does not fit into the registers, in this order.
  /// Same buffers, workspace and functions; needs fewer registers each time.
  std::vector<KernelSpec> otherwise = {};
  bool operator==(const KernelVariant &) const = default;
};

std::string str(const std::vector<DimCondition> &guard); ///< "M <= 1 && K % 8 == 0"
Result<std::vector<DimCondition>> parseGuard(std::string_view text);

} // namespace lathe

#endif // LATHE_CODEGEN_KERNELSPEC_H
