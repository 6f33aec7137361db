# The transcendental functions of every program and library here: those of Debian's static musl, so
# that no result, folded constant or choice depends on the libm of the machine that runs. (glibc's
# differ by a unit between processors with and without FMA, and between versions.) What is exact by
# definition, such as floor, sqrt and fmod, is the same everywhere and stays with libm.
#
# test/tools/math.test sees that no program asks libm for one of these.

set(LATHE_MATH_FUNCTIONS
  acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf exp exp10 exp2 expm1 hypot lgamma lgamma_r
  log log10 log1p log2 pow sin sincos sinh tan tanh tgamma)
# What those call and read.
set(LATHE_MATH_PARTS
  __cos __cosdf __expo2 __expo2f __math_divzero __math_divzerof __math_invalid __math_invalidf
  __math_oflow __math_oflowf __math_uflow __math_uflowf __math_xflow __math_xflowf __rem_pio2
  __rem_pio2_large __rem_pio2f __sin __sindf __tan __tandf exp2f_data exp_data log2_data log2f_data
  log_data logf_data pow_data powf_data signgam)

find_library(LATHE_MUSL libc.a PATHS "/usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-musl"
             NO_DEFAULT_PATH)
if(NOT LATHE_MUSL)
  message(FATAL_ERROR "musl's static library is missing: apt-get install musl-dev")
endif()
set(LATHE_MATH "${CMAKE_BINARY_DIR}/liblathe_math.a")
if("${LATHE_MUSL}" IS_NEWER_THAN "${LATHE_MATH}" OR
   "${CMAKE_CURRENT_LIST_FILE}" IS_NEWER_THAN "${LATHE_MATH}")
  set(objects)
  foreach(name ${LATHE_MATH_FUNCTIONS})
    list(APPEND objects ${name}.lo)
    if(name STREQUAL "lgamma_r")
      list(APPEND objects lgammaf_r.lo)
    else()
      list(APPEND objects ${name}f.lo)
    endif()
  endforeach()
  list(TRANSFORM LATHE_MATH_PARTS APPEND .lo OUTPUT_VARIABLE parts)
  list(APPEND objects ${parts})
  set(folder "${CMAKE_BINARY_DIR}/math")
  file(MAKE_DIRECTORY "${folder}")
  file(REMOVE "${LATHE_MATH}")
  execute_process(COMMAND ${CMAKE_AR} x "${LATHE_MUSL}" ${objects}
                  WORKING_DIRECTORY "${folder}" RESULT_VARIABLE failed)
  if(NOT failed)
    execute_process(COMMAND ${CMAKE_AR} qcsD "${LATHE_MATH}" ${objects}
                    WORKING_DIRECTORY "${folder}" RESULT_VARIABLE failed)
  endif()
  if(failed)
    message(FATAL_ERROR "cannot take the functions out of ${LATHE_MUSL}")
  endif()
endif()
# Before all libraries: a symbol is the first library's that has it.
add_link_options("${LATHE_MATH}")
