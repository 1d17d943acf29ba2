# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers and output folders for every target.
option(ATTNBIAS_BUILD_TESTS "Build the tests and benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(ATTNBIAS_PACKAGES "Make manual pages, and Debian packages by cpack" OFF)
set(ATTNBIAS_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)

# The files in a library are compiled in batches, since most of the time to compile one file is
# spent reading headers that all of them include. No two files in a library may therefore define the
# same name in an anonymous namespace.
option(CMAKE_UNITY_BUILD "Compile the files of a library together" ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 32)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE}")
endif()

# Results are exact, so the compiler must neither fuse nor reorder operations.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-Wall>
                    $<$<COMPILE_LANGUAGE:C,CXX>:-Wextra>
                    $<$<COMPILE_LANGUAGE:C,CXX>:-Wno-missing-field-initializers>
                    $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)
include_directories("${PROJECT_SOURCE_DIR}")

# For code that a process runs once, with libraries that are slow to optimize and instrument.
set(ATTNBIAS_RUNS_ONCE -O1)
if(ATTNBIAS_SANITIZE MATCHES "undefined")
  list(APPEND ATTNBIAS_RUNS_ONCE -fno-sanitize=undefined)
endif()
if(ATTNBIAS_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${ATTNBIAS_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${ATTNBIAS_SANITIZE})
endif()
