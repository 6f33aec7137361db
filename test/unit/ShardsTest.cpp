//===- ShardsTest.cpp - what each rank has of a constant ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random weights of a mesh are made on each rank: by its parts alone it must have what it would have by cutting the
// bytes of the whole.
//
//===----------------------------------------------------------------------===//
#include "lathe/ir/Collective.h"
#include "lathe/ir/WeightStore.h"

#include <gtest/gtest.h>

using namespace lathe;
using namespace mlir;

namespace {

class ShardsTest : public testing::Test {
protected:
  ShardsTest() { context.loadDialect<LatheDialect>(); }

  RankedTensorType type(ArrayRef<int64_t> dims) { return RankedTensorType::get(dims, Float32Type::get(&context)); }
  WeightAttr weight(ArrayRef<int64_t> dims) {
    return WeightStore::random(type(dims), RandomSpread{++stream * 1234567, 0.25f, 1.0f});
  }
  /// Parts of a weight along an axis; `blocks` fill it.
  Attribute sharded(ArrayRef<int64_t> dims, int64_t axis, int64_t parts, std::vector<int64_t> blocks = {}) {
    SmallVector<int64_t> local(dims);
    if (blocks.empty())
      blocks = {dims[axis]};
    local[axis] = 0;
    for (int64_t block : blocks)
      local[axis] += shardSize(block, parts);
    return ShardedAttr::get(&context, axis, parts, blocks, weight(dims), type(local));
  }
  Attribute joined(int64_t axis, ArrayRef<Attribute> parts) {
    SmallVector<int64_t> dims(cast<RankedTensorType>(cast<TypedAttr>(parts[0]).getType()).getShape());
    dims[axis] = 0;
    for (Attribute part : parts)
      dims[axis] += cast<RankedTensorType>(cast<TypedAttr>(part).getType()).getDimSize(axis);
    return JoinedAttr::get(&context, axis, ArrayAttr::get(&context, parts), type(dims));
  }

  void expectSame(Attribute constant, int64_t ranks) {
    ASSERT_EQ(shardsOf(constant), ranks);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Result<std::vector<std::byte>> want = bytesOnRank(constant, rank, store);
      ASSERT_TRUE(want.ok()) << want.status().str();
      std::vector<RandomPart> parts = randomPartsOf(constant, rank);
      ASSERT_FALSE(parts.empty());
      std::vector<std::byte> made(want->size());
      for (const RandomPart &part : parts)
        fillRandom(made.data(), DType::F32, part, 0, part.rows * part.columns);
      EXPECT_EQ(made, *want) << "rank " << rank;
    }
  }

  MLIRContext context;
  WeightStore store;
  uint64_t stream = 0;
};

TEST_F(ShardsTest, RandomPartsAreSlicesOfTheWhole) {
  expectSame(sharded({6, 4}, 0, 2), 2);
  expectSame(sharded({6, 4}, 1, 2), 2);
  expectSame(sharded({3, 8, 5}, 1, 4), 4);
  expectSame(sharded({5, 7}, 1, 4), 4);            // the last has less, and padding
  expectSame(sharded({5, 12}, 1, 2, {8, 4}), 2);   // of each block a share
  expectSame(sharded({5, 10}, 1, 4, {8, 2}), 4);   // ranks beyond the second block's elements share them
}

TEST_F(ShardsTest, RandomPartsOfJoinedConstants) {
  for (int64_t axis : {0, 1})
    for (int64_t cut : {0, 1}) {
      std::vector<int64_t> small = axis ? std::vector<int64_t>{8, 4} : std::vector<int64_t>{4, 8};
      expectSame(joined(axis, {sharded({8, 8}, cut, 2), sharded({8, 8}, cut, 2)}), 2);
      Attribute whole = weight(cut == 0 ? ArrayRef<int64_t>{4, 8} : ArrayRef<int64_t>{8, 4});
      if (cut == 1 - axis) // a part that all ranks have whole, as wide as the shards
        expectSame(joined(axis, {sharded({8, 8}, cut, 2), whole}), 2);
    }
  EXPECT_TRUE(randomPartsOf(joined(0, {weight({2, 3}), weight({1, 3})}), 0).size() == 2);
  EXPECT_EQ(shardsOf(weight({2, 3})), 0);
}

} // namespace
