//===- SkeletonTranspose.cpp - transposes and what is around them -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills transpose.cuh: what the transpose reads is the load, everything that
// follows it in the kernel is the write; and transpose_box.cuh, whose sizes are constants.
//
//===----------------------------------------------------------------------===//

#include "Holes.h"

#include "lathe/codegen/TransposeTile.h"
#include "lathe/ir/MergedTranspose.h"

using namespace mlir;

namespace lathe::codegen {

/// "static constexpr i64 NAME(int d)", folded where loops are unrolled.
static void lineOfNumbers(Holes &holes, StringRef name, ArrayRef<int64_t> values) {
  std::string text;
  for (auto [d, value] : llvm::enumerate(values))
    text += (d + 1 < values.size() ? "d == " + std::to_string(d) + " ? " : std::string()) + std::to_string(value) +
            (d + 1 < values.size() ? " : " : "");
  holes.line("static LATHE_METHOD constexpr i64 " + name + "(int d) { return " + text + "; }");
}

static FailureOr<std::string> boxText(const KernelSource &kernel, const KernelConfig &config) {
  Holes holes(kernel, config);
  TransposeOp op = onlyTranspose(*kernel.body);
  std::vector<int64_t> sizes;
  MergedTranspose merged;
  if (op) {
    merged = MergedTranspose::of(op);
    for (const DimExpr &size : merged.sizes)
      sizes.push_back(size.constant().value_or(0));
  }
  if (!op || sizes.size() < 2 || llvm::is_contained(sizes, 0) ||
      llvm::any_of(kernel.spec->buffers, [](const BufferArg &b) { return b.physical != b.dims; }))
    return mlir::emitError(kernel.body->getTerminator()->getLoc())
           << "CUDA text: configuration '" << kernel.spec->config << "' needs a transpose of known sizes and nothing else";
  Type storage = Evaluator::storageType(elementTypeOf(op.getResult()));
  const int64_t bytes = storage.getIntOrFloatBitWidth() / 8, rank = sizes.size();
  const TransposeTile tile = TransposeTile::of(sizes, merged.from, bytes, config.tileM);
  const std::vector<int64_t> order = tile.operandOrder();
  std::vector<int64_t> from(rank), to(rank);
  int64_t read = 1, written = 1;
  for (int64_t d = rank; d-- > 0;) {
    from[order[d]] = read;
    read *= sizes[order[d]];
    to[d] = written;
    written *= sizes[d];
  }
  holes.line("typedef " + Holes::typeText(storage) + " Element;");
  holes.line("static constexpr int RANK = " + Twine(rank) + ", SHARED = " + Twine(tile.sharedElements(bytes)) + ";");
  lineOfNumbers(holes, "size", sizes);
  lineOfNumbers(holes, "extent", tile.extents);
  lineOfNumbers(holes, "order", order);
  lineOfNumbers(holes, "fromStride", from);
  lineOfNumbers(holes, "toStride", to);
  lineOfNumbers(holes, "sharedStride", tile.sharedStrides(bytes));
  holes.line("LATHE_METHOD const Element *from() const { return in" +
             std::to_string(cast<BlockArgument>(op.getX()).getArgNumber()) + "; }");
  holes.line("LATHE_METHOD Element *to() const { return out0; }");
  return holes.text(config.form->memory.text(config, {}));
}

FailureOr<std::string> transposeText(const KernelSource &kernel, const KernelConfig &config) {
  if (config.form->memory.boxes)
    return boxText(kernel, config);
  Holes holes(kernel, config);
  auto op = opAt<TransposeOp>(*kernel.body, kernel.roles.transpose);
  if (!op)
    return mlir::emitError(kernel.body->getTerminator()->getLoc())
           << "CUDA text: configuration '" << kernel.spec->config
           << "' needs a transpose of the output's sizes";
  ArrayRef<int64_t> perm = op.getPerm();
  int64_t rank = perm.size(), rowDim = llvm::find(perm, rank - 1) - perm.begin(),
          lanes = config.lanes;
  std::vector<DimExpr> dims = dimsOf(op.getResult()), outer;
  for (int64_t d = 0; d + 1 < rank; ++d)
    if (d != rowDim)
      outer.push_back(dims[d]);
  Type element = elementTypeOf(op.getResult()), storage = Evaluator::storageType(element);
  // Index in the result of (outer, row, column).
  auto place = [&](Evaluator &e, Value o, const Index &row, const Index &column) {
    Indices split = delinearize(e, Index(o), outer), idx;
    size_t next = 0;
    for (int64_t d = 0; d < rank; ++d)
      idx.push_back(d == rowDim ? row : d == rank - 1 ? column : split[next++]);
    return idx;
  };
  auto multiple = [&](Evaluator &e, Value v) {
    return Index(e.ix.mul(v, lanes), lanes > 1 ? 1 : 0);
  };

  holes.line("typedef " + Holes::typeText(storage) + " Element;");
  holes.line("static constexpr int kLanes = " + Twine(lanes) + ";");
  Type loaded = lanes > 1 ? Type(VectorType::get({lanes}, storage)) : storage;
  holes.method("read", {"outer", "piece", "column"}, loaded, lanes,
               [&](Evaluator &e, ValueRange p) {
                 Indices at = place(e, p[0], multiple(e, p[1]), Index(p[2])), from(rank);
                 for (int64_t d = 0; d < rank; ++d)
                   from[perm[d]] = at[d];
                 Value v = e.eval(op.getX(), from);
                 return e.toStorage(lanes > 1 ? e.splat(v) : v, element);
               });
  holes.method(
      "put", {"outer", "row", "piece", "value"}, Type(), lanes,
      [&](Evaluator &e, ValueRange p) {
        Holes::storeResult(e, op.getResult(), place(e, p[0], Index(p[1]), multiple(e, p[2])),
                           e.fromStorage(p[3], element));
        return Value();
      },
      storage);
  std::string wrap = lanes > 1 ? "return read(" : "return Vec<Element, 1>{{read(";
  holes.line("LATHE_METHOD Vec<Element, kLanes> load(i64 outer, i64 row, i64 column) const { " +
             wrap + "outer, row / kLanes, column)" + (lanes > 1 ? "" : "}}") + "; }");
  holes.line("LATHE_METHOD void write(i64 outer, i64 row, i64 column, const Vec<Element, kLanes> "
             "&v) const { "
             "put(outer, row, column / kLanes, " +
             Twine(lanes > 1 ? "v" : "v.v[0]") + "); }");
  return holes.text(
      config.form->memory.text(config, {holes.dim(dims[rowDim]), holes.dim(dims[rank - 1])}));
}

} // namespace lathe::codegen
