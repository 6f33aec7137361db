//===- MemoryDrawing.h - buffers over time as SVG ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_ANALYSIS_MEMORYDRAWING_H
#define LATHE_ANALYSIS_MEMORYDRAWING_H

#include <cstdint>
#include <string>
#include <vector>

namespace lathe::analysis {

/// A buffer as it is drawn: steps [begin, end) across, bytes [offset, offset + size) up.
struct DrawnBuffer {
  std::string name;
  int64_t begin = 0, end = 0, offset = 0, size = 0;
};

struct Drawing {
  std::string title;
  std::vector<DrawnBuffer> buffers;
  int64_t height = 0; ///< bytes of the arena: the top of the picture
  /// Names of steps, for those that have one, from step `firstStep` on.
  std::vector<std::string> steps;
  int64_t firstStep = 0;
};

/// One SVG document. A buffer's rectangle shows name, steps and bytes under the pointer;
/// above the buffers a line gives the live bytes of each step.
std::string drawSvg(const Drawing &drawing);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_MEMORYDRAWING_H
