//===- Printer.cpp - functions, control flow, memory -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Before:  %0 = tile.load %x[%i] {aligned} : memref<?xbf16> -> vector<8xbf16>
//          %1 = arith.extf %0 : vector<8xbf16> to vector<8xf32>
// After:   const Vec<bf16, 8> v3 = loadVec<bf16, 8>(in0 + v2);
//          const Vec<f32, 8> v4 = convert<f32>(v3);
//
//===----------------------------------------------------------------------===//

#include "Printer.h"

#include "lathe/codegen/Codegen.h"

#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace lathe::codegen {

ArgumentNames ArgumentNames::of(const KernelSource &kernel) {
  ArgumentNames out;
  const KernelSpec &spec = *kernel.spec;
  for (size_t i = 0; i < spec.buffers.size(); ++i) {
    int n = static_cast<int>(i);
    if (n < spec.numInputs)
      out.names.push_back("in" + std::to_string(n));
    else if (n < spec.numInputs + spec.numOutputs)
      out.names.push_back("out" + std::to_string(n - spec.numInputs));
    else
      out.names.push_back("work" + std::to_string(n - spec.numInputs - spec.numOutputs));
    bool aliases = spec.buffers[i].aliases >= 0;
    for (const BufferArg &other : spec.buffers)
      aliases |= other.aliases == n;
    out.shared.push_back(aliases);
    out.constant.push_back(!aliases && n < spec.numInputs &&
                           spec.buffers[i].access == BufferArg::Access::Read);
  }
  for (size_t i = 0; i < spec.symbols.size(); ++i) {
    std::string clean;
    for (char c : spec.symbols[i])
      clean += llvm::isAlnum(c) ? c : '_';
    std::string name = "dim_" + clean;
    // Two symbols that differ in other characters only.
    while (llvm::is_contained(out.names, name))
      name += "_" + std::to_string(i);
    out.names.push_back(name);
  }
  return out;
}

void Printer::fail(Operation &op, const Twine &why) {
  if (!failed)
    op.emitError("CUDA text: ") << "'" << op.getName() << "' " << why;
  failed = true;
}

//===- Types and constants ----------------------------------------------------===//

std::string Printer::type(Type t, Location loc) {
  if (t.isIndex())
    return "i64";
  if (auto i = dyn_cast<IntegerType>(t))
    switch (i.getWidth()) {
    case 1:
      return "bool";
    case 8:
      return "i8";
    case 16:
      return "i16";
    case 32:
      return "i32";
    case 64:
      return "i64";
    }
  if (t.isF16())
    return "f16";
  if (t.isBF16())
    return "bf16";
  if (t.isF32())
    return "f32";
  if (t.isF64())
    return "f64";
  if (isa<Float8E4M3FNType>(t))
    return "f8e4m3fn";
  if (isa<Float8E5M2Type>(t))
    return "f8e5m2";
  if (isa<Float8E4M3FNUZType>(t))
    return "f8e4m3fnuz";
  if (isa<Float8E5M2FNUZType>(t))
    return "f8e5m2fnuz";
  if (auto v = dyn_cast<VectorType>(t); v && v.getRank() == 1 && !v.isScalable())
    return "Vec<" + type(v.getElementType(), loc) + ", " + std::to_string(v.getDimSize(0)) + ">";
  if (!failed)
    mlir::emitError(loc) << "CUDA text: type " << t << " has no CUDA form";
  failed = true;
  return "";
}

static std::string floatText(const APFloat &value, Type type) {
  APInt bits = value.bitcastToAPInt();
  if (type.getIntOrFloatBitWidth() < 32) {
    std::string name = type.isF16()                    ? "f16"
                       : type.isBF16()                 ? "bf16"
                       : isa<Float8E4M3FNType>(type)   ? "f8e4m3fn"
                       : isa<Float8E5M2Type>(type)     ? "f8e5m2"
                       : isa<Float8E4M3FNUZType>(type) ? "f8e4m3fnuz"
                                                       : "f8e5m2fnuz";
    return name + "{" + std::to_string(bits.getZExtValue()) + "}";
  }
  bool single = type.isF32();
  if (!value.isFinite())
    return single ? "bitsToF32(0x" + llvm::utohexstr(bits.getZExtValue(), true) + "u)"
                  : "bitCast<f64>(0x" + llvm::utohexstr(bits.getZExtValue(), true) + "ull)";
  char buffer[40];
  // Enough digits to come back to the same number.
  std::snprintf(buffer, sizeof buffer, "%.*g", single ? 9 : 17,
                single ? value.convertToFloat() : value.convertToDouble());
  std::string s = buffer;
  if (s.find_first_of(".e") == std::string::npos)
    s += ".0";
  return single ? s + "f" : s;
}

static std::string integerText(int64_t v, Type type) {
  if (type.isInteger(1))
    return v ? "true" : "false";
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  if (width == 64)
    return v == INT64_MIN ? "(-9223372036854775807ll - 1)" : std::to_string(v) + "ll";
  if (width == 32)
    return v == INT32_MIN ? "(-2147483647 - 1)" : std::to_string(v);
  return "(i" + std::to_string(width) + ")" + std::to_string(v);
}

std::string Printer::constant(Attribute attr, Type t, Location loc) {
  if (auto dense = dyn_cast<DenseElementsAttr>(attr)) {
    auto vec = cast<VectorType>(t);
    if (dense.isSplat())
      return "splat<" + std::to_string(vec.getDimSize(0)) + ">(" +
             constant(dense.getSplatValue<Attribute>(), vec.getElementType(), loc) + ")";
    std::string out = type(t, loc) + "{{";
    for (auto [i, a] : llvm::enumerate(dense.getValues<Attribute>()))
      out += (i ? ", " : "") + constant(a, vec.getElementType(), loc);
    return out + "}}";
  }
  if (auto f = dyn_cast<FloatAttr>(attr))
    return floatText(f.getValue(), t);
  if (auto i = dyn_cast<IntegerAttr>(attr))
    return integerText(t.isInteger(1) ? !i.getValue().isZero() : i.getValue().getSExtValue(), t);
  if (!failed)
    mlir::emitError(loc) << "CUDA text: constant " << attr << " has no CUDA form";
  failed = true;
  return "0";
}

//===- Values -----------------------------------------------------------------===//

std::string Printer::use(Value v) {
  if (auto c = v.getDefiningOp<arith::ConstantOp>())
    return constant(c.getValue(), c.getType(), c.getLoc());
  auto it = names.find(v);
  return it == names.end() ? std::string("undefined") : it->second;
}

void Printer::define(Value result, const Twine &expr) {
  std::string name = fresh();
  line() << "const " << typeOf(result) << " " << name << " = " << expr << ";\n";
  names[result] = name;
}

std::string Printer::variable(Value result, const Twine &init) {
  std::string name = fresh();
  line() << typeOf(result) << " " << name;
  std::string text = init.str();
  if (!text.empty())
    os << " = " << text;
  os << ";\n";
  names[result] = name;
  return name;
}

/// Parallel assignment: through copies where a target is also read.
void Printer::assign(ValueRange targets, ValueRange values) {
  std::vector<std::string> from;
  for (Value v : values)
    from.push_back(use(v));
  std::vector<std::string> to;
  for (Value t : targets)
    to.push_back(use(t));
  for (size_t i = 0; i < from.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (from[i] == to[j]) { // written before it is read
        std::string copy = fresh();
        line() << "const " << typeOf(values[i]) << " " << copy << " = " << from[i] << ";\n";
        from[i] = copy;
        break;
      }
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] != to[i])
      line() << to[i] << " = " << from[i] << ";\n";
}

//===- Control flow -----------------------------------------------------------===//

void Printer::loop(scf::ForOp op) {
  SmallVector<Value> carried;
  for (auto [result, arg, init] :
       llvm::zip(op.getResults(), op.getRegionIterArgs(), op.getInitArgs())) {
    names[arg] = variable(result, use(init));
    carried.push_back(result);
  }
  std::string iv = "iv" + std::to_string(next++);
  names[op.getInductionVar()] = iv;
  line() << "for (i64 " << iv << " = " << use(op.getLowerBound()) << "; " << iv << " < "
         << use(op.getUpperBound()) << "; " << iv << " += " << use(op.getStep()) << ") {\n";
  ++depth;
  body(*op.getBody());
  assign(carried, op.getBody()->getTerminator()->getOperands());
  --depth;
  line() << "}\n";
}

void Printer::branch(scf::IfOp op) {
  for (Value r : op.getResults())
    variable(r);
  line() << "if (" << use(op.getCondition()) << ") {\n";
  auto arm = [&](Block &block) {
    ++depth;
    body(block);
    assign(op.getResults(), block.getTerminator()->getOperands());
    --depth;
  };
  arm(*op.thenBlock());
  if (Block *otherwise = op.elseBlock();
      otherwise && (!otherwise->without_terminator().empty() || op.getNumResults())) {
    line() << "} else {\n";
    arm(*otherwise);
  }
  line() << "}\n";
}

//===- Memory -----------------------------------------------------------------===//

static std::string element(const std::string &buffer, const std::string &offset) {
  return buffer + "[" + offset + "]";
}

void Printer::load(tile::LoadOp op) {
  std::string buffer = use(op.getBuffer()), at = use(op.getOffset());
  auto vec = dyn_cast<VectorType>(op.getValue().getType());
  if (!vec)
    return define(op.getValue(), element(buffer, at));
  std::string params = "<" + type(vec.getElementType(), op.getLoc()) + ", " +
                       std::to_string(vec.getDimSize(0)) + ">(" + buffer + " + " + at + ")";
  const char *form = !op.getAligned()             ? "loadVecUnaligned"
                     : isShared(op.getBuffer())   ? "loadShared"
                     : op->hasAttr("tile.once")   ? "loadVecOnce"
                     : constants.contains(buffer) ? "loadVecConst"
                                                  : "loadVec";
  define(op.getValue(), form + params);
}

void Printer::store(tile::StoreOp op) {
  std::string buffer = use(op.getBuffer()), at = use(op.getOffset()), value = use(op.getValue());
  if (!isa<VectorType>(op.getValue().getType())) {
    line() << element(buffer, at) << " = " << value << ";\n";
    return;
  }
  line() << (!op.getAligned()           ? "storeVecUnaligned"
             : isShared(op.getBuffer()) ? "storeShared"
                                        : "storeVec")
         << "(" << buffer << " + " << at << ", " << value << ");\n";
}

bool Printer::structureOp(Operation &o) {
  if (auto op = dyn_cast<scf::ForOp>(o))
    loop(op);
  else if (auto op = dyn_cast<scf::IfOp>(o))
    branch(op);
  else if (auto op = dyn_cast<tile::LoadOp>(o))
    load(op);
  else if (auto op = dyn_cast<tile::StoreOp>(o))
    store(op);
  else if (auto op = dyn_cast<tile::SaturateOp>(o))
    define(op.getResult(), Twine("saturate<") + (op.getIsUnsigned() ? "u8" : "i8") + ">(" + use(op.getValue()) + ")");
  else if (auto op = dyn_cast<tile::BlockIdOp>(o))
    define(op.getId(), Twine("blockIdx.") + (op.getAxis() == 0   ? "x"
                                             : op.getAxis() == 1 ? "y"
                                                                 : "z"));
  else if (auto op = dyn_cast<tile::ThreadIdOp>(o))
    define(op.getId(), "threadIdx.x");
  else if (isa<tile::BarrierOp>(o))
    line() << "__syncthreads();\n";
  else if (auto op = dyn_cast<tile::ScratchOp>(o)) {
    std::string name = fresh();
    std::string elementText = type(op.getType().getElementType(), op.getLoc());
    line() << elementText << " *const " << name << " = (" << elementText << " *)(shared + "
           << op.getByteOffset() << ");\n";
    names[op.getBuffer()] = name;
  } else if (auto op = dyn_cast<tile::BlockReduceOp>(o)) {
    const char *kinds[] = {"SumOp", "ProdOp", "MaxOp", "MinOp"};
    bool cluster = options.cluster > 1;
    std::string call = std::string(cluster ? "clusterReduce<" : "blockReduce<") +
                       kinds[static_cast<int>(op.getKind())] + ", " +
                       std::to_string(cluster ? options.threads : options.group);
    if (cluster)
      call += ", " + std::to_string(options.cluster) + ", " + std::to_string(reductions++) +
              (reductionsLoop ? ", true" : ", false");
    call += ">(";
    if (op.getIsUnsigned())
      define(op.getResult(), "asSigned(" + call + "asUnsigned(" + use(op.getValue()) + ")))");
    else
      define(op.getResult(), call + use(op.getValue()) + ")");
  } else if (auto op = dyn_cast<func::CallOp>(o)) {
    std::string operands;
    for (Value v : op.getOperands())
      operands += (operands.empty() ? "" : ", ") + use(v);
    define(op.getResult(0), op.getCallee() + "(" + operands + ")");
  } else if (auto op = dyn_cast<tile::CheckIndexOp>(o))
    define(op.getChecked(), "checkIndex(status, " + Twine(options.step) + "u, " +
                                use(op.getIndex()) + ", " + use(op.getSize()) + ", true)");
  else if (auto op = dyn_cast<func::ReturnOp>(o)) {
    if (op.getNumOperands() == 1)
      line() << "return " << use(op.getOperand(0)) << ";\n";
  } else
    return false;
  return true;
}

void Printer::op(Operation &o) {
  if (isa<arith::ConstantOp>(o) || isa<scf::YieldOp>(o))
    return;
  if (structureOp(o) || arithmeticOp(o) || integerOp(o) || castOp(o) || vectorOp(o))
    return;
  fail(o, "has no CUDA form");
}

void Printer::body(Block &block) {
  for (Operation &o : block) {
    if (failed)
      return;
    op(o);
  }
}

//===- Functions --------------------------------------------------------------===//

LogicalResult Printer::kernel(func::FuncOp fn, const ArgumentNames &args) {
  auto launch = fn->getAttrOfType<tile::LaunchAttr>("tile.kernel");
  if (!launch || fn.getNumArguments() != args.names.size())
    return fn.emitError("CUDA text: not a tile kernel of this spec");
  if (options.fastMath)
    useFastForms(fn);
  options.threads = options.group = launch.getThreads();
  if (auto group = fn->getAttrOfType<DenseI64ArrayAttr>("tile.group")) {
    options.group = group[0];
    options.cluster = group[1];
  }
  if (auto step = fn->getAttrOfType<IntegerAttr>("tile.step"))
    options.step = step.getInt();
  llvm::DenseSet<Value> written;
  bool scratch = false, reduces = false;
  fn.walk([&](Operation *o) {
    if (auto s = dyn_cast<tile::StoreOp>(o))
      written.insert(s.getBuffer());
    scratch |= isa<tile::ScratchOp>(o);
    if (isa<tile::BlockReduceOp>(o)) {
      reduces = true;
      reductionsLoop |= o->getParentOfType<LoopLikeOpInterface>() != nullptr;
    }
  });
  os << "extern \"C\" __global__ void __launch_bounds__(" << options.threads;
  if (auto resident = fn->getAttrOfType<IntegerAttr>("tile.resident"))
    os << ", " << resident.getInt();
  os << ")\n" << fn.getName() << "(";
  for (auto [i, arg] : llvm::enumerate(fn.getArguments())) {
    const std::string &name = args.names[i];
    if (auto memref = dyn_cast<MemRefType>(arg.getType())) {
      os << (written.contains(arg) ? "" : "const ") << type(memref.getElementType(), arg.getLoc())
         << (args.shared[i] ? " *" : " *__restrict__ ") << name << ", ";
      if (!written.contains(arg) && !args.shared[i])
        constants.insert(name);
    } else
      os << "i64 " << name << ", ";
    names[arg] = name;
  }
  os << "StatusWord *status) {\n";
  depth = 1;
  if (scratch)
    line() << "LATHE_DYNAMIC_SHARED(shared);\n";
  if (options.programmatic)
    line() << "dependentsMayStart();\n  dependenciesWait();\n";
  if (options.cluster > 1 && reduces && !reductionsLoop)
    line() << "clusterArrive();\n";
  body(fn.front());
  os << "}\n";
  return failure(failed);
}

LogicalResult Printer::method(func::FuncOp fn, StringRef name, const ArgumentNames &args,
                              ArrayRef<std::string> params) {
  if (fn.getNumArguments() != args.names.size() + params.size() || fn.getNumResults() > 1)
    return fn.emitError("CUDA text: a hole has other parameters than its skeleton");
  if (options.fastMath)
    useFastForms(fn);
  depth = 1;
  line() << "LATHE_METHOD "
         << (fn.getNumResults() ? type(fn.getResultTypes()[0], fn.getLoc()) : std::string("void"))
         << " " << name << "(";
  for (auto [i, arg] : llvm::enumerate(fn.getArguments())) {
    if (i < args.names.size()) {
      names[arg] = args.names[i];
      if (args.constant[i])
        constants.insert(args.names[i]);
      continue;
    }
    const std::string &param = params[i - args.names.size()];
    os << (i == args.names.size() ? "" : ", ") << type(arg.getType(), arg.getLoc()) << " " << param;
    names[arg] = param;
  }
  os << ") const {\n";
  depth = 2;
  body(fn.front());
  depth = 1;
  line() << "}\n";
  return failure(failed);
}

} // namespace lathe::codegen
