//===- LinkImageTest.cpp - objects become an image that the loader takes --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/codegen/Codegen.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace lathe;
using testing::HasSubstr;

namespace {

std::string objectOf(const char *text) {
  Result<Target> target = Target::parse("x86-64-v3");
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

} // namespace
