//===- WireFormat.cpp - takes weights out of a serialized model -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Protobuf copies every bytes field. Weights are found in the wire format
// instead, and replaced by a note of where they are in the mapped file.
//
//===----------------------------------------------------------------------===//
#include "ModelFile.h"

#include <optional>

namespace lathe::onnxmodel {
namespace {

/// Raw data up to this many bytes stay in the message.
constexpr size_t kInlineBytes = 256;

enum class Message { Model, Graph, Node, Attribute, Tensor, Other };

/// Field numbers of onnx.proto on the way to raw_data.
Message child(Message parent, uint64_t field) {
  switch (parent) {
  case Message::Model:
    return field == 7 ? Message::Graph : Message::Other;
  case Message::Graph:
    return field == 1 ? Message::Node : field == 5 ? Message::Tensor : Message::Other;
  case Message::Node:
    return field == 5 ? Message::Attribute : Message::Other;
  case Message::Attribute:
    return field == 5 ? Message::Tensor : Message::Other;
  default:
    return Message::Other;
  }
}
constexpr uint64_t kRawData = 9;

void putVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(char(value | 0x80));
  out.push_back(char(value));
}
void putBytes(std::string &out, uint64_t field, std::string_view bytes) {
  putVarint(out, field << 3 | 2);
  putVarint(out, bytes.size());
  out.append(bytes);
}

class Stripper {
public:
  explicit Stripper(std::span<const std::byte> f) : file(f) {}

  /// Appends the message in [begin, end) to `out`; false after an error.
  bool message(Message kind, size_t begin, size_t end, std::string &out) {
    std::optional<std::span<const std::byte>> raw;
    size_t at = begin;
    while (at < end) {
      size_t fieldStart = at;
      uint64_t tag = 0, value = 0;
      if (!varint(at, end, tag))
        return false;
      uint64_t field = tag >> 3;
      switch (tag & 7) {
      case 0:
        if (!varint(at, end, value))
          return false;
        break;
      case 1:
        value = 8;
        if (end - at < value)
          return fail(at);
        at += value;
        break;
      case 5:
        value = 4;
        if (end - at < value)
          return fail(at);
        at += value;
        break;
      case 2: {
        if (!varint(at, end, value))
          return false;
        if (value > end - at)
          return fail(fieldStart);
        size_t bodyEnd = at + size_t(value);
        if (kind == Message::Tensor && field == kRawData) {
          raw =
              value > kInlineBytes ? std::optional(file.subspan(at, size_t(value))) : std::nullopt;
          if (raw) {
            at = bodyEnd;
            continue;
          }
        }
        Message inner = child(kind, field);
        if (inner != Message::Other && value > kInlineBytes) {
          std::string body;
          if (!message(inner, at, bodyEnd, body))
            return false;
          putBytes(out, field, body);
          at = bodyEnd;
          continue;
        }
        at = bodyEnd;
        break;
      }
      default:
        return fail(fieldStart);
      }
      out.append(reinterpret_cast<const char *>(file.data()) + fieldStart, at - fieldStart);
    }
    if (raw) {
      std::string entry;
      putBytes(entry, 1, kPieceKey);
      putBytes(entry, 2, std::to_string(result.pieces.size()));
      putBytes(out, 13, entry);
      putVarint(out, 14 << 3);
      putVarint(out, 1); // data_location = EXTERNAL
      result.pieces.push_back(*raw);
    }
    return true;
  }

  StrippedModel result;
  size_t errorAt = 0;

private:
  bool fail(size_t at) {
    errorAt = at;
    return false;
  }
  bool varint(size_t &at, size_t end, uint64_t &value) {
    value = 0;
    size_t start = at;
    for (unsigned shift = 0; shift < 64 && at < end; shift += 7) {
      uint64_t byte = uint64_t(file[at++]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80)
        return true;
    }
    return fail(start);
  }

  std::span<const std::byte> file;
};

} // namespace

Result<StrippedModel> stripRawData(std::span<const std::byte> file) {
  Stripper stripper(file);
  if (!stripper.message(Message::Model, 0, file.size(), stripper.result.proto))
    return invalidError("not a valid ONNX protobuf message",
                        "byte " + std::to_string(stripper.errorAt));
  return std::move(stripper.result);
}

} // namespace lathe::onnxmodel
