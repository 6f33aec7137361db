//===- CoupledDims.cpp - dimensions that are made narrower together -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each op ties what one iterator indexes:
//
//   y[n, o, h, w] = conv x[n, i, h+a, w+b], f[o, i, a, b]     f's o with y's o, x's i with f's i
//   z = reshape x : 768 -> 12 x 64                            twelve units of 64; the 64 stay
//
// An element may go where what is left means what it meant with zeros for weights. So what a
// product sums over may go where a constant multiplies it, and what norms, softmaxes and other
// reductions run along stays, as do the sizes of inputs and results.
//
//===----------------------------------------------------------------------===//
#include "lathe/passes/CoupledDims.h"

#include "lathe/ir/Lathe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

#include <utility>

using namespace mlir;

namespace lathe {
namespace {

using sparsify::Coupling;
using Dim = Coupling::Dim;

std::string nameOf(Location loc) {
  std::string name;
  loc->walk([&](Location inner) {
    if (auto named = dyn_cast<NameLoc>(inner); named && name.empty())
      name = named.getName().str();
    return name.empty() ? WalkResult::advance() : WalkResult::interrupt();
  });
  return name;
}

class Coupler {
public:
  Coupling coupling;

  void run(func::FuncOp function) {
    for (BlockArgument argument : function.getArguments()) {
      auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "lathe.name");
      if (name && isTensor(argument))
        coupling.tensors.push_back({name.str(), "input", false, dimsFor(argument), {}, sizesOf(argument)});
      keepAll(argument, "an input of the model has it");
    }
    for (Operation &op : function.getBody().front())
      visit(&op);
    const std::map<int64_t, std::string> kept = coupling.kept();
    for (const Group &group : groups)
      regroup(group, kept);
    markProducts();
  }

private:
  static bool isTensor(Value value) { return isa<RankedTensorType>(value.getType()); }

  static std::vector<std::string> sizesOf(Value value) {
    std::vector<std::string> sizes;
    for (const DimExpr &dim : dimsOf(value))
      sizes.push_back(dim.str());
    return sizes;
  }

  const std::vector<Dim> &dimsFor(Value value) {
    auto [at, isNew] = known.try_emplace(value);
    if (isNew && isTensor(value)) {
      std::vector<Dim> dims;
      for (const DimExpr &dim : dimsOf(value))
        dims.push_back(coupling.add(dim.constant().value_or(0)));
      at->second = std::move(dims);
    }
    return at->second;
  }

  void keepAll(Value value, const std::string &why) {
    for (const Dim &dim : dimsFor(value))
      coupling.keep(dim, why);
  }

  void tie(const Dim &a, const Dim &b) {
    for (int64_t i = 0, n = std::min(a.size, b.size); i < n; ++i)
      coupling.tie(a.at(i), b.at(i));
  }

  bool isConstant(Value value) const { return constants.contains(value); }

  void visit(Operation *op) {
    const std::string node = nameOf(op->getLoc());
    std::vector<Dim> read;
    for (Value operand : op->getOperands())
      llvm::append_range(read, dimsFor(operand));
    for (Value result : op->getResults())
      if (isTensor(result))
        coupling.tensors.push_back(
            {node, isa<ConstantOp>(op) ? "" : op->getName().stripDialect().str(), false, dimsFor(result), read,
             sizesOf(result)});
    if (isa<ConstantOp>(op)) {
      places[op->getResult(0)] = coupling.tensors.size() - 1;
      constants.insert(op->getResult(0));
      return;
    }
    auto structured = dyn_cast<StructuredOpInterface>(op);
    const std::string name = "'" + node + "' (" + op->getName().stripDialect().str() + ")";
    if (isa<BindDimsOp>(op))
      return same(op->getOperand(0), op->getResult(0), name);
    if (!structured || !isPure(op) || op->getNumRegions()) {
      const std::string why = isa<func::ReturnOp>(op) ? "a result of the model has it" : name + " reads it as a whole";
      op->walk([&](Operation *inner) {
        for (Value value : inner->getOperands())
          keepAll(value, why);
        for (Value value : inner->getResults())
          keepAll(value, why);
      });
      return;
    }
    if (op->getNumOperands() && llvm::all_of(op->getOperands(), [&](Value v) { return isConstant(v); }))
      constants.insert_range(op->getResults());
    if (keepsOrder(op))
      return reshape(op->getOperand(0), op->getResult(0), name);
    if (auto gather = dyn_cast<GatherOp>(op))
      return this->gather(gather, name);
    if (auto slice = dyn_cast<SliceOp>(op); slice && !boxOf(op))
      return this->slice(slice, node, name);
    iterate(structured, node, name);
  }

  /// Each element is the other's at the same place.
  void same(Value x, Value y, const std::string &name) {
    const std::vector<Dim> a = dimsFor(x), b = dimsFor(y);
    for (size_t d = 0; d < a.size(); ++d)
      if (a[d].size == b[d].size)
        tie(a[d], b[d]);
      else
        for (const Dim &dim : {a[d], b[d]})
          coupling.keep(dim, name + " says its size");
  }

  /// Sizes that become others: the smallest groups of neighbours with as many elements on both sides, from the front on;
  /// where none is known there any more, from the back.
  void reshape(Value x, Value y, const std::string &name) {
    struct Side {
      std::vector<DimExpr> sizes;
      std::vector<Dim> dims;
      size_t begin = 0, end = 0; ///< what is in no group yet
      size_t count() const { return end - begin; }
    };
    auto sideOf = [&](Value value) {
      Side side;
      const std::vector<DimExpr> sizes = dimsOf(value);
      const std::vector<Dim> dims = dimsFor(value);
      for (size_t d = 0; d < sizes.size(); ++d)
        if (sizes[d] != DimExpr(1))
          side.sizes.push_back(sizes[d]), side.dims.push_back(dims[d]);
      side.end = side.dims.size();
      return side;
    };
    Side a = sideOf(x), b = sideOf(y);
    auto productOf = [](const Side &side, size_t count, bool fromBack) {
      DimExpr product = 1;
      for (size_t d = 0; d < count; ++d)
        product = product * side.sizes[fromBack ? side.end - 1 - d : side.begin + d];
      return product;
    };
    auto take = [](Side &side, size_t count, bool fromBack) {
      const size_t first = fromBack ? side.end - count : side.begin;
      (fromBack ? side.end : side.begin) = fromBack ? first : first + count;
      return std::vector<Dim>(side.dims.begin() + first, side.dims.begin() + first + count);
    };
    for (bool fromBack : {false, true})
      for (size_t both = 2; both <= a.count() + b.count(); ++both)
        for (size_t m = both > b.count() ? both - b.count() : 1; m < both && m <= a.count(); ++m)
          if (productOf(a, m, fromBack) == productOf(b, both - m, fromBack)) {
            std::vector<Dim> left = take(a, m, fromBack), right = take(b, both - m, fromBack);
            if (left.size() == 1 && right.size() == 1)
              tie(left[0], right[0]);
            else
              groups.push_back({std::move(left), std::move(right), true, name});
            both = 1; // the next group
            break;
          }
    if (a.count() || b.count())
      groups.push_back({take(a, a.count(), false), take(b, b.count(), false), false, name});
  }

  struct Group {
    std::vector<Dim> left, right;
    bool equal;
    std::string name;
  };

  /// One dimension that becomes several, or the other way round. The outermost of the several that may become narrower at
  /// all decides (heads of 64 elements, beside a batch that an input has); the others keep their sizes.
  void regroup(const Group &group, const std::map<int64_t, std::string> &kept) {
    const std::vector<Dim> &many = group.left.size() > 1 ? group.left : group.right;
    const Dim *one = group.left.size() == 1 ? &group.left[0] : group.right.size() == 1 ? &group.right[0] : nullptr;
    size_t decides = many.size();
    int64_t product = 1, inner = 1;
    for (size_t d = many.size(); d-- > 0;) {
      bool free = false;
      for (int64_t i = 0; i < many[d].size && !free; ++i)
        free = !kept.count(coupling.unitOf(many[d].at(i)));
      if (free)
        decides = d, inner = product;
      product *= many[d].size;
    }
    const bool known = group.equal && one && one->size && product == one->size && decides < many.size();
    std::string why = group.name + (known ? " has it inside of another dimension" : " makes other dimensions of it");
    const char *first = ", as ";
    if (group.equal && one && decides == many.size()) // those, too, have a reason
      for (const Dim &dim : many)
        if (dim.size)
          why += std::exchange(first, ", ") + kept.at(coupling.unitOf(dim.at(0)));
    for (const std::vector<Dim> *side : {&group.left, &group.right})
      for (const Dim &dim : *side)
        if (!known || (&dim != one && &dim != &many[decides]))
          coupling.keep(dim, why);
    if (known)
      for (int64_t i = 0; i < one->size; ++i)
        coupling.tie(one->at(i), many[decides].at(i / inner % many[decides].size));
  }

  /// A slice of which only the run knows where it begins in some dimension.
  void slice(SliceOp op, const std::string &node, const std::string &name) {
    const std::vector<Dim> x = dimsFor(op.getX()), y = dimsFor(op.getY());
    for (size_t d = 0; d < x.size(); ++d) {
      const std::optional<int64_t> start = cast<DimAttr>(op.getStarts()[d]).expr().constant();
      if (!start || op.getSteps()[d] != 1 || !y[d].size || *start + y[d].size > x[d].size) {
        coupling.keep(x[d], name + " reads it at computed places");
        coupling.keep(y[d], name + " reads others at computed places");
        continue;
      }
      if (x[d].size != y[d].size)
        coupling.cuts.push_back({node, x[d], int64_t(d), *start, *start + y[d].size});
      tie({x[d].at(*start), y[d].size}, y[d]);
    }
  }

  void gather(GatherOp op, const std::string &name) {
    const std::vector<Dim> x = dimsFor(op.getX()), index = dimsFor(op.getIndices()), y = dimsFor(op.getY());
    const size_t axis = op.getAxis();
    coupling.keep(x[axis], name + " picks from it by values");
    for (size_t d = 0; d < y.size(); ++d)
      tie(y[d], d < axis ? x[d] : d < axis + index.size() ? index[d - axis] : x[d - index.size() + 1]);
  }

  //===--------------------------------------------------------------------===//
  // Ops by their iterators
  //===--------------------------------------------------------------------===//

  void iterate(StructuredOpInterface op, const std::string &node, const std::string &name) {
    SmallVector<utils::IteratorType> iterators = op.getIterators();
    SmallVector<AffineMap> maps = op.getAccessMaps();
    const unsigned operands = op->getNumOperands();
    const OpClass kind = op.getOpClass();
    auto valueOf = [&](unsigned t) { return t < operands ? op->getOperand(t) : op->getResult(t - operands); };
    // The elements of an iterator are those of the first dimension that it indexes alone.
    std::vector<Dim> elements(iterators.size());
    for (bool results : {true, false})
      for (unsigned t = 0; t < maps.size(); ++t)
        if ((t >= operands) == results && maps[t] && (results || op.coversOperands()))
          for (auto [d, expr] : llvm::enumerate(maps[t].getResults()))
            if (auto dim = dyn_cast<AffineDimExpr>(expr); dim && !elements[dim.getPosition()].size)
              if (Dim here = dimsFor(valueOf(t))[d]; here.size > 1)
                elements[dim.getPosition()] = here;
    // What only has one value is no iterator.
    SmallVector<AffineExpr> replaced;
    for (unsigned i = 0; i < iterators.size(); ++i)
      replaced.push_back(getAffineDimExpr(i, op->getContext()));
    for (unsigned t = 0; t < maps.size(); ++t)
      if (maps[t] && op.coversOperands())
        for (auto [d, expr] : llvm::enumerate(maps[t].getResults()))
          if (auto dim = dyn_cast<AffineDimExpr>(expr); dim && dimsFor(valueOf(t))[d].size == 1 && !elements[dim.getPosition()].size)
            replaced[dim.getPosition()] = getAffineConstantExpr(0, op->getContext());
    for (AffineMap &map : maps)
      if (map)
        map = map.replaceDimsAndSymbols(replaced, {}, map.getNumDims(), 0);
    for (unsigned t = 0; t < maps.size(); ++t) {
      if (!maps[t]) {
        if (t < operands)
          withoutMap(op, t, name);
        else
          keepAll(valueOf(t), name + " promises nothing of it");
        continue;
      }
      const std::vector<Dim> dims = dimsFor(valueOf(t));
      for (auto [d, expr] : llvm::enumerate(maps[t].getResults()))
        if (dims[d].size > 1)
          index(op, dims[d], int64_t(d), expr, elements, t < operands, node, name);
    }
    for (unsigned i = 0; i < iterators.size(); ++i)
      if (iterators[i] == utils::IteratorType::reduction && !weighs(op, maps, i))
        coupling.keep(elements[i], name + " reduces along it");
    if (kind == OpClass::Gemm || kind == OpClass::Conv || kind == OpClass::Attention)
      products(op, maps, elements, node);
  }

  /// One dimension of an operand or result, which `expr` of the iterators indexes.
  void index(StructuredOpInterface op, const Dim &dim, int64_t axis, AffineExpr expr, std::vector<Dim> &elements,
             bool isOperand, const std::string &node, const std::string &name) {
    SmallVector<unsigned> used;
    for (unsigned i = 0; i < elements.size(); ++i)
      if (expr.isFunctionOfDim(i))
        used.push_back(i);
    const bool box = isOperand && !op.coversOperands() && op.getOpClass() == OpClass::Movement;
    if (used.empty())
      return coupling.keep(dim, name + " takes one element of it");
    const Dim i = elements[used[0]];
    if (used.size() == 1 && i.size && isa<AffineDimExpr>(expr) && (i.size == dim.size || box)) {
      if (box && i.size != dim.size)
        coupling.cuts.push_back({node, dim, axis, 0, i.size});
      return tie(dim, i);
    }
    if (used.size() == 1 && box) {
      std::optional<Box> taken = boxOf(op);
      if (taken && taken->steps[axis] == 1 && i.size) {
        const int64_t start = taken->starts[axis];
        coupling.cuts.push_back({node, dim, axis, start, start + i.size});
        return tie({dim.at(start), i.size}, i);
      }
    }
    // Heads of keys, which several of queries read; channels of a group of filters.
    bool divides = false;
    expr.walk([&](AffineExpr e) { divides |= e.getKind() == AffineExprKind::FloorDiv; });
    if (divides && used.size() <= 2 && i.size && isOperand) {
      const Dim j = used.size() == 2 ? elements[used[1]] : Dim{0, 1};
      const int64_t inner = j.size;
      auto valueAt = [&](int64_t a, int64_t b) {
        SmallVector<int64_t> point(elements.size(), 0);
        point[used[0]] = a;
        if (used.size() == 2)
          point[used[1]] = b;
        return AffineMap::get(elements.size(), 0, expr).compose(point)[0];
      };
      bool inside = inner > 0;
      for (int64_t a = 0; a < i.size && inside; ++a)
        inside = valueAt(a, 0) >= 0 && valueAt(a, inner - 1) < dim.size;
      if (inside) {
        for (int64_t a = 0; a < i.size; ++a)
          for (int64_t b = 0; b < inner; ++b)
            coupling.tie(dim.at(valueAt(a, b)), i.at(a));
        if (inner > 1)
          coupling.keep(j, name + " has it inside of groups");
        return;
      }
    }
    coupling.keep(dim, name + " reads it at computed places");
    for (unsigned k : used)
      coupling.keep(elements[k], name + " reads others at computed places");
  }

  /// An operand of which the op says something else than a map.
  void withoutMap(StructuredOpInterface op, unsigned k, const std::string &name) {
    const std::vector<Dim> x = dimsFor(op->getOperand(k)), y = dimsFor(op->getResult(0));
    const OperandAccess access = op.getAccess(k);
    switch (access.kind) {
    case OperandAccess::Kind::Rows:
      for (size_t d = 0; d < x.size(); ++d) {
        const int64_t at = int64_t(d) + int64_t(y.size()) - int64_t(x.size());
        if (llvm::is_contained(access.dims, int64_t(d)) || at < 0 || (x[d].size != y[at].size && x[d].size > 1)) {
          coupling.keep(x[d], name + " runs along it");
          if (at >= 0)
            coupling.keep(y[at], name + " runs along it");
        } else if (x[d].size > 1) {
          tie(x[d], y[at]);
        }
      }
      return;
    case OperandAccess::Kind::Piece: {
      std::vector<std::optional<int64_t>> starts;
      for (const DimExpr &start : access.starts)
        starts.push_back(start.constant());
      for (size_t d = 0; d < x.size(); ++d)
        if (starts[d] && y[d].size && *starts[d] >= 0 && *starts[d] + x[d].size <= y[d].size) {
          tie(x[d], {y[d].at(*starts[d]), x[d].size});
          // What no operand fills stays where it is.
          if (op->getNumOperands() == 1 || op.getAccess(op->getNumOperands() - 1).kind != OperandAccess::Kind::Piece) {
            coupling.keep({y[d].first, *starts[d]}, name + " fills it");
            const int64_t end = *starts[d] + x[d].size;
            coupling.keep({y[d].at(end), y[d].size - end}, name + " fills it");
          }
        } else if (x[d].size || y[d].size) {
          coupling.keep(x[d], name + " puts it at a computed place");
          coupling.keep(y[d], name + " puts others at computed places");
        }
      return;
    }
    default:
      keepAll(op->getOperand(k), name + " reads it as a whole");
      // The parameters of a norm say nothing of the result that its rows do not.
      if (k == 0 || op.getAccess(0).kind != OperandAccess::Kind::Rows)
        keepAll(op->getResult(0), name + " computes it from all of an operand");
    }
  }

  /// Whether a constant multiplies what is summed along iterator i, which can then be as good as zero.
  bool weighs(StructuredOpInterface op, ArrayRef<AffineMap> maps, unsigned i) {
    if (op.getOpClass() != OpClass::Gemm && op.getOpClass() != OpClass::Conv)
      return false;
    for (auto [k, operand] : llvm::enumerate(op->getOperands()))
      if (maps[k] && isConstant(operand) &&
          llvm::any_of(maps[k].getResults(), [&](AffineExpr e) { return e == getAffineDimExpr(i, op->getContext()); }))
        return true;
    return false;
  }

  /// What kind of units the iterators of a product are.
  void products(StructuredOpInterface op, ArrayRef<AffineMap> maps, const std::vector<Dim> &elements, const std::string &node) {
    const unsigned operands = op->getNumOperands();
    auto uses = [&](unsigned t, unsigned i) {
      return t < maps.size() && maps[t] && maps[t].isFunctionOfDim(i);
    };
    if (operands < 2)
      return;
    std::optional<unsigned> weight;
    for (unsigned k : {0u, 1u})
      if (isConstant(op->getOperand(k)))
        weight = k;
    for (unsigned i = 0; i < elements.size(); ++i) {
      if (!uses(operands, i) || elements[i].size < 2)
        continue;
      if (!weight && uses(0, i) && uses(1, i))
        coupling.mark(elements[i], sparsify::UnitKind::Heads);
      const bool only = weight && llvm::is_contained(maps[*weight].getResults(), getAffineDimExpr(i, op->getContext())) &&
                        !llvm::is_contained(maps[1 - *weight].getResults(), getAffineDimExpr(i, op->getContext()));
      const bool depthwise = weight && op.getOpClass() == OpClass::Conv && uses(*weight, i);
      if (only || depthwise) {
        coupling.layers.push_back({node, elements[i]});
        if (op.getOpClass() == OpClass::Conv)
          coupling.mark(elements[i], sparsify::UnitKind::Channels);
      }
    }
    if (weight)
      weights.push_back(op->getOperand(*weight));
  }

  /// The constants behind the weights of products.
  void markProducts() {
    SmallVector<Value> open(weights.begin(), weights.end());
    llvm::DenseSet<Value> seen;
    while (!open.empty()) {
      Value value = open.pop_back_val();
      if (!seen.insert(value).second)
        continue;
      if (auto found = places.find(value); found != places.end())
        coupling.tensors[found->second].product = true;
      else if (Operation *op = value.getDefiningOp())
        open.append(op->operand_begin(), op->operand_end());
    }
  }

  llvm::DenseMap<Value, std::vector<Dim>> known;
  llvm::DenseSet<Value> constants;
  llvm::DenseMap<Value, size_t> places; ///< of constants among the tensors
  std::vector<Value> weights;
  std::vector<Group> groups; ///< of reshapes
};

} // namespace

Coupling coupledDims(ModuleOp module) {
  Coupler coupler;
  if (auto function = module.lookupSymbol<func::FuncOp>("main"))
    coupler.run(function);
  return std::move(coupler.coupling);
}

} // namespace lathe
