# Toolchain file: the runtime and what tests it for 64-bit ARM Linux, built on another machine.
#
#   tools/setup --test --no-build     # makes the sysroot
#   cmake -G Ninja -S . -B build-aarch64 -DCMAKE_TOOLCHAIN_FILE=tools/cmake/aarch64-linux-gnu.cmake
#
# The sysroot holds Debian's libraries for arm64. Programs run under qemu-user, ctest's too.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../../build/deps/sysroot-aarch64")
cmake_path(NORMAL_PATH CMAKE_SYSROOT)
if(NOT EXISTS "${CMAKE_SYSROOT}/stamp")
  message(FATAL_ERROR "${CMAKE_SYSROOT} is not there: tools/setup --test makes it")
endif()

set(CMAKE_C_COMPILER clang-22)
set(CMAKE_CXX_COMPILER clang++-22)
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
# The system's own linker knows no other processor; this is for the checks that CMake makes first.
set(CMAKE_EXE_LINKER_FLAGS_INIT -fuse-ld=mold)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${CMAKE_SYSROOT}")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# ARM has no compiler of lathe here: models are compiled where this is built.
set(LATHE_BUILD_COMPILER OFF CACHE BOOL "")
