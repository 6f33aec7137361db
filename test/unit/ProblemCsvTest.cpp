//===- ProblemCsvTest.cpp - memory problems as CSV -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Header variants, each mistake with its line and column, what is written, and
// arbitrary bytes.
//
//===----------------------------------------------------------------------===//
#include "lathe/analysis/MemoryDrawing.h"
#include "lathe/analysis/ProblemCsv.h"

#include <gtest/gtest.h>
#include <random>

using namespace lathe;
using namespace lathe::analysis;

namespace {

CsvProblem parsed(const std::string &text) {
  Result<CsvProblem> result = parseProblemCsv(text, "p.csv");
  EXPECT_TRUE(result.ok()) << result.status().str();
  return result ? *result : CsvProblem();
}

TEST(ProblemCsv, HeaderVariants) {
  for (const char *header : {"id,lower,upper,size", "buffer,start,upper,size",
                             "buffer_id,begin,upper,size"}) {
    CsvProblem p = parsed(std::string(header) + "\na,0,3,8\nb,-2,3,0\n");
    ASSERT_EQ(p.problem.buffers.size(), 2u);
    EXPECT_EQ(p.ids, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(p.problem.buffers[0].end, 3);
    EXPECT_EQ(p.problem.buffers[0].size, 8);
    EXPECT_EQ(p.problem.buffers[1].begin, -2);
  }
  // `end` is the last step.
  EXPECT_EQ(parsed("start,size,buffer,end\n6,2,1,11\n").problem.buffers[0].end, 12);
}

TEST(ProblemCsv, OptionalColumns) {
  CsvProblem p = parsed("offset,id,lower,upper,size,alignment,gaps,alias,space\r\n"
                        "64,\"x, y\",0,9,100,32,2-4 6-7,3,1\r\n\r\n"
                        ",z,1,2,5,,,,\n");
  const Buffer &x = p.problem.buffers[0], &z = p.problem.buffers[1];
  EXPECT_EQ(p.ids[0], "x, y");
  EXPECT_EQ(x.offset, 64);
  EXPECT_EQ(x.alignment, 32);
  EXPECT_EQ(x.gaps, (std::vector<Interval>{{2, 4}, {6, 7}}));
  EXPECT_EQ(x.aliasGroup, 3);
  EXPECT_EQ(x.space, 1);
  EXPECT_FALSE(z.offset);
  EXPECT_EQ(z.alignment, 1);
  EXPECT_EQ(z.aliasGroup, -1);
  EXPECT_TRUE(z.gaps.empty());
}

TEST(ProblemCsv, MistakesHaveLineAndColumn) {
  struct Case {
    const char *text, *place, *part;
  };
  const std::string head = "id,lower,upper,size\n";
  auto check = [](const std::string &text, const char *place, const char *part) {
    Result<CsvProblem> result = parseProblemCsv(text, "p.csv");
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.status().location(), std::string("p.csv:") + place) << text;
    EXPECT_NE(result.status().message().find(part), std::string::npos)
        << result.status().message();
  };
  check("", "1:1", "no header");
  check("\n\n", "2:1", "no header");
  check("id,lower,size\n", "1:1", "upper is missing");
  check("id,lower,upper,size,colour\n", "1:21", "no column is called 'colour'");
  check("id,lower,upper,size,begin\n", "1:21", "appears twice");
  check(head + "a,0,1\n", "2:5", "3 cells");
  check(head + "a,0,1,2,3\n", "2:9", "5 cells");
  check(head + "a,0,1,2\nb,zero,1,2\n", "3:3", "'zero' is no integer");
  check(head + "a,0,1.5,2\n", "2:5", "no integer");
  check(head + "a,0,1,99999999999999999999\n", "2:7", "64 bits");
  check(head + "a,0,1,-1\n", "2:7", "negative");
  check(head + "a,5,1,1\n", "2:5", "ends before");
  check(head + ",0,1,1\n", "2:1", "empty");
  check(head + "a,0,1,1\na,0,1,1\n", "3:1", "twice");
  check(head + "\"a,0,1,1\n", "2:1", "not closed");
  check(head + "\"a\"b,0,1,1\n", "2:4", "closing quote");
  check(head + "a,0,1,2000000000000000000\nb,0,1,2000000000000000000\n", "3:7", "sum up");
  check("id,lower,end,size\na,0,9223372036854775807,1\n", "2:5", "64 bits");
  check("id,lower,upper,size,alignment\na,0,1,1,0\n", "2:9", "alignment");
  check("id,lower,upper,size,alignment,offset\na,0,1,1,8,4\n", "2:11", "multiple");
  check("id,lower,upper,size,offset\na,0,1,1,-8\n", "2:9", "offset");
  check("id,lower,upper,size,gaps\na,0,9,1,2-3 4\n", "2:13", "no gap");
  check("id,lower,upper,size,gaps\na,0,9,1,2-3 8-12\n", "2:13", "outside");
  check("id,lower,upper,size,gaps\na,0,9,1,2-3@0:1\n", "2:9", "not supported");
  check("id,lower,upper,size,alias\na,0,9,1,-4\n", "2:9", "between");
}

TEST(ProblemCsv, WritesWhatItReadWithOffsets) {
  Solution s;
  s.offsets = {0, 64};
  EXPECT_EQ(solutionCsv(parsed("id,lower,upper,size\r\na, 0,3,8\r\nb,1,3,8"), s),
            "id,lower,upper,size,offset\na, 0,3,8,0\nb,1,3,8,64\n");
  EXPECT_EQ(solutionCsv(parsed("id,offset,lower,upper,size\n\"a,b\",,0,3,8\nb,64,1,3,8\n"), s),
            "id,offset,lower,upper,size\n\"a,b\",0,0,3,8\nb,64,1,3,8\n");
}

TEST(ProblemCsv, ProblemsSurviveTheWay) {
  std::mt19937 random(3);
  auto draw = [&](int n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    Problem problem;
    for (int i = draw(20); i > 0; --i) {
      Buffer b;
      b.size = draw(1000);
      b.alignment = 1 << (round % 2 ? draw(7) : 0);
      b.begin = draw(50) - 10;
      b.end = b.begin + draw(20);
      if (draw(4) == 0)
        b.offset = b.alignment * draw(100);
      if (draw(3) == 0)
        b.aliasGroup = draw(4);
      if (b.end - b.begin > 3)
        b.gaps = {{b.begin + 1, b.begin + 2}};
      problem.buffers.push_back(b);
    }
    CsvProblem back = parsed(problemCsv(problem));
    ASSERT_EQ(back.problem.buffers.size(), problem.buffers.size());
    for (size_t i = 0; i < problem.buffers.size(); ++i) {
      const Buffer &x = problem.buffers[i], &y = back.problem.buffers[i];
      EXPECT_EQ(std::tie(x.size, x.alignment, x.begin, x.end, x.offset, x.aliasGroup, x.gaps),
                std::tie(y.size, y.alignment, y.begin, y.end, y.offset, y.aliasGroup, y.gaps));
    }
  }
}

TEST(ProblemCsv, ArbitraryBytesAreProblemsOrErrors) {
  std::mt19937 random(5);
  const std::string base = "id,lower,upper,size,alignment,gaps,offset\na,0,9,64,8,2-4,0\nb,1,3,4,,,\n";
  int errors = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = base;
    for (int i = 0; i <= round % 4; ++i) {
      size_t at = random() % text.size();
      switch (random() % 3) {
      case 0: text[at] = static_cast<char>(random()); break;
      case 1: text.erase(at, 1 + random() % 3); break;
      default: text.insert(at, 1, "0123456789,-\"\n@ \r"[random() % 17]);
      }
      if (text.empty())
        break;
    }
    Result<CsvProblem> result = parseProblemCsv(text, "p.csv");
    if (result) {
      EXPECT_TRUE(checkProblem(result->problem).ok()) << text;
    } else {
      ++errors;
      EXPECT_EQ(result.status().location().rfind("p.csv:", 0), 0u) << text;
    }
  }
  EXPECT_GT(errors, 5000);
}

TEST(MemoryDrawing, BuffersAndStepsAreInIt) {
  Drawing drawing;
  drawing.title = "a < b";
  drawing.height = 128;
  drawing.buffers = {{"x&y", 0, 2, 0, 64}, {"dead", 1, 1, 0, 64}, {"z", 1, 3, 64, 64}};
  drawing.steps = {"first", "", "third"};
  std::string svg = drawSvg(drawing);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(svg.find("x&amp;y: steps 0 to 1, bytes 0 to 64 (64)"), std::string::npos);
  EXPECT_NE(svg.find("z: steps 1 to 2, bytes 64 to 128 (64)"), std::string::npos);
  EXPECT_NE(svg.find("2: third"), std::string::npos);
  EXPECT_EQ(svg.find("dead"), std::string::npos);
  EXPECT_EQ(drawSvg(drawing), svg);
  EXPECT_NE(drawSvg({}).find("</svg>"), std::string::npos);
}

} // namespace
