# What `cmake --install` and CPack take, in four components:
#   runtime    liblathe_runtime.so, and liblathe_tcp.so, which it opens for ranks that are processes
#   host       liblathe_host.so, which engines with strings or images want beside it
#   dev        headers, find_package(lathe) and pkg-config
#   compiler   liblathe_compiler.so, the commands, their completion in shells
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(LATHE_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/lathe")
set_target_properties(lathe_runtime PROPERTIES EXPORT_NAME runtime)
target_include_directories(lathe_runtime INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS lathe_runtime EXPORT lathe-runtime-targets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime)
install(TARGETS lathe_tcp LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime)
install(TARGETS lathe_host LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT host)
install(EXPORT lathe-runtime-targets NAMESPACE lathe:: DESTINATION "${LATHE_CMAKE_DIR}" COMPONENT dev)
install(FILES include/lathe/runtime/lathe.h include/lathe/runtime/lathe.hpp include/lathe/runtime/lathe_llm.h include/lathe/runtime/lathe_llm.hpp
              include/lathe/runtime/dlpack.h
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lathe/runtime" COMPONENT dev)
install(FILES include/lathe/compiler/lathe_compiler.h
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lathe/compiler" COMPONENT dev)
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/lathe" COMPONENT runtime)

if(LATHE_BUILD_COMPILER)
  set_target_properties(lathe_compiler PROPERTIES EXPORT_NAME compiler)
  target_include_directories(lathe_compiler INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS lathe_compiler EXPORT lathe-compiler-targets
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT compiler)
  install(EXPORT lathe-compiler-targets NAMESPACE lathe:: DESTINATION "${LATHE_CMAKE_DIR}" COMPONENT dev)
  install(TARGETS lathe lathe-opt RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT compiler)
  install(FILES tools/completion/lathe.bash RENAME lathe
          DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT compiler)
  install(FILES tools/completion/lathe.zsh RENAME _lathe
          DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT compiler)
  install(FILES tools/completion/lathe.fish
          DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT compiler)
endif()

configure_package_config_file(tools/cmake/latheConfig.cmake.in latheConfig.cmake
                              INSTALL_DESTINATION "${LATHE_CMAKE_DIR}" PATH_VARS CMAKE_INSTALL_LIBDIR)
# While the version begins with 0, each minor one may change the interface.
write_basic_package_version_file(latheConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/latheConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/latheConfigVersion.cmake"
        DESTINATION "${LATHE_CMAKE_DIR}" COMPONENT dev)
file(RELATIVE_PATH LATHE_PREFIX_FROM_LIB "/prefix/${CMAKE_INSTALL_LIBDIR}" /prefix)
configure_file(tools/cmake/lathe.pc.in lathe.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lathe.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)

# `cpack --config build/CPackConfig.cmake -B build/dist` writes the packages.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lathe)
set(CPACK_PACKAGE_CONTACT "lathe <lathe@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Compiles ONNX models to engines, and runs engines")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime host dev)
if(LATHE_BUILD_COMPILER)
  list(APPEND CPACK_COMPONENTS_ALL compiler)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME liblathe-runtime)
set(CPACK_DEBIAN_HOST_PACKAGE_NAME liblathe-host)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME liblathe-dev)
set(CPACK_DEBIAN_COMPILER_PACKAGE_NAME lathe)
# All else is linked statically, but in liblathe_host.so.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= 2.34)")
set(CPACK_DEBIAN_HOST_PACKAGE_DEPENDS
    "liblathe-runtime (= ${PROJECT_VERSION}), libstdc++6, libre2-9, libutf8proc2, libturbojpeg0, libpng16-16, libwebp7, libtiff6, libopenjp2-7")
set(CPACK_DEBIAN_COMPILER_PACKAGE_DEPENDS "libc6 (>= 2.34)")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "liblathe-runtime (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS lathe)
include(CPack)
