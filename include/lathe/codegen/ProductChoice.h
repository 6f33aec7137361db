//===- ProductChoice.h - choosing how a matrix product runs -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the descriptors of products (Skeleton.h) see of a product and add their
// variants to, on GPUs.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_PRODUCTCHOICE_H
#define LATHE_CODEGEN_PRODUCTCHOICE_H

#include "lathe/codegen/Choice.h"

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>

namespace lathe::select {

/// Sizes of a product. Folded: the rows of all batches are one matrix.
struct GemmSizes {
  DimExpr batch = 1, m, n, k;
  bool folded = false;
};

class HopperGemm;

class ProductChoice {
public:
  ProductChoice(const KernelDesc &desc, const Target &target, const GemmSizes &sizes,
                std::vector<KernelVariant> &out);
  ~ProductChoice();

  const KernelDesc &desc;
  const Target &target;
  const GemmSizes sizes;
  const ContractionOperand &a, &b;
  ContractionOperand stored; ///< b, or the codes that it is made of
  DimRange rows;
  bool mma;                  ///< tensor cores multiply the operands' type, of 16 bits
  bool pairs;                ///< a result is made of two columns, or columns are heads
  int64_t covered = 0;       ///< numbers of rows up to here have a variant

  /// Adds a variant for up to `upTo` rows. Whether sizes are left to care for.
  bool add(KernelSpec spec, int64_t upTo, std::vector<DimCondition> guard = {},
           std::vector<KernelSpec> otherwise = {});
  /// Adds one for up to each of `mostRows`, which rise, as add() does, until `specFor` has none.
  bool addEach(std::initializer_list<int64_t> mostRows,
               const std::function<std::optional<KernelSpec>(int64_t upTo)> &specFor);
  /// Whether an operand's rows can be read in pieces of 16 bytes whatever the sizes are.
  bool inPieces(const ContractionOperand &operand) const;
  /// Whether A can, with contiguous k.
  bool aInPieces() const { return inPieces(a) && !a.transposed; }
  /// Rows with contiguous k, alone in their batch, that tensor cores multiply.
  bool streamsRows() const {
    return sizes.batch == DimExpr(1) && mma && b.transposed && inPieces(stored);
  }
  /// The tensor map of an operand, boxes of columns x rows; nothing where there is none.
  std::optional<TensorMapArg> map(const ContractionOperand &operand, int64_t boxColumns,
                                  int64_t boxRows, int swizzle) const;

  /// Whether tensor maps describe the operands whatever the sizes are; or for some.
  bool hasTensorMaps() const;
  bool mayHaveTensorMaps() const { return hopper != nullptr; }
  /// The tiles of gemm_hopper.cuh and its neighbours for all rows that are left, the fastest by their
  /// model of time (HopperGemmTime.cpp) for ever more of them.
  bool addWgmma();
  std::optional<KernelSpec> wgmma(KernelConfig config) const;
  /// What the fastest dense tile takes for so many rows, in ns by the model of time; nothing where there is none.
  std::optional<double> denseTime(int64_t rows) const;
  /// Rows to judge by: those that are known or wanted, else many.
  int64_t usualRows() const;
  /// The packing of 2:4 sparse weights (support/Packing.h); empty where there are none.
  std::string sparsePacking() const;
  /// Conditions of a variant that was asked for.
  std::vector<DimCondition> conditions() const;

  Status choose();

private:
  Status addWanted();
  Status addInvariant();

  std::vector<KernelVariant> &out;
  std::unique_ptr<HopperGemm> hopper;
};

/// Rows of results that gemm_sparse.cuh stores together: of wide tiles few, so that there is room for another stage.
int64_t sparseStagedRows(int64_t tileM);

/// Multiprocessors that clusters of so many blocks can use: those of a cluster must be in one GPC, so large clusters leave
/// some over.
int64_t multiprocessorsOf(const Target &target, int64_t cluster);

/// Whether gemm.stream is the best for up to so many rows (codegen/device/stream.cpp).
bool streamTakes(const ProductChoice &product, int64_t rows);

/// ProductForm::time of gemm_hopper.cuh and its neighbours (codegen/select/HopperGemmTime.cpp).
double timeOfTile(const KernelConfig &config, const ProductSizes &sizes);

} // namespace lathe::select

#endif // LATHE_CODEGEN_PRODUCTCHOICE_H
