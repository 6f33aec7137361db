//===- StructuredOpTest.cpp - what ops answer to generic passes -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace lathe;
using namespace mlir;

namespace {

using Kind = OperandAccess::Kind;

class StructuredOpTest : public testing::Test {
protected:
  StructuredOpTest() { context.loadDialect<LatheDialect, func::FuncDialect>(); }

  /// The one structured op of a function with this body, `%x` being 2x8 of f32.
  StructuredOpInterface op(const std::string &text, const std::string &more = "") {
    module = parseSourceString<ModuleOp>(
        "func.func @f(%x: tensor<2x8xf32>" + more + ") {\n" + text + "\n  return\n}\n", &context);
    StructuredOpInterface found;
    if (module)
      module->walk([&](StructuredOpInterface op) { found = op; });
    return found;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

TEST_F(StructuredOpTest, RowsAreReadWholeAlongTheirDimensions) {
  auto softmax = op("%0 = lathe.softmax %x {axis = 1 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf32>");
  ASSERT_TRUE(softmax);
  EXPECT_EQ(softmax.getAccess(0).kind, Kind::Rows);
  EXPECT_EQ(softmax.getAccess(0).dims, SmallVector<int64_t>{1});
  EXPECT_FALSE(softmax.getCombiner()); // parts of a softmax do not combine by one operation

  auto norm = op("%0 = lathe.layer_norm %x, %s {axis = 0 : i64, epsilon = 1.0e-5 : f64} : "
                 "(tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>",
                 ", %s: tensor<2x8xf32>");
  ASSERT_TRUE(norm);
  EXPECT_EQ(norm.getAccess(0).dims, (SmallVector<int64_t>{0, 1}));
  EXPECT_EQ(norm.getAccess(1).kind, Kind::Whole);

  auto scan = op("%0 = lathe.scan %x {kind = #lathe.reduce_kind<sum>, axis = 0 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf32>");
  ASSERT_TRUE(scan);
  EXPECT_EQ(scan.getAccess(0).dims, SmallVector<int64_t>{0});
}

TEST_F(StructuredOpTest, MovementsSayWhereOperandsGo) {
  auto reshape = op("%0 = lathe.reshape %x : (tensor<2x8xf32>) -> tensor<16xf32>");
  ASSERT_TRUE(reshape);
  EXPECT_EQ(reshape.getAccess(0).kind, Kind::InOrder);
  EXPECT_TRUE(keepsOrder(reshape));
  EXPECT_FALSE(permutationOf(reshape));

  auto concat = op("%0 = lathe.concat %x, %s {axis = 1 : i64} : (tensor<2x8xf32>, tensor<2x3xf32>) -> tensor<2x11xf32>",
                   ", %s: tensor<2x3xf32>");
  ASSERT_TRUE(concat);
  EXPECT_EQ(concat.getAccess(1).kind, Kind::Piece);
  EXPECT_EQ(concat.getAccess(1).starts, (std::vector<DimExpr>{0, 8}));

  auto transpose = op("%0 = lathe.transpose %x {perm = array<i64: 1, 0>} : (tensor<2x8xf32>) -> tensor<8x2xf32>");
  ASSERT_TRUE(transpose);
  EXPECT_EQ(permutationOf(transpose), (SmallVector<int64_t>{1, 0}));
  EXPECT_FALSE(keepsLastDim(*permutationOf(transpose)));
  EXPECT_FALSE(boxOf(transpose));

  auto slice = op("%0 = lathe.slice %x {starts = [#lathe.dim<1>, #lathe.dim<2>], steps = array<i64: 1, 3>} : (tensor<2x8xf32>) -> tensor<1x2xf32>");
  ASSERT_TRUE(slice);
  ASSERT_TRUE(boxOf(slice));
  EXPECT_EQ(boxOf(slice)->starts, (SmallVector<int64_t>{1, 2}));
  EXPECT_EQ(boxOf(slice)->steps, (SmallVector<int64_t>{1, 3}));
  EXPECT_FALSE(permutationOf(slice));
}

TEST_F(StructuredOpTest, IndicesFromDataSaySo) {
  auto gather = op("%0 = lathe.gather %x, %i {axis = 0 : i64} : (tensor<2x8xf32>, tensor<3xi64>) -> tensor<3x8xf32>",
                   ", %i: tensor<3xi64>");
  ASSERT_TRUE(gather);
  EXPECT_EQ(gather.getAccess(0).kind, Kind::Data);
  EXPECT_EQ(gather.getAccess(1).kind, Kind::Affine);
}

TEST_F(StructuredOpTest, ContractionsCombineBySums) {
  auto product = op("%0 = lathe.matmul %x, %w {transpose_b} : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>",
                    ", %w: tensor<4x8xf32>");
  ASSERT_TRUE(product);
  EXPECT_EQ(product.getCombiner(), ReduceKind::Sum);
  EXPECT_EQ(product.getAccess(1).kind, Kind::Affine);

  auto most = op("%0 = lathe.reduce %x {kind = #lathe.reduce_kind<max>, axes = array<i64: 1>, keepdims = false} : (tensor<2x8xf32>) -> tensor<2xf32>");
  ASSERT_TRUE(most);
  EXPECT_EQ(most.getCombiner(), ReduceKind::Max);

  auto first = op("%0 = lathe.arg_reduce %x {kind = #lathe.reduce_kind<max>, axis = 1 : i64, keepdims = false} : (tensor<2x8xf32>) -> tensor<2xi64>");
  ASSERT_TRUE(first);
  EXPECT_FALSE(first.getCombiner()); // the index needs the value beside it
}

TEST_F(StructuredOpTest, OpsSayWhatTheyWantOfSizes) {
  auto pool = op("%0 = lathe.pool %i {kind = #lathe.pool_kind<max>, kernel = array<i64: 3>, strides = array<i64: 1>, "
                 "pads = array<i64: 0, 0>, dilations = array<i64: 1>, ceil_mode = false, count_include_pad = false, "
                 "layout = #lathe.conv_layout<nchw>} : (tensor<1x3x8xf32>) -> tensor<1x3x6xf32>",
                 ", %i: tensor<1x3x8xf32>");
  ASSERT_TRUE(pool);
  SmallVector<SizeRule> rules;
  pool.getSizeRules(rules);
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].kind, SizeRule::Kind::LessEqual);
  EXPECT_EQ(rules[0].message, "the pooled image is empty");

  auto cast = op("%0 = lathe.cast %x {saturate = true} : (tensor<2x8xf32>) -> tensor<2x8xf16>");
  ASSERT_TRUE(cast);
  EXPECT_TRUE(isConversion(cast));
  rules.clear();
  cast.getSizeRules(rules);
  EXPECT_TRUE(rules.empty());
}

TEST_F(StructuredOpTest, SizesFromDataAreReadOnTheHost) {
  op("%0 = lathe.dim_from %i {symbols = [\"d0\"]} : (tensor<1xi64>) -> tensor<1xi64>\n"
     "  %1 = lathe.neg %i : (tensor<1xi64>) -> tensor<1xi64>",
     ", %i: tensor<1xi64>");
  ASSERT_TRUE(module);
  func::FuncOp function = *module->getOps<func::FuncOp>().begin();
  Value input = function.getArgument(1);
  for (OpOperand &use : input.getUses())
    EXPECT_EQ(isHostOperand(use), isa<DimFromOp>(use.getOwner()));
}

} // namespace
