# Build rules shared by all folders: compiler flags, LLVM/MLIR as static parts, and the
# lathe_add_* functions.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_RELEASE "-O2")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

# Debian's LLVM is built with NDEBUG, and class layouts differ without it: no build of lathe
# may leave it out. lathe's own checks are in verifiers and Status, not in assert.
add_compile_definitions(NDEBUG)
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
                    -ffunction-sections -fdata-sections -fno-plt)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  # x86-64's baseline has no fused multiply-add. Where there is one, what the runtime computes itself is
  # rounded the same way.
  add_compile_options(-ffp-contract=off)
endif()
add_link_options(-Wl,--gc-sections -Wl,--as-needed -fuse-ld=mold)
if(NOT LATHE_SANITIZE)
  add_link_options(-static-libstdc++ -static-libgcc)
else()
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")
  set(LATHE_SANITIZE_MLIR -O1 CACHE STRING "-O0 compiles code on MLIR in half the time; it runs slower")
  string(REPLACE ";" "," LATHE_SANITIZE_LIST "${LATHE_SANITIZE}")
  add_compile_options(-fsanitize=${LATHE_SANITIZE_LIST} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all -gline-tables-only)
  add_link_options(-fsanitize=${LATHE_SANITIZE_LIST})
endif()
find_program(LATHE_CCACHE ccache)
if(LATHE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${LATHE_CCACHE})
endif()
include_directories("${CMAKE_SOURCE_DIR}/include" "${CMAKE_BINARY_DIR}/include")
include(Math)

# A library free of MLIR; compiled with the precompiled headers of the standard library.
#   lathe_add_library(LatheX SOURCES a.cpp b.cpp [DEPS LatheY ...])
function(lathe_add_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC ${A_DEPS})
  if(LATHE_STD_PCH)
    target_compile_options(${name} PRIVATE -Xclang -fno-pch-timestamp)
    target_precompile_headers(${name} REUSE_FROM LatheStdPch)
  endif()
endfunction()

# lathe_links(RESULT LIBRARY... TO OTHER...): whether one of the libraries is, or links, itself or through others, one of
# the OTHERs.
function(lathe_links result)
  cmake_parse_arguments(A "" "" "TO" ${ARGN})
  set(found OFF)
  set(todo ${A_UNPARSED_ARGUMENTS})
  set(seen)
  while(todo AND NOT found)
    list(POP_FRONT todo library)
    if(library IN_LIST A_TO)
      set(found ON)
    elseif(library MATCHES "^Lathe" AND TARGET ${library} AND NOT library IN_LIST seen)
      list(APPEND seen ${library})
      get_target_property(links ${library} INTERFACE_LINK_LIBRARIES)
      if(links)
        list(TRANSFORM links REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1")
        list(APPEND todo ${links})
      endif()
    endif()
  endwhile()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# A unit test program on GoogleTest, run by ctest as `unit.<name>`. OPTIMIZED: a test that computes
# much itself (emulated kernels, random problems by the million); MLIR ones always are, as the
# precompiled header is.
#
# What reads bytes from outside and what runs engines is in `ctest -L sanitized` too. What links a code
# generator, itself or through a library of tests, would double the time of a check and is left to
# `tools/check --full`; so is NVRTC, which opens a library of its own beside itself that the sanitizer's
# dlopen does not find, and what says NOT_SANITIZED.
function(lathe_add_unit_test name)
  cmake_parse_arguments(A "MLIR;OPTIMIZED;NOT_SANITIZED" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  if(A_MLIR)
    lathe_use_mlir(${name})
  elseif(NOT A_OPTIMIZED)
    # The test itself computes little: half the time to compile it is worth more. As with MLIR, -fPIC
    # is what the precompiled header is made with.
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -O0 -fPIC -Xclang -fno-pch-timestamp)
    target_precompile_headers(${name} REUSE_FROM LatheTestPch)
  endif()
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/test/unit")
  add_test(NAME unit.${name} COMMAND ${name})
  set_property(GLOBAL APPEND PROPERTY LATHE_UNIT_TESTS ${name})
  lathe_links(generates ${A_DEPS} TO LatheCpu LatheCuda LathePasses LatheCompiler)
  if(generates)
    # Those that compile kernels take longest. ctest starts them first, so that none runs alone at the end.
    set_tests_properties(unit.${name} PROPERTIES COST 100)
  endif()
  if(NOT A_NOT_SANITIZED AND NOT generates AND NOT "LatheNvrtc" IN_LIST A_DEPS)
    set_property(GLOBAL APPEND PROPERTY LATHE_SANITIZED_TESTS ${name})
    set_tests_properties(unit.${name} PROPERTIES LABELS sanitized)
  endif()
endfunction()

if(LATHE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

if(NOT LATHE_BUILD_COMPILER)
  return()
endif()

list(APPEND CMAKE_MODULE_PATH /usr/lib/llvm-22/lib/cmake/llvm /usr/lib/llvm-22/lib/cmake/mlir)
find_package(zstd)
find_package(ZLIB)
find_library(LATHE_ZSTD_STATIC NAMES libzstd.a REQUIRED)
find_library(LATHE_ZLIB_STATIC NAMES libz.a REQUIRED)
find_package(MLIR REQUIRED CONFIG PATHS /usr/lib/llvm-22/lib/cmake/mlir NO_DEFAULT_PATH)
include(TableGen)
include(AddLLVM)
include(AddMLIR)
set(MLIR_TABLEGEN_EXE /usr/lib/llvm-22/bin/mlir-tblgen)
set(Protobuf_USE_STATIC_LIBS ON)
find_package(Protobuf REQUIRED)
# Position-independent, which Debian's libprotobuf.a is not; tools/setup builds it.
set(LATHE_PROTOBUF "${LATHE_PROTOBUF_PREFIX}/lib/libprotobuf.a")
if(NOT EXISTS "${LATHE_PROTOBUF}")
  message(WARNING "${LATHE_PROTOBUF} is not there (tools/setup --no-build makes it): liblathe_compiler.so "
                  "takes the system's libprotobuf.so, and no wheel can be made of it")
  find_library(LATHE_PROTOBUF_SHARED NAMES libprotobuf.so REQUIRED)
  set(LATHE_PROTOBUF $<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>,${LATHE_PROTOBUF_SHARED},protobuf::libprotobuf>)
endif()

# The ONNX C++ library and its protobuf messages. Both throw: include them in lib/import only.
add_library(lathe_onnx INTERFACE)
target_include_directories(lathe_onnx SYSTEM INTERFACE "${LATHE_ONNX_PREFIX}/include")
target_compile_definitions(lathe_onnx INTERFACE ONNX_NAMESPACE=onnx ONNX_ML=1)
target_link_libraries(lathe_onnx INTERFACE "${LATHE_ONNX_PREFIX}/lib/libonnx.a"
                      "${LATHE_ONNX_PREFIX}/lib/libonnx_proto.a" ${LATHE_PROTOBUF})

# Each static MLIR target names the shared libLLVM; a second LLVM beside the static parts aborts
# at exit. So that name is replaced by the static components that lathe needs.
get_target_property(l LLVMSupport INTERFACE_LINK_LIBRARIES)
list(TRANSFORM l REPLACE "^ZLIB::ZLIB$" "${LATHE_ZLIB_STATIC}")
list(TRANSFORM l REPLACE "^zstd::libzstd_shared$" "${LATHE_ZSTD_STATIC}")
set_target_properties(LLVMSupport PROPERTIES INTERFACE_LINK_LIBRARIES "${l}")
llvm_map_components_to_libnames(LATHE_LLVM_LIBS core support asmparser bitwriter passes
  x86codegen x86asmparser x86desc x86info aarch64codegen aarch64asmparser aarch64desc aarch64info targetparser target mc object irreader)
get_property(LATHE_IMPORTED DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(t ${LATHE_IMPORTED})
  if(t MATCHES "^MLIR" AND NOT t STREQUAL "MLIR")
    get_target_property(l ${t} INTERFACE_LINK_LIBRARIES)
    if(l)
      list(FIND l LLVM has)
      list(FILTER l EXCLUDE REGEX "^(LLVM|MLIR|\\$<LINK_ONLY:LLVM>)$")
      if(NOT has EQUAL -1)
        list(APPEND l ${LATHE_LLVM_LIBS})
      endif()
      set_target_properties(${t} PROPERTIES INTERFACE_LINK_LIBRARIES "${l}")
    endif()
  endif()
endforeach()

# One precompiled header for all code on MLIR.
function(lathe_use_mlir target)
  target_include_directories(${target} SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_compile_options(${target} PRIVATE -fno-exceptions -Wno-unused-parameter
                         -Xclang -fno-pch-timestamp)
  if(LATHE_SANITIZE)
    target_compile_options(${target} PRIVATE ${LATHE_SANITIZE_MLIR})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    # The precompiled header is made with -fPIC; CMake would give programs -fPIE.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  if(NOT target STREQUAL "LathePch")
    target_precompile_headers(${target} REUSE_FROM LathePch)
  endif()
  add_dependencies(${target} LatheIRGen)
endfunction()

# A library on MLIR; compiled with the shared precompiled header.
#   lathe_add_mlir_library(LatheX SOURCES a.cpp [DEPS LatheIR MLIRTransforms ...])
function(lathe_add_mlir_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  lathe_use_mlir(${name})
  target_link_libraries(${name} PUBLIC ${A_DEPS})
endfunction()
