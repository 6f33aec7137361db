//===- HostCpuTest.cpp - what is read of a machine ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/HostCpu.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace lathe;
namespace fs = std::filesystem;

namespace {

/// A tree of files like /sys and /proc, which goes with this.
struct Machine {
  fs::path root = fs::temp_directory_path() / ("lathe-host-" + std::to_string(getpid()));
  Machine() { fs::remove_all(root); }
  ~Machine() { fs::remove_all(root); }

  void write(const std::string &path, const std::string &text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  }
  void cpu(int number, const std::string &siblings) {
    write("sys/devices/system/cpu/cpu" + std::to_string(number) + "/topology/thread_siblings_list", siblings);
  }
  void cache(int cpu, int index, int level, const std::string &type, const std::string &size,
             const std::string &shared) {
    std::string at = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
    write(at + "level", std::to_string(level));
    write(at + "type", type);
    write(at + "size", size);
    write(at + "shared_cpu_list", shared);
  }
  HostCpu read(std::vector<int> processors) { return HostCpu::read(root.string(), std::move(processors)); }
};

// Four cores of two threads each: threads of a core do not divide its caches, cores do.
TEST(HostCpu, SharesOfCaches) {
  Machine m;
  for (int i = 0; i < 8; ++i) {
    std::string both = std::to_string(i % 4) + "," + std::to_string(i % 4 + 4);
    m.cpu(i, both);
    m.cache(i, 0, 1, "Data", "48K", both);
    m.cache(i, 1, 1, "Instruction", "32K", both);
    m.cache(i, 2, 2, "Unified", "1280K", both);
    m.cache(i, 3, 3, "Unified", "30M", "0-7");
  }
  HostCpu host = m.read({0, 1, 4, 5, 6});
  EXPECT_EQ(host.processors, 5);
  EXPECT_EQ(host.cores, 3);
  EXPECT_EQ(host.usableCores(), 3);
  EXPECT_EQ(host.share(1), 48 << 10);
  EXPECT_EQ(host.share(2), 1 << 20);  // 1.25 MB, rounded down
  EXPECT_EQ(host.share(3), 6 << 20);  // 7.5 MB
  EXPECT_NE(host.str().find("third-level cache: 30 MB, shared by 4 cores"), std::string::npos) << host.str();
  EXPECT_GT(host.pageBytes, 0);
}

// Of cores of several kinds the smallest share counts.
TEST(HostCpu, TheSmallestOfSeveralKinds) {
  Machine m;
  m.cache(0, 0, 2, "Unified", "2048K", "0");
  for (int i = 1; i < 5; ++i)
    m.cache(i, 0, 2, "Unified", "4096K", "1-4");
  EXPECT_EQ(m.read({0}).share(2), 2 << 20);
  EXPECT_EQ(m.read({0, 1}).share(2), 1 << 20);
}

TEST(HostCpu, LimitsOfControlGroups) {
  {
    Machine m; // the second version; the group above has less
    m.write("proc/self/cgroup", "0::/a/b");
    m.write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
    EXPECT_EQ(m.read({0, 1, 2}).quota, 0);
    m.write("sys/fs/cgroup/a/cpu.max", "150000 100000");
    EXPECT_EQ(m.read({0, 1, 2}).quota, 1.5);
    EXPECT_EQ(m.read({0, 1, 2}).usableCores(), 2);
    m.write("sys/fs/cgroup/cpu.max", "50000 100000");
    EXPECT_EQ(m.read({0, 1, 2}).usableCores(), 1);
  }
  Machine m; // the first version
  m.write("proc/self/cgroup", "4:cpuset:/\n3:cpu,cpuacct:/a\n0::/");
  m.write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1");
  m.write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(m.read({0}).quota, 0);
  m.write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000");
  EXPECT_EQ(m.read({0}).quota, 3);
}

// A system that says nothing, or nonsense.
TEST(HostCpu, NothingIsKnown) {
  Machine m;
  HostCpu host = m.read({0});
  EXPECT_EQ(host.share(2), 0);
  EXPECT_EQ(host.usableCores(), 1);
  m.cache(0, 0, 2, "Unified", "many", "x-y,,-3");
  m.cache(0, 1, 7, "Unified", "1M", "0");
  m.write("proc/self/cgroup", "nothing");
  host = m.read({0});
  EXPECT_EQ(host.share(2), 0);
  EXPECT_EQ(host.quota, 0);
}

} // namespace
