//===- ListOpsTest.cpp - lists of the runtime and their ops ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../runtime/host/ListOps.h"
#include "../../runtime/host/Lists.h"

#include "lathe/runtime/lathe.hpp"
#include "lathe/support/TensorList.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::runtime;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

namespace {

HostTensor ints(std::vector<int64_t> values, std::vector<int64_t> dims) {
  HostTensor tensor(DType::I64, std::move(dims));
  for (size_t i = 0; i < values.size(); ++i)
    tensor.setInteger(int64_t(i), values[i]);
  return tensor;
}
HostTensor number(int64_t value) { return ints({value}, {}); }
HostTensor vector(std::vector<int64_t> values) {
  const auto size = int64_t(values.size());
  return ints(std::move(values), {size});
}

std::vector<int64_t> values(const HostTensor &tensor) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < tensor.count(); ++i)
    all.push_back(tensor.integer(i));
  return all;
}

class ListOpsTest : public testing::Test {
protected:
  Status call(const char *op, std::vector<HostTensor> in, std::vector<HostTensor *> out,
              std::vector<engine::Attribute> attributes = {}) {
    HostOp function = findHostOp(op);
    EXPECT_TRUE(function) << op;
    std::vector<HostView> inputs, outputs;
    for (HostTensor &tensor : in)
      inputs.push_back({tensor.data.data(), tensor.dtype, tensor.dims});
    for (HostTensor *tensor : out)
      outputs.push_back({tensor->data.data(), tensor->dtype, tensor->dims});
    return function({inputs, outputs, attributes, &lists});
  }
  int64_t listOf(const char *op, std::vector<HostTensor> in, std::vector<engine::Attribute> attributes = {}) {
    HostTensor list = number(-2);
    Status status = call(op, std::move(in), {&list}, std::move(attributes));
    EXPECT_TRUE(status.ok()) << status.str();
    return list.integer(0);
  }
  std::string errorOf(const char *op, std::vector<HostTensor> in, std::vector<engine::Attribute> attributes = {}) {
    HostTensor list = number(-2);
    return call(op, std::move(in), {&list}, std::move(attributes)).str();
  }
  /// The sizes of the tensors, packed as an output is.
  std::vector<int64_t> shapes(int64_t list) {
    HostTensor sizes = ints({}, {3});
    EXPECT_TRUE(call("list_sizes", {number(list)}, {&sizes}).ok());
    HostTensor elements(DType::I64, {sizes.integer(2)}), rows = ints({}, {sizes.integer(0), sizes.integer(1)});
    EXPECT_TRUE(call("list_give", {number(list)}, {&elements, &rows}).ok());
    return values(rows);
  }
  std::vector<int64_t> elements(int64_t list) {
    HostTensor sizes = ints({}, {3});
    EXPECT_TRUE(call("list_sizes", {number(list)}, {&sizes}).ok());
    HostTensor all(DType::I64, {sizes.integer(2)}), rows = ints({}, {sizes.integer(0), sizes.integer(1)});
    EXPECT_TRUE(call("list_give", {number(list)}, {&all, &rows}).ok());
    return values(all);
  }

  Lists lists;
};

TEST_F(ListOpsTest, ListsOfAnyRankComeAndGoPacked) {
  std::vector<HostTensor> tensors = {number(7), vector({1, 2, 3}), ints({4, 5}, {2, 1}), ints({}, {0, 4})};
  auto parts = packList(tensors, DType::I64, /*hasPresent=*/true);
  ASSERT_TRUE(parts.ok());
  EXPECT_THAT(values((*parts)[1]), ElementsAre(0, 0, 0, 1, 3, 0, 2, 2, 1, 2, 0, 4));
  EXPECT_EQ((*parts)[2].integer(0), 1);
  int64_t list = listOf("list_take", *parts);
  EXPECT_THAT(shapes(list), ElementsAre(0, 0, 0, 1, 3, 0, 2, 2, 1, 2, 0, 4));
  EXPECT_THAT(elements(list), ElementsAre(7, 1, 2, 3, 4, 5));
  EXPECT_EQ(packList(std::vector<HostTensor>{HostTensor(DType::F32, {1})}, DType::I64, false).status().code(), ErrorCode::Usage);
}

TEST_F(ListOpsTest, AnOptionalWithoutAValueIsAbsent) {
  auto none = packList(std::nullopt, DType::I64, /*hasPresent=*/true);
  EXPECT_EQ(listOf("list_take", *none), Lists::kAbsent);
  auto single = packList(std::nullopt, DType::I64, /*hasPresent=*/false);
  EXPECT_EQ(listOf("list_take", *single, {{"single", {1}, {}, ""}}), Lists::kAbsent);
  EXPECT_EQ(listOf("list_take", *single), 0); // a sequence without tensors is one
  EXPECT_TRUE(shapes(Lists::kAbsent).empty());
  for (const char *op : {"list_require", "list_length", "list_erase"})
    EXPECT_THAT(errorOf(op, {number(Lists::kAbsent)}), HasSubstr("the optional has no value"));
  EXPECT_THAT(errorOf("list_length", {number(99)}), HasSubstr("no list of this run"));
}

TEST_F(ListOpsTest, WhatDoesNotFitIsRefused) {
  auto stated = [](std::vector<int64_t> dims) {
    return std::vector<engine::Attribute>{{"dims", std::move(dims), {}, ""}, {"ranked", {1}, {}, ""}};
  };
  HostTensor six = vector({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(listOf("list_take", {six, ints({2, 2, 3}, {1, 3})}, stated({-1, 3})), 0);
  EXPECT_THAT(errorOf("list_take", {six, ints({2, 2, 3}, {1, 3})}, stated({-1, 2})), HasSubstr("[2x3] where the model states [?x2]"));
  EXPECT_THAT(errorOf("list_take", {six, ints({1, 6, 0}, {1, 3})}, stated({-1, 2})), HasSubstr("[6] where the model states [?x2]"));
  EXPECT_THAT(errorOf("list_take", {six, ints({3, 2, 3}, {1, 3})}), HasSubstr("rank 3 in shapes of 3 columns"));
  EXPECT_THAT(errorOf("list_take", {six, ints({1, -6}, {1, 2})}), HasSubstr("negative"));
  EXPECT_THAT(errorOf("list_take", {six, ints({1, 7}, {1, 2})}), HasSubstr("more elements than the 6 values"));
  EXPECT_THAT(errorOf("list_take", {six, ints({1, 5}, {1, 2})}), HasSubstr("1 values are no tensor's"));
  EXPECT_THAT(errorOf("list_take", {six, ints({2, INT64_MAX, 2}, {1, 3})}), HasSubstr("too large"));
  EXPECT_THAT(errorOf("list_take", {vector({}), ints({2, int64_t(1) << 58, 0}, {1, 3})}), HasSubstr("too large"));
  EXPECT_THAT(errorOf("list_take", {six, ints({1, 3, 1, 3}, {2, 2})}, {{"single", {1}, {}, ""}}), HasSubstr("2 tensors for an optional"));
  EXPECT_THAT(errorOf("list_take", {six, ints({}, {0, 2})}, {{"single", {1}, {}, ""}}), HasSubstr("for a list that is absent"));
  int64_t list = listOf("list_make", {six});
  EXPECT_THAT(errorOf("list_insert", {number(list), HostTensor(DType::F32, {1})}), HasSubstr("f32 for a list of i64"));
}

TEST_F(ListOpsTest, PositionsCountFromEitherEnd) {
  int64_t list = listOf("list_make", {vector({1}), vector({2, 2})});
  EXPECT_THAT(elements(listOf("list_insert", {number(list), vector({9}), number(0)})), ElementsAre(9, 1, 2, 2));
  EXPECT_THAT(elements(listOf("list_insert", {number(list), vector({9}), number(-1)})), ElementsAre(1, 9, 2, 2));
  EXPECT_THAT(elements(listOf("list_insert", {number(list), vector({9}), number(2)})), ElementsAre(1, 2, 2, 9));
  EXPECT_THAT(elements(listOf("list_erase", {number(list)})), ElementsAre(1));
  EXPECT_THAT(elements(listOf("list_erase", {number(list), number(-2)})), ElementsAre(2, 2));
  EXPECT_THAT(elements(list), ElementsAre(1, 2, 2)); // is what it was
  for (int64_t at : {3, -3})
    EXPECT_THAT(errorOf("list_insert", {number(list), vector({9}), number(at)}), HasSubstr("out of range of a list of 2"));
  for (int64_t at : {2, -3})
    EXPECT_THAT(errorOf("list_erase", {number(list), number(at)}), HasSubstr("out of range of a list of 2"));
  HostTensor sizes = ints({}, {1}), two = ints({}, {2}), three = ints({}, {3});
  ASSERT_TRUE(call("list_dims", {number(list), number(-1)}, {&sizes}).ok());
  EXPECT_EQ(sizes.integer(0), 2);
  ASSERT_TRUE(call("list_at", {number(list), number(-1)}, {&two}).ok());
  EXPECT_THAT(values(two), ElementsAre(2, 2));
  EXPECT_THAT(call("list_at", {number(list), number(-1)}, {&three}).str(), HasSubstr("[2] where [3] are expected"));
  EXPECT_THAT(call("list_dims", {number(list), number(1)}, {&two}).str(), HasSubstr("where one of rank 2 is expected"));
  EXPECT_THAT(errorOf("list_erase", {number(listOf("list_make", {}))}), HasSubstr("empty list"));
  EXPECT_THAT(call("list_at", {number(listOf("list_make", {}))}, {&two}).str(), HasSubstr("an element of an empty list"));
}

/// Both lists that one is the beginning of stay what they are.
TEST_F(ListOpsTest, ListsThatShareElementsStayApart) {
  int64_t first = listOf("list_make", {vector({1})});
  int64_t a = listOf("list_insert", {number(first), vector({2})});
  int64_t b = listOf("list_insert", {number(first), vector({3})});
  int64_t c = listOf("list_insert", {number(a), vector({4})});
  EXPECT_THAT(elements(first), ElementsAre(1));
  EXPECT_THAT(elements(a), ElementsAre(1, 2));
  EXPECT_THAT(elements(b), ElementsAre(1, 3));
  EXPECT_THAT(elements(c), ElementsAre(1, 2, 4));
  int64_t behind = listOf("list_erase", {number(c), number(0)}), ahead = listOf("list_erase", {number(c)});
  EXPECT_THAT(elements(listOf("list_insert", {number(behind), vector({5})})), ElementsAre(2, 4, 5));
  EXPECT_THAT(elements(listOf("list_insert", {number(ahead), vector({6})})), ElementsAre(1, 2, 6));
  EXPECT_THAT(elements(listOf("list_insert", {number(behind), vector({7}), number(0)})), ElementsAre(7, 2, 4));
  EXPECT_THAT(elements(listOf("list_erase", {number(c), number(1)})), ElementsAre(1, 4));
  EXPECT_THAT(elements(c), ElementsAre(1, 2, 4));
}

/// Sizes beside one of 0 are no work.
TEST_F(ListOpsTest, TensorsWithoutElementsMayBeLarge) {
  HostTensor x = ints({}, {int64_t(1) << 50, 0});
  std::vector<engine::Attribute> rows = {{"axis", {0}, {}, ""}}, columns = {{"axis", {1}, {}, ""}};
  int64_t list = listOf("list_split", {x, vector({0, 0})}, columns);
  HostTensor sizes = ints({}, {2});
  ASSERT_TRUE(call("list_join_dims", {number(list)}, {&sizes}, columns).ok());
  EXPECT_THAT(values(sizes), ElementsAre(int64_t(1) << 50, 0));
  ASSERT_TRUE(call("list_join", {number(list)}, {&x}, columns).ok());
  EXPECT_THAT(errorOf("list_split", {x, number(1)}, rows), HasSubstr("parts without elements"));
}

TEST_F(ListOpsTest, PartsAreCutAndJoined) {
  HostTensor x = ints({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 5});
  std::vector<engine::Attribute> axis = {{"axis", {1}, {}, ""}};
  int64_t parts = listOf("list_split", {x, number(2)}, axis);
  EXPECT_THAT(shapes(parts), ElementsAre(2, 2, 2, 2, 2, 2, 2, 2, 1));
  EXPECT_THAT(elements(parts), ElementsAre(1, 2, 6, 7, 3, 4, 8, 9, 5, 10));
  EXPECT_THAT(elements(listOf("list_split", {x, vector({1, 4})}, axis)), ElementsAre(1, 6, 2, 3, 4, 5, 7, 8, 9, 10));
  EXPECT_THAT(errorOf("list_split", {x, number(0)}, axis), HasSubstr("parts of 0"));
  EXPECT_THAT(errorOf("list_split", {x, vector({1, 5})}, axis), HasSubstr("parts of 6 in all split 5"));
  int64_t rows = listOf("list_split", {x}, {{"axis", {0}, {}, ""}, {"keepdims", {0}, {}, ""}});
  EXPECT_THAT(shapes(rows), ElementsAre(1, 5, 1, 5));
  EXPECT_EQ(listOf("list_split", {ints({}, {0, 5}), number(INT64_MAX)}, {{"axis", {0}, {}, ""}}), 3);
  EXPECT_TRUE(shapes(3).empty());

  HostTensor sizes = ints({}, {2}), whole = ints({}, {2, 5}), stacked = ints({}, {5, 2});
  ASSERT_TRUE(call("list_join_dims", {number(parts)}, {&sizes}, axis).ok());
  EXPECT_THAT(values(sizes), ElementsAre(2, 5));
  ASSERT_TRUE(call("list_join", {number(parts)}, {&whole}, axis).ok());
  EXPECT_EQ(whole, x);
  std::vector<engine::Attribute> fresh = {{"axis", {-1}, {}, ""}, {"new_axis", {1}, {}, ""}};
  ASSERT_TRUE(call("list_join", {number(rows)}, {&stacked}, fresh).ok());
  EXPECT_THAT(values(stacked), ElementsAre(1, 6, 2, 7, 3, 8, 4, 9, 5, 10));
  EXPECT_THAT(call("list_join_dims", {number(parts)}, {&sizes}).str(), HasSubstr("[2x2] and [2x1] are joined"));
  EXPECT_THAT(call("list_join_dims", {number(3)}, {&sizes}).str(), HasSubstr("an empty list has nothing to join"));
}

TEST(ListApi, TensorsArePackedAndFoundAgain) {
  const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {7};
  const int64_t two[] = {2, 3}, none[] = {0};
  const lathe_tensor tensors[] = {{const_cast<float *>(a), sizeof a, LATHE_F32, LATHE_HOST, 2, two, nullptr},
                                  {nullptr, 0, LATHE_F32, LATHE_HOST, 1, none, nullptr},
                                  {const_cast<float *>(b), sizeof b, LATHE_F32, LATHE_HOST, 0, nullptr, nullptr}};
  lathe::rt::List list;
  ASSERT_FALSE(list.pack(tensors, LATHE_F32));
  EXPECT_EQ(list.values.dims[0], 7);
  EXPECT_THAT(std::vector<int64_t>(list.shapes.dims, list.shapes.dims + 2), ElementsAre(3, 3));
  lathe_tensor found;
  ASSERT_EQ(lathe_list_at(&list.values, &list.shapes, 0, &found), nullptr);
  EXPECT_THAT(std::vector<float>(static_cast<float *>(found.data), static_cast<float *>(found.data) + 6), ElementsAreArray(a));
  EXPECT_THAT(std::vector<int64_t>(found.dims, found.dims + found.rank), ElementsAre(2, 3));
  ASSERT_EQ(lathe_list_at(&list.values, &list.shapes, 1, &found), nullptr);
  EXPECT_EQ(found.bytes, 0u);
  ASSERT_EQ(lathe_list_at(&list.values, &list.shapes, 2, &found), nullptr);
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(*static_cast<float *>(found.data), 7);

  auto codeOf = [](lathe_error *error) {
    const lathe_code code = error ? lathe_error_code(error) : LATHE_OK;
    lathe_error_free(error);
    return code;
  };
  EXPECT_EQ(codeOf(lathe_list_at(&list.values, &list.shapes, 3, &found)), LATHE_USAGE);
  EXPECT_EQ(codeOf(lathe_list_at(&list.values, &list.shapes, UINT64_MAX, &found)), LATHE_USAGE);
  EXPECT_EQ(codeOf(lathe_list_at(&list.values, &list.values, 0, &found)), LATHE_USAGE);
  lathe_tensor shorter = list.values;
  shorter.bytes = 24;
  EXPECT_EQ(codeOf(lathe_list_at(&shorter, &list.shapes, 2, &found)), LATHE_USAGE);
  shorter = list.values;
  shorter.bytes = 4;
  EXPECT_EQ(codeOf(lathe_list_pack(tensors, 3, &shorter, &list.shapes)), LATHE_USAGE);
  EXPECT_EQ(codeOf(lathe_list_pack(tensors, 3, &list.shapes, &list.shapes)), LATHE_USAGE); // i64

  // Parts and tensors that are not there, or not the host's.
  auto packs = [&](auto change) {
    lathe_tensor tensor = tensors[0], room = list.values;
    change(tensor, room);
    return codeOf(lathe_list_pack(&tensor, 1, &room, &list.shapes));
  };
  EXPECT_EQ(packs([](auto &, auto &) {}), LATHE_OK);
  EXPECT_EQ(packs([](auto &tensor, auto &) { tensor.memory = LATHE_DEVICE; }), LATHE_USAGE);
  EXPECT_EQ(packs([](auto &tensor, auto &) { tensor.dims = nullptr; }), LATHE_USAGE);
  EXPECT_EQ(packs([](auto &tensor, auto &) { tensor.data = nullptr; }), LATHE_USAGE);
  EXPECT_EQ(packs([](auto &tensor, auto &) { tensor.bytes = 20; }), LATHE_USAGE);
  EXPECT_EQ(packs([](auto &, auto &room) { room.memory = LATHE_DEVICE; }), LATHE_USAGE);
  EXPECT_FALSE(list.pack(tensors, LATHE_F32));
  auto finds = [&](auto change) {
    lathe_tensor values = list.values, shapes = list.shapes;
    change(values, shapes);
    return codeOf(lathe_list_at(&values, &shapes, 0, &found));
  };
  EXPECT_EQ(finds([](auto &, auto &) {}), LATHE_OK);
  for (bool ofShapes : {false, true}) {
    auto changed = [&](auto change) {
      return finds([&](auto &values, auto &shapes) { change(ofShapes ? shapes : values); });
    };
    EXPECT_EQ(changed([](auto &part) { part.data = nullptr; }), LATHE_USAGE);
    EXPECT_EQ(changed([](auto &part) { part.dims = nullptr; }), LATHE_USAGE);
    EXPECT_EQ(changed([](auto &part) { part.memory = LATHE_DEVICE; }), LATHE_USAGE);
    EXPECT_EQ(changed([](auto &part) { part.memory = LATHE_DISCARD; }), LATHE_USAGE);
    EXPECT_EQ(changed([](auto &part) { part.bytes -= 1; }), LATHE_USAGE);
  }
  EXPECT_FALSE(list.pack({}, LATHE_F32));
  EXPECT_EQ(list.shapes.dims[0], 0);
  EXPECT_EQ(list.shapes.dims[1], 1);
}

} // namespace
