//===- Npy.cpp - .npy files --------------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The header is a Python dictionary literal of three known keys; everything is
// checked against the file's size before use.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/Npy.h"

#include "lathe/support/Files.h"
#include "lathe/support/Strings.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace lathe {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;
};

/// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
public:
  explicit HeaderParser(std::string_view text) : text(text) {}

  /// Empty when fine, otherwise what is wrong.
  std::string run(Header &header) {
    if (!take('{'))
      return "header is not a dictionary";
    int seen = 0;
    while (!take('}')) {
      std::string key;
      if (!quoted(key) || !take(':'))
        return "header has a malformed key";
      if (key == "descr") {
        if (!quoted(header.descr))
          return "structured types are not supported";
        seen |= 1;
      } else if (key == "fortran_order") {
        header.fortran = word("True");
        if (!header.fortran && !word("False"))
          return "fortran_order is neither True nor False";
        seen |= 2;
      } else if (key == "shape") {
        if (!shape(header.shape))
          return "malformed shape";
        seen |= 4;
      } else {
        return "unknown header key '" + key + "'";
      }
      take(',');
    }
    return seen == 7 ? "" : "header lacks descr, fortran_order or shape";
  }

private:
  void space() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t'))
      ++at;
  }
  bool take(char c) {
    space();
    if (at >= text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }
  bool word(std::string_view w) {
    space();
    if (text.substr(at, w.size()) != w)
      return false;
    at += w.size();
    return true;
  }
  bool quoted(std::string &into) {
    space();
    if (at >= text.size() || (text[at] != '\'' && text[at] != '"'))
      return false;
    size_t end = text.find(text[at], at + 1);
    if (end == std::string_view::npos)
      return false;
    into = text.substr(at + 1, end - at - 1);
    at = end + 1;
    return true;
  }
  bool shape(std::vector<int64_t> &into) {
    if (!take('('))
      return false;
    while (!take(')')) {
      space();
      int64_t d = 0;
      auto [end, code] = std::from_chars(text.data() + at, text.data() + text.size(), d);
      if (code != std::errc() || d < 0)
        return false;
      at = end - text.data();
      if (at < text.size() && text[at] == 'L')
        ++at;
      into.push_back(d);
      space();
      if (!take(',') && (at >= text.size() || text[at] != ')'))
        return false;
    }
    return true;
  }

  std::string_view text;
  size_t at = 0;
};

struct Descr {
  DType type;
  std::string_view text; ///< without byte order
};
constexpr Descr kDescr[] = {
    {DType::Bool, "b1"},       {DType::I8, "i1"},         {DType::I16, "i2"},
    {DType::I32, "i4"},        {DType::I64, "i8"},        {DType::UI8, "u1"},
    {DType::UI16, "u2"},       {DType::UI32, "u4"},       {DType::UI64, "u8"},
    {DType::F16, "f2"},        {DType::F32, "f4"},        {DType::F64, "f8"},
    {DType::C64, "c8"},        {DType::C128, "c16"},      {DType::BF16, "V2"},
    {DType::F8E5M2, "V1"},     {DType::F8E4M3FN, "V1"},   {DType::F8E4M3FNUZ, "V1"},
    {DType::F8E5M2FNUZ, "V1"}, {DType::F8E8M0, "V1"},     {DType::I4, "V1"},
    {DType::UI4, "V1"},        {DType::F4E2M1, "V1"},     {DType::I2, "V1"},
    {DType::UI2, "V1"},
};

/// The type of a file, or an explanation.
std::optional<DType> typeOf(std::string_view descr, std::optional<DType> as, std::string &error) {
  std::optional<DType> only;
  int candidates = 0;
  for (const Descr &d : kDescr) {
    bool matches = d.text == descr || (d.type == DType::F8E5M2 && descr == "f1");
    if (!matches)
      continue;
    if (as == d.type)
      return d.type;
    only = d.type;
    ++candidates;
  }
  if (candidates == 0)
    error = "element type '" + std::string(descr) + "' is not supported";
  else if (as)
    error = "holds " + (candidates == 1 ? std::string(name(*only)) : "'" + std::string(descr) + "'") +
            ", expected " + std::string(name(*as));
  else if (candidates > 1)
    error = "'" + std::string(descr) + "' may be any narrow type; name the one that is meant";
  else
    return only;
  return std::nullopt;
}

/// Characters of a string in a file: those of '<U8' are 8, of four bytes each.
struct StringDescr {
  size_t length = 0;
  bool wide = false; ///< 'U'
  size_t width() const { return wide ? 4 * length : length; }
};
std::optional<StringDescr> stringDescr(std::string_view descr) {
  StringDescr result;
  if (descr.size() < 2 || (descr[0] != 'U' && descr[0] != 'S'))
    return std::nullopt;
  result.wide = descr[0] == 'U';
  auto [end, code] = std::from_chars(descr.data() + 1, descr.data() + descr.size(), result.length);
  if (code != std::errc() || end != descr.data() + descr.size() || result.length > (size_t(1) << 40))
    return std::nullopt;
  return result;
}

/// The strings of a file; an explanation in `error` where they are none.
std::vector<std::string> readStrings(std::string_view data, StringDescr descr, size_t count, bool bigEndian,
                                     std::string &error) {
  std::vector<std::string> texts(count);
  for (size_t i = 0; i < count && error.empty(); ++i) {
    std::string_view one = data.substr(i * descr.width(), descr.width());
    if (!descr.wide) {
      texts[i] = one.substr(0, one.find_last_not_of('\0') + 1);
      if (!charactersOf(texts[i]))
        error = "string " + std::to_string(i) + " is no UTF-8";
      continue;
    }
    std::u32string characters;
    for (size_t k = 0; k < descr.length; ++k) {
      uint32_t c = 0;
      for (size_t b = 0; b < 4; ++b)
        c |= uint32_t(static_cast<uint8_t>(one[4 * k + (bigEndian ? 3 - b : b)])) << (8 * b);
      characters += static_cast<char32_t>(c);
    }
    characters.resize(characters.find_last_not_of(U'\0') + 1);
    for (char32_t c : characters)
      if (!appendUtf8(texts[i], c))
        error = "string " + std::to_string(i) + " has what is no character";
  }
  return texts;
}

/// Copies Fortran order into row-major order.
std::string rowMajor(std::string_view data, const std::vector<int64_t> &dims, size_t width) {
  std::string result(data.size(), '\0');
  std::vector<int64_t> index(dims.size(), 0);
  std::vector<size_t> strides(dims.size());
  size_t stride = width;
  for (size_t i = 0; i < dims.size(); ++i) {
    strides[i] = stride;
    stride *= static_cast<size_t>(dims[i]);
  }
  size_t from = 0;
  for (size_t to = 0; to < data.size(); to += width) {
    std::memcpy(result.data() + to, data.data() + from, width);
    for (size_t i = dims.size(); i-- > 0;) {
      from += strides[i];
      if (++index[i] < dims[i])
        break;
      from -= strides[i] * static_cast<size_t>(dims[i]);
      index[i] = 0;
    }
  }
  return result;
}

} // namespace

Result<HostTensor> parseNpy(std::string_view file, std::optional<DType> as,
                            const std::string &name) {
  if (file.size() < 10 || file.substr(0, kMagic.size()) != kMagic)
    return invalidError("not a .npy file", name);
  int version = static_cast<uint8_t>(file[6]);
  if (version < 1 || version > 3)
    return invalidError("unknown .npy version " + std::to_string(version), name);
  size_t lengthBytes = version == 1 ? 2 : 4;
  size_t headerAt = 8 + lengthBytes, headerLength = 0;
  if (file.size() < headerAt)
    return invalidError("truncated header", name);
  for (size_t i = 0; i < lengthBytes; ++i)
    headerLength |= static_cast<size_t>(static_cast<uint8_t>(file[8 + i])) << (8 * i);
  if (headerLength > file.size() - headerAt)
    return invalidError("truncated header", name);

  Header header;
  std::string error = HeaderParser(file.substr(headerAt, headerLength)).run(header);
  if (!error.empty())
    return invalidError(error, name);
  std::string_view descr = header.descr;
  char order = descr.empty() ? 0 : descr[0];
  if (order == '<' || order == '>' || order == '|' || order == '=')
    descr.remove_prefix(1);
  std::optional<StringDescr> strings = stringDescr(descr);
  if (strings && as && *as != DType::String)
    return invalidError("holds strings, expected " + std::string(lathe::name(*as)), name);
  if (descr == "O")
    return invalidError("holds Python objects: of strings, save array.astype(str)", name);
  std::optional<DType> type = strings ? std::optional(DType::String) : typeOf(descr, as, error);
  if (!type)
    return invalidError(error, name);
  Result<int64_t> count = checkedElementCount(header.shape);
  if (!count)
    return invalidError(count.status().message(), name);

  // Types of less than a byte take one byte each in the file.
  bool packed = !strings && bitWidth(*type) < 8;
  size_t width = strings ? strings->width() : packed ? 1 : bitWidth(*type) / 8;
  std::string_view data = file.substr(headerAt + headerLength);
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(*count), width, &bytes))
    return invalidError("too many elements", name);
  if (data.size() != bytes)
    return invalidError("holds " + std::to_string(data.size()) + " bytes of data, the shape needs " +
                            std::to_string(bytes), name);
  std::string copy;
  if (order == '>' && width > 1 && !strings) {
    size_t part = isComplex(*type) ? width / 2 : width;
    copy = data;
    for (size_t i = 0; i < copy.size(); i += part)
      std::reverse(copy.begin() + i, copy.begin() + i + part);
    data = copy;
  }
  if (header.fortran && header.shape.size() > 1 && width) {
    copy = rowMajor(data, header.shape, width);
    data = copy;
  }
  if (strings) {
    std::vector<std::string> texts = readStrings(data, *strings, static_cast<size_t>(*count), order == '>', error);
    if (!error.empty())
      return invalidError(error, name);
    return stringTensor(header.shape, texts);
  }
  HostTensor tensor(*type, header.shape);
  if (!packed) {
    if (bytes)
      std::memcpy(tensor.data.data(), data.data(), bytes);
    return tensor;
  }
  for (int64_t i = 0; i < *count; ++i) {
    if (isFloat(*type))
      tensor.setReal(i, decodeFloat(*type, static_cast<uint8_t>(data[i])));
    else
      tensor.setInteger(i, static_cast<int8_t>(data[i]));
  }
  return tensor;
}

Result<HostTensor> readNpy(const std::string &path, std::optional<DType> as) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return file.status();
  return parseNpy(file->text(), as, path);
}

namespace {

/// The header of a file, whose data begin at a multiple of 64.
std::string headerOf(const std::string &descr, const std::vector<int64_t> &dims) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < dims.size(); ++i)
    header += (i ? ", " : "") + std::to_string(dims[i]);
  header += dims.size() == 1 ? ",), }" : "), }";

  size_t prefix = 10;
  size_t total = (prefix + header.size() + 1 + 63) / 64 * 64;
  if (total - prefix > 0xffff) {
    prefix = 12;
    total = (prefix + header.size() + 1 + 63) / 64 * 64;
  }
  size_t headerLength = total - prefix;
  header.resize(headerLength - 1, ' ');
  header += '\n';

  std::string file(kMagic);
  file += prefix == 10 ? '\1' : '\2';
  file += '\0';
  for (size_t i = 0; i < prefix - 8; ++i)
    file += static_cast<char>(headerLength >> (8 * i));
  return file + header;
}

Result<std::string> formatStrings(const HostTensor &tensor) {
  constexpr size_t kMost = size_t(1) << 33;
  Result<std::vector<std::string_view>> texts = stringsOf(tensor);
  if (!texts)
    return texts.status();
  std::vector<std::u32string> all;
  size_t longest = 1; // numpy writes no '<U0'
  for (std::string_view text : *texts) {
    std::optional<std::u32string> characters = charactersOf(text);
    if (!characters)
      return invalidError("string " + std::to_string(all.size()) + " is no UTF-8");
    longest = std::max(longest, characters->size());
    all.push_back(std::move(*characters));
  }
  if (longest > kMost / 4 / std::max<size_t>(all.size(), 1))
    return unsupportedError("an array whose strings all take the " + std::to_string(longest) +
                            " characters of the longest has more than 8 GiB");
  std::string file = headerOf("<U" + std::to_string(longest), tensor.dims);
  for (const std::u32string &one : all)
    for (size_t k = 0; k < longest; ++k) {
      uint32_t c = k < one.size() ? static_cast<uint32_t>(one[k]) : 0;
      for (size_t b = 0; b < 4; ++b)
        file += static_cast<char>(c >> (8 * b));
    }
  return file;
}

} // namespace

Result<std::string> formatNpy(const HostTensor &tensor) {
  if (tensor.dtype == DType::String)
    return formatStrings(tensor);
  const Descr *descr = std::find_if(std::begin(kDescr), std::end(kDescr),
                                    [&](const Descr &d) { return d.type == tensor.dtype; });
  if (descr == std::end(kDescr))
    return unsupportedError("arrays of " + std::string(name(tensor.dtype)) +
                            " cannot be stored as .npy");
  bool oneByte = descr->text[1] == '1' && descr->text[0] != 'V';
  std::string file = headerOf((oneByte ? '|' : '<') + std::string(descr->text), tensor.dims);
  if (bitWidth(tensor.dtype) >= 8) {
    file.append(reinterpret_cast<const char *>(tensor.data.data()), tensor.data.size());
    return file;
  }
  for (int64_t i = 0, n = tensor.count(); i < n; ++i)
    file += static_cast<char>(isFloat(tensor.dtype)
                                  ? static_cast<int64_t>(encodeFloat(tensor.dtype, tensor.real(i)))
                                  : tensor.integer(i));
  return file;
}

Status writeNpy(const std::string &path, const HostTensor &tensor) {
  Result<std::string> file = formatNpy(tensor);
  if (!file)
    return file.status();
  return writeFileAtomically(path, *file);
}

} // namespace lathe
