//===- AttentionRoles.cpp - roles around attention ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   %k = transpose %x {perm = [0, 2, 1, 3]}          operands = [.., tokens_first 1, ..]
//   %k = transpose (reshape (gather %pool, %table))  operands = [.., computed pages 1 dim 1, ..]
//   %m = select %seen, 0, -inf; attention .., %m     mask_hides
//
//===----------------------------------------------------------------------===//
#include "Roles.h"

#include "lathe/ir/AttentionOperands.h"

using namespace mlir;

namespace lathe::fuse {

/// Whether all that an operand is made of, beside constants, are inputs of the program.
static bool isFromOutside(const KernelRegion &region, Value operand) {
  return region.madeOf(operand, [](Value source) {
    auto input = dyn_cast<BlockArgument>(source);
    auto program = input ? dyn_cast<func::FuncOp>(input.getOwner()->getParentOp()) : func::FuncOp();
    return bool(source.getDefiningOp<ConstantOp>()) || (program && program.isPublic());
  });
}

/// Queries, keys and values may lie in memory with tokens ahead of heads.
static OperandRole rowsRole(const KernelRegion &region, Value rows) {
  if (auto argument = dyn_cast_or_null<BlockArgument>(tokensFirst(rows))) {
    OperandRole role = roleOf(region, argument);
    role.storage = OperandRole::Storage::TokensFirst;
    return role;
  }
  return roleOf(region, rows);
}

/// Keys and values that are gathered from pages.
static void assignPages(Value rows, OperandRole &role) {
  std::optional<CodedRows> coded = codedRows(rows);
  std::optional<RowsInMemory> found = rowsInMemory(coded ? coded->codes : rows);
  auto memory = found ? dyn_cast<BlockArgument>(found->memory) : BlockArgument();
  if (!memory || !found->gathered)
    return;
  role.pages = memory.getArgNumber();
  role.pagesDim = found->dim;
}

/// Whether a bias is likely to hide keys: it holds the number of a key that is not seen, or is read from
/// memory for many heads. A bias for each head is none that is worth looking at.
static bool hidesKeys(Value mask, int64_t heads) {
  std::vector<DimExpr> dims = dimsOf(mask);
  bool shared = dims.size() < 3 || dims[dims.size() - 3] == DimExpr(1);
  bool hides = false;
  SmallVector<Value> todo{mask};
  llvm::SmallPtrSet<Value, 8> seen;
  while (!todo.empty() && !hides) {
    Value v = todo.pop_back_val();
    if (!seen.insert(v).second)
      continue;
    if (isa<BlockArgument>(v)) {
      constexpr int64_t kMany = 4;
      hides = shared && heads >= kMany && dimsOf(v).size() >= 2 && elementTypeOf(v).isFloat() &&
              product(dimsOf(v)) == product(dims);
      continue;
    }
    std::optional<double> number = numberOf(v);
    hides = number && *number == -std::numeric_limits<double>::infinity();
    llvm::append_range(todo, v.getDefiningOp()->getOperands());
  }
  return hides;
}

/// What comes to the scores is the same for all queries, beside a scale > 0 alone.
static bool isKeyMask(AttentionOp op) {
  return op.hasScoreOperands() && !op.scoresPerQuery() && !op.getSoftcap() && !op.getLse() &&
         op.getScale().convertToDouble() > 0;
}

void assignAttentionRoles(const KernelRegion &region, AttentionOp attention, KernelRoles &roles) {
  for (auto [i, operand] : llvm::enumerate(attention->getOperands())) {
    constexpr size_t kRows = 3; // queries, keys, values
    OperandRole role = i < kRows ? rowsRole(region, operand) : roleOf(region, operand);
    if (i > 0 && i < kRows)
      assignPages(operand, role);
    roles.operands.push_back(role);
  }
  roles.keysFromOutside = llvm::all_of(attention->getOperands().drop_front(), [&](Value operand) {
    return isFromOutside(region, operand);
  });
  std::optional<int64_t> heads = dimOf(attention.getQ(), 1).constant();
  roles.maskHides = attention.hidesKeysInside() ||
                    (attention.getBias() && heads && hidesKeys(attention.getBias(), *heads));
  roles.keyMask = isKeyMask(attention);
  assignPlacement(region, attention->getResult(0), dimsOf(attention->getResult(0)), roles);
}

} // namespace lathe::fuse
