//===- Roles.cpp - #lathe.roles: text, verifier, accessors ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   #lathe.roles<anchor = 2, operands = [buffer 0, codes 1 weight bare], residual = 3, folded_rows>
//
// Parts that a kernel has nothing of are left out; they may come in any order.
//
//===----------------------------------------------------------------------===//
#include "lathe/ir/Roles.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace lathe {

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

namespace {

using Storage = OperandRole::Storage;
using Pair = KernelRoles::Pair;

constexpr llvm::StringLiteral kStorages[] = {"computed", "buffer",  "tokens_first",
                                             "planes",   "half", "codes"};
constexpr llvm::StringLiteral kPairs[] = {"none", "halves", "head_halves", "neighbours"};

/// Parts with a number, and those that are there or not.
struct NumberPart {
  llvm::StringLiteral key;
  int64_t KernelRoles::*member;
};
constexpr NumberPart kNumbers[] = {{"head_size", &KernelRoles::headSize},
                                   {"heads", &KernelRoles::heads},
                                   {"split", &KernelRoles::split},
                                   {"head_axis", &KernelRoles::headAxis},
                                   {"residual", &KernelRoles::residual},
                                   {"amax", &KernelRoles::amax},
                                   {"depthwise", &KernelRoles::depthwise},
                                   {"columns", &KernelRoles::columns},
                                   {"transpose", &KernelRoles::transpose}};
struct FlagPart {
  llvm::StringLiteral key;
  bool KernelRoles::*member;
};
constexpr FlagPart kFlags[] = {{"folded_rows", &KernelRoles::foldedRows},
                               {"in_place", &KernelRoles::inPlace},
                               {"bare", &KernelRoles::bare},
                               {"heads_transposed", &KernelRoles::headsTransposed},
                               {"keys_from_outside", &KernelRoles::keysFromOutside},
                               {"mask_hides", &KernelRoles::maskHides},
                               {"key_mask", &KernelRoles::keyMask}};

void print(AsmPrinter &printer, const OperandRole &operand) {
  printer << kStorages[int(operand.storage)];
  if (operand.input >= 0)
    printer << " " << operand.input;
  if (operand.weight)
    printer << " weight";
  if (operand.bare)
    printer << " bare";
  if (operand.pages >= 0)
    printer << " pages " << operand.pages << " dim " << operand.pagesDim;
}

ParseResult parse(AsmParser &parser, OperandRole &operand) {
  SMLoc at = parser.getCurrentLocation();
  StringRef storage;
  if (parser.parseKeyword(&storage))
    return failure();
  const auto *found = llvm::find(kStorages, storage);
  if (found == std::end(kStorages))
    return parser.emitError(at) << "unknown storage '" << storage << "' of an operand";
  operand.storage = Storage(found - kStorages);
  if (operand.storage != Storage::Computed && parser.parseInteger(operand.input))
    return failure();
  operand.weight = succeeded(parser.parseOptionalKeyword("weight"));
  operand.bare = succeeded(parser.parseOptionalKeyword("bare"));
  if (succeeded(parser.parseOptionalKeyword("pages")))
    return failure(parser.parseInteger(operand.pages) || parser.parseKeyword("dim") ||
                   parser.parseInteger(operand.pagesDim));
  return success();
}

ParseResult parse(AsmParser &parser, HeadOutput &output) {
  SmallVector<int64_t> numbers;
  SMLoc at = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
        return parser.parseInteger(numbers.emplace_back());
      }))
    return failure();
  if (numbers.size() < 2)
    return parser.emitError(at) << "heads of an output are [first, count, dimensions...]";
  output = {numbers[0], numbers[1], {numbers.begin() + 2, numbers.end()}};
  return success();
}

ParseResult parsePart(AsmParser &parser, KernelRoles &roles) {
  SMLoc at = parser.getCurrentLocation();
  StringRef key;
  if (parser.parseKeyword(&key))
    return failure();
  for (const FlagPart &flag : kFlags)
    if (flag.key == key) {
      roles.*flag.member = true;
      return success();
    }
  if (parser.parseEqual())
    return failure();
  for (const NumberPart &number : kNumbers)
    if (number.key == key)
      return parser.parseInteger(roles.*number.member);
  if (key == "anchor")
    return parser.parseInteger(roles.anchor);
  if (key == "operands")
    return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
      return parse(parser, roles.operands.emplace_back());
    });
  if (key == "head_outputs")
    return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
      return parse(parser, roles.headOutputs.emplace_back());
    });
  if (key != "pair")
    return parser.emitError(at) << "unknown role '" << key << "'";
  SMLoc pairAt = parser.getCurrentLocation();
  StringRef pair;
  if (parser.parseKeyword(&pair))
    return failure();
  const auto *found = llvm::find(kPairs, pair);
  if (found == std::end(kPairs))
    return parser.emitError(pairAt) << "unknown pair of columns '" << pair << "'";
  roles.pair = Pair(found - kPairs);
  return success();
}

} // namespace

Attribute RolesAttr::parse(AsmParser &parser, Type) {
  KernelRoles roles;
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater,
                                     [&] { return parsePart(parser, roles); }))
    return {};
  return RolesAttr::get(parser.getContext(), roles);
}

void RolesAttr::print(AsmPrinter &printer) const {
  const KernelRoles roles = getRoles(), none;
  bool first = true;
  auto begin = [&](StringRef key) -> AsmPrinter & {
    printer << (first ? "" : ", ") << key;
    first = false;
    return printer;
  };
  printer << "<";
  if (roles.anchor >= 0)
    begin("anchor") << " = " << roles.anchor;
  if (!roles.operands.empty()) {
    begin("operands") << " = [";
    llvm::interleaveComma(roles.operands, printer,
                          [&](const OperandRole &operand) { lathe::print(printer, operand); });
    printer << "]";
  }
  if (roles.pair != Pair::None)
    begin("pair") << " = " << kPairs[int(roles.pair)];
  for (const NumberPart &number : kNumbers)
    if (roles.*number.member != none.*number.member)
      begin(number.key) << " = " << roles.*number.member;
  if (!roles.headOutputs.empty()) {
    begin("head_outputs") << " = [";
    llvm::interleaveComma(roles.headOutputs, printer, [&](const HeadOutput &output) {
      printer << "[" << output.first << ", " << output.count;
      for (int64_t dim : output.dims)
        printer << ", " << dim;
      printer << "]";
    });
    printer << "]";
  }
  for (const FlagPart &flag : kFlags)
    if (roles.*flag.member)
      begin(flag.key);
  printer << ">";
}

//===----------------------------------------------------------------------===//
// Accessors
//===----------------------------------------------------------------------===//

Operation *opAt(Block &body, int64_t position) {
  if (position < 0 || position >= int64_t(body.getOperations().size()))
    return nullptr;
  return &*std::next(body.begin(), position);
}

int64_t positionOf(Operation *op) {
  return std::distance(op->getBlock()->begin(), op->getIterator());
}

SmallVector<SliceOp> slicesOfHalf(MatmulOp product, bool second) {
  SmallVector<SliceOp> slices;
  for (Operation *user : product.getResult().getUsers())
    if (auto slice = dyn_cast<SliceOp>(user))
      if ((cast<DimAttr>(slice.getStarts().getValue().back()).expr() != DimExpr(0)) == second)
        slices.push_back(slice);
  return slices;
}

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

LogicalResult verifyRoles(Operation *at, Block &body, const KernelRoles &roles) {
  auto wrong = [&](const Twine &what) { return at->emitOpError("kernel_c4: ") << what; };
  const int64_t inputs = body.getNumArguments(), outputs = body.getTerminator()->getNumOperands();
  Operation *anchor = opAt(body, roles.anchor);
  if (roles.anchor >= 0 && !dyn_cast_or_null<StructuredOpInterface>(anchor))
    return wrong("the anchor is no structured op of the body");
  if (!anchor && (!roles.operands.empty() || roles.pair != KernelRoles::Pair::None || roles.hasHeads() ||
                  roles.residual >= 0 || roles.amax >= 0))
    return wrong("roles around an anchor without one");
  if (anchor && roles.operands.size() != anchor->getNumOperands() && !roles.operands.empty())
    return wrong("the anchor has ") << anchor->getNumOperands() << " operands, not "
                                    << roles.operands.size();
  for (const OperandRole &operand : roles.operands)
    if (operand.input >= inputs || operand.pages >= inputs ||
        (operand.input < 0) != (operand.storage == OperandRole::Storage::Computed))
      return wrong("an operand has no such input");
  if (roles.residual >= inputs || roles.residual < -1)
    return wrong("the residual is none of the inputs");
  if (roles.amax >= outputs || roles.amax == 0 || roles.amax < -1)
    return wrong("amax is no output behind the first");
  if (roles.amax > 0 && !body.getTerminator()->getOperand(roles.amax).getDefiningOp<ReduceOp>())
    return wrong("amax is not what a reduction gives");
  bool ofHeads = roles.pair == KernelRoles::Pair::HeadHalves || roles.pair == KernelRoles::Pair::Neighbours;
  if (ofHeads != roles.hasHeads())
    return wrong("a pair inside heads, or heads without one");
  if (roles.hasHeads()) {
    auto split = opAt<ReshapeOp>(body, roles.split);
    int64_t rank = split ? int64_t(dimsOf(split.getY()).size()) : 0;
    if (roles.headAxis < 0 || roles.headAxis + 1 >= rank ||
        dimsOf(split.getY())[roles.headAxis] != DimExpr(roles.heads) ||
        dimsOf(split.getY()).back() != DimExpr(roles.headSize))
      return wrong("no reshape splits the columns into ")
             << roles.heads << " heads of " << roles.headSize;
  }
  if (!roles.headOutputs.empty() && int64_t(roles.headOutputs.size()) != outputs)
    return wrong("heads of ") << roles.headOutputs.size() << " outputs, not of " << outputs;
  if (roles.depthwise >= 0 && (!opAt<ConvOp>(body, roles.depthwise) || roles.depthwise >= roles.anchor))
    return wrong("no depthwise convolution stands before the anchor");
  if ((roles.maskHides || roles.keyMask) && !isa_and_nonnull<AttentionOp>(anchor))
    return wrong("a mask of an anchor that is no attention");
  if (roles.transpose >= 0 && !opAt<TransposeOp>(body, roles.transpose))
    return wrong("no transpose stands there");
  return success();
}

} // namespace lathe
