//===- DumpMemory.cpp - the memory problem of a program as CSV ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DumpMemory.h"

#include "lathe/analysis/ProblemCsv.h"
#include "lathe/support/DType.h"

using namespace mlir;

namespace lathe {

namespace {

/// Sizes that memory is planned for: upper bounds, or the optimum where there is none.
std::map<std::string, int64_t> planningPoint(exec::ProgramOp program) {
  std::map<std::string, int64_t> point;
  for (exec::SizeOp size : program.getBody().front().getOps<exec::SizeOp>()) {
    int64_t max = int64_t(size.getMax());
    bool bounded = max >= 0 && max != DimRange::kUnbounded;
    point[size.getName().str()] = bounded ? max : int64_t(size.getOpt());
  }
  return point;
}

} // namespace

Result<std::string> memoryProblem(exec::ProgramOp program, int64_t alignment) {
  std::map<std::string, int64_t> point = planningPoint(program);
  analysis::Problem problem;
  std::vector<std::string> ids;
  for (exec::BufferOp buffer : program.getBody().front().getOps<exec::BufferOp>()) {
    if (buffer.getBase() || (buffer.getKind() != exec::BufferKind::Arena &&
                             buffer.getKind() != exec::BufferKind::Workspace))
      continue;
    auto type = cast<TensorType>(buffer.getMemory().getType());
    auto dtype = dtypeOf(type.getElementType());
    Result<int64_t> count = product(physicalDimsOf(type)).evaluate(point);
    if (!count)
      return count.status();
    analysis::Buffer b;
    b.size = byteSize(*dtype, *count);
    b.alignment = alignment;
    if (auto live = buffer.getLive()) {
      b.begin = (*live)[0];
      b.end = (*live)[1];
    }
    problem.buffers.push_back(b);
    ids.push_back(buffer.getName().str());
  }
  return analysis::problemCsv(problem, ids);
}

} // namespace lathe
