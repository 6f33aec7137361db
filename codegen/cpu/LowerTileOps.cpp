//===- LowerTileOps.cpp - tile ops on one CPU thread -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block has one thread here: thread_id is 0, block_reduce the identity, a
// barrier nothing. Buffers become plain pointers, so no memref descriptor
// exists below this point.
//
// Before:  %v = tile.load %x[%i] : memref<?xf32> -> vector<16xf32>
// After:   %p = llvm.getelementptr %x[%i'] : (!llvm.ptr, i64) -> !llvm.ptr, f32
//          %v = llvm.load %p {alignment = 4} : !llvm.ptr -> vector<16xf32>
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

#include "lathe/codegen/Target.h"
#include "lathe/engine/KernelAbi.h"
#include "lathe/ir/Tile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <cstddef>

using namespace mlir;

namespace lathe::codegen {
namespace {

struct TileLowering {
  func::FuncOp fn;
  OpBuilder b;
  Value helpers, status, scratch, team, firstBlock, block;
  LLVM::LLVMPointerType ptr;
  int64_t step;
  bool pairProducts = false, byteProducts = false, isArm = false; ///< of the target

  Value i64(Location loc, Value index) {
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), index);
  }

  /// The memory type of a value: LLVM has no 8-bit floats, and must not see bf16
  /// either, because it would turn bit operations into bf16 arithmetic, which
  /// this machine does in library calls.
  static Type memoryType(Type type) {
    auto convert = [](Type element) -> Type {
      if (isa<FloatType>(element) && (element.getIntOrFloatBitWidth() == 8 || element.isBF16()))
        return IntegerType::get(element.getContext(), element.getIntOrFloatBitWidth());
      return element;
    };
    if (auto v = dyn_cast<VectorType>(type))
      return v.clone(convert(v.getElementType()));
    return convert(type);
  }

  Value address(Location loc, Value buffer, Value offset) {
    Type element = memoryType(cast<MemRefType>(buffer.getType()).getElementType());
    Value base = pointers.at(buffer.getAsOpaquePointer());
    return LLVM::GEPOp::create(b, loc, ptr, element, base, ValueRange{i64(loc, offset)},
                               LLVM::GEPNoWrapFlags::inbounds);
  }

  static unsigned alignment(Type type, bool aligned) {
    Type element = getElementTypeOrSelf(type);
    unsigned bytes = std::max(1u, element.getIntOrFloatBitWidth() / 8);
    if (auto v = dyn_cast<VectorType>(type); v && aligned)
      return bytes * v.getNumElements();
    return bytes;
  }

  Value load(tile::LoadOp op) {
    Type type = op.getValue().getType(), memory = memoryType(type);
    Value v = LLVM::LoadOp::create(b, op.getLoc(), memory,
                                   address(op.getLoc(), op.getBuffer(), op.getOffset()),
                                   alignment(type, op.getAligned()));
    if (memory != type)
      v = arith::BitcastOp::create(b, op.getLoc(), type, v);
    return v;
  }

  void store(tile::StoreOp op) {
    Value v = op.getValue();
    Type type = v.getType(), memory = memoryType(type);
    if (memory != type)
      v = arith::BitcastOp::create(b, op.getLoc(), memory, v);
    LLVM::StoreOp::create(b, op.getLoc(), v, address(op.getLoc(), op.getBuffer(), op.getOffset()),
                          alignment(type, op.getAligned()));
  }

  Value check(tile::CheckIndexOp op) {
    Location loc = op.getLoc();
    Value i = op.getIndex();
    Type index = b.getIndexType();
    if (!i.getType().isIndex())
      i = arith::IndexCastOp::create(b, loc, index, i);
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    using P = arith::CmpIPredicate;
    Value negative = arith::CmpIOp::create(b, loc, P::slt, i, zero);
    Value wrapped = arith::AddIOp::create(b, loc, i, op.getSize());
    Value at = arith::SelectOp::create(b, loc, negative, wrapped, i);
    Value bad = arith::CmpIOp::create(b, loc, P::uge, at, op.getSize());
    auto report = scf::IfOp::create(b, loc, bad, false);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(report.thenBlock());
      // The first writer wins; only it writes the detail.
      auto constant = [&](int64_t v) -> Value {
        return LLVM::ConstantOp::create(b, loc, b.getI64Type(), b.getI64IntegerAttr(v));
      };
      auto swap = LLVM::AtomicCmpXchgOp::create(b, loc, status, constant(0), constant(1),
                                                LLVM::AtomicOrdering::monotonic,
                                                LLVM::AtomicOrdering::monotonic);
      Value won = LLVM::ExtractValueOp::create(b, loc, swap, 1);
      auto detail = scf::IfOp::create(b, loc, won, false);
      b.setInsertionPointToStart(detail.thenBlock());
      Value high = LLVM::ShlOp::create(b, loc, i64(loc, i), constant(32));
      Value word = LLVM::OrOp::create(b, loc, high, constant(step & 0xffffffff));
      Value place = LLVM::GEPOp::create(b, loc, ptr, b.getI64Type(), status,
                                        ArrayRef<LLVM::GEPArg>{1});
      LLVM::StoreOp::create(b, loc, word, place, 8);
    }
    return arith::SelectOp::create(b, loc, bad, zero, at);
  }

  /// ARM's sdot takes signed bytes alone: a * b = (a - 128) * b + 128 * b, of which the last term depends on b
  /// alone, so that the rows of a tile share it. In 32 bits all of it wraps to the same sums.
  Value dotOfFlipped(tile::DotOp op) {
    Location loc = op.getLoc();
    VectorType sums = op.getAcc().getType(), bytes = op.getA().getType();
    auto splat = [&](VectorType type, int64_t value) -> Value {
      return arith::ConstantOp::create(
          b, loc, type, DenseElementsAttr::get(type, b.getIntegerAttr(type.getElementType(), value)));
    };
    auto sdot = [&](Value acc, Value x, Value y) -> Value {
      return LLVM::CallIntrinsicOp::create(b, loc, sums, b.getStringAttr("llvm.aarch64.neon.sdot.v4i32.v16i8"),
                                           ValueRange{acc, x, y})
          .getResult(0);
    };
    Value sumOfB = sdot(splat(sums, 0), splat(bytes, 1), op.getB());
    Value shifted = arith::ShLIOp::create(b, loc, sumOfB, splat(sums, 7));
    Value flipped = arith::XOrIOp::create(b, loc, op.getA(), splat(bytes, -128));
    return arith::AddIOp::create(b, loc, sdot(op.getAcc(), flipped, op.getB()), shifted);
  }

  /// x86 has an instruction for 16-bit lanes, and some processors have one for bytes.
  Value dot(tile::DotOp op) {
    Location loc = op.getLoc();
    VectorType sums = op.getAcc().getType(), parts = op.getA().getType();
    if (isArm && byteProducts && op.getUnsignedA() && parts.getElementTypeBitWidth() == 8 &&
        sums.getNumElements() == 4 && parts.getNumElements() == 16)
      return dotOfFlipped(op);
    Value products;
    const char *name = "";
    if (!isArm && byteProducts && op.getUnsignedA() && parts.getElementTypeBitWidth() == 8)
      switch (sums.getNumElements()) {
      case 4: name = "llvm.x86.avx512.vpdpbusd.128"; break;
      case 8: name = "llvm.x86.avx512.vpdpbusd.256"; break;
      case 16: name = "llvm.x86.avx512.vpdpbusd.512"; break;
      default: break;
      }
    if (*name)
      return LLVM::CallIntrinsicOp::create(b, loc, sums, b.getStringAttr(name),
                                           ValueRange{op.getAcc(), op.getA(), op.getB()})
          .getResult(0);
    if (!isArm && pairProducts && !op.getUnsignedA() && parts.getElementTypeBitWidth() == 16)
      switch (sums.getNumElements()) {
      case 4: name = "llvm.x86.sse2.pmadd.wd"; break;
      case 8: name = "llvm.x86.avx2.pmadd.wd"; break;
      case 16: name = "llvm.x86.avx512.pmaddw.d.512"; break;
      default: break;
      }
    if (*name)
      products = LLVM::CallIntrinsicOp::create(b, loc, sums, b.getStringAttr(name),
                                               ValueRange{op.getA(), op.getB()})
                     .getResults();
    int64_t each = parts.getNumElements() / sums.getNumElements();
    for (int64_t j = 0; j < each && !*name; ++j) {
      SmallVector<int64_t> lanes;
      for (int64_t i = 0; i < sums.getNumElements(); ++i)
        lanes.push_back(i * each + j);
      auto one = [&](Value v, bool isUnsigned) -> Value {
        Value some = vector::ShuffleOp::create(b, loc, v, v, lanes);
        return isUnsigned ? Value(arith::ExtUIOp::create(b, loc, sums, some))
                          : Value(arith::ExtSIOp::create(b, loc, sums, some));
      };
      Value product =
          arith::MulIOp::create(b, loc, one(op.getA(), op.getUnsignedA()), one(op.getB(), false));
      products = products ? arith::AddIOp::create(b, loc, products, product) : product;
    }
    return arith::AddIOp::create(b, loc, op.getAcc(), products);
  }

  Value inTeam(Location loc, size_t byte, Type type) {
    Value at = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), team,
                                   ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(byte)});
    return LLVM::LoadOp::create(b, loc, type, at, 8);
  }

  /// Memory that others may write is scratch memory, which no `noalias` pointer hides from a call.
  void meet(tile::MeetOp op) {
    Value function = inTeam(op.getLoc(), offsetof(LatheCpuTeam, meet), ptr);
    auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), {ptr});
    LLVM::CallOp::create(b, op.getLoc(), type, ValueRange{function, team});
  }

  void member(tile::MemberOp op) {
    size_t bytes[] = {offsetof(LatheCpuTeam, member), offsetof(LatheCpuTeam, members)};
    for (auto [result, byte] : llvm::zip(op.getResults(), bytes)) {
      Value v = inTeam(op.getLoc(), byte, b.getI64Type());
      result.replaceAllUsesWith(arith::IndexCastOp::create(b, op.getLoc(), b.getIndexType(), v));
    }
  }

  LogicalResult run();
  std::map<void *, Value> pointers; ///< memref value -> pointer
};

LogicalResult TileLowering::run() {
  MLIRContext *context = fn.getContext();
  ptr = LLVM::LLVMPointerType::get(context);
  auto stepAttr = fn->getAttrOfType<IntegerAttr>("tile.step");
  step = stepAttr ? stepAttr.getInt() : 0;
  if (auto launch = fn->getAttrOfType<tile::LaunchAttr>("tile.kernel")) {
    Result<Target> target = Target::parse(std::string_view(launch.getTarget()));
    pairProducts = target.ok() && target->hasPairProducts();
    byteProducts = target.ok() && target->hasByteProducts();
    isArm = target.ok() && target->triple.starts_with("aarch64");
  }
  Block &entry = fn.front();
  unsigned count = entry.getNumArguments();
  SmallVector<Type> types;
  for (unsigned i = 0; i < count; ++i) {
    BlockArgument arg = entry.getArgument(i);
    if (!isa<MemRefType>(arg.getType())) {
      types.push_back(arg.getType());
      continue;
    }
    types.push_back(ptr);
  }
  // Pointers are new arguments that take the memrefs' places at the end.
  SmallVector<unsigned> memrefs;
  for (unsigned i = 0; i < count; ++i)
    if (isa<MemRefType>(entry.getArgument(i).getType())) {
      memrefs.push_back(i);
      pointers[entry.getArgument(i).getAsOpaquePointer()] = entry.addArgument(ptr, fn.getLoc());
    }
  unsigned behind = entry.getNumArguments();
  helpers = entry.addArgument(ptr, fn.getLoc());
  status = entry.addArgument(ptr, fn.getLoc());
  scratch = entry.addArgument(ptr, fn.getLoc());
  team = entry.addArgument(ptr, fn.getLoc());
  firstBlock = entry.addArgument(b.getIndexType(), fn.getLoc());
  block = entry.addArgument(b.getIndexType(), fn.getLoc());

  SmallVector<Operation *> ops;
  fn.walk([&](Operation *op) {
    if (isa<tile::TileDialect>(op->getDialect()))
      ops.push_back(op);
  });
  for (Operation *op : ops)
    if (auto s = dyn_cast<tile::ScratchOp>(op)) {
      b.setInsertionPoint(op);
      pointers[s.getBuffer().getAsOpaquePointer()] =
          LLVM::GEPOp::create(b, op->getLoc(), ptr, b.getI8Type(), scratch,
                              ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(s.getByteOffset())});
    }
  for (Operation *op : ops) {
    b.setInsertionPoint(op);
    Value result;
    if (auto o = dyn_cast<tile::LoadOp>(op))
      result = load(o);
    else if (auto o = dyn_cast<tile::StoreOp>(op))
      store(o);
    else if (auto o = dyn_cast<tile::CheckIndexOp>(op))
      result = check(o);
    else if (auto o = dyn_cast<tile::DotOp>(op))
      result = dot(o);
    else if (auto o = dyn_cast<tile::BlockReduceOp>(op))
      result = o.getValue();
    else if (auto o = dyn_cast<tile::BlockIdOp>(op))
      result = o.getAxis() == 0 ? block : arith::ConstantIndexOp::create(b, op->getLoc(), 0);
    else if (isa<tile::FirstBlockOp>(op))
      result = firstBlock;
    else if (isa<tile::ThreadIdOp>(op))
      result = arith::ConstantIndexOp::create(b, op->getLoc(), 0);
    else if (auto o = dyn_cast<tile::MemberOp>(op))
      member(o);
    else if (auto o = dyn_cast<tile::MeetOp>(op))
      meet(o);
    else if (!isa<tile::ScratchOp, tile::BarrierOp>(op))
      return op->emitError("is not known to the CPU lowering");
    if (result)
      op->getResult(0).replaceAllUsesWith(result);
  }
  for (Operation *op : llvm::reverse(ops))
    op->erase();
  // Prefetches keep the memref until here.
  SmallVector<memref::PrefetchOp> prefetches;
  fn.walk([&](memref::PrefetchOp op) { prefetches.push_back(op); });
  for (memref::PrefetchOp op : prefetches) {
    b.setInsertionPoint(op);
    Value at = address(op.getLoc(), op.getMemref(), op.getIndices()[0]);
    LLVM::Prefetch::create(b, op.getLoc(), at, op.getIsWrite() ? 1 : 0, op.getLocalityHint(), 1);
    op.erase();
  }

  // Order the arguments: buffers as pointers, symbols, then the context.
  SmallVector<Value> olds(entry.getArguments().begin(), entry.getArguments().end());
  SmallVector<Type> order;
  SmallVector<Value> sources;
  unsigned nextPtr = count;
  for (unsigned i = 0; i < count; ++i) {
    bool buffer = llvm::is_contained(memrefs, i);
    sources.push_back(buffer ? olds[nextPtr++] : olds[i]);
    order.push_back(buffer ? Type(ptr) : olds[i].getType());
  }
  for (unsigned i = behind; i < olds.size(); ++i) {
    sources.push_back(olds[i]);
    order.push_back(olds[i].getType());
  }
  unsigned old = entry.getNumArguments();
  for (auto [type, source] : llvm::zip(order, sources))
    source.replaceAllUsesWith(entry.addArgument(type, fn.getLoc()));
  entry.eraseArguments(0, old);
  fn.setFunctionType(b.getFunctionType(order, {}));
  auto shared = fn->getAttrOfType<DenseI64ArrayAttr>("tile.may_alias");
  for (unsigned i : memrefs)
    if (!shared || !llvm::is_contained(shared.asArrayRef(), int64_t(i)))
      fn.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  fn->setAttr("lathe.buffers", b.getI64IntegerAttr(memrefs.size()));
  fn.setName((fn.getName() + ".body").str());
  fn.setPrivate();
  return success();
}

} // namespace

LogicalResult lowerTileOps(ModuleOp module) {
  for (auto fn : module.getOps<func::FuncOp>()) {
    if (!fn->hasAttr("tile.kernel"))
      continue;
    TileLowering lowering{fn, OpBuilder(fn.getContext())};
    if (failed(lowering.run()))
      return failure();
  }
  return success();
}

} // namespace lathe::codegen
