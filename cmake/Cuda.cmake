# SPDX-License-Identifier: Apache-2.0
# The CUDA backend is built if a toolkit is found. The environment variable CUDACXX names the
# toolkit's compiler.
set(ATTNBIAS_CUDA "AUTO" CACHE STRING
    "The CUDA backend: AUTO (where a toolkit is found), REQUIRED or OFF")
set(ATTNBIAS_HAVE_CUDA OFF)
if(ATTNBIAS_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER)
  # Machine code for these two architectures, and PTX for later devices.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  enable_language(CUDA)
  # Settings for this compiler that CMake 3.25 lacks.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(ATTNBIAS_HAVE_CUDA ON)
  # Programs load the backend from their own folder.
  set(CMAKE_BUILD_RPATH "$ORIGIN")
elseif(ATTNBIAS_CUDA STREQUAL "REQUIRED")
  message(FATAL_ERROR
      "ATTNBIAS_CUDA is REQUIRED, but no CUDA compiler was found; set CUDACXX to its path")
endif()
