//===- ProblemCsv.cpp - memory problems as CSV -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A line at a time; every error knows its line and column.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/ProblemCsv.h"

#include <charconv>
#include <numeric>
#include <set>

namespace lathe::analysis {
namespace {

enum Column { Id, Lower, Upper, Size, Alignment, Gaps, Alias, Space, Offset, kColumns };
constexpr const char *kNames[kColumns] = {"id",   "lower", "upper", "size",  "alignment",
                                          "gaps", "alias", "space", "offset"};
/// Groups and spaces are numbered; more of them are a mistake.
constexpr int64_t kMaxNumber = 1'000'000;

struct Cell {
  std::string text;
  size_t column; ///< of its first byte, from 1
};

class Reader {
public:
  Reader(std::string_view text, const std::string &file) : rest(text), file(file) {}

  Result<CsvProblem> run() {
    if (rest.substr(0, 3) == "\xef\xbb\xbf")
      rest.remove_prefix(3);
    std::string_view line;
    while (nextLine(line)) {
      if (line.empty())
        continue;
      std::vector<Cell> cells;
      LATHE_RETURN_IF_ERROR(split(line, cells));
      LATHE_RETURN_IF_ERROR(out.header.empty() ? header(cells) : row(cells));
      if (out.header.empty())
        out.header = line;
      else
        out.lines.emplace_back(line);
    }
    if (out.header.empty())
      return error("has no header: the first line names the columns id, lower, upper, size", 1);
    return std::move(out);
  }

private:
  bool nextLine(std::string_view &line) {
    if (rest.empty())
      return false;
    size_t end = rest.find('\n');
    line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!line.empty() && line.back() == '\r')
      line.remove_suffix(1);
    ++number;
    return true;
  }

  Status error(const std::string &message, size_t column) const {
    return invalidError(message, file + ":" + std::to_string(std::max<size_t>(number, 1)) + ":" +
                                     std::to_string(column));
  }
  Status error(const std::string &message, const Cell &cell) const {
    return error(message, cell.column);
  }

  /// Cells between commas; one that begins with a quote ends with one, and has two for one.
  Status split(std::string_view line, std::vector<Cell> &cells) const {
    for (size_t at = 0;;) {
      Cell cell{{}, at + 1};
      if (at < line.size() && line[at] == '"') {
        for (++at;; ++at) {
          if (at >= line.size())
            return error("a quote is not closed", cell);
          if (line[at] != '"')
            cell.text += line[at];
          else if (at + 1 < line.size() && line[at + 1] == '"')
            cell.text += line[at++];
          else
            break;
        }
        if (++at < line.size() && line[at] != ',')
          return error("text follows a closing quote", at + 1);
      } else {
        size_t end = std::min(line.find(',', at), line.size());
        cell.text = line.substr(at, end - at);
        trim(cell);
        at = end;
      }
      cells.push_back(std::move(cell));
      if (at >= line.size())
        return okStatus();
      ++at;
    }
  }

  static void trim(Cell &cell) {
    size_t begin = cell.text.find_first_not_of(" \t");
    if (begin == std::string::npos) {
      cell.text.clear();
      return;
    }
    cell.column += begin;
    cell.text = cell.text.substr(begin, cell.text.find_last_not_of(" \t") - begin + 1);
  }

  Status header(const std::vector<Cell> &cells) {
    for (size_t i = 0; i < cells.size(); ++i) {
      std::string name = cells[i].text;
      if (name == "end")
        lastStep = 1;
      if (name == "buffer" || name == "buffer_id")
        name = "id";
      else if (name == "start" || name == "begin")
        name = "lower";
      else if (name == "end")
        name = "upper";
      int which = 0;
      while (which < kColumns && name != kNames[which])
        ++which;
      if (which == kColumns)
        return error("no column is called '" + cells[i].text +
                         "'; there are id, lower, upper, size, alignment, gaps, alias, space and offset",
                     cells[i]);
      if (places[which] >= 0)
        return error("the column " + name + " appears twice", cells[i]);
      places[which] = static_cast<int>(i);
    }
    for (int which : {Id, Lower, Upper, Size})
      if (places[which] < 0)
        return error(std::string("the column ") + kNames[which] + " is missing", 1);
    columns = cells.size();
    out.offsetColumn = places[Offset];
    return okStatus();
  }

  /// The number of a cell; `empty` where it may be left out.
  Status number64(const Cell &cell, int64_t &value, const int64_t *empty = nullptr) const {
    if (cell.text.empty() && empty) {
      value = *empty;
      return okStatus();
    }
    const char *end = cell.text.data() + cell.text.size();
    auto [stop, code] = std::from_chars(cell.text.data(), end, value);
    if (code == std::errc::result_out_of_range)
      return error("'" + cell.text + "' does not fit into 64 bits", cell);
    if (code != std::errc() || stop != end)
      return error("'" + cell.text + "' is no integer", cell);
    return okStatus();
  }

  /// 0 to kMaxNumber; an empty cell leaves the value as it is.
  Status smallNumber(const Cell &cell, int64_t &value) const {
    if (cell.text.empty())
      return okStatus();
    LATHE_RETURN_IF_ERROR(number64(cell, value));
    if (value < 0 || value > kMaxNumber)
      return error("'" + cell.text + "' is not between 0 and " + std::to_string(kMaxNumber), cell);
    return okStatus();
  }

  /// "4-7 9-12".
  Status gaps(const Cell &cell, Buffer &b) const {
    for (size_t at = 0; at < cell.text.size();) {
      size_t end = std::min(cell.text.find(' ', at), cell.text.size());
      std::string text = cell.text.substr(at, end - at);
      Cell part{text, cell.column + at};
      at = end + 1;
      if (text.empty())
        continue;
      if (text.find('@') != std::string::npos)
        return unsupportedError("gaps of a part of the bytes ('@') are not supported",
                                error("", part).location());
      size_t dash = text.find('-', 1); // the first may be a sign
      if (dash == std::string::npos)
        return error("'" + text + "' is no gap: FROM-TO is one", part);
      Interval gap;
      LATHE_RETURN_IF_ERROR(number64({text.substr(0, dash), part.column}, gap.begin));
      LATHE_RETURN_IF_ERROR(number64({text.substr(dash + 1), part.column + dash + 1}, gap.end));
      if (__builtin_add_overflow(gap.end, lastStep, &gap.end) || gap.begin >= gap.end ||
          gap.begin < b.begin || gap.end > b.end ||
          (!b.gaps.empty() && gap.begin < b.gaps.back().end))
        return error("the gap '" + text + "' is empty, outside the lifetime or before its "
                     "predecessor's end", part);
      b.gaps.push_back(gap);
    }
    return okStatus();
  }

  Status row(const std::vector<Cell> &cells) {
    if (cells.size() != columns)
      return error("has " + std::to_string(cells.size()) + " cells, the header " +
                       std::to_string(columns),
                   cells.size() > columns ? cells[columns] : cells.back());
    auto cell = [&](Column which) -> const Cell & { return cells[places[which]]; };
    if (cell(Id).text.empty())
      return error("the id is empty", cell(Id));
    if (!seen.insert(cell(Id).text).second)
      return error("the id '" + cell(Id).text + "' appears twice", cell(Id));
    Buffer b;
    LATHE_RETURN_IF_ERROR(number64(cell(Lower), b.begin));
    LATHE_RETURN_IF_ERROR(number64(cell(Upper), b.end));
    LATHE_RETURN_IF_ERROR(number64(cell(Size), b.size));
    if (__builtin_add_overflow(b.end, lastStep, &b.end))
      return error("the lifetime does not fit into 64 bits", cell(Upper));
    if (b.begin > b.end)
      return error("the lifetime ends before it begins", cell(Upper));
    if (b.size < 0)
      return error("the size is negative", cell(Size));
    if (places[Alignment] >= 0) {
      constexpr int64_t none = 1;
      LATHE_RETURN_IF_ERROR(number64(cell(Alignment), b.alignment, &none));
      if (b.alignment < 1 || b.alignment > (int64_t(1) << 40))
        return error("the alignment is not between 1 and 2^40", cell(Alignment));
    }
    if (places[Offset] >= 0 && !cell(Offset).text.empty()) {
      int64_t offset = 0;
      LATHE_RETURN_IF_ERROR(number64(cell(Offset), offset));
      if (offset < 0 || offset > INT64_MAX / 4)
        return error("the offset is not between 0 and 2^61", cell(Offset));
      if (offset % b.alignment != 0)
        return error("the offset is no multiple of the alignment " + std::to_string(b.alignment),
                     cell(Offset));
      b.offset = offset;
    }
    int64_t group = -1, space = 0;
    if (places[Alias] >= 0)
      LATHE_RETURN_IF_ERROR(smallNumber(cell(Alias), group));
    if (places[Space] >= 0)
      LATHE_RETURN_IF_ERROR(smallNumber(cell(Space), space));
    b.aliasGroup = static_cast<int>(group);
    b.space = static_cast<int>(space);
    if (places[Gaps] >= 0)
      LATHE_RETURN_IF_ERROR(gaps(cell(Gaps), b));
    if (__builtin_add_overflow(total, b.size, &total) ||
        __builtin_add_overflow(total, b.alignment, &total) || total > INT64_MAX / 4)
      return error("the sizes sum up to more than 2^61 bytes", cell(Size));
    out.ids.push_back(cell(Id).text);
    out.problem.buffers.push_back(b);
    return okStatus();
  }

  std::string_view rest;
  const std::string &file;
  CsvProblem out;
  size_t number = 0, columns = 0;
  int places[kColumns] = {-1, -1, -1, -1, -1, -1, -1, -1, -1};
  int64_t lastStep = 0; ///< 1 where the column `end` names the last step
  int64_t total = 0;
  std::set<std::string> seen;
};

/// The line with the text of one cell replaced.
std::string replaceCell(const std::string &line, int column, const std::string &by) {
  size_t at = 0;
  auto cellEnd = [&] {
    bool quoted = false;
    size_t end = at;
    for (; end < line.size() && (quoted || line[end] != ','); ++end)
      quoted ^= line[end] == '"';
    return end;
  };
  for (int i = 0; i < column; ++i)
    at = cellEnd() + 1;
  return line.substr(0, at) + by + line.substr(cellEnd());
}

std::string quoted(const std::string &text) {
  if (text.find_first_of(",\" \t") == std::string::npos)
    return text;
  std::string out = "\"";
  for (char c : text)
    out += c == '"' ? std::string("\"\"") : c == '\n' || c == '\r' ? " " : std::string(1, c);
  return out + "\"";
}

} // namespace

Result<CsvProblem> parseProblemCsv(std::string_view text, const std::string &file) {
  return Reader(text, file).run();
}

std::string solutionCsv(const CsvProblem &source, const Solution &solution) {
  bool append = source.offsetColumn < 0;
  std::string out = source.header + (append ? ",offset\n" : "\n");
  for (size_t i = 0; i < source.lines.size(); ++i) {
    std::string offset = std::to_string(solution.offsets[i]);
    out += append ? source.lines[i] + "," + offset
                  : replaceCell(source.lines[i], source.offsetColumn, offset);
    out += '\n';
  }
  return out;
}

std::string problemCsv(const Problem &problem, const std::vector<std::string> &ids) {
  bool alignment = false, gaps = false, alias = false, space = false, offset = false;
  for (const Buffer &b : problem.buffers) {
    alignment |= b.alignment != 1;
    gaps |= !b.gaps.empty();
    alias |= b.aliasGroup >= 0;
    space |= b.space != 0;
    offset |= b.offset.has_value();
  }
  std::string out = "id,lower,upper,size";
  out += std::string(alignment ? ",alignment" : "") + (gaps ? ",gaps" : "") +
         (alias ? ",alias" : "") + (space ? ",space" : "") + (offset ? ",offset" : "") + "\n";
  std::set<std::string> seen;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer &b = problem.buffers[i];
    std::string id = i < ids.size() && !ids[i].empty() ? ids[i] : std::to_string(i);
    if (!seen.insert(id).second) {
      id += "#" + std::to_string(i);
      seen.insert(id);
    }
    out += quoted(id) + "," + std::to_string(b.begin) + "," + std::to_string(b.end) + "," +
           std::to_string(b.size);
    if (alignment)
      out += "," + std::to_string(b.alignment);
    if (gaps) {
      std::string list;
      for (const Interval &gap : b.gaps)
        list += (list.empty() ? "" : " ") + std::to_string(gap.begin) + "-" +
                std::to_string(gap.end);
      out += "," + list;
    }
    if (alias)
      out += "," + (b.aliasGroup >= 0 ? std::to_string(b.aliasGroup) : std::string());
    if (space)
      out += "," + std::to_string(b.space);
    if (offset)
      out += "," + (b.offset ? std::to_string(*b.offset) : std::string());
    out += '\n';
  }
  return out;
}

} // namespace lathe::analysis
