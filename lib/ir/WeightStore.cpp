//===- WeightStore.cpp - bytes of constants -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/WeightStore.h"

#include "lathe/support/Files.h"
#include "lathe/support/Parallel.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"

#include <cstring>

using namespace mlir;

namespace lathe {

static constexpr uint64_t kAlign = 64;

/// 64 hexadecimal digits: of more than a megabyte, the BLAKE3 of the BLAKE3 of each megabyte. Every
/// compilation begins with all weights, and this takes a fourth of the time of SHA-256.
static std::string digestOf(std::span<const std::byte> bytes) {
  constexpr size_t kPiece = 1 << 20;
  using Digest = llvm::BLAKE3Result<>;
  auto hash = [](const void *data, size_t size) {
    return llvm::BLAKE3::hash({static_cast<const uint8_t *>(data), size});
  };
  if (bytes.size() <= kPiece)
    return llvm::toHex(hash(bytes.data(), bytes.size()), /*LowerCase=*/true);
  std::vector<Digest> pieces((bytes.size() + kPiece - 1) / kPiece);
  inParallel(pieces.size(), [&](size_t i) {
    std::span<const std::byte> piece = bytes.subspan(i * kPiece);
    pieces[i] = hash(piece.data(), std::min(kPiece, piece.size()));
  });
  return llvm::toHex(hash(pieces.data(), pieces.size() * sizeof(Digest)), /*LowerCase=*/true);
}

WeightAttr WeightStore::add(TensorType type, std::span<const std::byte> bytes,
                            std::shared_ptr<const void> owner) {
  std::string hash = digestOf(bytes);
  std::lock_guard<std::mutex> lock(mutex);
  auto [it, fresh] = byHash.try_emplace(hash, end);
  if (fresh) {
    pieces[end] = {bytes, std::move(owner)};
    end = (end + bytes.size() + kAlign - 1) / kAlign * kAlign;
  }
  return WeightAttr::get(type.getContext(), kArchive, it->second, bytes.size(), hash, type);
}

WeightAttr WeightStore::addCopy(TensorType type, std::span<const std::byte> bytes) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  return add(type, *copy, copy);
}

WeightAttr WeightStore::random(TensorType type, const RandomSpread &spread) {
  uint64_t bytes = byteSize(*dtypeOf(type.getElementType()), type.getNumElements());
  return WeightAttr::get(type.getContext(), kRandom, 0, bytes, spread.text(), type);
}

std::optional<RandomSpread> WeightStore::spreadOf(WeightAttr weight) {
  return weight.getKey() == kRandom ? RandomSpread::parse(std::string_view(weight.getHash()))
                                    : std::nullopt;
}

WeightAttr WeightStore::parameter(TensorType type, StringRef name) {
  uint64_t bytes = byteSize(*dtypeOf(type.getElementType()), type.getNumElements());
  return WeightAttr::get(type.getContext(), (kParameter + name).str(), 0, bytes, std::string(64, '0'), type);
}

std::optional<StringRef> WeightStore::parameterOf(Attribute constant) {
  auto weight = llvm::dyn_cast_or_null<WeightAttr>(constant);
  StringRef name = weight ? weight.getKey() : StringRef();
  return name.consume_front(kParameter) ? std::optional(name) : std::nullopt;
}

Result<std::span<const std::byte>> WeightStore::get(WeightAttr weight) const {
  if (std::optional<StringRef> name = parameterOf(weight))
    return unsupportedError("the bytes of a parameter are known only when the engine runs", "parameter '" + name->str() + "'");
  std::lock_guard<std::mutex> lock(mutex);
  if (std::optional<RandomSpread> spread = spreadOf(weight)) {
    auto type = llvm::cast<TensorType>(weight.getType());
    DType dtype = *dtypeOf(type.getElementType());
    uint64_t count = type.getNumElements();
    std::vector<std::byte> &bytes =
        made[weight.getHash().str() + std::string(name(dtype)) + std::to_string(count)];
    if (bytes.empty() && count && isRandomType(dtype)) {
      bytes.resize(weight.getBytes());
      fillRandom(bytes.data(), dtype, {*spread, 1, count, 0, 0}, 0, count);
    }
    return std::span<const std::byte>(bytes);
  }
  auto it = pieces.find(weight.getOffset());
  if (it != pieces.end() && it->second.bytes.size() == weight.getBytes())
    return it->second.bytes;
  // Checked without a sum that could wrap.
  if (weight.getOffset() <= file.size() && weight.getBytes() <= file.size() - weight.getOffset())
    return file.subspan(weight.getOffset(), weight.getBytes());
  return invalidError("the weight archive has no piece of " + std::to_string(weight.getBytes()) +
                          " bytes at offset " + std::to_string(weight.getOffset()),
                      "#lathe.weight");
}

Status WeightStore::adopt(WeightAttr weight) {
  if (spreadOf(weight) || parameterOf(weight))
    return okStatus();
  Result<std::span<const std::byte>> bytes = get(weight);
  if (!bytes)
    return bytes.status();
  std::string hash = digestOf(*bytes);
  if (hash != weight.getHash())
    return invalidError("the piece at offset " + std::to_string(weight.getOffset()) +
                            " of the weight archive has other bytes than the text says",
                        "#lathe.weight");
  std::lock_guard<std::mutex> lock(mutex);
  if (byHash.try_emplace(hash, weight.getOffset()).second)
    pieces[weight.getOffset()] = {*bytes, fileOwner};
  return okStatus();
}

uint64_t WeightStore::size() const {
  std::lock_guard<std::mutex> lock(mutex);
  return std::max<uint64_t>(end, file.size());
}

Status WeightStore::write(const std::string &path) const {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<std::byte> out(std::max<uint64_t>(end, file.size()));
  if (!file.empty())
    std::memcpy(out.data(), file.data(), file.size());
  for (const auto &[offset, piece] : pieces)
    if (!piece.bytes.empty())
      std::memcpy(out.data() + offset, piece.bytes.data(), piece.bytes.size());
  return writeFileAtomically(
      path, std::string_view(reinterpret_cast<const char *>(out.data()), out.size()));
}

Status WeightStore::open(const std::string &path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.status();
  auto owner = std::make_shared<MappedFile>(std::move(*mapped));
  std::lock_guard<std::mutex> lock(mutex);
  file = owner->bytes();
  fileOwner = owner;
  end = std::max<uint64_t>(end, (file.size() + kAlign - 1) / kAlign * kAlign);
  return okStatus();
}

Result<std::vector<std::byte>> joinedBytes(JoinedAttr joined,
                                           llvm::function_ref<Result<std::vector<std::byte>>(Attribute)> bytesOf) {
  auto whole = llvm::cast<RankedTensorType>(joined.getType());
  ArrayRef<int64_t> shape = whole.getShape();
  int64_t rows = 1;
  for (int64_t d = 0; d < joined.getAxis(); ++d)
    rows *= shape[d];
  std::vector<std::byte> out(byteSize(*dtypeOf(whole.getElementType()), whole.getNumElements()));
  size_t pitch = rows ? out.size() / rows : 0, at = 0;
  for (Attribute part : joined.getParts()) {
    Result<std::vector<std::byte>> bytes = bytesOf(part);
    if (!bytes)
      return bytes.status();
    size_t run = rows ? bytes->size() / rows : 0;
    for (int64_t r = 0; r < rows && run; ++r)
      std::memcpy(out.data() + r * pitch + at, bytes->data() + r * run, run);
    at += run;
  }
  return out;
}

Result<std::vector<std::byte>> constantBytes(Attribute value, WeightStore &store) {
  if (auto weight = llvm::dyn_cast<WeightAttr>(value)) {
    Result<std::span<const std::byte>> bytes = store.get(weight);
    if (!bytes)
      return bytes.status();
    return std::vector<std::byte>(bytes->begin(), bytes->end());
  }
  if (auto joined = llvm::dyn_cast<JoinedAttr>(value))
    return joinedBytes(joined, [&](Attribute part) { return constantBytes(part, store); });
  auto elements = llvm::dyn_cast<DenseElementsAttr>(value);
  std::optional<DType> dtype = elements ? dtypeOf(elements.getElementType()) : std::nullopt;
  if (!dtype)
    return internalError("a constant is neither dense elements nor a weight");
  unsigned bits = bitWidth(*dtype);
  int64_t count = elements.getNumElements();
  std::vector<std::byte> out(byteSize(*dtype, count));
  auto put = [&](int64_t i, const APInt &element) {
    uint64_t word = element.getRawData()[0];
    if (bits >= 8) {
      std::memcpy(out.data() + i * (bits / 8), &word, std::min<size_t>(bits / 8, 8));
      return;
    }
    unsigned perByte = 8 / bits;
    out[i / perByte] |= std::byte((word & ((1u << bits) - 1)) << (i % perByte * bits));
  };
  int64_t i = 0;
  if (llvm::isa<FloatType>(elements.getElementType()))
    for (const APFloat &element : elements.getValues<APFloat>())
      put(i++, element.bitcastToAPInt());
  else if (llvm::isa<IntegerType>(elements.getElementType()))
    for (const APInt &element : elements.getValues<APInt>())
      put(i++, element);
  else
    return unsupportedError("constants of complex numbers");
  return out;
}

TypedAttr constantAttr(TensorType type, std::span<const std::byte> bytes, WeightStore &store) {
  constexpr size_t kInlineBytes = 256;
  DType dtype = *dtypeOf(type.getElementType());
  unsigned bits = bitWidth(dtype);
  if (bytes.size() > kInlineBytes)
    return store.addCopy(type, bytes);
  SmallVector<Attribute> values;
  int64_t count = type.getNumElements();
  for (int64_t i = 0; i < count; ++i) {
    uint64_t word = 0;
    if (bits >= 8)
      std::memcpy(&word, bytes.data() + i * (bits / 8), bits / 8);
    else
      word = (static_cast<uint64_t>(bytes[i / (8 / bits)]) >> (i % (8 / bits) * bits)) &
             ((1u << bits) - 1);
    if (auto floating = llvm::dyn_cast<FloatType>(type.getElementType()))
      values.push_back(FloatAttr::get(
          floating, APFloat(floating.getFloatSemantics(), APInt(bits, word, false, true))));
    else
      values.push_back(IntegerAttr::get(
          type.getElementType(),
          APInt(type.getElementType().getIntOrFloatBitWidth(), word, false, true)));
  }
  return DenseElementsAttr::get(type, values);
}

std::optional<std::vector<int64_t>> constantInts(Value value) {
  DenseIntElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)))
    return std::nullopt;
  std::vector<int64_t> result;
  bool isUnsigned = elements.getElementType().isUnsignedInteger() ||
                    elements.getElementType().isInteger(1);
  for (const APInt &element : elements.getValues<APInt>())
    result.push_back(isUnsigned ? static_cast<int64_t>(element.getZExtValue())
                                : element.getSExtValue());
  return result;
}

} // namespace lathe
