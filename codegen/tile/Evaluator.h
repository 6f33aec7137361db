//===- Evaluator.h - values of a kernel region on demand --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The core of code generation: "give me the value of %v at index (i0, i1, ..)",
// where the indices may stand for W consecutive lanes. Each lathe op has a rule
// that asks for its operands in turn; block arguments are loads. So fusion
// needs no code of its own: any graph of pointwise, movement and gather ops is
// one expression, and equal requests give the same SSA value (memo).
//
// Values come in their *compute type*: f16, bf16 and the 8-bit floats as f32,
// i1 as i1, unsigned and 4-bit integers as signless. A value that is the same
// for all lanes is a scalar, another one a vector<W x T>.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TILE_EVALUATOR_H
#define LATHE_CODEGEN_TILE_EVALUATOR_H

#include "IndexMath.h"

#include "lathe/codegen/Codegen.h"
#include "lathe/ir/Tile.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace lathe::codegen {

class Evaluator;
/// The value of an op's result at an index.
using Rule = mlir::Value (*)(Evaluator &, mlir::OpResult, const Indices &);
const Rule *findRule(mlir::Operation *op);

class Evaluator {
public:
  /// `fn` has the buffers of the spec (or those of its launch) and then its
  /// symbols as arguments; `width` is the number of lanes, `threads` of a block.
  Evaluator(mlir::OpBuilder &b, mlir::func::FuncOp fn, const KernelSource &kernel, int64_t width,
            int64_t threads);

  mlir::OpBuilder &b;
  IndexMath ix;
  const KernelSource &kernel;
  mlir::func::FuncOp fn;
  const int64_t width, threads;
  mlir::Location loc;

  /// The op that the kernel is built around; null, with an error, where the roles name none such.
  template <typename OpTy> OpTy anchor() {
    auto op = anchorOf<OpTy>(kernel);
    failed |= !op;
    return op;
  }
  /// The value at an index of the tensor's rank; never null. After an error
  /// (reported at the op) it is some constant and `failed` is set.
  mlir::Value eval(mlir::Value v, const Indices &idx);
  mlir::Value fail(mlir::Operation *op, const llvm::Twine &why);
  bool failed = false;
  /// Lanes that count, from the first on: at a static tail fewer than `width`.
  /// Loads and stores leave the others alone; what they compute is never used.
  int64_t active;
  /// Sets the number of active lanes while it lives.
  struct ActiveLanes {
    ActiveLanes(Evaluator &e, int64_t lanes) : e(e), before(e.active) { e.active = lanes; }
    ~ActiveLanes() { e.active = before; }
    ActiveLanes(const ActiveLanes &) = delete;
    Evaluator &e;
    int64_t before;
  };
  /// Says what `v` is at `idx`: accumulators of a contraction, state of a scan.
  void bind(mlir::Value v, const Indices &idx, mlir::Value is);
  /// While set: an op whose results are known where they were bound alone, and made nowhere else.
  mlir::Operation *boundAlone = nullptr;
  bool known(mlir::Value v, const Indices &idx) { return lookup(v, idx) != nullptr; }
  /// While set, a value is read from (or was put into) memory of its own: the
  /// element offset follows from the index.
  struct Spill {
    mlir::Value buffer;
    std::function<Index(const Indices &)> offset;
  };
  std::map<void *, Spill> spilled;

  /// While set: elements that lie one after another without regard to the ends of rows. In a dense
  /// buffer of `dims` the index `idx` (of a vector of lanes) is at `at`.
  struct Dense {
    std::vector<DimExpr> dims;
    Indices idx;
    Index at;
  };
  std::optional<Dense> dense;

  /// Stores a value of compute type into an output (argument number of `fn`).
  void store(mlir::Value value, mlir::Value result, unsigned output, const Indices &idx);
  /// Element offset of an index in a tensor with these allocated sizes.
  Index offset(const std::vector<DimExpr> &physical, const Indices &idx);
  /// The same for an argument that a packing recipe has rearranged.
  Index packedOffset(const BufferArg &buf, const Indices &idx);
  /// Reads element(s) at an offset of a buffer, in the compute type of `element`.
  mlir::Value load(mlir::Value buffer, mlir::Type element, const Index &at);
  void storeAt(mlir::Value value, mlir::Type element, mlir::Value buffer, const Index &at);
  /// While set, results are stored only where it is true.
  mlir::Value storeGuard;
  mlir::Value buffer(unsigned arg) { return fn.getArgument(arg); }
  const BufferArg &bufferArg(unsigned n) { return kernel.spec->buffers[n]; }
  unsigned outputArg(unsigned n) { return kernel.spec->numInputs + n; }
  mlir::Value outputValue(unsigned n) { return kernel.body->getTerminator()->getOperand(n); }

  // Building blocks of rules.
  static mlir::Type computeType(mlir::Type element);
  static mlir::Type storageType(mlir::Type element); ///< of memrefs: signless, bool as i8
  /// 2 or 4 for types of which several lie in a byte, the first lowest; else 0.
  static unsigned bitsBelowByte(mlir::Type element);
  /// A value of such a type as its bits (i8), and back.
  mlir::Value toCode(mlir::Value v, mlir::Type element);
  mlir::Value fromCode(mlir::Value code, mlir::Type element);
  static bool isUnsigned(mlir::Value v) { return elementTypeOf(v).isUnsignedInteger(); }
  bool isVector(mlir::Value v) { return llvm::isa<mlir::VectorType>(v.getType()); }
  mlir::Type scalarType(mlir::Value v) { return mlir::getElementTypeOrSelf(v.getType()); }
  mlir::Type vectorOf(mlir::Type scalar) { return mlir::VectorType::get({width}, scalar); }
  /// This element type in the shape of `v` (a part of a vector may be shorter).
  mlir::Type like(mlir::Value v, mlir::Type scalar) {
    auto vector = llvm::dyn_cast<mlir::VectorType>(v.getType());
    return vector ? mlir::Type(vector.clone(scalar)) : scalar;
  }
  mlir::Value splat(mlir::Value v);                 ///< scalar -> vector; vectors stay
  void unify(mlir::Value &x, mlir::Value &y);       ///< both scalars or both vectors
  mlir::Value lane(mlir::Value v, int64_t l);       ///< scalar of lane l
  mlir::Value fromLanes(llvm::ArrayRef<mlir::Value> lanes);
  mlir::Value constant(mlir::Type type, double v);  ///< splat for vectors; any compute type
  mlir::Value constantInt(mlir::Type type, int64_t v);
  mlir::Value zero(mlir::Value v) { return constant(scalarType(v), 0); }
  mlir::Value cast(mlir::Value v, mlir::Type from, mlir::Type to, bool saturate);
  /// A float as an i32 or i64; `isUnsigned`: the i64 has the bits of a u64.
  mlir::Value truncate(mlir::Value v, mlir::Type to, bool isUnsigned);
  /// An f64 as the f32 that rounds to the same number of a type of at most 16 bits.
  mlir::Value narrowable(mlir::Value v);
  /// An i64 or u64 as one that f64 holds and that rounds to the same number of a type of at most 32 bits.
  mlir::Value heldByF64(mlir::Value v, bool isUnsigned);
  /// The bits of a power of two without sign (f8E8M0FNU).
  mlir::Value toExponent(mlir::Value v, bool saturate);
  /// To and from what memory holds.
  mlir::Value toStorage(mlir::Value v, mlir::Type element);
  mlir::Value fromStorage(mlir::Value v, mlir::Type element);
  mlir::Value select(mlir::Value c, mlir::Value x, mlir::Value y);
  mlir::Value combine(ReduceKind kind, mlir::Value x, mlir::Value y, bool isUnsigned);
  mlir::Value neutral(ReduceKind kind, mlir::Type scalar, bool isUnsigned);
  mlir::Value horizontal(ReduceKind kind, mlir::Value vec, bool isUnsigned); ///< tree over lanes
  mlir::Value blockReduce(ReduceKind kind, mlir::Value scalar, bool isUnsigned);
  /// index -> integer or float scalar/vector of this compute type.
  mlir::Value indexToValue(const Index &i, mlir::Type scalar);
  /// Integer value(s) -> checked index in [0, size).
  Index checkedIndex(mlir::Value v, mlir::Value size);
  mlir::Value toIndex(mlir::Value v, bool isUnsigned); ///< value -> index (or vector of)

  template <typename OpTy, typename... Args> mlir::Value make(Args &&...args) {
    return OpTy::create(b, loc, std::forward<Args>(args)...);
  }

  // Regions: each has a memo scope of its own.
  using Body = llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value iv,
                                                                mlir::ValueRange args)>;
  llvm::SmallVector<mlir::Value> loop(mlir::Value lo, mlir::Value hi, mlir::Value step,
                                      mlir::ValueRange inits, Body body);
  void loop(mlir::Value lo, mlir::Value hi, mlir::Value step,
            llvm::function_ref<void(mlir::Value)> body);
  void ifThen(mlir::Value condition, llvm::function_ref<void()> then,
              llvm::function_ref<void()> otherwise = {});
  mlir::Value ifElse(mlir::Value condition, llvm::function_ref<mlir::Value()> then,
                     llvm::function_ref<mlir::Value()> otherwise);
  llvm::SmallVector<mlir::Value>
  ifElse(mlir::Value condition, mlir::TypeRange types,
         llvm::function_ref<llvm::SmallVector<mlir::Value>()> then,
         llvm::function_ref<llvm::SmallVector<mlir::Value>()> otherwise);
  /// A vector made lane after lane by scalar evaluation (a run-time loop).
  mlir::Value lanewise(mlir::Type scalar, const Indices &idx,
                       llvm::function_ref<mlir::Value(const Indices &)> one);

  /// Runs over [0, n) of a row: `body(index, args)` with lanes where a whole
  /// vector fits and without at the tail. Accumulators are vectors in the first
  /// loop and come back as scalars, combined over lanes, tail and, when
  /// `cooperative`, the threads of the block.
  struct Accumulator {
    ReduceKind kind;
    mlir::Type type; ///< scalar compute type
    bool isUnsigned;
  };
  llvm::SmallVector<mlir::Value>
  reduceRow(const DimExpr &n, llvm::ArrayRef<Accumulator> accs,
            llvm::function_ref<llvm::SmallVector<mlir::Value>(const Index &)> body);
  /// The same without accumulators: every element of the row once.
  void overRow(const DimExpr &n, llvm::function_ref<void(const Index &)> body);
  /// Set by the row schedule while control flow is uniform over the block.
  bool cooperative = false;
  /// Vectors of a row that a thread may have in registers.
  int64_t unrolledChunks = 8;

  /// Across a reduction keeps only the vectors of 16-bit floats of this scope, and computes what follows
  /// from them again: a thread then holds 16 bits of each element instead of 32.
  void keepPacked();

  /// Made once, at the head: equal indices must look equal everywhere. The threads are those that
  /// work together: of a block, of one of its thread `groups()`, or of the blocks of a cluster.
  mlir::Value threadId();
  mlir::Value blockId(); ///< or cluster
  mlir::Value firstBlock(); ///< of those that this worker claimed together
  mlir::Value groupId();  ///< in the block
  int64_t groups() const { return std::max<int64_t>(1, blockThreads / threads); }

  void pushScope();
  void popScope();

private:
  mlir::Value headOp(llvm::function_ref<mlir::Value()> make);
  int64_t blockThreads, timesPacked = 0;
  mlir::Value thread, block, claim, group;
  struct MemoKey {
    void *value;
    llvm::SmallVector<std::tuple<void *, int64_t, void *>, 4> idx;
    bool operator<(const MemoKey &o) const {
      return value != o.value ? value < o.value
                              : std::lexicographical_compare(idx.begin(), idx.end(), o.idx.begin(),
                                                             o.idx.end());
    }
  };
  static MemoKey key(mlir::Value v, const Indices &idx);
  const mlir::Value *lookup(mlir::Value v, const Indices &idx);
  mlir::Value loadArgument(mlir::BlockArgument arg, const Indices &idx);

  std::vector<std::map<MemoKey, mlir::Value>> memo;
  /// Loaded vectors of 16-bit floats, of the scope of this number, that keepPacked() has seen.
  std::map<MemoKey, mlir::Value> packed;
  size_t packedScope = 0;
};

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_TILE_EVALUATOR_H
