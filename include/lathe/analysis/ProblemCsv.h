//===- ProblemCsv.h - memory problems as CSV -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// minimalloc's format: a header, then a buffer a line.
//
//   id,lower,upper,size[,alignment][,gaps][,alias][,space][,offset]
//
// Header variants: `buffer` and `buffer_id` for id; `start` and `begin` for lower;
// `end` for upper, which is then the last step instead of the one behind it. Columns
// may stand in any order. Sizes, alignments and offsets are bytes. A cell of alignment,
// gaps, alias, space or offset may be empty. Gaps, where the buffer is dead, are
// "4-7 9-12", half-open (with `end`: the last step); alias and space are numbers.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_PROBLEMCSV_H
#define LATHE_ANALYSIS_PROBLEMCSV_H

#include "lathe/analysis/MemoryPlan.h"

#include <string_view>

namespace lathe::analysis {

struct CsvProblem {
  Problem problem;
  std::vector<std::string> ids;   ///< of each buffer
  std::string header;             ///< the lines as they were, without line ends
  std::vector<std::string> lines; ///< of each buffer
  int offsetColumn = -1;          ///< of the file, -1: it has none
};

/// `file` is put into the place of errors: Invalid errors at "file:line:column", both
/// from 1, the column in bytes. What the reader takes, checkProblem takes,
/// but for what the members of an alias group ask of each other.
Result<CsvProblem> parseProblemCsv(std::string_view text, const std::string &file);

/// The lines that were read, with the offsets in a last column `offset` (or in the one
/// that the file has).
std::string solutionCsv(const CsvProblem &source, const Solution &solution);

/// A problem as CSV. Columns that say nothing are left out; explicit conflicts and offsets
/// inside alias groups are not written. `ids` may be empty: numbers then.
std::string problemCsv(const Problem &problem, const std::vector<std::string> &ids = {});

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_PROBLEMCSV_H
