//===- KernelSpec.cpp - the text of a KernelSpec -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Printing. One line an item, in a fixed order, defaults left out, so that equal
// specs have equal text and a difference of texts names the field:
//
//   config "row.t128.v8"
//   buffer in read f32 [B, 768] align 64
//   buffer out write f32 [B, 768] align 64 alias 0
//   symbol "B"
//   tensormap 0 [768, B] strides [1536] box [64, 128] swizzle 128 result
//   launch "k3" grid [ceildiv(B, 4), 1, 1] block [128, 1, 1] shared [4*B]
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/KernelSpec.h"

namespace lathe {
namespace {

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\')
      out += '\\';
    out += c;
  }
  return out + '"';
}

std::string text(const DimExpr &e) { return e.str(); }
std::string text(int64_t v) { return std::to_string(v); }
std::string text(int v) { return std::to_string(v); }

template <typename Range> std::string list(const Range &items) {
  std::string out = "[";
  bool first = true;
  for (const auto &item : items) {
    out += (first ? "" : ", ") + text(item);
    first = false;
  }
  return out + "]";
}

bool isDefault(const int64_t (&v)[3]) { return v[0] == 1 && v[1] == 1 && v[2] == 1; }

const char *role(const KernelSpec &spec, size_t index) {
  if (index < static_cast<size_t>(spec.numInputs))
    return "in";
  if (index < static_cast<size_t>(spec.numInputs + spec.numOutputs))
    return "out";
  return "work";
}

/// As the parser has them (KernelSpecParse.cpp).
constexpr const char *kTensorMapRoles[] = {"operand", "result", "residual", "mask"};

const char *access(BufferArg::Access a) {
  switch (a) {
  case BufferArg::Access::Read:
    return "read";
  case BufferArg::Access::Write:
    return "write";
  case BufferArg::Access::ReadWrite:
    return "readwrite";
  }
  return "read";
}

/// An operand of a condition: parenthesised unless it is one name, number or call.
std::string operand(const DimExpr &e) {
  const std::string &s = e.str();
  int depth = 0;
  for (char c : s) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (depth == 0 && c == ' ')
      return "(" + s + ")";
  }
  return s;
}

} // namespace

std::vector<int> KernelSpec::mapsOf(TensorMapArg::Role role) const {
  std::vector<int> places;
  for (size_t i = 0; i < tensorMaps.size(); ++i)
    if (tensorMaps[i].role == role)
      places.push_back(static_cast<int>(i));
  return places;
}

const TensorMapArg *KernelSpec::mapOf(TensorMapArg::Role role) const {
  std::vector<int> places = mapsOf(role);
  return places.empty() ? nullptr : &tensorMaps[places.front()];
}

std::string KernelSpec::str() const {
  std::string out = "config " + quoted(config) + "\n";
  for (size_t i = 0; i < buffers.size(); ++i) {
    const BufferArg &b = buffers[i];
    out += std::string("buffer ") + role(*this, i) + " " + access(b.access) + " " +
           std::string(name(b.dtype)) + " " + list(b.dims);
    if (b.physical != b.dims)
      out += " physical " + list(b.physical);
    out += " align " + text(b.alignment);
    if (b.aliases >= 0)
      out += " alias " + text(b.aliases);
    if (!b.packing.empty())
      out += " packing " + quoted(b.packing);
    out += "\n";
  }
  for (const std::string &s : symbols)
    out += "symbol " + quoted(s) + "\n";
  for (const TensorMapArg &m : tensorMaps) {
    out += "tensormap " + text(m.buffer) + " " + list(m.dims) + " strides " + list(m.strides) +
           " box " + list(m.box) + " swizzle " + text(m.swizzleBytes);
    if (m.im2col)
      out += " im2col " + list(m.lowerCorner) + " " + list(m.upperCorner);
    if (!m.steps.empty())
      out += " steps " + list(m.steps);
    if (m.elementBytes)
      out += " bytes " + text(m.elementBytes);
    if (m.role != TensorMapArg::Role::Operand)
      out += std::string(" ") + kTensorMapRoles[static_cast<int>(m.role)];
    out += "\n";
  }
  for (const LaunchSpec &l : launches) {
    out += "launch " + quoted(l.function) + " grid " + list(l.grid) + " block " + list(l.block);
    if (!isDefault(l.cluster))
      out += " cluster " + list(l.cluster);
    if (l.sharedBytes != DimExpr(0))
      out += " shared [" + l.sharedBytes.str() + "]";
    if (l.programmaticDependent)
      out += " pdl";
    if (!l.buffers.empty())
      out += " buffers " + list(l.buffers);
    out += "\n";
  }
  if (workspaceBytes != DimExpr(0))
    out += "workspace [" + workspaceBytes.str() + "]\n";
  if (scratchBytes != DimExpr(0))
    out += "scratch [" + scratchBytes.str() + "]\n";
  if (status)
    out += "status\n";
  return out;
}

std::string str(const std::vector<DimCondition> &guard) {
  if (guard.empty())
    return "true";
  std::string out;
  for (const DimCondition &c : guard) {
    if (!out.empty())
      out += " && ";
    switch (c.kind) {
    case DimCondition::Kind::LessEqual:
      out += operand(c.lhs) + " <= " + operand(c.rhs);
      break;
    case DimCondition::Kind::Equal:
      out += operand(c.lhs) + " == " + operand(c.rhs);
      break;
    case DimCondition::Kind::Divisible:
      out += operand(c.lhs) + " % " + operand(c.rhs) + " == 0";
      break;
    }
  }
  return out;
}

} // namespace lathe
