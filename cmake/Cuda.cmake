# SPDX-License-Identifier: Apache-2.0
# The CUDA backend is built where a toolkit is found; -DCMAKE_CUDA_COMPILER= says
# where one is, and -DATTNBIAS_CUDA=OFF to leave it.
option(ATTNBIAS_CUDA "Build the CUDA backend where a toolkit is found" ON)
set(ATTNBIAS_HAVE_CUDA OFF)
if(ATTNBIAS_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
endif()
if(ATTNBIAS_CUDA AND CMAKE_CUDA_COMPILER)
  # Code for these two, and PTX for whatever comes after them.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  enable_language(CUDA)
  set(ATTNBIAS_HAVE_CUDA ON)
  find_library(CUBLAS_LIBRARY cublas HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES})
  find_path(CUBLAS_INCLUDE_DIR cublas_v2.h
            HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}, cuBLAS ${CUBLAS_LIBRARY}")
endif()
