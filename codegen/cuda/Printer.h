//===- Printer.h - tile IR as CUDA C++ --------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints a function of tile, arith, math, scf and vector ops as C++ over the
// device library (codegen/device). One line an op; constants stand where they
// are used. What has no CUDA form is an error located at the op.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CUDA_PRINTER_H
#define LATHE_CODEGEN_CUDA_PRINTER_H

#include "lathe/ir/Tile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace lathe::codegen {

/// Names of a kernel's arguments, shared by the kernel and its holes.
struct ArgumentNames {
  /// in0.., out0.., work0.. for buffers and dim_<symbol> for symbols.
  std::vector<std::string> names;
  std::vector<bool> shared;   ///< by buffer: another argument may be the same memory
  std::vector<bool> constant; ///< by buffer: never written while the kernel runs
  static ArgumentNames of(const struct KernelSource &kernel);
  /// For a kernel that starts while the one before still writes: nothing may be read through the
  /// cache of constants, which may hold what lay there before.
  void shareAll() {
    shared.assign(shared.size(), true);
    constant.assign(constant.size(), false);
  }
};

class Printer {
public:
  struct Options {
    /// Results are rounded to 16 bits: the fast forms of functions suffice.
    bool fastMath = false;
    int64_t threads = 1; ///< of a block
    int64_t group = 1, cluster = 1; ///< threads and blocks that reduce together
    int64_t step = 0;    ///< reported with a bad index
    bool programmatic = false; ///< starts before those ahead of it are over, and waits
  };
  Printer(llvm::raw_ostream &os, Options options) : os(os), options(options) {}

  /// `extern "C" __global__` of a tile kernel: buffers, symbols, status word.
  mlir::LogicalResult kernel(mlir::func::FuncOp fn, const ArgumentNames &args);
  /// A member function `name` of a struct of holes: the leading arguments, as
  /// many as `args` has, are members; those behind are its parameters
  /// `params`. At most one result.
  mlir::LogicalResult method(mlir::func::FuncOp fn, llvm::StringRef name, const ArgumentNames &args,
                             llvm::ArrayRef<std::string> params);

  /// C++ type of a value, "" with an error at `loc` when it has none.
  std::string type(mlir::Type t, mlir::Location loc);

private:
  void body(mlir::Block &block);
  void op(mlir::Operation &op);
  // Each family prints the op and says true, or says false when it is not one of its own.
  bool structureOp(mlir::Operation &op); ///< scf, tile, func
  bool arithmeticOp(mlir::Operation &op);
  bool integerOp(mlir::Operation &op);
  bool castOp(mlir::Operation &op);
  bool vectorOp(mlir::Operation &op);
  void loop(mlir::scf::ForOp op);
  void branch(mlir::scf::IfOp op);
  void load(tile::LoadOp op);
  void store(tile::StoreOp op);

  /// "const T vN = expr;"
  void define(mlir::Value result, const llvm::Twine &expr);
  /// "T vN;" or "T vN = expr;", assigned later.
  std::string variable(mlir::Value result, const llvm::Twine &init = "");
  void assign(mlir::ValueRange targets, mlir::ValueRange values);
  std::string use(mlir::Value v);
  std::string use(mlir::Operation &op, unsigned operand) { return use(op.getOperand(operand)); }
  std::string constant(mlir::Attribute attr, mlir::Type type, mlir::Location loc);
  std::string typeOf(mlir::Value v) { return type(v.getType(), v.getLoc()); }
  std::string fresh() { return "v" + std::to_string(next++); }
  llvm::raw_ostream &line() { return os.indent(2 * depth); }
  void fail(mlir::Operation &op, const llvm::Twine &why);
  static bool isShared(mlir::Value buffer) {
    return buffer.getDefiningOp<tile::ScratchOp>() != nullptr;
  }

  llvm::raw_ostream &os;
  Options options;
  llvm::DenseMap<mlir::Value, std::string> names;
  llvm::StringSet<> constants; ///< buffers that nothing writes while the kernel runs
  int next = 0, depth = 0;
  int reductions = 0;          ///< printed so far
  bool reductionsLoop = false; ///< one of them is in a loop
  bool failed = false;
};

/// Rewrites activations that are written in parts into calls of the device library's fast
/// functions (FastForms.cpp); for kernels whose results have 16 bits. The calls have no callee in
/// the IR: the function can only be printed.
void useFastForms(mlir::func::FuncOp fn);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CUDA_PRINTER_H
