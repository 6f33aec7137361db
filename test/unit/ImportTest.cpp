//===- ImportTest.cpp - ONNX files from outside, and their report ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/Import.h"
#include "lathe/ir/Lathe.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/passes/Legalize.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace lathe;

namespace {

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7)
    out.push_back(char(value | 0x80));
  out.push_back(char(value));
  return out;
}
std::string field(unsigned number, uint64_t value) { return varint(number << 3) + varint(value); }
std::string field(unsigned number, const std::string &bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string floatTensorType(std::initializer_list<uint64_t> sizes) {
  std::string shape;
  for (uint64_t size : sizes)
    shape += field(1, field(1, size));
  return field(1, field(1, uint64_t(1)) + field(2, shape));
}

/// y = relu(x + w) with w of 128 floats as raw_data, which is above what stays
/// inside the message.
std::string smallModel() {
  std::string raw(512, '\0');
  for (size_t i = 0; i < raw.size(); ++i)
    raw[i] = char(i * 7);
  std::string weight = field(1, uint64_t(4)) + field(1, uint64_t(32)) + field(2, uint64_t(1)) +
                       field(8, "w") + field(9, raw);
  std::string add =
      field(1, "x") + field(1, "w") + field(2, "s") + field(3, "sum") + field(4, "Add");
  std::string relu = field(1, "s") + field(2, "y") + field(3, "act") + field(4, "Relu");
  std::string graph = field(1, add) + field(1, relu) + field(2, "g") + field(5, weight) +
                      field(11, field(1, "x") + field(2, floatTensorType({4, 32}))) +
                      field(12, field(1, "y") + field(2, floatTensorType({4, 32})));
  return field(1, uint64_t(8)) + field(7, graph) + field(8, field(1, "") + field(2, uint64_t(17)));
}

class ImportTest : public testing::Test {
protected:
  ~ImportTest() override { std::remove(path.c_str()); }
  Result<mlir::OwningOpRef<mlir::ModuleOp>> import(const std::string &bytes,
                                                   const ImportOptions &options = {}) {
    std::ofstream(path, std::ios::binary) << bytes;
    return importOnnx(context, path, options);
  }
  mlir::func::FuncOp entry(mlir::ModuleOp module) {
    return *module.getOps<mlir::func::FuncOp>().begin();
  }

  mlir::MLIRContext context;
  mlir::ScopedDiagnosticHandler quiet{&context, [](mlir::Diagnostic &) { return mlir::success(); }};
  std::string path = testing::TempDir() + "lathe-import-" + std::to_string(getpid()) + ".onnx";
};

TEST_F(ImportTest, WeightsKeepTheirBytes) {
  auto module = import(smallModel());
  ASSERT_TRUE(module.ok()) << module.status().str();
  auto constants = entry(**module).getOps<ConstantOp>();
  ASSERT_FALSE(constants.empty());
  auto weight = llvm::dyn_cast<WeightAttr>((*constants.begin()).getValue());
  ASSERT_TRUE(weight);
  auto bytes = context.getLoadedDialect<LatheDialect>()->weights().get(weight);
  ASSERT_TRUE(bytes.ok());
  ASSERT_EQ(bytes->size(), 512u);
  for (size_t i = 0; i < bytes->size(); ++i)
    ASSERT_EQ(uint8_t((*bytes)[i]), uint8_t(i * 7));
}

TEST_F(ImportTest, EveryTruncationIsAnErrorOrAModel) {
  std::string bytes = smallModel();
  int refused = 0;
  for (size_t length = 0; length < bytes.size(); ++length) {
    auto module = import(bytes.substr(0, length));
    if (!module.ok()) {
      ++refused;
      EXPECT_TRUE(module.status().code() == ErrorCode::Invalid ||
                  module.status().code() == ErrorCode::Unsupported)
          << module.status().str();
      EXPECT_NE(module.status().str().find(path), std::string::npos);
    }
  }
  // The opset comes last, so no proper prefix is a whole model.
  EXPECT_EQ(refused, int(bytes.size()));
}

TEST_F(ImportTest, BitFlipsAreErrorsOrModels) {
  std::string bytes = smallModel();
  int refused = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 5) {
    // Bits of the weight itself change values alone.
    if (bit / 8 > 120 && bit / 8 < 560 && bit % 61)
      continue;
    std::string flipped = bytes;
    flipped[bit / 8] = char(flipped[bit / 8] ^ (1 << (bit % 8)));
    auto module = import(flipped);
    if (!module.ok()) {
      ++refused;
      continue;
    }
    LegalizeReport report;
    if (mlir::succeeded(legalize(**module, report))) {
      EXPECT_TRUE(mlir::succeeded(mlir::verify(**module))) << "bit " << bit;
    } else {
      EXPECT_NE(report.code(), ErrorCode::Ok);
    }
  }
  EXPECT_GT(refused, 50);
}

constexpr const char *kPad = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 3] x, int64[4] pads) => (float[K, L] y) { y = Pad <mode = "reflect"> (x, pads) })";

/// How many axes are cut cannot come with the run.
constexpr const char *kCuts = R"(<ir_version: 9, opset_import: ["" : 18]>
g (float[N, 6] x, int64[K] starts) => (float[N, M] y)
<int64[1] ends = {6}, int64[1] axes = {1}>
{
  y = Slice(x, starts, ends, axes)
})";

TEST_F(ImportTest, ReportNamesNeededInputsAndConstantsHelp) {
  auto module = import(kCuts);
  ASSERT_TRUE(module.ok()) << module.status().str();
  LegalizeReport report;
  ASSERT_TRUE(mlir::failed(legalize(**module, report)));
  EXPECT_EQ(report.code(), ErrorCode::Unsupported);
  ASSERT_EQ(report.nodes.size(), 1u);
  EXPECT_EQ(report.nodes[0].needs, std::vector<std::string>{"starts"});
  EXPECT_EQ(report.nodes[0].node, "Slice_0");
  EXPECT_NE(report.json().find("\"op\":\"Slice\""), std::string::npos);

  ImportOptions options;
  HostTensor starts(DType::I64, {1});
  starts.setInteger(0, 3);
  options.constants["starts"] = starts;
  module = import(kCuts, options);
  ASSERT_TRUE(module.ok()) << module.status().str();
  report = {};
  ASSERT_TRUE(mlir::succeeded(legalize(**module, report)));
  EXPECT_EQ(entry(**module).getNumArguments(), 1u);
  EXPECT_EQ(dimsOf(entry(**module).getResultTypes()[0]),
            (std::vector<DimExpr>{DimExpr::symbol("N"), 3}));
}

TEST_F(ImportTest, ConstantsMustFitTheirInput) {
  ImportOptions options;
  options.constants["pads"] = HostTensor(DType::I32, {4});
  EXPECT_EQ(import(kPad, options).status().code(), ErrorCode::Usage);
  options.constants.clear();
  options.constants["pads"] = HostTensor(DType::I64, {2});
  EXPECT_EQ(import(kPad, options).status().code(), ErrorCode::Usage);
  options.constants.clear();
  options.constants["nothing"] = HostTensor(DType::I64, {1});
  EXPECT_EQ(import(kPad, options).status().code(), ErrorCode::Usage);
}

TEST_F(ImportTest, WrongModelsAreInvalidNotUnsupported) {
  auto module = import(R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3] x, int64[2, 3] i) => (float[2, 3] y) { y = Add(x, i) })");
  ASSERT_TRUE(module.ok()) << module.status().str();
  LegalizeReport report;
  ASSERT_TRUE(mlir::failed(legalize(**module, report)));
  EXPECT_EQ(report.code(), ErrorCode::Invalid);
}

TEST_F(ImportTest, SameFileSameText) {
  auto text = [&] {
    mlir::MLIRContext fresh;
    std::ofstream(path, std::ios::binary) << smallModel();
    auto module = importOnnx(fresh, path, {});
    std::string out;
    if (module.ok())
      llvm::raw_string_ostream(out) << **module;
    return out;
  };
  std::string first = text();
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(first, text());
}

} // namespace
