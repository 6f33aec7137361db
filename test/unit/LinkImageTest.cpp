//===- LinkImageTest.cpp - objects become an image that the loader takes --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../codegen/cpu/Relocations.h"

#include "lathe/codegen/Codegen.h"

#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace lathe;
using testing::HasSubstr;

namespace {

std::string objectOf(const char *text, const char *name = "x86-64-v3") {
  Result<Target> target = Target::parse(name);
  Result<std::string> object = codegen::compileLLVMText(text, *target);
  EXPECT_TRUE(object.ok()) << object.status().str();
  return object.ok() ? *object : std::string();
}

std::string errorOf(std::vector<std::string> objects) {
  Result<std::string> image = codegen::linkImage(objects);
  return image.ok() ? "linked" : image.status().str();
}

/// Addresses in a table (for the loader), a call and a constant across objects (the latter through
/// .got), data that are written, zeros, a constant of the object's own.
constexpr const char *kFirst = R"(
@table = internal constant [2 x ptr] [ptr @one, ptr @two]
@written = internal global i32 5
@zeros = internal global [3000 x i32] zeroinitializer, align 64
@shared = external constant i32
declare hidden i32 @other(i32)
define internal i32 @one(i32 %x) noinline { %r = add i32 %x, 1  ret i32 %r }
define internal i32 @two(i32 %x) noinline { %r = mul i32 %x, 2  ret i32 %r }
define i32 @pick(i64 %i, i32 %x) {
  %at = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i
  %f = load ptr, ptr %at
  %a = call i32 %f(i32 %x)
  %b = call i32 @other(i32 %a)
  %c = load i32, ptr @shared
  %r = add i32 %b, %c
  ret i32 %r
}
define i32 @count() {
  %z = getelementptr [3000 x i32], ptr @zeros, i64 0, i64 2999
  %a = load volatile i32, ptr %z
  %b = load volatile i32, ptr @written
  %s = add i32 %b, 1
  store volatile i32 %s, ptr @written
  store volatile i32 %s, ptr %z
  %r = add i32 %a, %b
  ret i32 %r
}
define void @fill(ptr %p) {
  store <8 x float> <float 1.0, float 2.0, float 3.0, float 4.0, float 5.0, float 6.0, float 7.0, float 8.5>, ptr %p, align 4
  ret void
}
)";
constexpr const char *kSecond = R"(
@shared = constant i32 1000
define hidden i32 @other(i32 %x) { %r = sub i32 %x, 100  ret i32 %r }
)";

TEST(LinkImage, RunsWhatWasBound) {
  std::vector<std::string> objects = {objectOf(kFirst), objectOf(kSecond)};
  Result<std::string> image = codegen::linkImage(objects);
  ASSERT_TRUE(image.ok()) << image.status().str();
  EXPECT_EQ(*codegen::linkImage(objects), *image);
  int fd = memfd_create("image", 0);
  ASSERT_EQ(write(fd, image->data(), image->size()), ssize_t(image->size()));
  void *handle = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(handle) << dlerror();
  auto *pick = reinterpret_cast<int (*)(int64_t, int)>(dlsym(handle, "pick"));
  auto *count = reinterpret_cast<int (*)()>(dlsym(handle, "count"));
  auto *fill = reinterpret_cast<void (*)(float *)>(dlsym(handle, "fill"));
  ASSERT_TRUE(pick && count && fill);
  EXPECT_EQ(pick(0, 7), 7 + 1 - 100 + 1000);
  EXPECT_EQ(pick(1, 7), 7 * 2 - 100 + 1000);
  EXPECT_EQ(count(), 5);
  EXPECT_EQ(count(), 6 + 6);
  float values[8];
  fill(values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[7], 8.5f);
  // Hidden names stay inside, and so do internal ones.
  EXPECT_FALSE(dlsym(handle, "other"));
  EXPECT_FALSE(dlsym(handle, "one"));
  dlclose(handle);
  close(fd);
}

TEST(LinkImage, SaysWhatIsWrong) {
  EXPECT_THAT(errorOf({objectOf(kFirst)}), HasSubstr("undefined symbol: "));
  EXPECT_THAT(errorOf({objectOf(kSecond), objectOf(kSecond)}), HasSubstr("two kernels define "));
  EXPECT_THAT(errorOf({"no object"}), HasSubstr("linking kernels: "));
  std::string cut = objectOf(kFirst);
  for (size_t size = 0; size < cut.size(); size += 97)
    EXPECT_NE(errorOf({cut.substr(0, size)}), "linked");
  EXPECT_THAT(errorOf({objectOf("@t = thread_local global i32 3\n"
                                "define i32 @f() { %v = load i32, ptr @t  ret i32 %v }")}),
              HasSubstr("thread-local"));
}

/// What the image says of itself to the AArch64 loader; that it runs is seen by tools/check's suite of that name.
TEST(LinkImage, BindsForAArch64) {
  std::vector<std::string> objects = {objectOf(kFirst, "armv8-a"), objectOf(kSecond, "armv8-a")};
  Result<std::string> image = codegen::linkImage(objects);
  ASSERT_TRUE(image.ok()) << image.status().str();
  EXPECT_EQ(*codegen::linkImage(objects), *image);
  Elf64_Ehdr header;
  std::memcpy(&header, image->data(), sizeof header);
  EXPECT_EQ(header.e_machine, EM_AARCH64);
  uint64_t end = 0;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr p;
    std::memcpy(&p, image->data() + header.e_phoff + i * sizeof p, sizeof p);
    if (p.p_type != PT_LOAD)
      continue;
    // No two segments meet on a page of 64 KiB.
    EXPECT_EQ(p.p_align, 65536u);
    EXPECT_EQ((p.p_vaddr - p.p_offset) % 65536, 0u);
    EXPECT_GE(p.p_vaddr / 65536 * 65536, end);
    end = (p.p_vaddr + p.p_memsz + 65535) / 65536 * 65536;
  }
  EXPECT_THAT(errorOf({objects[0]}), HasSubstr("undefined symbol: "));
  EXPECT_THAT(errorOf({objects[0], objectOf(kSecond)}), HasSubstr("than the first"));
}

struct Field {
  uint32_t type;
  uint32_t before;
  uint64_t place, value;
  uint32_t after; ///< 0: refused
};

/// Instructions as an assembler writes them (`llvm-mc -triple=aarch64 --show-encoding`).
TEST(LinkImage, WritesFieldsOfAArch64) {
  const codegen::Architecture *arm = codegen::findArchitecture(EM_AARCH64);
  ASSERT_TRUE(arm);
  const Field fields[] = {
      {R_AARCH64_CALL26, 0x94000000, 0x1000, 0x1008, 0x94000002},            // bl +8
      {R_AARCH64_JUMP26, 0x14000000, 0x1008, 0x1000, 0x17fffffe},            // b -8
      {R_AARCH64_CALL26, 0x94000000, 0, 0x8000000, 0},                       // too far
      {R_AARCH64_CALL26, 0x94000000, 0, 2, 0},                               // between two instructions
      {R_AARCH64_ADR_PREL_PG_HI21, 0x90000000, 0x1ffc, 0x5008, 0x90000020},  // adrp x0, +4 pages
      {R_AARCH64_ADR_PREL_PG_HI21, 0x90000001, 0x5008, 0x1ffc, 0x90ffffe1},  // adrp x1, -4 pages
      {R_AARCH64_ADR_PREL_PG_HI21, 0x90000000, 0x1000, 0x4000, 0xf0000000},  // adrp x0, +3 pages
      {R_AARCH64_ADD_ABS_LO12_NC, 0x91000000, 0, 0x5123, 0x91048c00},        // add x0, x0, #0x123
      {R_AARCH64_LDST32_ABS_LO12_NC, 0xb9400000, 0, 0x5124, 0xb9412400},     // ldr w0, [x0, #0x124]
      {R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00000, 0, 0x5120, 0x3dc04800},    // ldr q0, [x0, #0x120]
      {R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00000, 0, 0x5128, 0},             // not aligned
      {R_AARCH64_LD64_GOT_LO12_NC, 0xf9400000, 0, 0x5118, 0xf9408c00},       // ldr x0, [x0, #0x118]
      {R_AARCH64_PREL32, 0, 0x1000, 0x0ff0, 0xfffffff0},
      {R_AARCH64_PREL32, 0, 0, uint64_t(1) << 32, 0},                        // too far
  };
  for (const Field &f : fields) {
    char bytes[4];
    std::memcpy(bytes, &f.before, 4);
    bool written = codegen::applyRelocation(*arm, f.type, bytes, f.place, f.value);
    EXPECT_EQ(written, f.after != 0) << f.type;
    uint32_t after;
    std::memcpy(&after, bytes, 4);
    if (f.after != 0)
      EXPECT_EQ(after, f.after) << std::hex << f.type << " " << f.value << ": " << after;
  }
}

} // namespace
