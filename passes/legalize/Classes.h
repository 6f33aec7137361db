//===- Classes.h - what classifiers of ai.onnx.ml share ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_CLASSES_H
#define LATHE_PASSES_LEGALIZE_CLASSES_H

#include "Node.h"

namespace lathe::legal {

/// The labels of a classifier: integers, or the numbers of strings.
struct ClassLabels {
  Ints numbers;
  bool areStrings = false;
};
/// Of the attribute `integers`, or of `classlabels_strings`; none after a report, where neither has a label.
std::optional<ClassLabels> classLabels(Node &n, llvm::StringRef integers);
/// Result 0: the label at each place, i64 [N].
mlir::LogicalResult setLabels(Node &n, const ClassLabels &labels, mlir::Value places);

/// What `post_transform` makes of scores [N, classes]; null after a report.
mlir::Value transformed(Node &n, mlir::Value scores, llvm::StringRef transform);

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_CLASSES_H
